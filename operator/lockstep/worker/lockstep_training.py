"""For training code that runs under Lockstep: when to save, when to stop, how far it is.

The worker puts this file on the program's PYTHONPATH, behind everything of the program's own, so that ``import
lockstep_training`` works without installing anything. Standard library only, Python >= 3.8. Outside of Lockstep every
function answers harmlessly, and none ever raises because a disk is full: what tells of training must not end it.

    import lockstep_training as lockstep

    for step in range(first_step, last_step + 1):
        loss = train_one_step()
        lockstep.report(step, loss=loss)
        if lockstep.should_checkpoint(step):
            with lockstep.saving(step):
                save(lockstep.checkpoint_directory(step))
            if lockstep.should_stop():
                break

All ranks get the same answers at the same step: a save that was asked for begins at a step that was agreed on ahead,
and the usual ones fall on multiples of an agreed number of steps. No answer depends on a rank's own clock.
"""

from __future__ import annotations

import base64
import contextlib
import faulthandler
import json
import math
import os
import signal
import time
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

__all__ = [
    "StepResult", "checkpoint_directory", "report", "resume_path", "saving", "should_checkpoint", "should_stop", "step",
]  # fmt: skip

_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_READ, _STOPPED = ".read", ".stopped"  # beside the control file: it was asked for, it was told to stop


def should_checkpoint(step: int) -> bool:
    """Whether to save now, ``step`` being the step just done. Ask after every step, on every rank.

    True once for each save that was asked for, as soon as its step is reached, and when the cadence says so.
    """
    return _training.should_checkpoint(step)


def should_stop() -> bool:
    """Whether the gang is about to be stopped, once the save that was asked for before is done. Ask after a save."""
    return _training.should_stop()


def report(step: int, loss: Optional[float] = None, total_steps: Optional[int] = None) -> None:
    """Tell how far the training is. Of the processes of a node the one with local rank 0 is heard, by torchrun's, MPI's
    or Slurm's count."""
    _training.report(step, loss, total_steps)


@contextlib.contextmanager
def saving(step: int) -> Iterator[None]:
    """Around the part of a save that keeps the training waiting: its time is measured and is no hang."""
    _training.enter("Save", step)
    try:
        yield
    finally:
        _training.enter("Step", step)


def checkpoint_directory(step: Optional[int] = None) -> str:
    """Where to save at this step: in the node's own tier, if there is one and the cadence does not want the shared one.

    Without ``step``: the shared tier if there is one. Empty without any tier.
    """
    return _training.checkpoint_directory(step)


def resume_path() -> str:
    """The checkpoint to load; empty: start fresh."""
    return os.environ.get("LOCKSTEP_RESUME_PATH", "")


class StepResult(NamedTuple):
    """How the processes of a step ended, by their number: codes as a shell has them, 128 + n for signal n.

    255: the node could not be reached; 127, 126, 125: it could not be started. ``problems`` says why. ``stdout`` and
    ``stderr`` are empty where the output was not captured.
    """

    codes: Dict[int, int]
    stdout: Dict[int, bytes]
    stderr: Dict[int, bytes]
    problems: Dict[int, str]

    @property
    def code(self) -> int:
        """The highest of all."""
        return max(self.codes.values(), default=0)


def step(
    argv: Sequence[str], ranks: Optional[Iterable[int]] = None, *, tasks_per_node: int = 1,
    env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, capture: bool = False,
) -> StepResult:  # fmt: skip
    """Run a program on nodes of this gang, by their ranks (None: all of them; none: nowhere), and wait for its end.

    Processes are numbered in the order of the ranks. Outside of Lockstep they run on this machine, as if it were the
    only node. Raises RuntimeError in a gang whose launcher has no steps.
    """
    import subprocess  # the others need none

    environment = dict(os.environ if env is None else env)
    directory = os.environ.get("LOCKSTEP_STEPS_DIR", "")
    chosen = None if ranks is None else [int(rank) for rank in ranks]
    if chosen == []:
        return StepResult({}, {}, {}, {})
    if not directory:
        if os.environ.get("LOCKSTEP_NNODES", "1") != "1":
            raise RuntimeError("this gang has no steps: `launcher.steps: true` in its TrainingRun gives it some")
        return _locally(argv, tasks_per_node, environment, cwd, capture)
    environment["LOCKSTEP_STEPS_DIR"] = directory
    scratch = os.path.dirname(os.path.dirname(directory))
    command = [os.path.join(scratch, "bin", "lockstep-step"), f"--tasks-per-node={tasks_per_node}"]
    if chosen is not None:
        command.append("--ranks=" + ",".join(map(str, chosen)))
    read, write = os.pipe()
    command += [f"--cwd={os.getcwd() if cwd is None else cwd}", f"--report-fd={write}", *["--capture"] * capture, "--"]
    with os.fdopen(read, "rb") as report:
        try:
            process = subprocess.Popen([*command, *argv], env=environment, pass_fds=(write,))
        finally:
            os.close(write)
        with process:
            text = report.read()
    if not text:
        raise RuntimeError(f"lockstep-step ended with code {process.returncode}, and said nothing of the step")
    rows = json.loads(text.decode("ascii"))
    out, err = ({row["task"]: base64.b64decode(row[name]) for row in rows} for name in ("stdout", "stderr"))
    problems = {row["task"]: row["words"] for row in rows if row["words"]}
    return StepResult({row["task"]: row["code"] for row in rows}, out, err, problems)


def _locally(
    argv: Sequence[str], tasks: int, environment: Dict[str, str], cwd: Optional[str], capture: bool
) -> StepResult:
    import subprocess

    result = StepResult({}, {}, {}, {})
    pipe = subprocess.PIPE if capture else None
    processes = []
    for task in range(tasks):
        own = {"TASK": task, "TASKS": tasks, "LOCAL_TASK": task}
        environment.update({f"LOCKSTEP_STEP_{name}": str(value) for name, value in own.items()})
        try:
            processes.append((task, subprocess.Popen(list(argv), env=environment, cwd=cwd, stdout=pipe, stderr=pipe)))
        except OSError as error:
            result.codes[task] = 127 if isinstance(error, FileNotFoundError) else 126
            result.problems[task] = f"{argv[0]}: {error.strerror}"
    for task, process in processes:
        out, err = process.communicate()
        result.stdout[task], result.stderr[task] = out or b"", err or b""
        result.codes[task] = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return result


class _Training:
    """What one process knows; made once, when this module is imported."""

    def __init__(self) -> None:
        self._path = os.environ.get("LOCKSTEP_CONTROL_FILE", "")
        self._version: Tuple[int, ...] = ()  # of the file, when it was last read
        self._control: Dict[str, Any] = {}
        self._cadences: List[Tuple[int, int, int]] = []  # (from step, every so many, to the shared tier), oldest first
        self._answered: Set[str] = set()  # ids of saves
        self._asked: Set[int] = set()  # steps at which one of them began
        self._last_due = -1
        self._marked: Set[str] = set()
        self._resumed = os.environ.get("LOCKSTEP_RESUME_STEP", "")
        self._speaks = next(filter(None, map(os.environ.get, _LOCAL_RANKS)), "0") == "0"

    def should_checkpoint(self, step: int) -> bool:
        self._read()
        save = self._control.get("save")
        if save and save["id"] not in self._answered and step >= save["atStep"]:
            self._answered.add(save["id"])
            self._asked = {step}
            _append(os.environ.get("LOCKSTEP_SAVED_FILE", ""), save["id"])
            self._last_due = step
            return True
        every = self._cadence(step)[0]
        if not every or step <= 0 or step % every or step == self._last_due or str(step) == self._resumed:
            return False
        self._last_due = step
        return True

    def should_stop(self) -> bool:
        self._read()
        save = self._control.get("save")
        awaited = save and save["id"] not in self._answered
        # Ranks hear of a stop at different steps; what they have in common is the save that was asked for with it.
        if not self._control.get("stop") or awaited or self._last_due not in self._asked:
            return False
        # Untold, the end would pass for the end of the run. A disk that is full now may not be at the next save.
        return self._mark(_STOPPED)

    def report(self, step: int, loss: Optional[float], total_steps: Optional[int]) -> None:
        finite = loss is None or math.isfinite(loss)
        if not self._speaks and finite:
            return
        entry: Dict[str, Any] = {"step": int(step), "time": time.time()}
        if loss is not None:
            entry["loss"] = float(loss) if finite else str(float(loss))
        if total_steps is not None:
            entry["total_steps"] = int(total_steps)
        _append(os.environ.get("LOCKSTEP_PROGRESS_FILE", ""), json.dumps(entry))

    def enter(self, section: str, step: int) -> None:
        if self._speaks:
            entry = {"section": section, "step": int(step), "time": time.time()}
            _append(os.environ.get("LOCKSTEP_PROGRESS_FILE", ""), json.dumps(entry))

    def checkpoint_directory(self, step: Optional[int]) -> str:
        shared = os.environ.get("LOCKSTEP_CHECKPOINT_DIR", "")
        local = os.environ.get("LOCKSTEP_LOCAL_CHECKPOINT_DIR", "")
        if not shared or not local:
            return shared or local
        every = self._cadence(step)[1] if step is not None else 0
        # What was asked for has to outlive the node, and so has everything where no cadence is known.
        return local if step is not None and every and step % every and step not in self._asked else shared

    def _cadence(self, step: int) -> Tuple[int, int]:
        """(every so many steps, to the shared tier every so many), as agreed for this step; 0: never."""
        held = [cadence for cadence in self._cadences if cadence[0] <= step]
        return held[-1][1:] if held else (0, 0)

    def _read(self) -> None:
        if not self._path:
            return
        self._mark(_READ)
        try:
            found = os.stat(self._path)
            version = (found.st_mtime_ns, found.st_ino, found.st_size)
            if version == self._version:
                return
            with open(self._path, "rb") as stream:
                control = json.loads(stream.read().decode("utf-8"))
            save = control.get("save")
            if save:
                control["save"] = {"id": str(save["id"]), "atStep": int(save["atStep"])}
            self._take_cadence(control.get("cadence"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return  # what is known holds
        self._control, self._version = control, version

    def _take_cadence(self, cadence: Optional[Dict[str, Any]]) -> None:
        if not cadence:
            self._cadences = []
            return
        shared = int(cadence.get("sharedSteps") or 0)
        newest = (int(cadence.get("fromStep") or 0), int(cadence.get("steps") or 0) or shared, shared)
        if newest not in self._cadences[-1:]:
            # The one before holds until that step, so that ranks which hear of it at different steps agree.
            self._cadences = [*self._cadences[-3:], newest]

    def _mark(self, suffix: str) -> bool:
        """Whether the file is there, which says it all: a full disk may leave it empty."""
        if suffix not in self._marked:
            _append(self._path + suffix, str(os.getpid()))
            if os.path.exists(self._path + suffix):
                self._marked.add(suffix)
        return suffix in self._marked


_torn: Set[str] = set()


def _append(path: str, line: str) -> None:
    """Add one line. One that found no room for its end does not spoil the next."""
    if not path:
        return
    with contextlib.suppress(OSError):
        content = b"\n" * (path in _torn) + line.encode("utf-8") + b"\n"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            written = os.write(descriptor, content)
            (_torn.discard if written == len(content) else _torn.add)(path)
        finally:
            os.close(descriptor)


_stack_file: Any = None


def _offer_stacks() -> None:
    """Let the worker see where this process stands, even while it hangs inside a library."""
    global _stack_file
    prefix = os.environ.get("LOCKSTEP_STACK_FILE", "")
    if prefix:
        with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):
            _stack_file = open(f"{prefix}.{os.getpid()}", "ab")  # noqa: SIM115, held for as long as the process lives
            faulthandler.register(int(signal.SIGRTMIN) + 9, file=_stack_file, all_threads=True)


_training = _Training()
_offer_stacks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_offer_stacks)
