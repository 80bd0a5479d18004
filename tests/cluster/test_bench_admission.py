"""The admission benchmark ends with its figures and leaves nothing behind."""

from __future__ import annotations

import pytest

from support.benchmarks import figures_of

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def test_the_benchmark_ends_with_one_line_of_json() -> None:
    small = ["--runs=40", "--nodes=256", "--rounds=1", "--admitted=6", "--gangs=2", "--gang-nodes=64"]
    figures = figures_of("admission", *small)
    assert figures.pop("failed") == []  # nothing is asked of so few
    shape = [figures.pop(name) for name in ("bench", "size", "runs", "nodes", "admitted")]
    assert shape == ["admission", "own", 40, 256, 6]
    assert figures.keys() == {
        "full_pass_s",
        "incremental_s",
        "incremental_p95_s",
        "incremental_preempting_s",
        "peak_mb",
        "admissions_per_s",
        "floor_per_s",
        "operator_cpu_ms",
        "control_plane_cpu_ms",
        "floor_cpu_ms",
        "operator_mb",
        "with_pods_per_s",
        "gang64_p50_s",
        "gang64_p99_s",
        "writes_per_admission",
    }
    # CPU is counted in ticks of 10 ms: six admissions may well cost less than one.
    in_ticks = {"operator_cpu_ms", "control_plane_cpu_ms", "floor_cpu_ms"}
    assert {name: value for name, value in figures.items() if value <= 0 and name not in in_ticks} == {}
    assert all(figures[name] >= 0 for name in in_ticks)
