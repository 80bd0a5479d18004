"""Who of those that wait may send others away, now or later: the first of each queue, if its queue's rules allow it.

Where those in the way are still protected (``minRuntime``), the run is promised their nodes from the first moment at
which enough of them may go. Were others let in there for longer, and protected in turn, it might wait for ever.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import TypeVar

from lockstep.api.preemption_status import ReservationStatus
from lockstep.api.queue import TrainingQueueSpec
from lockstep.core.admission.candidates import ENDING
from lockstep.core.admission.entry import Entry
from lockstep.core.admission.floor import Floor
from lockstep.core.admission.holds import queue_spec
from lockstep.core.admission.jobs import Claim, Job, Running
from lockstep.core.admission.outlook import Foreseen, Outlook, Reservation, Start, Wait
from lockstep.core.admission.preemption import Preemption, PreemptionPolicy, Victim, can_preempt, preempt
from lockstep.core.admission.quota import QuotaRules
from lockstep.core.admission.reservations import Reservations
from lockstep.core.admission.victims import class_value, goes_anyway, is_ending_in_time, notice_seconds, victim_of
from lockstep.core.conditions import is_true
from lockstep.core.reservation import reservation_of
from lockstep.core.snapshot import ClusterSnapshot, PodView

T = TypeVar("T")

_WAITS = ("Resources", "Quota", "RunningRunsLimit")
_PATIENCE = 2 * ENDING
"""Seconds beyond the victims' own deadlines: for the passes in between, and for the last pod."""


def may_preempt(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Queues whose rules let their runs send others away."""
    return frozenset(name for name, view in snapshot.queues.items() if _allows(view.spec))


@dataclass(frozen=True, slots=True)
class Found:
    """A run that may, and what it is to have. ``before``: the starts that nothing here has a say in."""

    entry: Entry
    reservation: ReservationStatus
    before: tuple[Start, ...]


@dataclass(frozen=True, slots=True)
class _Promise:
    """What somebody before it in the order is to have, and who is gone by then for its sake."""

    job: Job
    reservation: Reservation
    victims: tuple[str, ...] = ()


class Preemptors:
    """The view of one pass before anybody starts.

    ``foreseen``: by UID, who may send others away later. ``wake_at``: when somebody loses its protection.
    """

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
        self._promises: list[_Promise] = []
        self.foreseen: dict[str, Foreseen] = {}
        self.wake_at: float | None = None

    def first(
        self, waiting: Sequence[tuple[Entry, Job]], outlook: Outlook, known: Mapping[str, Foreseen]
    ) -> Found | None:
        """Who may now, first in order. One at a time: each changes what others find. ``known``: who was found to may
        later, by whom ``outlook`` is bound.

        Only those who start before it in the order have their nodes: were free nodes given to others first, which then
        are protected for a while, it might wait for ever.
        """
        snapshot = self._floor.snapshot
        allowed = may_preempt(snapshot)
        if not allowed or snapshot.leadership.disruption:
            return None
        starts = {start.uid: start for start in outlook.starts}
        passed = self._reservations.queues()
        # Whoever has its nodes kept for it takes them, wherever it stands in the order.
        kept = {entry.run.uid for entry, _ in waiting if entry.status.reservation is not None}
        self._before = [(starts[job.uid], job.queue) for _, job in waiting if job.uid in starts and job.uid in kept]
        begun = [start for start, _ in self._before]
        for entry, job in waiting:
            start, wait = starts.get(job.uid), outlook.waits.get(job.uid)
            if start is not None and job.uid not in kept:
                self._before.append((start, job.queue))
                begun += [] if self.foreseen else [start]
            if wait is None or wait.reservation is None or job.uid in kept:
                continue
            later: Foreseen | None = None
            if job.queue not in passed:
                passed.add(job.queue)
                later = known.get(job.uid)
                if later is None and job.queue in allowed and wait.kind in _WAITS:
                    found = self._ask(entry, job, self._floor.now, preempt)
                    if found is not None:
                        return Found(entry, self._reservation(found), tuple(begun))
                    later = self._later(entry, job, wait)
            if later is not None:
                self.foreseen[job.uid] = later
                self._promises.append(_Promise(job, _promised(job, later), later.victims))
            elif wait.reservation.known:  # where nobody knows when, nothing was promised
                self._promises.append(_Promise(job, wait.reservation))
        return None

    def _later(self, entry: Entry, job: Job, wait: Wait) -> Foreseen | None:
        """What the job can have by sending others away later, unless it gets as much as soon without."""
        now, known = self._floor.now, wait.reservation is not None and wait.reservation.known
        before = wait.reservation.start if known and wait.reservation is not None else inf
        protections = {each.protected_until for each in self._victims}
        ends = {held.ends for held in self._running if held.limited}
        moments = sorted(moment for moment in protections | ends if now < moment < before)
        found, at = self._earliest(entry, job, moments)
        if found is None:
            soon = [moment for moment in protections if moment > now]
            self._wake(min(soon, default=inf))
            return None
        self._wake(at)
        start = at + max(self._notice(self._entries[uid]) for uid in found.victims) + _PATIENCE
        return Foreseen(at, start, found.option, found.nodes, found.victims) if start < before else None

    def _earliest(self, entry: Entry, job: Job, moments: Sequence[float]) -> tuple[Preemption | None, float]:
        """The first moment at which enough of them may go: more of them may at each moment, as others have ended."""
        least, step, most = 0, 1, len(moments) - 1
        while least <= most:
            index = min(least + step - 1, most)
            if self._ask(entry, job, moments[index], can_preempt):
                break
            least, step = index + 1, 2 * step
        else:
            return None, inf
        most = index
        while least < most:
            middle = (least + most) // 2
            if self._ask(entry, job, moments[middle], can_preempt):
                most = middle
            else:
                least = middle + 1
        return self._ask(entry, job, moments[most], preempt), moments[most]

    def _ask(self, entry: Entry, job: Job, at: float, question: Callable[..., T]) -> T | None:
        """``preempt`` or ``can_preempt`` as of ``at``, if everybody ends by then whose time is up."""
        floor = self._floor
        value = class_value(entry.spec, floor.snapshot.priority_classes)
        if value is None or not self._victims:
            return None
        starts = at + self._longest_notice
        end = starts + job.lengths(starts)[0]
        if job.latest_end is not None and end > job.latest_end:
            return None
        available, gone = self._available | (self._left_behind if at > floor.now else 0), set[str]()
        for held in self._running:
            if floor.now < at and held.ends <= at:
                available |= held.nodes
                gone.add(held.uid)
        closed = self._closed(at, end)
        begins = {promise.reservation.start for promise in self._promises}
        options = tuple(replace(option, eligible=option.eligible & ~closed) for option in job.options)
        rules = queue_spec(floor.snapshot, job.queue).preemption
        return question(
            at,
            replace(job, options=options),
            value,
            available & ~closed,
            [each for each in self._victims if each.uid not in gone],
            self._used_at(at),
            self._rules,
            PreemptionPolicy(rules.within_queue, rules.reclaim_within_cohort),
            [self._used_at(moment) for moment in sorted(begins) if at < moment < end],
        )

    def _closed(self, at: float, end: float) -> int:
        """Nodes that a run may not have that sends others away at ``at`` and ends at ``end``."""
        floor, closed = self._floor, self._reservations.nodes
        for nodes in floor.returning.values():
            closed |= nodes
        for claim in self._windows:
            if claim.start < end and claim.end > at:
                closed |= claim.nodes
        for promise in self._promises:
            if promise.reservation.start < end:
                closed |= promise.reservation.nodes
        for start, _ in self._before:
            if start.until > at:
                closed |= start.nodes
        return closed

    def _used_at(self, at: float) -> list[Running]:
        """Who uses quota at ``at``, with the promises kept that begin by then."""
        kept = [promise for promise in self._promises if promise.reservation.start <= at]
        sent = {uid for promise in kept for uid in promise.victims}
        used = [held for held in self._usage if held.uid not in sent and (held.ends > at or at <= self._floor.now)]
        for promise in kept:
            job, reserved = promise.job, promise.reservation
            if at < reserved.until:
                option = reserved.option
                used.append(Running(job.uid, job.queue, option.gpu_type, 0, option.count, reserved.until))
        return used

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
        spoken_for = self._going | self._reservations.victims()
        found = []
        for held in self._running:
            entry = self._entries.get(held.uid)
            if entry is None or held.uid in spoken_for:
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
        return self._reservations.told() | anyway

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

    @cached_property
    def _left_behind(self) -> int:
        """Nodes that only pods of runs still hold that are over. Nobody knows for how long, but it is not for ever.

        That is not said of a pod that has no more than a copied label.
        """
        floor, held = self._floor, 0
        live = {uid for uid, row in floor.roll.rows.items() if not is_true(row.run.status, "Finished")}
        left = [pod for pod in floor.snapshot.gang_pods if pod.run_uid not in live and not pod.is_terminal]
        for running in self._running:
            held |= running.nodes if running.uid else 0
        return floor.index.mask([pod.node for pod in left if pod.owner_uid == pod.run_uid]) & ~held

    def _ends(self, pod: PodView) -> bool:
        return is_ending_in_time(pod, self._floor.now)

    @property
    def _usage(self) -> list[Running]:
        """Quota as it will be used when those who go are gone and those who are to have their nodes have come."""
        return [
            *self._staying,
            *(
                Running(start.uid, queue, start.option.gpu_type, start.nodes, start.option.count, start.until)
                for start, queue in self._before
            ),
        ]

    @cached_property
    def _staying(self) -> list[Running]:
        stay = [held for held in self._running if held.uid not in self._going]
        return [*stay, *self._reservations.holders()]

    def _wake(self, at: float) -> None:
        at = max(at, self._floor.now + 1.0)
        if at < inf:
            self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


def _promised(job: Job, foreseen: Foreseen) -> Reservation:
    until = foreseen.start + job.lengths(foreseen.start)[0]
    return Reservation(foreseen.at, until, foreseen.option, foreseen.nodes)


def _allows(queue: TrainingQueueSpec) -> bool:
    rules = queue.preemption
    return rules.within_queue != "Never" or rules.reclaim_within_cohort != "Never"
