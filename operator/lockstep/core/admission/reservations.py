"""Reservations of preemptors: nodes kept for a run while its victims leave, from cycle to cycle.

Each step is in status before the next one rests on it: the reservation first; then, in a later cycle that has seen it,
a notice to every victim, which ``decide`` answers with a save and a stop, while the reservation stands; and the start,
which ends it. A reservation that cannot be kept lapses, and a notice that nobody needs is withdrawn while the stop has
not begun.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from math import inf

from lockstep.api.base.changes import changed
from lockstep.api.preemption_status import PreemptionStatus, ReservationStatus
from lockstep.core.admission.cache.entry import Entry, PendingReason, holds_nodes
from lockstep.core.admission.cache.pending_reasons import ASSUMPTION, listed
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.cycle_result import CycleResult, Reservation
from lockstep.core.admission.engine.jobs import NodeClaim, RunningJob
from lockstep.core.admission.engine.preemption import PreemptionPolicy
from lockstep.core.admission.engine.quota import QuotaBook, QuotaRules
from lockstep.core.admission.queueing.holds import queue_spec
from lockstep.core.admission.victims import class_value, is_leaving, newest_step, notice_seconds, victims_value
from lockstep.core.model.conditions import find
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.plan import Event
from lockstep.core.model.reasons import ActionWord, ConditionType, EventReason, PreemptionReason, WaitReason
from lockstep.core.model.reservation import is_unread, spilled
from lockstep.core.model.run_queue import queue_of


class Reservations:
    """Those in status that stand. What is decided is written into the entries."""

    def __init__(self, waiting: Iterable[RunRow], cycle: CycleState) -> None:
        """Those that cannot stand lapse here."""
        self._cycle = cycle
        self._notified: list[Entry] = []
        self._standing: dict[str, NodeSet] = {}
        self._kept: dict[str, Reservation] = {}
        with_one = [row.entry for uid, row in cycle.run_index.reserving.items() if uid not in cycle.busy]
        if not with_one:
            return
        waits = {row.uid for row in waiting}
        for entry in sorted(with_one, key=_since):
            reservation = entry.status.reservation
            assert reservation is not None
            if is_unread(reservation):
                continue
            nodes = cycle.index.mask(reservation.nodes)
            why = self._flaw(entry, reservation, nodes) if entry.run.uid in waits else _no_longer_waits(entry)
            if why:
                self._lapse(entry, why)
            else:
                self._standing[entry.run.uid] = nodes

    def _entry(self, uid: str) -> Entry:
        """Of one that is kept for, about whom every cycle decides."""
        entry = self._cycle.entry_of(uid)
        assert entry is not None
        return entry

    @property
    def nodes(self) -> NodeSet:
        """All that are kept for somebody."""
        kept = EMPTY
        for nodes in self._standing.values():
            kept |= nodes
        return kept

    def claims(self) -> tuple[NodeClaim, ...]:
        """What is kept, for the engine."""
        return tuple(NodeClaim(self._cycle.now, inf, nodes, uid) for uid, nodes in self._standing.items())

    def expected(self, running: Sequence[RunningJob]) -> Sequence[RunningJob]:
        """``running`` with the victims gone by the deadline, be they notified already or not."""
        if not self._standing:
            return running
        victims = ((victim, uid) for uid in self._standing for victim in self._of(uid).victims)
        gone = {victim: uid for victim, uid in victims if self._is_there(victim, uid)}
        return [self._yielding(run, gone[run.uid]) if run.uid in gone else run for run in running]

    def _yielding(self, run: RunningJob, uid: str) -> RunningJob:
        ends = min(run.ends, self._expires(self._of(uid)))
        return replace(run, ends=ends, limited=True, yields_to=uid)

    def review(self, result: CycleResult) -> None:
        """Whoever has started is done; what can no longer hold its run lapses."""
        started = {start.uid for start in result.starts} if self._standing else set()
        for uid, nodes in list(self._standing.items()):
            wait = result.waits.get(uid)
            if uid in started:
                del self._standing[uid]
            elif wait is not None and wait.reservation is not None and wait.reservation.nodes == nodes:
                self._kept[uid] = wait.reservation
            elif wait is not None:
                del self._standing[uid]
                self._lapse(self._entry(uid), "its nodes can no longer hold it")

    def victims(self) -> frozenset[str]:
        """UIDs of all victims."""
        return frozenset(victim for uid in self._standing for victim in self._of(uid).victims)

    def notified(self) -> frozenset[str]:
        """Victims that have been given notice: the others may not be needed in the end, and stay."""
        found = ((uid, self._cycle.entry_of(uid)) for uid in self.victims())
        return frozenset(uid for uid, entry in found if entry is not None and entry.status.preemption is not None)

    def queues(self) -> set[str]:
        """Queues that have one. There is one for each at most."""
        return {self._entry(uid).spec.queue for uid in self._standing}

    def holders(self, *, before: str = "") -> list[RunningJob]:
        """Whoever a reservation is kept for, as if it ran already; only of those made before that of ``before``."""
        made = takewhile(lambda uid: uid != before, self._standing)
        return [
            RunningJob(uid, self._entry(uid).spec.queue, kept.option.gpu_type, kept.nodes, kept.option.count, inf)
            for uid in made
            if (kept := self._kept.get(uid)) is not None
        ]

    @property
    def wake_at(self) -> float | None:
        """When the first of them is to be checked again at the latest."""
        return min((self._expires(self._of(uid)) + 1.0 for uid in self._standing), default=None)

    def make(self, entry: Entry, reservation: ReservationStatus) -> None:
        """Write a new one; it takes effect when it has been seen in status."""
        run = entry.run
        reservation, spill = spilled(reservation, run.namespace, run.name, run.uid)
        entry.status = changed(entry.status, reservation=reservation)
        entry.config_maps += (spill,) if spill is not None else ()
        names = self._cycle.names_for(entry)
        count = len(reservation.nodes)
        kept = f"{count} node{'' if count == 1 else 's'} kept for it"
        words = f"{kept}, by preemption of {listed(reservation.victims, names)}"
        entry.events.append(Event("Normal", EventReason.NODES_RESERVED, ActionWord.PREEMPT, words))

    def notify_victims(self, running: Sequence[RunningJob], rules: QuotaRules) -> None:
        """Give notice to the victims that are still in the way. The reservations have been seen in status."""
        if self._cycle.snapshot.leadership.disruption:
            return
        going = set(self.notified())
        for uid in self._standing:  # each was made beside those before it
            if (kept := self._kept.get(uid)) is None:
                continue
            for victim in self._in_the_way(uid, kept, running, rules, going):
                going.add(victim)
                entry = self._cycle.entry_of(victim) if uid not in self._cycle.run_index.unjudged else None
                if entry is not None and entry.status.preemption is None and entry.status.stop is None:
                    self._give_notice(entry, self._entry(uid))

    def withdraw(self) -> None:
        """Withdraw notices that no reservation needs any more, unless the victim's stop has begun."""
        noticed = [row.entry for uid, row in self._cycle.run_index.noticed.items() if uid not in self._cycle.busy]
        for entry in (*noticed, *self._notified):
            notice = entry.status.preemption
            if notice is None or entry.status.stop is not None or notice.by in self._cycle.snapshot.in_flight:
                continue
            by = self._cycle.entry_of(notice.by)
            reservation = by.status.reservation if by is not None else None
            if is_unread(reservation) or (reservation is not None and entry.run.uid in reservation.victims):
                continue
            entry.status = changed(entry.status, preemption=None)
            if holds_nodes(entry.run):
                words = f"it is not preempted for {notice.name or 'another run'} any more"
                entry.events.append(Event("Normal", EventReason.PREEMPTION_WITHDRAWN, ActionWord.PREEMPT, words))

    def keeps_for(self, uid: str) -> bool:
        """This run has a reservation whose victims leave."""
        return uid in self._kept

    def reason(self, uid: str, names: Mapping[str, str]) -> PendingReason | None:
        """The pending reason of a preemptor; None: it has no reservation."""
        kept = self._kept.get(uid)
        if kept is None:
            return None
        victims = tuple(victim for victim in self._of(uid).victims if self._is_there(victim, uid))
        count = kept.nodes.bit_count()
        words = f"{count} node{'' if count == 1 else 's'} {'is' if count == 1 else 'are'} kept for it"
        words += f", by preemption of {listed(victims, names)}" if victims else ", of which some are being cleared"
        start = kept.start if kept.known else None
        return PendingReason(WaitReason.PREEMPTING, words, victims, start, ASSUMPTION if kept.known else "")

    def _flaw(self, entry: Entry, reservation: ReservationStatus, nodes: NodeSet) -> str:
        """Why the reservation of a pending run cannot stand; empty: it can."""
        cycle = self._cycle
        if not reservation.nodes:
            return "its record was lost"
        if nodes.bit_count() < len(reservation.nodes):
            return "a node of it is no longer there"
        if nodes & self.nodes:
            return "an earlier one has some of its nodes"
        if cycle.now > self._expires(reservation):
            return "its nodes did not come free in time"
        if (victim := self._no_longer_allowed(entry, reservation)) is not None:
            who = listed((victim.run.uid,), cycle.names_for(entry))
            return f"the rules of queue {entry.spec.queue} no longer let it send {who} away"
        victims = {*reservation.victims}
        for uid, other in cycle.run_index.holding.items():
            makes_room = uid in victims or other.noticed or is_leaving(other.run)
            if not makes_room and uid not in cycle.busy and cycle.held(other.run) & nodes:
                return "a node of it went to a gang that had lost one"
        return ""

    def _no_longer_allowed(self, entry: Entry, reservation: ReservationStatus) -> Entry | None:
        """A victim that has not been notified yet, and that the queues' rules protect by now."""
        snapshot, queue = self._cycle.snapshot, entry.spec.queue
        mine, value = queue_spec(snapshot, queue), class_value(entry.spec, snapshot.priority_classes)
        policy = PreemptionPolicy(mine.preemption.within_queue, mine.preemption.reclaim_within_cohort)
        for uid in reservation.victims:
            victim = self._cycle.entry_of(uid)
            if victim is None or victim.status.preemption is not None or not holds_nodes(victim.run):
                continue
            if is_leaving(victim.run):
                continue
            whose = queue_of(victim.view)
            near = whose == queue or (mine.cohort is not None and mine.cohort == queue_spec(snapshot, whose).cohort)
            if value is None or not near or victim.run.spec is None:  # of a spec that nobody can read, nor is a class
                return victim
            if not policy.allows(queue, value, whose, victims_value(victim.spec, snapshot.priority_classes)):
                return victim
        return None

    def _expires(self, reservation: ReservationStatus) -> float:
        """A new leader gives it all of its time again: nobody may have acted in between."""
        span = reservation.deadline - reservation.time
        return max(reservation.deadline, self._cycle.snapshot.leadership.since + span)

    def _lapse(self, entry: Entry, why: str) -> None:
        entry.status = changed(entry.status, reservation=None)
        if not entry.run.deleting:
            entry.events.append(
                Event(
                    "Normal", EventReason.RESERVATION_LAPSED, ActionWord.PREEMPT, f"no nodes are kept any more: {why}"
                )
            )

    def _of(self, uid: str) -> ReservationStatus:
        reservation = self._entry(uid).status.reservation
        assert reservation is not None
        return reservation

    def _in_the_way(
        self, uid: str, kept: Reservation, running: Sequence[RunningJob], rules: QuotaRules, leaving: Collection[str]
    ) -> Iterable[str]:
        """Victims whose nodes are needed, and as many others as the quotas still lack once those are gone who are
        ``leaving``. Were all victims of others counted on, each might wait for the others'."""
        victims = self._of(uid).victims
        there = [victim for victim in victims if self._is_there(victim, uid)]
        held = {run.uid: run.nodes for run in running}
        going = [victim for victim in there if held.get(victim, EMPTY) & kept.nodes]
        gone = {*going, *leaving}
        queue, option = self._entry(uid).spec.queue, kept.option
        for victim in there:
            usage = [*(run for run in running if run.uid not in gone), *self.holders(before=uid)]
            if QuotaBook(rules, self._cycle.now, usage).refusal(queue, option.gpu_type, option.count) is None:
                break
            if victim not in gone:
                going.append(victim)
                gone.add(victim)
        return going

    def _is_there(self, victim: str, uid: str) -> bool:
        """It holds nodes still, and not anew: a victim that left may be back elsewhere."""
        entry = self._cycle.entry_of(victim)
        if entry is None or not holds_nodes(entry.run):
            return False
        admitted = entry.run.status.last_admitted
        return admitted is None or admitted <= self._of(uid).time

    def _give_notice(self, victim: Entry, holder: Entry) -> None:
        cycle, now = self._cycle, float(int(self._cycle.now))
        name = cycle.names_for(victim).get(holder.run.uid, "")
        deadline = now + notice_seconds(victim.spec, cycle.tunables)
        notice = PreemptionStatus(
            by=holder.run.uid,
            name=name,
            reason=PreemptionReason.WITHIN_QUEUE
            if queue_of(victim.view) == holder.spec.queue
            else PreemptionReason.RECLAIM,
            notice_time=now,
            deadline=deadline,
            saved_at_least=newest_step(victim.status),
        )
        victim.status = changed(victim.status, preemption=notice)
        self._notified.append(victim)
        words = f"it is preempted for {name or 'another run'}: it saves, gives its nodes back and queues again"
        victim.events.append(Event("Normal", EventReason.PREEMPTION_NOTICE, ActionWord.PREEMPT, words))


def _since(entry: Entry) -> tuple[float, str]:
    reservation = entry.status.reservation
    return reservation.time if reservation is not None else 0.0, entry.run.uid


def _no_longer_waits(entry: Entry) -> str:
    accepted = find(entry.status, ConditionType.ACCEPTED)
    if accepted is not None and accepted.status == "False":
        return "as it is now it is not accepted"
    return f"it is held back ({entry.reason.word})" if entry.reason is not None else "it does not wait any more"
