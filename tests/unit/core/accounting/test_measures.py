"""What a run has measured of itself: failures over node-days, what saves cost, how long steps take."""

from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.goodput_status import BucketsStatus, GoodputStatus
from lockstep.api.recovery_status import RecoveryStatus
from lockstep.api.run_status import ResolvedStatus, TrainingRunStatus
from lockstep.core.accounting.book import Book, read
from lockstep.core.accounting.measures import pool_records
from lockstep.core.model.snapshot import PoolRecord
from support.measuring import Training, started


def recorded(gpu_type: str = "H100", *, nodes: int = 2, failures: int = 0, **more: Any) -> TrainingRunStatus:
    """Of a run that was counted: ``parts`` of its time, failures in a row ``without_progress``."""
    buckets = BucketsStatus(**more.get("parts", {"productive": 86_400}))
    return TrainingRunStatus(
        goodput=GoodputStatus(time=more.get("time", 1.0), buckets=buckets, failures=failures),
        resolved=changed(ResolvedStatus(), gpu_type=gpu_type, nodes=nodes),
        recovery=RecoveryStatus(consecutive_no_progress=more.get("without_progress", 0)),
    )


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], {}),
        ([TrainingRunStatus()], {}),
        ([recorded()], {"H100": PoolRecord(0, 2.0)}),
        ([recorded(failures=3)], {"H100": PoolRecord(3, 2.0)}),
        ([recorded(failures=3, without_progress=2)], {"H100": PoolRecord(1, 2.0)}),
        ([recorded(failures=1, without_progress=2)], {"H100": PoolRecord(0, 2.0)}),
        ([recorded(failures=1), recorded(failures=2, nodes=4)], {"H100": PoolRecord(3, 6.0)}),
        ([recorded("H100"), recorded("H200", nodes=1)], {"H100": PoolRecord(0, 2.0), "H200": PoolRecord(0, 1.0)}),
        ([recorded(parts={"queue": 86_400, "suspended": 5, "other": 7})], {"H100": PoolRecord(0, 0.0)}),
        ([recorded(parts={"queue": 86_400, "restart": 43_200})], {"H100": PoolRecord(0, 1.0)}),
    ],
)
def test_a_pool_is_all_runs_on_one_gpu_type_for_as_long_as_they_had_nodes(
    statuses: list[TrainingRunStatus], expected: dict[str, PoolRecord]
) -> None:
    assert pool_records(statuses) == expected


def book_of(w: Training) -> Book:
    book = read(w.status("llama").goodput.state)
    assert book is not None
    return book


@pytest.mark.parametrize(
    ("tiers", "timing", "shared", "local"),
    [
        (["shared"], {}, None, None),
        (["shared"], {"save_block": 2.0}, None, None),
        (["shared"], {"save_block": 2.0, "persist": 30.0}, (2.0, 30.0), None),
        (["local"], {"save_block": 2.0, "persist": 30.0}, None, (2.0, 30.0)),
        (["local", "shared"], {"save_block": 2.0, "persist": 30.0}, (2.0, 30.0), None),
        ([], {"save_block": 2.0, "persist": 30.0}, None, None),
    ],
    ids=["not measured", "not durable yet", "shared", "local", "both", "nothing saved"],
)
def test_the_newest_save_is_measured_for_the_slowest_tier_that_has_it(
    tiers: list[str], timing: dict[str, float], shared: Any, local: Any
) -> None:
    w = started(local=True, step=10.0, **timing)
    w.tiers = tuple(tiers)
    w.saved[w.runs["llama"].uid] = [100]
    w.train("llama", 120)
    w.pass_time(60, step=20)
    book = book_of(w)
    assert [cost and (cost.blocking, cost.durable) for cost in (book.shared_cost, book.local_cost)] == [shared, local]


@pytest.mark.parametrize(("step", "milliseconds"), [(0.0, 0), (10.0, 10_000), (0.25, 250)])
def test_a_step_takes_what_half_of_the_ranks_say(step: float, milliseconds: int) -> None:
    w = started(step=step)
    w.train("llama", 120)
    w.pass_time(60, step=20)
    assert book_of(w).best_step_ms == milliseconds
