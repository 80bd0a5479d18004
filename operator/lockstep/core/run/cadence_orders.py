"""The cadence of a run: planned from what it has measured, kept in status, sent to every worker."""

from lockstep.api.base.changes import changed
from lockstep.api.base.durations import parse_duration
from lockstep.api.checkpoint_spec import CheckpointSpec
from lockstep.api.checkpoint_status import ArchiveStatus, CadenceStatus
from lockstep.core.accounting.account import book_of
from lockstep.core.accounting.book import Book
from lockstep.core.accounting.measures import (
    UNMEASURED_LOCAL,
    UNMEASURED_SHARED,
    reports_of,
    usual_step_seconds,
)
from lockstep.core.checkpoints.cadence import ArchiveGoal, Bounds, CadenceInputs, plan_cadence, worth_publishing
from lockstep.core.checkpoints.checkpoint_record import record_cadence
from lockstep.core.checkpoints.saves import common_step
from lockstep.core.failures.failure_rate import Remedy, failure_shares, planning_rate, pool_prior
from lockstep.core.model.plan import CadenceOrder
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import PoolRecord

DISABLED = "checkpoint.cadence.interval is Disabled: the program alone decides"
NOT_ASKED = "; for information only: the program neither asks when to save nor catches a signal for it"


def follow_cadence(plan: PlanBuilder) -> None:
    """Write the cadence into status when there is none yet or it has changed enough."""
    checkpoint = plan.spec.checkpoint
    if checkpoint is None:
        return
    before = plan.status.checkpoint.cadence
    planned = _planned(plan, checkpoint)
    if not _differs(before, planned, plan.stamp):
        return
    from_step = common_step(plan) if planned.steps else 0
    planned = changed(planned, changed_at=plan.stamp, from_step=from_step)
    plan.status = record_cadence(plan.status, planned)


def cadence_order(state: RunState) -> CadenceOrder | None:
    """The cadence that workers get: a function of status."""
    cadence = state.status.checkpoint.cadence
    if not cadence.interval:
        return None
    return CadenceOrder(float(cadence.interval), cadence.steps, cadence.shared_steps, cadence.from_step)


def from_the_start(cadence: CadenceStatus) -> CadenceStatus:
    """The same for ranks that begin anew: they have heard of none before it, and may begin at an earlier step."""
    return changed(cadence, from_step=0)


def _differs(before: CadenceStatus, planned: CadenceStatus, now: float) -> bool:
    if before.changed_at is None or (before.interval == 0) is not (planned.interval == 0):
        return True
    if before.why.endswith(NOT_ASKED) and not planned.why.endswith(NOT_ASKED):
        return True
    if before.steps and not planned.steps:
        return False  # a new leader has not heard yet how long steps take
    if not before.steps:  # seconds only, until that is known
        return planned.steps > 0 or worth_publishing((before.interval,), before.changed_at, (planned.interval,), now)
    old, new = (before.steps, before.shared_steps), (planned.steps, planned.shared_steps)
    return worth_publishing(old, before.changed_at, new, now)


def _planned(state: RunState, checkpoint: CheckpointSpec) -> CadenceStatus:
    wish = checkpoint.cadence
    if wish.interval == "Disabled":
        return CadenceStatus(why=DISABLED)
    inputs = _inputs(state, checkpoint, book_of(state))
    plan = plan_cadence(inputs)
    tiers = [tier for tier in (plan.local, plan.shared) if tier is not None]
    if not tiers:
        return CadenceStatus(why="the run names no tier to save to")
    in_steps = inputs.step_seconds is not None
    both = checkpoint.local is not None and checkpoint.shared is not None
    listens = any(report.listens for report in reports_of(state, state.status.attempt))
    return CadenceStatus(
        interval=max(1, round(tiers[0].seconds)),
        steps=tiers[0].steps if in_steps else 0,
        shared_steps=plan.shared_steps if in_steps and both else 0,
        archive_every=plan.archive_every,
        mttf=round(inputs.mttf),
        why=plan.why + ("" if listens else NOT_ASKED),
    )


def _inputs(state: RunState, checkpoint: CheckpointSpec, book: Book) -> CadenceInputs:
    status, wish = state.status, checkpoint.cadence
    pool = state.snapshot.leadership.pools.get(status.resolved.gpu_type, PoolRecord())
    in_place = status.totals.restarts_in_place
    counts = {Remedy.LOCAL: float(in_place), Remedy.SHARED: float(max(0, status.totals.restarts - in_place))}
    if wish.interval == "Adaptive":
        shortest = parse_duration(wish.min)
        bounds = Bounds(shortest, max(shortest, parse_duration(wish.max)))
    else:
        bounds = Bounds(parse_duration(wish.interval), parse_duration(wish.interval))
    return CadenceInputs(
        nodes=max(1, state.world),
        rate=planning_rate(pool_prior(pool), book.exposure),
        shares=failure_shares(counts),
        step_seconds=usual_step_seconds(state) or None,
        local=(book.local_cost or UNMEASURED_LOCAL) if checkpoint.local is not None else None,
        shared=(book.shared_cost or UNMEASURED_SHARED) if checkpoint.shared is not None else None,
        local_bounds=bounds,
        shared_bounds=bounds,
        archive=_archive_goal(checkpoint, status.checkpoint.archive),
    )


def _archive_goal(checkpoint: CheckpointSpec, archive: ArchiveStatus) -> ArchiveGoal | None:
    """The copies asked for, and how long one takes as far as that was seen."""
    if checkpoint.archive is None:
        return None
    return ArchiveGoal(float(archive.copy_seconds), float(parse_duration(checkpoint.archive.interval)))
