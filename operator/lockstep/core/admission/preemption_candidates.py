"""Which pending run may preempt, now or once minRuntime has passed: the first of each queue.

Where those in the way are still protected (``minRuntime``), the run is promised their nodes from the first moment at
which enough of them may go. Were others let in there for longer, and protected in turn, it might wait for ever.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import inf
from operator import attrgetter, or_
from typing import TypeVar

from lockstep.api.preemption_status import ReservationStatus
from lockstep.api.queue import TrainingQueueSpec
from lockstep.core.admission.cache.entry import Entry
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.cycle_result import CycleResult, Foreseen, JobStart, Reservation, Wait
from lockstep.core.admission.engine.jobs import OVERDUE, Job, NodeClaim, Option, RunningJob
from lockstep.core.admission.engine.preemption import Preemption, PreemptionPolicy, Victim, can_preempt, preempt
from lockstep.core.admission.engine.quota import PoolKey, QuotaRules
from lockstep.core.admission.engine.usage import PoolUsage, UsageOverTime
from lockstep.core.admission.engine_adapter import ENDING, ending_nodes
from lockstep.core.admission.queueing.holds import queue_spec
from lockstep.core.admission.reservations import Reservations
from lockstep.core.admission.victims import class_value, goes_anyway, notice_seconds, victim_of
from lockstep.core.model.conditions import is_true
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.reasons import ConditionType, WaitReason
from lockstep.core.model.reservation import reservation_of
from lockstep.core.model.snapshot import ClusterSnapshot, PodView

T = TypeVar("T")

_WAITS = (WaitReason.RESOURCES, WaitReason.QUOTA, WaitReason.RUNNING_RUNS_LIMIT)
_PATIENCE = 2 * ENDING
"""Seconds beyond the victims' own deadlines: for the cycles in between, and for the last pod."""


def may_preempt(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Queues whose rules let their runs preempt."""
    return frozenset(name for name, view in snapshot.queues.items() if _allows(view.spec))


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """A run that may, and what it is to have. ``before``: the starts that nothing here has a say in."""

    entry: Entry
    reservation: ReservationStatus
    before: tuple[JobStart, ...]


@dataclass(frozen=True, slots=True)
class _Promise:
    """What somebody before it in the order is to have, and who is gone by then for its sake."""

    job: Job
    reservation: Reservation
    victims: tuple[str, ...]
    pools: frozenset[PoolKey]

    @property
    def usage(self) -> RunningJob:
        """What it uses once it has it."""
        option, until = self.reservation.option, self.reservation.until
        return RunningJob(self.job.uid, self.job.queue, option.gpu_type, EMPTY, option.count, until)


@dataclass(frozen=True, slots=True)
class _Asker:
    """A job that may preempt, ``victims`` at most. ``pools``: those that it would use some of."""

    job: Job
    class_value: int
    policy: PreemptionPolicy
    victims: Sequence[Victim]
    pools: frozenset[PoolKey]


class PreemptionCandidates:
    """The view of one cycle before anybody starts.

    ``foreseen``: by UID, who may preempt later. ``wake_at``: when somebody loses its protection.
    """

    def __init__(
        self,
        cycle: CycleState,
        reservations: Reservations,
        rules: QuotaRules,
        running: Sequence[RunningJob],
        windows: Sequence[NodeClaim],
    ) -> None:
        self._cycle = cycle
        self._reservations = reservations
        self._rules = rules
        self._running = running
        self._windows = windows
        self._before: list[JobStart] = []
        self._promises: list[_Promise] = []
        self._over_time = UsageOverTime(rules, ())
        # Each job asks about the same moments again and again, between which nothing is promised.
        self._usages: dict[float, PoolUsage] = {}
        self._begins: dict[frozenset[PoolKey], Sequence[float]] = {}
        self._notices: dict[str, float] = {}
        self.foreseen: dict[str, Foreseen] = {}
        self.wake_at: float | None = None

    def first(
        self, waiting: Sequence[tuple[Entry, Job]], result: CycleResult, known: Mapping[str, Foreseen]
    ) -> PreemptionCandidate | None:
        """Who may now, first in order. One at a time: each changes what others find. ``known``: who was found to may
        later, by whom ``result`` is bound. ``waiting``: all who start or are to have something, in order.

        Only those who start before it in the order have their nodes: were free nodes given to others first, which then
        are protected for a while, it might wait for ever.
        """
        snapshot = self._cycle.snapshot
        allowed = may_preempt(snapshot)
        self._promises, self.foreseen = [], {}
        if not allowed or snapshot.leadership.disruption:
            return None
        starts = {start.uid: start for start in result.starts}
        passed = self._reservations.queues()
        # Whoever has its nodes kept for it takes them, wherever it stands in the order.
        kept = {entry.run.uid for entry, _ in waiting if entry.status.reservation is not None}
        self._before, self._over_time = [], self._standing()
        self._forget()
        for _, job in waiting:
            if job.uid in starts and job.uid in kept:
                self._begin(job, starts[job.uid])
        begun = [*self._before]
        for entry, job in waiting:
            start, wait = starts.get(job.uid), result.waits.get(job.uid)
            if start is not None and job.uid not in kept:
                self._begin(job, start)
                begun += [] if self.foreseen else [start]
            if wait is None or wait.reservation is None or job.uid in kept:
                continue
            later: Foreseen | None = None
            if job.queue not in passed:
                passed.add(job.queue)
                later = known.get(job.uid)
                asker = self._asker(entry, job)
                if later is None and asker is not None and job.queue in allowed and wait.kind in _WAITS:
                    found = self._ask(asker, self._cycle.now, preempt) if job.may_start else None
                    if found is not None:
                        return PreemptionCandidate(entry, self._reservation(found), tuple(begun))
                    later = self._later(asker, wait)
            if later is not None:
                self.foreseen[job.uid] = later
                self._promise(job, _promised(job, later), later.victims)
            elif wait.reservation.known:  # where nobody knows when, nothing was promised
                self._promise(job, wait.reservation)
        return None

    def _begin(self, job: Job, start: JobStart) -> None:
        """The job starts now."""
        self._before.append(start)
        self._forget()
        option = start.option
        self._over_time.add(RunningJob(start.uid, job.queue, option.gpu_type, start.nodes, option.count, start.until))

    def _promise(self, job: Job, reservation: Reservation, victims: tuple[str, ...] = ()) -> None:
        self._forget()
        self._promises.append(_Promise(job, reservation, victims, self._pools(job.queue, [reservation.option])))

    def _forget(self) -> None:
        self._usages.clear()
        self._begins.clear()

    def _pools(self, queue: str, options: Sequence[Option]) -> frozenset[PoolKey]:
        types = {option.gpu_type for option in options}
        return frozenset(account.pool for kind in types for account, _ in self._rules.needs(queue, kind, 1))

    def _asker(self, entry: Entry, job: Job) -> _Asker | None:
        """None: it cannot send anybody away, ever."""
        snapshot = self._cycle.snapshot
        value = class_value(entry.spec, snapshot.priority_classes)
        rules = queue_spec(snapshot, job.queue).preemption
        policy = PreemptionPolicy(rules.within_queue, rules.reclaim_within_cohort)
        cohort = self._rules.cohorts.get(job.queue)
        queues = [job.queue] if policy.within_queue != "Never" else []
        if policy.reclaim_within_cohort != "Never" and cohort is not None:
            queues += [name for name in self._in_cohorts.get(cohort, ()) if name != job.queue]
        if value is None:
            return None
        found = (victim for name in queues for victim in self._victims.get(name, ()))
        victims = [victim for victim in found if policy.allows(job.queue, value, victim.queue, victim.class_value)]
        if not victims:
            return None
        return _Asker(job, value, policy, victims, self._pools(job.queue, job.options))

    def _later(self, asker: _Asker, wait: Wait) -> Foreseen | None:
        """What the job can have by a preemption later, unless it gets as much as soon without."""
        now, known = self._cycle.now, wait.reservation is not None and wait.reservation.known
        before = wait.reservation.start if known and wait.reservation is not None else inf
        moments, protections = self._moments
        moments = moments[bisect_right(moments, now) : bisect_left(moments, before)]
        if not asker.job.may_start:  # nor may it preempt before, be there somebody by now
            moments = [now + OVERDUE, *moments]
        found, at = self._earliest(asker, moments)
        if found is None:
            soon = bisect_right(protections, now)
            self._wake(protections[soon] if soon < len(protections) else inf)
            return None
        if asker.job.may_start:  # else a cycle comes with its verdict, or when its time is over
            self._wake(at)
        start = at + max(self._notice(uid) for uid in found.victims) + _PATIENCE
        return Foreseen(at, start, found.option, found.nodes, found.victims) if start < before else None

    def _earliest(self, asker: _Asker, moments: Sequence[float]) -> tuple[Preemption | None, float]:
        """The first moment at which enough of them may go: more of them may at each moment, as others have ended."""
        least, step, most = 0, 1, len(moments) - 1
        while least <= most:
            index = min(least + step - 1, most)
            if self._ask(asker, moments[index], can_preempt):
                break
            least, step = index + 1, 2 * step
        else:
            return None, inf
        most = index
        while least < most:
            middle = (least + most) // 2
            if self._ask(asker, moments[middle], can_preempt):
                most = middle
            else:
                least = middle + 1
        return self._ask(asker, moments[most], preempt), moments[most]

    def _ask(self, asker: _Asker, at: float, question: Callable[..., T]) -> T | None:
        """``preempt`` or ``can_preempt`` as of ``at``, if everybody ends by then whose time is up."""
        job, now = asker.job, self._cycle.now
        latest = job.latest_start
        in_time = (
            asker.victims
            if latest is None
            else [each for each in asker.victims if at + self._notice(each.uid) + _PATIENCE <= latest]
        )
        if not in_time:
            return None
        starts = at + max(self._notice(each.uid) for each in in_time) + _PATIENCE
        end = starts + job.lengths(starts)[0]
        available = self._available | (self._left_behind | self._ended_by(at) if at > now else EMPTY)
        ends = self._over_time.ends
        victims = [
            each for each in in_time if each.protected_until <= at and (at <= now or ends.get(each.uid, inf) > at)
        ]
        if not victims:
            return None
        closed = self._closed(at, end)
        options = tuple(replace(option, eligible=option.eligible & ~closed) for option in job.options)
        return question(
            at,
            replace(job, options=options),
            asker.class_value,
            available & ~closed,
            victims,
            self._usage_at(at),
            asker.policy,
            # Where nobody begins who uses some of the same, there is no less room than before.
            [self._usage_at(moment) for moment in self._begins_in(asker.pools) if at < moment < end],
        )

    def _closed(self, at: float, end: float) -> NodeSet:
        """Nodes that a run may not have that preempts at ``at`` and ends at ``end``."""
        cycle, closed = self._cycle, self._reservations.nodes
        for nodes in cycle.returning.values():
            closed |= nodes
        for claim in self._windows:
            if claim.start < end and claim.end > at:
                closed |= claim.nodes
        for promise in self._promises:
            if promise.reservation.start < end:
                closed |= promise.reservation.nodes
        for start in self._before:
            if start.until > at:
                closed |= start.nodes
        return closed

    def _begins_in(self, pools: frozenset[PoolKey]) -> Sequence[float]:
        """When others begin, in order, that use some of these and were promised to."""
        known = self._begins.get(pools)
        if known is None:
            begins = {each.reservation.start for each in self._promises if not each.pools.isdisjoint(pools)}
            known = self._begins[pools] = sorted(begins)
        return known

    def _usage_at(self, at: float) -> PoolUsage:
        """Who uses quota at ``at``, with the promises kept that begin by then."""
        if (known := self._usages.get(at)) is not None:
            return known
        kept = [promise for promise in self._promises if promise.reservation.start <= at]
        sent = frozenset(uid for promise in kept for uid in promise.victims)
        come = [promise.usage for promise in kept if at < promise.reservation.until]
        usage = self._usages[at] = self._over_time.at(at if at > self._cycle.now else -inf, sent, come)
        return usage

    def _ended_by(self, at: float) -> NodeSet:
        """Nodes of those who have ended by then."""
        ends, nodes = self._by_end
        return nodes[bisect_right(ends, at)]

    @cached_property
    def _by_end(self) -> tuple[Sequence[float], Sequence[NodeSet]]:
        """(when each ends, in order; the nodes of the first of them, of none to all)."""
        in_order = sorted(self._running, key=attrgetter("ends"))
        nodes = accumulate((held.nodes for held in in_order), or_, initial=EMPTY)
        return [held.ends for held in in_order], [*nodes]

    @cached_property
    def _moments(self) -> tuple[Sequence[float], Sequence[float]]:
        """In order: when there is somebody more who may go or has ended, and those of them at which one may go."""
        protections = {victim.protected_until for victims in self._victims.values() for victim in victims}
        ends = {held.ends for held in self._running if held.limited}
        return sorted(protections | ends), sorted(protections)

    def _reservation(self, found: Preemption) -> ReservationStatus:
        now = float(int(self._cycle.now))
        ends = [now + self._notice(uid) for uid in found.victims]
        for held in self._running:
            if held.nodes & found.nodes and (entry := self._cycle.entry_of(held.uid)) is not None:
                ends += [entry.run.status.stop.deadline] if entry.run.status.stop is not None else []
        nodes = self._cycle.index.names(found.nodes)
        return reservation_of(nodes, found.victims, now, max(ends) + _PATIENCE)

    def _notice(self, uid: str) -> float:
        """Seconds after which a victim is gone, but for the patience with it."""
        known = self._notices.get(uid)
        if known is None:
            entry = self._cycle.entry_of(uid)
            assert entry is not None
            known = self._notices[uid] = notice_seconds(entry.spec, self._cycle.tunables)
        return known

    @cached_property
    def _victims(self) -> Mapping[str, Sequence[Victim]]:
        """By queue."""
        snapshot, now = self._cycle.snapshot, self._cycle.now
        spoken_for = self._going | self._reservations.victims()
        found: dict[str, list[Victim]] = {}
        for held in self._running:
            entry = self._cycle.entry_of(held.uid)
            if entry is None or held.uid in spoken_for:
                continue
            queue = queue_spec(snapshot, held.queue)
            victim = victim_of(entry.view, held, queue, snapshot.priority_classes, now)
            if victim is not None:
                found.setdefault(victim.queue, []).append(victim)
        return found

    @cached_property
    def _in_cohorts(self) -> Mapping[str, Sequence[str]]:
        """The queues of each that have somebody who could go."""
        found: dict[str, list[str]] = {}
        for queue in self._victims:
            if (cohort := self._rules.cohorts.get(queue)) is not None:
                found.setdefault(cohort, []).append(queue)
        return found

    @cached_property
    def _going(self) -> frozenset[str]:
        """UIDs of those whose nodes and quota come free without anybody's doing."""
        cycle, pods = self._cycle, self._pods_of_deleted
        anyway = {
            held.uid
            for held in self._running
            if (entry := cycle.entry_of(held.uid)) is not None
            and goes_anyway(entry.run, pods.get(held.uid, ()), cycle.now)
        }
        return self._reservations.notified() | anyway

    @cached_property
    def _pods_of_deleted(self) -> Mapping[str, list[PodView]]:
        cycle = self._cycle
        entries = (cycle.entry_of(held.uid) for held in self._running)
        deleted = {entry.run.uid for entry in entries if entry is not None and entry.run.deleting}
        found: dict[str, list[PodView]] = {}
        for pod in cycle.snapshot.gang_pods if deleted else ():
            if pod.run_uid in deleted:
                found.setdefault(pod.run_uid, []).append(pod)
        return found

    @cached_property
    def _available(self) -> NodeSet:
        """Free nodes, and those that are about to be."""
        cycle = self._cycle
        available = cycle.index.everything & ~cycle.cluster.booked
        for ends, nodes in ending_nodes(cycle, cycle.now).items():
            available |= nodes if ends < inf else EMPTY
        for held in self._running:
            if held.uid in self._going:
                available |= held.nodes
        return available

    @cached_property
    def _left_behind(self) -> NodeSet:
        """Nodes that only pods of runs still hold that are over. Nobody knows for how long, but it is not for ever.

        That is not said of a pod that has no more than a copied label.
        """
        cycle, held, nodes = self._cycle, EMPTY, list[str]()
        rows = cycle.run_index.rows
        for uid, pods in cycle.pods_of.items():
            if uid not in rows or is_true(rows[uid].run.status, ConditionType.FINISHED):
                nodes += [pod.node for pod in pods if not pod.is_terminal]
        for running in self._running if nodes else ():
            held |= running.nodes if running.uid else EMPTY
        return cycle.index.mask(nodes) & ~held

    def _standing(self) -> UsageOverTime:
        """Quota as it will be used when those who go are gone and those who are to have their nodes have come."""
        stay = (held for held in self._running if held.uid not in self._going)
        return UsageOverTime(self._rules, [*stay, *self._reservations.holders()])

    def _wake(self, at: float) -> None:
        at = max(at, self._cycle.now + 1.0)
        if at < inf:
            self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


def _promised(job: Job, foreseen: Foreseen) -> Reservation:
    until = foreseen.start + job.lengths(foreseen.start)[0]
    return Reservation(foreseen.at, until, foreseen.option, foreseen.nodes)


def _allows(queue: TrainingQueueSpec) -> bool:
    rules = queue.preemption
    return rules.within_queue != "Never" or rules.reclaim_within_cohort != "Never"
