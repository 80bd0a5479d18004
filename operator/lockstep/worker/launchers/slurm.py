"""Slurm: a batch script on the first node, as an allocation of the gang's nodes would have it.

What the job is comes with START; its programs (``srun`` and the like) read it from a file beside the certificates.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from lockstep.slurm import signals
from lockstep.slurm.environment import SlurmJob, batch_environment, job_of
from lockstep.slurm.patterns import NO_VAL, Names, file_name
from lockstep.worker.errors import open_plain
from lockstep.worker.settings import JSON

SCRIPT = "slurm_script"
SHELL = "shell"  # beside the job's file: its PID
STOPPING = "stopping"  # beside the job's file: no step begins any more
ASKS = "asks"  # beside the directory of certificates: what is asked of the operator
_JOB = "job.json"
_MOST = 64 << 20
_NULL = "/dev/null"
_BECOME = """
import os, signal, sys
directory, stdin, *command = sys.argv[1:]
with open("/proc/self/environ", "rb") as stream:
    given = dict(row.split(b"=", 1) for row in stream.read().split(b"\\0") if b"=" in row)
given[b"SLURM_TASK_PID"] = b"%d" % os.getpid()
with open(given[b"LOCKSTEP_STEPS_DIR"] + b"/shell", "wb") as stream:
    stream.write(b"%d" % os.getpid())
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
what = "couldn't chdir to `%s'" % directory
try:
    if directory:
        os.chdir(directory)
    what = "could not open stdin file %s" % stdin
    if stdin:
        os.dup2(os.open(stdin, os.O_RDONLY), 0)
    what = "execve(): %s" % command[0]
    os.execve(command[0], command, given)
except OSError as error:
    os.write(2, os.fsencode("slurmstepd: error: %s: %s\\n" % (what, error.strerror)))
    os._exit(127 if error.errno == 2 else 126)
"""
"""The script's shell before it is that: Python would change what is inherited, and a directory may hang."""


class StartedBatch(NamedTuple):
    """What runs. Patterns of files are as they were typed; empty: not said."""

    job: SlurmJob
    words: Sequence[Sequence[str]]  # for each node all that mean it
    arguments: Sequence[str] = ()
    output: str = ""
    error: str = ""
    input: str = ""
    append: bool = False
    directory: str = ""
    command: str = "(null)"  # path of the script's file, as it was submitted; else as Slurm has it

    @property
    def signals_shell_only(self) -> bool:
        """``--signal=B:…``: steps get none."""
        try:
            return signals.notice(self.job.said.get("signal", "USR1")).shell_only
        except ValueError:
            return False


class BatchFiles(NamedTuple):
    """Of the script's streams. Empty stdin: nothing is read."""

    stdin: str
    stdout: str
    stderr: str


def batch_of(given: Mapping[str, Any]) -> StartedBatch:
    """From what comes with START, or from the job's file. Raises KeyError, TypeError, ValueError."""
    job = job_of(given["job"])
    words = [[str(word) for word in each] for each in given.get("words") or [[node] for node in job.nodes]]
    if len(words) != len(job.nodes):
        raise ValueError(f"{len(job.nodes)} nodes, words for {len(words)}")
    words = [list(dict.fromkeys([node, *each])) for node, each in zip(job.nodes, words)]  # noqa: B905 (Python 3.8)
    return StartedBatch(
        job, words, [str(each) for each in given.get("arguments") or ()], str(given.get("output") or ""),
        str(given.get("error") or ""), str(given.get("input") or ""), given.get("append") is True,
        str(given.get("directory") or ""), str(given.get("command") or "(null)"),
    )  # fmt: skip


def write_job(directory: str, given: JSON) -> None:
    """For the programs of this node: into the directory of certificates, and the script beside that.

    Raises OSError; KeyError, TypeError, ValueError.
    """
    batch_of(given)  # is understood
    above = os.path.dirname(directory)
    os.mkdir(os.path.join(above, ASKS), 0o700)
    shown = {name: value for name, value in given.items() if name != "script"}
    _write(os.path.join(directory, _JOB), json.dumps(shown), 0o600)
    if given.get("script"):
        _write(os.path.join(above, SCRIPT), str(given["script"]), 0o700)


def read_job(directory: str) -> StartedBatch:
    """What ``write_job`` has written. Raises OSError; KeyError, TypeError, ValueError."""
    with open_plain(os.path.join(directory, _JOB)) as stream:
        return batch_of(json.loads(stream.read(_MOST).decode("utf-8")))


def script_of(directory: str) -> str:
    """Where the copy of the script is that runs."""
    return os.path.join(os.path.dirname(directory), SCRIPT)


def begin_stop(directory: str) -> None:
    """From now on no step begins. Raises OSError."""
    with open(os.path.join(directory, STOPPING), "w"):
        pass


def batch_files(batch: StartedBatch) -> BatchFiles:
    """Both streams in one file, unless an own one is named for errors."""
    job = batch.job
    array = job.array
    names = Names(
        job.id, array.job if array else 0, array.task if array else NO_VAL, None, job.name, job.restarts, job.user,
        job.nodes[0], 0, 0,
    )  # fmt: skip

    def path(pattern: str) -> str:
        return os.path.join(batch.directory, file_name(pattern, names))

    stdout = path(batch.output or ("slurm-%A_%a.out" if array else "slurm-%j.out"))
    stdin = path(batch.input) if batch.input else _NULL
    return BatchFiles("" if stdin == _NULL else stdin, stdout, path(batch.error) if batch.error else stdout)


def shell_command(batch: StartedBatch, directory: str) -> List[str]:
    """What becomes the batch shell: the script under its own name, with its arguments."""
    head = [sys.executable, "-ISB", "-c", _BECOME, batch.directory, batch_files(batch).stdin]
    return [*head, script_of(directory), *batch.arguments]


def shell_environment(batch: StartedBatch, environment: Mapping[str, str]) -> Dict[str, str]:
    """The script's."""
    return {**environment, **batch_environment(batch.job)}


def missing_interpreter(directory: str) -> str:
    """What the script's first line names, if that is not there; or empty. Raises OSError."""
    with open(script_of(directory), "rb") as stream:
        words = stream.readline(512)[2:].decode("utf-8", "replace").split()
    return words[0] if words and not shutil.which(words[0]) else ""


def _write(path: str, text: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
        stream.write(text)
