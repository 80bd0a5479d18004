"""The benchmark of steps, small."""

import pytest

from support.benchmarks import figures_of


@pytest.mark.process
def test_it_measures_steps_beside_bare_agents_in_the_same_run() -> None:
    figures = figures_of("steps", "--nodes", "2", "--rounds", "1", "--megabytes", "5")
    assert figures["ratio_1"] == pytest.approx(figures["step_1_s"] / figures["floor_1_s"], abs=0.02)
    assert figures["step_8_s"] > 0
    assert figures["stdout_mb_s"] > 0
