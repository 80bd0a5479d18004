"""What views say of themselves."""

import pytest

from lockstep.core.model.snapshot import ExitReport, PodPhase, RunView, maybe_changed
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


@pytest.mark.parametrize(
    ("code", "signal", "reason", "succeeded"),
    [
        (0, 0, "", True),
        (0, 0, "Completed", True),
        (0, 0, "StoppedOnRequest", False),
        (0, 0, "Fenced", False),
        (1, 0, "", False),
        (0, 9, "", False),
    ],
)
def test_a_rank_has_succeeded_when_it_ended_by_itself_with_code_0(
    code: int, signal: int, reason: str, succeeded: bool
) -> None:
    assert ExitReport(code=code, signal=signal, reason=reason).succeeded is succeeded


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
