"""Who was first after all: what is heard after an attempt's end may put it down to another rank, pod or node."""

from collections.abc import Sequence

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import AttemptStatus
from lockstep.core.failures.actions import Verb, act
from lockstep.core.failures.causes import Cause, collected, first_cause
from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.failures.late_evidence import ATTRIBUTED_BY_EXIT, exits_of, last_end, pods_lost_before
from lockstep.core.failures.recovery_record import remember_first_failure, restore_charges, take_back_charge, unblame
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.ranges import shown_ranges
from lockstep.core.model.reasons import ActionWord, AttemptCause, EventReason, Recorded
from lockstep.core.run.attempt_end import action_word, cause_message, leaving_slots, remember
from lockstep.core.run.failure_case import case_of
from lockstep.core.run.replacement import replace
from lockstep.core.run.stopping import begin_stop


def recheck_root_cause(plan: PlanBuilder) -> bool:
    """With everybody at the barrier all ends of the last attempt have been heard: was the cause what it seemed?

    True when something came of it that changes the gang or stops the run: then it is too early to start.
    """
    ended = last_end(plan)
    if ended is None or ended.cause not in ATTRIBUTED_BY_EXIT or ended.rank is None:
        return False
    if ended.nodes not in (0, plan.world):
        return False  # its ranks were others
    exits = exits_of(plan, ended.number)
    if all(plan.rank(end.slot) != ended.rank for end in exits):
        return False  # it is not there any more to be compared with
    first = first_cause(collected(plan, (), exits, ()))
    ranks = {plan.rank(slot) for slot in (*first.victims, *first.evidence.tied)} | {plan.rank(first.slot)}
    plan.put_attempt(changed(plan.attempt(ended.number), victims=shown_ranges(ranks - {ended.rank})))
    tied = {plan.rank(slot) for slot in first.evidence.tied}
    if ended.rank == plan.rank(first.slot) or ended.rank in tied:
        return False
    return correct_root_cause(plan, ended, first)


def blame_earlier_pod(plan: PlanBuilder, lost: Sequence[Loss]) -> list[Loss]:
    """A pod whose end is reported only now, but lies before that of the rank which was named, was its cause. Returns
    what of ``lost`` remains to be answered: what has failed on the way to the barrier."""
    ended = last_end(plan)
    first, earlier = pods_lost_before(plan, ended, lost) if ended is not None else (None, [])
    if ended is None or first is None:
        return list(lost)
    correct_root_cause(plan, ended, first, earlier)
    return [loss for loss in lost if loss not in earlier]


def blame_earlier_loss(plan: PlanBuilder, lost: Sequence[Loss]) -> None:
    """A node whose silence is established only now, but began before the attempt's end, was its cause."""
    ended = plan.attempt_entry(plan.status.attempt - 1)
    if (
        ended is None
        or ended.ended_at is None
        or ended.cause not in ATTRIBUTED_BY_EXIT
        or ended.action == ActionWord.REPLACE
    ):
        return
    earlier = [loss for loss in lost if loss.kind is LossKind.NODE and loss.at <= ended.ended_at + plan.heartbeat]
    if not earlier:
        return
    first = min(earlier, key=lambda loss: (loss.at, loss.slot))
    _clear_node_blame(plan, ended)
    plan.put_attempt(
        changed(
            plan.attempt(ended.number),
            message=f"{first.message}; then {ended.message}"[:512],
            rank=plan.rank(first.slot),
            node=first.node,
            stderr="",
            charged=False,
        ),
        cause=AttemptCause.NODE_LOST,
        action=ActionWord.REPLACE,
    )
    plan.status = remember_first_failure(plan.status, first.node, AttemptCause.NODE_LOST, plan.stamp)


def correct_root_cause(plan: PlanBuilder, ended: AttemptStatus, first: Cause, lost: Sequence[Loss] = ()) -> bool:
    """Another rank was first after all: what was remembered and decided of the one named is taken back, and the
    pods that are ``lost`` with it are made anew."""
    before = plan.status.recovery
    _clear_node_blame(plan, ended)
    case = case_of(plan, first, lost, ended.number)
    action = act(first, case)
    rank = plan.rank(first.slot)
    named = ended.rank if ended.rank is not None else rank
    others = {named, *(plan.rank(slot) for slot in (*first.victims, *first.evidence.tied))}
    at_first = "its own program was blamed" if named == rank else f"rank {named} was named"
    at_first = "the cluster was blamed" if ended.cause == AttemptCause.DISRUPTION else at_first
    words = f"{cause_message(plan, first, action)} (at first {at_first})"
    plan.put_attempt(
        changed(
            plan.attempt(ended.number),
            message=words[:512],
            rank=rank,
            node=first.node,
            exit_code=first.exit_code,
            stderr=first.stderr,
            charged=action.charged,
            victims=shown_ranges(others - {rank}),
        ),
        cause=first.kind,
        action=action_word(action)
        if ended.action == ActionWord.RESTART_IN_PLACE or action.verb is Verb.STOP
        else Recorded(ended.action),
    )
    plan.event(EventReason.CAUSE_CORRECTED, f"attempt {ended.number}: {words}", action=action_word(action))
    remember(plan, first, action, case)
    if action.charged == ended.charged:  # also where something had been saved, so that neither counted
        plan.status = restore_charges(plan.status, before)
    if action.verb is Verb.STOP:
        assert action.reason
        begin_stop(plan, action.reason, action.message)
        return True
    leaving = leaving_slots(first, action, [loss for loss in lost if loss.kind is not LossKind.POD], plan)
    left = {loss.slot for loss in leaving}
    gone = [*(loss for loss in lost if loss.slot not in left), *leaving]
    if gone:
        replace(plan, gone, first.condition)
    return bool(gone)


def _clear_node_blame(plan: PlanBuilder, ended: AttemptStatus) -> None:
    """The rank that an attempt's end was put down to did not bring it about."""
    excluded = plan.status.recovery.excluded_nodes
    if ended.seen_at is not None:
        plan.status = unblame(plan.status, ended.node, ended.cause or "", ended.seen_at)
    if ended.charged and plan.status.recovery.consecutive_no_progress:
        plan.status = take_back_charge(plan.status)
    plan.admission_changed |= plan.status.recovery.excluded_nodes != excluded
