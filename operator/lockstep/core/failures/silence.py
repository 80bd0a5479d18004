"""Who is silent, and since when nobody steps: what is late, and how long that proves nothing.

Right after a change of leader silence means nothing, nor does the time in which this process did not listen.
"""

from lockstep.core.failures.ranks import slots_to_join, succeeded_ranks
from lockstep.core.model.run_state import RunState
from lockstep.core.model.worker_report import WorkerPhase, WorkerReport

LONGEST_POLL = 15.0
"""Seconds that a worker may ask its poll to be held open."""
_USUAL_STEPS = 3
_REJOINED_AFTER, _REJOINING_SILENCES = 60.0, 4
"""A worker waits for the answer to a poll that its old leader never gives, backs off, connects, and waits once more."""


def is_silent(state: RunState, report: WorkerReport | None) -> bool:
    """No heartbeat for three intervals, and this process has led long enough to have heard one."""
    due = silent_at(state, report)
    if not state.passed(due):
        return False
    # What was said while nobody listened may not have been read yet.
    return state.passed(min(state.lag.caught_up_at(state.silent_after), due + state.silent_after))


def silent_at(state: RunState, report: WorkerReport | None) -> float:
    """When a worker counts as silent if nothing more is heard; the time in which nobody listened does not count."""
    heard = state.snapshot.leadership.since
    if report is not None:
        heard = max(heard, _heard_at(state, report))
    return heard + state.silent_after + state.lag.deaf_since(heard)


def slack(state: RunState) -> float:
    """How much longer a worker on a Ready node may be silent where everything is slow, itself perhaps too: in a launch
    by as much as all deadlines of it are later, in training by as long again."""
    return min(state.lag.allowance, state.silent_after) if state.trains else state.lag.allowance


def _heard_at(state: RunState, report: WorkerReport) -> float:
    """A worker at the barrier says nothing while its poll is open, and that may be longer than three heartbeats."""
    return min(state.now, report.received_at + LONGEST_POLL) if report.polling else report.received_at


def everyone_heard_since(state: RunState, moment: float, *, but: int) -> bool:
    """The worker of every rank other than that in slot ``but`` has reported after ``moment``.

    One that ended well has said all it had to say, and may have left since.
    """
    done, joining = succeeded_ranks(state), slots_to_join(state)
    return all(
        (report := state.report(slot)) is not None and report.received_at > moment
        for slot in state.ranked_slots()
        if slot != but and state.rank(slot) not in done and slot not in joining
    )


def nobody_steps(state: RunState) -> bool:
    """No rank has reported a step of the attempt in the time after which steps count as stopped."""
    reports = map(state.report, state.ranked_slots())
    if any(r is not None and r.progress is not None and r.attempt == state.status.attempt for r in reports):
        return False
    due = start_due(state, state.tunables.steps_stopped_after)
    return due is not None and state.reached(due)


def start_due(state: RunState, patience: float) -> float | None:
    """When the last rank should have begun the attempt: ``patience`` after START, and after each that began it later.

    A new leader inherits that. What it hears first is no news; and it gives those that it hears half of the time once
    more, or all of it where none of them was released before. None while somebody is not heard: nobody is released
    before all addresses are known.
    """
    if not state.trains:
        return None
    joining = slots_to_join(state)
    reports = [state.report(slot) for slot in state.ranked_slots() if slot not in joining]
    heard = [report for report in reports if report is not None]
    if len(heard) < len(reports):
        return None
    entry = state.attempt_entry(state.status.attempt)
    leads_since = state.snapshot.leadership.since
    released = entry.started_at if entry is not None and entry.started_at is not None else leads_since
    joined = state.status.start.joined_at if state.status.start is not None else None
    released = max([released, joined or 0.0, *(r.since for r in heard if r.since > r.registered_at)])
    complete = max([leads_since, *(report.registered_at for report in heard)])
    some_began = any(report.attempt >= state.status.attempt for report in heard)
    due = max(released + patience, complete + (patience / 2 if some_began else patience))
    return due + state.lag.allowance + state.lag.deaf_since(released)


def registered_by(state: RunState) -> float | None:
    """When whoever took part in START is registered, as with a new leader each has to be again, and while some still
    do the others may be in the queue behind them. None: it may never have come up yet, and has deadlines of its own.
    """
    if not state.trains:
        return None
    since, reports = state.snapshot.leadership.since, map(state.report, state.ranked_slots())
    newest = max((report.registered_at for report in reports if report is not None), default=since)
    queue_moved = min(newest, since + state.tunables.breaker.longest)
    due = max(since + rejoins_within(state), queue_moved + _REJOINED_AFTER / 2)
    return due + state.lag.allowance + state.lag.deaf_since(since)


def rejoins_within(state: RunState) -> float:
    """Seconds in which a new leader has heard every worker that was there before it."""
    usual = max(_REJOINED_AFTER, _REJOINING_SILENCES * state.silent_after)
    return min(state.tunables.deadlines.registered, usual)


def steps_have_stopped(state: RunState) -> bool:
    """Judged by the workers that are heard; where nothing is known the answer is no."""
    limit = state.silent_after
    heard = [
        report
        for slot in state.ranked_slots()
        if (report := state.report(slot)) is not None
        and state.now - (at := _heard_at(state, report)) <= limit + state.lag.deaf_since(at)
    ]
    if not heard:
        return False
    running = [report for report in heard if report.phase is WorkerPhase.RUNNING]
    if not running:
        return True
    steps = [r.progress for r in running if r.progress is not None and r.attempt == state.status.attempt]
    if not steps:
        return False  # nothing was reported yet, or they have not even ended the attempt before
    entry = state.attempt_entry(state.status.attempt)
    begun = entry.started_at if entry is not None and entry.started_at is not None else 0.0
    resumed = entry.resume_step if entry is not None and entry.resume_step is not None else 0
    last = max(max(progress.at for progress in steps), begun)
    # Start-up counts as part of the first steps: an early estimate errs towards patience.
    usual = (last - begun) / max(1, max(progress.step for progress in steps) - resumed)
    patience = max(state.tunables.steps_stopped_after, _USUAL_STEPS * usual)
    return state.passed(last + patience + state.lag.deaf_since(last))
