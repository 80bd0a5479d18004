"""What lists and pages say of an array: one row for all that is pending of it, its indices by outcome, how it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lockstep.api.base.indices import parse_indices
from lockstep.core.arrays.members import index_of, read_ranges
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.conditions import find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.ranges import format_ranges
from lockstep.core.model.reasons import ConditionReason, ConditionType, SetReason, ShownReason, WaitReason
from lockstep.core.model.snapshot import RunView
from lockstep.present.runs import current_phase, state_of

_RANGES_SHOWN = 40
OUTCOMES = ("succeeded", "failed", "cancelled", "running", "pending")


@dataclass(frozen=True, slots=True)
class Pending:
    """The pending part of a set: its indices without nodes, and the runs of those that have one, the next one first.
    ``begun``: a run of the set has or had nodes."""

    view: RunSetView
    indices: frozenset[int]
    waiting: tuple[RunView, ...]
    begun: bool = False

    @property
    def name(self) -> str:
        """``sweep_[8-99%8]``, as squeue writes it."""
        width = self.view.spec.max_running if self.view.spec is not None else None
        return f"{self.view.name}_[{shortened(self.indices)}{'' if width is None else f'%{width}'}]"

    @property
    def state(self) -> tuple[str, str]:
        """State and reason: those of the run that is first in line, else of the set."""
        spec, status = self.view.spec, self.view.status
        if spec is not None and spec.suspend:
            which = indices_of(self.view)
            begun = self.begun or status.counts.running or which["succeeded"] or which["failed"]
            return Phase.SUSPENDED, SetReason.SUSPENDED if begun else ConditionReason.HELD
        if self.waiting:
            return state_of(self.waiting[0])
        progressing = find(status, ConditionType.PROGRESSING)
        if progressing is not None and progressing.status == "False":
            return Phase.PENDING, progressing.reason
        return Phase.PENDING, WaitReason.MAX_RUNNING if status.state else ShownReason.NOT_SEEN_YET


def set_state(view: RunSetView) -> tuple[str, str]:
    """State and reason of a whole set as shown to people."""
    return view.status.state or Phase.PENDING, view.status.reason or ShownReason.NOT_SEEN_YET


def folded(views: Sequence[RunView], sets: Iterable[RunSetView]) -> tuple[list[RunView], list[Pending]]:
    """Runs to be shown each by itself, and the pending part of each set."""
    by_uid = {view.uid: view for view in sets}
    begun = {run.set_uid for run in views if run.status.attempt}
    single: list[RunView] = []
    waiting: dict[str, list[RunView]] = {uid: [] for uid in by_uid}
    for run in views:
        owner = by_uid.get(run.set_uid)
        belongs = owner is not None and index_of(run) is not None
        if belongs and current_phase(run) is Phase.PENDING and run.status.state != Phase.SUSPENDED:
            waiting[run.set_uid].append(run)
        else:
            single.append(run)
    rows = []
    for uid, view in by_uid.items():
        shown = {index for run in single if run.set_uid == uid and (index := index_of(run)) is not None}
        left = indices_of(view)["pending"] - shown
        line = sorted(waiting[uid], key=lambda run: (run.status.queue.position or 10**9, index_of(run) or 0))
        left |= {index for run in line if (index := index_of(run)) is not None}
        if left:
            rows.append(Pending(view, frozenset(left), tuple(line), uid in begun))
    return single, rows


def indices_of(view: RunSetView) -> dict[str, frozenset[int]]:
    """Indices by what became of them, as status has it: ``running`` are all that have a run which has not ended."""
    known = view.status.indices
    found = {word: read_ranges(getattr(known, word)) for word in ("succeeded", "failed", "cancelled")}
    found["running"] = read_ranges(known.active)
    every = parse_indices(view.spec.indices) if view.spec is not None else frozenset[int]()
    found["pending"] = every - frozenset[int]().union(*found.values())
    return found


def sentences(view: RunSetView) -> Iterator[str]:
    """What is to be said beyond state and reason: why it does not go on, and what was asked for."""
    status, spec = view.status, view.spec
    if why := why_it_waits(view):
        yield from why.splitlines()
    if status.stop is not None:
        yield f"It has given up: {status.stop.message}."
    if spec is not None:
        width = "as many at once as there are nodes for"
        yield f"Indices {spec.indices}, {width if spec.max_running is None else f'at most {spec.max_running} at once'}."
        if spec.after_corr:
            yield f"Each comes after the same index of {spec.after_corr}."


def why_it_waits(view: RunSetView) -> str:
    """Why it is not accepted or does not go on, a line for each; empty when nothing is in its way."""
    found = (find(view.status, kind) for kind in (ConditionType.ACCEPTED, ConditionType.PROGRESSING))
    return "\n".join(each.message for each in found if each is not None and each.status == "False" and each.message)


def by_outcome(view: RunSetView, holding: Collection[int | None]) -> dict[str, frozenset[int]]:
    """``indices_of``, where only those in ``holding``, which have nodes, count as running."""
    which = indices_of(view)
    running = frozenset(index for index in which["running"] if index in holding)
    which |= {"running": running, "pending": which["pending"] | (which["running"] - running)}
    return {word: which[word] for word in OUTCOMES}


def shortened(indices: Iterable[int]) -> str:
    """As ranges, cut where they get long."""
    text = format_ranges(indices)
    return text if len(text) <= _RANGES_SHOWN else f"{text[:_RANGES_SHOWN].rpartition(',')[0]},..."
