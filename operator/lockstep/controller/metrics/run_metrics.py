"""The figures of one run that holds nodes."""

from collections.abc import Iterator

from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.workers.reports import RunSummary
from lockstep.core.model.conditions import TYPES, find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView

RunSample = tuple[str, list[str], float]
"""Name, labels after namespace and run, value."""


def run_samples(run: RunView, phase: Phase, workers: RunSummary, now: float) -> Iterator[RunSample]:
    """Everything that is known of the run; what is not known has no series."""
    status = run.status
    yield "lockstep_run_phase", [phase.value], 1
    yield "lockstep_run_attempt", [], status.attempt
    yield "lockstep_run_nodes", [], status.resolved.nodes
    ready = status.nodes_ready.partition("/")[0]
    yield "lockstep_run_nodes_ready", [], _number(ready) or 0
    yield "lockstep_run_barrier_wait_seconds", [], _barrier_wait(status, phase, now)
    yield "lockstep_run_report_age_seconds", [], workers.oldest_report_age
    for candidate in status.checkpoint.latest:
        yield "lockstep_run_checkpoint_step", [candidate.tier], candidate.step
    for condition in status.conditions:
        if condition.type not in TYPES and condition.status == "True":
            yield "lockstep_run_condition", [condition.type, condition.reason], 1
    yield "lockstep_run_roll_backs", [], status.recovery.roll_backs
    yield from _progress(run, phase, workers, now)
    yield from _account(status)


def _barrier_wait(status: TrainingRunStatus, phase: Phase, now: float) -> float:
    """GangReady has been False since the run was made: what counts is since it has nodes."""
    gang = find(status, ConditionType.GANG_READY)
    if phase is Phase.STOPPING or gang is None or gang.status == "True":
        return 0.0
    return max(0.0, now - max(gang.last_transition_time, status.last_admitted or 0.0))


def _progress(run: RunView, phase: Phase, workers: RunSummary, now: float) -> Iterator[RunSample]:
    status = run.status
    progress, has_workers = status.progress, run.spec is None or run.spec.worker == "Enabled"
    # Status has progress only every 30 s; after a restart of the operator it is all there is.
    yield "lockstep_run_step", [], progress.step if workers.highest_step is None else workers.highest_step
    if workers.lowest_step is not None:
        yield "lockstep_run_lowest_step", [], workers.lowest_step
    if progress.total_steps is not None:
        yield "lockstep_run_total_steps", [], progress.total_steps
    if progress.longest_interval:
        yield "lockstep_run_step_interval_seconds", [], progress.longest_interval
    if (loss := _number(progress.loss)) is not None:
        yield "lockstep_run_loss", [], loss
    begun = next((a.started_at for a in status.attempts if a.number == status.attempt), None)
    if begun is None or phase is not Phase.RUNNING or not has_workers:
        return
    at = max(workers.newest_step_at or 0.0, progress.time or 0.0)
    has_stepped = at >= begun
    yield "lockstep_run_init_seconds", [], 0.0 if has_stepped else max(0.0, now - begun)
    if has_stepped:
        yield "lockstep_run_step_age_seconds", [], max(0.0, now - at)
    if has_stepped and run.spec is not None and run.spec.checkpoint is not None:
        saved = [kept.time for kept in status.checkpoint.latest if kept.time is not None]
        yield "lockstep_run_unsaved_seconds", [], max(0.0, now - max([begun + progress.longest_init, *saved]))


def _account(status: TrainingRunStatus) -> Iterator[RunSample]:
    goodput, cadence = status.goodput, status.checkpoint.cadence
    if goodput.time is not None:
        for bucket, seconds in goodput.buckets:
            yield "lockstep_run_seconds", [bucket], seconds
        yield "lockstep_run_failures", [], goodput.failures
        yield "lockstep_run_steps_lost", [], goodput.steps_lost
    for name in ("ettr", "goodput", "gpu_hours", "mfu", "tokens_per_second"):
        if (value := _number(getattr(goodput, name))) is not None:
            yield f"lockstep_run_{name}", [], value
    if cadence.interval:
        yield "lockstep_run_checkpoint_interval_seconds", [], cadence.interval
        yield "lockstep_run_mttf_seconds", [], cadence.mttf


def _number(text: str) -> float | None:
    """NaN and infinity are numbers here; what cannot be read says nothing."""
    try:
        return float(text)
    except ValueError:
        return None
