"""Answers test-only runs (``--test-only``): when they would start, were they submitted now."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter

from lockstep.api.base.changes import changed
from lockstep.api.run_status import QueueStatus, TrialStatus
from lockstep.core.admission.cache.entry import Entry, PendingReason
from lockstep.core.admission.cache.pending_reasons import (
    ASSUMPTION,
    LONGEST_MESSAGE,
    NODES_TO_BE_MADE,
    UNKNOWN_ASSUMPTION,
    reason_of,
)
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.cycle_result import Wait
from lockstep.core.admission.engine.jobs import NO_LIMIT, Job
from lockstep.core.admission.engine.what_if import Standing, WhatIfResult, what_if
from lockstep.core.admission.engine_adapter import free_nodes, granted_at_most, job_of, running_jobs
from lockstep.core.admission.pending_status import own_wait
from lockstep.core.admission.queueing.dependencies import Namespaces, judge
from lockstep.core.admission.queueing.holds import hold_of, queue_spec
from lockstep.core.admission.queueing.order import Order, order_key, share_key
from lockstep.core.admission.reservations import Reservations
from lockstep.core.admission.scale_up import may_be_made
from lockstep.core.admission.scheduling import CycleSchedule, StillPending
from lockstep.core.model.limits import can_be_asked, notice_of
from lockstep.core.model.plural import plural
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.test_only import is_test_only
from lockstep.core.pods.gang import own_grace

_NODES_TOLD = 64
_ANSWERS_PER_CYCLE = 8
_WORK = 20_000
"""Most that one cycle does for them, and all cycles of one second: to pass a pending run is one, a tenth of a second
takes all of it. They count for no limit and no quota, and may ask as often as they like."""
_RESERVATION = 5  # and this is to reserve nodes for one

Shortage = Callable[[Entry, Job, Wait], tuple[str, WaitReason | None]]


def answer_test_only(
    schedule: CycleSchedule, left: StillPending, reservations: Reservations, shortage: Shortage, cycle: CycleState
) -> Sequence[Entry]:
    """Answer those who only ask when they would start, once it is known who starts before them."""
    rows = _in_turn(cycle)
    if not rows:
        return ()
    if left.is_cut:
        cycle.wake(cycle.now)
        return ()
    since, until = cycle.memory.answering
    if since <= cycle.now < until:
        cycle.wake(until)
        return ()
    work = 1 + len(left.rows) + _RESERVATION * min(len(left.rows), schedule.policy.depth)
    asked = [Entry(row.run, row.run.status) for row in rows[: max(1, min(_ANSWERS_PER_CYCLE, _WORK // work))]]
    cycle.memory.answering = cycle.now, cycle.now + len(asked) * work / _WORK
    if len(asked) < len(rows):
        cycle.wake(cycle.memory.answering[1])
    claims = (*cycle.windows, *reservations.claims())
    running, free = running_jobs(cycle), free_nodes(cycle)
    standing = Standing(cycle.now, running, free, claims, cycle.quotas, schedule.policy, schedule.foreseen)
    answers = TestOnlyAnswers(cycle, [(row.entry, row.wanted) for row in left.rows], standing)
    for entry in asked:
        answers.answer(entry, shortage)
    return asked


def _in_turn(cycle: CycleState) -> Sequence[RunRow]:
    """Those to be answered: of each namespace one after the other, the one first that was answered longest ago."""
    rows = cycle.decided_rows(cycle.run_index.asked)
    if len(rows) <= 1:
        return rows
    last: dict[str, float] = {}
    for row in cycle.run_index.test_only.values():
        namespace = row.run.namespace
        last[namespace] = max(last.get(namespace, 0.0), _answered_at(row))
    turns = Counter[str]()
    in_turn = []
    for row in sorted(rows, key=lambda row: (_answered_at(row), row.place)):
        in_turn.append((turns[row.run.namespace], last[row.run.namespace], row.place, row))
        turns[row.run.namespace] += 1
    return [row for *_, row in sorted(in_turn, key=itemgetter(0, 1, 2))]


def _answered_at(row: RunRow) -> float:
    answer = row.run.status.test_only
    return answer.at if answer is not None else 0.0


class TestOnlyAnswers:
    """Answers at the end of one cycle, when everybody else has been decided on."""

    def __init__(self, cycle: CycleState, left: Sequence[tuple[Entry, Job]], standing: Standing) -> None:
        """``left``: the pending runs, in order."""
        self._cycle = cycle
        self._snapshot = cycle.snapshot
        self._left = left
        self._standing = standing
        settings = cycle.tunables.admission
        self._order = Order(settings, self._snapshot.priority_classes, len(self._snapshot.nodes), cycle.now)
        self._family = Namespaces(run for run in self._snapshot.runs if not is_test_only(run))

    def answer(self, entry: Entry, shortage: Shortage) -> None:
        """Write into the status of ``entry`` when it would start, or why never."""
        share = self._snapshot.fair_shares.get(share_key(entry.run), 1.0)
        entry.points = self._order.points(entry.run, share)
        begin = 0.0
        reason = self._hold(entry) or self._dependency(entry) or self._pending_limit(entry)
        nodes: tuple[str, ...] = ()
        if reason is not None and reason.start is not None:
            begin = reason.start
        if reason is None or begin:
            job = replace(job_of(self._cycle.run_index.rows[entry.run.uid], self._cycle), not_before=begin, group=None)
            found = self._what_if(entry, job)
            reason = self._in_words(entry, job, found, shortage, reason)
            if found.start is not None and found.known:
                nodes = tuple(self._cycle.index.names(found.nodes)[:_NODES_TOLD])
        self._report_answer(entry, reason, nodes)

    def _what_if(self, entry: Entry, job: Job) -> WhatIfResult:
        key = order_key(entry.run, entry.points)
        before = [other for left, other in self._left if order_key(left.run, left.points) < key]
        after = [other for left, other in self._left if order_key(left.run, left.points) >= key]
        return what_if(self._standing, before, job, after)

    def _in_words(
        self, entry: Entry, job: Job, found: WhatIfResult, shortage: Shortage, held: PendingReason | None
    ) -> PendingReason:
        if found.wait is None:
            return PendingReason("", "its nodes are free", start=found.start, assumption=ASSUMPTION)
        lacking, beyond = shortage(entry, job, found.wait)
        visible = self._cycle.names_for(entry)
        reason = held or reason_of(entry, job, own_wait(found.wait, beyond), lacking, visible, self._standing.claims)
        if beyond is not None:
            reason.word = beyond
        reason.start = found.start if found.known else None
        reason.assumption = "" if found.start is None else ASSUMPTION if found.known else UNKNOWN_ASSUMPTION
        row = self._cycle.run_index.rows[entry.run.uid]
        if found.start is None and beyond == WaitReason.PLACEMENT and may_be_made(row, found.wait, self._cycle):
            reason.assumption = NODES_TO_BE_MADE
        return reason

    def _hold(self, entry: Entry) -> PendingReason | None:
        now = self._cycle.now
        hold = hold_of(entry.run, self._snapshot, self._cycle.tunables, now, has_live_pods=False)
        return None if hold is None else PendingReason(hold.reason, hold.message, start=hold.until)

    def _dependency(self, entry: Entry) -> PendingReason | None:
        verdict = judge(entry.run, self._family)
        if verdict.message:
            never = bool(verdict.failed) or verdict.circle
            return PendingReason(
                WaitReason.DEPENDENCY_NEVER_SATISFIED if never else WaitReason.DEPENDENCY, verdict.message
            )
        ahead = self._family.ahead_of(entry.run)
        return (
            None
            if ahead is None
            else PendingReason(WaitReason.SINGLETON, f"{ahead.name} comes first: it has the same singleton")
        )

    def _pending_limit(self, entry: Entry) -> PendingReason | None:
        most = queue_spec(self._snapshot, entry.spec.queue).limits.max_pending_runs
        waiting = sum(1 for left, _ in self._left if left.spec.queue == entry.spec.queue)
        if most is None or waiting < most:
            return None
        words = f"queue {entry.spec.queue} lets at most {plural(most, 'run')} wait"
        return PendingReason(WaitReason.PENDING_RUNS_LIMIT, words)

    def _report_answer(self, entry: Entry, reason: PendingReason, nodes: tuple[str, ...]) -> None:
        now, cycle = float(int(self._cycle.now)), self._cycle
        longest = granted_at_most(entry.spec, queue_spec(cycle.snapshot, entry.spec.queue))
        limit = int(longest) if longest < NO_LIMIT else None
        notice = notice_of(entry.spec, limit or 0, cycle.tunables.gang.termination_grace, own_grace(entry.spec))
        answer = TrialStatus(
            at=now,
            observed_generation=entry.run.generation,
            start=None if reason.start is None else float(int(reason.start)),
            nodes=nodes,
            reason=reason.word,
            message=reason.message[:LONGEST_MESSAGE],
            assumption=reason.assumption,
            priority=entry.points.total,
            time_limit=limit,
            save_after=None if limit is None or not can_be_asked(entry.spec) else limit - notice.save,
            end_after=None if limit is None else limit - notice.end,
        )
        words = "only asks when it would start; status.testOnly has the answer"
        queue = QueueStatus(reason=WaitReason.TEST_ONLY, message=words, updated=now)
        entry.status = changed(entry.status, test_only=answer, queue=queue)
