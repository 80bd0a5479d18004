"""afterCorr: an index starts only after the same index of another set has succeeded.

The other set's status is asked, not its runs: it outlives them. What was once met stays met and what once failed stays
failed, also when the other set is deleted afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.api.base.indices import MAX_INDEX, parse_indices
from lockstep.api.run_set import SetDependency
from lockstep.core.arrays.members import read_ranges
from lockstep.core.model.array_views import RunSetSnapshot, RunSetView
from lockstep.core.model.ranges import format_ranges


@dataclass(frozen=True, slots=True)
class Correspondence:
    """``ready`` may start and ``never`` never can, of those without a run; the others wait. ``message`` says for what,
    or why they never can. ``status`` is what is remembered."""

    ready: frozenset[int] = frozenset()
    never: frozenset[int] = frozenset()
    message: str = ""
    status: SetDependency | None = None


def correspond(snapshot: RunSetSnapshot, left: set[int]) -> Correspondence:
    """Where ``left``, the indices without a run, stand with the set that comes first. None is named: all are ready."""
    run_set = snapshot.run_set
    name = run_set.spec.after_corr if run_set.spec is not None else None
    if name is None:
        return Correspondence(frozenset(left))
    before = run_set.status.dependency
    if before is None or before.name != name:
        before = SetDependency(name=name)
    met, never = read_ranges(before.met) & left, read_ranges(before.never) & left
    if circle := _circle(snapshot, name):
        words = f"the sets wait for each other: {' -> '.join(circle)}"
        return Correspondence(met, frozenset(left) - met, words, before)
    other = snapshot.sets.get(name)
    message = f"no TrainingRunSet {name} is in this namespace yet"
    if other is not None:
        met |= left & read_ranges(other.status.indices.succeeded)
        never = (never | left & _lost_to(other) | left - _indices_of(other)) - met
        message = f"waits for the same indices of {name}, {other.status.done or '0'} of which have ended"
    if never:
        message = f"the same index of {name} did not succeed, or does not exist: {format_ranges(never)}"[:900]
    status = SetDependency(name=name, met=format_ranges(met), never=format_ranges(never))
    return Correspondence(frozenset(met), frozenset(never), message, status)


def _lost_to(other: RunSetView) -> frozenset[int]:
    """Indices of the other set that will never succeed."""
    known, own = other.status.indices, other.status.dependency
    never = read_ranges(own.never) if own is not None else frozenset()
    return read_ranges(known.failed) | read_ranges(known.cancelled) | never


def _indices_of(other: RunSetView) -> frozenset[int]:
    """A spec that cannot be read is left to its owner to mend; nothing is given up for it."""
    return parse_indices(other.spec.indices) if other.spec is not None else frozenset(range(MAX_INDEX + 1))


def _circle(snapshot: RunSetSnapshot, name: str) -> tuple[str, ...]:
    """Names from the set over what it comes after back to itself; empty when there is no way."""
    path = [snapshot.run_set.name]
    while name not in path:
        path.append(name)
        other = snapshot.sets.get(name)
        after = other.spec.after_corr if other is not None and other.spec is not None else None
        if after is None:
            return ()
        name = after
    return (*path, name) if name == snapshot.run_set.name else ()
