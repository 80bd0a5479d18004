"""The state machine: brings this node towards the newest desired state."""

from __future__ import annotations

import functools
import os
import signal
import time
import traceback
from typing import Callable, List, Optional

from lockstep.worker.checkpoints.removal import Removal
from lockstep.worker.checkpoints.tiers import NEWEST
from lockstep.worker.checkpoints.unrecognised import as_written
from lockstep.worker.child.launch import (
    contract_environment,
    start_delay,
)
from lockstep.worker.child.process import Child, LaunchError
from lockstep.worker.child.processes import adopt_orphans, kill_others, out_of_memory_kills
from lockstep.worker.child.scratch import highest_attempt, make_scratch, remove_older
from lockstep.worker.child.training import Training
from lockstep.worker.link.inbox import Inbox, SlowWork
from lockstep.worker.link.operator_link import Link
from lockstep.worker.link.operator_view import OperatorView
from lockstep.worker.node.barrier import Barrier
from lockstep.worker.node.program import program_of
from lockstep.worker.node.termination import Termination
from lockstep.worker.output import log_line, write_own
from lockstep.worker.settings import JSON, Settings
from lockstep.worker.start import Launch
from lockstep.worker.steps.service import StepService

RESTART_GRACE_SECONDS = 2.0  # the peers are gone: there is nothing left to save together
LAST_LOOK_SECONDS = 5.0
ACKNOWLEDGED_WITHIN_SECONDS = 0.25  # else the program starts without the operator being told first

PREPARING, READY, RUNNING, STOPPING, EXITED = "Preparing", "Ready", "Running", "Stopping", "Exited"
TOLD_TO_LEAVE = "SIGTERM"
ASKED = ("StoppedForRestart", "StoppedOnRequest", "WorkerTerminated", "Fenced")  # reasons of ends that were
WATCH_SECONDS, WATCH_BEATS = 5.0, 2.5  # between two looks for what the program has saved; the operator counts on it
NOTHING_TRAINS: JSON = {"listens": False, "saved": ""}  # as of a program that has just started, which is then no news


class Worker:
    """Brings this node towards the desired state. Used by the main thread only."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.inbox = Inbox()
        self.operator = OperatorView()
        self.link = Link(settings, self.inbox, self._take_desired, self.operator.take_refusal)
        self.slow_work = SlowWork(self.inbox)
        self.removal = Removal(settings)
        self.steps = StepService(settings)
        self.barrier = Barrier(settings, self.link, self.slow_work.begin, self.steps, self.removal.rest)
        self.phase = PREPARING
        self.problem = ""
        self.attempt = 0  # of the child it runs or last ran
        self.spent = highest_attempt(settings)  # no attempt up to this one may start any more
        self.start: Optional[JSON] = None
        self.exit: Optional[JSON] = None
        self.child: Optional[Child] = None
        self.training: Optional[Training] = None  # of the attempt it runs or last ran
        self.starting: Optional[Callable[[], None]] = None  # it waits for its turn
        self.start_at = 0.0  # monotonic
        self.last_look = False  # at what the child saved: still to come
        self.watch_after = 0.0  # monotonic
        self.memory_kills = 0
        self.termination = Termination(settings, self.operator)
        self.ended = time.monotonic()
        self.leave_with: Optional[int] = None
        self._told: JSON = {}
        self._complaint = ""
        self._turn = (
            self._make_calls, self._reap, self.slow_work.begin_delayed, self._advance, self._follow, self._publish
        )  # fmt: skip

    def run(self) -> int:
        """Live until it is time to leave; returns the exit code."""
        self.inbox.catch(signal.SIGTERM, self.termination.begin)
        self.inbox.catch(signal.SIGINT, self.termination.begin)
        self.inbox.catch(signal.SIGCHLD, lambda: None)  # reaped in every turn
        adopt_orphans()
        self.link.start()
        self._publish()
        while self.leave_with is None:
            for part in self._turn:
                try:
                    part()
                except Exception as error:  # a reply of another version, or a defect: no reason to end the training
                    self._survive(error)
        self.link.settle(2.0)
        return self.leave_with

    def _make_calls(self) -> None:
        self.inbox.make_calls(self._patience())

    def _survive(self, error: Exception) -> None:
        """Train on, whatever went wrong here; where nothing trains a new pod is the better start."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        words = f"defect: {error!r} at {where.name}:{where.lineno}"
        if words != self._complaint:  # once, not in every turn
            self._complaint = words
            log_line(words)
        if not self.child:
            self.leave_with = self._child_code() if self.exit else 125

    def _patience(self) -> float:
        """Seconds until the next turn, if nothing happens."""
        if self.starting:
            return min(0.1, max(0.0, self.start_at - time.monotonic()))
        return 0.1 if self.child and self.child.kill_at else 0.5

    # What the inbox brings

    def _take_desired(self, desired: JSON, told: List[JSON]) -> None:
        if not self.operator.take(desired, self.link):
            return  # what it was told of is still to be told to a successor
        if self.training:
            self.training.fresh = [row for row in self.training.fresh if row not in told]
        self.steps.asks.take(desired.get("asked"))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.steps.reaped(pid)
            if self.child and pid == self.child.pid:
                self._child_ended(self.child, status)

    # Towards the desired state

    def _advance(self) -> None:
        if self.starting:
            self._start_in_turn(self.starting)
        self._watch_commits()
        if self.termination.begun:
            self._leave_on_signal()
        elif self.operator.desired["phase"] == "Prepare":
            self._towards_barrier(self.operator.desired)
        elif self.operator.desired["phase"] == "Run":
            self._towards_running(self.operator.desired)
        elif self.operator.desired["phase"] == "Stop":
            self._towards_stopped(self.operator.desired)
        elif self.operator.desired["phase"] == "Complete":
            self._towards_complete()
        if self.termination.begun or self.operator.desired["phase"] != "Prepare":
            self.barrier.stand_down()
        if self.leave_with is None and not self.child:
            self._leave_if_abandoned()

    def _towards_barrier(self, desired: JSON) -> None:
        attempt = desired["attempt"]
        if self.child:
            if self.child.attempt < attempt:
                self._stop_child(RESTART_GRACE_SECONDS, "StoppedForRestart")
        elif attempt <= self.spent:
            if self.attempt < attempt:  # it was in an earlier life of this worker
                self.problem = f"attempt {attempt} has already run here"
        else:
            self.barrier.approach(desired)
            self.phase = READY if self.barrier.ready_for == attempt else PREPARING
            self.problem = self.barrier.problem

    def _towards_running(self, desired: JSON) -> None:
        attempt, start, ready_for = desired["attempt"], desired.get("start"), self.barrier.ready_for
        if start and self.start and self.attempt == attempt == start.get("attempt"):
            self.start = start  # nodes may have joined the attempt since it began
        if self.child or attempt <= self.spent or attempt != ready_for or desired.get("rank", -1) < 0 or not start:
            return
        if start.get("attempt") != attempt:
            self.problem = f"START is of attempt {start.get('attempt')}, not {attempt}"
            return
        self._take_start(desired)

    def _towards_stopped(self, desired: JSON) -> None:
        child = self.child
        if child is None:
            if self.barrier.ready_for:
                self.barrier.leave()
                self.phase = EXITED if self.exit else PREPARING
        elif child.attempt <= desired["attempt"] and not self.termination.drain_replaced(child, self.training):
            self._stop_child(self.operator.stop_grace(), "StoppedOnRequest")

    def _towards_complete(self) -> None:
        if self.child:
            self._stop_child(self.operator.stop_grace(), "StoppedOnRequest")
        elif self._looks_for_the_last_save():
            return
        else:
            # The run is over as a whole: a rank that only had to be stopped did not fail.
            stopped = self.exit is not None and self.exit["reason"] == "StoppedOnRequest"
            self.leave_with = 0 if stopped else self._child_code()

    def _looks_for_the_last_save(self) -> bool:
        """It is told of before this worker leaves: there may be nobody else to tell of it."""
        return bool(self.training and self.training.watching and time.monotonic() - self.ended < LAST_LOOK_SECONDS)

    def _leave_on_signal(self) -> None:
        child, training, termination = self.child, self.training, self.termination
        # Ray is told in any case: of a rank that it goes on without the operator asks for no save.
        if child and (termination.drain(child, training) or termination.may_train_on(child, training)):
            return
        self.barrier.leave()
        self.problem = TOLD_TO_LEAVE
        if self.child:
            stop = self.operator.desired["phase"] in ("Stop", "Complete")
            self._stop_child(termination.stop_grace(), "StoppedOnRequest" if stop else "WorkerTerminated")
        elif self._looks_for_the_last_save() and termination.seconds_left():
            return
        elif self.exit is not None and self.exit["reason"] != "WorkerTerminated" and self.phase == EXITED:
            self.leave_with = self._own_code()  # of an earlier attempt it would not be: this one was not run
        else:
            self.leave_with = 128 + signal.SIGTERM
        if self.exit is None or self.child:
            self.phase = STOPPING

    def _leave_if_abandoned(self) -> None:
        if self.operator.refusal:
            log_line(self.operator.refusal)
            self.leave_with = self._child_code() if self.exit else 125
        elif self.phase == EXITED and self._seconds_alone() > self.settings.orphan_seconds:
            log_line(f"no operator for {self.settings.orphan_seconds:g} s after the end")
            self.leave_with = self._own_code()

    def _seconds_alone(self) -> float:
        return time.monotonic() - max(self.operator.contact, self.ended)

    def _own_code(self) -> int:
        """What the pod says when nobody has told it how the run ended: 0 only of a program that came to its own end.

        One that was asked to stop mostly ends with 0, too, and its run is not over.
        """
        code = self._child_code()
        asked = self.exit is not None and self.exit["reason"] != "Completed"
        return 128 + signal.SIGTERM if code == 0 and asked else code

    def _child_code(self) -> int:
        if self.exit is None:
            return 0
        return 128 + self.exit["signal"] if self.exit["signal"] else int(self.exit["code"])

    # The child

    def _take_start(self, desired: JSON) -> None:
        """The attempt counts as run from here on, whether or not its program ever starts."""
        launch = Launch.from_desired(desired)
        self.attempt = self.spent = launch.attempt
        self.start, self.exit, self.problem, self.training = desired["start"], None, "", None
        self.termination.begin_attempt()
        self.phase = RUNNING
        self.start_at = time.monotonic() + start_delay(launch, desired)
        contract = contract_environment(self.settings, launch)
        try:
            make_scratch(self.settings, launch, contract)
            self.steps.begin(launch, desired["start"])
            self.inbox.watched = self.steps.news_descriptor
        except LaunchError as error:
            self.barrier.leave()
            self._fail_start(error)
            return
        self.barrier.leave()
        rules, spent = list(desired.get("watch") or ()), desired.get("retention")
        pattern = str(desired.get("progressPattern") or "")
        self.starting = functools.partial(self._start_child, launch, contract, rules, spent, pattern)

    def _start_in_turn(self, start: Callable[[], None]) -> None:
        """Start the program when its turn has come, unless it is not wanted any more."""
        desired = self.operator.desired
        wanted = desired["phase"] == "Run" and desired["attempt"] == self.attempt and not self.termination.begun
        if not wanted:
            self.starting = None
            reason = "WorkerTerminated" if self.termination.begun else "StoppedOnRequest"
            self._record_end(0, signal.SIGTERM, reason, b"", 0.0)
        elif time.monotonic() >= self.start_at:
            self.starting = None
            # START was taken, and that has been published: a program that starts would only hold up the words.
            self.link.send_first(ACKNOWLEDGED_WITHIN_SECONDS)
            start()

    def _start_child(
        self, launch: Launch, contract: JSON, rules: List[JSON], spent: Optional[JSON], pattern: str
    ) -> None:
        log_line(
            f"attempt={launch.attempt} rank={launch.rank} node={self.settings.node} "
            f"resume={launch.resume_step or 'none'} world={launch.world} "
            f"master={launch.master_address}:{launch.master_port} start"
        )
        # Not before START was acknowledged: all the others wait for that.
        remove_older(self.settings, launch.attempt)
        self.removal.begin(launch.attempt, spent)
        self.memory_kills = out_of_memory_kills()
        try:
            program = program_of(self.settings, launch, contract, self.steps)
            job = program.job
            self.training = Training(
                self.settings, launch, program.command, program.environment, rules, self.slow_work.begin,
                steps=self.steps.wanted, serves=program.serves, also=self.steps.listener(launch),
                outlets=job and job.outlets, catchers=program.catchers, pattern=pattern,
            )  # fmt: skip
        except LaunchError as error:
            self._fail_start(error)
            return
        self.child = self.training.child
        self.last_look, self.watch_after = True, time.monotonic() + self._watch_interval()

    def _fail_start(self, error: LaunchError) -> None:
        code, reason, words = error.args
        log_line(words)
        self._record_end(code, 0, reason, words.encode("utf-8", "replace"), 0.0)

    def _watch_interval(self) -> float:
        return max(WATCH_SECONDS, WATCH_BEATS * self.link.heartbeat)

    def _watch_commits(self) -> None:
        """Tell of the child's checkpoints as they are committed; once more after its end."""
        training = self.training
        if training is None or training.watching or not self.last_look:
            return
        if self.child and time.monotonic() < self.watch_after:
            return
        self.last_look, self.watch_after = self.child is not None, time.monotonic() + self._watch_interval()
        training.look_for_commits(over=not self.child)

    def _stop_child(self, grace: float, reason: str) -> None:
        assert self.child is not None
        self.phase = STOPPING
        self.steps.hear(self.child.kill_at is not None)  # what ended before nobody had asked for
        if self.child.kill_at is None:
            self.steps.begin_stop()
        if self.child.stop(grace, reason):
            log_line(f"attempt={self.child.attempt} stopping: {reason}")

    def _follow(self) -> None:
        child = self.child
        if child is None:
            return
        assert self.training is not None
        child.enforce()
        self.steps.follow(child.kill_at is not None)
        self.training.take_lines(self.steps.take_lines())
        self.training.observe()
        # Where each attempt saves in a directory of its own, that is the fence: silence never kills training.
        fence = float(self.operator.desired.get("fenceSeconds") or 0) if self.settings.fenced else 0.0
        if fence and time.monotonic() - max(self.operator.contact, self.training.advanced) > fence:
            self._stop_child(0.0, "Fenced")
            child.enforce()
        self.training.steer(self.operator.desired, self.operator.clock_ahead, self.termination.trains_until())

    def _child_ended(self, child: Child, status: int) -> None:
        training = self.training
        assert training is not None
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = 0 if number else os.WEXITSTATUS(status)
        self.child = None
        try:
            # As in any container: when its main process ends, everything in it ends.
            kill_others(spare=training.helpers)
            training.finish(-number or code)
        except Exception as error:  # that it ended is told, whatever cannot be learnt of how
            log_line(f"attempt={child.attempt} its last words are lost: {error!r}")
        reason = child.stop_reason
        if not reason and not number and not code and training.was_told_to_stop():
            reason = "WorkerTerminated" if self.termination.begun else "StoppedOnRequest"
        if not reason and self.steps.asks.requeued:  # by its own wish: however it ended, it is to run again
            reason = "StoppedOnRequest"
        if not reason and number == signal.SIGKILL and out_of_memory_kills() > self.memory_kills:
            reason = "OOMKilled"
        if not reason and (number or code):
            self.barrier.suspicious = True
        if child.stderr_tail and not child.stderr_tail.endswith(b"\n"):
            write_own(b"\n")
        reason = reason or ("Signal" if number else "Error" if code else "Completed")
        self.steps.hear(reason in ASKED)
        training.take_lines(self.steps.take_lines())
        self._record_end(code, number, reason, child.stderr_tail, time.monotonic() - child.started)

    def _record_end(self, code: int, number: int, reason: str, stderr_tail: bytes, seconds: float) -> None:
        self.inbox.watched = -1
        self.steps.finish(reason in ASKED)
        self.phase, self.ended = EXITED, time.monotonic()
        self.exit = {
            "code": None if number else code, "signal": number or None, "at": time.time(), "reason": reason,
            "stderrTail": stderr_tail.decode("utf-8", "replace"),
        }  # fmt: skip
        outcome = f"signal={number}" if number else f"code={code}"
        node = self.settings.node
        log_line(f"attempt={self.attempt} node={node} end {outcome} reason={reason} after={seconds:.1f}s")

    # What the operator hears

    def _publish(self) -> None:
        training = self.training
        report = {
            "phase": self.phase, "attempt": self.attempt, "start": self.start, "exit": self.exit,
            "problem": self.problem, **self.barrier.report(), **self.steps.report(),
            **(training.report() if training else NOTHING_TRAINS),
        }  # fmt: skip
        seen = list(training.unrecognised) if training else []
        left = as_written(self.barrier.unrecognised, seen, self.attempt)
        report["unrecognised"] = left if self.barrier.ready_for else seen
        if self.barrier.previous_saves:
            report["previousSaves"] = self.barrier.previous_saves
        if self.termination.begun:
            report["leavingBy"] = self.termination.leaving_by
        # On its way to the barrier nobody waits for news of it before it is there, and all of a gang are on their way.
        underway = self.operator.desired["phase"] == "Prepare" and self.phase in (STOPPING, PREPARING)
        quiet = underway and not self.problem and not self.termination.begun
        urgent = report != self._told and not quiet
        if urgent:
            self._told = report
        if training and training.fresh and not self.child and not quiet:
            urgent = True  # there may be no next heartbeat; who arrives at the barrier tells of all that it finds
        # What changes all the time is left for the next heartbeat.
        steady: JSON = {"progress": None, "newCheckpoints": []}
        if training:
            steady = {"progress": training.progress, "newCheckpoints": training.fresh[-NEWEST:]}
            if self.child:
                steady["timing"] = training.timing.report()
        self.link.publish(dict(report, **steady), urgent)
