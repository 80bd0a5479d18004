"""Collective saves: every rank at the same step, for whoever has to stop the gang or move a part of it.

A save is in status before any worker hears of it, and their directive is a function of status. It is
answered by a checkpoint that is valid on every rank, never by a rank's word, and waiting for it ends at its
deadline whatever happens. One is awaited at a time; a second reason joins it.
"""

import math
from collections.abc import Sequence
from hashlib import sha256

from lockstep.api.base.changes import changed
from lockstep.api.base.names import ANNOTATION_CHECKPOINT_REQUEST
from lockstep.api.checkpoint_status import MAX_SEEN_BEFORE, SavedCheckpoint, SaveStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints.checkpoint_record import record_latest, record_save
from lockstep.core.checkpoints.inventory import candidates, latest_valid
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import SaveRequest
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, EventReason, Recorded, RequestResult, SaveReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.save_signal import longest_wait_for_save, save_grace, save_signal
from lockstep.core.model.tiers import LOCAL, SHARED
from lockstep.core.model.worker_report import Verdict, WorkerPhase, WorkerReport

REQUEST = ANNOTATION_CHECKPOINT_REQUEST.partition("/")[2]
UNTIMED_STEPS = 5
"""Further steps of margin while the time of a step is only an average over the start of the program."""
_DELIVERY_BEATS = 2
"""Heartbeats within which every worker has heard of a save, one that is just reconnecting included."""
FRESH_FOR = 60.0
"""Seconds for which a save counts as one of just now, however short the grace period is: it is heard of later."""
WATCH_SECONDS, WATCH_BEATS = 5.0, 2.5
"""Workers look for what a program that goes on has saved each so many seconds or heartbeats, whichever is longer."""


def ask_for_save(plan: PlanBuilder, reason: SaveReason | Recorded, deadline: float) -> bool:
    """Ask all ranks to save until ``deadline``, or join the save that is awaited.

    False, and nothing is asked, where nobody would save: no tier, or no program that listens. A batch script that wants
    a signal gets it, tier or not.
    """
    save = plan.status.checkpoint.save
    until = float(int(deadline))
    if save is not None and not save.outcome and plan.trains:
        joined = save.reason if reason in save.reason.split(", ") else f"{save.reason}, {reason}"
        if joined != save.reason or (save.deadline or until) > until:
            _write(plan, changed(save, reason=joined, deadline=min(save.deadline or until, until)))
        return True
    if not plan.trains or not _may_listen(plan):
        return False
    at_step, needs_step = common_step(plan), _needed_step(plan)
    save = SaveStatus(
        id=_next_id(plan),
        at_step=at_step,
        attempt=plan.status.attempt,
        needs_step=needs_step,
        reason=reason,
        time=plan.stamp,
        deadline=until,
        seen_before=_seen_before(plan, needs_step),
    )
    _write(plan, save)
    where = f"at step {at_step}" if at_step else "at the next opportunity"
    plan.event(EventReason.SAVE_REQUESTED, f"{reason}: all ranks are asked to save {where}", action=ActionWord.SAVE)
    return True


def settle_save(plan: PlanBuilder) -> None:
    """Say of an awaited save what became of it, once that is known."""
    save = plan.status.checkpoint.save
    if save is None or save.outcome:
        return
    step = _answer(plan, save)
    if step is None and _is_reported_at_the_barrier(plan, save):
        return
    if step is None and (not plan.trains or save.attempt != plan.status.attempt):
        fail_save(plan, f"attempt {save.attempt} ended before it was complete")
        return
    deadline = save.deadline if save.deadline is not None else plan.stamp
    # A new leader has yet to get reports of what was saved while nobody listened.
    heard = plan.snapshot.leadership.since + plan.silent_after
    if step is not None:
        asked = f"; the program's own save came before step {save.at_step}, which was asked for, and will do"
        words = f"step {step} is saved on all ranks{asked if step < save.at_step else ''}"
        _conclude(plan, save, RequestResult.SAVED, words, step)
    elif plan.reached(max(deadline, heard)):
        _conclude(
            plan, save, RequestResult.EXPIRED, f"no valid checkpoint of step {save.needs_step} or later came in time"
        )
    elif _all_exited(plan):
        if _have_looked_since_exits(plan, save):
            fail_save(plan, "all processes ended without it")
    elif _is_heard(plan) and not _may_listen(plan) and _have_looked_since_exits(plan, save):
        fail_save(plan, "no process asks for saves any more")


def _is_reported_at_the_barrier(state: RunState, save: SaveStatus) -> bool:
    """A rank that leaves may end with its save done, before the others have reported theirs: they do at the barrier."""
    return state.phase is Phase.RECOVERING and state.status.attempt == save.attempt + 1


def last_trained(state: RunState, latest: Sequence[SavedCheckpoint] | None = None) -> int | None:
    """The last step of the attempt that is known to have been done: as reported, or as a save has it, which may be
    known before the step was reported. None: none is known. ``latest``: what is saved, where status may not have it."""
    number = state.status.attempt
    reports = [r.progress.step for r in state.snapshot.reports.values() if r.attempt == number and r.progress]
    saved = state.status.checkpoint.latest if latest is None else latest
    return max((*reports, *_as_asked(state.status), *_unreported(state, saved)), default=None)


def _unreported(state: RunState, saved: Sequence[SavedCheckpoint]) -> list[int]:
    """Steps of saves of this attempt for which there was time since the last report. One beyond may be counted in
    other steps."""
    number, ceiling = state.status.attempt, state.status.checkpoint.ceiling
    # Of what does not say whose it is nobody knows whether it was rolled back from.
    own = [each.step for each in saved if each.attempt == number or (each.attempt is None and ceiling is None)]
    reports = [report for report in _of_attempt(state) if report.progress is not None]
    if not reports:  # no other count to differ from
        return [each.step for each in saved if each.attempt == number]
    if max(own, default=0) <= _highest_step(state):
        return []
    seconds, extra = _step_seconds(state, reports)
    done = max(
        report.progress.step + 1 + extra + _since(state, report) / seconds
        for report in reports
        if report.progress is not None
    )
    return [step for step in own if step <= done]


def _since(state: RunState, report: WorkerReport) -> float:
    """Seconds since the step that was reported, a day at most, as the clock is its node's."""
    at = report.progress.at if report.progress is not None else state.now
    return min(86_400.0, max(0.0, state.now - min(at, report.received_at)))


def _as_asked(status: TrainingRunStatus) -> tuple[int, ...]:
    """The step of an answered save of this attempt. One beyond the step asked for may be counted in other steps."""
    save = status.checkpoint.save
    if save is None or save.attempt != status.attempt or save.outcome != RequestResult.SAVED:
        return ()
    return (save.step,) if 0 < save.step <= save.at_step else ()


def fail_save(plan: PlanBuilder, why: str) -> None:
    """End the wait for a save that cannot come any more."""
    save = plan.status.checkpoint.save
    if save is not None and not save.outcome:
        _conclude(plan, save, RequestResult.FAILED, why)


def is_awaited(status: TrainingRunStatus, save_id: str) -> bool:
    """The save was asked for and nothing has become of it yet."""
    save = status.checkpoint.save
    return save is not None and save.id == save_id and not save.outcome


def is_settled_for(status: TrainingRunStatus, reason: SaveReason) -> bool:
    """In the current attempt a save was asked for because of ``reason``, and it is known what became of it."""
    save = status.checkpoint.save
    return (
        save is not None and save.attempt == status.attempt and bool(save.outcome) and reason in save.reason.split(", ")
    )


def has_just_settled_for(state: RunState, reason: SaveReason) -> bool:
    """As ``is_settled_for``, and hardly more was trained since than a save takes. An older one was for something that
    did not come to pass, such as a drain that was taken back."""
    save = state.status.checkpoint.save
    if save is None or not is_settled_for(state.status, reason):
        return False
    lasts = max(FRESH_FOR, 2 * longest_wait_for_save(state.spec, state.tunables))
    return state.now - (save.time or 0.0) <= lasts + state.lag.allowance


def save_order(status: TrainingRunStatus) -> SaveRequest | None:
    """The workers' directive for an awaited save."""
    save = status.checkpoint.save
    if save is None or save.outcome or save.attempt != status.attempt:
        return None
    return SaveRequest(save.id, save.at_step, save.deadline or 0.0, save.reason)


def grace_period(state: RunState) -> float:
    """Seconds that a save may take."""
    return save_grace(state.spec)


def _conclude(plan: PlanBuilder, save: SaveStatus, outcome: RequestResult, words: str, step: int = 0) -> None:
    # Workers may be gone by the next reconcile: what they say of the checkpoint is kept now.
    latest = latest_valid(plan.snapshot, plan.status)
    plan.status = record_latest(plan.status, latest)
    _write(plan, changed(save, outcome=outcome.value, step=step))
    result = f"{outcome} step {step}" if outcome is RequestResult.SAVED else outcome.value
    plan.status = changed(
        plan.status,
        requests=tuple(
            changed(request, result=result)
            if request.name == REQUEST and request.result == RequestResult.TAKEN_UP
            else request
            for request in plan.status.requests
        ),
    )
    event = {
        RequestResult.SAVED: EventReason.SAVE_COMPLETED,
        RequestResult.EXPIRED: EventReason.SAVE_EXPIRED,
        RequestResult.FAILED: EventReason.SAVE_FAILED,
    }[outcome]
    plan.event(event, f"{save.reason}: {words}", action=ActionWord.SAVE, warning=outcome != RequestResult.SAVED)


def _write(plan: PlanBuilder, save: SaveStatus) -> None:
    plan.status = record_save(plan.status, save)


def _next_id(state: RunState) -> str:
    """Never used before in this run, also when status was lost in between: it grows with time."""
    before = state.status.checkpoint.save
    number = before.id.rpartition("-")[2] if before is not None else ""
    return f"save-{max(int(state.now * 1000), int(number) + 1 if number.isdecimal() else 0)}"


def listens(state: RunState) -> bool | None:
    """Some program asks for saves or catches the signal; None: who was not heard yet may."""
    signal = save_signal(state.spec)
    if state.spec.checkpoint is None and signal is None:
        return False
    if signal is not None or any(report.listens for report in _of_attempt(state)):
        return True
    unheard = any(state.report(slot) is None for slot in _ranks(state))
    return None if unheard and state.now - state.snapshot.leadership.since <= state.silent_after else False


def _may_listen(state: RunState) -> bool:
    return listens(state) is not False


def common_step(state: RunState) -> int:
    """A step that no rank has begun by the time it hears of it; 0 while no steps are known.

    Ranks that hear of it too late would save at another step than the others, so the margin counts what was
    done since the last report, and the time for delivery, rounded up, and the step that is under way.
    """
    reports = [report for report in _of_attempt(state) if report.progress is not None]
    seconds, extra = _step_seconds(state, reports)
    ahead = _DELIVERY_BEATS * state.heartbeat
    return max(
        (
            report.progress.step + 1 + extra + math.ceil((max(0.0, state.now - report.received_at) + ahead) / seconds)
            for report in reports
            if report.progress is not None
        ),
        default=0,
    )


def _step_seconds(state: RunState, reports: list[WorkerReport]) -> tuple[float, int]:
    """Time of one step, the fastest rank's, and how many steps to add for what it is not known exactly."""
    measured = min((report.timing.step for report in reports if report.timing.step > 0), default=0.0)
    if measured:
        return max(measured, 1e-3), 0
    entry = state.attempt_entry(state.status.attempt)
    begun = entry.started_at if entry is not None and entry.started_at is not None else state.now
    resumed = entry.resume_step if entry is not None and entry.resume_step is not None else 0
    steps = max((report.progress.step for report in reports if report.progress is not None), default=0) - resumed
    return max(1e-3, (state.now - begun) / steps) if steps > 0 else max(1e-3, state.heartbeat), UNTIMED_STEPS


def _needed_step(state: RunState) -> int:
    """The highest step reported; one more when that is saved already, since the training goes on."""
    highest = _highest_step(state)
    saved = [
        found.step
        for found in candidates(state.snapshot, state.status)
        if found.verdict is Verdict.VALID
        and found.tier == save_tier(state)
        and found.attempt in (0, state.status.attempt)
        and (not highest or found.step <= highest)  # what lies ahead was rolled back from
    ]
    return max(highest, max(saved, default=0) + 1)


def _answer(state: RunState, save: SaveStatus) -> int | None:
    """Step of a valid checkpoint of this attempt that fulfils the request, if there is one."""
    if not _is_seen(state, save):
        return None  # spares the merging, which costs ranks times rows
    tier = save_tier(state)
    reports = _of_saving_attempt(state, save)
    reached = max(save.at_step, *(report.progress.step for report in reports if report.progress is not None), 0)
    for found in candidates(state.snapshot, state.status):
        fits = found.tier == tier and found.step >= save.needs_step and (not save.at_step or found.step <= reached)
        if not fits or found.verdict is not Verdict.VALID:
            continue
        if found.attempt == save.attempt or (not found.attempt and _is_new(reports, found.path, save)):
            return found.step
    return None


def _seen_before(state: RunState, needed: int) -> tuple[str, ...]:
    """What is whole from that step on and does not say its attempt. In a directory of all attempts it is of one that
    was rolled back, until it is written anew: its own time tells that, whatever other clocks say."""
    checkpoint = state.spec.checkpoint
    if checkpoint is None or not checkpoint.trust_times:
        return ()  # written anew it may look the same
    tier = save_tier(state)
    rows = {
        (row.step, row.path, row.committed_at)
        for report in _of_attempt(state)
        for row in report.inventory
        if (row.tier, row.attempt, row.verdict) == (tier, 0, Verdict.VALID)
        and row.step >= needed
        and row.committed_at > 0
    }
    return tuple(_as_seen(path, at) for _, path, at in sorted(rows)[:MAX_SEEN_BEFORE])


def _as_seen(path: str, committed_at: float) -> str:
    return sha256(f"{committed_at!r} {path}".encode("utf-8", "replace")).hexdigest()[:16]


def _is_new(reports: Sequence[WorkerReport], path: str, save: SaveStatus) -> bool:
    """Some rank sees it otherwise than as it was when the save was asked for."""
    if not save.seen_before:
        return True
    times = {row.committed_at for report in reports for row in report.inventory if row.path == path}
    return any(_as_seen(path, at) not in save.seen_before for at in times)


def _is_seen(state: RunState, save: SaveStatus) -> bool:
    """Some rank sees what may answer it."""
    tier = save_tier(state)
    rows = (row for report in _of_saving_attempt(state, save) for row in report.inventory)
    return any(row.tier == tier and row.step >= save.needs_step for row in rows)


def _of_saving_attempt(state: RunState, save: SaveStatus) -> list[WorkerReport]:
    reports = (state.report(slot) for slot in _ranks(state))
    return [report for report in reports if report is not None and report.attempt == save.attempt]


def save_tier(state: RunState) -> str:
    """A save that is asked for has to outlive its nodes, wherever that is possible."""
    checkpoint = state.spec.checkpoint
    return SHARED if checkpoint is not None and checkpoint.shared is not None else LOCAL


def _have_looked_since_exits(state: RunState, save: SaveStatus) -> bool:
    """The workers of all that has ended have reported what they found afterwards; and the others, whose programs go
    on, where those did find something, which counts once all of them see it."""
    exits = [report.since for report in _of_attempt(state) if report.phase is WorkerPhase.EXITED]
    if not exits:
        return True
    go_on = _is_seen(state, save) and not _all_exited(state)
    look = max(WATCH_SECONDS, WATCH_BEATS * state.heartbeat) if go_on else 0.0
    return state.reached(max(exits) + look + _DELIVERY_BEATS * state.heartbeat)


def _all_exited(state: RunState) -> bool:
    reports, ranks = _of_attempt(state), _ranks(state)
    return 0 < len(ranks) == len(reports) and all(report.phase is WorkerPhase.EXITED for report in reports)


def _highest_step(state: RunState) -> int:
    return max((report.progress.step for report in _of_attempt(state) if report.progress is not None), default=0)


def _ranks(state: RunState) -> list[int]:
    """Slots that hold a rank."""
    return [slot for slot in state.slot_range() if state.rank(slot) >= 0]


def _is_heard(state: RunState) -> bool:
    """Some rank is, or there is none: who was not heard may be saving."""
    return not _ranks(state) or bool(_of_attempt(state))


def _of_attempt(state: RunState) -> list[WorkerReport]:
    """What the workers of ranks say of the current attempt."""
    reports = (state.report(slot) for slot in _ranks(state))
    return [report for report in reports if report is not None and report.attempt == state.status.attempt]
