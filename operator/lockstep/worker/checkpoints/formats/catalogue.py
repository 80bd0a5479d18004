"""All formats, in the order in which Auto tries them: what is told more surely comes first."""

from __future__ import annotations

import os
import re
from typing import Dict, Optional, Tuple

from lockstep.worker.checkpoints.formats import (
    accelerate,
    dcp,
    deepspeed,
    huggingface,
    lightning,
    manifest,
    megatron,
    nemo,
    nvrx,
    orbax,
    plain,
    ray_train,
)
from lockstep.worker.checkpoints.formats.containers import pickled_facts
from lockstep.worker.checkpoints.formats.findings import CheckpointEntry, Format, list_entry
from lockstep.worker.checkpoints.formats.noise import may_hold_a_save
from lockstep.worker.checkpoints.formats.plain import step_by_pattern

AUTO = "Auto"
_IN_ORDER = (
    nvrx, ray_train, huggingface, accelerate, nemo, orbax, megatron, deepspeed, lightning, dcp, manifest, plain,
)  # fmt: skip
FORMATS: Dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in _IN_ORDER}
# A manifest first: with it somebody has committed what is there, whatever else it is.
MARKERS = tuple(dict.fromkeys(marker for each in (manifest.FORMAT, *FORMATS.values()) for marker in each.markers))
PASSED_OVER = re.compile(r"\.lockstep-(?:invalid|passed-over)-\d+(?:-\d+)?$")

_NAMES = 2000  # looked at in one directory and below

# A number behind such a word is the step: one that follows it is of something else, as in step-2-backup-20251101.
_NAMED_STEP = re.compile(r"(?:step[-_=]?|(?:iter|checkpoint|ckpt)[-_=])(\d{1,15})", re.IGNORECASE)
_TRAILING_NUMBER = re.compile(r"^(?!tmp-)(?:.*[^0-9])?(\d{1,15})$")


def format_named(form: str) -> Tuple[Format, str]:
    """A format and how its files are called, of its name alone or with that behind it: ``Torch:ckpt_{step}.pt``."""
    name, _, pattern = form.partition(":")
    return FORMATS[name], pattern


def recognise(entry: CheckpointEntry, form: str) -> Optional[Format]:
    """The format of a checkpoint: the one that ``form`` names, with Auto the first that recognises it."""
    if form != AUTO:
        local = form == megatron.MEGATRON and nvrx.is_local(entry)
        return nvrx.FORMAT if local else format_named(form)[0]
    if manifest.MARKER in entry.files:  # somebody has committed it so, whatever else it is
        return manifest.FORMAT
    return next((each for each in FORMATS.values() if each.recognises(entry)), None)


def is_stranger(path: str, form: str) -> bool:
    """A directory that only ends in a number as checkpoints do: nobody has begun to save one of the format there.

    A name that is nothing but a number may be that of a step, whatever it holds. False also where that cannot be told.
    """
    return not os.path.basename(path).isdecimal() and is_foreign(path, form)


def is_foreign(path: str, form: str) -> bool:
    """Nobody has begun to save one of the format there, however it is called. False also where that cannot be told."""
    try:
        entry = list_entry(path)
        if form != AUTO and format_named(form)[0] is plain.FORMAT:
            return not entry.is_file
        if recognise(entry, AUTO) is None:
            return True
        return form != AUTO and not (format_named(form)[0].recognises(entry) or nvrx.is_local(entry))
    except OSError:
        return False


def is_of_another_format(path: str, form: str) -> bool:
    """Somebody has begun to save one of a format that is known, and that is not ``form``."""
    try:
        entry = list_entry(path)
        found = recognise(entry, AUTO)
        by_name_alone = found is manifest.FORMAT and manifest.MARKER not in entry.files
        if found is None or by_name_alone:
            return False
        return not (format_named(form)[0].recognises(entry) or nvrx.is_local(entry))
    except OSError:
        return False


def may_be_begun(path: str) -> bool:
    """A format but the manifest's own recognises it, or there are tensors in it, or much else: other numbered
    directories hold logs, pictures, profiles. True also where that cannot be told."""
    try:
        entry = list_entry(path)
    except OSError:
        return True
    found = recognise(entry, AUTO)
    return entry.is_file or (found is not None and found is not manifest.FORMAT) or may_hold_a_save(path, _NAMES)


def step_of(path: str, name: str, form: str, is_file: bool) -> Optional[int]:
    """The step that a file or directory of an attempt is a checkpoint of; None: it is none.

    By its name, or by what is inside a ``.ckpt`` whose name does not say: last.ckpt, hpc_ckpt_<n>.ckpt and others; or
    by what Ray Train was told with it, whatever it is called.
    ``is_file``: only Lightning and NeMo save single files, and plain torch nothing else. Raises OSError.
    """
    if form.partition(":")[0] == plain.TORCH:
        if not is_file or PASSED_OVER.search(name):
            return None
        pattern = format_named(form)[1]
        if pattern:
            return step_by_pattern(path, name, pattern)
    elif PASSED_OVER.search(name) or (is_file and not name.endswith(".ckpt")):
        return None
    if form in (AUTO, ray_train.RAY_TRAIN) and not is_file:
        by_manifest = form == AUTO and os.path.lexists(os.path.join(path, manifest.MARKER))
        told = None if by_manifest else ray_train.reported_step(path)
        if told is not None:
            return told
    patterns = (lightning.FORMAT.step_name, _TRAILING_NUMBER) if form == AUTO else (format_named(form)[0].step_name,)
    matches = (pattern.search(name.partition(orbax.UNFINISHED)[0]) for pattern in patterns)
    matched = next(filter(None, matches), None)
    if matched:
        named = [each.start(1) for each in _NAMED_STEP.finditer(name)]
        if not named or named[-1] == matched.start(1):
            return int(matched.group(1))
    if not name.endswith(".ckpt") or form not in (AUTO, lightning.LIGHTNING, nemo.NEMO):
        return None
    try:
        inside = path if is_file else os.path.join(path, lightning.MARKER)
        return (pickled_facts(inside, "global_step") or {}).get("global_step")
    except FileNotFoundError:
        return None
