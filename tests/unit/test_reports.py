"""The book of reports: what is kept, what wakes a decision, how polls are counted."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lockstep.controller.workers.protocol import Registration, Report, State
from lockstep.controller.workers.reports import (
    POLL_GRACE,
    ReportBook,
    SupersededError,
    UnregisteredError,
)
from lockstep.controller.workers.trust import SenderClaim
from lockstep.core.model.plan import DesiredPhase, Directive, VerifyRequest
from lockstep.core.model.start_record import CollectiveStart, Members
from lockstep.core.model.worker_report import CheckpointReport, Verdict, WorkerPhase
from lockstep.core.run.attendance import START_REMEMBERED, START_TOGETHER_WITHIN
from support.manual_clock import ManualClock

RUN = "run-1"
CLAIM = SenderClaim(RUN, 0, 1, "pod-0-1")
NEWER = SenderClaim(RUN, 0, 2, "pod-0-2")
PREPARE = Directive(1, DesiredPhase.PREPARE, (1, 1), (0, 1))


class Desk:
    """A book with a clock to move and a list of what it woke."""

    def __init__(self) -> None:
        self.clock = ManualClock(now=1000.0)
        self.woken: list[str] = []
        self.book = ReportBook(self.clock, self.woken.append)

    def state(self, **fields: Any) -> dict[str, Any]:
        return {
            "phase": "Preparing",
            "wall": self.clock.now(),
            "mono": self.clock.monotonic() + 2_000_000,
            **fields,
        }

    def register(
        self, claim: SenderClaim = CLAIM, *, inventory: tuple[CheckpointReport, ...] = (), **fields: Any
    ) -> None:
        body = Registration(
            protocol=1,
            run_uid=claim.run_uid,
            slot=claim.slot,
            incarnation=claim.incarnation,
            pod_uid=claim.pod_uid,
            namespace="team",
            run="llama",
            address="10.0.0.1",
            report=msgspec.convert(self.state(**fields), State),
            inventory=inventory,
        )
        self.book.register(claim, "gpu-1", body)

    def report(self, claim: SenderClaim = CLAIM, **fields: Any) -> None:
        sender = {
            "protocol": 1,
            "runUid": claim.run_uid,
            "slot": claim.slot,
            "incarnation": claim.incarnation,
            "podUid": claim.pod_uid,
        }
        self.book.report(claim, msgspec.convert({**sender, **self.state(**fields)}, Report))

    def wakes(self) -> int:
        """How often the run was woken since the last call."""
        count = len(self.woken)
        self.woken.clear()
        return count


def saved(step: int, tier: str = "shared", **fields: Any) -> CheckpointReport:
    row = {"tier": tier, "step": step, "path": f"/{tier}/step-{step}", "verdict": "Valid", **fields}
    return msgspec.convert(row, CheckpointReport)


@pytest.fixture
def desk() -> Desk:
    return Desk()


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
    ("told", "times"),
    [
        ({"step": "1", "at": 899.0, "done": 1, "left": 7}, (999.0, 0.0)),
        ({"step": "MPI", "since": 899.0, "left": 7}, (0.0, 999.0)),
        ({"step": "MPI", "left": 7}, (0.0, 0.0)),
    ],
)
async def test_a_time_that_is_not_known_of_a_step_that_ended_in_part_is_none_by_any_clock(
    desk: Desk, told: dict[str, Any], times: tuple[float, float]
) -> None:
    desk.register(wall=900.0)
    desk.report(partlyEnded=[told], wall=899.5)
    [first] = desk.book.reports(RUN)[0].partly_ended
    assert (first.at, first.since) == pytest.approx(times, abs=0.01)
    desk.wakes()
    desk.register(wall=930.0)
    desk.report(partlyEnded=[told], wall=929.5)
    [again] = desk.book.reports(RUN)[0].partly_ended
    assert [at for at, known in zip((again.at, again.since), times, strict=True) if not known] == [
        0.0 for known in times if not known
    ]


async def test_an_exit_is_told_in_the_operators_time_and_does_not_move(desk: Desk) -> None:
    desk.register(wall=900.0)
    # The worker's clock is 100 s behind; the report was 0.5 s under way.
    desk.report(phase="Exited", attempt=1, exit={"code": 1, "at": 899.0}, wall=899.5)
    first = desk.book.reports(RUN)[0].exit
    assert first is not None
    assert first.at == pytest.approx(999.0, abs=0.01)
    await desk.clock.advance(2)
    desk.wakes()
    desk.report(phase="Exited", attempt=1, exit={"code": 1, "at": 899.0}, wall=902.0)
    assert desk.book.reports(RUN)[0].exit == first
    assert desk.wakes() == 0


STEP_END = {"at": 899.0, "step": "1", "task": 3, "program": "python", "signal": 11}


async def test_the_end_of_a_steps_process_is_told_in_the_operators_time_and_does_not_move(desk: Desk) -> None:
    desk.register(wall=900.0)
    desk.report(phase="Running", attempt=1, stepEnds=[STEP_END], wall=899.5)
    [first] = desk.book.reports(RUN)[0].step_ends
    assert first.at == pytest.approx(999.0, abs=0.01)
    await desk.clock.advance(2)
    desk.wakes()
    desk.report(phase="Running", attempt=1, stepEnds=[STEP_END], wall=902.0)
    assert desk.book.reports(RUN)[0].step_ends == (first,)
    assert desk.wakes() == 0
    for at in (901.0, 902.0):  # of other mpiruns, of which those in the middle are told no more
        later = [STEP_END, {**STEP_END, "at": at, "stderrTail": f"{at}"}]
        desk.report(phase="Running", attempt=1, stepEnds=later, wall=903.0)
        assert desk.book.reports(RUN)[0].step_ends[0] == first
        assert desk.book.reports(RUN)[0].step_ends[1].at == pytest.approx(at + 100.0, abs=1.0)
        assert desk.book.reports(RUN)[0].step_ends[1].stderr_tail == f"{at}"
    desk.report(phase="Running", attempt=2, stepEnds=[{**STEP_END, "at": 950.0}], wall=902.0)
    [second] = desk.book.reports(RUN)[0].step_ends
    assert second.at == pytest.approx(1050.0, abs=1.0), "of another attempt it is another one"


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


async def test_the_smallest_delay_of_the_last_minute_gives_the_offset(desk: Desk) -> None:
    desk.register(wall=1000.0)
    desk.report(wall=990.0)  # ten seconds under way
    desk.report(progress={"step": 1, "at": 500.0}, wall=995.0)
    progress = desk.book.reports(RUN)[0].progress
    assert progress is not None
    assert progress.at == 500.0
    await desk.clock.advance(61)
    desk.report(progress={"step": 2, "at": 500.0}, wall=1031.0)  # the clock was set back by 30 s
    progress = desk.book.reports(RUN)[0].progress
    assert progress is not None
    assert progress.at == 530.0


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


async def test_a_poll_that_breaks_off_no_longer_counts_as_arrival(desk: Desk) -> None:
    desk.register(phase="Ready", readyFor=1)
    with suppress(ConnectionError), desk.book.poll(CLAIM):
        assert desk.book.reports(RUN)[0].polling
        raise ConnectionError
    assert not desk.book.reports(RUN)[0].polling


async def test_an_answered_poll_counts_until_the_worker_had_time_to_reconnect(desk: Desk) -> None:
    desk.register(phase="Ready", readyFor=1)
    with desk.book.poll(CLAIM):
        pass
    assert desk.book.reports(RUN)[0].polling
    await desk.clock.advance(POLL_GRACE)
    assert not desk.book.reports(RUN)[0].polling


async def test_of_two_polls_the_one_that_breaks_off_does_not_end_the_other(desk: Desk) -> None:
    desk.register(phase="Ready", readyFor=1)
    with desk.book.poll(CLAIM):
        with suppress(ConnectionError), desk.book.poll(CLAIM):
            raise ConnectionError
        assert desk.book.reports(RUN)[0].polling


async def test_registering_again_keeps_count_of_the_polls_still_open(desk: Desk) -> None:
    desk.register(phase="Ready", readyFor=1)
    with suppress(ConnectionError), desk.book.poll(CLAIM):
        desk.register(phase="Ready", readyFor=1)
        raise ConnectionError
    assert not desk.book.reports(RUN)[0].polling


async def test_coming_back_to_the_barrier_wakes_a_decision(desk: Desk) -> None:
    desk.register(phase="Ready", readyFor=1)
    with suppress(ConnectionError), desk.book.poll(CLAIM):
        raise ConnectionError
    desk.wakes()
    with desk.book.poll(CLAIM):
        assert desk.wakes() == 1


async def test_a_new_directive_wakes_every_poller_and_the_same_one_none(desk: Desk) -> None:
    claims = [SenderClaim(RUN, slot, 1, f"pod-{slot}") for slot in range(2)]
    for claim in claims:
        desk.register(claim)
    desk.book.set_directive(RUN, PREPARE)

    async def poll(claim: SenderClaim) -> float:
        with desk.book.poll(claim):
            await desk.book.news(RUN, 1, 15)
        return desk.clock.now()

    polls = [asyncio.ensure_future(poll(claim)) for claim in claims]
    await desk.clock.advance(5)
    desk.book.set_directive(RUN, replace(PREPARE))
    await desk.clock.advance(5)
    assert not any(poll.done() for poll in polls)
    desk.book.set_directive(RUN, replace(PREPARE, attempt=2))
    assert await asyncio.gather(*polls) == [1010.0, 1010.0]
    orders = desk.book.orders(RUN)
    assert orders is not None
    assert (orders.revision, orders.directive.attempt) == (2, 2)


async def test_a_poll_without_news_ends_when_its_time_is_up(desk: Desk) -> None:
    desk.register()
    poll = asyncio.ensure_future(desk.book.news(RUN, 0, 15))
    await desk.clock.advance(14.9)
    assert not poll.done()
    await desk.clock.advance(0.1)
    assert poll.done()


async def test_who_has_not_seen_the_current_revision_is_answered_at_once(desk: Desk) -> None:
    desk.register()
    desk.book.set_directive(RUN, PREPARE)
    await asyncio.wait_for(desk.book.news(RUN, 0, 15), 20)


async def test_forgetting_a_run_answers_its_pollers(desk: Desk) -> None:
    desk.register()
    poll = asyncio.ensure_future(desk.book.news(RUN, 0, 15))
    await desk.clock.advance(1)
    desk.book.retain(["another"])
    await asyncio.wait_for(poll, 20)
    assert desk.book.reports(RUN) == {}
    with pytest.raises(UnregisteredError):
        desk.report()


async def test_the_summary_names_extremes_and_the_oldest_running_report(desk: Desk) -> None:
    for slot, step in ((0, 10), (1, 12)):
        claim = SenderClaim(RUN, slot, 1, f"pod-{slot}")
        desk.register(claim, phase="Running", attempt=1)
        desk.report(claim, phase="Running", attempt=1, progress={"step": step, "at": 1})
        await desk.clock.advance(3)
    summary = desk.book.summary(RUN)
    assert (summary.workers, summary.lowest_step, summary.highest_step) == (2, 10, 12)
    assert summary.oldest_report_age == 6.0
    assert desk.book.worker_count() == 2
    assert desk.book.summary("unknown").workers == 0


class TestTheLastOneAtTheBarrier:
    """A decision need not wait for others once everybody has said what it waits for."""

    PEER = SenderClaim(RUN, 1, 1, "pod-1-1")

    @pytest.fixture
    def completions(self, desk: Desk) -> list[str]:
        completed: list[str] = []
        desk.book = ReportBook(desk.clock, desk.woken.append, completed.append)
        for claim in (CLAIM, self.PEER):
            desk.register(claim)
        return completed

    def test_is_told_apart_from_all_others(self, desk: Desk, completions: list[str]) -> None:
        desk.book.set_directive(RUN, PREPARE)
        desk.register(CLAIM, phase="Ready", readyFor=1)
        assert completions == []
        desk.register(self.PEER, phase="Ready", readyFor=1)
        assert completions == [RUN]
        desk.report(self.PEER, phase="Ready", readyFor=1)
        assert completions == [RUN]

    def test_is_the_one_that_has_read_its_share_last(self, desk: Desk, completions: list[str]) -> None:
        read = {"tier": "shared", "path": "/shared/step-5", "verdict": "Valid"}
        desk.book.set_directive(RUN, replace(PREPARE, verify=VerifyRequest("shared", "/shared/step-5", 5)))
        for claim in (CLAIM, self.PEER):
            desk.register(claim, phase="Ready", readyFor=1)
        desk.report(self.PEER, phase="Ready", readyFor=1, verified=[read])
        assert completions == []
        desk.report(CLAIM, phase="Ready", readyFor=1, verified=[read])
        assert completions == [RUN]

    def test_may_have_been_there_before_anybody_asked(self, desk: Desk, completions: list[str]) -> None:
        desk.report(CLAIM, phase="Ready", readyFor=1)
        desk.book.set_directive(RUN, PREPARE)
        desk.report(self.PEER, phase="Ready", readyFor=1)
        assert completions == [RUN]

    def test_is_not_one_of_another_incarnation_or_of_an_earlier_barrier(
        self, desk: Desk, completions: list[str]
    ) -> None:
        desk.book.set_directive(RUN, replace(PREPARE, attempt=2, incarnations=(2, 1)))
        for claim in (CLAIM, self.PEER):
            desk.report(claim, phase="Ready", readyFor=2)
        assert completions == []
        desk.register(NEWER, phase="Ready", readyFor=1)
        assert completions == []
        desk.report(NEWER, phase="Ready", readyFor=2)
        assert completions == [RUN]


class TestTheStartOfAGang:
    """Ranks start together: each is held back for as long as it took, of late, until all had heard of START."""

    PEER = SenderClaim(RUN, 1, 1, "pod-1-1")

    def held_back(self, desk: Desk, attempt: int) -> float:
        """Seconds, when START of the attempt is told to a gang that stands at its barrier."""
        desk.book.set_directive(RUN, replace(PREPARE, attempt=attempt))
        for claim in (CLAIM, self.PEER):
            desk.register(claim, phase="Ready", attempt=attempt - 1, readyFor=attempt)
        desk.book.set_directive(RUN, self.start(attempt))
        orders = desk.book.orders(RUN)
        assert orders is not None
        return max(0.0, orders.start_at - desk.clock.now())

    def start(self, attempt: int) -> Directive:
        return replace(PREPARE, attempt=attempt, phase=DesiredPhase.RUN, start=CollectiveStart(attempt, "abc", "a", 1))

    async def acknowledged(self, desk: Desk, attempt: int, *, after: tuple[float, float]) -> None:
        for claim, seconds in zip((CLAIM, self.PEER), after, strict=True):
            await desk.clock.advance(seconds)
            desk.report(claim, phase="Running", attempt=attempt)

    async def test_waits_for_nobody_as_long_as_nothing_is_known_of_it(self, desk: Desk) -> None:
        assert self.held_back(desk, 1) == 0.0

    async def test_waits_as_long_as_the_last_one_took_to_reach_all(self, desk: Desk) -> None:
        self.held_back(desk, 1)
        await self.acknowledged(desk, 1, after=(0.05, 0.15))
        await desk.clock.advance(60.0)
        assert self.held_back(desk, 2) == pytest.approx(0.2)
        await self.acknowledged(desk, 2, after=(0.2, 0.2))
        assert self.held_back(desk, 3) == pytest.approx(0.4)

    async def test_forgets_slowly_that_an_earlier_one_took_longer(self, desk: Desk) -> None:
        self.held_back(desk, 1)
        await self.acknowledged(desk, 1, after=(0.1, 0.2))
        self.held_back(desk, 2)
        await self.acknowledged(desk, 2, after=(0.0, 0.1))
        assert self.held_back(desk, 3) == pytest.approx(0.3 * START_REMEMBERED)

    async def test_waits_for_half_a_second_at_most(self, desk: Desk) -> None:
        self.held_back(desk, 1)
        await self.acknowledged(desk, 1, after=(0.1, 30.0))
        assert self.held_back(desk, 2) == pytest.approx(START_TOGETHER_WITHIN)

    async def test_learns_nothing_from_one_that_not_all_acknowledged(self, desk: Desk) -> None:
        self.held_back(desk, 1)
        await self.acknowledged(desk, 1, after=(0.1, 0.1))
        self.held_back(desk, 2)
        await desk.clock.advance(0.05)
        desk.report(CLAIM, phase="Running", attempt=2)
        assert self.held_back(desk, 3) == pytest.approx(0.2)

    async def test_is_not_held_back_again_when_other_words_follow(self, desk: Desk) -> None:
        self.held_back(desk, 1)
        await self.acknowledged(desk, 1, after=(0.1, 0.1))
        self.held_back(desk, 2)
        orders = desk.book.orders(RUN)
        assert orders is not None
        await desk.clock.advance(0.05)
        desk.book.set_directive(RUN, replace(self.start(2), stop_grace=7))
        assert desk.book.orders(RUN).start_at == orders.start_at

    async def test_that_a_new_leader_only_passes_on_measures_nothing(self, desk: Desk) -> None:
        desk.book.set_directive(RUN, self.start(1))
        await desk.clock.advance(2.0)
        for claim in (CLAIM, self.PEER):
            desk.register(claim, phase="Running", attempt=1)
        assert self.held_back(desk, 2) == 0.0

    async def test_is_over_for_a_decision_with_the_last_acknowledgement(self, desk: Desk) -> None:
        completed: list[str] = []
        desk.book = ReportBook(desk.clock, desk.woken.append, completed.append)
        self.held_back(desk, 1)
        completed.clear()
        desk.report(CLAIM, phase="Running", attempt=1)
        assert completed == []
        desk.report(self.PEER, phase="Running", attempt=1)
        assert completed == [RUN]
