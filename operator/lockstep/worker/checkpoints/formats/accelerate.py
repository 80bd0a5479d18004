"""Accelerate's ``save_state``, which diffusers' scripts call too: rank 0 writes its random states last.

Custom objects follow these, and the other ranks write theirs without waiting: of both only what is there can be judged.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List

from lockstep.worker.checkpoints.formats.dcp import is_dcp, read_dcp
from lockstep.worker.checkpoints.formats.deepspeed import is_deepspeed, read_deepspeed
from lockstep.worker.checkpoints.formats.families import Coordinates, check_grid, stat_of
from lockstep.worker.checkpoints.formats.findings import (
    SAFETENSORS,
    VALID,
    ZIP,
    CheckpointEntry,
    Finding,
    Format,
    InvalidError,
    ListedFile,
    Reading,
    nested,
)
from lockstep.worker.checkpoints.formats.manifest import inside
from lockstep.worker.checkpoints.formats.megatron import read_json

ACCELERATE = "Accelerate"
MARKER = "random_states_0.pkl"
TRAINER_STATE = "trainer_state.json"  # of HuggingFace's Trainer, which uses Accelerate, and commits otherwise

_RANDOM = re.compile(r"^random_states_(\d{1,6})\.pkl$")
_OPTIMIZER = re.compile(r"^optimizer(?:_\d+)?(?:\.bin)?$")
_STATE = re.compile(r"^(?:optimizer|scheduler|sampler|dl_state_dict)(?:_\d+)?\.bin$|^scaler\.pt$")
_CUSTOM = re.compile(r"^custom_checkpoint_\d+\.pkl$")
_TENSORS = re.compile(r"\.(?:safetensors|bin)$")
_INDEX = re.compile(r"\.(?:safetensors|bin)\.index\.json$")
_STEP_NAME = re.compile(r"^(?:.*[^0-9])?(\d{1,15})$")
_MODEL = re.compile(r"^(?:unet|transformer|text_encoder|controlnet|vae|prior|pytorch_model|optimizer_\d)\w*$")
_OWN_NAME = re.compile(r"^(?:(?:checkpoint|step|epoch)_|checkpoint-)\d{1,15}$")


def has_random_states(entry: CheckpointEntry) -> bool:
    """Whether ranks have ended their part of a ``save_state`` there."""
    return TRAINER_STATE not in entry.files and any(map(_RANDOM.match, entry.files))


def is_accelerate(entry: CheckpointEntry) -> bool:
    """Whether a ``save_state`` was at least begun there."""
    if has_random_states(entry):
        return True
    own = _OWN_NAME.match(entry.name) is not None
    states = any(_STATE.match(name) and name != "scaler.pt" for name in entry.files)
    tensors = not entry.name.startswith("checkpoint-") and any(map(_TENSORS.search, entry.files))
    begun = states or (own and (tensors or any(map(_MODEL.match, entry.directories))))
    return begun and TRAINER_STATE not in entry.files


def read_accelerate(entry: CheckpointEntry) -> Reading:
    """Raises InvalidError, UnsureError, OSError."""
    if MARKER not in entry.files:
        raise InvalidError(f"no {MARKER}: it was never committed")
    files, processes = _weights(entry, "", True), 0
    optimizer = any(map(_OPTIMIZER.match, entry.files | entry.directories))
    for name in sorted(entry.directories):
        held = entry.below(name)
        if is_dcp(held):  # FSDP's, one for each model and optimizer
            files += [*nested(read_dcp(held), name), ListedFile(f"{name}/.metadata")]
        elif is_deepspeed(held):
            reading = read_deepspeed(held)
            files, processes, optimizer = files + nested(reading, name), reading[0].processes, True
        elif not name.startswith("."):  # one for each model, as diffusers saves them
            files += nested((Finding(VALID), _weights(held, f"{name}/", False)), name)
    if not files:
        raise InvalidError("there are no weights")
    if not optimizer:
        raise InvalidError("optimizer.bin is missing")
    ranks: Dict[Coordinates, str] = {}
    for name in filter(_RANDOM.match, entry.files):
        ranks[(int(name[len("random_states_") : -len(".pkl")]),)] = name
    check_grid(ranks, (None,), "state of the random numbers")
    files += [ListedFile(name, container=ZIP) for name in sorted(filter(_STATE.match, entry.files))]
    late = [*ranks.values(), *filter(_CUSTOM.match, entry.files)]
    files += [ListedFile(name, container=ZIP, dated=False) for name in sorted(late)]
    sizes = sum(stat_of(entry, listed.name).st_size for listed in files)
    committed = stat_of(entry, MARKER).st_mtime
    return Finding(VALID, format=ACCELERATE, bytes=sizes, committed_at=committed, processes=processes), files


def _weights(entry: CheckpointEntry, prefix: str, outer: bool) -> List[ListedFile]:
    """Tensors in one directory, those that an index names included; their names are relative to it."""
    names = {name for name in entry.files if _TENSORS.search(name) and not (outer and _STATE.match(name))}
    for index in sorted(filter(_INDEX.search, entry.files)):
        try:
            names |= {inside(shard) for shard in read_json(entry.at(index))["weight_map"].values()}
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise InvalidError(f"{prefix}{index} is not readable: {error!r}") from None
    if "config.json" in entry.files:
        if not names and not outer:
            raise InvalidError(f"{prefix} has no weights")
        read_json(os.path.join(entry.path, "config.json"))  # the loader makes the model by it
    return [ListedFile(name, container=SAFETENSORS if name.endswith(".safetensors") else ZIP) for name in sorted(names)]


FORMAT = Format(ACCELERATE, is_accelerate, read_accelerate, _STEP_NAME, (MARKER,))
