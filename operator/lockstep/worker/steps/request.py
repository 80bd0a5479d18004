"""What a client asks of one node, and how it was refused."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence

from lockstep.slurm.layout import MOST_TASKS_OF_NODE
from lockstep.worker.steps.frames import ALL, VERSION

if TYPE_CHECKING:  # what starts these programs wants them to start quickly
    from lockstep.worker.settings import JSON

SHELL = "/bin/sh"
MAX_TASKS = MOST_TASKS_OF_NODE
MAX_GRACE = 3600.0  # seconds
_MAX_STEP = 64
_VARIABLES = re.compile(r"(?:\s*(?:export\s+[^;\s]+|\w+=[^;\s]*)\s*(?:;|\s))*")  # at the beginning of shell text

# As shells and sshd have them.
NOT_STARTED, NOT_EXECUTABLE, NOT_FOUND, UNREACHABLE = 125, 126, 127, 255


class RefusedError(Exception):
    """It cannot be done: (exit code, reason, words)."""


class TaskAsked(NamedTuple):
    """One process: its number in the step, and what is laid over the environment of all.

    ``reads``: it is one of those that get what the client sends. The others are files of its node in the place of its
    streams, which begin empty unless ``append`` is true; the same name twice is one file. ``pid_in``: a variable of its
    environment that is to hold its PID.
    """

    identity: int
    environment: Dict[str, str] = {}  # noqa: RUF012, nobody changes it
    reads: bool = True
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    append: bool = False
    pid_in: str = ""

    def header(self) -> JSON:
        """As it goes over the wire: what is usual is left out."""
        usual = TaskAsked(-1)
        more = {name: value for name, value in self._asdict().items() if value != getattr(usual, name)}
        more.pop("identity")
        more.pop("environment", None)
        return {"id": self.identity, "env": self.environment, **more}


class AskedOfNode(NamedTuple):
    """Processes to be started on one node.

    Either ``argv`` or ``shell``, which is text for /bin/sh. ``environment`` None: the node's own. ``unset`` is taken
    out of it. ``directory`` None: the node's own. ``stdin``: what the client sends is for the tasks to read; else they
    read nothing. ``grace``: seconds between SIGTERM and SIGKILL, should the client be lost. ``sweep``: what the tasks
    leave behind ends with the last of them.
    """

    step: str
    rank: int
    tasks: Sequence[TaskAsked]
    argv: Optional[Sequence[str]] = None
    shell: Optional[str] = None
    environment: Optional[Dict[str, str]] = None
    unset: Sequence[str] = ()
    directory: Optional[str] = None
    stdin: bool = False
    grace: float = 10.0
    sweep: bool = False

    @property
    def command(self) -> List[str]:
        """What is executed."""
        return [SHELL, "-c", self.shell] if self.shell is not None else list(self.argv or ())

    @property
    def program(self) -> str:
        """Its name, for people: of shell text the first word after variables."""
        if self.argv is not None:
            return os.path.basename(self.argv[0])[:64]
        words = _VARIABLES.sub("", self.shell or "", count=1).split(maxsplit=1)
        return os.path.basename(words[0].strip("\"';"))[:64] if words else "sh"

    def header(self) -> JSON:
        """As it goes over the wire."""
        return {
            "version": VERSION, "step": self.step, "rank": self.rank, "argv": self.argv, "shell": self.shell,
            "tasks": [task.header() for task in self.tasks],
            "env": self.environment, "unset": list(self.unset), "cwd": self.directory,
            "stdin": "all" if self.stdin else "none", "grace": self.grace, "sweep": self.sweep,
        }  # fmt: skip


def request_of(header: JSON) -> AskedOfNode:
    """The inverse of ``AskedOfNode.header``. Raises RefusedError."""
    if header.get("version") != VERSION:
        raise RefusedError(NOT_STARTED, "Protocol", f"version {header.get('version')!r} of steps is not spoken here")
    try:
        argv, shell = header.get("argv"), header.get("shell")
        environment, directory = header.get("env"), header.get("cwd")
        tasks = [_task(task) for task in header["tasks"]]
        grace = header.get("grace", 10.0)
        _require((argv is None) != (shell is None), "either argv or shell")
        _require(0 < len(tasks) <= MAX_TASKS, f"1 to {MAX_TASKS} tasks")
        _require(len({task.identity for task in tasks}) == len(tasks), "tasks of different numbers")
        _require(isinstance(grace, (int, float)) and 0 <= grace <= MAX_GRACE, f"a grace of 0 to {MAX_GRACE:g} s")
        _require(header.get("stdin", "none") in ("none", "all"), "stdin for none or for all")
        return AskedOfNode(
            _text(header["step"])[:_MAX_STEP], _number(header["rank"], 0, ALL), tasks,
            None if argv is None else _command(argv), None if shell is None else _text(shell),
            None if environment is None else _texts_by_name(environment), _texts(header.get("unset") or []),
            None if directory is None else _text(directory), header.get("stdin") == "all", float(grace),
            header.get("sweep") is True,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RefusedError(NOT_STARTED, "Protocol", f"the request is not understood: {error!r}") from None


def _task(value: Any) -> TaskAsked:
    stdin, stdout, stderr, pid_in = (_text(value.get(name, "")) for name in ("stdin", "stdout", "stderr", "pid_in"))
    _require("=" not in pid_in, "names of variables")
    return TaskAsked(
        _number(value["id"], 0, ALL - 1), _texts_by_name(value["env"]), value.get("reads", True) is True, stdin, stdout,
        stderr, value.get("append") is True, pid_in,
    )  # fmt: skip


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"there must be {what}")


def _number(value: Any, lowest: int, highest: int) -> int:
    _require(isinstance(value, int) and lowest <= value <= highest, f"a number from {lowest} to {highest}")
    return int(value)


def _text(value: Any) -> str:
    _require(isinstance(value, str) and "\0" not in value, "text")
    return str(value)


def _texts(value: Any) -> List[str]:
    _require(isinstance(value, list), "a list")
    return [_text(each) for each in value]


def _command(value: Any) -> List[str]:
    argv = _texts(value)
    _require(bool(argv) and bool(argv[0]), "a command")
    return argv


def _texts_by_name(value: Any) -> Dict[str, str]:
    _require(isinstance(value, dict), "variables by name")
    for name in value:
        _require(bool(name) and "=" not in _text(name), "names of variables")
    return {name: _text(each) for name, each in value.items()}
