"""One admission cycle: which pending runs get nodes now, and the pending reason of each of the others.

Gangs that lost nodes come first. Then all who wait, in one order over all queues (``order``): whoever is held back
for a reason of its own (``holds``, ``dependencies``) blocks nobody; among the others ``backfill`` decides, on nodes and
quotas as they are and will be. Gangs grow by what nobody waits for. Nothing here acts.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from operator import attrgetter

from lockstep.api.base.changes import changed
from lockstep.api.run_status import QueueStatus
from lockstep.core.admission.cache.entry import Entry, PendingReason, holds_nodes
from lockstep.core.admission.cache.equivalence import EquivalenceClass
from lockstep.core.admission.cache.maintenance_windows import window_claims
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.cache.start_estimates import StartEstimates
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.backfill import BackfillPolicy, backfill, estimate_starts
from lockstep.core.admission.engine.cycle_result import CycleResult, Estimate, Foreseen, JobStart, Reservation, Wait
from lockstep.core.admission.engine.jobs import NO_LIMIT, NodeClaim, RunningJob
from lockstep.core.admission.engine.quota import QuotaBook, QuotaRules
from lockstep.core.admission.engine.what_if import Standing
from lockstep.core.admission.engine_adapter import (
    ENDING,
    lengths_of,
    others,
    refresh_groups,
    running_in,
    running_of,
    unsettled,
)
from lockstep.core.admission.extensions import Promises, grant_limits, if_granted
from lockstep.core.admission.kueue_admission import KueueAdmission
from lockstep.core.admission.pending_status import Known, PendingStatus, write_queue_status
from lockstep.core.admission.preemption_candidates import PreemptionCandidates, may_preempt
from lockstep.core.admission.queue_status import queue_writes
from lockstep.core.admission.queueing.dependencies import Namespaces, circle_in_words, judge
from lockstep.core.admission.queueing.holds import hold_of, hours_used_up, queue_spec
from lockstep.core.admission.queueing.order import waits_since
from lockstep.core.admission.refill import find_growth, find_spares, replace_lost_nodes
from lockstep.core.admission.reservations import Reservations
from lockstep.core.admission.test_only import TestOnlyAnswers
from lockstep.core.failures.recovery_record import record_shrink
from lockstep.core.model import assignment as slots
from lockstep.core.model.admission_settings import Backfill
from lockstep.core.model.node_set import NodeSet
from lockstep.core.model.plan import ClusterPlan, Event
from lockstep.core.model.reasons import ActionWord, EventReason, WaitReason
from lockstep.core.model.snapshot import ClusterSnapshot
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.topology import fullest_domains
from lockstep.core.pods import gang
from lockstep.core.pods.pod_groups import planned
from lockstep.core.pods.requirement import avoided_nodes, resolve

_NODES_NAMED = 8
_ANSWERS_PER_PASS = 8
_LOOKS_PAST_A_CUT = 4
"""How often the whole order is looked at for a longer stretch of it, when fewer start because of who comes first."""
_BLOCKING = (WaitReason.RESOURCES, WaitReason.QUOTA, WaitReason.PRIORITY, WaitReason.WINDOW)

_Rest = tuple[Sequence[RunningJob], NodeSet, Sequence[NodeClaim], QuotaRules, BackfillPolicy]
"""What the engine is told beside the jobs."""


def admit(snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: CycleMemory | None = None) -> ClusterPlan:
    """Decide who gets nodes at ``now``. Deterministic; deciding again after the writes gives nobody anything, and soon
    writes nothing: only who waited while others were yet to start may be told another reason.

    The plan's ``wake_at`` is ``now`` when there is more to look at than one cycle takes, and the next may give more.
    ``memory`` spares work that the cycle before has done; it changes no decision but how fresh estimates are.
    """
    memory = memory if memory is not None else CycleMemory(start_estimates=StartEstimates(share=None))
    plan = _Cycle(snapshot, tunables, now, memory).plan()
    queues, look_again = queue_writes(snapshot, memory, plan.writes, tunables, now)
    times = [at for at in (plan.wake_at, look_again) if at is not None]
    return replace(plan, queues=queues, wake_at=min(times, default=None))


class _Cycle:
    """One cycle over all runs."""

    def __init__(self, snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: CycleMemory) -> None:
        self._snapshot = snapshot
        self._tunables = tunables
        self._settings = tunables.admission
        self._now = now
        self._memory = memory
        self._wake_at: float | None = None
        self._state = CycleState(snapshot, tunables, now, memory)
        self._run_index = memory.run_index
        self._rules = memory.rules.quotas
        self._busy = self._state.busy
        self._run_index.forget_decisions()
        for row in self._run_index.lacking.values():
            row.entry.reason = None
        asked = sorted(self._run_index.asked.values(), key=attrgetter("place"))
        self._asked = [Entry(row.run, row.run.status) for row in asked if row.uid not in self._busy]
        self._kueue = KueueAdmission(self._state)
        self._pending_status = PendingStatus(self._state)
        self._started: list[RunRow] = []
        self._left: Sequence[RunRow] = ()
        self._claims: Sequence[NodeClaim] = ()
        self._awaited: Sequence[RunningJob] = ()
        self._foreseen: Mapping[str, Foreseen] = {}
        self._cut = False
        self._promises: Promises | None = None

    def plan(self) -> ClusterPlan:
        """The steps, in order."""
        gangs = [row.entry for row in self._those(self._run_index.lacking)]
        waiting, held = self._in_order()
        self._reservations = Reservations(waiting, self._state)
        self._state.reserved = self._reservations.nodes
        stop = self._tunables.longest_stop
        self._claims = self._state.windows = window_claims(self._settings.windows, self._state.index, self._now, stop)
        for entry in gangs:
            refused = self._snapshot.refused.get(entry.run.uid)
            if refused is not None and refused.until > self._now:
                entry.reason = PendingReason(WaitReason.ADMISSION_REFUSED, refused.message, start=refused.until)
            elif entry.status.kueue is not None:
                self._kueue.replace_lost_nodes(entry)
            elif slots.lacking(entry.status.assignment):
                replace_lost_nodes(entry, self._state)
        gangs = [entry for entry in gangs if entry.status.kueue is None]
        for grant in self._kueue.grants(self._claims):
            longest = lengths_of(grant.entry, queue_spec(self._snapshot, grant.entry.spec.queue))[1]
            self._give(grant.entry, grant.nodes, grant.gpu_type, min(grant.limit, longest))
            grant.entry.events.append(
                Event("Normal", EventReason.ADMITTED, ActionWord.ADMIT, self._map_in_words(grant.nodes))
            )
        if self._kueue.wake_at < inf:
            self._wake(self._kueue.wake_at)
        nodes_awaited = self._admit(waiting)
        self._review_limits()
        self._wake_for_windows()
        self._reservations.withdraw()
        begun = [*gangs, *(row.entry for row in self._started)]
        for entry in begun if not self._cut else ():  # once nobody is to start any more
            find_spares(entry, self._state, self._quota)
        for entry in gangs:
            if not nodes_awaited:
                find_growth(entry, self._state, self._quota)
        self._write_reasons(held)
        changed = [entry for entry in self._run_index.decided() if entry.run.uid not in self._busy]
        changed += [entry for entry in self._answered() if entry.status is not entry.run.status]
        return ClusterPlan(tuple(write for entry in changed for write in entry.writes()), self._wake_at)

    def _those(self, rows: Mapping[str, RunRow]) -> list[RunRow]:
        """Those of ``rows`` that this cycle decides of, by age."""
        return sorted((row for row in rows.values() if row.uid not in self._busy), key=attrgetter("place"))

    def _in_order(self) -> tuple[list[RunRow], list[RunRow]]:
        """(who could start if there were nodes, the first first; whom something else holds back, as its entry says)."""
        rows = self._memory.pending_queue.put_in_order(
            self._run_index, self._memory.rules, self._snapshot, self._tunables, self._now
        )
        if self._busy:
            rows = [row for row in rows if row.uid not in self._busy]
        held = [row for row in rows if row.held is not None]
        waiting = [row for row in rows if row.held is None] if held else rows
        for row in held:
            row.entry.reason = row.held
        others = {row.uid: reason for row, reason in self._held_by_others()}
        for uid, reason in others.items():
            row = self._run_index.pending[uid]
            row.entry.reason = reason
            held.append(row)
        if others:
            waiting = [row for row in waiting if row.uid not in others]
        for passed_over in (self._of_kueue, self._beyond_widths, self._beyond_pending_limits):
            taken = passed_over(waiting)
            if taken:
                held += [row for row in waiting if row.uid in taken]
                waiting = [row for row in waiting if row.uid not in taken]
        return waiting, held

    def _of_kueue(self, waiting: Sequence[RunRow]) -> Collection[str]:
        """UIDs of those that Kueue admits. They are asked for, and told what they wait for."""
        pending, queues = self._run_index.pending, self._snapshot.queues
        backed = {name for name, view in queues.items() if view.spec.backend == "Kueue"}
        by_queue = {uid: row for uid, row in pending.items() if row.queue in backed} if backed else {}
        rows = {**self._run_index.named_to_kueue, **by_queue}
        for row in waiting if rows else ():
            if row.uid in rows:
                row.entry.reason = None
                row.forget_reasons()
        return {row.uid for row in self._those(rows) if self._kueue.owns(row.entry)}

    def _held_by_others(self) -> Iterator[tuple[RunRow, PendingReason]]:
        """Runs that nothing of their own holds back, but their own pods or other runs."""
        run_index, now = self._run_index, self._now
        for uid in (self._state.pods_of.keys() & run_index.pending.keys()) - self._busy:
            row = run_index.pending[uid]
            if row.held is None and self._state.has_live_pods(row.run):
                hold = hold_of(row.run, self._snapshot, self._tunables, now, has_live_pods=True)
                if hold is not None:
                    yield row, PendingReason(hold.reason, hold.message, start=hold.until)
        related = [row for row in self._those(run_index.related) if row.held is None]
        if not related:
            return
        places = {row.run.namespace for row in related}
        known = (row.run for row in self._run_index.by_age if not row.is_test_only and row.run.namespace in places)
        family = Namespaces(known, self._busy)
        for row in related:
            if not self._state.has_live_pods(row.run):
                reason = self._dependency(row.entry, family)
                if reason is not None:
                    yield row, reason

    def _dependency(self, entry: Entry, family: Namespaces) -> PendingReason | None:
        admission = entry.status.admission
        if entry.spec.depends_on or admission.met or admission.failed:
            verdict = judge(entry.run, family)
            if (verdict.met, verdict.failed) != (admission.met, admission.failed):
                entry.remember(changed(entry.status.admission, met=verdict.met, failed=verdict.failed))
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

    def _beyond_widths(self, waiting: Sequence[RunRow]) -> Collection[str]:
        """UIDs of those for whom the maxRunning of their set has no room beside those that have nodes or come first.
        They are told so."""
        widths, beyond = self._snapshot.widths, set[str]()
        room = dict(widths)
        for row in self._run_index.by_age if widths else ():
            place = row.run.namespace, row.run.set_uid
            if place in room and (row.holds or row.uid in self._busy):
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

    def _beyond_pending_limits(self, waiting: Sequence[RunRow]) -> Collection[str]:
        """UIDs of those that came after as many as their queue lets wait. They are told so."""
        queues = self._snapshot.queues.items()
        limits = {name: most for name, view in queues if (most := view.spec.limits.max_pending_runs) is not None}
        bounded = [row for row in waiting if row.queue in limits] if limits else []
        counts: dict[str, int] = {}
        beyond = set()
        for row in sorted(bounded, key=attrgetter("place")):
            most = limits[row.queue]
            counts[row.queue] = counts.get(row.queue, 0) + 1
            if counts[row.queue] > most:
                row.entry.reason = PendingReason(
                    WaitReason.PENDING_RUNS_LIMIT, f"queue {row.queue} lets at most {most} runs wait"
                )
                beyond.add(row.uid)
        return beyond

    def _admit(self, waiting: Sequence[RunRow]) -> bool:
        """Start whom the engine says; True when somebody waits for nodes."""
        if not waiting:
            if self._run_index.relimited:
                self._promises = Promises(self._running(), {}, self._reservations.nodes, self._rules, lambda _: {})
            return False
        groups = refresh_groups(waiting, self._state)
        running, free, claims = self._reservations.expected(self._running()), self._free(), self._claims
        spoken_for = (*claims, *self._reservations.claims())
        result = backfill(self._now, waiting, running, free, spoken_for, self._rules, self._policy(), groups=groups)
        self._reservations.review(result)
        rest = (running, free, spoken_for, self._rules, self._policy())
        result, is_final = self._make_room(waiting, result, rest, groups)
        if is_final and not result.starts and not result.cut:

            def again(running: Sequence[RunningJob]) -> Mapping[str, Reservation]:
                return backfill(self._now, waiting, running, *rest[1:], self._foreseen, groups).reserved

            self._promises = Promises(running, result.reserved, self._reservations.nodes, self._rules, again)
        for start in result.starts:
            self._start(self._run_index.rows[start.uid], start)
        self._set_aside(result)
        if result.cut:
            self._cut = True
            self._wake(self._now)
        waits = result.waits
        self._left, left_groups = waits.waiting(waiting), waits.waiting(groups)
        if result.starts and any(row.entry.spec.elastic is not None for row in self._left):
            # Its smaller sizes were those of the nodes that were free before: no spare comes before those of now.
            self._cut = True
            self._wake(self._now)
        estimates = self._estimates(free, (*claims, *self._reservations.claims()))
        known = Known(self._reservations, self._foreseen, claims)
        self._pending_status.find(self._left, left_groups, waits.in_order, estimates, known)
        self._wake_for_avoided_nodes(waits)
        if self._state.cluster.ending:
            self._wake(self._now + ENDING)
        return result.cut or any(wait.kind in _BLOCKING for wait in waits.in_order)

    def _review_limits(self) -> None:
        """Time limits that were changed, or that a queue has by now for runs that were granted none."""
        queues = self._snapshot.queues.items()
        limiting = {name for name, view in queues if view.spec.limits.default_time_limit is not None}
        rows = {uid: row for uid, row in self._run_index.unlimited.items() if row.queue in limiting} if limiting else {}
        if grant_limits(self._those({**rows, **self._run_index.relimited}), self._state, self._promises):
            self._wake(self._now + 1.0)

    def _set_aside(self, result: CycleResult) -> None:
        """What those are to have who wait is nobody's spare, and nobody grows by it."""
        self._awaited = [
            RunningJob(
                uid, self._run_index.rows[uid].queue, kept.option.gpu_type, kept.nodes, kept.option.count, kept.until
            )
            for uid, kept in result.reserved.items()
        ]
        for awaited in self._awaited:
            self._state.reserved |= awaited.nodes

    def _free(self) -> NodeSet:
        """Nodes that nobody has, as decided so far."""
        free = self._state.index.everything & ~self._state.cluster.booked
        for nodes in self._state.returning.values():
            free &= ~nodes
        return free

    def _policy(self) -> BackfillPolicy:
        return BackfillPolicy(
            reservations_per_queue=None if self._settings.backfill is Backfill.CONSERVATIVE else 1,
            depth=self._settings.depth,
            admissions=self._settings.admissions,
            overtaking=self._settings.backfill is not Backfill.DISABLED,
        )

    def _answered(self) -> Sequence[Entry]:
        """Those who only asked when they would start, once it is known who starts before them."""
        asked = self._asked[:_ANSWERS_PER_PASS]
        if len(asked) < len(self._asked) or (asked and self._cut):
            self._wake(self._now)
        if not asked or self._cut:
            return ()
        claims = (*self._claims, *self._reservations.claims())
        standing = Standing(
            self._now, self._running(), self._free(), claims, self._rules, self._policy(), self._foreseen
        )
        left = [(row.entry, row.wanted) for row in self._left]
        trials = TestOnlyAnswers(self._state, left, standing)
        for entry in asked:
            trials.answer(entry, self._pending_status.shortage)
        return asked

    def _make_room(
        self, waiting: Sequence[RunRow], result: CycleResult, rest: _Rest, groups: Sequence[EquivalenceClass]
    ) -> tuple[CycleResult, bool]:
        """Tell those who are in the way of a reservation, and make a new one where somebody may: then whoever comes
        after it in the order starts in the next cycle at the earliest, on what is left (False). Where somebody may
        later, look again at all of them, so that nobody who comes after it is in its way by then."""
        reservations, running = self._reservations, rest[0]
        if not reservations.nodes and not may_preempt(self._snapshot):
            return result, True
        reservations.notify_victims(running, self._rules)
        if reservations.wake_at is not None:
            self._wake(reservations.wake_at)
        preemption_candidates = PreemptionCandidates(self._state, reservations, self._rules, running, self._claims)
        for _ in range(_LOOKS_PAST_A_CUT):
            concerned = {*self._run_index.reserving, *result.reserved, *(start.uid for start in result.starts)}
            asked = [(row.entry, row.wanted) for row in waiting if row.uid in concerned]
            found = preemption_candidates.first(asked, result, self._foreseen)
            if preemption_candidates.wake_at is not None:
                self._wake(preemption_candidates.wake_at)
            is_news = preemption_candidates.foreseen.keys() != self._foreseen.keys()
            self._foreseen = preemption_candidates.foreseen
            if found is not None:
                reservations.make(found.entry, found.reservation)
                self._wake(self._now)
                return replace(result, starts=found.before), False
            if not is_news:
                break
            was_cut, result = result.cut, backfill(self._now, waiting, *rest, self._foreseen, groups)
            if not was_cut:  # else it may have come to some whom nobody has asked yet
                break
        return result, True

    def _give(self, entry: Entry, chosen: Sequence[str], gpu_type: str, limit: float = NO_LIMIT) -> None:
        """The whole gang gets its nodes, from which all else of its attempt follows. ``limit``: seconds."""
        cycle, spec, status = self._state, entry.spec, entry.status
        incarnations = cycle.seen_incarnations(entry)
        before = changed(status.assignment, incarnations=incarnations)
        stamp = float(int(self._now))
        entry.status = changed(
            record_shrink(status, stamp if len(chosen) < spec.nodes else None),
            attempt=status.attempt + 1,
            assignment=slots.assigned(before, chosen, spares=spec.spare_nodes),
            resolved=changed(
                resolve(entry.run, cycle.cluster, chosen, gpu_type),
                pod_group=planned(entry.run, self._tunables.pod_groups, status.attempt + 1),
            ),
            last_admitted=stamp,
            reservation=None,
        )
        template = gang.template_for(entry.run, entry.status, self._tunables)
        resolved = changed(entry.status.resolved, template_hash=template.hash)
        entry.status = changed(entry.status, resolved=resolved)
        entry.remember(
            changed(
                entry.status.admission,
                since=waits_since(entry.run, stamp),
                requeued_for="",
                time_limit=None if limit >= NO_LIMIT else int(limit) + status.held_seconds,
                asked_limit=spec.time_limit or "",
                limited_by="",
                backfilled=False,
            )
        )
        entry.reason = None
        self._started.append(self._run_index.rows[entry.run.uid])
        cycle.book(entry, chosen)

    def _start(self, row: RunRow, start: JobStart) -> None:
        """Give a run what the engine found for it."""
        entry, spec, limit = row.entry, row.entry.spec, start.until - self._now
        chosen = self._state.index.names(start.nodes)
        self._give(entry, chosen, start.option.gpu_type, limit)
        entry.remember(changed(entry.status.admission, backfilled=start.backfilled))
        words = self._map_in_words(chosen)
        if start.backfilled:
            words += "; ahead of runs before it in the order, which it does not delay"
        if limit < row.wanted.duration:
            words += f"; with a time limit of {int(limit)} s"
        entry.events.append(Event("Normal", EventReason.ADMITTED, ActionWord.ADMIT, words))
        if self._tunables.pod_groups.lack:
            note = f"the gang starts without a PodGroup: {self._tunables.pod_groups.lack}"
            entry.events.append(Event("Normal", EventReason.WITHOUT_POD_GROUP, ActionWord.ADMIT, note))
        queue, used = queue_spec(self._snapshot, spec.queue), self._snapshot.gpu_hours.get(spec.queue, 0)
        if hours_used_up(queue, used):
            note = f"queue {spec.queue} used {used} GPU-hours in the last 24 hours, of {queue.limits.gpu_hours_per_day}"
            entry.events.append(Event("Warning", EventReason.GPU_HOURS_LIMIT, ActionWord.ADMIT, note))

    def _estimates(self, free: NodeSet, claims: Sequence[NodeClaim]) -> Mapping[str, float]:
        """When those who wait start, as far as anybody can say."""

        def begin() -> Iterator[tuple[str, Estimate]]:
            left = free & ~self._state.cluster.booked
            rest = self._running(), left, claims, self._rules, self._settings.depth, self._foreseen
            return estimate_starts(self._now, self._left, *rest)

        known = self._memory.start_estimates
        estimates = known.refresh(self._now, begin)
        if self._left:
            self._wake(known.wake_at)
        return estimates

    def _running(self) -> list[RunningJob]:
        """Who holds nodes, as decided so far."""
        cycle = self._state
        known = []
        for row in (*self._those(self._run_index.holding), *self._started):
            entry = row.entry
            if entry.status is row.run.status:
                held = running_in(row, cycle)
                known.append(if_granted(held, row, cycle) if row.uid in self._snapshot.in_flight else held)
            elif holds_nodes(entry.view):
                known.append(running_of(entry.view, cycle, self._now))
        known += unsettled(cycle, self._now)
        return [*known, *others(cycle, known, self._now)]

    def _quota(self) -> QuotaBook:
        used = (*self._running(), *self._awaited) if self._snapshot.queues else ()
        return QuotaBook(self._rules, self._now, used)

    def _write_reasons(self, held: Sequence[RunRow]) -> None:
        """Status of those who wait, and of those who do not any more and say so still."""
        for row in (*held, *self._those(self._run_index.lacking)):
            reason = row.entry.reason
            if reason is not None:
                self._pending_status.hold(row, reason)
                if reason.start is not None:
                    self._wake(reason.start)
        for row in (*self._started, *self._those(self._run_index.outdated)):
            if row.entry.reason is None and row.entry.status.queue.reason:
                write_queue_status(row.entry, QueueStatus(), self._now)
        self._pending_status.write()
        if self._pending_status.wake_at is not None:
            self._wake(self._pending_status.wake_at)

    def _wake_for_avoided_nodes(self, waits: Mapping[str, Wait]) -> None:
        """A node that recovery keeps a run off may be used again, with nobody to tell."""
        for uid, row in self._run_index.avoiding.items():
            for avoided in avoided_nodes(row.run.status.recovery.excluded_nodes, self._now) if uid in waits else ():
                if avoided.until is not None:
                    self._wake(avoided.until)

    def _wake_for_windows(self) -> None:
        """A window that ends frees its nodes, with nobody to tell."""
        ends = [claim.end for claim in self._claims if claim.start <= self._now]
        if ends:
            self._wake(min(ends))

    def _map_in_words(self, chosen: Sequence[str]) -> str:
        words = f"{len(chosen)} node{'' if len(chosen) == 1 else 's'}, rank 0 on {chosen[0]}"
        for level, label in self._tunables.topology_levels.items():
            counts: dict[str, int] = {}
            for name in chosen:
                value = self._snapshot.nodes[name].labels.get(label)
                if value is not None:
                    counts[value] = counts.get(value, 0) + 1
            if lying := fullest_domains(counts, shown=_NODES_NAMED):
                return f"{words}; nodes by {level}: {lying}"
        return words

    def _wake(self, at: float) -> None:
        self._wake_at = at if self._wake_at is None else min(self._wake_at, at)
