"""One attempt of the program, from its start to what is known of it after its end."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import threading
import time
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from lockstep.worker.checkpoints.inventory import Commits, CommitWatch
from lockstep.worker.child.control import ControlFile
from lockstep.worker.child.loglines import LogProgress
from lockstep.worker.child.loss import Jump, LossWatch
from lockstep.worker.child.process import Child, Outlets
from lockstep.worker.child.processes import catches, catching
from lockstep.worker.child.progress import ProgressTail, Section, is_no_number
from lockstep.worker.child.signs import LOSS_SPIKE, NOT_A_NUMBER, Signs, StderrReader, sign_of
from lockstep.worker.child.stacks import StackDump, forget_the_dead, take_stacks
from lockstep.worker.child.timing import INIT, Timing
from lockstep.worker.errors import open_plain
from lockstep.worker.output import log_line, write_all
from lockstep.worker.settings import JSON, SHARED_SKEW, Settings
from lockstep.worker.start import Launch

InThread = Callable[[Callable[[], Optional[Callable[[], None]]]], None]
"""Has slow work done in a thread, and the call that it returns made by the main thread."""

Catchers = Callable[[int, int], List[int]]
"""Of the program's PID and a signal that asks for a save: who is to get it."""

MAX_MESSAGE = 4096  # bytes looked at of what the program left as its last words
LAST_WORDS_SECONDS = 1.0
MAX_FRESH = 256  # checkpoints; of those that nobody could be told of the newest count


def all_that_catch(program: int, number: int) -> List[int]:
    return catching(number)


def all_but_ray(program: int, number: int) -> List[int]:
    """Ray's own, which catch signals of their own, and some to end, are in sessions of their own."""
    return catching(number, session=program)


def program_alone(program: int, number: int) -> List[int]:
    """A batch shell, of which its steps are not to hear."""
    return [program] if catches(program, number) else []


def nobody(program: int, number: int) -> List[int]:
    return []


class Training:
    """What is asked of the program and what is seen of it. Used by the main thread only.

    ``also`` hears its output, as ``Child`` has it; ``pattern`` is of the lines of it that tell a step, where these are
    of no known form. Raises LaunchError where the program cannot be started.
    """

    def __init__(
        self, settings: Settings, launch: Launch, command: Sequence[str], environment: Dict[str, str],
        rules: Sequence[JSON], in_thread: InThread, *, steps: bool = False, serves: Sequence[int] = (),
        also: Optional[Callable[[int, bytes], None]] = None, outlets: Optional[Outlets] = None,
        catchers: Catchers = all_that_catch, pattern: str = "",
    ) -> None:  # fmt: skip
        self._settings, self._launch, self._in_thread, self._catchers = settings, launch, in_thread, catchers
        files = (environment["LOCKSTEP_CONTROL_FILE"], environment["LOCKSTEP_SAVED_FILE"])
        self._control = ControlFile(*files, launch.attempt)
        self._stack_prefix = environment["LOCKSTEP_STACK_FILE"]
        self._error_file = environment.get("TORCHELASTIC_ERROR_FILE", "")
        self._message_before = _stamp(settings.termination_log)
        self._began = time.time()
        self._tail = ProgressTail(environment["LOCKSTEP_PROGRESS_FILE"])
        self._log, self._also = LogProgress(), also
        self.signs = Signs()
        self.timing = Timing(time.monotonic())
        self._losses = LossWatch()
        self.progress: Optional[JSON] = None
        self.advanced = time.monotonic()
        self.fresh: List[JSON] = []  # checkpoints not told of yet
        self.stacks: Optional[JSON] = None
        self.watching = False
        self.catches = False  # some process of it catches the signal to save
        self._commits = CommitWatch(settings, launch)
        self.unrecognised: Sequence[JSON] = ()  # what may be saves, and no format knows
        self._signalled = ""  # id of the last save that was asked for by signal …
        self._signalled_at = 0.0
        self._saved_by_signal = ""  # … and of the last one after which a commit was seen
        self._saved = ""  # id of the last one that was taken up
        self._ended = False
        self._stacks_of = ""
        self._local_times: Dict[float, float] = {}
        self._control.write(None, None, None)
        self._reader = StderrReader(self.signs, rules, self._loaded)
        try:
            if pattern:
                self._log.look_for(pattern, self.signs)
            self.child = Child(
                launch.attempt, command, environment, self._hear, steps=steps, serves=serves, outlets=outlets
            )
        except BaseException:
            self._reader.finish()
            self._log.finish()
            raise

    @property
    def rank(self) -> int:
        """Of its node."""
        return self._launch.rank

    @property
    def helpers(self) -> List[int]:
        """PIDs of processes of the worker's own."""
        return [pid for pid in (self._reader.helper, self._log.helper) if pid]

    def _hear(self, stream: int, data: bytes) -> None:
        """Called by the threads that pass the output on."""
        if stream == 2:
            self._reader.feed(data)
        self._log.feed(stream, data)
        if self._also is not None:
            self._also(stream, data)

    def take_lines(self, lines: Sequence[Tuple[float, str]]) -> None:
        """Lines of stderr, with their times, of what steps run on this node."""
        for at, line in lines:
            kind = sign_of(line.encode("utf-8", "replace"), self._loaded())
            if kind:
                self.signs.add(kind, at, line)

    # What is asked of it

    def steer(self, desired: JSON, clock_ahead: float, leaving_at: Optional[float]) -> None:
        """Pass on what the operator wants now. ``clock_ahead``: seconds that this machine is ahead of the operator.

        ``leaving_at``: unix time by which this worker has to end the program, if it was asked to leave.
        """
        running = desired["phase"] == "Run" and desired["attempt"] == self._launch.attempt
        save = desired.get("save") if running else None
        stopping_at = desired.get("stoppingAt") if running else None
        ends = [leaving_at] if leaving_at is not None else []
        if stopping_at:
            ends.append(self._local(stopping_at, clock_ahead))
        told = None
        if save:
            deadline = round(self._local(save["deadline"], clock_ahead), 3)
            told = {"id": str(save["id"]), "atStep": int(save["atStep"]), "deadline": deadline}
            self._ask_by_signal(told)
        could_not = self._control.problem
        self._control.write(told, min(ends) if ends else None, desired.get("cadence") if running else None)
        if self._control.problem and not could_not:
            log_line(f"the program cannot be told to save or to stop: {self._control.problem}")
        wanted = str(desired.get("stacks") or "") if running else ""
        if wanted and wanted != self._stacks_of:
            self._stacks_of = wanted
            self._take_stacks(wanted)

    def _local(self, moment: float, clock_ahead: float) -> float:
        """The operator's time on this machine's clock. Once for each moment: measuring anew would change the file."""
        if moment not in self._local_times:
            self._local_times = dict(list(self._local_times.items())[-3:])
            self._local_times[moment] = moment + clock_ahead
        return self._local_times[moment]

    def _ask_by_signal(self, save: JSON) -> None:
        """Best effort, for programs that agree among themselves: only what catches the signal ever gets it."""
        number = self._settings.save_signal
        if not number or self._signalled == save["id"] or self._control.is_read():
            return
        if self.progress is not None and self.progress["step"] < save["atStep"]:
            return
        self._signalled, self._signalled_at = save["id"], time.time()

        def send() -> None:
            reached = self._catchers(self.child.pid, number)
            for pid in reached:
                with contextlib.suppress(OSError):  # it may have ended meanwhile
                    os.kill(pid, number)
            processes = "1 process" if len(reached) == 1 else f"{len(reached)} processes"
            log_line(f"asked {processes} to save with {signal.Signals(number).name}")

        self._in_thread(send)

    def _take_stacks(self, wanted: str) -> None:
        def take() -> Callable[[], None]:
            try:
                stacks = take_stacks(self._stack_prefix, leave_out=self.helpers)
            except Exception as error:  # the thread's end, as below
                stacks = StackDump(f"the stacks cannot be taken: {error!r}", "")
            return functools.partial(self._took_stacks, wanted, stacks)

        self._in_thread(take)

    def _took_stacks(self, wanted: str, stacks: StackDump) -> None:
        self.stacks = {"id": wanted, "text": stacks.text}
        attempt = self._launch.attempt

        def write() -> None:  # a dump is more than a pipe holds, and nobody may be reading it
            log_line(f"attempt={attempt} stacks id={wanted} begin")
            write_all(2, stacks.dump.encode("utf-8", "replace"))
            log_line(f"attempt={attempt} stacks id={wanted} end")

        self._in_thread(write)

    # What is seen of it

    def observe(self) -> None:
        """Read how far it is."""
        wall, now = time.time(), time.monotonic()
        entries = self._tail.read(wall)
        if entries:
            self._log.stop()
        entries += self._log.drain()
        newest: Optional[JSON] = None
        for entry in entries:
            if newest is not None and (isinstance(entry, Section) or entry["at"] > newest["at"]):
                self.timing.reached(newest["step"], newest["at"], now)
            if isinstance(entry, Section):
                newest = None
                self.timing.enters(entry.name, entry.at)
                continue
            newest, self.progress, self.advanced = entry, entry, now
            self.signs.step = entry["step"]
            if is_no_number(entry["loss"]):
                words = f"the loss of step {entry['step']} is {entry['loss']}"
                self.signs.add(NOT_A_NUMBER, entry["at"], words, entry["step"])
            elif (jump := self._jump_of(entry)) is not None:
                self.signs.add(LOSS_SPIKE, entry["at"], jump.words, jump.step)
        if newest is not None:
            self.timing.reached(newest["step"], newest["at"], now)

    def _jump_of(self, entry: JSON) -> Optional[Jump]:
        try:
            return self._losses.seen(entry["step"], float(str(entry["loss"])))
        except ValueError:
            return None  # none was reported, or in words

    def look_for_commits(self, over: bool) -> None:
        """See in a thread what it has saved. ``over``: it has ended."""
        self.watching = True
        number = self._settings.save_signal

        def poll() -> Callable[[], None]:
            commits, catches = Commits([], False), False
            with contextlib.suppress(Exception):  # the thread's end: without an answer nobody would look again
                forget_the_dead(self._stack_prefix)
                commits = self._commits.poll(over)
                catches = bool(number and self._catchers(self.child.pid, number))
            return functools.partial(self._looked, commits, catches)

        self._in_thread(poll)

    def _looked(self, commits: Commits, catches: bool) -> None:
        self.watching, self.catches = False, catches
        for row in commits.rows:
            self.timing.committed(row["committedAt"])
            if self._signalled and row["committedAt"] >= self._signalled_at - 2.0:
                self._saved_by_signal = self._signalled
        self.unrecognised = commits.unrecognised
        if commits.begun:
            self.timing.save_seen()
        self.fresh = [*self.fresh, *commits.rows][-MAX_FRESH:]

    @property
    def listens(self) -> bool:
        """The program will see a request to save."""
        return self.catches or (self._control.is_read() and not self._control.problem)

    def report(self) -> JSON:
        """What the protocol carries of it, but for its progress and its timing, which are never urgent."""
        if not self._ended:  # afterwards the files may be removed
            self._saved = self._control.saved() or self._saved_by_signal
        about: JSON = {"listens": self.listens and not self._ended, "saved": self._saved}
        signs = self.signs.report()
        if signs:
            about["signs"] = signs
        if self.stacks:
            about["stacks"] = self.stacks
        return about

    # After its end

    def finish(self, code: int) -> None:
        """The program was reaped: hear out its last words."""
        self.child.drain(code)
        self._reader.finish()
        self._log.finish()
        if self._reader.passed_over:
            log_line(f"{self._reader.passed_over} bytes of stderr came too fast to be looked at for signs")
        self.observe()
        self.report()
        self._ended = True
        message = self._last_words()
        if message:
            self.signs.add_message(message, self._loaded())

    def _loaded(self) -> str:
        """Path of the checkpoint that may be being loaded, or empty."""
        return self._launch.resume_path if self.timing.section == INIT else ""

    def was_told_to_stop(self) -> bool:
        """It asked, and heard that it should stop; the steps it had to do were not done."""
        progress = self.progress or {}
        total = progress.get("totalSteps")
        return self._control.has_stopped_it() and not (total and progress["step"] >= total)

    def _last_words(self) -> str:
        """What it wrote as its termination message, or as torchrun's error file."""
        if not self._error_file:
            return self._read_last_words()  # the container's own file
        found: List[str] = []  # that file may be on a server: bounded
        reading = threading.Thread(target=lambda: found.append(self._read_last_words()), daemon=True)
        with contextlib.suppress(RuntimeError):  # no room for another thread
            reading.start()
            reading.join(LAST_WORDS_SECONDS)
        return found[0] if found else ""

    def _read_last_words(self) -> str:
        if self._error_file:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                with open_plain(self._error_file) as stream:
                    if os.fstat(stream.fileno()).st_mtime < self._began - SHARED_SKEW:
                        return ""  # of an earlier attempt, where the user has named the file
                    message = json.loads(stream.read(1 << 20).decode("utf-8"))["message"]
                return str(message["message"] if isinstance(message, dict) else message)
        path = self._settings.termination_log
        with contextlib.suppress(OSError):
            if _stamp(path) != self._message_before:
                with open_plain(path) as stream:
                    return stream.read(MAX_MESSAGE).decode("utf-8", "replace").strip()
        return ""


def _stamp(path: str) -> Tuple[int, int]:
    """Whether a file has changed since."""
    try:
        found = os.stat(path)
        return found.st_mtime_ns, found.st_size
    except OSError:
        return 0, 0
