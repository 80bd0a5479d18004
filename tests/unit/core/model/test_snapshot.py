"""What views say of themselves."""

import pytest

from lockstep.core.model.snapshot import Lag, PodPhase, RunView, maybe_changed
from support.admission import pod, run


@pytest.mark.parametrize(
    ("phase", "terminal"),
    [
        (PodPhase.PENDING, False),
        (PodPhase.RUNNING, False),
        (PodPhase.UNKNOWN, False),
        (PodPhase.SUCCEEDED, True),
        (PodPhase.FAILED, True),
    ],
)
def test_of_a_terminal_pod_nothing_runs_any_more(phase: PodPhase, terminal: bool) -> None:
    assert pod(run("llama"), 0, "n1", phase).is_terminal is terminal


def test_a_run_is_found_by_namespace_and_name() -> None:
    assert run("llama").key == "team/llama"


A, B = run("a"), run("b")


@pytest.mark.parametrize(
    ("changed", "known", "found"),
    [
        ({"uid-a": A, "uid-c": None}, ["uid-a", "uid-c"], {"uid-a": A, "uid-c": None}),
        ({}, ["uid-a", "uid-b"], {}),
        (None, ["uid-a", "uid-c"], {"uid-a": A, "uid-b": B, "uid-c": None}),
        ({}, [], {"uid-a": A, "uid-b": B}),
    ],
)
def test_whoever_is_told_nothing_or_knows_nothing_looks_at_everything(
    changed: dict[str, RunView | None] | None, known: list[str], found: dict[str, RunView | None]
) -> None:
    assert maybe_changed(changed, [A, B], known) == found


@pytest.mark.parametrize(
    ("lag", "allowance"),
    [
        (Lag(), 0.0),
        (Lag(loop=1.0), 10.0),
        (Lag(loop=1.0, write=2.0), 30.0),
        (Lag(write=1000.0), 300.0),
        (Lag(placing=100.0), 0.0),
    ],
)
def test_deadlines_are_put_off_for_a_slow_loop_and_slow_writes_and_not_for_ever(lag: Lag, allowance: float) -> None:
    assert lag.allowance == allowance


@pytest.mark.parametrize(("since", "seconds"), [(0.0, 15.0), (95.0, 10.0), (97.0, 8.0), (100.0, 5.0), (200.0, 0.0)])
def test_of_the_time_since_a_moment_so_much_was_not_listened(since: float, seconds: float) -> None:
    assert Lag(deaf=((100.0, 10.0), (150.0, 5.0))).deaf_since(since) == seconds


@pytest.mark.parametrize(("deaf", "at"), [((), 0.0), (((100.0, 3.0),), 103.0), (((50.0, 9.0), (100.0, 60.0)), 108.0)])
def test_what_was_said_while_nobody_listened_is_read_in_as_much_time_again(
    deaf: tuple[tuple[float, float], ...], at: float
) -> None:
    assert Lag(deaf=deaf).caught_up_at(8.0) == at
