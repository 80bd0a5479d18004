"""Evidence -> cause -> action: what ends an attempt, and with what the next one starts.

``causes`` finds what came first, ``actions`` says what is to be done about it, and here it is done: in one
status write, before anything of it is acted on. Quota and nodes are held meanwhile.
"""

import dataclasses
from collections.abc import Sequence

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import AttemptStatus
from lockstep.core.checkpoints.checkpoint_record import record_latest
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.checkpoints.saves import last_trained
from lockstep.core.failures.actions import SAME_STEP, Action, Case, Verb, act
from lockstep.core.failures.breaker import slow_in_words
from lockstep.core.failures.causes import Cause, collected, first_cause
from lockstep.core.failures.divergence import judge_divergence
from lockstep.core.failures.evidence import Loss, LossKind, late_in_words, look_for_losses
from lockstep.core.failures.failure_memory import (
    excluded_enough,
    readmit_mended,
)
from lockstep.core.failures.hangs import judge_hang
from lockstep.core.failures.late_evidence import (
    ATTRIBUTED_BY_EXIT,
    exits_of,
    last_end,
    limit_exceeded_before,
    pods_lost_before,
)
from lockstep.core.failures.ranks import is_to_join, script_exit_code
from lockstep.core.failures.recovery_record import (
    count_attempts_without_progress,
    hold_back_attempt,
    record_progress_made,
    remember_first_failure,
    remember_root,
    remember_rule,
    restore_charges,
    take_back_charge,
    unblame,
)
from lockstep.core.failures.silence import everyone_heard_since
from lockstep.core.failures.step_evidence import ends
from lockstep.core.failures.stragglers import judge_straggler
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, without_condition
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.quarantine import Save
from lockstep.core.model.ranges import shown_ranges
from lockstep.core.model.reasons import (
    ActionWord,
    AttemptCause,
    ConditionReason,
    ConditionType,
    EventReason,
    LossReason,
    Recorded,
)
from lockstep.core.model.run_state import RunState
from lockstep.core.run.backoff import allowed_without_progress, backoff
from lockstep.core.run.handover import Handover
from lockstep.core.run.joining import go_on_without
from lockstep.core.run.replacement import (
    exclude_node,
    no_other_node_is_left,
    replace,
    replace_before_start,
    replace_spares,
    report_exclusion_limit,
)
from lockstep.core.run.roll_back import lift_ceiling, quarantine, roll_back, saved_step, trusted_steps
from lockstep.core.run.stopping import begin_stop

SYMPTOMS_WAIT = 2.0
"""Seconds in which the one that a rank's complaint is about may still be heard of."""
MAY_LEAVE_ITS_NODE = frozenset({AttemptCause.STRAGGLER, AttemptCause.NAN, AttemptCause.LOSS_SPIKE})
"""Causes of which a rank's node may be the reason although nothing on it failed."""


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
        _correct_root_cause(plan, ended, beyond)
    if replaceable and plan.status.stop is None:
        blame_earlier_loss(plan, replaceable)
        others = _blame_earlier_pod(plan, replaceable)
        if others and plan.status.stop is None:
            replace_before_start(plan, others)
    return known


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
    return _correct_root_cause(plan, ended, first)


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


def carry_out(plan: PlanBuilder, cause: Cause, action: Action, case: Case, lost: list[Loss]) -> None:
    """End the attempt for good or begin the next one, with everything written down that later decisions rest on."""
    _write_history(plan, cause, action, case)
    _remember(plan, cause, action, case)
    if action.verb is Verb.STOP:
        assert action.reason
        begin_stop(plan, action.reason, action.message)
    else:
        _begin_next(plan, cause, action, case, lost)


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


def case_of(state: RunState, cause: Cause, lost: Sequence[Loss], attempt: int | None = None) -> Case:
    """What is known besides, of the current attempt or of an earlier one."""
    status, recovery = state.status, state.status.recovery
    number = status.attempt if attempt is None else attempt
    entry = state.attempt_entry(number)
    start = status.start.resume if status.start is not None and status.start.attempt == number else None
    report = state.report(cause.slot)
    signs = report.signs if report is not None else ()
    node = state.snapshot.nodes.get(cause.node)
    return Case(
        now=state.now,
        recovery=state.spec.recovery,
        nodes=state.world,
        run=state.run.name,
        checkpoints=state.spec.checkpoint is not None,
        step=entry.last_step if attempt is not None and entry is not None else _last_step(state, number),
        resumed=(start.tier, Save(start.step, start.attempt or 0)) if start is not None else None,
        valid_steps=trusted_steps(state)
        if cause.kind in (AttemptCause.NAN, AttemptCause.LOSS_SPIKE) or state.spec.recovery.rules
        else (),
        lost_slots=tuple(loss.slot for loss in lost),
        streak=recovery.consecutive_no_progress,
        allowed=allowed_without_progress(state.spec, status),
        progressed=saved_step(state) > recovery.best_step,
        restarts=status.totals.restarts - (attempt is not None),  # that of an earlier attempt is counted already
        roots=recovery.roots,
        first_failures=recovery.first_failures,
        rules_used={use.name: use.count for use in recovery.rules_used},
        roll_backs=recovery.roll_backs,
        quarantined=len(status.checkpoint.quarantined),
        seen_rules=frozenset(s.kind.partition(":")[2] for s in signs if s.kind.startswith("Rule:")),
        conditions=frozenset(node.conditions) if node is not None else frozenset(),
        held=state.snapshot.leadership.disruption,
        excluded_enough=excluded_enough(state, len(cause.suspects))
        if cause.points_at_node or cause.reading.on_node or cause.kind in MAY_LEAVE_ITS_NODE
        else "",
        suspects=frozenset(status.assignment.nodes[slot] for slot in cause.evidence.slots) - {""},
        diverged_step=_first_bad_step(state, number),
        alike_before=_diverged_alike(state, number) if cause.kind in (AttemptCause.NAN, AttemptCause.LOSS_SPIKE) else 0,
    )


def _diverged_alike(state: RunState, attempt: int) -> int:
    """How many attempts before this one loaded the same checkpoint and judge_divergence at the same place."""
    status, last = state.status, _last_trained(state, attempt)
    resume = status.start.resume if status.start is not None and status.start.attempt == attempt else None
    if resume is None or last is None:
        return 0
    return sum(
        entry.number < attempt
        and entry.cause in (AttemptCause.NAN, AttemptCause.LOSS_SPIKE)
        and (entry.resume_tier, entry.resume_step) == (resume.tier, resume.step)
        and entry.last_step is not None
        and abs(entry.last_step - last) <= SAME_STEP
        for entry in status.attempts
    )


def _last_trained(state: RunState, attempt: int) -> int | None:
    """As history has it: no less than was saved."""
    if attempt != state.status.attempt:
        return _last_step(state, attempt)
    return last_trained(state, latest_valid(state.snapshot, state.status))


def _last_step(state: RunState, attempt: int) -> int | None:
    reports = state.snapshot.reports.values()
    return max((r.progress.step for r in reports if r.progress is not None and r.attempt == attempt), default=None)


def _first_bad_step(state: RunState, attempt: int) -> int | None:
    signs = [sign for r in state.snapshot.reports.values() if r.attempt == attempt for sign in r.signs]
    return min((sign.step for sign in signs if sign.kind == "Loss:NaN" and sign.step), default=None)


def _write_history(plan: PlanBuilder, cause: Cause, action: Action, case: Case) -> None:
    saved = action.ceiling if action.ceiling is not None else saved_step(plan)
    last = _last_trained(plan, plan.status.attempt)
    others = {plan.rank(slot) for slot in (*cause.victims, *cause.evidence.tied)}
    plan.put_attempt(
        changed(
            plan.attempt(plan.status.attempt),
            ended_at=float(int(min(cause.at, plan.now))),
            seen_at=plan.stamp,
            message=_cause_message(plan, cause, action)[:512],
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
        action=_word(action),
    )


def _cause_message(state: RunState, cause: Cause, action: Action) -> str:
    """The evidence, whether it is alone, and what is done about it."""
    words = cause.evidence.message
    if cause.evidence.tied:
        ranks = shown_ranges(state.rank(slot) for slot in cause.evidence.tied)
        words += f" (at the same time as {ranks}: which was first cannot be told)"
    if action.verb is Verb.STOP:
        return words + action.message.removeprefix(cause.evidence.message)
    by = f"rule {action.rule}: " if action.rule else ""
    return f"{words}; {by}{action.then}"


def _word(action: Action) -> ActionWord:
    return ActionWord.REPLACE if action.verb is Verb.REPLACE_NODES else ActionWord(action.verb.value)


def _remember(plan: PlanBuilder, cause: Cause, action: Action, case: Case) -> None:
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
    if action.quarantine is not None:
        quarantine(plan, *action.quarantine, cause.evidence.message)
    if action.ceiling is not None:
        roll_back(plan, action.ceiling)
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
    leaving = _leaving(cause, action, [loss for loss in lost if loss.kind is not LossKind.POD], plan)
    lost = [loss for loss in lost if loss.slot not in {left.slot for left in leaving}]
    totals = status.totals
    in_place = totals.restarts_in_place + (not lost and not leaving and plan.has_workers)
    was_run = cause.reason != LossReason.NODE_REFUSED  # nothing of it ran, so nothing is run again
    plan.status = changed(
        plan.status,
        attempt=number,
        totals=changed(totals, restarts=totals.restarts + was_run, restarts_in_place=in_place),
    )
    plan.status = hold_back_attempt(plan.status, plan.stamp + wait if wait else None)
    if slots.lacking(plan.status.assignment):  # whom the attempt went on without is waited for from now on
        plan.status = changed(plan.status, assignment=changed(plan.status.assignment, vacant_since=plan.stamp))
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
        words = f"{_cause_message(plan, cause, action)}; attempt {number}" + (f" in {wait:.0f} s" if wait else "")
        if action.verb is not Verb.REPLACE_NODES:
            plan.event(reason, words, action=_word(action), warning=True)
    if plan.spec.checkpoint is None:
        plan.event(
            EventReason.NO_CHECKPOINT,
            "the run names no checkpoint tier, so the next attempt starts at step 0; "
            "add checkpoint: {shared: {claimName: …}}",
            action=ActionWord.RESTART,
            warning=True,
        )


def _leaving(cause: Cause, action: Action, lost: Sequence[Loss], state: RunState) -> list[Loss]:
    """The slots that leave a node which still works, in a manner of speaking."""
    gone = {loss.slot for loss in lost}
    nodes = state.status.assignment.nodes
    words = cause.evidence.message
    return [
        Loss(slot, nodes[slot], LossKind.LEFT, cause.kind, words, cause.at)
        for slot in action.slots
        if slot not in gone and nodes[slot]
    ]


def _correct_root_cause(plan: PlanBuilder, ended: AttemptStatus, first: Cause, lost: Sequence[Loss] = ()) -> bool:
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
    words = f"{_cause_message(plan, first, action)} (at first {at_first})"
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
        action=_word(action)
        if ended.action == ActionWord.RESTART_IN_PLACE or action.verb is Verb.STOP
        else Recorded(ended.action),
    )
    plan.event(EventReason.CAUSE_CORRECTED, f"attempt {ended.number}: {words}", action=_word(action))
    _remember(plan, first, action, case)
    if action.charged == ended.charged:  # also where something had been saved, so that neither counted
        plan.status = restore_charges(plan.status, before)
    if action.verb is Verb.STOP:
        assert action.reason
        begin_stop(plan, action.reason, action.message)
        return True
    leaving = _leaving(first, action, [loss for loss in lost if loss.kind is not LossKind.POD], plan)
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


def _blame_earlier_pod(plan: PlanBuilder, lost: Sequence[Loss]) -> list[Loss]:
    """A pod whose end is reported only now, but lies before that of the rank which was named, was its cause. Returns
    what of ``lost`` remains to be answered: what has failed on the way to the barrier."""
    ended = last_end(plan)
    first, earlier = pods_lost_before(plan, ended, lost) if ended is not None else (None, [])
    if ended is None or first is None:
        return list(lost)
    _correct_root_cause(plan, ended, first, earlier)
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
