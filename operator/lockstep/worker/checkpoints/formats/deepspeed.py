"""DeepSpeed: a directory per tag with a file per rank and family, and no commit marker of its own.

``latest`` beside it proves nothing: rank 0 writes it without waiting for the others. Complete is what has every
file of the grid of ranks that the model states themselves name (``dp_world_size``, ``mp_world_size``).
"""

from __future__ import annotations

import re
from typing import Dict, FrozenSet, List, Optional, Tuple

from lockstep.worker.checkpoints.formats.containers import numbers_in_pickle, pickled_facts, pickled_list
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
_EXPERT = re.compile(r"^layer_(\d+)_expert_(\d+)_mp_rank_(\d+)_model_states\.pt$")
_EXPERTS_OPTIMIZER = re.compile(r"^expp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt$")
_DIVIDED = rb"ep_size_(\d{1,6})(?!\d)"
_OFFLOADED = "offloaded_tensors"
_OFFLOADING_RANK = re.compile(r"^rank(\d+)$")


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
    experts, own_states = _coordinates(states, _EXPERT), _coordinates(states, _EXPERTS_OPTIMIZER)
    of_experts = bool(experts or own_states)
    if optimizer or partitioned or (elsewhere and not of_experts):
        check_grid(optimizer, (data, parallel), "optimizer states")
    elif of_experts:
        check_grid(own_states, (_divided(entry, own_states, data), None), "experts' optimizer states")
    numbers = {coordinates[0] for coordinates in layers}
    for layer in sorted(numbers):
        check_grid({c[1:]: name for c, name in layers.items() if c[0] == layer}, (None,), f"layer {layer}")
    if experts:
        _check_experts(entry, experts, one)
    if known is None:  # torch's old format: neither the ranks nor the end of a file can be told
        apart = sizes_apart(entry, list(optimizer.values()), "optimizer states")
        if apart:
            raise InvalidError(apart[0])
    # Each rank of the grid writes its states last. Others may have written layers or experts, how many is not said.
    others = (of_experts or (layers and data != 1 and len(numbers) <= max(numbers) - min(numbers))) and not optimizer
    if data is None or parallel is None or others:
        check_settled(newest)
    offloaded = _check_offloaded(entry, data * parallel if data and parallel else None)
    check_pointer(entry, POINTER, entry.name, newest)
    sizes = {name: stat_of(entry, name).st_size for name in states}
    own = [sizes[name] for name in optimizer.values()]
    check_one_save(entry, states, (sum(sizes.values()) - sum(own)) / (len(partitioned) or 1) + max(own, default=0))
    finding = Finding(
        VALID, format=DEEPSPEED, bytes=sum(sizes.values()) + sum(offloaded.values()), committed_at=newest,
        processes=(data or 0) * (parallel or 0),
    )  # fmt: skip
    copied = [ListedFile(name, dated=False) for name in sorted(offloaded)]
    return finding, [*(ListedFile(name, container=ZIP) for name in states), *copied]


def _check_experts(entry: CheckpointEntry, experts: Dict[Coordinates, str], one: Dict[Coordinates, str]) -> None:
    """Raises InvalidError where the model states of a rank count more of them than there are, OSError."""
    for parallel in sorted({coordinates[2] for coordinates in experts}):
        states = next((name for coordinates, name in one.items() if coordinates[-1] == parallel), None)
        counts = pickled_list(entry.at(states), "num_experts") if states is not None else ()
        found = {c[:2]: name for c, name in experts.items() if c[2] == parallel}
        for layer in range(max(len(counts), 1 + max(coordinates[0] for coordinates in found))):
            of_layer = {c[1:]: name for c, name in found.items() if c[0] == layer}
            count = counts[layer] if layer < len(counts) else None
            check_grid(of_layer, (count,), f"experts of layer {layer}")


def _divided(entry: CheckpointEntry, states: Dict[Coordinates, str], ranks: Optional[int]) -> Optional[int]:
    """Among how many ranks the experts are divided that have most of them: groups of parameters are called by that.
    None: nothing says so. Raises OSError."""
    sizes = numbers_in_pickle(entry.at(states[min(states)]), _DIVIDED) if states else []
    return max((size for size in sizes if 0 < size <= (ranks or 0)), default=None)


def offloaded_files(entry: CheckpointEntry) -> List[str]:
    """What ZeRO-Infinity copies there from each rank's NVMe after its states, with the times that it had. Raises
    OSError."""
    return [f"{_OFFLOADED}/{rank}/{name}" for rank, names in _offloaded(entry).items() for name in names]


def _offloaded(entry: CheckpointEntry) -> Dict[str, FrozenSet[str]]:
    if _OFFLOADED not in entry.directories:
        return {}
    found = entry.below(_OFFLOADED)
    return {rank: found.below(rank).files for rank in sorted(found.directories) if _OFFLOADING_RANK.match(rank)}


def _check_offloaded(entry: CheckpointEntry, ranks: Optional[int]) -> Dict[str, int]:
    """Bytes by name: all ranks have like files. Raises InvalidError, UnsureError, OSError."""
    if _OFFLOADED not in entry.directories:
        return {}
    held = _offloaded(entry)
    check_grid(_coordinates(list(held), _OFFLOADING_RANK), (ranks,), "offloaded tensors")
    found = {name: stat_of(entry, name) for name in offloaded_files(entry)}
    # The times that a copy keeps are those of its bytes, and not of when it was made.
    check_settled(max((each.st_ctime for each in found.values()), default=0.0))
    for name in sorted(frozenset().union(*held.values())):
        apart = sizes_apart(entry, [f"{_OFFLOADED}/{rank}/{name}" for rank in held], "ranks'")
        if apart:
            raise InvalidError(apart[0])
    return {name: each.st_size for name, each in found.items()}


def _coordinates(names: List[str], pattern: re.Pattern[str]) -> Dict[Coordinates, str]:
    found: Dict[Tuple[int, ...], str] = {}
    for name in names:
        matched = pattern.match(name)
        if matched:
            found[tuple(map(int, matched.groups()))] = name
    return found


FORMAT = Format(DEEPSPEED, is_deepspeed, read_deepspeed, re.compile(r"^(?:.*[^0-9])?(\d{1,15})$"))
