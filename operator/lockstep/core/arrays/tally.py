"""What is known of each index of a set: from the runs that are there, from those seen to go, and from status.

What is seen counts before what was written: a run that is there is active, whatever status says of its index. What
was written counts before absence: an outcome stays when its run is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.api.base.indices import parse_indices
from lockstep.api.run_set import SetCounts, SetIndices
from lockstep.core.arrays.members import holds_nodes, run_name
from lockstep.core.model.array_views import RunSetSnapshot
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.plan import Event
from lockstep.core.model.ranges import format_ranges, parse_ranges
from lockstep.core.model.reasons import ActionWord, ConditionType, EventReason, SetReason, StopReason, WaitReason
from lockstep.core.model.snapshot import RunView

OUTCOMES = ("succeeded", "failed", "cancelled")


@dataclass(slots=True)
class Tally:
    """Every index is in at most one of the four sets; one that is in none has had no run yet. ``holding`` and
    ``waiting`` are active ones: with nodes, and without and not held by anybody."""

    indices: frozenset[int]
    active: set[int] = field(default_factory=set)
    succeeded: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    cancelled: set[int] = field(default_factory=set)
    holding: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)

    @property
    def left(self) -> set[int]:
        """Those that have had no run."""
        return set(self.indices) - self.active - self.ended

    @property
    def ended(self) -> set[int]:
        """Those with an outcome."""
        return self.succeeded | self.failed | self.cancelled

    def ranges(self) -> SetIndices:
        """As they are written."""
        return SetIndices(
            active=format_ranges(self.active),
            succeeded=format_ranges(self.succeeded),
            failed=format_ranges(self.failed),
            cancelled=format_ranges(self.cancelled),
        )

    def counts(self) -> SetCounts:
        """As they are written."""
        ended = len(self.succeeded) + len(self.failed) + len(self.cancelled)
        return SetCounts(
            total=len(self.indices),
            pending=len(self.indices) - ended - len(self.holding),
            running=len(self.holding),
            succeeded=len(self.succeeded),
            failed=len(self.failed),
            cancelled=len(self.cancelled),
        )


def tally(snapshot: RunSetSnapshot) -> Tally:
    """Count. Raises ValueError when status does not say what it is to say."""
    run_set = snapshot.run_set
    assert run_set.spec is not None
    found = Tally(parse_indices(run_set.spec.indices))
    before = run_set.status.indices
    recorded: dict[int, str] = {}
    for word in ("active", *OUTCOMES):
        for index in parse_ranges(getattr(before, word)) & found.indices:
            recorded[index] = word
    for index, run in snapshot.runs.items():
        if index not in found.indices:
            continue
        recorded.pop(index, None)
        getattr(found, outcome_of(run) or "active").add(index)
        if index in found.active and holds_nodes(run):
            found.holding.add(index)
        elif index in found.active and not _is_held(run):
            found.waiting.add(index)
    gone = {index for index, word in recorded.items() if word == "active"}
    gone |= {index for index in snapshot.departed if index in found.indices and index not in recorded} - found.active
    for index in sorted(gone - found.ended):
        _see_go(found, run_set.name, index, snapshot.departed.get(index))
    for index, word in recorded.items():
        if word != "active":
            getattr(found, word).add(index)
    if run_set.status.observed_generation == 0 and snapshot.runs:
        _mend(found)
    return found


def _is_held(run: RunView) -> bool:
    """By somebody, each by its name: as in Slurm it takes up no width."""
    is_suspended = run.spec is not None and run.spec.suspend
    return is_suspended or run.is_paused or run.status.queue.reason == WaitReason.HELD_BY_ADMINISTRATOR


def outcome_of(run: RunView) -> str:
    """What came of a run: a word of ``OUTCOMES``, empty while it has not ended."""
    ended = find(run.status, ConditionType.FINISHED)
    if ended is None or ended.status != "True":
        return ""
    if is_true(run.status, ConditionType.SUCCEEDED):
        return "succeeded"
    return "cancelled" if ended.reason == StopReason.CANCELLED else "failed"


def _see_go(found: Tally, run_set: str, index: int, last: RunView | None) -> None:
    """The run is gone, and nobody wrote down what came of it: as it was seen last, else it never ended."""
    outcome = outcome_of(last) if last is not None else ""
    if outcome:
        getattr(found, outcome).add(index)
        return
    found.cancelled.add(index)
    note = f"{run_name(run_set, index)} was deleted before its end: its index counts as cancelled"
    found.events.append(Event("Warning", SetReason.RUN_DELETED, ActionWord.RECORD, note))


def _mend(found: Tally) -> None:
    """Status is lost while runs are there, as after a restore: what may have had a run is not run again.

    Runs are made in ascending order, so that may be every index below the highest that has one.
    """
    highest = max(found.active | found.ended, default=-1)
    lost = {index for index in found.left if index < highest}
    if lost:
        found.cancelled |= lost
        note = f"status was lost; whether {format_ranges(lost)} had runs nobody knows: they count as cancelled"
        found.events.append(Event("Warning", EventReason.STATE_REGRESSION, ActionWord.RECORD, note[:1024]))
