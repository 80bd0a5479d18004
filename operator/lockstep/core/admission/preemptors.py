"""Who of those that wait may send others away: the first of each queue, if its queue's rules allow it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lockstep.api.preemption_status import ReservationStatus
from lockstep.api.queue import TrainingQueueSpec
from lockstep.core.admission.candidates import ENDING
from lockstep.core.admission.entry import Entry
from lockstep.core.admission.floor import Floor
from lockstep.core.admission.holds import queue_spec
from lockstep.core.admission.jobs import Claim, Job, Running
from lockstep.core.admission.outlook import Outlook, Reservation, Start
from lockstep.core.admission.preemption import Preemption, PreemptionPolicy, Victim, preempt
from lockstep.core.admission.quota import QuotaRules
from lockstep.core.admission.reservations import Reservations
from lockstep.core.admission.victims import class_value, goes_anyway, is_ending_in_time, notice_seconds, victim_of
from lockstep.core.reservation import reservation_of
from lockstep.core.snapshot import ClusterSnapshot, PodView

_WAITS = ("Resources", "Quota", "RunningRunsLimit")
_PATIENCE = 2 * ENDING
"""Seconds beyond the victims' own deadlines: for the passes in between, and for the last pod."""


def may_preempt(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Queues whose rules let their runs send others away."""
    return frozenset(name for name, view in snapshot.queues.items() if _allows(view.spec))


@dataclass(frozen=True, slots=True)
class Found:
    """A run that may, and what it is to have. ``before``: the starts that come before it in the order."""

    entry: Entry
    reservation: ReservationStatus
    before: tuple[Start, ...]


class Preemptors:
    """The view of one pass before anybody starts. ``wake_at``: when somebody loses its protection."""

    def __init__(
        self,
        entries: Sequence[Entry],
        floor: Floor,
        reservations: Reservations,
        rules: QuotaRules,
        running: Sequence[Running],
        windows: Sequence[Claim],
    ) -> None:
        self._entries = {entry.run.uid: entry for entry in entries}
        self._floor = floor
        self._reservations = reservations
        self._rules = rules
        self._running = running
        self._windows = windows
        self._before: list[tuple[Start, str]] = []
        self.wake_at: float | None = None

    def first(self, waiting: Sequence[tuple[Entry, Job]], outlook: Outlook) -> Found | None:
        """Who may, first in order. One at a time: each changes what others find.

        Only those who start before it in the order have their nodes: were free nodes given to others first, which then
        are protected for a while, it might wait for ever.
        """
        snapshot = self._floor.snapshot
        allowed = may_preempt(snapshot)
        if not allowed or snapshot.leadership.disruption:
            return None
        starts = {start.uid: start for start in outlook.starts}
        passed = self._reservations.queues()
        promised: list[Reservation] = []
        self._before = []
        for entry, job in waiting:
            start, wait = starts.get(job.uid), outlook.waits.get(job.uid)
            if start is not None:
                self._before.append((start, job.queue))
            if wait is None or wait.reservation is None:
                continue
            if job.queue not in passed:
                passed.add(job.queue)
                if job.queue in allowed and wait.kind in _WAITS:
                    found = self._preemption(entry, job, promised)
                    if found is not None:
                        return Found(entry, self._reservation(found), tuple(start for start, _ in self._before))
            if wait.reservation.known:  # where nobody knows when, nothing was promised
                promised.append(wait.reservation)
        return None

    def _preemption(self, entry: Entry, job: Job, promised: Sequence[Reservation]) -> Preemption | None:
        floor = self._floor
        value = class_value(entry.spec, floor.snapshot.priority_classes)
        if value is None or not self._victims:
            return None
        starts = floor.now + self._longest_notice
        end = starts + job.lengths(starts)[0]
        if job.latest_end is not None and end > job.latest_end:
            return None
        closed = self._reservations.nodes
        for nodes in floor.returning.values():
            closed |= nodes
        for claim in self._windows:
            if claim.start < end and claim.end > floor.now:
                closed |= claim.nodes
        for reservation in promised:
            if reservation.start < end:
                closed |= reservation.nodes
        usage = list(self._usage)
        for start, queue in self._before:
            closed |= start.nodes
            option = start.option
            usage.append(Running(start.uid, queue, option.gpu_type, start.nodes, option.count, start.until))
        options = tuple(replace(option, eligible=option.eligible & ~closed) for option in job.options)
        rules = queue_spec(floor.snapshot, job.queue).preemption
        policy = PreemptionPolicy(rules.within_queue, rules.reclaim_within_cohort)
        asking = replace(job, options=options)
        available = self._available & ~closed
        found = preempt(floor.now, asking, value, available, self._victims, usage, self._rules, policy)
        if found is None:
            protected = [each.protected_until for each in self._victims if each.protected_until > floor.now]
            if protected:
                self.wake_at = max(min(protected), floor.now + 1.0)
        return found

    def _reservation(self, found: Preemption) -> ReservationStatus:
        now = float(int(self._floor.now))
        ends = [now + self._notice(self._entries[uid]) for uid in found.victims]
        for held in self._running:
            if held.nodes & found.nodes and (entry := self._entries.get(held.uid)) is not None:
                ends += [entry.run.status.stop.deadline] if entry.run.status.stop is not None else []
        nodes = self._floor.index.names(found.nodes)
        return reservation_of(nodes, found.victims, now, max(ends) + _PATIENCE)

    def _notice(self, entry: Entry) -> float:
        return notice_seconds(entry.spec, self._floor.tunables.deadlines.stop)

    @cached_property
    def _longest_notice(self) -> float:
        """Seconds after which whoever is sent away is gone."""
        return max(self._notice(self._entries[victim.uid]) for victim in self._victims) + _PATIENCE

    @cached_property
    def _victims(self) -> list[Victim]:
        snapshot, now = self._floor.snapshot, self._floor.now
        found = []
        for held in self._running:
            entry = self._entries.get(held.uid)
            if entry is None or held.uid in self._going:
                continue
            queue = queue_spec(snapshot, held.queue)
            victim = victim_of(entry.view, held, queue, snapshot.priority_classes, now)
            if victim is not None:
                found.append(victim)
        return found

    @cached_property
    def _going(self) -> frozenset[str]:
        """UIDs of those whose nodes and quota come free without anybody's doing."""
        pods = self._pods_of_deleted
        anyway = {
            held.uid
            for held in self._running
            if (entry := self._entries.get(held.uid)) is not None
            and goes_anyway(entry.run, pods.get(held.uid, ()), self._floor.now)
        }
        return self._reservations.victims() | anyway

    @cached_property
    def _pods_of_deleted(self) -> Mapping[str, list[PodView]]:
        deleted = {uid for uid, entry in self._entries.items() if entry.run.deleting}
        found: dict[str, list[PodView]] = {}
        for pod in self._floor.snapshot.gang_pods if deleted else ():
            if pod.run_uid in deleted:
                found.setdefault(pod.run_uid, []).append(pod)
        return found

    @cached_property
    def _available(self) -> int:
        """Free nodes, and those that are about to be."""
        floor = self._floor
        available = floor.index.everything & ~floor.cluster.booked
        lasting = [pod.node for pod in floor.snapshot.gang_pods if not (pod.is_terminal or self._ends(pod))]
        available |= floor.cluster.ending & ~floor.index.mask(lasting)
        for held in self._running:
            if held.uid in self._going:
                available |= held.nodes
        return available

    def _ends(self, pod: PodView) -> bool:
        return is_ending_in_time(pod, self._floor.now)

    @cached_property
    def _usage(self) -> list[Running]:
        """Quota as it will be used when those who go are gone and those who are to have their nodes have come."""
        stay = [held for held in self._running if held.uid not in self._going]
        return [*stay, *self._reservations.holders()]


def _allows(queue: TrainingQueueSpec) -> bool:
    rules = queue.preemption
    return rules.within_queue != "Never" or rules.reclaim_within_cohort != "Never"
