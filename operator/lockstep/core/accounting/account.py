"""Keeps the account of a run: what one ``decide`` saw, as facts, into status.goodput.

Level-triggered like everything else: facts are what status and reports say beyond what the book has, so that
a decision that is lost or made twice changes nothing. The book is written together with the change it tells of.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from lockstep.api.base.changes import changed
from lockstep.api.goodput_status import BucketsStatus, GoodputStatus
from lockstep.api.recovery_status import AttemptStatus
from lockstep.core.accounting.book import Book, new_book, read, write
from lockstep.core.accounting.goodput import (
    Ended,
    Entered,
    Fact,
    Failed,
    GoodputStage,
    Saved,
    Started,
    Stepped,
    after,
    buckets,
    ettr,
    has_steps,
    runtime_goodput,
    whole_seconds,
)
from lockstep.core.accounting.measures import reports_of, usual_step_seconds, with_measurements
from lockstep.core.accounting.usage import (
    MOST_SHARE,
    BudgetUse,
    GpuUsage,
    budget_use,
    model_flops_utilisation,
    seconds_until,
    step_efficiency,
)
from lockstep.core.checkpoints.inventory import committed_step, is_own
from lockstep.core.model.conditions import is_true
from lockstep.core.model.kept_nodes import nodes_kept
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, ConditionType, EventReason
from lockstep.core.model.run_state import RunContext, RunState
from lockstep.core.model.snapshot import Leadership, RunSnapshot, RunView
from lockstep.core.model.tunables import Tunables

_RUNS = (GoodputStage.INIT, GoodputStage.LOADING, GoodputStage.STEPS)


def keep_account(plan: PlanBuilder) -> None:
    """Bring status.goodput up to date, at every change of what the time goes to, else with the progress writes."""
    if plan.run.deleting:
        return
    known = _book(plan)
    if known.account.stage is GoodputStage.ENDED:
        _count_what_is_kept(plan, known)
        return
    held = _gpus_held(plan)
    usage = known.usage.holding(held, plan.status.resolved.gpu_type, plan.stamp)
    counted = _watch_budget(plan, replace(known, usage=usage))
    if counted.warned is known.warned and _is_as_it_was(plan, known, usage):
        return
    book = counted
    first_step_at = None  # of an attempt nothing else tells it: the account keeps sums alone
    for fact in _facts(plan, known):
        starts_up = book.account.stage in (GoodputStage.INIT, GoodputStage.LOADING)
        book = replace(book, account=after(book.account, fact))
        if starts_up and book.account.stage is GoodputStage.STEPS:
            first_step_at = float(book.account.since // 1000)
        if isinstance(fact, Saved):
            book = replace(book, saved_step=fact.step)
    book = with_measurements(plan, book)
    attempt = _attempt_counted(plan, known)
    if attempt != book.attempt:
        book = replace(book, attempt=attempt, saved_step=0, measured_step=0)
    step_ms = round(1000 * usual_step_seconds(plan))
    if step_ms and (not book.best_step_ms or step_ms < book.best_step_ms):
        book = replace(book, best_step_ms=step_ms)
    if _worth_writing(plan, known, book):
        if first_step_at is not None and plan.attempt_entry(known.attempt) is not None:
            plan.put_attempt(changed(plan.attempt(known.attempt), first_step_at=first_step_at))
        plan.status = changed(plan.status, goodput=_published(plan, book))


def _count_what_is_kept(plan: PlanBuilder, known: Book) -> None:
    """After its end a run pays for the nodes that are kept for debugging, as it did before, until they are given
    back."""
    held = _gpus_held(plan)
    if not held and not known.usage.gpus:
        return
    usage = known.usage.holding(held, plan.status.resolved.gpu_type, plan.stamp)
    book = _watch_budget(plan, replace(known, usage=usage))
    if held != known.usage.gpus or book.warned is not known.warned:
        plan.status = changed(plan.status, goodput=_published(plan, book))


def book_of(state: RunState) -> Book:
    """The book as status has it, with GPU time counted up to now."""
    book = _book(state)
    return replace(book, usage=book.usage.until(state.now))


def account_of_deleted(run: RunView, tunables: Tunables, now: float) -> GoodputStatus:
    """Of a run that is gone: the account that its status had, closed at ``now``."""
    state = RunState(RunContext(RunSnapshot(run, (), {}, {}, Leadership(now)), tunables, now))
    book = book_of(state)
    ended = Ended(state.stamp, committed_step(state.snapshot, state.status))
    return _published(state, replace(book, account=after(book.account, ended)))


def over_budget(state: RunState) -> bool:
    """The run has used its GPU-hours and is to be stopped for that."""
    budget = state.spec.budget
    if budget is None or budget.action != "Stop":
        return False
    return budget_use(book_of(state).usage.gpu_hours, budget.gpu_hours) is BudgetUse.ALL


def _book(state: RunState) -> Book:
    text = state.status.goodput.state
    book = read(text) if text else None
    if book is not None:
        return book
    created = float(int(state.run.created_at))
    fresh = new_book(created)
    if state.status.attempt <= 1 and state.status.start is None and not state.status.attempts:
        return fresh  # nothing is written while a run only waits
    # The run has a past that nobody wrote down: what its history does not tell is nobody's.
    return replace(fresh, account=after(fresh.account, Entered(created, GoodputStage.OTHER)))


def _facts(state: RunState, book: Book) -> Iterator[Fact]:
    status, phase = state.status, state.phase
    stage = book.account.stage
    counted = book.attempt
    if stage in _RUNS:
        yield from _steps(state, counted, stage)
        yield from _saves(state, book)
    for entry in status.attempts:
        if entry.number > counted and entry.started_at is not None:
            if (
                stage in (GoodputStage.QUEUE, GoodputStage.SUSPENDED, GoodputStage.OTHER)
                and status.last_admitted is not None
            ):
                yield Entered(min(status.last_admitted, entry.started_at), GoodputStage.PROVISION)
            yield Started(entry.started_at, entry.resume_step or 0, entry.resume_step is not None)
            counted, stage = entry.number, GoodputStage.INIT
        if entry.number == counted and entry.ended_at is not None and stage in _RUNS:
            yield _end_of(entry)
            stage = GoodputStage.RESTART if entry.rank is not None else GoodputStage.OTHER
    start = status.start
    if phase is Phase.RUNNING and start is not None and start.attempt > counted:  # its entry was lost
        yield Started(state.stamp, start.resume.step if start.resume else 0, start.resume is not None)
    following = _stage_of(phase, stage)
    if phase is Phase.FINISHED and stage is not GoodputStage.ENDED:
        yield Ended(state.stamp, _kept_step(state))
    elif following is not None and following is not stage:
        at = status.last_admitted if following is GoodputStage.PROVISION and status.last_admitted else state.stamp
        yield Entered(min(at, state.stamp), following)


def _steps(state: RunState, attempt: int, stage: GoodputStage) -> Iterator[Fact]:
    reached = [
        (report.progress, report.timing.step)
        for report in reports_of(state, attempt)
        if report.progress is not None and report.progress.at
    ]
    if not reached:
        return
    newest, each = max(reached, key=lambda found: (found[0].step, -found[0].at))
    at = min(newest.at, state.stamp)
    if stage is not GoodputStage.STEPS:
        entry = state.attempt_entry(attempt)
        begun_after = (entry.resume_step or 0) if entry is not None else newest.step
        if newest.step <= begun_after:
            return
        # The first steps went by before they were heard of: they began as long ago as steps take.
        yield Stepped(at - (newest.step - begun_after) * each, begun_after)
    yield Stepped(at, newest.step)


def _end_of(entry: AttemptStatus) -> Fact:
    assert entry.ended_at is not None
    if entry.rank is not None:  # an end that a rank caused is a failure
        return Failed(entry.ended_at, seen=max(entry.ended_at, entry.seen_at or entry.ended_at))
    return Entered(
        entry.ended_at, GoodputStage.RESTART if entry.action == ActionWord.RESTART_IN_PLACE else GoodputStage.OTHER
    )


def _stage_of(phase: Phase, stage: GoodputStage) -> GoodputStage | None:
    """What a phase alone says; None: nothing beyond what is known."""
    match phase:
        case Phase.PENDING:
            return GoodputStage.QUEUE
        case Phase.SUSPENDED:
            return GoodputStage.SUSPENDED
        case Phase.LAUNCHING:
            return GoodputStage.PROVISION
        case Phase.RECOVERING:
            return GoodputStage.RESTART
        case Phase.STOPPING:
            return None if stage in _RUNS else GoodputStage.OTHER
        case _:
            return None


def _kept_step(state: RunState) -> int | None:
    """The last step of a finished run that is worth something; None: all of them."""
    if is_true(state.status, ConditionType.SUCCEEDED):
        return None
    return committed_step(state.snapshot, state.status)


def _attempt_counted(state: RunState, book: Book) -> int:
    started = [entry.number for entry in state.status.attempts if entry.started_at is not None]
    running = state.status.start.attempt if state.status.start is not None and state.phase is Phase.RUNNING else 0
    return max([book.attempt, running, *started])


def _saves(state: RunState, book: Book) -> Iterator[Saved]:
    """Saves that were heard of since: each kept training waiting as long as the last one did."""
    reports = reports_of(state, book.attempt)
    blocked = [report.timing.save_block for report in reports if report.timing.save_block > 0.0]
    if not blocked:
        return
    saved = {
        row.step: row.committed_at
        for report in reports
        for row in report.inventory
        if row.attempt == book.attempt and is_own(row, state) and row.step > book.saved_step
    }
    for step in sorted(saved):
        yield Saved(min(saved[step] or state.stamp, state.stamp), step, median(blocked))


def _gpus_held(state: RunState) -> int:
    if state.phase in (Phase.PENDING, Phase.SUSPENDED):
        return 0
    if state.phase is Phase.FINISHED:
        return state.status.resolved.gpus_per_node * nodes_kept(state.status)
    return state.status.resolved.gpus_per_node * sum(1 for node in state.status.assignment.nodes if node)


def _watch_budget(plan: PlanBuilder, book: Book) -> Book:
    budget = plan.run.spec.budget if plan.run.spec is not None else None
    if budget is None:
        return book
    for share in (MOST_SHARE, 1.0):
        due = seconds_until(book.usage, share * budget.gpu_hours)
        if due is not None:
            plan.wake(plan.stamp + due + 1.0)
            break
    use = budget_use(book.usage.gpu_hours, budget.gpu_hours)
    if use is book.warned:
        return book
    if use is not BudgetUse.WITHIN:
        words = "all" if use is BudgetUse.ALL else f"{MOST_SHARE:.0%}"
        is_over = book.account.stage is GoodputStage.ENDED
        then = "; its nodes are not kept any longer" if is_over else "; the run is stopped"
        then = then if use is BudgetUse.ALL and budget.action == "Stop" else ""
        plan.event(
            EventReason.GPU_HOURS_USED,
            f"{words} of the {budget.gpu_hours} GPU-hours of spec.budget are used{then}",
            action=ActionWord.ACCOUNT,
            warning=True,
        )
    return replace(book, warned=use)


def _is_as_it_was(state: RunState, book: Book, usage: GpuUsage) -> bool:
    """Nothing can be worth a write. Found cheaply: most reconciles, over hundreds of reports, are of this kind."""
    stage = book.account.stage
    if (book.usage.gpus, book.usage.gpu_type) != (usage.gpus, usage.gpu_type) or _is_due(state):
        return False
    if stage in _RUNS:
        entry = state.attempt_entry(book.attempt)
        going_on = entry is not None and entry.ended_at is None and state.phase is Phase.RUNNING
        return going_on and stage is GoodputStage.STEPS and state.status.attempt == book.attempt
    return state.phase is not Phase.RUNNING and _stage_of(state.phase, stage) is stage


def _worth_writing(state: RunState, known: Book, book: Book) -> bool:
    before, now = known.account, book.account
    if (before.stage, before.failures, known.attempt, known.warned) != (
        now.stage,
        now.failures,
        book.attempt,
        book.warned,
    ):
        return True
    return (known.usage.gpus, known.usage.gpu_type) != (book.usage.gpus, book.usage.gpu_type) or _is_due(state)


def _is_due(state: RunState) -> bool:
    """Along with the step, which is written no more often than is good for the API server.

    Without steps, much more seldom, and not first of all by a new leader: the workers wait for its word.
    """
    if state.phase is not Phase.RUNNING:
        return False
    interval = state.tunables.progress_write_interval
    if state.status.progress != state.run.status.progress:
        return True
    settled = state.now - state.snapshot.leadership.since >= interval
    return settled and state.stamp - (state.status.goodput.time or 0.0) >= 10 * interval


def _published(state: RunState, book: Book) -> GoodputStatus:
    account = book.account
    now = float(math.ceil(account.since / 1000))  # not before it, should this leader's clock be behind
    if account.stage is not GoodputStage.ENDED:
        now = max(now, state.stamp)
    parts = buckets(account, now)
    recoveries = sorted(account.recoveries)
    rates = state.tunables.gpu_rates
    energy, cost = book.usage.energy_kwh(rates), book.usage.cost(rates)
    tokens, mfu = _throughput(state, book)
    efficiency = step_efficiency(account.steps, book.best_step_ms / 1000.0, account.marks[-1].productive / 1000.0)
    return GoodputStatus(
        buckets=BucketsStatus(**{bucket.value: amount for bucket, amount in whole_seconds(parts).items()}),
        state=write(book),
        time=now,
        ettr=f"{ettr(parts):.3f}" if has_steps(parts) else "",
        goodput=f"{runtime_goodput(parts):.3f}" if has_steps(parts) else "",
        gpu_hours=f"{book.usage.gpu_hours:.2f}",
        tokens_per_second="" if tokens is None else f"{tokens:.0f}",
        step_efficiency="" if efficiency is None else f"{efficiency:.3f}",
        mfu="" if mfu is None else f"{mfu:.3f}",
        energy_kwh="" if energy is None else f"{energy:.1f}",
        cost="" if cost is None else f"{cost:.2f}",
        mttr_p50=_quantile(recoveries, 0.5),
        mttr_p95=_quantile(recoveries, 0.95),
        failures=account.failures,
        steps_lost=account.steps_lost,
        recoveries=account.recoveries,
    )


def _throughput(state: RunState, book: Book) -> tuple[float | None, float | None]:
    """Tokens a second and MFU over the steps between the last two marks."""
    progress = state.run.spec.progress if state.run.spec is not None else None
    marks = book.account.marks
    if (
        progress is None
        or progress.tokens_per_step is None
        or len(marks) < 2
        or book.account.stage is not GoodputStage.STEPS
    ):
        return None, None
    took = (marks[-1].productive - marks[-2].productive) / 1000.0
    if took <= 0.0:
        return None, None
    tokens = (marks[-1].step - marks[-2].step) * progress.tokens_per_step / took
    rates = state.tunables.gpu_rates.get(book.usage.gpu_type)
    if progress.flops_per_token is None or rates is None:
        return tokens, None
    return tokens, model_flops_utilisation(tokens, progress.flops_per_token, book.usage.gpus, rates.peak_flops)


def _quantile(ordered: list[int], share: float) -> int:
    """Nearest rank: the least of the values that ``share`` of them do not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else 0
