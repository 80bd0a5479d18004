"""What the status tells people: conditions, state, progress. Always last, from what was observed."""

from collections.abc import Mapping

from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints.checkpoint_record import record_latest
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.checkpoints.saves import last_trained
from lockstep.core.failures.hangs import longest_known
from lockstep.core.failures.ranks import half_finished, slots_to_join
from lockstep.core.failures.silence import rejoins_within
from lockstep.core.model.admission_record import record_wait
from lockstep.core.model.conditions import find, is_true, without_condition
from lockstep.core.model.lifecycle import Outcome, Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.plural import plural
from lockstep.core.model.ranges import shown_ranges
from lockstep.core.model.reasons import (
    ActionWord,
    ConditionReason,
    ConditionType,
    EventReason,
    Recorded,
    ShownReason,
    StopReason,
    WaitReason,
)
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import SHED
from lockstep.core.model.worker_report import Verdict
from lockstep.core.run.launching import SlotStage, Stage, stages_of_ranks
from lockstep.core.run.plain.report import report_plain_gang
from lockstep.core.run.progress_record import record_longest, record_step
from lockstep.core.run.spares import count_spares
from lockstep.core.run.stopping import REQUEUES

_SAVING_FIRST: Mapping[str, ShownReason] = {
    StopReason.SUSPENDED: ShownReason.SAVING_BEFORE_SUSPEND,
    StopReason.CANCELLED: ShownReason.SAVING_BEFORE_CANCEL,
    **dict.fromkeys(REQUEUES, ShownReason.SAVING_BEFORE_REQUEUE),
}
TRIED_AGAIN_AFTER = 600.0
"""Seconds until a run is admitted again that gave its nodes back because nothing could be decided for it."""
HINT_AFTER = 300.0
"""Seconds that a run trains without ever having reported a step until it is told how to. Large models load longer."""
HOW_TO_REPORT = (
    "add lockstep_training.report(step), print lines such as step 120/5000 loss 2.31, or say by spec.progress.pattern "
    "what yours look like (docs/worker.md#progress)"
)
NO_STEP_HINT = f"no step was ever reported: hangs and the pace cannot be seen; {HOW_TO_REPORT}"
SETTLED_AFTER = 2.0
_MUCH, _FEW = 1 / 8, 64
"""Part of the gang, and of so many at least, whose coming is told though others still come one by one."""
"""Seconds without an arrival after which the count at the barrier is worth a write."""


def record_progress(plan: PlanBuilder, *, at_once: bool) -> None:
    """Step, loss and newest valid checkpoints into status, at most once per interval."""
    newest = None
    for report in plan.snapshot.reports.values():
        progress = report.progress if report.attempt == plan.status.attempt else None
        if progress is not None and (newest is None or progress.step > newest.step):
            newest = progress
    entry = plan.attempt_entry(plan.status.attempt)
    begun = entry.started_at if entry is not None and entry.started_at is not None else 0.0
    written = plan.status.progress.time
    first = newest is not None and (written is None or written < begun)
    interval = plan.tunables.progress_write_interval
    if plan.lag.allowance:
        interval *= SHED  # others need the API server more
    # Steps alone cause no reconcile: the next one comes when the next write is due, moved or not.
    if not (at_once or first or plan.reached((written or 0.0) + interval)):
        return
    plan.wake(plan.now + interval)
    if _something_was_saved(plan):
        latest = latest_valid(plan.snapshot, plan.status)
        plan.status = record_latest(plan.status, latest)
    step = max(newest.step, last_trained(plan) or 0) if newest is not None else 0
    if newest is not None and (first or step != plan.status.progress.step):
        total = plan.spec.progress.total_steps or newest.total_steps
        plan.status = record_step(plan.status, step, total, newest.loss, newest.at, anew=first)
    plan.status = record_longest(plan.status, *longest_known(plan))


def _something_was_saved(state: RunState) -> bool:
    """A rank has seen what status does not have yet. To merge all inventories is worth it only then."""
    known = {saved.tier: (saved.step, saved.attempt or 0) for saved in state.status.checkpoint.latest}
    return any(
        row.verdict is Verdict.VALID and (row.step, row.attempt) > known.get(row.tier, (-1, 0))
        for report in state.snapshot.reports.values()
        for row in report.inventory
    )


def conclude(plan: PlanBuilder, waiting_for: str, slow: str) -> None:
    """Set every condition of the run, and the words for people. ``waiting_for``: what a complete gang waits for."""
    phase = plan.phase
    plan.status = changed(plan.status, observed_generation=plan.run.generation)
    _report_admitted(plan, phase)
    if plan.has_workers or phase not in (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING):
        _report_gang_ready(plan, phase, waiting_for)
        _report_progressing(plan, phase)
    else:
        report_plain_gang(plan, waiting_for)
    count_spares(plan)
    _report_slowness(plan, slow)
    _report_suspended(plan, phase)
    if phase is not Phase.FINISHED:
        plan.condition(ConditionType.FINISHED, False, ConditionReason.NOT_FINISHED, "")
        plan.condition(ConditionType.SUCCEEDED, None, ConditionReason.NOT_FINISHED, "")
    if phase in (Phase.PENDING, Phase.SUSPENDED, Phase.FINISHED):
        # It has no nodes to replace any more.
        plan.status = without_condition(plan.status, ConditionType.CLUSTER_DISRUPTION)
    _forget_failed_decisions(plan, phase)
    state, reason = _state_and_reason(plan, phase)
    plan.status = changed(plan.status, state=state.value, reason=str(reason))


def _forget_failed_decisions(plan: PlanBuilder, phase: Phase) -> None:
    """A decision is being made. Where it could not be for a gang that has given its nodes back since, it is not to get
    others at once, only to hold these in vain."""
    told = find(plan.status, ConditionType.UNDECIDABLE)
    if told is None:
        return
    gave_back = phase is Phase.PENDING and plan.status.recovery.requeues > 0
    is_edited = told.observed_generation != plan.run.generation
    if gave_back and not is_edited and not plan.reached(told.last_transition_time + TRIED_AGAIN_AFTER):
        return
    plan.status = without_condition(plan.status, ConditionType.UNDECIDABLE)
    plan.admission_changed = True


def _report_admitted(plan: PlanBuilder, phase: Phase) -> None:
    if phase in (Phase.PENDING, Phase.SUSPENDED):
        queue = plan.status.queue
        plan.condition(
            ConditionType.ADMITTED,
            False,
            Recorded(queue.reason) if queue.reason else ConditionReason.PENDING,
            queue.message,
        )
    elif phase is Phase.FINISHED:
        plan.condition(ConditionType.ADMITTED, False, ConditionReason.FINISHED, "")
    else:
        plan.condition(ConditionType.ADMITTED, True, ConditionReason.ADMITTED, _held(plan.status))


def _held(status: TrainingRunStatus) -> str:
    resolved, held = status.resolved, sum(1 for node in status.assignment.nodes if node)
    gpus = f", each with {resolved.gpus_per_node} {resolved.gpu_resource}" if resolved.gpus_per_node else ""
    unused = f"; {resolved.unused_gpus} stay unused" if resolved.unused_gpus else ""
    return f"{plural(held, 'node')} {'is' if held == 1 else 'are'} held{gpus}{unused}"


def _report_gang_ready(plan: PlanBuilder, phase: Phase, waiting_for: str) -> None:
    everybody = plan.world
    if phase is Phase.RUNNING:
        absent = sorted(map(plan.rank, slots_to_join(plan)))
        plan.status = changed(plan.status, nodes_ready=f"{everybody - len(absent)}/{everybody}")
        words = f"attempt {plan.status.attempt} started on all ranks"
        if absent:
            which = f"rank{'s' if len(absent) > 1 else ''} {shown_ranges(absent)}"
            words = f"attempt {plan.status.attempt} goes on without {which}, until another node has joined it"
        plan.condition(ConditionType.GANG_READY, True, ConditionReason.STARTED, words)
    elif phase in (Phase.LAUNCHING, Phase.RECOVERING):
        _report_gathering(plan, stages_of_ranks(plan), waiting_for)
    elif phase is not Phase.STOPPING:
        wanted = plan.run.spec.nodes if plan.run.spec is not None else 0
        plan.status = changed(
            plan.status, nodes_ready=plan.status.nodes_ready if phase is Phase.FINISHED else f"0/{wanted}"
        )
        plan.condition(ConditionType.GANG_READY, False, ConditionReason(phase.value), "")


def _report_gathering(plan: PlanBuilder, reached: list[SlotStage], waiting_for: str) -> None:
    missing = [at for at in reached if at.stage is not Stage.READY]
    count = f"{len(reached) - len(missing)}/{len(reached)}"
    before = find(plan.status, ConditionType.GANG_READY)
    fresh = before is None or before.status == "True" or before.reason != ConditionReason.GATHERING
    newest = max((report.since for report in plan.snapshot.reports.values()), default=0.0)
    settled = newest + SETTLED_AFTER * (SHED if plan.lag.allowance else 1.0)
    moved = _moved_by(plan.status.nodes_ready, count)
    if not fresh and not plan.reached(_gathers_since(plan) + SETTLED_AFTER):
        return  # START is not to wait for a write of words
    if not fresh and 0 < moved < _MUCH and not plan.reached(settled):
        return
    words = ""
    if missing:
        first = missing[0]
        node = plan.status.assignment.nodes[first.slot]
        verb = "is" if len(missing) == 1 else "are"
        words = f"{len(missing)} of {len(reached)} {verb} missing; rank {plan.rank(first.slot)}"
        words += f" on {node}" if node else ""
        words += f": {first.stage.value}" + (f": {first.detail}" if first.detail else "")
    elif waiting_for and plan.reached(newest + SETTLED_AFTER):
        words = waiting_for
    if fresh or count != plan.status.nodes_ready or rank_or_stage_differs(before.message if before else "", words):
        plan.status = changed(plan.status, nodes_ready=count)
        plan.condition(ConditionType.GANG_READY, False, ConditionReason.GATHERING, words)


def _gathers_since(state: RunState) -> float:
    """When the attempt before was seen to end, or the gang was admitted; Unix seconds, 0 where status does not say, or
    says a time that has yet to come."""
    ends = (entry.seen_at or entry.ended_at for entry in state.status.attempts)
    return max((at for at in (state.status.last_admitted, *ends) if at is not None and at <= state.now), default=0.0)


def _moved_by(before: str, now: str) -> float:
    """Part of the gang by which the count of those that are there differs."""
    if before == now:
        return 0.0
    (was, _, of), (there, _, world) = before.partition("/"), now.partition("/")
    if of != world or not was.isdecimal() or len(was) > len(world):
        return 1.0
    return abs(int(there) - int(was)) / max(_FEW, int(world))


def rank_or_stage_differs(before: str, now: str) -> bool:
    """Whether the message tells of another rank or stage (details such as back-off times keep changing)."""
    return before.split(": ")[:3] != now.split(": ")[:3]


def _report_slowness(plan: PlanBuilder, slow: str) -> None:
    """What is late together, as one thing; its figures are written with the count of those that are there."""
    shown = find(plan.status, ConditionType.CLUSTER_DISRUPTION)
    told = shown is not None and shown.reason == ConditionReason.CLUSTER_SLOW
    if not slow:
        if told and not _has_yet_to_hear(plan):
            plan.status = without_condition(plan.status, ConditionType.CLUSTER_DISRUPTION)
        return
    if told and plan.status.nodes_ready == plan.run.status.nodes_ready:
        return
    if shown is not None and not told:
        return  # the breaker says more
    plan.condition(ConditionType.CLUSTER_DISRUPTION, True, ConditionReason.CLUSTER_SLOW, slow)
    if not told:
        plan.event(EventReason.CLUSTER_SLOW, slow, action=ActionWord.WAIT, warning=True)


def _has_yet_to_hear(state: RunState) -> bool:
    """A new leader, which goes on with what was told before it as long as it cannot know better."""
    unheard = any(state.report(slot) is None for slot in state.ranked_slots())
    return unheard and not state.reached(state.snapshot.leadership.since + rejoins_within(state))


def _report_progressing(plan: PlanBuilder, phase: Phase) -> None:
    if phase is not Phase.RUNNING:
        plan.condition(ConditionType.PROGRESSING, False, ConditionReason(phase.value), "")
        return
    entry = plan.attempt_entry(plan.status.attempt)
    begun = entry.started_at if entry is not None and entry.started_at is not None else 0.0
    at = plan.status.progress.time
    ended = half_finished(plan)
    if at is not None and at >= begun:
        plan.condition(ConditionType.PROGRESSING, True, ConditionReason.STEPS_REPORTED, ended)
    else:
        before = find(plan.status, ConditionType.PROGRESSING)
        told = before is not None and before.message.startswith(NO_STEP_HINT)
        # A new leader has heard of nobody yet: what it does not know is no silence.
        due = max(begun, plan.snapshot.leadership.since) + HINT_AFTER
        silent = at is None and begun > 0 and (told or plan.reached(due))
        words = "; ".join(filter(None, (NO_STEP_HINT if silent else "no step of this attempt was reported yet", ended)))
        if silent and not told and not _has_trained_long_before(plan):
            plan.event(EventReason.NO_STEP_REPORTED, NO_STEP_HINT, action=ActionWord.WAIT)
        plan.condition(ConditionType.PROGRESSING, False, ConditionReason.NO_STEP_YET, words)


def _has_trained_long_before(state: RunState) -> bool:
    """An attempt before took long enough without a step to be told."""
    return any(
        each.started_at is not None and each.ended_at is not None and each.ended_at - each.started_at >= HINT_AFTER
        for each in state.status.attempts
    )


def _report_suspended(plan: PlanBuilder, phase: Phase) -> None:
    admission = plan.status.admission
    if phase is Phase.SUSPENDED:
        asked = plan.run.set_says or "suspend: true"
        if admission.since is not None and not admission.requeued_for:
            plan.status = record_wait(plan.status, None)
        reason = ConditionReason.HELD if _is_held_back(plan) else ConditionReason.SUSPEND_REQUESTED
        plan.condition(ConditionType.SUSPENDED, True, reason, f"{asked}; no nodes are held")
        return
    if phase is Phase.PENDING and admission.since is None and is_true(plan.status, ConditionType.SUSPENDED):
        plan.status = record_wait(plan.status, plan.stamp)  # it waits from now on
    plan.condition(ConditionType.SUSPENDED, False, ConditionReason.NOT_SUSPENDED, "")


def _is_held_back(state: RunState) -> bool:
    """It was kept from being admitted while it waited, and was not stopped."""
    before = find(state.status, ConditionType.SUSPENDED)
    if before is not None and before.status == "True":
        return before.reason == ConditionReason.HELD
    return state.run.status.state in ("", Phase.PENDING)


def _state_and_reason(state: RunState, phase: Phase) -> tuple[Phase | Outcome, str]:
    status = state.status
    if phase is Phase.FINISHED:
        succeeded = find(status, ConditionType.SUCCEEDED)
        reason = succeeded.reason if succeeded is not None else ""
        if succeeded is not None and succeeded.status == "True":
            return Outcome.SUCCEEDED, reason
        return (Outcome.CANCELLED if reason == StopReason.CANCELLED else Outcome.FAILED), reason
    if phase is Phase.STOPPING:
        reason = status.stop.reason if status.stop is not None else ""
        return phase, _SAVING_FIRST.get(reason, ShownReason.SAVING_BEFORE_END) if state.trains else reason
    if state.run.is_paused and phase not in (Phase.PENDING, Phase.SUSPENDED):
        return phase, WaitReason.PAUSED
    for kind in (ConditionType.STATE_REGRESSION, ConditionType.CLUSTER_DISRUPTION):
        found = find(status, kind)
        if found is not None and found.status == "True":
            return phase, found.reason if found.reason == ConditionReason.CLUSTER_SLOW else kind
    accepted = find(status, ConditionType.ACCEPTED)
    if accepted is not None and accepted.status != "True":
        return phase, accepted.reason
    if phase is Phase.PENDING:
        return phase, status.queue.reason or ShownReason.NOT_ACCEPTED if accepted is None else status.queue.reason
    if phase is Phase.RUNNING:
        gang = find(status, ConditionType.GANG_READY)
        if gang is not None and gang.status == "False":  # plain pods that are not all up yet
            return Phase.LAUNCHING, gang.reason
        progressing = find(status, ConditionType.PROGRESSING)
        return phase, progressing.reason if progressing is not None else ""
    if phase is Phase.RECOVERING and status.attempts:
        return phase, status.attempts[-1].cause
    if phase is Phase.SUSPENDED:
        suspended = find(status, ConditionType.SUSPENDED)
        if suspended is not None and suspended.reason == ConditionReason.HELD:
            return phase, suspended.reason
    return phase, ConditionReason.GATHERING if phase is Phase.LAUNCHING else phase.value
