"""The end of an attempt is carried out: history, what later decisions rest on, and the next attempt or the run's stop.

All of it in one status write, before anything of it is acted on.
"""

from collections.abc import Sequence

from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints.checkpoint_record import record_latest
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.failures.actions import Action, Case, Verb
from lockstep.core.failures.causes import Cause
from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.failures.ranks import script_exit_code
from lockstep.core.failures.recovery_record import (
    count_attempts_without_progress,
    hold_back_attempt,
    record_progress_made,
    remember_first_failure,
    remember_root,
    remember_rule,
)
from lockstep.core.model import assignment as slots
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.ranges import shown_ranges
from lockstep.core.model.reasons import ActionWord, AttemptCause, EventReason, LossReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.totals_record import count_restart
from lockstep.core.run.backoff import backoff
from lockstep.core.run.failure_case import trained_until
from lockstep.core.run.replacement import exclude_node, replace, report_exclusion_limit
from lockstep.core.run.roll_back import lift_quarantine, quarantine, roll_back, saved_step
from lockstep.core.run.stopping import begin_stop


def carry_out(plan: PlanBuilder, cause: Cause, action: Action, case: Case, lost: list[Loss]) -> None:
    """End the attempt for good or begin the next one, with everything written down that later decisions rest on."""
    _write_history(plan, cause, action, case)
    remember(plan, cause, action, case)
    if action.verb is Verb.STOP:
        assert action.reason
        begin_stop(plan, action.reason, action.message)
    else:
        _begin_next(plan, cause, action, case, lost)


def next_attempt(status: TrainingRunStatus, stamp: float) -> TrainingRunStatus:
    """An attempt has ended, and the gang gathers for another. Whom it went on without is waited for from now on."""
    if slots.lacking(status.assignment):
        status = slots.put(status, slots.missed(status.assignment, stamp))
    return changed(status, attempt=status.attempt + 1)


def _write_history(plan: PlanBuilder, cause: Cause, action: Action, case: Case) -> None:
    saved = action.ceiling if action.ceiling is not None else saved_step(plan)
    last = trained_until(plan, plan.status.attempt)
    others = {plan.rank(slot) for slot in (*cause.victims, *cause.evidence.tied)}
    plan.put_attempt(
        changed(
            plan.attempt(plan.status.attempt),
            ended_at=float(int(min(cause.at, plan.now))),
            seen_at=plan.stamp,
            message=cause_message(plan, cause, action)[:512],
            rank=plan.rank(cause.slot),
            node=cause.node,
            exit_code=cause.exit_code,
            script_exit_code=script_exit_code(plan),
            stderr=cause.stderr,
            last_step=last,
            charged=action.charged,
            victims=shown_ranges(others),
            steps_lost=max(0, last - saved) if last is not None else None,
        ),
        cause=cause.kind,
        action=action_word(action),
    )


def cause_message(state: RunState, cause: Cause, action: Action) -> str:
    """The evidence, whether it is alone, and what is done about it."""
    words = cause.evidence.message
    if cause.evidence.tied:
        ranks = shown_ranges(state.rank(slot) for slot in cause.evidence.tied)
        words += f" (at the same time as {ranks}: which was first cannot be told)"
    if action.verb is Verb.STOP:
        return words + action.message.removeprefix(cause.evidence.message)
    by = f"rule {action.rule}: " if action.rule else ""
    return f"{words}; {by}{action.then}"


def action_word(action: Action) -> ActionWord:
    return ActionWord.REPLACE if action.verb is Verb.REPLACE_NODES else ActionWord(action.verb.value)


def remember(plan: PlanBuilder, cause: Cause, action: Action, case: Case) -> None:
    """What later decisions rest on."""
    if case.progressed:
        plan.status = record_progress_made(plan.status, saved_step(plan))
    if cause.kind not in (AttemptCause.NODE_LOST, AttemptCause.DISRUPTION) and not cause.reading.symptom:
        plan.status = remember_root(plan.status, cause.reading.root, case.step or 0, cause.node, plan.stamp)
    if cause.points_at_node and not (cause.lost and cause.kind is not AttemptCause.NODE_LOST):
        for slot in sorted({cause.slot, *cause.evidence.slots}):
            node = plan.status.assignment.nodes[slot] or cause.node
            plan.status = remember_first_failure(plan.status, node, cause.kind, plan.stamp)
    if action.rule:
        plan.status = remember_rule(plan.status, action.rule, [rule.name for rule in case.recovery.rules])
    streak = 0 if case.progressed else case.streak + action.charged
    plan.status = count_attempts_without_progress(plan.status, streak)
    if action.lift:
        lift_quarantine(plan, action.lift)
    if action.quarantine is not None:
        quarantine(plan, *action.quarantine, cause.evidence.message)
    if action.ceiling is not None:
        roll_back(plan, action.ceiling, case.went_wrong_at)
    if action.alert:
        report_exclusion_limit(plan, action.alert)


def _begin_next(plan: PlanBuilder, cause: Cause, action: Action, case: Case, lost: list[Loss]) -> None:
    tunables, status = plan.tunables, plan.status
    wait = 0.0
    if (action.charged or action.waits) and not (case.progressed and not action.waits):
        streak = status.recovery.consecutive_no_progress
        if action.waits:  # also where nobody is charged
            alike = next((root.count for root in status.recovery.roots if root.root == cause.reading.root), 0)
            streak = max(streak, 2, alike)
        wait = backoff(streak, tunables.backoff_base, tunables.backoff_max, plan.run.uid)
    number = status.attempt + 1
    # A pod does not come back to a node that is to be left.
    leaving = leaving_slots(cause, action, [loss for loss in lost if loss.kind is not LossKind.POD], plan)
    lost = [loss for loss in lost if loss.slot not in {left.slot for left in leaving}]
    in_place = not lost and not leaving and plan.has_workers
    was_run = cause.reason != LossReason.NODE_REFUSED  # nothing of it ran, so nothing is run again
    plan.status = count_restart(next_attempt(plan.status, plan.stamp), was_run=was_run, in_place=in_place)
    plan.status = hold_back_attempt(plan.status, plan.stamp + wait if wait else None)
    # The last word of those that trained: what the gang is asked to read on its way to the barrier rests on it.
    plan.status = record_latest(plan.status, latest_valid(plan.snapshot, status))
    if lost or leaving:
        replace(plan, [*lost, *leaving], cause.condition)
    for loss in lost:
        if loss.slot in action.slots and loss.kind is LossKind.NODE:  # when it is back it is not to be trusted
            exclude_node(plan, loss, tunables.excluded_node_seconds)
    if not lost:
        reason = EventReason.ROLLING_BACK if action.verb is Verb.ROLL_BACK else EventReason.RESTARTING_IN_PLACE
        reason = reason if plan.has_workers else EventReason.REPLACING_GANG
        words = f"{cause_message(plan, cause, action)}; attempt {number}" + (f" in {wait:.0f} s" if wait else "")
        if action.verb is not Verb.REPLACE_NODES:
            plan.event(reason, words, action=action_word(action), warning=True)
    if plan.spec.checkpoint is None:
        plan.event(
            EventReason.NO_CHECKPOINT,
            "the run names no checkpoint tier, so the next attempt starts at step 0; "
            "add checkpoint: {shared: {claimName: …}}",
            action=ActionWord.RESTART,
            warning=True,
        )


def leaving_slots(cause: Cause, action: Action, lost: Sequence[Loss], state: RunState) -> list[Loss]:
    """The slots that leave a node which still works, in a manner of speaking."""
    gone = {loss.slot for loss in lost}
    nodes = state.status.assignment.nodes
    words = cause.evidence.message
    return [
        Loss(slot, nodes[slot], LossKind.LEFT, cause.kind, words, cause.at)
        for slot in action.slots
        if slot not in gone and nodes[slot]
    ]
