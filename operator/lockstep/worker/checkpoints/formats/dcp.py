"""TorchDCP: torch.distributed.checkpoint's data files and a .metadata, written last."""

from __future__ import annotations

import collections
import functools
import os
import pickletools
import re
from typing import Any, Deque, Dict

from lockstep.worker.checkpoints.formats.findings import (
    VALID,
    CheckpointEntry,
    Finding,
    Format,
    InvalidError,
    ListedFile,
    Reading,
)
from lockstep.worker.checkpoints.formats.manifest import inside

TORCH_DCP = "TorchDCP"
MARKER = ".metadata"
MAX_METADATA_BYTES = 64 << 20


def is_dcp(entry: CheckpointEntry) -> bool:
    """Whether a save of torch.distributed.checkpoint was at least begun there."""
    return any(name.endswith(".distcp") or name in (MARKER, MARKER + ".tmp") for name in entry.files)


def read_dcp(entry: CheckpointEntry) -> Reading:
    """Raises InvalidError, OSError.

    What .metadata refers to is compared where its structure is understood; otherwise the files that are there
    are taken as they are and the reason says so: refusing them would refuse every checkpoint of a newer torch.
    """
    names = entry.files
    if ".metadata.tmp" in names:
        raise InvalidError(".metadata.tmp is left over: a save did not end")
    if MARKER not in names:
        raise InvalidError("no .metadata: it was never committed")
    sizes = {name: 0 for name in names if name.endswith(".distcp")}
    if not sizes:
        raise InvalidError("there is no .distcp file")
    marker = entry.at(MARKER)
    found = os.stat(marker)
    extents = _dcp_extents_of(marker, found.st_mtime_ns, found.st_size)
    reason = "" if extents else "the structure of .metadata was not understood: sizes were not compared"
    try:
        # The loader reads what .metadata names; what else is called like data is none of this checkpoint's.
        sizes = {inside(name): extent for name, extent in extents.items()} or sizes
    except ValueError as error:
        raise InvalidError(f".metadata names a {error}") from None
    finding = Finding(VALID, reason, TORCH_DCP, bytes=sum(sizes.values()), committed_at=found.st_mtime)
    return finding, [ListedFile(name, sizes[name]) for name in sorted(sizes)]


@functools.lru_cache(maxsize=64)
def _dcp_extents_of(path: str, mtime_ns: int, size: int) -> Dict[str, int]:
    """``dcp_extents`` of a file, remembered while it stays the same: a large one takes seconds at every barrier."""
    if size > MAX_METADATA_BYTES:
        return {}
    with open(path, "rb") as stream:
        metadata = stream.read(size)
    try:
        return dcp_extents(metadata)
    except MemoryError:
        raise
    except Exception as error:  # pickletools raises whatever a broken stream leads to
        raise InvalidError(f".metadata is not a whole pickle: {error}") from None


_STRING_OPCODES = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"))
_INTEGER_OPCODES = frozenset(("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG"))
_MEMO_PUTS = frozenset(("BINPUT", "LONG_BINPUT", "PUT"))
_MEMO_GETS = frozenset(("BINGET", "LONG_BINGET", "GET"))


def dcp_extents(metadata: bytes) -> Dict[str, int]:
    """Bytes that each data file must at least have, read off the opcodes of a DCP ``.metadata`` pickle.

    Nothing is unpickled: the stream is searched for the state of torch's ``_StorageInfo`` (relative_path, offset,
    length, pushed in this order). Empty when not every such state was understood. Raises on a broken pickle.
    """
    extents: Dict[str, int] = {}
    memo: Dict[Any, Any] = {}
    pushed: Deque[Any] = collections.deque(maxlen=6)
    last: Any = None
    seen = understood = 0
    for opcode, argument, _ in pickletools.genops(metadata):
        name = opcode.name
        if name == "FRAME":
            continue
        if name == "MEMOIZE":
            memo[len(memo)] = last
            continue
        if name in _MEMO_PUTS:
            memo[argument] = last
            continue
        if name in _MEMO_GETS:
            last = memo.get(argument)
        else:
            last = argument if name in _STRING_OPCODES or name in _INTEGER_OPCODES else None
        if last is None:
            pushed.clear()
            continue
        pushed.append(last)
        seen += last == "relative_path"
        if len(pushed) == 6 and (pushed[0], pushed[2], pushed[4]) == ("relative_path", "offset", "length"):
            path, offset, length = pushed[1], pushed[3], pushed[5]
            if isinstance(path, str) and isinstance(offset, int) and isinstance(length, int):
                extents[path] = max(extents.get(path, 0), offset + length)
                understood += 1
    return extents if understood == seen else {}


FORMAT = Format(TORCH_DCP, is_dcp, read_dcp, re.compile(r"^(?:.*[^0-9])?(\d{1,15})$"), (MARKER,))
