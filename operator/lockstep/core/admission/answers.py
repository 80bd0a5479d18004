"""What those who wait are told, and when each of them is to be told something.

In most passes most of them wait for what they waited for before, at the same position: that is seen in passing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lockstep.api.run_status import QueueStatus
from lockstep.core.admission.entry import Entry, Reason
from lockstep.core.admission.floor import Floor
from lockstep.core.admission.group import Group
from lockstep.core.admission.jobs import Claim, Job
from lockstep.core.admission.outlook import Foreseen, Wait
from lockstep.core.admission.reasons import (
    ASSUMPTION,
    names_of,
    preempts_later,
    reason_of,
    told,
    urgency,
    visible_names,
)
from lockstep.core.admission.reservations import Reservations
from lockstep.core.admission.roll import Row
from lockstep.core.ground import Ground
from lockstep.core.placement import shortage


@dataclass(frozen=True, slots=True)
class Known:
    """What reasons tell of beside the wait itself: who makes room for whom, now or later, and maintenance."""

    reservations: Reservations
    foreseen: Mapping[str, Foreseen]
    claims: Sequence[Claim]

    def promises(self, uid: str) -> bool:
        """There is something to tell this run that holds for no other."""
        return uid in self.foreseen or self.reservations.keeps_for(uid)


class Answers:
    """Reasons of one pass. ``wake_at``: when the next of them is to be told."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._rules = floor.memory.rules
        self._keys = floor.roll.keys
        self._settings = floor.tunables.admission
        self._due: list[tuple[float, tuple[float, str], Entry]] = []
        self._shortages: dict[object, tuple[str, bool]] = {}
        self.wake_at: float | None = None

    def find(
        self,
        waiting: Sequence[Row],
        waits: Mapping[str, Wait],
        estimates: Mapping[str, float],
        known: Known,
    ) -> None:
        """Why each of ``waiting`` waits, at which position of its queue; those without a wait got nodes."""
        positions: dict[str, int] = {}
        said: dict[Group, tuple[Wait, Reason]] = {}
        now, wake_at = self._floor.now, self.wake_at
        for row in waiting:
            uid = row.uid
            wait = waits.get(uid)
            if wait is None:
                continue
            position = positions[row.queue] = positions.get(row.queue, 0) + 1
            group = row.group
            assert group is not None
            alike = said.get(group)
            if alike is not None and alike[0] is wait:
                reason = alike[1]
            else:
                own = known.promises(uid)
                reason = self._reason(row.entry, row.wanted, wait, known) if own else self._reason_of(row, wait, known)
                if not own:
                    said[group] = wait, reason
            if uid in estimates and reason.start is None and reason.word != "Placement":
                reason = replace(reason, start=estimates[uid], assumption=ASSUMPTION)
            entry = row.entry
            entry.reason, entry.position = reason, position
            before = row.said
            if before is None or before[1] != position or (before[0] is not reason and before[0] != reason):
                self._look(row, reason)
            due = row.due
            if due is not None:
                if due <= now:
                    self._due.append((due, row.place, entry))
                elif wake_at is None or due < wake_at:
                    wake_at = due
        self.wake_at = wake_at

    def hold(self, row: Row, reason: Reason) -> None:
        """A run is held back for ``reason``, or lacks nodes that it had."""
        entry, rules = row.entry, self._rules.of(row.queue)
        if row.rules is not rules:
            row.rules, row.said = rules, None
        entry.reason, entry.position = reason, 0
        before = row.said
        if before is None or before[1] or before[0] != reason:
            self._look(row, reason)
        if row.due is not None and row.due <= self._floor.now:
            self._due.append((row.due, row.place, entry))
        elif row.due is not None:
            self._wake(row.due)

    def tell(self) -> None:
        """Write the status of those who are to be told something: new reasons first, then who has not heard for
        longest."""
        now, most = self._floor.now, self._settings.told_per_pass
        self._due.sort()
        if len(self._due) > most:
            self._wake(now + 1.0)
        for *_, entry in self._due[:most]:
            assert entry.reason is not None
            say(entry, told(entry, self._named(entry, entry.reason), now), now)

    def shortage(self, entry: Entry, job: Job, wait: Wait) -> tuple[str, bool]:
        """In words what nodes lack, and whether an idle and healthy cluster would lack them too."""
        if wait.kind != "Resources":
            return "", False
        group = self._floor.roll.rows[entry.run.uid].group
        assert group is not None
        key = (group.wish, group.rules.ground) if group.shared else None
        known = self._shortages.get(key) if key is not None else None
        if known is None:
            requirement = self._floor.requirements(entry, group)[-1]
            ground = Ground.of(self._floor.index, requirement, entry.spec.placement)
            cluster = self._floor.cluster
            count = min((option.count for option in job.options), default=entry.spec.nodes)
            hopeless = ground.is_hopeless(entry.spec.nodes) and ground.is_hopeless(count)
            known = shortage(ground, entry.spec.nodes, 0, cluster.booked, cluster.ending), hopeless
            if key is not None:
                self._shortages[key] = known
        return known

    def _reason_of(self, row: Row, wait: Wait, known: Known) -> Reason:
        """That of everybody in its group; the same object for as long as there is nothing else to say."""
        group = row.group
        assert group is not None
        lacks = self.shortage(row.entry, row.wanted, wait)
        heard = group.heard
        lasts = wait.kind != "Window"  # the words of that tell when the window begins
        if heard is not None and lasts and heard[1] is group.options and heard[2] == lacks and heard[0] == wait:
            return heard[3]
        reason = self._reason(row.entry, row.wanted, wait, known)
        if heard is not None and heard[3] == reason:
            reason = heard[3]
        group.heard = wait, group.options, lacks, reason
        return reason

    def _reason(self, entry: Entry, job: Job, wait: Wait, known: Known) -> Reason:
        lacking, hopeless = self.shortage(entry, job, wait)
        visible = visible_names(entry, self._rules.of(job.queue).spec, self._keys)
        reason = known.reservations.reason(job.uid, visible)
        reason = reason or reason_of(entry, job, wait, lacking, visible, known.claims)
        if job.uid in known.foreseen:
            reason = preempts_later(reason, known.foreseen[job.uid], visible)
        reason.named = names_of(reason.blockers, visible)
        if hopeless:
            reason.word = "Placement"
        return reason

    def _look(self, row: Row, reason: Reason) -> None:
        entry = row.entry
        row.said = reason, entry.position
        row.due = urgency(entry, reason, self._named(entry, reason), self._settings)

    def _named(self, entry: Entry, reason: Reason) -> tuple[str, ...]:
        """The runs in the way, as far as this one may hear of them."""
        if reason.named is None:
            rules = self._rules.of(entry.spec.queue).spec
            visible = visible_names(entry, rules, self._keys) if reason.blockers else {}
            reason.named = names_of(reason.blockers, visible)
        return reason.named

    def _wake(self, at: float) -> None:
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


def say(entry: Entry, words: QueueStatus, now: float) -> None:
    """Tell a run what it waits for, or that it waits for nothing any more."""
    entry.status = entry.status.model_copy(update={"queue": words})
    if entry.reason is None:
        return
    admission = entry.status.admission
    if admission.since is None and entry.position:
        entry.remember(since=waits_since(entry, float(int(now))))
    if entry.reason.start is not None and admission.first_estimate is None:
        entry.remember(first_estimate=float(int(entry.reason.start)))


def waits_since(entry: Entry, stamp: float) -> float:
    """Since when it waits for nothing but its turn: since it was made, gave its nodes back, or was let go."""
    known = entry.status.admission.since
    if known is not None:
        return known
    held = bool(entry.status.attempt or entry.run.status.queue.reason)
    return stamp if held else float(int(entry.run.created_at))
