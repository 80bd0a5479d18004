"""The book of reports: what workers say by their own clocks is kept in the operator's time."""

from typing import Any

import pytest

from support.report_desk import RUN, Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


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
