"""The benchmark of a killed leader ends with its figures, and what it would call broken is not."""

from __future__ import annotations

import pytest

from support.benchmarks import figures_of

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def test_a_leader_that_is_killed_under_a_few_runs_costs_none_of_them_anything() -> None:
    """`make bench-failover` does it to 50 runs on 512 nodes."""
    figures = figures_of("failover", "--cluster-nodes=16", "--runs=4", "--nodes=3", "--watched=15")
    assert (figures["bench"], figures["runs"], figures["workers"], figures["runs_changed"]) == ("failover", 4, 12, 0)
    assert min(figures["standby_mb"], figures["leader_mb"]) > 0
    assert figures["leader_cores"] >= 0  # counted in ticks of 10 ms, of which so few may need none
    assert 0 < figures["leads_s"] <= figures["heard_s"] + 1
