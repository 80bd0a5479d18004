"""Step rate, expected end and its spread, from what is written of progress."""

import pytest

from lockstep.api.run_status import MAX_PACE, ProgressStatus
from lockstep.core.run.pace import FURTHEST, paced, short_loss

T = 1_795_000_000.0


def told(step: int, seconds: float, total: int | None = 1000) -> ProgressStatus:
    return ProgressStatus(step=step, time=T + seconds, total_steps=total)


def after(*writes: ProgressStatus) -> ProgressStatus:
    """What status has after these writes of one attempt."""
    status = paced(ProgressStatus(), writes[0], anew=True)
    for write in writes[1:]:
        status = paced(status, write, anew=False)
    return status


@pytest.mark.parametrize(
    ("writes", "micros", "ends_in"),
    [
        pytest.param([told(0, 0)], None, None, id="one step has no pace"),
        pytest.param([told(0, 0), told(20, 10)], 500_000, 10 + 490, id="two steps a second"),
        pytest.param([told(0, 0), told(2, 60)], 30_000_000, 60 + 998 * 30, id="slow steps"),
        pytest.param([told(0, 0), told(20, 10, None)], 500_000, None, id="no total, no end"),
        pytest.param([told(0, 0), told(5, 1)], None, None, id="moments in whole seconds: too short a window"),
        pytest.param([told(40, 0), told(30, 10)], None, None, id="steps that fall"),
        pytest.param([told(40, 10), told(50, 0)], None, None, id="time that falls"),
        pytest.param([told(0, 0), told(1000, 10)], 10_000, 10, id="all are done"),
        pytest.param([told(0, 0), told(1 << 53, 10)], 1, 10, id="more steps than there are"),
        pytest.param([told(0, 0, 1 << 53), told(1, 10, 1 << 53)], 10_000_000, None, id="an end nobody lives to see"),
    ],
)
def test_the_pace_is_that_of_the_last_writes(
    writes: list[ProgressStatus], micros: int | None, ends_in: float | None
) -> None:
    status = after(*writes)
    assert status.step_microseconds == micros
    assert status.expected_end == (None if ends_in is None else T + ends_in)
    assert (status.earliest_end, status.latest_end) == (None, None), "one window has no spread"


def test_the_spread_is_that_of_the_quarters_and_a_save_in_between_is_not_the_pace() -> None:
    seconds = [0, 10, 20, 30, 90, 100, 110]  # a save of 50 s at the fourth
    status = after(*(told(10 * n, at) for n, at in enumerate(seconds)))
    assert status.step_microseconds == 1_000_000
    assert status.expected_end == T + 110 + 940
    assert status.earliest_end == T + 110 + 940
    assert status.latest_end == T + 110 + 940
    uneven = after(*(told(10 * n, at) for n, at in enumerate([0, 10, 30, 60, 100])))
    assert uneven.earliest_end is not None
    assert uneven.expected_end is not None
    assert uneven.latest_end is not None
    assert uneven.earliest_end < uneven.expected_end < uneven.latest_end


def test_an_attempt_has_its_own_pace_and_no_more_of_it_than_status_may_hold() -> None:
    status = after(*(told(n, 10.0 * n) for n in range(3 * MAX_PACE)))
    assert len(status.pace) == MAX_PACE
    again = paced(status, told(5, 5000), anew=True)
    assert (again.pace, again.step_microseconds, again.expected_end, again.latest_end) == ((), None, None, None)


def test_no_end_is_told_that_lies_beyond_what_a_timestamp_holds() -> None:
    writes = [told(n, 1e7 * n, 1 << 53) for n in range(6)]
    status = after(*writes)
    assert status.latest_end is None
    assert status.expected_end is None
    assert FURTHEST < 1e9


@pytest.mark.parametrize(
    ("loss", "shown"),
    [
        ("2.31", "2.31"), ("8.712142118838528e-12", "8.712e-12"), ("2.310000E+00", "2.31"), ("1234567", "1.235e+06"),
        ("nan", "nan"), ("Infinity", "Infinity"), ("", ""), ("low", "low"), ("1_0", "10"),
    ],
)  # fmt: skip
def test_a_loss_has_four_digits(loss: str, shown: str) -> None:
    assert short_loss(loss) == shown
