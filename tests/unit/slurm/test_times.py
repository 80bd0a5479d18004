"""Times as Slurm writes them."""

import pytest

from lockstep.slurm import times


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("1:30:00", 5400),
        ("2-12", 216_000),
        ("2-12:30", 217_800),
        ("2-12:30:15", 217_815),
        ("0", 0),
        ("UNLIMITED", times.UNLIMITED),
        ("infinite", times.UNLIMITED),
        ("-1", times.UNLIMITED),
        ("", None),
        ("2h", None),
        ("1:2:3:4", None),
        ("9" * 30, None),
    ],
)
def test_a_limit_is_read(text: str, seconds: int | None) -> None:
    assert times.seconds(text) == seconds


@pytest.mark.parametrize(("span", "text"), [(0, "00:00:00"), (3661, "01:01:01"), (90_061, "1-01:01:01")])
def test_a_span_is_written(span: int, text: str) -> None:
    assert times.written(span) == text


def test_a_moment_is_written_in_utc() -> None:
    assert times.moment(1_796_112_000) == "2026-12-01T08:00:00"
    assert times.moment(0) == "Unknown"
