"""What a run has measured of itself: failures over node-days, what saves cost, how long steps take."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.accounting.book import Book
from lockstep.core.checkpoints.cadence import SaveCost
from lockstep.core.checkpoints.inventory import is_own
from lockstep.core.failures.failure_rate import SECONDS_PER_DAY
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import PoolRecord
from lockstep.core.model.tiers import SHARED
from lockstep.core.model.worker_report import WorkerReport

HALF_LIFE_DAYS = 14.0
"""A failure, or a day without one, counts half after this long."""
UNMEASURED_LOCAL, UNMEASURED_SHARED = SaveCost(1.0, 5.0), SaveCost(10.0, 60.0)
"""What saves are taken to cost before the first one is measured."""


@dataclass(frozen=True, slots=True)
class NewestSave:
    """The last save of an attempt and what it cost."""

    step: int
    shared: bool
    blocking: float
    durable: float


def reports_of(state: RunState, attempt: int) -> list[WorkerReport]:
    """Reports of workers whose child is, or last was, of ``attempt``."""
    return [report for report in state.snapshot.reports.values() if attempt and report.attempt == attempt]


def usual_step_seconds(state: RunState) -> float:
    """Median over the ranks of their median time of a step; 0: not measured yet."""
    measured = [r.timing.step for r in reports_of(state, state.status.attempt) if r.timing.step > 0.0]
    return median(measured) if measured else 0.0


def with_measurements(state: RunState, book: Book) -> Book:
    """The book with what was heard since: node-days, failures, and the newest save.

    Failures without progress count once there is some: a program that always crashes says nothing about nodes,
    and must not raise the number of attempts that luck is given.
    """
    exposure = book.exposure.later(state.stamp, book.nodes, HALF_LIFE_DAYS)
    failures = book.account.failures
    if failures > book.counted_failures and state.status.recovery.consecutive_no_progress == 0:
        exposure = replace(exposure, failures=exposure.failures + failures - book.counted_failures)
        book = replace(book, counted_failures=failures)
    book = replace(book, exposure=exposure, nodes=_nodes_held(state.status))
    save = _newest_save(state, book)
    if save is None:
        return book
    if save.shared:
        cost = (book.shared_cost or UNMEASURED_SHARED).measured(save.blocking, save.durable)
        return replace(book, shared_cost=cost, measured_step=save.step)
    cost = (book.local_cost or UNMEASURED_LOCAL).measured(save.blocking, save.durable)
    return replace(book, local_cost=cost, measured_step=save.step)


def pool_records(statuses: Iterable[TrainingRunStatus]) -> Mapping[str, PoolRecord]:
    """Failures and node-days of all runs together, by GPU type. Failures in a row without progress don't count."""
    pools: dict[str, PoolRecord] = {}
    for status in statuses:
        goodput = status.goodput
        if goodput.time is None:
            continue
        parts = goodput.buckets
        waiting = parts.queue + parts.suspended + parts.other
        with_nodes = sum(seconds for _, seconds in parts) - waiting
        before = pools.get(status.resolved.gpu_type, PoolRecord())
        pools[status.resolved.gpu_type] = PoolRecord(
            before.failures + max(0, goodput.failures - status.recovery.consecutive_no_progress),
            before.node_days + max(0, with_nodes) * status.resolved.nodes / SECONDS_PER_DAY,
        )
    return pools


def _newest_save(state: RunState, book: Book) -> NewestSave | None:
    reports = [report for report in reports_of(state, book.attempt) if report.timing.persist > 0.0]
    tiers: dict[int, set[str]] = {}
    for report in reports:
        for row in report.inventory:
            if row.attempt == book.attempt and is_own(row, state):
                tiers.setdefault(row.step, set()).add(row.tier)
    newest = max(tiers, default=0)
    if newest <= book.measured_step:
        return None
    return NewestSave(
        newest,
        SHARED in tiers[newest],
        median(report.timing.save_block for report in reports),
        median(report.timing.persist for report in reports),
    )


def _nodes_held(status: TrainingRunStatus) -> int:
    return sum(1 for node in status.assignment.nodes if node)
