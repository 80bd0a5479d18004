"""The book of reports: who comes to the barrier last, and how a gang starts together."""

from dataclasses import replace

import pytest

from lockstep.controller.workers.reports import ReportBook
from lockstep.controller.workers.trust import SenderClaim
from lockstep.core.model.plan import DesiredPhase, Directive, VerifyRequest
from lockstep.core.model.start_record import CollectiveStart
from lockstep.core.run.attendance import START_REMEMBERED, START_TOGETHER_WITHIN
from support.report_desk import CLAIM, NEWER, PREPARE, RUN, Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


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
