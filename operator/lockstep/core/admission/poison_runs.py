"""Isolates a run that admission fails with (a poison run), so that it holds up nobody but itself.

Nothing that a run says should make a cycle raise; where something does, that is a defect of ours and no reason for
everybody else to wait. Which pending run it is, is found by halving: cycles are tried with fewer and fewer of
them. It is then left out, with that as its pending reason, until it is edited or some time has passed.

A run that holds nodes is never left out: they would be given to somebody else.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.entry import is_asked, is_pending
from lockstep.core.admission.cache.excluded_runs import ExcludedRun, exclusion_writes, without
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import Changes, ClusterSnapshot, RunView
from lockstep.core.model.tunables import Tunables

AGAIN = 600.0
"""Seconds until a run that was left out is tried again: what a cycle fails by may be of the moment."""
_MOST = 8  # found in one cycle; the next finds more


def admit_isolating_failures(
    snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: CycleMemory
) -> ClusterPlan:
    """What ``admit`` decides; where a pending run makes it raise, what it decides of the others.

    ``memory.excluded_runs`` has those. Raises what ``admit`` raises without any pending run.
    """
    excluded = memory.excluded_runs
    if excluded:
        snapshot = replace(snapshot, changes=Changes())  # to a cycle, whoever is tried again has changed
        runs = {run.uid: run for run in snapshot.runs if run.uid in excluded and _waits(run)}
        excluded = {uid: entry for uid, entry in excluded.items() if uid in runs and entry.is_still(runs[uid], now)}
    try:
        plan = admit(without(snapshot, excluded), tunables, now, memory)
    except Exception:
        found = _culprits(snapshot, excluded, lambda those: admit(those, tunables, now, CycleMemory()), now)
        excluded = {**excluded, **found}
        memory.excluded_runs = {**memory.excluded_runs, **found}  # for the next cycle, should this one fail too
        plan = admit(without(snapshot, excluded), tunables, now, memory)
    memory.excluded_runs = excluded
    if not excluded:
        return plan
    writes = [write for write in plan.writes if write.uid not in excluded]
    writes += exclusion_writes(snapshot.runs, excluded, now)
    times = [entry.until for entry in excluded.values()]
    times += [plan.wake_at] if plan.wake_at is not None else []
    return replace(plan, writes=tuple(writes), wake_at=min(times))


def _culprits(
    snapshot: ClusterSnapshot,
    excluded_runs: Mapping[str, ExcludedRun],
    decide: Callable[[ClusterSnapshot], ClusterPlan],
    now: float,
) -> dict[str, ExcludedRun]:
    """Those of the waiting that make ``decide`` raise. Raises what it raises without any of them."""
    waiting = [run for run in snapshot.runs if run.uid not in excluded_runs and _waits(run)]
    found: dict[str, ExcludedRun] = {}

    def error_with(first: int) -> Exception | None:
        """What is raised with so many of the pending runs."""
        absent = {*excluded_runs, *found, *(run.uid for run in waiting[first:])}
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
        found[culprit.uid] = ExcludedRun(culprit, error, now + AGAIN)
    return found


def _waits(run: RunView) -> bool:
    return is_pending(run) or is_asked(run)
