"""Queue status of pending runs: reason, position, estimate, and when each of them is written.

In most cycles most of them wait for what they waited for before, at the same position: that is seen in passing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import attrgetter, is_not, itemgetter

from lockstep.api.base.changes import changed
from lockstep.api.run_status import QueueStatus
from lockstep.core.admission.cache.entry import Entry, PendingReason
from lockstep.core.admission.cache.equivalence import EquivalenceClass
from lockstep.core.admission.cache.maintenance_windows import nodes_of, overrun
from lockstep.core.admission.cache.pending_reasons import ASSUMPTION, names_of, preempts_later, queue_status, reason_of
from lockstep.core.admission.cache.reported_reasons import ClassReason, ReportedReasons
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.cache.status_throttle import COUNTED, DueUpdate, chosen, contradicts, due_update, is_due
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.cycle_result import Foreseen, Wait
from lockstep.core.admission.engine.jobs import Job, NodeClaim, Option
from lockstep.core.admission.engine_adapter import left_no_type, wanted_of
from lockstep.core.admission.queueing.order import waits_since
from lockstep.core.admission.reservations import Reservations
from lockstep.core.model.admission_record import record_first_estimate, record_wait
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.snapshot import SHED
from lockstep.core.placement.node_pool import CandidateNodes
from lockstep.core.placement.placement import shortage

_MADE_OF = attrgetter("made_of")
_OF_NODES = (WaitReason.RESOURCES, WaitReason.WINDOW)
_BEYOND_ANY_END = (WaitReason.PLACEMENT, WaitReason.DEVICES_NOT_OFFERED)
Lack = tuple[str, WaitReason | None]
_NOT_ITS_TURN = (
    WaitReason.BEGIN_TIME,
    WaitReason.NODES_REFUSE_PODS,
    WaitReason.DEPENDENCY,
    WaitReason.DEPENDENCY_NEVER_SATISFIED,
    WaitReason.HELD_BY_ADMINISTRATOR,
    WaitReason.PAUSED,
    WaitReason.SINGLETON,
)
"""Runs pending for these do not age in the queue."""


@dataclass(frozen=True, slots=True)
class Known:
    """What reasons tell of beside the wait itself: preemption now or later, and maintenance."""

    reservations: Reservations
    foreseen: Mapping[str, Foreseen]
    claims: Sequence[NodeClaim]

    @property
    def any_promises(self) -> bool:
        """There may be a reason that holds for one run alone."""
        return bool(self.foreseen or self.reservations.nodes)

    def promises(self, uid: str) -> bool:
        """There is a reason that holds for this run alone."""
        return uid in self.foreseen or self.reservations.keeps_for(uid)


class PendingStatus:
    """Pending reasons of one cycle. ``wake_at``: when the next of them is to be written."""

    def __init__(self, cycle: CycleState) -> None:
        self._cycle = cycle
        self._rules = cycle.memory.rules
        self._settings = cycle.tunables.admission
        self._due: list[tuple[DueUpdate, tuple[float, str], Entry]] = []
        self._shortages: dict[object, Lack] = {}
        self._before, cycle.memory.reported = cycle.memory.reported, ReportedReasons()
        self._reported = ReportedReasons()
        self._same: dict[int, Wait] = {}
        self._too_large: dict[int, bool] = {}
        self.wake_at: float | None = None

    def find(
        self,
        waiting: Sequence[RunRow],
        groups: Sequence[EquivalenceClass],
        waits: Sequence[Wait],
        estimates: Mapping[str, float],
        known: Known,
    ) -> None:
        """Why each of ``waiting`` waits, and at which position of its queue; its group and wait in the same order."""
        moved = self._cycle.memory.pending_queue.moved
        positions, left = self._reported.set_order(waiting, moved, self._before), self._reported.waiting
        rows, now = self._cycle.run_index.rows, self._cycle.now
        estimated = {rows[uid]: start for uid, start in estimates.items() if rows.get(uid) in left}
        reasons = self._reasons(waiting, groups, waits, known)
        is_new = map(is_not, map(_MADE_OF, waiting), reasons)
        look_at: dict[RunRow, PendingReason] = dict(compress(zip(waiting, reasons, strict=True), is_new))
        for row in (*positions, *estimated, *self._before.estimated):
            if row in left and row.made_of is not None:
                look_at.setdefault(row, row.made_of)
        for row, reason in look_at.items():
            if row.unjudged:
                continue  # it goes on in a moment, or is told why not
            position = positions.get(row, row.position)
            start = estimated.get(row) if reason.start is None and reason.word not in _BEYOND_ANY_END else None
            before, then = row.reported, reason.start if start is None else start
            if before is not None and row.made_of is reason and row.position == position and before.start == then:
                continue  # as in the cycle before; when that is to be reported is known
            row.made_of = reason
            if start is not None:
                reason = replace(reason, start=start, assumption=ASSUMPTION)
            self._report(row, reason, position)
        self._reported.estimated = [*estimated]
        self._cycle.memory.reported = self._reported
        to_report = [row for row in self._cycle.run_index.to_report.values() if row in left and row.due is not None]
        told = {row.queue for row in to_report if row.due is not None and is_due(row.due, row.entry, now)}
        for row in to_report:
            assert row.due is not None
            assert row.reported is not None
            together = row.queue in told and contradicts(row.entry, row.reported, row.position, now)
            if together or is_due(row.due, row.entry, now):
                row.entry.reason, row.entry.position = row.reported, row.position
                self._due.append((row.due, row.place, row.entry))
            else:
                self._wake(row.due.at)

    def hold(self, row: RunRow, reason: PendingReason) -> None:
        """A run is held back for ``reason``, or lacks nodes that it had."""
        entry, rules = row.entry, self._rules.for_queue(row.queue)
        if row.rules is not rules:
            row.rules = rules
            row.forget_reasons()
        row.made_of = None
        self._report(row, reason, 0)
        if row.due is not None and is_due(row.due, entry, self._cycle.now):
            self._due.append((row.due, row.place, entry))
        elif row.due is not None:
            self._wake(row.due.at)

    def write(self) -> None:
        """Write the status of pending runs that are due for an update: new reasons first, then who has not heard for
        longest, and no more of them than ``chosen`` has it."""
        now, run_index = self._cycle.now, self._cycle.run_index
        lately = (run_index.reported_at[float(at)] for at in range(int(now - COUNTED) + 1, int(now) + 1))
        due = [(due, entry) for due, _, entry in sorted(self._due, key=itemgetter(0, 1))]
        overloaded = self._cycle.snapshot.leadership.lag.allowance > 0
        told_now = chosen(due, sum(lately), self._settings, overloaded=overloaded)
        if len(told_now) < len(due):
            self._wake(now + (SHED if overloaded else 1.0))
        for entry in told_now:
            assert entry.reason is not None
            write_queue_status(entry, queue_status(entry, self._named(entry, entry.reason), now), now)

    def shortage(self, entry: Entry, job: Job, wait: Wait) -> Lack:
        """In words what nodes lack, and the reason where nobody's end would help: the quotas are too small, an idle and
        healthy cluster would lack them too, or does as long as nodes don't offer devices that they have."""
        if wait.kind == WaitReason.QUOTA:
            return "", None if self._could_be_in_quota(entry, job) else WaitReason.QUOTA_TOO_SMALL
        if wait.kind != WaitReason.RESOURCES and not (
            wait.kind == WaitReason.PRIORITY and self._is_too_large(job.options)
        ):
            return "", None
        group = self._cycle.run_index.rows[entry.run.uid].group
        assert group is not None
        if not job.options and (why := left_no_type(entry, group, self._cycle)):
            return why, WaitReason.PLACEMENT
        key = (group.wish, group.rules.node_choice) if group.shared else None
        known = self._shortages.get(key) if key is not None else None
        if known is None:
            requirement = self._cycle.requirements(entry, group)[-1]
            candidates = CandidateNodes.for_requirement(
                self._cycle.index, requirement, wanted_of(entry, group, self._cycle)
            )
            cluster = self._cycle.cluster
            count = min((option.count for option in job.options), default=entry.spec.nodes)
            reason = _beyond_any_end(candidates, {entry.spec.nodes, count})
            closed = nodes_of(overrun(self._cycle.windows, self._cycle.now, self._cycle.now))
            known = shortage(candidates, entry.spec.nodes, 0, cluster.booked, cluster.ending, closed), reason
            if key is not None:
                self._shortages[key] = known
        return known

    def _reasons(
        self, waiting: Sequence[RunRow], alike: Sequence[EquivalenceClass], waits: Sequence[Wait], known: Known
    ) -> Sequence[PendingReason]:
        """That of each of ``waiting``: everybody in a group who hears the same wait hears it in one object."""
        own: set[object] = {row for row in waiting if known.promises(row.uid)} if known.any_promises else set()
        groups: list[object] = [*alike]
        for at, row in enumerate(waiting) if own else ():
            if row in own:
                groups[at] = row  # like nobody else
        places = dict(zip(groups, range(len(groups)), strict=True))  # of the last of each
        last, found = dict[object, Wait](), dict[object, PendingReason]()
        same, before, reported = self._same, self._before.last_reasons, self._reported.last_reasons
        for group, at in places.items():
            wait = last[group] = waits[at]
            words = before.get(group)
            if words is None or words.wait is not same.get(id(wait)) or not self._lasts(words, waiting[at]):
                row = waiting[at]
                if row in own:
                    found[group] = self._reason(row.entry, row.wanted, wait, known)
                    continue
                words = self._class_reason(row, wait, known)
            reported[group] = words  # of nearly all those of the cycle before
            found[group] = words.reason
        reasons = [*map(found.__getitem__, groups)]
        # Those before somebody for whom something was booked may have heard something else than the last of the group.
        others = map(is_not, map(last.__getitem__, groups), waits)
        for at in [*compress(range(len(groups)), others)]:
            reasons[at] = self._class_reason(waiting[at], waits[at], known).reason
        return reasons

    def _class_reason(self, row: RunRow, wait: Wait, known: Known) -> ClassReason:
        """Those for everybody in its group; the same reason for as long as there is nothing else to say."""
        group = row.group
        assert group is not None
        wait = self._same_as_before(wait)
        key = group, id(wait)
        if (heard := self._reported.reasons.get(key)) is not None:
            return heard
        before = self._before.reasons.get(key) or self._before.last_reasons.get(group)
        if before is not None and before.wait is not wait:
            before = None
        if before is not None and self._lasts(before, row):
            self._reported.reasons[key] = before
            return before
        lacks = self.shortage(row.entry, row.wanted, wait)
        # Words tell of the options how many nodes they take: of those who share them, always what the spec says.
        options = None if group.shared else group.options
        # The words of a window tell when it begins.
        if (
            before is not None
            and wait.kind != WaitReason.WINDOW
            and before.options is options
            and before.lacks == lacks
        ):
            reason = before.reason
        else:
            reason = self._reason(row.entry, row.wanted, wait, known)
            if before is not None and before.reason == reason:
                reason = before.reason
        lasting = group.shared and wait.kind not in _OF_NODES and not lacks[1]
        words = self._reported.reasons[key] = ClassReason(wait, options, lacks, reason, lasting)
        return words

    def _lasts(self, words: ClassReason, row: RunRow) -> bool:
        """They follow from the wait alone. But that a run waits for its turn is reported only if it can ever start."""
        return words.lasting and (words.wait.kind != WaitReason.PRIORITY or not self._is_too_large(row.terms.options))

    def _reason(self, entry: Entry, job: Job, wait: Wait, known: Known) -> PendingReason:
        lacking, beyond = self.shortage(entry, job, wait)
        visible = self._cycle.names_for(entry)
        reason = known.reservations.reason(job.uid, visible)
        reason = reason or reason_of(entry, job, own_wait(wait, beyond), lacking, visible, known.claims)
        if job.uid in known.foreseen:
            reason = preempts_later(reason, known.foreseen[job.uid], visible)
        reason.named = names_of(reason.blockers, visible)
        if beyond is not None:
            reason.word = beyond
        return reason

    def _could_be_in_quota(self, entry: Entry, job: Job) -> bool:
        elastic = entry.spec.elastic
        return any(
            self._cycle.quotas.could_ever_fit(job.queue, option.gpu_type, elastic.min if elastic else option.count)
            for option in job.options
        )

    def _is_too_large(self, options: tuple[Option, ...]) -> bool:
        """They take more nodes than there are that suit, whoever has them."""
        known = self._too_large.get(id(options))  # the groups keep them
        if known is None:
            known = all(option.eligible.bit_count() < option.count for option in options)
            self._too_large[id(options)] = known
        return known

    def _same_as_before(self, wait: Wait) -> Wait:
        """An equal wait of the cycle before, if there was one: many groups share each of them, and compare it so."""
        known = self._same.get(id(wait))  # the result of the cycle keeps all of them
        if known is None:
            known = self._same[id(wait)] = self._before.waits.get(wait, wait)
            self._reported.waits[known] = known
        return known

    def _report(self, row: RunRow, reason: PendingReason, position: int) -> None:
        """This is the run's pending reason: when is it to be reported?"""
        entry, before, same_place = row.entry, row.reported, row.position == position
        entry.reason, entry.position = reason, position
        row.reported, row.position = reason, position
        if before is not None and same_place and before == reason:
            return
        row.due = due_update(entry, reason, self._named(entry, reason), self._settings)
        to_report = self._cycle.run_index.to_report
        if row.due is not None:
            to_report[row.uid] = row
        else:
            to_report.pop(row.uid, None)

    def _named(self, entry: Entry, reason: PendingReason) -> tuple[str, ...]:
        """The runs in the way, as far as this one may hear of them."""
        if reason.named is None:
            visible = self._cycle.names_for(entry) if reason.blockers else {}
            reason.named = names_of(reason.blockers, visible)
        return reason.named

    def _wake(self, at: float) -> None:
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


def own_wait(wait: Wait, beyond: WaitReason | None) -> Wait:
    """It is not for its turn that a job waits which can never start, or not as things are."""
    return wait if beyond not in _BEYOND_ANY_END else replace(wait, kind=WaitReason.RESOURCES, blockers=())


def _beyond_any_end(candidates: CandidateNodes, counts: Collection[int]) -> WaitReason | None:
    if all(candidates.is_hopeless(count) for count in counts):
        return WaitReason.PLACEMENT
    withheld = candidates.withheld
    if withheld and all(candidates.is_hopeless(count, withheld) for count in counts):
        return WaitReason.DEVICES_NOT_OFFERED
    return None


def write_queue_status(entry: Entry, words: QueueStatus, now: float) -> None:
    """Write a run's queue status: its pending reason, or none any more."""
    entry.status = changed(entry.status, queue=words)
    if entry.reason is None:
        return
    admission = entry.status.admission
    if admission.since is None and entry.position:
        entry.status = record_wait(entry.status, waits_since(entry.run, now))
    elif admission.since is not None and entry.reason.word in _NOT_ITS_TURN and not admission.requeued_for:
        entry.status = record_wait(entry.status, None)
    # Of a run that is held back, it is the time at which it is tried again.
    if entry.reason.start is not None and entry.position and admission.first_estimate is None:
        entry.status = record_first_estimate(entry.status, float(int(entry.reason.start)))
