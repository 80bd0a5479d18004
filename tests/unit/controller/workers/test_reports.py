"""The book of reports: what is kept, and what wakes a decision."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lockstep.controller.workers.reports import SupersededError, UnregisteredError
from lockstep.controller.workers.trust import SenderClaim
from lockstep.core.model.plan import DesiredPhase, Directive
from lockstep.core.model.start_record import CollectiveStart, Members
from lockstep.core.model.worker_report import CheckpointReport, Verdict, WorkerPhase
from support.report_desk import CLAIM, NEWER, RUN, Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


def saved(step: int, tier: str = "shared", **fields: Any) -> CheckpointReport:
    row = {"tier": tier, "step": step, "path": f"/{tier}/step-{step}", "verdict": "Valid", **fields}
    return msgspec.convert(row, CheckpointReport)


async def test_a_worker_must_register_before_it_reports(desk: Desk) -> None:
    with pytest.raises(UnregisteredError):
        desk.report()
    desk.register()
    desk.report(phase="Ready", readyFor=1, port=40000)
    report = desk.book.reports(RUN)[0]
    assert (report.phase, report.ready_for, report.port) == (WorkerPhase.READY, 1, 40000)
    assert (report.node, report.address, report.received_at) == ("gpu-1", "10.0.0.1", 1000.0)


async def test_what_is_heard_first_is_no_news(desk: Desk) -> None:
    desk.register(phase="Running", attempt=2)
    report = desk.book.reports(RUN)[0]
    assert report.since == report.registered_at == 1000.0
    await desk.clock.advance(3)
    desk.report(phase="Running", attempt=2)
    assert desk.book.reports(RUN)[0].since == 1000.0
    desk.report(phase="Ready", attempt=2, readyFor=3)
    report = desk.book.reports(RUN)[0]
    assert (report.since, report.registered_at) == (1003.0, 1000.0)


async def test_an_older_incarnation_is_refused_once_a_newer_one_spoke(desk: Desk) -> None:
    desk.register()
    desk.register(NEWER)
    with pytest.raises(SupersededError):
        desk.register()
    with pytest.raises(SupersededError):
        desk.report()
    assert desk.book.reports(RUN)[0].incarnation == 2


async def test_a_newer_incarnation_starts_with_a_clean_sheet(desk: Desk) -> None:
    desk.register(inventory=(saved(3),))
    desk.report(phase="Exited", exit={"code": 1, "at": 999})
    desk.register(NEWER)
    report = desk.book.reports(RUN)[0]
    assert (report.exit, report.inventory) == (None, ())


async def test_what_one_worker_may_occupy_in_memory_is_bounded_and_the_newest_rows_stay(desk: Desk) -> None:
    owners = tuple(range(1024))
    rows = tuple(saved(step, path=f"/{step}" + "x" * 4000, reason="y" * 256, owners=owners) for step in range(1, 33))
    desk.register(inventory=rows)
    kept = desk.book.reports(RUN)[0].inventory
    assert sum(len(row.path) + 8 * len(row.owners) for row in kept) < 65_536
    assert [row.step for row in kept] == list(range(32, 32 - len(kept), -1))


async def test_the_start_that_all_ranks_have_is_kept_once(desk: Desk) -> None:
    record = CollectiveStart(1, "abc", "10.0.0.1", 4000, members=(Members("0-1", 1),))
    desk.book.set_directive(RUN, Directive(1, DesiredPhase.RUN, (1, 1), (0, 1), start=record))
    desk.register(start=msgspec.to_builtins(record))
    assert desk.book.reports(RUN)[0].start is record


async def test_workers_are_counted_once_however_often_they_come(desk: Desk) -> None:
    desk.register()
    desk.register()
    desk.register(NEWER)
    desk.register(replace(CLAIM, run_uid="run-2"))
    assert desk.book.worker_count() == 2
    desk.book.forget(RUN)
    desk.book.forget(RUN)
    assert desk.book.worker_count() == 1


async def test_a_plain_heartbeat_wakes_nobody(desk: Desk) -> None:
    desk.register()
    desk.report(phase="Running", attempt=1)
    desk.wakes()
    for _ in range(5):
        await desk.clock.advance(2)
        desk.report(phase="Running", attempt=1)
    assert desk.wakes() == 0
    assert desk.book.reports(RUN)[0].received_at == 1010.0


async def test_only_the_first_step_wakes(desk: Desk) -> None:
    desk.register(phase="Running", attempt=1)
    desk.wakes()
    desk.report(phase="Running", attempt=1, progress={"step": 1, "at": 1})
    assert desk.wakes() == 1
    desk.report(phase="Running", attempt=1, progress={"step": 2, "at": 2})
    assert desk.wakes() == 0


START = {"attempt": 1, "assignmentHash": "h", "masterAddress": "10.0.0.1", "masterPort": 1}


@pytest.mark.parametrize(
    "news",
    [
        {"phase": "Ready"},
        {"attempt": 1},
        {"readyFor": 1},
        {"exit": {"code": 1, "at": 1}},
        {"problem": "SIGTERM"},
        {"verified": [{"tier": "shared", "path": "/c", "verdict": "Valid"}]},
        {"newCheckpoints": [{"tier": "shared", "step": 1, "path": "/c", "verdict": "Valid"}]},
        {"start": START},
        {"port": 40001},
        {"stepsPort": 40002},
        {"stepEnds": [{"at": 999.0, "step": "1", "code": 1}]},
        {"partlyEnded": [{"at": 999.0, "step": "1", "done": 1, "left": 7}]},
        {"partlyEnded": [{"since": 999.0, "step": "MPI", "left": 7}]},
    ],
)
async def test_what_a_decision_may_depend_on_wakes_once(desk: Desk, news: dict[str, Any]) -> None:
    desk.register()
    desk.report()
    desk.wakes()
    desk.report(**news)
    assert desk.wakes() == 1
    desk.report(**news)
    assert desk.wakes() == 0


async def test_a_report_overtaken_by_a_newer_one_changes_nothing(desk: Desk) -> None:
    desk.register()
    desk.report(phase="Exited", attempt=1, exit={"code": 1, "at": 1}, mono=2_000_010)
    desk.report(phase="Running", attempt=1, mono=2_000_009)
    assert desk.book.reports(RUN)[0].phase is WorkerPhase.EXITED


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ({"phase": "Running", "attempt": 1}, 5000),
        ({"phase": "Stopping", "attempt": 1}, 5000),
        ({"phase": "Exited", "attempt": 1}, 5000),
        ({"phase": "Exited", "attempt": 1, "stepsPort": 6000}, 6000),
        ({"phase": "Preparing", "attempt": 1}, 0),
        ({"phase": "Ready", "attempt": 1, "readyFor": 2}, 0),
    ],
)
async def test_a_port_for_steps_holds_until_the_attempt_is_over(desk: Desk, said: dict[str, Any], known: int) -> None:
    desk.register()
    desk.report(phase="Ready", readyFor=1, stepsPort=5000)
    desk.report(**said)
    assert desk.book.reports(RUN)[0].steps_port == known


async def test_new_checkpoints_join_the_inventory(desk: Desk) -> None:
    desk.register(inventory=(saved(100), saved(200, verdict="Unknown")))
    newer = {"tier": "shared", "step": 200, "path": "/shared/step-200", "verdict": "Valid"}
    desk.report(newCheckpoints=[newer])
    rows = desk.book.reports(RUN)[0].inventory
    assert [(row.step, row.verdict) for row in rows] == [(200, Verdict.VALID), (100, Verdict.VALID)]


async def test_what_one_sender_occupies_is_bounded(desk: Desk) -> None:
    desk.register(inventory=tuple(saved(step, tier) for step in range(500) for tier in ("local", "shared")))
    rows = desk.book.reports(RUN)[0].inventory
    assert len(rows) == 64
    assert {row.step for row in rows} == set(range(468, 500))
    answers = [{"tier": "shared", "path": f"/{step}", "verdict": "Valid"} for step in range(500, 564)]
    desk.report(verified=answers, newCheckpoints=[{**answer, "step": 500} for answer in answers])
    report = desk.book.reports(RUN)[0]
    assert len(report.inventory) == 64
    assert len(report.verified) == 16


async def test_answers_to_an_earlier_barrier_are_gone_once_the_worker_drops_them(desk: Desk) -> None:
    desk.register()
    desk.report(verified=[{"tier": "shared", "path": "/c", "verdict": "Valid"}])
    desk.report()
    assert desk.book.reports(RUN)[0].verified == ()


async def test_the_summary_names_extremes_and_the_oldest_running_report(desk: Desk) -> None:
    for slot, step in ((0, 10), (1, 12)):
        claim = SenderClaim(RUN, slot, 1, f"pod-{slot}")
        desk.register(claim, phase="Running", attempt=1)
        desk.report(claim, phase="Running", attempt=1, progress={"step": step, "at": 1})
        await desk.clock.advance(3)
    summary = desk.book.summary(RUN)
    assert (summary.workers, summary.lowest_step, summary.highest_step) == (2, 10, 12)
    assert summary.oldest_report_age == 6.0
    assert summary.heard == {0: 1, 1: 1}
    assert desk.book.worker_count() == 2
    assert desk.book.summary("unknown").workers == 0
