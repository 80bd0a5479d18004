"""Megatron: ``iter_<step>/``, either distributed (DCP files, committed by metadata.json) or a file per model rank.

The tracker beside it (latest_checkpointed_iteration.txt) is a hint, never proof.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, List

from lockstep.worker.checkpoints.formats.containers import pickled_facts
from lockstep.worker.checkpoints.formats.dcp import is_dcp, read_dcp
from lockstep.worker.checkpoints.formats.families import (
    Coordinates,
    check_grid,
    check_pointer,
    check_settled,
    newest_time,
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
    read_up_to,
)
from lockstep.worker.checkpoints.formats.manifest import inside

MEGATRON = "Megatron"
POINTER = "latest_checkpointed_iteration.txt"
MARKER = "metadata.json"
INTEGRITY = "integrity.json"
COMMON = "common.pt"  # what is not sharded
MAX_JSON_BYTES = 64 << 20

_RANK = re.compile(r"^mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?$")
_MODEL, _OPTIMIZER = "model_optim_rng.pt", "distrib_optim.pt"


def is_megatron(entry: CheckpointEntry) -> bool:
    """Whether a save was at least begun there by Megatron rather than by plain torch."""
    return any(_RANK.match(name) for name in entry.directories) or (
        bool(entry.files & {MARKER, COMMON}) and (is_dcp(entry) or entry.name.startswith("iter_"))
    )


def read_megatron(entry: CheckpointEntry) -> Reading:
    """Raises InvalidError, UnsureError, OSError."""
    if any(_RANK.match(name) for name in entry.directories):
        return _read_by_rank(entry)
    return read_distributed(entry)


def read_distributed(entry: CheckpointEntry) -> Reading:
    """A directory of Megatron's dist_checkpointing. Raises InvalidError, OSError."""
    if MARKER not in entry.files:
        raise InvalidError(f"no {MARKER}: it was never committed")
    config = read_json(entry.at(MARKER))
    backend = config.get("sharded_backend")
    if backend not in ("torch_dist", "torch_dcp", "fsdp_dtensor"):
        raise InvalidError(f"{MARKER} names the backend {backend!r}, which is not known")
    finding, files = read_dcp(entry)
    files.append(ListedFile(".metadata"))
    if COMMON in entry.files or config.get("common_backend") == "torch":
        files.append(ListedFile(COMMON, container=ZIP))
    committed = stat_of(entry, MARKER)
    if INTEGRITY in entry.files:
        files = _with_checksums(entry, files)
    finding = finding._replace(format=MEGATRON, committed_at=committed.st_mtime)
    return finding, files


def _with_checksums(entry: CheckpointEntry, files: List[ListedFile]) -> List[ListedFile]:
    """The files with the SHA-256 that integrity.json, written after everything else, has of them."""
    integrity = read_json(entry.at(INTEGRITY))
    if integrity.get("algorithm", "sha256") != "sha256":
        return files
    try:
        sums = {inside(name): str(digest).lower() for name, digest in integrity["files"].items()}
    except (KeyError, AttributeError, ValueError) as error:
        raise InvalidError(f"{INTEGRITY} is not readable: {error!r}") from None
    known = {listed.name: listed for listed in files}
    return [
        known.get(name, ListedFile(name, 0))._replace(digest=f"sha256:{sums[name]}" if name in sums else "")
        for name in sorted(known.keys() | sums.keys())
    ]


def read_json(path: str) -> Dict[str, Any]:
    """A JSON object in a file. Raises InvalidError, OSError."""
    name = os.path.basename(path)
    with open(path, "rb") as stream:
        text = read_up_to(MAX_JSON_BYTES, stream)
    try:
        value = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        raise InvalidError(f"{name} is not readable: it is cut off or garbled") from None
    if not isinstance(value, dict) or len(text) > MAX_JSON_BYTES:
        raise InvalidError(f"{name} is not what it should be")
    return value


def _read_by_rank(entry: CheckpointEntry) -> Reading:
    """The legacy layout: mp_rank_<tensor>[_<pipeline>][_<expert>]/. Raises InvalidError, UnsureError, OSError."""
    models: Dict[Coordinates, str] = {}
    optimizers: Dict[Coordinates, str] = {}
    for directory in entry.directories:
        matched = _RANK.match(directory)
        if matched:
            coordinates = tuple(int(part) for part in matched.groups() if part is not None)
            held = entry.below(directory).files
            if _MODEL in held:
                models[coordinates] = f"{directory}/{_MODEL}"
            if _OPTIMIZER in held:
                optimizers[coordinates] = f"{directory}/{_OPTIMIZER}"
    axes = {len(coordinates) for coordinates in models}
    if len(axes) > 1:
        raise InvalidError("its mp_rank_ directories are of two ways to split the model")
    files = [*models.values(), *optimizers.values()]
    if not models:
        raise InvalidError(f"there is no {_MODEL}")
    sizes = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
    facts = pickled_facts(entry.at(models[min(models)]), *sizes) or {}
    tensor, pipeline = map(facts.get, sizes)
    expected = [tensor, *[None] * (axes.pop() - 1)]
    if len(expected) > 1 and (pipeline or 0) > 1:
        expected[1] = pipeline
    check_grid(models, expected, _MODEL)
    if optimizers:
        check_grid(optimizers, expected, _OPTIMIZER)
    newest = newest_time(entry, files)
    if None in expected:
        check_settled(newest)
    check_pointer(entry, POINTER, entry.name.rpartition("_")[2].lstrip("0"), newest)
    size = sum(stat_of(entry, name).st_size for name in files)
    finding = Finding(VALID, format=MEGATRON, bytes=size, committed_at=newest)
    return finding, [ListedFile(name, container=ZIP) for name in sorted(files)]


FORMAT = Format(MEGATRON, is_megatron, read_megatron, re.compile(r"^iter_(\d{1,15})$"), (INTEGRITY, MARKER))
