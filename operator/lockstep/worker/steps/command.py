"""``lockstep-step``: run a program on nodes of the own gang.

lockstep-step [-n NODES | --ranks 0-3,5 | --all] [--tasks-per-node N] [--label] [--cwd DIR] [--stdin[=RANK]]
              [--] program [argument ...]
"""

from __future__ import annotations

import binascii
import json
import os
import signal
import sys
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

from lockstep.slurm.sizes import plural
from lockstep.worker.steps.client import RunningStep, StepSink, TaskOutcome, forwarded_signals, new_step
from lockstep.worker.steps.credentials import AttemptGang, CredentialError, read_gang
from lockstep.worker.steps.place import VARIABLE
from lockstep.worker.steps.request import MAX_TASKS, NOT_STARTED, AskedOfNode, TaskAsked
from lockstep.worker.steps.streams import Labels, Writer, numbered
from lockstep.worker.steps.told import NODE_UNREACHABLE

USAGE = """usage: lockstep-step [-n NODES | --ranks 0-3,5 | --all] [--tasks-per-node N] [--label] [--cwd DIR]
                     [--stdin[=RANK]] [--] program [argument ...]
Runs a program on nodes of this gang, on all of them by default: in this directory, with this environment and
the other nodes' own LOCKSTEP_ variables. Its exit code is the highest, 128+n for signal n, 255 for a node that
cannot be reached.
  -n NODES             the first so many ranks
  --ranks LIST         these ranks, as 0-3,5
  --tasks-per-node N   so many processes on each; LOCKSTEP_STEP_TASK, _TASKS and _LOCAL_TASK tell them apart
  --label              the task's number in front of each line of output
  --cwd DIR            another directory
  --stdin[=RANK]       what is read here is given to every process, or to those of one rank
"""
END_SECONDS = 5.0  # of grace, when it is interrupted twice


class _UsageError(Exception):
    pass


class Options(NamedTuple):
    """What was typed."""

    program: Sequence[str]
    nodes: Optional[int] = None  # the first so many; None, as ``ranks``: all, unless the other says which
    ranks: Optional[str] = None
    per_node: int = 1
    label: bool = False
    directory: Optional[str] = None
    stdin: bool = False
    reader: int = -1  # the rank whose processes alone read; -1: all
    capture: bool = False  # of lockstep_training: output goes into the report
    report: int = -1  # descriptor that a report is written to, as JSON


def options_of(arguments: Sequence[str]) -> Options:
    """Raises _UsageError."""
    rest = list(arguments)
    found: Dict[str, Any] = {"program": ()}
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).partition("=")
        if name == "--":
            break
        if name == "--stdin" and equals:
            found.update(stdin=True, reader=_number(name, value))
            continue
        if name in ("--label", "--stdin", "--capture", "--all"):
            if name != "--all":
                found[name[2:]] = True
            continue
        field = {
            "-n": "nodes", "--ranks": "ranks", "--tasks-per-node": "per_node", "--cwd": "directory",
            "--report-fd": "report",
        }.get(name)  # fmt: skip
        if field is None:
            raise _UsageError(f"there is no option {name}")
        if not equals:
            if not rest:
                raise _UsageError(f"{name} needs a value")
            value = rest.pop(0)
        found[field] = value if field in ("ranks", "directory") else _number(name, value)
    if not rest:
        raise _UsageError("there is no program to run")
    options = Options(**dict(found, program=rest))
    if options.nodes is not None and options.ranks is not None:
        raise _UsageError("-n and --ranks do not go together")
    if options.nodes == 0 or options.ranks == "":
        raise _UsageError("it names no node, and --all means every one")
    if not 0 < options.per_node <= MAX_TASKS:
        raise _UsageError(f"--tasks-per-node is from 1 to {MAX_TASKS}")
    return options


def _number(name: str, value: str) -> int:
    if not value.isdigit():
        raise _UsageError(f"{name} needs a number, not {value!r}")
    return int(value)


def ranks_of(options: Options, world: int) -> List[int]:
    """The ranks that are meant. Raises _UsageError."""
    nodes = world if options.nodes is None else options.nodes
    if nodes > world:
        raise _UsageError(f"-n {nodes}: this gang has {plural(world, 'node')}")
    if options.ranks is None:
        return list(range(nodes))
    found: List[int] = []
    for part in options.ranks.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise _UsageError(f"--ranks {options.ranks}: ranks are listed as 0-3,5")
        if not int(first) <= int(last if dash else first) < world:
            raise _UsageError(f"--ranks {options.ranks}: this gang has the ranks 0 to {world - 1}")
        found += [rank for rank in range(int(first), int(last if dash else first) + 1) if rank not in found]
    return found


def requests_of(options: Options, ranks: Sequence[int]) -> List[AskedOfNode]:
    """One for each node, its tasks numbered in the order of the ranks. Raises _UsageError."""
    if options.reader >= 0 and options.reader not in ranks:
        listed = ",".join(map(str, ranks))
        raise _UsageError(f"--stdin {options.reader}: the step has the ranks {listed[:200]}")
    step, total = new_step(), len(ranks) * options.per_node
    directory = os.path.join(os.getcwd(), options.directory) if options.directory else os.getcwd()
    environment = dict(os.environ)
    requests = []
    for index, rank in enumerate(ranks):
        tasks = []
        for local in range(options.per_node):
            number = index * options.per_node + local
            own = {"TASK": number, "TASKS": total, "LOCAL_TASK": local}
            tasks.append(TaskAsked(number, {f"LOCKSTEP_STEP_{name}": str(value) for name, value in own.items()}))
        requests.append(
            AskedOfNode(
                step, rank, tasks, list(options.program), environment=environment, directory=directory,
                stdin=options.stdin and options.reader in (-1, rank),
            )
        )  # fmt: skip
    return requests


class _Terminal(StepSink):
    """Output goes where this process's goes, or is kept."""

    def __init__(self, gang: AttemptGang, options: Options, tasks: Sequence[int]) -> None:
        self._gang, self._capture = gang, options.capture
        self._out = {1: Writer(1), 2: Writer(2)}
        self._labels = Labels(numbered(tasks)) if options.label else None
        self.kept: Dict[Tuple[int, int], List[bytes]] = {}
        self.ranks: Dict[int, int] = {}
        self.step: Optional[RunningStep] = None

    def writer(self, task: int, stream: int) -> Optional[Writer]:
        if self._out[1].broken and self.step is not None:
            self.step.end(0.0)  # whoever read this has gone, as in a pipe to head
        return None if self._capture or self._labels else self._out[stream]

    def output(self, task: int, stream: int, data: bytes) -> None:
        if self._capture:
            self.kept.setdefault((task, stream), []).append(data)
        elif self._labels is not None:
            self._out[stream].write(self._labels.whole_lines(task, stream, data))

    def ended(self, task: int, rank: int, outcome: TaskOutcome) -> None:
        self.ranks[task] = rank
        if self._labels is not None:
            for stream, writer in self._out.items():
                writer.write(self._labels.rest(task, stream))
        if outcome.words:
            where = "" if outcome.reason == NODE_UNREACHABLE else f"{self._gang.named(rank)}: "
            self.say(f"{where}{outcome.words}")
        elif outcome.signal:
            self.say(f"task {task} on {self._gang.named(rank)} ended by signal {outcome.signal}")

    def say(self, words: str, stream: int = 2) -> None:
        """A line of this command's own."""
        self._out[stream].write(f"lockstep-step: {words}\n".encode("utf-8", "replace"))

    def lost(self, writer: Writer, why: str) -> None:
        self.say(f"{writer.name}: {why}; what else goes there is lost", 1 if writer is self._out[2] else 2)

    def writers(self) -> Sequence[Writer]:
        return list(self._out.values())

    def report(self, outcomes: Dict[int, TaskOutcome]) -> bytes:
        """For lockstep_training."""
        rows = [
            {
                "task": task, "rank": self.ranks[task], "code": outcome.exit_code, "words": outcome.words,
                "stdout": self._kept_of(task, 1),
                "stderr": self._kept_of(task, 2),
            }
            for task, outcome in sorted(outcomes.items())
        ]  # fmt: skip
        return json.dumps(rows).encode("ascii")

    def _kept_of(self, task: int, stream: int) -> str:
        """In base64."""
        return binascii.b2a_base64(b"".join(self.kept.get((task, stream), [])), newline=False).decode("ascii")


def run(arguments: Sequence[str]) -> int:
    """The command's exit code."""
    if arguments[:1] in (["-h"], ["--help"]):
        os.write(1, USAGE.encode("ascii"))
        return 0
    try:
        options = options_of(arguments)
        if VARIABLE not in os.environ:
            raise _UsageError(f"this is no process of a gang that has steps: {VARIABLE} is not set")
        directory = os.environ[VARIABLE]
        gang = read_gang(directory)
        requests = requests_of(options, ranks_of(options, len(gang.peers)))
        sink = _Terminal(gang, options, [task.identity for request in requests for task in request.tasks])
        step = RunningStep(gang, directory, requests, sink, stdin=0 if options.stdin else -1)
    except (_UsageError, CredentialError, OSError) as error:
        os.write(2, f"lockstep-step: {error}\n".encode("utf-8", "replace"))
        return NOT_STARTED
    sink.step = step
    interrupted: List[int] = []

    def forward(number: int, frame: object) -> None:
        if number == signal.SIGINT and interrupted:
            step.end(END_SECONDS)
        elif number == signal.SIGINT:
            interrupted.append(number)
        step.signal(number)

    for number in forwarded_signals():
        signal.signal(number, forward)
    outcomes = step.run()
    if options.report >= 0:
        with os.fdopen(options.report, "wb") as stream:
            stream.write(sink.report(outcomes))
    return max(outcome.exit_code for outcome in outcomes.values())


def main() -> NoReturn:
    """The program."""
    code = run(sys.argv[1:])
    os._exit(code)
