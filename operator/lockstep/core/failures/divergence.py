"""A loss that is no number, or that jumps and stays: seen by the workers, line by line, and reported as signs."""

import math

from lockstep.core.failures.causes import Evidence
from lockstep.core.model.conditions import find, without_condition
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, AttemptCause, ConditionReason, ConditionType, EventReason
from lockstep.core.model.run_state import RunState

NAN, SPIKE = "Loss:NaN", "Loss:Spike"


def judge_divergence(plan: PlanBuilder) -> Evidence | None:
    """What speaks for ending the attempt; what is only to be reported becomes the condition ``Diverging``."""
    if plan.phase is not Phase.RUNNING:
        return None
    spec = plan.spec.recovery
    nan, spike = _first(plan, NAN), _first(plan, SPIKE)
    if nan is not None and spec.on_nan != "Ignore":
        return nan
    if spike is not None and spec.on_loss_spike == "RollBack":
        return spike
    reported = spike if spec.on_loss_spike == "Report" else None
    if reported is None:
        plan.status = without_condition(plan.status, ConditionType.DIVERGING)
        return None
    if find(plan.status, ConditionType.DIVERGING) is None:
        plan.event(EventReason.LOSS_SPIKE, reported.message, action=ActionWord.REPORT, warning=True)
    plan.condition(ConditionType.DIVERGING, True, ConditionReason.LOSS_SPIKE, reported.message)
    return None


def _first(state: RunState, kind: str) -> Evidence | None:
    """The earliest sign of ``kind`` by step, then by time. Ranks that saw it at the same step are tied."""
    found = []
    for slot in state.ranked_slots():
        report = state.report(slot)
        if report is None or report.attempt != state.status.attempt:
            continue
        sign = next((s for s in report.signs if s.kind == kind), None)
        if sign is not None:
            found.append((sign.step, sign.at, slot, sign.text))
        elif kind == NAN and report.progress is not None and is_no_number(report.progress.loss):
            found.append((report.progress.step, report.progress.at, slot, f"loss {report.progress.loss}"))
    if not found:
        return None
    step, at, slot, text = min(found)
    tied = tuple(sorted(other for its_step, _, other, _ in found if its_step == step and other != slot))
    node = state.status.assignment.nodes[slot]
    what = "the loss is no number" if kind == NAN else "the loss jumped"
    message = f"{what} at step {step} on rank {state.rank(slot)} ({node}): {text}"
    word = AttemptCause.NAN if kind == NAN else AttemptCause.LOSS_SPIKE
    alone = not any(_reports_losses(state, other) for other in state.ranked_slots() if other != slot)
    return Evidence(word, slot, node, at, message, kind, tied=tied, sole_witness=alone)


def _reports_losses(state: RunState, slot: int) -> bool:
    """Most programs print the loss, the same on all ranks after the all-reduce, on one of them alone."""
    report = state.report(slot)
    return report is not None and report.progress is not None and bool(report.progress.loss)


def is_no_number(loss: str) -> bool:
    """A reported loss that is NaN or infinite. What cannot be read as a number says nothing."""
    try:
        return not math.isfinite(float(loss))
    except ValueError:
        return False
