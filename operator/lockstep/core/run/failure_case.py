"""What is known of a failure beside its cause: the ``Case`` that ``actions`` judges it by."""

from collections.abc import Sequence

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.checkpoints.saves import last_trained
from lockstep.core.failures.actions import SAME_STEP, Case
from lockstep.core.failures.causes import Cause
from lockstep.core.failures.divergence import NAN, SPIKE
from lockstep.core.failures.evidence import Loss
from lockstep.core.failures.failure_memory import excluded_enough
from lockstep.core.model.quarantine import Save
from lockstep.core.model.reasons import AttemptCause
from lockstep.core.model.run_state import RunState
from lockstep.core.run.backoff import allowed_without_progress
from lockstep.core.run.requeueing import ends_instead
from lockstep.core.run.roll_back import saved_step, trusted_steps

MAY_LEAVE_ITS_NODE = frozenset({AttemptCause.STRAGGLER, AttemptCause.NAN, AttemptCause.LOSS_SPIKE})
"""Causes of which a rank's node may be the reason although nothing on it failed."""


def case_of(state: RunState, cause: Cause, lost: Sequence[Loss], attempt: int | None = None) -> Case:
    """What is known besides, of the current attempt or of an earlier one."""
    status, recovery = state.status, state.status.recovery
    number = status.attempt if attempt is None else attempt
    entry = state.attempt_entry(number)
    start = status.start.resume if status.start is not None and status.start.attempt == number else None
    report = state.report(cause.slot)
    signs = report.signs if report is not None else ()
    node = state.snapshot.nodes.get(cause.node)
    unmoved_since = _unmoved_since(status, cause.reading.root, number)
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
        runs_once=ends_instead(state),
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
        diverged_step=_first_bad_step(state, number, cause.kind),
        alike_before=_diverged_alike(state, number) if cause.kind in (AttemptCause.NAN, AttemptCause.LOSS_SPIKE) else 0,
        unmoved=unmoved_since is not None,
        doubted=tuple(
            (each.tier, Save(each.step, each.attempt))
            for each in status.checkpoint.quarantined
            if unmoved_since is not None and each.time == unmoved_since
        ),
    )


def _unmoved_since(status: TrainingRunStatus, root: str, attempt: int) -> float | None:
    """When this root was last failed of, if no attempt between that and this one made a step; else None."""
    before = next((known.time for known in status.recovery.roots if known.root == root), None)
    moved = any(
        entry.number < attempt
        and before is not None
        and (entry.seen_at or 0.0) > before
        and (entry.last_step or 0) > (entry.resume_step or 0)
        for entry in status.attempts
    )
    return None if moved else before


def _diverged_alike(state: RunState, attempt: int) -> int:
    """How many attempts before this one loaded the same checkpoint and judge_divergence at the same place."""
    status, last = state.status, trained_until(state, attempt)
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


def trained_until(state: RunState, attempt: int) -> int | None:
    """As history has it: no less than was saved."""
    if attempt != state.status.attempt:
        return _last_step(state, attempt)
    return last_trained(state, latest_valid(state.snapshot, state.status))


def _last_step(state: RunState, attempt: int) -> int | None:
    reports = state.snapshot.reports.values()
    return max((r.progress.step for r in reports if r.progress is not None and r.attempt == attempt), default=None)


def _first_bad_step(state: RunState, attempt: int, kind: AttemptCause) -> int | None:
    signs = [sign for r in state.snapshot.reports.values() if r.attempt == attempt for sign in r.signs]
    wanted = SPIKE if kind is AttemptCause.LOSS_SPIKE else NAN
    return min((sign.step for sign in signs if sign.kind == wanted and sign.step), default=None)
