"""A loss that is no number, or that jumps and stays: seen by the workers, line by line, and told as signs."""

import math

from lockstep.core.failures.causes import Evidence
from lockstep.core.model.conditions import find, without_condition
from lockstep.core.model.draft import Draft
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ActionWord, AttemptCause, ConditionReason, EventReason

NAN, SPIKE = "Loss:NaN", "Loss:Spike"


def diverged(draft: Draft) -> Evidence | None:
    """What speaks for ending the attempt; what is only to be reported becomes the condition ``Diverging``."""
    if draft.phase is not Phase.RUNNING:
        return None
    spec = draft.spec.recovery
    nan, spike = _first(draft, NAN), _first(draft, SPIKE)
    if nan is not None and spec.on_nan != "Ignore":
        return nan
    if spike is not None and spec.on_loss_spike == "RollBack":
        return spike
    reported = spike if spec.on_loss_spike == "Report" else None
    if reported is None:
        draft.status = without_condition(draft.status, "Diverging")
        return None
    if find(draft.status, "Diverging") is None:
        draft.event(EventReason.LOSS_SPIKE, reported.message, action=ActionWord.REPORT, warning=True)
    draft.condition("Diverging", True, ConditionReason.LOSS_SPIKE, reported.message)
    return None


def _first(draft: Draft, kind: str) -> Evidence | None:
    """The earliest sign of ``kind`` by step, then by time. Ranks that saw it at the same step are tied."""
    found = []
    for slot in draft.ranked_slots():
        report = draft.report(slot)
        if report is None or report.attempt != draft.status.attempt:
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
    node = draft.status.assignment.nodes[slot]
    what = "the loss is no number" if kind == NAN else "the loss jumped"
    message = f"{what} at step {step} on rank {draft.rank(slot)} ({node}): {text}"
    word = AttemptCause.NAN if kind == NAN else AttemptCause.LOSS_SPIKE
    alone = not any(_tells_losses(draft, other) for other in draft.ranked_slots() if other != slot)
    return Evidence(word, slot, node, at, message, kind, tied=tied, sole_witness=alone)


def _tells_losses(draft: Draft, slot: int) -> bool:
    """Most programs print the loss, the same on all ranks after the all-reduce, on one of them alone."""
    report = draft.report(slot)
    return report is not None and report.progress is not None and bool(report.progress.loss)


def is_no_number(loss: str) -> bool:
    """A reported loss that is NaN or infinite. What cannot be read as a number says nothing."""
    try:
        return not math.isfinite(float(loss))
    except ValueError:
        return False
