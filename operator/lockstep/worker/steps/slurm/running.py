"""A step of srun while it runs: where its output goes, what is said of its tasks, and when it is to end."""

from __future__ import annotations

import collections
import errno
import os
import re
import time
from typing import Callable, Deque, Dict, List, Optional, Sequence, Set, Tuple

from lockstep.slurm import reports, times
from lockstep.slurm.reports import TaskEnd
from lockstep.slurm.srun import Step
from lockstep.worker.shims.srun import Call, ComponentOutlets, OutputSink
from lockstep.worker.steps.client import RunningStep, StepSink, TaskOutcome
from lockstep.worker.steps.session import OUT_OF_MEMORY
from lockstep.worker.steps.slurm import registry
from lockstep.worker.steps.slurm.job import JobHere
from lockstep.worker.steps.streams import Labels, Writer, settle
from lockstep.worker.steps.told import NODE_UNREACHABLE

KILL_SECONDS = 30  # between TERM and KILL, as Slurm's KillWait is mostly
GATHER_SECONDS = 0.2  # tasks of a node that end together are told in one line
WARN_SECONDS = 60  # after the first end, where nothing ends the others
FAILED_TO_START = 1
_ERRNO = re.compile(r"\[Errno ([0-9]{1,3})\]")
RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT = "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"


class StepOutput(StepSink):
    """Raises OSError where a file cannot be opened."""

    def __init__(
        self, call: Call, step: Step, here: JobHere, number: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._call, self._options, self._here, self._number, self._clock = call, step, here, number, clock
        self.state = RUNNING
        self._own = Writer(2)
        self._writers: Dict[str, Writer] = {}  # by path of a file
        self._screen = {1: Writer(1), 2: self._own}
        self._outlets = [ComponentOutlets(0, call.stdout, call.stderr), *call.others]
        self._out = {task: self._outlets_of(task) for task in call.nodes}
        self._labels = Labels(call.request.labels) if call.request.labels is not None else None
        self._step: Optional[RunningStep] = None
        self._running: Set[int] = set(call.nodes)
        self._ends: List[TaskEnd] = []
        self._unsaid: List[TaskEnd] = []
        self._say_at = 0.0
        self._first_end = 0.0
        self._warned = False
        self._ending = False
        self._forced = False  # srun itself was told to end: it says nothing of tasks that this ends
        self._began = clock()
        self._asked: Deque[Callable[[], None]] = collections.deque()  # by signal handlers
        self._read = 0  # bytes of messages
        self._interrupted = 0.0
        for line in call.lines:
            self._say(line)

    def begin(self, step: RunningStep) -> None:
        """The step whose output this is."""
        self._step = step

    # What the nodes say

    def _outlets_of(self, task: int) -> Dict[int, Optional[Writer]]:
        """Writers by stream; None: it is not listened to. Raises OSError."""
        mine = [outlets for outlets in self._outlets if outlets.first <= task][-1]
        found: Dict[int, Optional[Writer]] = {}
        for stream, sink in ((1, mine.stdout), (2, mine.stderr)):
            if sink.path and sink.path not in self._writers:
                self._writers[sink.path] = _opened(sink)
            heard = sink.only in (-1, task)
            found[stream] = (self._writers[sink.path] if sink.path else self._screen[stream]) if heard else None
        return found

    def writer(self, task: int, stream: int) -> Optional[Writer]:
        writer = self._out[task][stream]
        if writer is not None and writer.broken and not self._here.ending:  # else its tasks may be saving
            self._end(0.0)  # whoever read this has gone, as in a pipe to head
        return None if self._labels is not None else writer

    def output(self, task: int, stream: int, data: bytes) -> None:
        writer = self._out[task][stream]
        if self._labels is not None and writer is not None:
            writer.write(self._labels.whole_lines(task, stream, data))

    def ended(self, task: int, rank: int, outcome: TaskOutcome) -> None:
        for stream, writer in self._out[task].items():
            if self._labels is not None and writer is not None:
                writer.write(self._labels.rest(task, stream))
        if task not in self._running:
            return
        end = self._as_end(task, outcome)
        self._running.discard(task)
        self._ends.append(end)
        self._unsaid.append(end)
        now = self._clock()
        self._first_end = self._first_end or now
        self._say_at = self._say_at or now + GATHER_SECONDS
        lost = outcome.reason == NODE_UNREACHABLE
        if (lost or (self._call.kill_on_bad_exit and reports.is_bad(end))) and not self._ending:
            self._tell()
            self._say(reports.aborting(KILL_SECONDS + 2) if lost else reports.terminating(*self._name))
            self._cancel("")

    def _as_end(self, task: int, outcome: TaskOutcome) -> TaskEnd:
        node = self._call.nodes[task]
        if not outcome.words:
            return TaskEnd(task, node, outcome.code, outcome.signal or None, outcome.reason == OUT_OF_MEMORY)
        said = _ERRNO.search(outcome.words)
        number = {"CommandNotFound": errno.ENOENT}.get(outcome.reason, int(said[1]) if said else errno.EACCES)
        if outcome.reason not in ("CommandNotFound", "CommandNotExecutable"):
            self._say(f"srun: error: {node}: {outcome.words}")
            return TaskEnd(task, node, FAILED_TO_START)
        self._say(reports.not_started(outcome.words.partition(": ")[0], os.strerror(number)))
        return TaskEnd(task, node, number)  # as the system calls it

    def lost(self, writer: Writer, why: str) -> None:
        says = self._screen[1] if writer is self._own else self._own
        says.write(f"srun: error: {writer.name}: {why}; what else goes there is lost\n".encode("utf-8", "replace"))

    def writers(self) -> Sequence[Writer]:
        return [*self._screen.values(), *self._writers.values()]

    # When something is due

    def follow_time(self) -> float:
        while self._asked:
            self._asked.popleft()()
        now = self._clock()
        due = [60.0]
        if self._unsaid:
            if now >= self._say_at:
                self._tell()
            else:
                due.append(self._say_at - now)
        if self._first_end and self._running and not self._ending:
            due.append(self._follow_the_first(now))
        limit = self._call.time_limit
        if limit and self._running and not self._ending:
            if now >= self._began + limit:
                self.state = TIMEOUT
                self._cancel(" DUE TO TIME LIMIT")
            else:
                due.append(self._began + limit - now)
        return max(0.0, min(due))

    def _follow_the_first(self, now: float) -> float:
        """Its end is the beginning of ``-W``."""
        wait = self._call.wait or WARN_SECONDS
        if self._warned:
            return 60.0
        if now < self._first_end + wait:
            return self._first_end + wait - now
        self._tell()
        self._warned = True
        lines = reports.first_exit(wait, *self._name, sorted(self._running), self._ends)
        if self._call.wait:
            self._say(*lines)
            self._inform(reports.aborting(KILL_SECONDS + 2))
            self._cancel("")
        else:
            self._say(*lines[:-1])
        return 60.0

    # What signals and scancel ask for; called by handlers, which may come between any two lines of the above

    def forward(self, number: int) -> None:
        """To all tasks."""
        self._later(lambda: self._signal(number))

    def terminate(self) -> None:
        """srun itself is told to end."""
        self._later(self._force)

    def interrupt(self) -> None:
        """^C: once it reports; once more within a second it ends the step, and a third time srun alone."""
        self._later(self._take_interrupt)

    def listen(self) -> None:
        """scancel has left a message."""
        self._later(self._take_messages)

    def _later(self, call: Callable[[], None]) -> None:
        self._asked.append(call)
        if self._step is not None:
            self._step.wake()

    def _signal(self, number: int) -> None:
        if self._step is not None:
            self._step.signal(number)

    def _force(self) -> None:
        if self._running:
            self._inform("srun: forcing job termination")
            self._forced = True
        self._cancel("", cancelled=True)

    def _take_interrupt(self) -> None:
        now = self._clock()
        if self.state == CANCELLED:
            self._inform("srun: interrupt (abort already in progress)")
            settle(self.writers(), 1.0)
            os._exit(128 + 2)
        which = f"StepId={self._name[0]}.{self._name[1]}"
        if now - self._interrupted < 1.0 or self._options.quit_on_interrupt:
            self._inform(f"srun: sending Ctrl-C to {which}")
            self._signal(2)
            self._force()
        elif self._options.disable_status:
            self._inform(f"srun: sending Ctrl-C to {which}")
            self._signal(2)
        else:
            self._inform("srun: interrupt (one more within 1 sec to abort)")
            self._inform(*reports.first_exit(0, *self._name, sorted(self._running), self._ends)[1:-1])
        self._interrupted = now

    def _take_messages(self) -> None:
        messages, self._read = registry.hear(self._here.directory, self._number, self._read)
        for message in messages:
            if message == "cancel":
                self._cancel("", cancelled=True)
            elif message.isdigit() and 0 < int(message) <= 64:
                self._signal(int(message))

    # Its end

    def _cancel(self, why: str, *, cancelled: bool = False) -> None:
        if self._ending:
            return
        if not self._running:  # they ended by themselves, and what they left behind is to
            self._end(float(KILL_SECONDS))
            return
        if cancelled:
            self.state = CANCELLED
            self._inform(reports.aborting(KILL_SECONDS + 2))
        job, step = self._name
        line = reports.step_cancelled(job, step, self._first_node(), times.moment(int(time.time())))
        self._say(line[: -len(" ***")] + why + " ***")
        self._end(float(KILL_SECONDS))

    def _end(self, grace: float) -> None:
        if not self._ending and self._step is not None:
            self._ending = True
            self._step.end(grace)

    def finish(self) -> int:
        """All is over; the code that srun ends with."""
        self._tell()
        code = reports.exit_code(self._ends)
        if self.state == RUNNING:
            self.state = FAILED if code else COMPLETED
        settle(self.writers(), 5.0)
        return code

    @property
    def worst(self) -> Tuple[int, int]:
        """The highest code, and the highest signal."""
        return max((end.code for end in self._ends), default=0), max((end.signal or 0 for end in self._ends), default=0)

    def _tell(self) -> None:
        lines = reports.exit_lines(self._unsaid, cancelled=self._forced)
        self._unsaid, self._say_at = [], 0.0
        self._say(*lines)

    def _say(self, *lines: str) -> None:
        for line in lines:
            self._own.write(f"{line}\n".encode("utf-8", "replace"))

    def _inform(self, *lines: str) -> None:
        if not self._options.quiet:
            self._say(*lines)

    @property
    def _name(self) -> Tuple[int, int]:
        return self._here.job.id, self._number

    def _first_node(self) -> str:
        return self._call.nodes[min(self._call.nodes)]


def _opened(sink: OutputSink) -> Writer:
    """Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY
    return Writer(os.open(sink.path, flags | (0 if sink.append else os.O_TRUNC), 0o666), sink.path)
