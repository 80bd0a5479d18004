"""A run that no pass can be decided with holds up nobody but itself.

Nothing that a run says should make a pass raise; where something does, that is a defect of ours and no reason for
everybody else to wait. Which of those that wait it is, is found by halving: passes are tried with fewer and fewer of
them. It is then left out and told so, until it is edited or some time has passed.

A run that holds nodes is never left out: they would be given to somebody else.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.entry import is_asked, is_pending
from lockstep.core.admission.cache.excluded_runs import LeftOut, told, without
from lockstep.core.admission.cache.memory import Memory
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot, RunView
from lockstep.core.model.tunables import Tunables

AGAIN = 600.0
"""Seconds until a run that was left out is tried again: what a pass fails by may be of the moment."""
_MOST = 8  # found in one pass; the next finds more


def admit_others(snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: Memory) -> ClusterPlan:
    """What ``admit`` decides; where one of those that wait makes it raise, what it decides of the others.

    ``memory.left_out`` has those. Raises what ``admit`` raises without any of those that wait.
    """
    if memory.left_out:
        runs = {run.uid: run for run in snapshot.runs if run.uid in memory.left_out and _waits(run)}
        kept = memory.left_out.items()
        memory.left_out = {uid: entry for uid, entry in kept if uid in runs and entry.is_still(runs[uid], now)}
    try:
        plan = admit(without(snapshot, memory.left_out), tunables, now, memory)
    except Exception:
        found = _culprits(snapshot, memory.left_out, lambda those: admit(those, tunables, now, Memory()), now)
        memory.left_out = {**memory.left_out, **found}
        plan = admit(without(snapshot, memory.left_out), tunables, now, memory)
    if not memory.left_out:
        return plan
    writes = [write for write in plan.writes if write.uid not in memory.left_out]
    writes += told(snapshot.runs, memory.left_out, now)
    times = [entry.until for entry in memory.left_out.values()]
    times += [plan.wake_at] if plan.wake_at is not None else []
    return replace(plan, writes=tuple(writes), wake_at=min(times))


def _culprits(
    snapshot: ClusterSnapshot,
    left_out: Mapping[str, LeftOut],
    decide: Callable[[ClusterSnapshot], ClusterPlan],
    now: float,
) -> dict[str, LeftOut]:
    """Those of the waiting that make ``decide`` raise. Raises what it raises without any of them."""
    waiting = [run for run in snapshot.runs if run.uid not in left_out and _waits(run)]
    found: dict[str, LeftOut] = {}

    def error_with(first: int) -> Exception | None:
        """What is raised with so many of those that wait."""
        absent = {*left_out, *found, *(run.uid for run in waiting[first:])}
        try:
            decide(without(snapshot, absent))
        except Exception as error:
            return error
        return None

    for _ in range(_MOST):
        if (error := error_with(len(waiting))) is None:
            break
        if (other := error_with(0)) is not None:
            raise other
        fine, fails = 0, len(waiting)
        while fails - fine > 1:
            middle = (fine + fails) // 2
            if (raised := error_with(middle)) is None:
                fine = middle
            else:
                fails, error = middle, raised
        culprit = waiting[fails - 1]
        found[culprit.uid] = LeftOut(culprit, error, now + AGAIN)
    return found


def _waits(run: RunView) -> bool:
    return is_pending(run) or is_asked(run)
