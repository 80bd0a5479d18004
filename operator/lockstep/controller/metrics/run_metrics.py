"""The figures of one run that holds nodes."""

from collections.abc import Iterator

from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.workers.reports import RunSummary
from lockstep.core.model.assignment import ranked_slots
from lockstep.core.model.conditions import TYPES, find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.ranges import parse_ranges
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView

RunSample = tuple[str, list[str], float]
"""Name, labels after namespace and run, value."""


def run_samples(run: RunView, phase: Phase, workers: RunSummary, now: float, leads_since: float) -> Iterator[RunSample]:
    """Everything that is known of the run; what is not known has no series."""
    status = run.status
    yield "lockstep_run_phase", [phase.value], 1
    yield "lockstep_run_attempt", [], status.attempt
    yield "lockstep_run_nodes", [], status.resolved.nodes
    ready = status.nodes_ready.partition("/")[0]
    yield "lockstep_run_nodes_ready", [], _number(ready) or 0
    yield "lockstep_run_barrier_wait_seconds", [], _barrier_wait(status, phase, now)
    yield "lockstep_run_report_age_seconds", [], _report_age(run, phase, workers, now, leads_since)
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


def _report_age(run: RunView, phase: Phase, workers: RunSummary, now: float, leads_since: float) -> float:
    """Who takes part and has not come to this leader yet is silent since that leads: it may never come."""
    start = run.status.start
    if start is None or phase is not Phase.RUNNING or not _has_workers(run) or not _is_somebody_unheard(run, workers):
        return workers.oldest_report_age
    since = max(leads_since, _begun(run.status) or 0.0, start.joined_at or 0.0)
    return max(workers.oldest_report_age, now - since)


def _is_somebody_unheard(run: RunView, workers: RunSummary) -> bool:
    status = run.status
    try:
        exits = status.exits
        done = parse_ranges(exits.succeeded) if exits.attempt == status.attempt else frozenset()
        members = status.start.members if status.start is not None else ()
        took_part = {slot: each.incarnation for each in members for slot in parse_ranges(each.slots)}
    except ValueError:
        return False  # edited: decisions about it fail, and say so
    # A rank of another incarnation than took part is to join yet.
    missing = {
        slot
        for slot, incarnation in enumerate(status.assignment.incarnations)
        if took_part.get(slot) == incarnation and workers.heard.get(slot, -1) < incarnation
    }
    return any(slot in missing and rank not in done for rank, slot in enumerate(ranked_slots(status.assignment)))


def _progress(run: RunView, phase: Phase, workers: RunSummary, now: float) -> Iterator[RunSample]:
    status, progress = run.status, run.status.progress
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
    begun = _begun(status)
    if begun is None or phase is not Phase.RUNNING or not _has_workers(run):
        return
    at = max(workers.newest_step_at or 0.0, progress.time or 0.0)
    has_stepped = at >= begun
    yield "lockstep_run_init_seconds", [], 0.0 if has_stepped else max(0.0, now - begun)
    if has_stepped:
        yield "lockstep_run_step_age_seconds", [], max(0.0, now - at)
    if has_stepped and run.spec is not None and run.spec.checkpoint is not None:
        saved = [kept.time for kept in status.checkpoint.latest if kept.time is not None]
        yield "lockstep_run_unsaved_seconds", [], max(0.0, now - max([begun + progress.longest_init, *saved]))


def _begun(status: TrainingRunStatus) -> float | None:
    return next((entry.started_at for entry in status.attempts if entry.number == status.attempt), None)


def _has_workers(run: RunView) -> bool:
    return run.spec is None or run.spec.worker == "Enabled"


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
