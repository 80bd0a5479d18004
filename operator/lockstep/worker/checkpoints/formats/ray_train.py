"""RayTrain: what ``ray.train.report(metrics, checkpoint)`` has copied into the directory of the experiment.

``checkpoint_manager_snapshot.json`` beside them is written after the copies of all workers, at each report, and names
those that count, with the metrics of rank 0: only these say a step. The copies have the times of copying.
"""

from __future__ import annotations

import functools
import json
import os
import re
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional

from lockstep.worker.checkpoints.formats.dcp import MARKER as DCP_MARKER
from lockstep.worker.checkpoints.formats.dcp import is_dcp, read_dcp
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
    read_up_to,
)
from lockstep.worker.checkpoints.formats.noise import is_tensors
from lockstep.worker.settings import SHARED_SKEW

RAY_TRAIN = "RayTrain"
SNAPSHOT = "checkpoint_manager_snapshot.json"
STEP_WORDS = ("global_step", "step", "steps", "iter_num", "iteration", "training_iteration", "epoch")
"""Of the metrics the first that is a whole number is the step."""
_STORAGE_MARKER = ".validate_storage_marker"  # in an experiment's directory from its first moment
_OWN_NAME = re.compile(r"^checkpoint_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\.\d{1,6}$")
_RESTORED = "ray-train-step-"
_MAX_SNAPSHOT_BYTES = 64 << 20
_ZIPPED = (".pt", ".pth", ".ckpt")  # of torch.save; what is called .bin or .pkl may be anything


class Reported(NamedTuple):
    """What a snapshot names. ``steps``: by directory; None: its metrics say none. ``written``: when, Unix seconds.

    Of several with one step the last counts; ``replaced`` has the names of the others.
    """

    steps: Dict[str, Optional[int]]
    replaced: FrozenSet[str]
    written: float


def reported(experiment: str) -> Optional[Reported]:
    """None: there is no snapshot, or none that makes sense. Raises OSError."""
    path = os.path.join(experiment, SNAPSHOT)
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _read(path, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


@functools.lru_cache(maxsize=64)
def _read(path: str, mtime_ns: int, ctime_ns: int, size: int, inode: int) -> Optional[Reported]:
    """``reported`` of a file, remembered while it stays the same: each of its checkpoints asks."""
    with open(path, "rb") as stream:
        text = read_up_to(_MAX_SNAPSHOT_BYTES, stream)
    if len(text) > _MAX_SNAPSHOT_BYTES:
        return None
    steps: Dict[str, Optional[int]] = {}
    try:
        snapshot = json.loads(text.decode("utf-8"))
        results, order = snapshot["checkpoint_results"], snapshot["checkpoint_report_indices"]
        for index in sorted(range(len(results)), key=lambda each: int(order[each])):  # they may be sorted by a score
            name = str(results[index]["checkpoint_dir_name"])
            steps.pop(name, None)
            steps[name] = _step_in(results[index]["metrics"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None  # cut off, or of a Ray that writes others
    newest = {step: name for name, step in steps.items()}
    replaced = frozenset(name for name, step in steps.items() if step is not None and newest[step] != name)
    return Reported({name: steps[name] for name in steps if name not in replaced}, replaced, mtime_ns / 1e9)


def _step_in(metrics: Dict[str, Any]) -> Optional[int]:
    values = [metrics.get(word) for word in STEP_WORDS]
    return next((each for each in values if isinstance(each, int) and not isinstance(each, bool) and each >= 0), None)


def reported_step(path: str) -> Optional[int]:
    """The step that was reported with a directory. Raises OSError."""
    told = reported(os.path.dirname(path))
    return told.steps.get(os.path.basename(path)) if told is not None else None


def is_experiment(directory: str) -> bool:
    """Whether it is one of Ray Train."""
    return any(os.path.lexists(os.path.join(directory, name)) for name in (SNAPSHOT, _STORAGE_MARKER))


def is_passing(path: str) -> bool:
    """Whether Ray Train itself would never load the directory: its report has not come to be, or a later one has its
    step. Raises OSError."""
    experiment, name = os.path.split(path)
    if not is_experiment(experiment):
        return False
    told = reported(experiment)
    if told is None:
        return _OWN_NAME.match(name) is not None and not os.path.lexists(os.path.join(experiment, SNAPSHOT))
    return name in told.replaced or (_OWN_NAME.match(name) is not None and name not in told.steps)


def why_without_step(path: str) -> str:
    """What keeps a directory of an experiment from having a step; empty where nothing is known. Raises OSError."""
    experiment, name = os.path.split(path)
    told = reported(experiment)
    if told is None:
        return f"{SNAPSHOT} beside it cannot be read" if os.path.lexists(os.path.join(experiment, SNAPSHOT)) else ""
    return 'no step in its metrics: add "step" to those of ray.train.report' if name in told.steps else ""


def is_ray_train(entry: CheckpointEntry) -> bool:
    """Whether a report names the directory, or one was begun; or the archive has brought it back."""
    if entry.is_file:
        return False
    if entry.name.startswith(_RESTORED):
        return True
    experiment = os.path.dirname(entry.path)
    told = reported(experiment)
    named = told is not None and (entry.name in told.steps or entry.name in told.replaced)
    return named or (_OWN_NAME.match(entry.name) is not None and is_experiment(experiment))


def read_ray_train(entry: CheckpointEntry) -> Reading:
    """Raises InvalidError, OSError.

    Nothing says which files there should be, nor how large. Without a snapshot beside it, it is what the archive has
    brought back, which has compared every byte.
    """
    committed = None
    if not entry.name.startswith(_RESTORED):
        told = reported(os.path.dirname(entry.path))
        if told is None:
            raise InvalidError(f"no {SNAPSHOT} that can be read is beside it: it was never committed")
        if entry.name not in told.steps:
            later = entry.name in told.replaced
            raise InvalidError(
                f"a later one has its step in {SNAPSHOT}" if later else f"{SNAPSHOT} does not name it: never committed"
            )
        if entry.step is not None and told.steps[entry.name] not in (None, entry.step):
            raise InvalidError(f"{SNAPSHOT} says step {told.steps[entry.name]}")
        committed = told.written
    files, size, newest, last = _listed(entry)
    if not size:
        raise InvalidError("there is nothing in it")
    if entry.trusts_times and committed is not None and newest > committed + SHARED_SKEW:
        raise OrderError(f"{last} changed after its commit ({newest - committed:.1f} s younger than {SNAPSHOT})")
    return Finding(VALID, format=RAY_TRAIN, bytes=size, committed_at=newest), files


class _Listed(NamedTuple):
    files: List[ListedFile]
    bytes: int
    newest: float
    last: str


def _listed(entry: CheckpointEntry) -> _Listed:
    """All that is in it; of a distributed checkpoint of torch's what that one says of its files. Raises InvalidError,
    OSError."""
    files: Dict[str, ListedFile] = {}
    size, newest, last = 0, 0.0, ""
    for directory, directories, names in os.walk(entry.path, onerror=_raise):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        within = os.path.relpath(directory, entry.path)
        for name in names:
            if name.startswith(".") and name != DCP_MARKER:
                continue
            found = os.stat(os.path.join(directory, name))
            relative = os.path.normpath(os.path.join(within, name))
            container = SAFETENSORS if name.endswith(".safetensors") else ZIP if name.endswith(_ZIPPED) else ""
            least = 1 if is_tensors(name) and not name.endswith(".distcp") else 0
            files[relative] = ListedFile(relative, least, container=container)
            size += found.st_size
            if found.st_mtime > newest:
                newest, last = found.st_mtime, relative
    for name in ["", *sorted(entry.directories)]:
        held = entry.below(name) if name else entry
        if DCP_MARKER in held.files and is_dcp(held):
            reading = read_dcp(held)
            files.update((each.name, each) for each in (nested(reading, name) if name else reading[1]))
    return _Listed([files[name] for name in sorted(files)], size, newest, last)


def _raise(error: OSError) -> None:
    raise error


def restored_name(step: int) -> str:
    """How a copy is called that lies where no snapshot names it."""
    return f"{_RESTORED}{step}"


FORMAT = Format(RAY_TRAIN, is_ray_train, read_ray_train, re.compile(r"^(?:.*[^0-9])?(\d{1,15})$"), ())
