"""What the benchmark of admission holds its figures to, by size."""

from typing import Any

import pytest

from bench.admission import failed

SHORT = {"size": "short", "runs": 500, "admitted": 500}
FULL = {"size": "full", "runs": 10_000, "admitted": 5_000}
PASSES = {"size": "own", "runs": 10_000, "admitted": 0}
OWN = {"size": "own", "runs": 40, "admitted": 6}
AT_ITS_BARS = {"full_pass_s": 1.0, "incremental_s": 0.05, "incremental_preempting_s": 0.15, "admissions_per_s": 250.0}
BEYOND = {"full_pass_s": 1.01, "incremental_s": 0.051, "incremental_preempting_s": 0.16, "admissions_per_s": 249.9}
OF_PASSES = {name: value for name, value in BEYOND.items() if name != "admissions_per_s"}


@pytest.mark.parametrize(
    ("shape", "figures", "found"),
    [
        (SHORT, AT_ITS_BARS, []),
        (SHORT, BEYOND, ["incremental_s", "admissions_per_s"]),
        (FULL, AT_ITS_BARS, []),
        (FULL, BEYOND, ["incremental_s", "full_pass_s", "incremental_preempting_s", "admissions_per_s"]),
        (PASSES, OF_PASSES, ["incremental_s", "full_pass_s", "incremental_preempting_s"]),
        (OWN, BEYOND, []),
    ],
)
def test_what_misses_its_bar_is_named_where_the_size_has_one(
    shape: dict[str, Any], figures: dict[str, float], found: list[str]
) -> None:
    assert failed({**shape, **figures}) == found
