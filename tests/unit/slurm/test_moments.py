"""Moments as Slurm's users write them."""

from datetime import datetime, timedelta, timezone

import pytest

from lockstep.slurm.submission.moments import moment

ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 11, 18, 13, 6, 40, tzinfo=ZONE).timestamp()


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("now", "2026-11-18T13:06:40"),
        ("now+60", "2026-11-18T13:07:40"),
        ("now + 2 hours", "2026-11-18T15:06:40"),
        ("NOW+1week", "2026-11-25T13:06:40"),
        ("now-1minute", "2026-11-18T13:05:40"),
        ("today", "2026-11-18T00:00:00"),
        ("tomorrow", "2026-11-19T00:00:00"),
        ("midnight", "2026-11-19T00:00:00"),
        ("noon", "2026-11-19T12:00:00"),
        ("elevenses", "2026-11-19T11:00:00"),
        ("fika", "2026-11-18T15:00:00"),
        ("teatime", "2026-11-18T16:00:00"),
        ("noon tomorrow", "2026-11-19T12:00:00"),
        ("tomorrow 18:30", "2026-11-19T18:30:00"),
        ("Tomorrow", "2026-11-19T00:00:00"),
        ("16:00", "2026-11-18T16:00:00"),
        ("8:00:05", "2026-11-19T08:00:05"),
        ("4:00PM", "2026-11-18T16:00:00"),
        ("4:00 am", "2026-11-19T04:00:00"),
        ("12:30 pm", "2026-11-19T12:30:00"),
        ("12:30am", "2026-11-19T00:30:00"),
        ("010127", "2027-01-01T00:00:00"),
        ("0101", "2027-01-01T00:00:00"),
        ("1231", "2026-12-31T00:00:00"),
        ("01/20/27", "2027-01-20T00:00:00"),
        ("1/20", "2027-01-20T00:00:00"),
        ("11.18", "2027-11-18T00:00:00"),
        ("12/24-18:00", "2026-12-24T18:00:00"),
        ("16:00 12/24/26", "2026-12-24T16:00:00"),
        ("2026-12-01", "2026-12-01T00:00:00"),
        ("2026-12-01T08:00", "2026-12-01T08:00:00"),
        ("2026-12-01T08:00:30", "2026-12-01T08:00:30"),
        ("2026-11-01", "2026-11-01T00:00:00"),
    ],
)
def test_a_moment_is_what_slurm_makes_of_it(text: str, made: str) -> None:
    assert datetime.fromtimestamp(moment(text, NOW, ZONE), ZONE).strftime("%Y-%m-%dT%H:%M:%S") == made


@pytest.mark.parametrize(
    "text",
    [
        "", "soon", "16", "25:00", "8:60", "13:00pm", "2026-13-01", "02/30", "1301", "now+", "now+soon", "now+2h",
        "todaynoon", "16:00x", "now+" + "9" * 30, "2026-12-01T08:00:00Z", "2026-12-01T08:00:00-05:00", "9999-12-31x",
    ],
)  # fmt: skip
def test_what_is_none_and_what_names_a_zone_of_its_own_is_left_to_others(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        moment(text, NOW, ZONE)
