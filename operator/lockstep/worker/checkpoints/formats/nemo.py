"""NeMo: a directory with ``weights/`` (Megatron's distributed layout), unfinished while its marker is beside it."""

from __future__ import annotations

import os
import re

from lockstep.worker.checkpoints.formats.dcp import is_dcp
from lockstep.worker.checkpoints.formats.findings import (
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
from lockstep.worker.checkpoints.formats.megatron import MARKER, read_distributed

NEMO = "NeMo"
WEIGHTS = "weights"
UNFINISHED = "-unfinished"


def is_nemo(entry: CheckpointEntry) -> bool:
    """Whether it has NeMo's directories, its marker beside it, or its way to name the step of a directory."""
    if entry.is_file:
        return False
    sample = "consumed_samples=" in entry.name and (is_dcp(entry) or MARKER in entry.files)
    return WEIGHTS in entry.directories or sample or os.path.lexists(unfinished_marker(entry.path))


def unfinished_marker(path: str) -> str:
    """Exists from before a save, or a removal, until after it."""
    return re.sub(r"\.(?:ckpt|nemo)$", "", path) + UNFINISHED


def read_nemo(entry: CheckpointEntry) -> Reading:
    """Raises InvalidError, OSError."""
    marker = unfinished_marker(entry.path)
    if os.path.lexists(marker):
        raise InvalidError(f"{os.path.basename(marker)} is beside it: a save or a removal did not end")
    if entry.is_file:
        found = os.stat(entry.path)
        finding = Finding(VALID, format=NEMO, bytes=found.st_size, committed_at=found.st_mtime)
        return finding, [ListedFile(entry.name, container=ZIP)]
    if WEIGHTS in entry.directories:
        reading = read_distributed(entry.below(WEIGHTS))
        return reading[0]._replace(format=NEMO), nested(reading, WEIGHTS)
    if not is_dcp(entry):
        raise InvalidError(f"there is no {WEIGHTS}/")
    finding, files = read_distributed(entry)  # as NeMo 1 saves it
    return finding._replace(format=NEMO), files


FORMAT = Format(NEMO, is_nemo, read_nemo, re.compile(r"(?:^|[^A-Za-z])step=(\d{1,15})"), (f"{WEIGHTS}/{MARKER}",))
