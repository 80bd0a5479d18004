"""Local checkpoints of NVIDIA's resiliency extension (also Megatron's): a file per rank, and copies of others' files.

``<root>/[<session>/]<rank>/iter_<step>_<owner>_local.pt``, ``.dirty`` while it is written. All files of one step on one
node are one checkpoint here, called ``<root>/[<session>/]iter_<step>`` although no such directory exists: the same
name on every node, so that what the nodes hold of a step can be put together.

How many processes a node has is told by their directories, which all of them make before the first save, when they look
for the newest step. Those of its next rank make theirs there too, where they look for what to resume from, and save
nothing in them.
"""

from __future__ import annotations

import os
import re
from typing import Dict, Iterator, List, Set, Tuple

from lockstep.worker.checkpoints.formats.containers import check_container
from lockstep.worker.checkpoints.formats.findings import (
    VALID,
    ZIP,
    CheckpointEntry,
    Finding,
    Format,
    InvalidError,
    ListedFile,
    Reading,
    list_entry,
)
from lockstep.worker.settings import PROCESSES_PER_NODE

NVRX_LOCAL = "NVRxLocal"
_FILE = re.compile(r"^iter_(\d{7,})_(\d+)_local(\.dirty)?\.pt$")
_STEP_NAME = re.compile(r"^iter_(\d{7,15})$")


def is_local(entry: CheckpointEntry) -> bool:
    """Whether that name stands for local files: no directory has it, and ranks have theirs beside it."""
    return _STEP_NAME.match(entry.name) is not None and not os.path.lexists(entry.path)


def local_steps(directory: str) -> Iterator[Tuple[int, str]]:
    """(step, name that stands for it) of all local files below an attempt's directory. Raises OSError."""
    entry = list_entry(directory)
    sessions = {"": entry}
    sessions.update((name, entry.below(name)) for name in entry.directories if not name.isdecimal())
    for session, held in sorted(sessions.items()):
        steps: Set[int] = set()
        for rank in filter(str.isdecimal, held.directories):
            matches = map(_FILE.match, held.below(rank).files)
            steps |= {int(matched.group(1)) for matched in matches if matched}
        for step in sorted(steps):
            yield step, os.path.join(directory, session, f"iter_{step:07d}")


def local_files(entry: CheckpointEntry) -> Iterator[str]:
    """The files that a name stands for, from the directory that holds the ranks' own. Raises InvalidError, OSError."""
    named = _STEP_NAME.match(entry.name)
    if named is None:
        raise InvalidError("its name has no step")
    parent = list_entry(entry.base)
    for rank in sorted(filter(str.isdecimal, parent.directories), key=int):
        for name in sorted(parent.below(rank).files):
            matched = _FILE.match(name)
            if matched and int(matched.group(1)) == int(named.group(1)):
                yield f"{rank}/{name}"


def read_local(entry: CheckpointEntry) -> Reading:
    """Raises InvalidError, OSError.

    Another node's copy stands in for a file that is missing or dirty, never for one that is cut off: the loader goes by
    names and would take that one.
    """
    whole: Dict[str, int] = {}  # owners
    faults: List[str] = []
    newest, size = 0.0, 0
    for name in local_files(entry):
        matched = _FILE.match(os.path.basename(name))
        assert matched is not None
        if matched.group(3):
            faults.append(f"{name} was never committed")
            continue
        path = os.path.join(entry.base, name)
        try:
            check_container(path, ZIP)
        except InvalidError as error:
            raise InvalidError(f"{os.path.dirname(name)}/{error}") from None
        found = os.stat(path)
        newest, size = max(newest, found.st_mtime), size + found.st_size
        whole[name] = int(matched.group(2))
    owners = _node_ranks(set(whole.values()), _processes(list_entry(entry.base)))
    if not owners:
        held = f"holds the shards of processes {sorted(set(whole.values()))[:8]} only"
        raise InvalidError(faults[0] if faults else held if whole else "there is no file of this step")
    reason = faults[0] if faults else ""
    finding = Finding(VALID, reason, NVRX_LOCAL, bytes=size, committed_at=newest, owners=owners)
    return finding, [ListedFile(name, container=ZIP) for name in sorted(whole)]


def _processes(parent: CheckpointEntry) -> int:
    """Of the node when it saved. As many as the launcher starts, or else as few directories allow no more of: of a node
    that has not come to save in all of them a part would look whole."""
    made = {int(name) for name in parent.directories if name.isdecimal()}
    saved = {int(name) for name in parent.directories if name.isdecimal() and parent.below(name).files}

    def is_of_one_node(count: int) -> bool:
        return len({rank // count for rank in saved}) == 1

    known = PROCESSES_PER_NODE
    if known and is_of_one_node(known):
        first = min(saved) // known * known
        if made.issuperset(range(first, first + known)):
            return known
    whole = (count for count in range(len(made), 0, -1) if len({rank // count for rank in made}) * count == len(made))
    return next(filter(is_of_one_node, whole), len(made))


def _node_ranks(owners: Set[int], processes: int) -> Tuple[int, ...]:
    """Ranks of nodes all of whose processes' shards are held. Each process of a node has a directory of its own."""
    nodes = sorted({owner // processes for owner in owners}) if processes else []
    return tuple(node for node in nodes if owners.issuperset(range(node * processes, (node + 1) * processes)))


FORMAT = Format(NVRX_LOCAL, is_local, read_local, _STEP_NAME)
