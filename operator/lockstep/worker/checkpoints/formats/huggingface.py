"""HuggingFace's Trainer: ``checkpoint-<step>/``, committed by trainer_state.json, which rank 0 writes last."""

from __future__ import annotations

import re
from typing import Dict, List, Set

from lockstep.worker.checkpoints.formats.accelerate import has_random_states
from lockstep.worker.checkpoints.formats.dcp import read_dcp
from lockstep.worker.checkpoints.formats.deepspeed import is_deepspeed, read_deepspeed
from lockstep.worker.checkpoints.formats.families import CLOCKS_APART, Coordinates, check_grid, stat_of
from lockstep.worker.checkpoints.formats.findings import (
    SAFETENSORS,
    VALID,
    ZIP,
    CheckpointEntry,
    Finding,
    Format,
    InvalidError,
    ListedFile,
    OrderError,
    Reading,
    nested,
)
from lockstep.worker.checkpoints.formats.manifest import inside
from lockstep.worker.checkpoints.formats.megatron import read_json

HUGGING_FACE = "HuggingFace"
MARKER = "trainer_state.json"

_INDEX = re.compile(r"^(?:pytorch_)?model(?:\..+)?\.(?:safetensors|bin)\.index\.json$")
_WEIGHTS = re.compile(r"^(?:pytorch_model(?:_fsdp)?|model|adapter_model)(?:\.[\w-]+)?\.(?:safetensors|bin)$")
_RANDOM = re.compile(r"^rng_state(?:_(\d+))?\.pth$")
_STEP_NAME = re.compile(r"^checkpoint-(\d{1,15})$")
_DESCRIPTIONS = frozenset(("config.json", "adapter_config.json"))  # left out by models that are not transformers' own
_CONFIGURATIONS = {"config.json", "adapter_config.json"}
# Of a save that has only begun; safetensors writes under a temporary name.
_FIRST = re.compile(r"^(?:(?:adapter_|generation_)?config\.json|training_args\.bin|\.tmp\w{6})$")
_SHARDED = re.compile(r"^(?:pytorch_model_fsdp|optimizer)_\d+$")
_SHARD = re.compile(r"^(?:pytorch_)?model-\d+-of-\d+\.(?:safetensors|bin)$")  # nothing without its index
_STATE = re.compile(r"^(?:optimizer\.(?:pt|bin)|scheduler\.pt|scaler\.pt|rng_state(?:_\d+)?\.pth)$")


def is_hugging_face(entry: CheckpointEntry) -> bool:
    """Whether the directory has the Trainer's state, or is called as one that should and holds nothing foreign."""
    if has_random_states(entry):
        return False
    begun = any(pattern.match(name) for name in entry.files for pattern in (_WEIGHTS, _SHARD, _INDEX, _STATE)) or any(
        name.startswith("global_step") or _SHARDED.match(name) for name in entry.directories
    )
    empty = all(_FIRST.match(name) for name in entry.files) and not entry.directories
    return MARKER in entry.files or (_STEP_NAME.match(entry.name) is not None and (begun or empty))


def read_hugging_face(entry: CheckpointEntry) -> Reading:
    """Raises InvalidError, UnsureError, OSError."""
    if MARKER not in entry.files:
        raise InvalidError(f"no {MARKER}: it was never committed")
    state = read_json(entry.at(MARKER))
    named = _STEP_NAME.match(entry.name)
    step = entry.step if entry.step is not None else int(named.group(1)) if named else None
    if step is not None and state.get("global_step") != step:
        raise InvalidError(f"{MARKER} says step {state.get('global_step')}")
    for described in sorted(entry.files & _DESCRIPTIONS):
        read_json(entry.at(described))  # the loader reads it before the weights
    for name in sorted(entry.files & _CONFIGURATIONS):  # the loader can do without, but not with a broken one
        read_json(entry.at(name))
    files = _weights(entry)
    tags = [name for name in entry.directories if is_deepspeed(CheckpointEntry(entry.at(name)))]
    processes = 0
    for tag in tags:  # all of them: the loader follows `latest`, which may name any
        reading = read_deepspeed(entry.below(tag))
        processes = reading[0].processes
        files += nested(reading, tag)
    for directory in sorted(filter(_SHARDED.match, entry.directories)):
        files += [*nested(read_dcp(entry.below(directory)), directory), ListedFile(f"{directory}/.metadata")]
    if not files:
        raise InvalidError("there are no weights")
    files += _training_state(entry, bool(tags))
    found = {listed.name: stat_of(entry, listed.name) for listed in files}
    finding = Finding(
        VALID, format=HUGGING_FACE, bytes=sum(each.st_size for each in found.values()),
        committed_at=stat_of(entry, MARKER).st_mtime, processes=processes,
    )  # fmt: skip
    return finding, files


def _weights(entry: CheckpointEntry) -> List[ListedFile]:
    names = {name for name in entry.files if _WEIGHTS.match(name)}
    for index in sorted(filter(_INDEX.match, entry.files)):
        try:
            names |= {inside(shard) for shard in read_json(entry.at(index))["weight_map"].values()}
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise InvalidError(f"{index} is not readable: {error!r}") from None
    return [ListedFile(name, container=SAFETENSORS if name.endswith(".safetensors") else ZIP) for name in sorted(names)]


def _training_state(entry: CheckpointEntry, by_deepspeed: bool) -> List[ListedFile]:
    """Optimizer, schedule and random numbers: all of them, or none (``save_only_model``)."""
    states = {name for name in entry.files if _STATE.match(name)}
    random = {name for name in states if _RANDOM.match(name)}
    if states:
        _check_states(entry, states, random, by_deepspeed)
    ranks: Dict[Coordinates, str] = {}
    for name in random - {"rng_state.pth"}:
        ranks[(int(name[len("rng_state_") : -len(".pth")]),)] = name
    if ranks:
        check_grid(ranks, (None,), "state of the random numbers")
    committed_at = stat_of(entry, MARKER).st_mtime
    for name in ranks.values():  # written by each rank for itself, without waiting for the others
        if entry.trusts_times and stat_of(entry, name).st_mtime > committed_at + CLOCKS_APART:
            raise OrderError(f"{name} changed after its commit")
    # Not read by the loader: it may be of another day, and has to be whole for those that do read it.
    extra = [ListedFile("training_args.bin", container=ZIP, dated=False)] if "training_args.bin" in entry.files else []
    return [ListedFile(name, container=ZIP, dated=name not in ranks.values()) for name in sorted(states)] + extra


def _check_states(entry: CheckpointEntry, states: Set[str], random: Set[str], by_deepspeed: bool) -> None:
    sharded = any(name.startswith("optimizer_") for name in entry.directories)
    if not by_deepspeed and not sharded and not any(name.startswith("optimizer") for name in states):
        raise InvalidError("optimizer.pt is missing")
    if not by_deepspeed and "scheduler.pt" not in states:
        raise InvalidError("scheduler.pt is missing")
    if not random:
        raise InvalidError("the state of the random numbers is missing")


FORMAT = Format(HUGGING_FACE, is_hugging_face, read_hugging_face, _STEP_NAME, (MARKER,))
