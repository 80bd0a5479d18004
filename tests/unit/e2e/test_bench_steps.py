"""The benchmark of steps, small."""

import pytest

from bench.steps import behind_bars
from support.benchmarks import figures_of

WITHOUT_SSHD = ("--mpirun", "/no/mpirun")
GOOD = {"ratio_1": 1.5, "ratio_8": 1.0, "ratio_sshd": 1.0, "stdout_mb_s": 100.0, "operator_cpu": 0.1,
        "operator_cpu_idle": 0.06}  # fmt: skip


@pytest.mark.parametrize(
    ("figures", "behind"),
    [
        ({}, []),
        ({"ratio_8": 1.51}, ["ratio_8"]),
        ({"ratio_sshd": 1.01}, ["ratio_sshd"]),
        ({"stdout_mb_s": 99.0}, ["stdout_mb_s"]),
        ({"operator_cpu": 0.12}, ["operator_cpu"]),
    ],
)
def test_what_falls_behind_its_bar_is_named(figures: dict[str, float], behind: list[str]) -> None:
    assert behind_bars({**GOOD, **figures}) == behind


@pytest.mark.process
def test_it_measures_steps_beside_bare_agents_in_the_same_run() -> None:
    figures = figures_of(
        "steps", "--nodes", "2", "--rounds", "1", "--megabytes", "5", "--without-operator", *WITHOUT_SSHD
    )
    assert figures["ratio_1"] == pytest.approx(figures["step_1_s"] / figures["floor_1_s"], rel=0.05)  # of rounded ones
    assert figures["step_8_s"] > 0
    assert figures["stdout_mb_s"] > 0
    assert figures["behind"][0] == "ratio_sshd: not measured"
