"""What workers last said and what they are to do: the soft state of every run, rebuilt within a heartbeat."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from msgspec import structs

from lockstep.controller.runtime.clock import Clock
from lockstep.controller.workers.orders import Orders
from lockstep.controller.workers.protocol import Exit, Registration, Report, State, moment
from lockstep.controller.workers.trust import SenderClaim
from lockstep.core.model.plan import Directive
from lockstep.core.model.start_record import CollectiveStart
from lockstep.core.model.worker_report import (
    CheckpointReport,
    ExitReport,
    PartlyEndedStep,
    Sign,
    StepEnd,
    WorkerPhase,
    WorkerReport,
)
from lockstep.core.run.attendance import StartPace, is_release, is_where_wanted, slots_wanted

ROWS_PER_TIER = 32
TEXT_PER_TIER = 64 * 1024
"""Characters that the rows of one tier may have together, an owner counting as eight."""
POLL_GRACE = 2.0
"""Seconds an answered poll still counts as open: the worker reconnects within half a second. Without
it a gang of hundreds, each between two polls for an instant, would never be at the barrier at once."""
OFFSET_SECONDS = 60.0
_SAME_MOMENT = 5.0
"""Seconds that the time of one thing may differ by from report to report, as the clocks are compared anew."""


class UnregisteredError(Exception):
    """This worker has not registered since the operator began to listen: 409."""


class SupersededError(Exception):
    """A newer incarnation of the slot has spoken: 403."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The workers of a run in a few numbers."""

    workers: int
    highest_step: int | None
    lowest_step: int | None  # of the workers that reported one
    oldest_report_age: float  # seconds, of the workers whose child runs; 0 when there is none
    newest_step_at: float | None = None  # Unix seconds; when the newest of the steps was reported
    heard: Mapping[int, int] = field(default_factory=dict)  # by slot the incarnation


class _ClockOffset:
    """Seconds to add to a worker's wall clock to get ours.

    Every sample is too large by the time the report was under way, so the smallest of the last
    minute is the best one; older ones are dropped, as clocks drift and get set.
    """

    __slots__ = ("_best", "_since")

    def __init__(self) -> None:
        self._best = float("inf")
        self._since = 0.0

    def update(self, wall: float, received_at: float) -> float:
        sample = received_at - wall
        if sample < self._best or received_at - self._since > OFFSET_SECONDS:
            self._best, self._since = sample, received_at
        return self._best


@dataclass(slots=True)
class _Worker:
    report: WorkerReport
    mono: float = 0.0
    offset: _ClockOffset = field(default_factory=_ClockOffset)
    exit_as_sent: tuple[int, Exit] | None = None  # with its attempt
    ends_as_sent: dict[tuple[object, ...], StepEnd] = field(default_factory=dict)  # by attempt, name and worker's time
    open_polls: int = 0
    poll_lapses_at: float | None = None  # an answered poll counts until then


@dataclass(slots=True)
class _Run:
    workers: dict[int, _Worker] = field(default_factory=dict)
    orders: Orders | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    awaited: set[int] = field(default_factory=set)  # slots that are not yet what a decision waits for
    pace: StartPace = field(default_factory=StartPace)
    ended: dict[str, int] = field(default_factory=dict)  # by the pod of a past incarnation, the attempt it ran last

    def wake_pollers(self) -> None:
        self.news.set()
        self.news = asyncio.Event()

    def await_gang(self) -> None:
        """Begin to wait for whoever is not yet where the directive wants all: at its barrier, or past its START."""
        self.awaited = set(slots_wanted(self.orders.directive)) if self.orders else set()
        for worker in self.workers.values():
            self.take_arrival(worker.report)

    def take_arrival(self, report: WorkerReport) -> bool:
        """True: this is the last report that was waited for, a decision need wait for no other."""
        if report.slot not in self.awaited or self.orders is None or not is_where_wanted(report, self.orders.directive):
            return False
        self.awaited.remove(report.slot)
        if not self.awaited:
            self.pace = self.pace.heard_by_all(report.received_at)
        return not self.awaited


class ReportBook:
    """By run and slot the latest report of the highest incarnation, and by run the orders.

    ``changed`` is called with the run's UID when a report says something that a decision may depend
    on; a plain heartbeat is no such thing. ``completed`` is called instead when nobody else is waited for:
    the last one arrived at the barrier, or the last one has read its share. Everything here happens on the
    event loop's thread.
    """

    def __init__(
        self, clock: Clock, changed: Callable[[str], None], completed: Callable[[str], None] | None = None
    ) -> None:
        self._clock = clock
        self._changed = changed
        self._completed = completed or changed
        self._runs: dict[str, _Run] = {}
        self._workers = 0  # of all runs: asked for with every answer

    # For those who decide.

    def reports(self, run_uid: str) -> Mapping[int, WorkerReport]:
        """The latest report of every slot heard of. The mapping is the caller's own."""
        run = self._runs.get(run_uid)
        if run is None:
            return {}
        now = self._clock.now()
        for worker in run.workers.values():
            if worker.poll_lapses_at is not None and now >= worker.poll_lapses_at:
                _set_polling(worker, False)
        return {slot: worker.report for slot, worker in run.workers.items()}

    def ended(self, run_uid: str) -> Mapping[str, int]:
        """By the UIDs of pods of past incarnations the attempts whose programs have ended there."""
        run = self._runs.get(run_uid)
        return run.ended if run else {}

    def set_directive(self, run_uid: str, directive: Directive) -> None:
        """The directive of every worker of the run from now on. Those that poll get it at once."""
        run = self._runs.setdefault(run_uid, _Run())
        if run.orders is not None and run.orders.directive == directive:
            return
        before, now = run.orders, self._clock.now()
        last = before.directive if before else None
        start_at = before.start_at if before else 0.0
        if is_release(last, directive):
            start_at = now + run.pace.held_back
        run.pace = run.pace.directed(directive, last, now)
        run.orders = Orders(directive, before.revision + 1 if before else 1, start_at)
        run.await_gang()
        run.wake_pollers()

    def forget(self, run_uid: str) -> None:
        """The run is gone; its pollers are answered."""
        run = self._runs.pop(run_uid, None)
        if run is not None:
            self._workers -= len(run.workers)
            run.wake_pollers()

    def retain(self, run_uids: Iterable[str]) -> None:
        """Forget every other run."""
        for gone in self._runs.keys() - set(run_uids):
            self.forget(gone)

    def worker_count(self) -> int:
        """Workers heard of, of all runs."""
        return self._workers

    def summary(self, run_uid: str) -> RunSummary:
        """What the metrics say of a run's workers."""
        run = self._runs.get(run_uid)
        reports = [worker.report for worker in run.workers.values()] if run else []
        progress = [r.progress for r in reports if r.progress is not None]
        steps = [each.step for each in progress]
        heard = [r.received_at for r in reports if r.phase is WorkerPhase.RUNNING]
        return RunSummary(
            workers=len(reports),
            highest_step=max(steps, default=None),
            lowest_step=min(steps, default=None),
            oldest_report_age=max(0.0, self._clock.now() - min(heard)) if heard else 0.0,
            newest_step_at=max((each.at for each in progress), default=None),
            heard={report.slot: report.incarnation for report in reports},
        )

    # For those who listen.

    def register(self, claim: SenderClaim, node: str, body: Registration) -> None:
        """Take in a worker and its inventory. ``node`` is that of its pod. Raises SupersededError."""
        run = self._runs.setdefault(claim.run_uid, _Run())
        before = run.workers.get(claim.slot)
        if before is not None and before.report.incarnation > claim.incarnation:
            raise SupersededError(f"incarnation {before.report.incarnation} of slot {claim.slot} has registered")
        if before is not None and before.report.pod_uid == claim.pod_uid:
            worker, known = before, before.report
        else:
            now, state = self._clock.now(), body.report
            known = WorkerReport(
                slot=claim.slot,
                incarnation=claim.incarnation,
                pod_uid=claim.pod_uid,
                node=node,
                phase=state.phase,
                received_at=now,
                since=now,
                attempt=state.attempt,
                ready_for=state.ready_for,
                registered_at=now,
            )
            self._workers += before is None
            worker = run.workers[claim.slot] = _Worker(known)
        last = before.report if before is not None else None
        worker.report = replace(
            known,
            address=body.address,
            problem=body.problem,
            inventory=_newest(body.inventory),
        )
        self._apply(claim.run_uid, worker, body.report)
        if run.take_arrival(worker.report):
            self._completed(claim.run_uid)
        elif last is None or _says_more(last, worker.report):
            self._changed(claim.run_uid)

    def report(self, claim: SenderClaim, body: Report) -> None:
        """Take in a report. Raises UnregisteredError or SupersededError."""
        worker = self._worker(claim)
        if body.mono < worker.mono:
            return  # overtaken on another connection by a newer one
        before = worker.report
        self._apply(claim.run_uid, worker, body)
        if self._runs[claim.run_uid].take_arrival(worker.report):
            self._completed(claim.run_uid)
        elif _says_more(before, worker.report):
            self._changed(claim.run_uid)

    def take_end(self, claim: SenderClaim, said: State, is_there: Callable[[str], bool]) -> None:
        """Take in of a past incarnation that its program has ended, and nothing else. ``is_there``: the pod of a UID,
        which is forgotten with it."""
        run = self._runs.setdefault(claim.run_uid, _Run())
        if said.phase is WorkerPhase.EXITED and said.attempt > run.ended.get(claim.pod_uid, 0):
            still = {uid: attempt for uid, attempt in run.ended.items() if is_there(uid)}
            run.ended = {**still, claim.pod_uid: said.attempt}
            self._changed(claim.run_uid)

    def orders(self, run_uid: str) -> Orders | None:
        """What the workers of the run are to do, if that is known yet."""
        run = self._runs.get(run_uid)
        return run.orders if run else None

    @contextmanager
    def poll(self, claim: SenderClaim) -> Iterator[None]:
        """Hold a worker's poll open. One that breaks off is closed at once, an answered one after a grace."""
        worker = self._worker(claim)
        worker.open_polls += 1
        worker.poll_lapses_at = None
        if not worker.report.polling:
            _set_polling(worker, True)
            if worker.report.phase is WorkerPhase.READY:
                self._changed(claim.run_uid)
        try:
            yield
        except BaseException:
            worker.open_polls -= 1
            if not worker.open_polls:
                _set_polling(worker, False)
            raise
        worker.open_polls -= 1
        if not worker.open_polls:
            worker.poll_lapses_at = self._clock.now() + POLL_GRACE

    async def news(self, run_uid: str, seen: int, seconds: float) -> None:
        """Return when the run's orders have another revision than ``seen``, or after ``seconds``."""
        run = self._runs.get(run_uid)
        if run is None:
            await self._clock.sleep(seconds)
        elif (run.orders.revision if run.orders else 0) == seen:
            await self._clock.wait(run.news, seconds)

    def _worker(self, claim: SenderClaim) -> _Worker:
        run = self._runs.get(claim.run_uid)
        worker = run.workers.get(claim.slot) if run else None
        if worker is not None and worker.report.incarnation > claim.incarnation:
            known = worker.report.incarnation
            raise SupersededError(f"incarnation {known} of slot {claim.slot} has registered")
        if worker is None or worker.report.pod_uid != claim.pod_uid:
            raise UnregisteredError
        return worker

    def _start(self, run_uid: str, state: State) -> CollectiveStart | None:
        """The START that a worker runs with. All ranks have the same one: it is kept once, not once a rank."""
        orders = self._runs[run_uid].orders
        given = orders.directive.start if orders is not None else None
        return given if state.start == given else state.start

    def _apply(self, run_uid: str, worker: _Worker, state: State) -> None:
        now = self._clock.now()
        offset = worker.offset.update(state.wall, now)
        worker.mono = state.mono
        report = worker.report
        stands = (state.phase, state.attempt, state.ready_for)
        worker.report = replace(
            report,
            phase=state.phase,
            received_at=now,
            since=report.since if stands == (report.phase, report.attempt, report.ready_for) else now,
            port=state.port,
            steps_port=_steps_port(report, state),
            dashboard_port=state.dashboard_port,
            attempt=state.attempt,
            ready_for=state.ready_for,
            looked_again=state.looked_again,
            start=self._start(run_uid, state),
            exit=_exit(worker, state, offset),
            progress=state.progress.report(offset) if state.progress else None,
            inventory=_merged(report.inventory, state.new_checkpoints),
            unrecognised=state.unrecognised,
            previous_saves=state.previous_saves,
            verified=state.verified,
            problem=report.problem if state.problem is None else state.problem,
            leaving_by=moment(state.leaving_by, offset) if state.leaving_by else 0.0,
            saved=state.saved,
            timing=state.timing,
            signs=_signs(report.signs, state, offset),
            step_ends=_step_ends(worker, state, offset),
            partly_ended=_partly_ended(report, state, offset),
            stacks=state.stacks,
            pointed=state.pointed,
            warmed=state.warmed,
            asks=state.asks,
            listens=state.listens,
            clock_skew=-offset,
        )


def _signs(known: tuple[Sign, ...], state: State, offset: float) -> tuple[Sign, ...]:
    """A sign repeated in the next report is the same sign, at the same moment, whatever clocks do since."""
    told = [structs.replace(sign, at=moment(sign.at, offset)) for sign in state.signs]
    before = {(sign.kind, sign.step, sign.text): sign for sign in known}
    return tuple(before.get((sign.kind, sign.step, sign.text), sign) for sign in told)


def _steps_port(known: WorkerReport, state: State) -> int:
    """Said once it holds for the attempt: ranks that end one after the other are not to have the whole gang told
    others each time."""
    at_barrier = state.phase in (WorkerPhase.PREPARING, WorkerPhase.READY)
    return state.steps_port or (0 if at_barrier else known.steps_port)


def _step_ends(worker: _Worker, state: State, offset: float) -> tuple[StepEnd, ...]:
    """As with signs: what is repeated has happened when it was first told. Many of an attempt may be called alike, as
    each `mpirun` is step MPI, and those in the middle are told no more: the worker's own time tells them apart."""
    known, told = worker.ends_as_sent, {}
    for end in state.step_ends:
        key = (state.attempt, *_named(end), end.at)
        told[key] = known[key] if key in known else structs.replace(end, at=moment(end.at, offset))
    worker.ends_as_sent = told
    return tuple(told.values())


def _partly_ended(known: WorkerReport, state: State, offset: float) -> tuple[PartlyEndedStep, ...]:
    """What is told again has happened when it was first told."""
    known_at = {(each.step, each.task): each for each in known.partly_ended} if known.attempt == state.attempt else {}
    told = []
    for each in state.partly_ended:
        at = moment(each.at, offset) if each.done else 0.0
        since = moment(each.since, offset) if each.since else 0.0
        before = known_at.get((each.step, each.task))
        if before is not None and before.done and abs(before.at - at) < _SAME_MOMENT:
            at = before.at
        if before is not None and abs(before.since - since) < _SAME_MOMENT:
            since = before.since
        told.append(structs.replace(each, at=at, since=since))
    return tuple(told)


def _named(end: StepEnd) -> tuple[object, ...]:
    return end.step, end.task, end.program, end.code, end.signal, end.asked


def _set_polling(worker: _Worker, polling: bool) -> None:
    worker.report = replace(worker.report, polling=polling)
    worker.poll_lapses_at = None


def _exit(worker: _Worker, state: State, offset: float) -> ExitReport | None:
    """An exit repeated in the next report is the same exit, at the same moment, whatever clocks do since."""
    if state.exit is None:
        worker.exit_as_sent = None
        return None
    if worker.exit_as_sent == (state.attempt, state.exit) and worker.report.exit is not None:
        return worker.report.exit
    worker.exit_as_sent = (state.attempt, state.exit)
    return state.exit.report(offset)


def _merged(known: tuple[CheckpointReport, ...], seen: Sequence[CheckpointReport]) -> tuple[CheckpointReport, ...]:
    if not seen:
        return known
    rows = {(row.tier, row.path): row for row in known}
    rows.update(((row.tier, row.path), row) for row in seen)
    return _newest(rows.values())


def _newest(rows: Iterable[CheckpointReport]) -> tuple[CheckpointReport, ...]:
    """The highest steps of each tier: what one sender may occupy in memory."""
    kept: list[CheckpointReport] = []
    room: dict[str, tuple[int, int]] = {}  # rows and characters left, by tier
    for row in sorted(rows, key=lambda row: (row.step, row.attempt), reverse=True):
        left, text = room.get(row.tier, (ROWS_PER_TIER, TEXT_PER_TIER))
        text -= len(row.path) + len(row.reason) + 8 * len(row.owners)
        # An older one must not come into the place of a newer one that is too large: that would look like its loss.
        room[row.tier] = (left - 1, text) if left > 0 and text >= 0 else (0, 0)
        if left > 0 and text >= 0:
            kept.append(row)
    return tuple(kept)


def _says_more(before: WorkerReport, after: WorkerReport) -> bool:
    """A decision may depend on what is new in ``after``: not so a later step or a later heartbeat."""
    return _facts(before) != _facts(after) or (before.progress is None and after.progress is not None)


def _facts(report: WorkerReport) -> tuple[object, ...]:
    return (
        report.pod_uid,
        report.incarnation,
        report.phase,
        report.attempt,
        report.ready_for,
        report.looked_again,
        report.exit,
        report.problem,
        report.verified,
        report.inventory,
        report.unrecognised,
        report.previous_saves,
        report.start,
        report.address,
        report.port,
        report.steps_port,
        report.dashboard_port,
        report.step_ends,
        report.partly_ended,
        bool(report.leaving_by),
        report.saved,
        report.signs,
        report.stacks,
        report.pointed,
        report.warmed,
        report.asks,
        report.listens,
    )
