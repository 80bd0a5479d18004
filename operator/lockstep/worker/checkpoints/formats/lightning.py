"""Lightning: one ``.ckpt`` file, or a directory of that name with sharded data and a meta.pt, written last."""

from __future__ import annotations

import os
import re

from lockstep.worker.checkpoints.formats.dcp import read_dcp
from lockstep.worker.checkpoints.formats.deepspeed import read_deepspeed
from lockstep.worker.checkpoints.formats.families import stat_of
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

LIGHTNING = "Lightning"
MARKER = "meta.pt"


def is_lightning(entry: CheckpointEntry) -> bool:
    """Whether it is called as Lightning calls them, or has its meta.pt."""
    return entry.name.endswith(".ckpt") or MARKER in entry.files


def read_lightning(entry: CheckpointEntry) -> Reading:
    """Raises InvalidError, UnsureError, OSError."""
    if entry.is_file:
        found = os.stat(entry.path)
        finding = Finding(VALID, format=LIGHTNING, bytes=found.st_size, committed_at=found.st_mtime)
        return finding, [ListedFile(entry.name, container=ZIP)]
    if "checkpoint" in entry.directories:  # by its DeepSpeed strategy
        reading = read_deepspeed(entry.below("checkpoint"))
        return reading[0]._replace(format=LIGHTNING), nested(reading, "checkpoint")
    if MARKER not in entry.files:
        raise InvalidError(f"no {MARKER}: it was never committed")
    finding, files = read_dcp(entry)
    committed = stat_of(entry, MARKER)
    finding = finding._replace(format=LIGHTNING, committed_at=committed.st_mtime)
    return finding, [*files, ListedFile(".metadata"), ListedFile(MARKER, container=ZIP)]


# epoch=0-step=100.ckpt, perhaps with a metric and -v1 behind it; what has no step in its name has it inside.
FORMAT = Format(LIGHTNING, is_lightning, read_lightning, re.compile(r"(?:^|[^A-Za-z])step=(\d{1,15})"), (MARKER,))
