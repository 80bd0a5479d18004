"""Bounds on what a run may use: its time limit and its GPU-hours. What they end is saved first."""

from dataclasses import replace
from math import ceil

from lockstep.api.base.changes import changed
from lockstep.api.base.durations import parse_duration
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TimeLimitStatus
from lockstep.core.accounting.account import over_budget
from lockstep.core.checkpoints.saves import ask_for_save, grace_period, listens
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.limits import LimitNotice, can_be_asked, grace_left, notice_of
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import Recorded, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.pods.gang import own_grace, termination_grace
from lockstep.core.run.requeueing import ends_instead
from lockstep.core.run.stopping import begin_stop, stop_after_save, why_without_save
from lockstep.core.run.time_left import limit_of, time_is_over


def keep_to_limits(plan: PlanBuilder) -> bool:
    """Stop a run whose time or GPU-hours are used up. True when it stops."""
    if plan.phase not in (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING):
        return False
    if over_budget(plan):
        hours = plan.spec.budget.gpu_hours if plan.spec.budget is not None else 0
        message = f"{plan.status.goodput.gpu_hours} GPU-hours were used; spec.budget allows {hours}"
        stop_after_save(plan, StopReason.BUDGET_SPENT, message)
        return True
    return _keep_to_time_limit(plan)


def save_by_the_limit(plan: PlanBuilder) -> None:
    """A stop that began before the limit, whatever for, awaits its save no longer than until then."""
    stop, save = plan.status.stop, plan.status.checkpoint.save
    if stop is None or not stop.save or save is None or save.id != stop.save or save.outcome:
        return
    ends = time_is_over(plan, plan.status)
    if ends is not None and ends < (save.deadline or stop.deadline) and not plan.reached(ends):
        ask_for_save(plan, Recorded(stop.reason), ends)


def end_pods_by_the_limit(plan: PlanBuilder) -> None:
    """Pods that are deleted have no longer to end than until the time limit, or ``stop_grace`` where that is over: on
    their nodes others are promised starts then, or maintenance begins."""
    before = plan.run.status
    status = before if before.last_admitted is not None else plan.status  # as it was while it had the nodes
    ends = time_is_over(plan, status) if plan.deletes else None
    if ends is None:
        return
    left, own = ends - plan.stamp, termination_grace(plan.spec, plan.tunables.gang)
    longest = plan.tunables.stop_grace if left <= 0 else grace_left(ceil(left), own)
    plan.deletes = [
        replace(gone, grace=longest) if longest < (own if gone.grace is None else gone.grace) else gone
        for gone in plan.deletes
    ]


def grace_of_ranks(state: RunState) -> int:
    """Seconds between SIGTERM and SIGKILL for the ranks of a run that stops: ``stop_grace``, and no longer than until
    its limit. It rests on when they were told, so that it is the same at each answer."""
    stop, usual = state.status.stop, state.tunables.stop_grace
    ends = time_is_over(state, state.status) if stop is not None and not stop.save else None
    if stop is None or ends is None:
        return usual
    return grace_left(ends - (stop.deadline - state.tunables.deadlines.stop), usual)


def then_at_its_limit(state: RunState) -> tuple[StopReason, str]:
    """What becomes of the run then. It is no end for good where nobody can read whether it is to be one."""
    again = state.spec.on_time_limit.action == "Requeue" or state.run.spec_error
    if again and not ends_instead(state):
        return StopReason.REQUEUED, "it queues again"
    return StopReason.TIME_LIMIT, "it ends"


def _keep_to_time_limit(plan: PlanBuilder) -> bool:
    """Have the ranks save ``leadTime`` before the limit, where anybody listens; and have them end so early that their
    pods have their grace by then, which is all that is taken from the limit of those who don't. Should an end take
    longer, what is left is ended regardless: ``Tunables.longest_stop``."""
    spec, limit = plan.spec, limit_of(plan, plan.status)
    if limit is None:
        return False
    if plan.status.last_admitted is None:
        # Status of an earlier release, or rebuilt: nothing better is known than the age of the pods.
        oldest = min((pod.created_at for pod in plan.live_pods), default=plan.stamp)
        plan.status = changed(plan.status, last_admitted=float(int(oldest)))
    since = plan.status.last_admitted
    assert since is not None
    ends = since + limit - plan.status.held_seconds
    notice = _notice(plan, limit)
    reason, then = then_at_its_limit(plan)
    message = f"{_in_words(spec, limit)}; {then}"
    is_near = plan.phase is Phase.RUNNING and can_be_asked(spec) and plan.reached(ends - notice.save)
    if is_near and not plan.reached(ends - notice.last_save) and _listens(plan):
        within = ends - notice.last_save - plan.stamp
        stop_after_save(plan, reason, message, within=min(grace_period(plan), within))
        return True
    if not plan.reached(ends - notice.end):
        return False
    begin_stop(plan, reason, message + why_without_save(plan))
    return True


def _listens(plan: PlanBuilder) -> bool:
    """There is somebody to be asked for a save. Right after a failover it is those who are known to have listened;
    the others are heard first, as to ask them in vain would cost them the time that is left."""
    heard = listens(plan)
    if heard is None:
        plan.wake(plan.snapshot.leadership.since + plan.silent_after)
        told = plan.status.time_limit
        return told is not None and told.save_at is not None
    return heard


def tell_time_limit(plan: PlanBuilder) -> None:
    """When the run is to save and to end, in status for as long as it has its nodes."""
    if plan.phase in (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING):
        told = plan.status.time_limit if plan.run.spec is None else _moments(plan)
    else:
        told = plan.status.time_limit if plan.phase is Phase.STOPPING else None
    if told != plan.status.time_limit:
        plan.status = changed(plan.status, time_limit=told)


def _moments(state: RunState) -> TimeLimitStatus | None:
    ends, limit, before = time_is_over(state, state.status), limit_of(state, state.status), state.status.time_limit
    if ends is None or limit is None:
        return None
    notice = _notice(state, limit)
    known = before is not None and before.save_at is not None
    asked = can_be_asked(state.spec) and (known or (state.phase is Phase.RUNNING and bool(listens(state))))
    return TimeLimitStatus(
        seconds=max(0, limit),  # whatever somebody has written into the status
        save_at=float(int(ends - notice.save)) if asked else None,
        end_at=float(int(ends - notice.end)),
        over_at=float(int(ends)),
    )


def _notice(state: RunState, limit: int) -> LimitNotice:
    return notice_of(state.spec, limit, state.tunables.gang.termination_grace, own_grace(state.spec))


def _in_words(spec: TrainingRunSpec, limit: int) -> str:
    if spec.time_limit is None:
        return f"the queue's time limit of {limit} s"
    cut = parse_duration(spec.time_limit) > limit
    return f"timeLimit {spec.time_limit}" + (f", of which it got {limit} s" if cut else "")
