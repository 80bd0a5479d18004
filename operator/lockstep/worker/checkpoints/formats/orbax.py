"""Orbax: a directory per step, renamed into place when it is whole; newer versions add commit_success.txt.

Which data files an OCDBT manifest refers to is compressed in a way that the standard library cannot read: one of
several that was removed by hand from a committed checkpoint stays unnoticed, and so does the end of one with values.
"""

from __future__ import annotations

import os
import re
import struct
from typing import Any, Dict, Iterator, List

from lockstep.worker.checkpoints.formats.families import check_settled, stat_of
from lockstep.worker.checkpoints.formats.findings import (
    OCDBT,
    VALID,
    CheckpointEntry,
    Finding,
    Format,
    InvalidError,
    ListedFile,
    Reading,
)
from lockstep.worker.checkpoints.formats.megatron import read_json

ORBAX = "Orbax"
STEP_METADATA, COMMITTED = "_CHECKPOINT_METADATA", "commit_success.txt"
TREE_METADATA, MANIFEST = "_METADATA", "manifest.ocdbt"
UNFINISHED = ".orbax-checkpoint-tmp"

_MARKERS = frozenset((STEP_METADATA, COMMITTED, TREE_METADATA, MANIFEST, "orbax.checkpoint"))
_OF_TREES = frozenset((TREE_METADATA, MANIFEST, "checkpoint"))  # the last by old versions
_OCDBT_MAGIC = b"\x0c\xdb\x3a\x2a"
_MAX_DEPTH = 6
_ARRAYS = (".zarray", "zarr.json")
_READ = frozenset((*_ARRAYS, ".zattrs", ".zgroup", ".zmetadata"))
# Of a tree of arrays: its own files, and the directories that are its own without saying so inside.
_OF_TREE = re.compile(r"^_|^checkpoint$")
_WHOLLY = re.compile(r"^(?:d|array_metadatas|ocdbt\.process_.+)$")


def is_orbax(entry: CheckpointEntry) -> bool:
    """Whether Orbax has at least begun to save there."""
    return UNFINISHED in entry.name or bool(entry.files & _MARKERS)


def read_orbax(entry: CheckpointEntry) -> Reading:
    """Raises InvalidError, UnsureError, OSError."""
    if UNFINISHED in entry.name:
        raise InvalidError("it was never committed: it has Orbax's temporary name")
    metadata = read_json(entry.at(STEP_METADATA)) if STEP_METADATA in entry.files else {}
    stated = bool(metadata.get("commit_timestamp_nsecs"))
    if COMMITTED not in entry.files and STEP_METADATA in entry.files and not stated:
        raise InvalidError(f"it was never committed: {STEP_METADATA} has no time of commit and there is no {COMMITTED}")
    items = metadata.get("item_handlers")
    expected = sorted(items) if isinstance(items, dict) else []
    for item in expected:
        if item not in entry.directories:
            raise InvalidError(f"{item}/ is missing")
    files = list(_files(entry, expected))
    for directory in sorted({os.path.dirname(name) for name in files}):
        _check_tree(entry.below(directory) if directory else entry, directory)
    if all(os.path.basename(name) in _MARKERS for name in files):
        raise InvalidError("it holds no data")
    markers = [name for name in (STEP_METADATA, COMMITTED) if name in entry.files]
    times = {name: stat_of(entry, name) for name in files}
    newest = max(found.st_mtime for found in times.values())
    if not markers:  # by a version that only renames
        check_settled(newest)
    committed_at = max((times[name].st_mtime for name in markers), default=newest)
    finding = Finding(
        VALID, format=ORBAX, bytes=sum(found.st_size for found in times.values()), committed_at=committed_at
    )
    listed = sorted(set(files) - set(markers))
    return finding, [
        ListedFile(name, container=OCDBT) if "d" in name.split("/")[:-1] else ListedFile(name, 0) for name in listed
    ]


def _files(entry: CheckpointEntry, items: List[str]) -> Iterator[str]:
    """What the loader may read: whatever else people, programs and file systems leave there says nothing of the
    checkpoint. ``items``: its directories, where it says which."""
    for name in entry.files:
        if _is_of_tree(name):
            yield name
    in_items = bool(items) and not entry.files & _OF_TREES
    for name in entry.directories:
        _refuse_unfinished(name)
        if name in items or not (in_items or name.startswith(".")):
            yield from _inside(entry.below(name), f"{name}/", 1, bool(_WHOLLY.match(name)), named=name in items)


def _inside(entry: CheckpointEntry, prefix: str, depth: int, whole: bool, named: bool = False) -> Iterator[str]:
    """Of one directory. ``whole``: all of it belongs to an array, or to a part of the database; ``named``: it is an
    item, and is that wholly where it is no tree of arrays."""
    tree = bool(entry.files & _OF_TREES)
    whole = whole or bool(entry.files.intersection(_ARRAYS)) or (named and not tree)
    for name in entry.files:
        if name in _READ or (whole and not name.startswith(".")) or (tree and _is_of_tree(name)):
            yield prefix + name
    for name in entry.directories if depth < _MAX_DEPTH else ():
        _refuse_unfinished(prefix + name)
        if not name.startswith("."):
            wholly = whole or (tree and bool(_WHOLLY.match(name)))
            yield from _inside(entry.below(name), f"{prefix}{name}/", depth + 1, wholly)


def _is_of_tree(name: str) -> bool:
    return name in _MARKERS or bool(_OF_TREE.match(name))


def _refuse_unfinished(name: str) -> None:
    if UNFINISHED in name:
        raise InvalidError(f"{name} was never committed")


def _check_tree(entry: CheckpointEntry, named: str) -> None:
    """One directory of data: what its own metadata says must be there. Raises InvalidError, OSError."""
    if MANIFEST in entry.files:
        _check_ocdbt(entry, named)
    if TREE_METADATA not in entry.files:
        return
    metadata = read_json(entry.at(TREE_METADATA))
    if metadata.get("use_ocdbt"):
        if MANIFEST not in entry.files:
            raise InvalidError(f"{named}/{MANIFEST} is missing")
        return
    for array in _arrays(metadata):
        if array not in entry.directories or not entry.below(array).files.intersection(_ARRAYS):
            raise InvalidError(f"{named}/{array} is missing")


def _arrays(metadata: Dict[str, Any]) -> List[str]:
    """The directories of arrays that are stored one by one, where this version says which."""
    if "use_ocdbt" not in metadata:
        return []
    try:
        return [
            ".".join(str(part["key"]) for part in leaf["key_metadata"])
            for leaf in metadata["tree_metadata"].values()
            if not leaf["value_metadata"]["skip_deserialize"]
        ]
    except (KeyError, TypeError, AttributeError):
        return []  # of a version that arranges it in another way


def _check_ocdbt(entry: CheckpointEntry, named: str) -> None:
    """The manifest says how long it is, and something must be there for it to refer to."""
    with open(entry.at(MANIFEST), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(12)
    if head[:4] != _OCDBT_MAGIC or len(head) < 12 or struct.unpack("<Q", head[4:])[0] != size:
        raise InvalidError(f"{named}/{MANIFEST} is cut off or garbled")
    part = entry.name.startswith("ocdbt.process_")  # of one process, which may have had nothing to save
    if not part and not ("d" in entry.directories and entry.below("d").files):
        raise InvalidError(f"{named}/d holds no data")


FORMAT = Format(ORBAX, is_orbax, read_orbax, re.compile(r"^(?:.*[^0-9])?(\d{1,15})$"), (COMMITTED, STEP_METADATA))
