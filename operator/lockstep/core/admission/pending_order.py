"""Sorts pending runs: each takes its place in one order over all queues, or is held back for a reason."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from lockstep.core.admission.cache.entry import Entry, PendingReason
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.kueue_admission import KueueAdmission
from lockstep.core.admission.queueing.dependencies import Namespaces, circle_in_words, judge
from lockstep.core.admission.queueing.holds import hold_of
from lockstep.core.model.admission_record import record_dependencies
from lockstep.core.model.plural import plural
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.snapshot import EDIT_GRACE


@dataclass(frozen=True, slots=True)
class PendingRuns:
    """``in_order``: who could start if there were nodes, the first first. ``held``: whom something else holds back,
    as its entry says."""

    in_order: Sequence[RunRow]
    held: Sequence[RunRow]


def sort_pending_runs(cycle: CycleState, kueue: KueueAdmission) -> PendingRuns:
    """All pending runs that this cycle decides about. Those that Kueue admits are among the held."""
    rows = cycle.memory.pending_queue.put_in_order(
        cycle.run_index, cycle.memory.rules, cycle.snapshot, cycle.tunables, cycle.now
    )
    if cycle.busy:
        rows = [row for row in rows if row.uid not in cycle.busy]
    held = [row for row in rows if row.held is not None]
    waiting = [row for row in rows if row.held is None] if held else rows
    for row in held:
        row.entry.reason = row.held
    others = {row.uid: reason for row, reason in _held_by_others(cycle)}
    for uid, reason in others.items():
        row = cycle.run_index.pending[uid]
        row.entry.reason = reason
        held.append(row)
    if others:
        waiting = [row for row in waiting if row.uid not in others]
    if taken := _owned_by_kueue(waiting, cycle, kueue):
        waiting = _pass_over(taken, waiting, held)
    for passed_over in (_long_unjudged, _beyond_widths, _beyond_pending_limits):
        if taken := passed_over(waiting, cycle):
            waiting = _pass_over(taken, waiting, held)
    return PendingRuns(waiting, held)


def _pass_over(taken: Collection[str], waiting: Sequence[RunRow], held: list[RunRow]) -> list[RunRow]:
    """Those of ``waiting`` that are left; those ``taken`` are ``held``."""
    held += [row for row in waiting if row.uid in taken]
    return [row for row in waiting if row.uid not in taken]


def _owned_by_kueue(waiting: Sequence[RunRow], cycle: CycleState, kueue: KueueAdmission) -> Collection[str]:
    """UIDs of those that Kueue admits. They are requested there, and get their pending reason."""
    pending, queues = cycle.run_index.pending, cycle.snapshot.queues
    backed = {name for name, view in queues.items() if view.spec.backend == "Kueue"}
    by_queue = {uid: row for uid, row in pending.items() if row.queue in backed} if backed else {}
    rows = {**cycle.run_index.named_to_kueue, **by_queue}
    for row in waiting if rows else ():
        if row.uid in rows:
            row.entry.reason = None
            row.forget_reasons()
    return {row.uid for row in cycle.decided_rows(rows) if kueue.owns(row.entry)}


def _held_by_others(cycle: CycleState) -> Iterator[tuple[RunRow, PendingReason]]:
    """Runs that nothing of their own holds back, but their own pods or other runs."""
    run_index = cycle.run_index
    for uid in (cycle.pods_of.keys() & run_index.pending.keys()) - cycle.busy:
        row = run_index.pending[uid]
        if row.held is None and cycle.has_live_pods(row.run):
            hold = hold_of(row.run, cycle.snapshot, cycle.tunables, cycle.now, has_live_pods=True)
            if hold is not None:
                yield row, PendingReason(hold.reason, hold.message, start=hold.until)
    related = [
        *cycle.decided_rows(run_index.related)
    ]  # those held otherwise too: the run before it may be gone by then
    if not related:
        return
    places = {row.run.namespace for row in related}
    known = (row.run for row in run_index.by_age if not row.is_test_only and row.run.namespace in places)
    family = Namespaces(known, cycle.busy)
    for row in related:
        if not cycle.has_live_pods(row.run):
            reason = _dependency(row.entry, family)
            if reason is not None and row.held is None:
                yield row, reason


def _dependency(entry: Entry, family: Namespaces) -> PendingReason | None:
    """The run that it comes after, if any. What is known of those it depends on is remembered."""
    admission = entry.status.admission
    if entry.spec.depends_on or admission.met or admission.failed:
        verdict = judge(entry.run, family)
        if (verdict.met, verdict.failed) != (admission.met, admission.failed):
            entry.status = record_dependencies(entry.status, verdict.met, verdict.failed)
        if verdict.message:
            never = bool(verdict.failed) or verdict.circle
            return PendingReason(
                WaitReason.DEPENDENCY_NEVER_SATISFIED if never else WaitReason.DEPENDENCY, verdict.message
            )
    ahead = family.ahead_of(entry.run)
    if ahead is None:
        return None
    if circle := family.circle_of(entry.run):
        return PendingReason(WaitReason.DEPENDENCY_NEVER_SATISFIED, circle_in_words(circle))
    return PendingReason(
        WaitReason.SINGLETON, f"{ahead.name} comes first: it has the same spec.singleton", (ahead.uid,)
    )


def _long_unjudged(waiting: Sequence[RunRow], cycle: CycleState) -> Collection[str]:
    """UIDs of those that were edited a while ago, or again and again, and are not judged yet. They are told so; without
    an end, nodes would be kept empty for whoever may not start. A new leader gives them all of their time again."""
    edited, led = cycle.snapshot.edited, cycle.snapshot.leadership.since
    over = set()
    for row in waiting if cycle.run_index.unjudged else ():
        if not row.unjudged:
            continue
        until = max(edited.get(row.uid, 0.0), led) + EDIT_GRACE
        if until > cycle.now:
            cycle.wake(until)
            continue
        row.entry.reason = PendingReason(
            WaitReason.NOT_JUDGED, "its spec was edited, and is yet to be judged as it is now"
        )
        over.add(row.uid)
    return over


def _beyond_widths(waiting: Sequence[RunRow], cycle: CycleState) -> Collection[str]:
    """UIDs of those for whom the maxRunning of their set has no room beside those that have nodes or come first.
    They are told so."""
    widths, beyond = cycle.snapshot.widths, set[str]()
    room = dict(widths)
    for row in cycle.run_index.by_age if widths else ():
        place = row.run.namespace, row.run.set_uid
        if place in room and (row.holds or row.uid in cycle.busy):
            room[place] -= 1
    for row in waiting if widths else ():
        run = row.run
        place = run.namespace, run.set_uid
        if place not in room:
            continue
        room[place] -= 1
        if room[place] < 0:
            words = f"maxRunning of its set {run.set_name} is {widths[place]}"
            row.entry.reason = PendingReason(WaitReason.MAX_RUNNING, words)
            beyond.add(row.uid)
    return beyond


def _beyond_pending_limits(waiting: Sequence[RunRow], cycle: CycleState) -> Collection[str]:
    """UIDs of those that came after as many as their queue lets wait. They are told so."""
    queues = cycle.snapshot.queues.items()
    limits = {name: most for name, view in queues if (most := view.spec.limits.max_pending_runs) is not None}
    bounded = [row for row in waiting if row.queue in limits] if limits else []
    counts: dict[str, int] = {}
    beyond = set()
    for row in sorted(bounded, key=attrgetter("place")):
        most = limits[row.queue]
        counts[row.queue] = counts.get(row.queue, 0) + 1
        if counts[row.queue] > most:
            row.entry.reason = PendingReason(
                WaitReason.PENDING_RUNS_LIMIT, f"queue {row.queue} lets at most {plural(most, 'run')} wait"
            )
            beyond.add(row.uid)
    return beyond
