"""DeepSpeed: a directory per tag with a file per rank and family, and no commit marker of its own.

``latest`` beside it proves nothing: rank 0 writes it without waiting for the others. Complete is what has every
file of the grid of ranks that the model states themselves name (``dp_world_size``, ``mp_world_size``).
"""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from lockstep.worker.checkpoints.formats.containers import pickled_facts
from lockstep.worker.checkpoints.formats.dcp import is_dcp
from lockstep.worker.checkpoints.formats.families import (
    Coordinates,
    check_grid,
    check_one_save,
    check_pointer,
    check_settled,
    newest_time,
    sizes_apart,
    stat_of,
)
from lockstep.worker.checkpoints.formats.findings import (
    VALID,
    ZIP,
    CheckpointEntry,
    Finding,
    Format,
    InvalidError,
    ListedFile,
    Reading,
)

DEEPSPEED = "DeepSpeed"
POINTER = "latest"

_SUFFIXES = ("model_states.pt", "optim_states.pt")

_OPTIMIZER = re.compile(r"^(?:\w+_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt$")
_PARTITIONED_MODEL = re.compile(r"^(?:\w+_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt$")
_MODEL = re.compile(r"^mp_rank_(\d+)_model_states\.pt$")
_LAYER = re.compile(r"^layer_(\d+)-model_(\d+)-model_states\.pt$")


def is_deepspeed(entry: CheckpointEntry) -> bool:
    """Whether a rank has at least begun to save there, or the directory is called by DeepSpeed's own tag."""
    named = entry.name.startswith("global_step") and not is_dcp(entry)
    return named or any(name.endswith(_SUFFIXES) for name in entry.files)


def read_deepspeed(entry: CheckpointEntry) -> Reading:
    """Raises InvalidError, UnsureError, OSError."""
    states = sorted(name for name in entry.files if name.endswith(_SUFFIXES))
    if not states:
        raise InvalidError("there is no file of model states")
    model, partitioned = _coordinates(states, _MODEL), _coordinates(states, _PARTITIONED_MODEL)
    optimizer, layers = _coordinates(states, _OPTIMIZER), _coordinates(states, _LAYER)
    one = partitioned or model
    if not one:
        raise InvalidError("there is no file of model states")
    newest = newest_time(entry, states)
    known = pickled_facts(entry.at(one[min(one)]), "dp_world_size", "mp_world_size", "optimizer")
    facts = known or {}
    data, parallel = facts.get("dp_world_size"), facts.get("mp_world_size")
    if partitioned:
        check_grid(partitioned, (data, parallel), "model states")
    else:
        check_grid(model, (parallel,), "model states")
    elsewhere = "optimizer" in facts and facts["optimizer"] is None  # else ZeRO is off, and it is in the model states
    experts = any(name.startswith("expp_rank_") for name in states)  # which have theirs in files of their own
    if optimizer or partitioned or (elsewhere and not experts):
        check_grid(optimizer, (data, parallel), "optimizer states")
    if layers:
        for layer in sorted({coordinates[0] for coordinates in layers}):
            check_grid({c[1:]: name for c, name in layers.items() if c[0] == layer}, (None,), f"layer {layer}")
    if known is None:  # torch's old format: neither the ranks nor the end of a file can be told
        apart = sizes_apart(entry, list(optimizer.values()), "optimizer states")
        if apart:
            raise InvalidError(apart[0])
    if data is None or parallel is None:
        check_settled(newest)
    check_pointer(entry, POINTER, entry.name, newest)
    sizes = {name: stat_of(entry, name).st_size for name in states}
    own = [sizes[name] for name in optimizer.values()]
    check_one_save(entry, states, (sum(sizes.values()) - sum(own)) / (len(partitioned) or 1) + max(own, default=0))
    finding = Finding(
        VALID, format=DEEPSPEED, bytes=sum(sizes.values()), committed_at=newest,
        processes=(data or 0) * (parallel or 0),
    )  # fmt: skip
    return finding, [ListedFile(name, container=ZIP) for name in states]


def _coordinates(names: List[str], pattern: re.Pattern[str]) -> Dict[Coordinates, str]:
    found: Dict[Tuple[int, ...], str] = {}
    for name in names:
        matched = pattern.match(name)
        if matched:
            found[tuple(map(int, matched.groups()))] = name
    return found


FORMAT = Format(DEEPSPEED, is_deepspeed, read_deepspeed, re.compile(r"^(?:.*[^0-9])?(\d{1,15})$"))
