"""Checkpoints that training went wrong after: passed over one by one, or all of them beyond a ceiling."""

from collections.abc import Collection

from lockstep.api.checkpoint_status import QuarantinedCheckpoint
from lockstep.core.checkpoints.checkpoint_record import record_ceiling, record_diverged, record_quarantine
from lockstep.core.checkpoints.inventory import candidates, latest_valid
from lockstep.core.checkpoints.verdicts import Candidate
from lockstep.core.failures.actions import MOST_QUARANTINED
from lockstep.core.failures.recovery_record import (
    forget_roll_backs,
    lower_best_step,
    raise_best_step,
    record_roll_back,
)
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.quarantine import Save, is_trusted
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.tiers import LOCAL
from lockstep.core.model.worker_report import Verdict


def trusted_steps(state: RunState) -> tuple[int, ...]:
    """Steps of the valid checkpoints that may be gone back to, newest first."""
    return tuple(sorted({found.step for found in _trusted(state)}, reverse=True))


def _trusted(state: RunState) -> list[Candidate]:
    return [
        found
        for found in candidates(state.snapshot, state.status)
        if found.verdict is Verdict.VALID and is_trusted(state.status, found.tier, found.step, found.attempt)
    ]


def saved_step(state: RunState) -> int:
    """The highest step that is saved on every rank and trusted; 0 when there is none."""
    known = latest_valid(state.snapshot, state.status)  # a new leader has heard no rank yet
    trusted = [each.step for each in known if is_trusted(state.status, each.tier, each.step, each.attempt)]
    return max([*trusted, *trusted_steps(state)], default=0)


def quarantine(plan: PlanBuilder, tier: str, save: Save, reason: str) -> None:
    """Never load this checkpoint again."""
    checkpoint = plan.status.checkpoint
    entry = QuarantinedCheckpoint(tier=tier, step=save.step, attempt=save.attempt, reason=reason[:256], time=plan.stamp)
    same = (tier, save.step, save.attempt)
    others = tuple(known for known in checkpoint.quarantined if (known.tier, known.step, known.attempt) != same)
    kept = (*others, entry)[-MOST_QUARANTINED:]
    plan.status = record_quarantine(plan.status, kept)
    plan.status = lower_best_step(plan.status, saved_step(plan))


def lift_quarantine(plan: PlanBuilder, saves: Collection[tuple[str, Save]]) -> None:
    """These may be loaded again, and count as saved as they did: nothing of that is progress."""
    known = plan.status.checkpoint.quarantined
    kept = tuple(each for each in known if (each.tier, Save(each.step, each.attempt)) not in saves)
    plan.status = record_quarantine(plan.status, kept)
    plan.status = raise_best_step(plan.status, saved_step(plan))


def roll_back(plan: PlanBuilder, ceiling: int, went_wrong_at: int | None) -> None:
    """Resume from no step beyond ``ceiling``, until a later attempt has saved something beyond what is known now.

    ``went_wrong_at`` None: not known, and all that is known now may be of before.
    """
    known = [found.step for found in candidates(plan.snapshot, plan.status) if not found.doubted]
    reported = [r.progress.step for r in plan.snapshot.reports.values() if r.progress is not None]
    last = max([*known, *reported, plan.status.progress.step])
    since = went_wrong_at if went_wrong_at is not None else last + 1
    _keep_former(plan)
    if since > 0:  # it stays, and newer ones may be lost
        plan.status = record_diverged(plan.status, since, plan.status.attempt)
    plan.status = record_roll_back(record_ceiling(plan.status, ceiling), ceiling, last, since)


def _keep_former(plan: PlanBuilder) -> None:
    """A roll-back of an earlier release, which kept what went wrong until it was over alone."""
    known = plan.status.recovery
    if known.diverged_from and all(each.attempt < known.diverged_attempt for each in plan.status.checkpoint.diverged):
        plan.status = record_diverged(plan.status, known.diverged_from, known.diverged_attempt)


def lift_ceiling(plan: PlanBuilder) -> None:
    """Take the ceiling away once later attempts are past what went wrong; raise it with what they save until then."""
    checkpoint, recovery = plan.status.checkpoint, plan.status.recovery
    if checkpoint.ceiling is None:
        return
    spec = plan.spec.checkpoint
    lasting = [found.step for found in _trusted(plan) if found.tier != LOCAL or spec is None or spec.shared is None]
    # A node could be lost with what was saved on its disk: then the older ones would count again.
    saved = max(lasting, default=0)
    if saved > recovery.diverged_step:
        _keep_former(plan)
        plan.status = forget_roll_backs(record_ceiling(plan.status, None))
        plan.event(
            EventReason.ROLL_BACK_OVER,
            f"step {saved} is saved, beyond all that was rolled back",
            action=ActionWord.ROLL_BACK,
        )
    elif plan.phase is not Phase.RUNNING:  # it matters only for the next resume
        _raise_ceiling(plan, checkpoint.ceiling)


def _raise_ceiling(plan: PlanBuilder, ceiling: int) -> None:
    """To what was saved since, as long as nothing of the time before lies below it."""
    later, doubtful = [ceiling], []
    for found in candidates(plan.snapshot, plan.status):
        if found.attempt > plan.status.recovery.diverged_attempt:
            later += [found.step] if found.verdict is Verdict.VALID else []
        elif found.step > ceiling:
            doubtful.append(found.step)
    highest = max(step for step in later if step < min(doubtful, default=step + 1))
    if highest > ceiling:
        plan.status = record_ceiling(plan.status, highest)
