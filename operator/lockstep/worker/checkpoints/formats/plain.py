"""Torch: single files of ``torch.save``, called as the run says (``checkpoint.pattern``), or ending in the step.

Never tried by Auto: nothing but their user's word says which of several such files is what the program resumes from.
"""

from __future__ import annotations

import functools
import os
import re
from typing import Optional, Pattern

from lockstep.worker.checkpoints.formats.containers import is_whole_torch_file, pickled_number
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

TORCH = "Torch"
STEP = "{step}"
MAX_PATTERN = 128
_SUFFIX = re.compile(r"\.(?:pt|pth|bin|pth\.tar)$")
# What programs call the step inside, where the name does not have it; nanoGPT: iter_num.
_KEYS = ("iter_num", "global_step", "step", "iteration", "steps")
WITHOUT_STEP = f"no step inside ({', '.join(_KEYS)}): save one, or name the files by it ({STEP} in checkpoint.pattern)"


def is_torch(entry: CheckpointEntry) -> bool:
    """Whether it is a file that is called as torch's are."""
    return entry.is_file and _SUFFIX.search(entry.name) is not None


def read_torch(entry: CheckpointEntry) -> Reading:
    """Raises InvalidError, OSError."""
    if not entry.is_file:
        raise InvalidError("it is a directory, not a file of torch.save")
    found = os.stat(entry.path)
    finding = Finding(VALID, format=TORCH, bytes=found.st_size, committed_at=found.st_mtime)
    return finding, [ListedFile(entry.name, container=ZIP)]


def step_by_pattern(path: str, name: str, pattern: str) -> Optional[int]:
    """The step of a file that is called so: in its name, or inside where the pattern has no {step}. Raises OSError."""
    if STEP not in pattern:
        if name != pattern:
            return None
        return pickled_number(path, *_KEYS)
    matched = _named_so(pattern).match(name)
    return int(matched.group(1)) if matched else None


def lacks_its_step(path: str, name: str, form: str) -> bool:
    """It is the file that is loaded, is whole, and nothing in it says of which step. Raises OSError."""
    pattern = form.partition(":")[2]
    is_it = bool(pattern) and STEP not in pattern and name == pattern
    return is_it and is_whole_torch_file(path) and step_by_pattern(path, name, pattern) is None


@functools.lru_cache(maxsize=8)
def _named_so(pattern: str) -> Pattern[str]:
    """Literal but for the one number: no name makes this slow."""
    before, _, behind = pattern[:MAX_PATTERN].partition(STEP)
    return re.compile(rf"^{re.escape(before)}(\d{{1,15}}){re.escape(behind)}$")


FORMAT = Format(TORCH, is_torch, read_torch, re.compile(r"^(?:[^.]*[^.0-9])?(\d{1,15})\.(?:pt|pth|bin|pth\.tar)$"), ())
