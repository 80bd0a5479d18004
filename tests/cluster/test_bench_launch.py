"""The launch benchmark ends with its figures and leaves nothing behind."""

from __future__ import annotations

import pytest

from support.benchmarks import figures_of

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def test_the_benchmark_ends_with_one_line_of_json() -> None:
    figures = figures_of("launch", "--nodes=4", "--rounds=1")
    assert (figures.pop("bench"), figures.pop("nodes")) == ("launch", 4)
    wanted = {"floor_s", "running_s", "ratio", "started_s", "api_requests_per_pod", "operator_cpu_s", "rss_mb"}
    assert figures.keys() == wanted
    assert all(value > 0 for value in figures.values())
