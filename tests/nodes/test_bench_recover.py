"""The recovery benchmark ends with its figures and leaves nothing behind."""

from __future__ import annotations

import pytest

from support.benchmarks import figures_of

pytestmark = [pytest.mark.nodes, pytest.mark.nightly]
FIGURES = ["in_place_p95_s", "replace_p95_s", "flatness", "commanded_512_s", "writes_in_place_512"]
SMALL = ["--nodes=3", "--small=2", "--simulated=4", "--recoveries=3", "--replacements=1", "--commands=1", "--pause=2"]


def test_the_benchmark_ends_with_one_line_of_json() -> None:
    figures = figures_of("recover", *SMALL)
    assert list(figures)[: 2 + len(FIGURES)] == ["bench", "size", *FIGURES]
    assert (figures["bench"], figures["size"]) == ("recover", "own")
    assert all(figures[name] > 0 for name in FIGURES)
    assert figures["failed"] == []  # the bars are for its full size, and for a machine that has nothing else to do
    assert (figures["nodes"], figures["recoveries"], figures["replacements"]) == (3, 3, 1)
