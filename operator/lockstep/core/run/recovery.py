"""Evidence -> cause -> action: what ends an attempt, and with what the next one starts.

``causes`` finds what came first, ``actions`` says what is to be done about it, ``attempt_end`` does it, and
``root_cause`` corrects what was put down to the wrong one. Quota and nodes are held meanwhile.
"""

import dataclasses
from collections.abc import Sequence

from lockstep.api.base.changes import changed
from lockstep.core.failures.actions import Action, Verb, act
from lockstep.core.failures.breaker import slow_in_words
from lockstep.core.failures.causes import Cause, collected, first_cause
from lockstep.core.failures.divergence import judge_divergence
from lockstep.core.failures.evidence import Loss, LossKind, late_in_words, look_for_losses
from lockstep.core.failures.failure_memory import excluded_enough, readmit_mended
from lockstep.core.failures.hangs import judge_hang
from lockstep.core.failures.late_evidence import last_end, limit_exceeded_before
from lockstep.core.failures.ranks import is_to_join
from lockstep.core.failures.silence import everyone_heard_since
from lockstep.core.failures.step_evidence import ends
from lockstep.core.failures.stragglers import judge_straggler
from lockstep.core.model.conditions import find, without_condition
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ConditionReason, ConditionType
from lockstep.core.model.run_state import RunState
from lockstep.core.run.attempt_end import carry_out
from lockstep.core.run.failure_case import case_of
from lockstep.core.run.handover import Handover
from lockstep.core.run.joining import go_on_without
from lockstep.core.run.replacement import no_other_node_is_left, replace_before_start, replace_spares
from lockstep.core.run.roll_back import lift_ceiling
from lockstep.core.run.root_cause import blame_earlier_loss, blame_earlier_pod, correct_root_cause

SYMPTOMS_WAIT = 2.0
"""Seconds in which the one that a rank's complaint is about may still be heard of."""


def recover(plan: PlanBuilder, known: Handover) -> Handover:
    """Answer losses and bad exits: end the running attempt, or mend the gang that is gathering. Slots that are leaving
    do not count as lost yet. Adds the request for the stacks of all ranks, and what is late together."""
    readmit_mended(plan)
    lift_ceiling(plan)
    failed = ends(plan, known.leaving) if plan.phase is Phase.RUNNING else []
    seen = look_for_losses(plan, known.leaving, over=bool(failed))
    lost = seen.lost
    if seen.slow:
        known = dataclasses.replace(
            known, slow=slow_in_words(len(seen.slow), plan.world, late_in_words(seen.slow), plan.lag)
        )
    replaceable = hold_back_nodes(plan, lost)
    spares = [loss for loss in replaceable if _is_idle(plan, loss)]
    # Nothing else depends on them, and one that may leave its node for nowhere stays.
    replace_spares(plan, [loss for loss in spares if not no_other_node_is_left(plan, loss)])
    lost, replaceable = _of_ranks(plan, lost), _of_ranks(plan, replaceable)
    if plan.phase is Phase.RUNNING:
        lost = go_on_without(plan, lost, replaceable, over=bool(failed))
        diverged, hang, straggler = judge_divergence(plan), judge_hang(plan), judge_straggler(plan)
        detected = [seen for seen in (diverged, hang.evidence, straggler) if seen is not None]
        found = collected(plan, lost, failed, detected)
        if found:
            _end_attempt(plan, first_cause(found), replaceable)
        return dataclasses.replace(known, stacks=hang.stacks)
    ended, beyond = last_end(plan), limit_exceeded_before(plan)
    if ended is not None and beyond is not None:
        correct_root_cause(plan, ended, beyond)
    if replaceable and plan.status.stop is None:
        blame_earlier_loss(plan, replaceable)
        others = blame_earlier_pod(plan, replaceable)
        if others and plan.status.stop is None:
            replace_before_start(plan, others)
    return known


def report_steps_lost(plan: PlanBuilder, resumed: int, saved_by: int = 0) -> None:
    """Where the next attempt begins is known: how many steps the end of the last one cost. A save of that one
    (``saved_by``: the attempt) may be heard of only at the barrier, and be of more steps than it had reported."""
    ended = last_end(plan)
    if ended is None:
        return
    own = resumed if saved_by == ended.number else None
    last = max((step for step in (ended.last_step, own) if step is not None), default=None)
    if last is not None:
        lost = max(0, last - resumed)
        plan.put_attempt(changed(plan.attempt(ended.number), last_step=last, steps_lost=lost))


def _of_ranks(state: RunState, lost: Sequence[Loss]) -> list[Loss]:
    return [loss for loss in lost if not _is_idle(state, loss)]


def _is_idle(state: RunState, loss: Loss) -> bool:
    """Of a spare, or of a rank that is yet to join: nobody waits for it."""
    return state.rank(loss.slot) < 0 or is_to_join(state, loss.slot)


def hold_back_nodes(plan: PlanBuilder, lost: list[Loss]) -> list[Loss]:
    """While the cluster itself looks broken no node is replaced: what seems lost may all come back."""
    held = plan.snapshot.leadership.disruption
    shown = find(plan.status, ConditionType.CLUSTER_DISRUPTION)
    if (
        not held
        and shown is not None
        and shown.reason != ConditionReason.CLUSTER_SLOW  # which is told of with what is decided after this
        and (shown.reason != ConditionReason.EXCLUSION_LIMIT or not excluded_enough(plan))
    ):
        plan.status = without_condition(plan.status, ConditionType.CLUSTER_DISRUPTION)
    if not held or not any(loss.kind is LossKind.NODE for loss in lost):
        return lost
    plan.condition(ConditionType.CLUSTER_DISRUPTION, True, ConditionReason.BREAKER_OPEN, f"no node is replaced: {held}")
    return [loss for loss in lost if loss.kind is not LossKind.NODE]


def _end_attempt(plan: PlanBuilder, cause: Cause, lost: list[Loss]) -> None:
    case = case_of(plan, cause, lost)
    action = act(cause, case)
    if action.verb in (Verb.WAIT, Verb.COMPLETE) or _has_more_to_hear(plan, cause, action):
        return
    carry_out(plan, cause, action, case, lost)


def _has_more_to_hear(state: RunState, cause: Cause, action: Action) -> bool:
    """Peers of a node that just died end with errors too: a verdict that is final waits for everybody's word,
    and one that only complains of others for a moment."""
    report, link = state.report(cause.slot), cause.reading.link
    ended = min(cause.at, report.since) if report is not None and not link else cause.at  # whatever its clock says
    if not cause.exited or everyone_heard_since(state, ended, but=-1 if link else cause.slot):
        return False
    if action.verb is Verb.STOP:
        state.wake(state.now + state.heartbeat)
        return True
    return not state.reached(ended + SYMPTOMS_WAIT) and (cause.reading.symptom or link)
