"""Stragglers: a rank whose steps persistently take longer than those of its peers.

In a synchronous training every rank waits for the slowest in each step, and all step times are alike: then
nothing can be told from here, and nothing is said. Where ranks report what they need for themselves, or are
coupled loosely, the score of a rank is the step time of its best peers over its own (NVRx: flagged below 0.7).
"""

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import StragglerStatus
from lockstep.core.failures.causes import Evidence
from lockstep.core.failures.recovery_record import record_straggler
from lockstep.core.model.conditions import find, without_condition
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, AttemptCause, ConditionReason, ConditionType, EventReason
from lockstep.core.model.run_state import RunState

FLAGGED_BELOW = 0.7
WINDOW_SECONDS = 60.0
WINDOWS = 3
ENOUGH_INTERVALS = 20
BEST_SHARE = 4
"""The pace to keep is that of the fastest quarter."""
ASSUMED_RESTART_SECONDS = 300.0


def judge_straggler(plan: PlanBuilder) -> Evidence | None:
    """A rank that replacing its node would pay for; one that is only slow becomes the condition ``Straggling``."""
    if plan.phase is not Phase.RUNNING or plan.spec.recovery.on_straggler == "Ignore":
        slowest = None
    else:
        slowest = _slowest(plan)
    if slowest is None:
        _forget(plan)
        return None
    slot, score = slowest
    known = plan.status.recovery.straggler
    if known is None or known.slot != slot or known.time is None:
        known = StragglerStatus(slot=slot, percent=round(100 * score), time=plan.stamp)
    elif plan.now - known.time >= WINDOW_SECONDS:
        known = changed(known, percent=round(100 * score), windows=known.windows + 1, time=plan.stamp)
    plan.status = record_straggler(plan.status, known)
    assert known.time is not None
    plan.wake(known.time + WINDOW_SECONDS)
    if known.windows < WINDOWS:
        return None
    node = plan.status.assignment.nodes[slot]
    message = (
        f"rank {plan.rank(slot)} on {node} keeps {known.percent} % of the pace of its best peers, "
        f"for {known.windows} minutes"
    )
    if plan.spec.recovery.on_straggler == "Replace" and _pays(plan, known.percent / 100):
        return Evidence(AttemptCause.STRAGGLER, slot, node, plan.now, message, "Straggler")
    if find(plan.status, ConditionType.STRAGGLING) is None:
        plan.event(EventReason.STRAGGLING, message, action=ActionWord.REPORT, warning=True, node=node)
    plan.condition(ConditionType.STRAGGLING, True, ConditionReason.SLOW_RANK, message)
    return None


def _forget(plan: PlanBuilder) -> None:
    plan.status = without_condition(plan.status, ConditionType.STRAGGLING)
    if plan.status.recovery.straggler is not None:
        plan.status = record_straggler(plan.status, None)


def _slowest(state: RunState) -> tuple[int, float] | None:
    """Slot and score of the slowest rank, when it is below the mark and all are measured well enough."""
    times = []
    for slot in state.slot_range():
        if state.rank(slot) < 0:
            continue
        report = state.report(slot)
        if report is None or report.attempt != state.status.attempt or report.timing.intervals < ENOUGH_INTERVALS:
            return None
        times.append((report.timing.step, slot))
    if len(times) < 2:
        return None
    times.sort()
    best = times[(len(times) - 1) // BEST_SHARE][0]
    longest, slot = times[-1]
    score = best / longest if longest > 0 else 1.0
    return (slot, score) if score < FLAGGED_BELOW else None


def _pays(state: RunState, score: float) -> bool:
    """(1 - score) x what is left > restart + half a checkpoint interval: else the cure costs more than it saves."""
    progress = state.status.progress
    if progress.total_steps is None:
        return False
    step_seconds = max(r.timing.step for r in state.snapshot.reports.values() if r.attempt == state.status.attempt)
    remaining = max(0, progress.total_steps - progress.step) * step_seconds
    restart = state.status.goodput.mttr_p50 or ASSUMED_RESTART_SECONDS
    return (1.0 - score) * remaining > restart + state.status.checkpoint.cadence.interval / 2
