"""When waiting ends, and how."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.cli import runs
from lockstep.cli.actions import wait
from lockstep.cli.actions.wait import Goal
from lockstep.cli.errors import ApiServerError, CliError, ExitCode, Unreachable
from support import sample_runs as sample
from support.cli_server import CliServer


def watched(*watches: Any) -> CliServer:
    return CliServer({"trainingruns/llama": sample.running()}, watches=watches)


def until(server: CliServer, raw: dict[str, Any], goal: Goal, timeout: float | None = None) -> str:
    return wait.until(server, raw, goal, timeout).status.state


def finished(succeeded: bool) -> dict[str, Any]:
    raw = sample.failed()
    if succeeded:
        raw["status"]["state"] = "Succeeded"
        raw["status"]["conditions"][2]["status"] = "True"
    return raw


@pytest.mark.parametrize(
    ("raw", "goal", "met"),
    [
        (sample.run(), "admitted", False),
        (sample.pending(), "admitted", False),
        (sample.recovering(), "admitted", True),
        (sample.recovering(), "running", False),
        (sample.running(), "running", True),
        (sample.running(), "finished", False),
        (sample.running(), "succeeded", False),
        (finished(False), "finished", True),
        (finished(True), "finished", True),
        (finished(True), "succeeded", True),
        (finished(True), "running", True),
    ],
)
def test_a_goal_is_met_by_the_state_of_the_run(raw: dict[str, Any], goal: Goal, met: bool) -> None:
    assert wait.is_met(runs.view(raw), goal) is met


@pytest.mark.parametrize("goal", ["succeeded", "running", "admitted"])
def test_a_run_that_failed_can_meet_nothing_any_more(goal: Goal) -> None:
    with pytest.raises(CliError, match=r"has ended as Failed \(NoProgress\)") as failure:
        wait.is_met(runs.view(finished(False)), goal)
    assert failure.value.exit_code == ExitCode.FAILED


def test_waiting_follows_the_changes_from_the_version_it_knows() -> None:
    bookmark = ("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    server = watched([bookmark], [("MODIFIED", sample.running())])
    assert until(server, sample.pending(), "running") == "Running"
    assert server.versions == ["7", "9"]


def test_a_version_that_is_too_old_is_read_anew() -> None:
    assert until(watched(ApiServerError(410, "too old")), sample.pending(), "running") == "Running"


AWAY = [Unreachable("no answer"), *(ApiServerError(status, "not now") for status in (429, 500, 502, 503, 504))]


@pytest.mark.parametrize("away", AWAY, ids=str)
def test_a_server_that_is_away_is_asked_again(
    away: CliError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server = watched(away, away, [("MODIFIED", sample.running())])
    assert until(server, sample.pending(), "running") == "Running"
    assert capsys.readouterr().err == f"{away}; asking again until it answers.\n"


@pytest.mark.parametrize("away", AWAY, ids=str)
def test_a_server_that_is_away_when_a_version_is_too_old_is_asked_again(
    away: CliError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server = watched(ApiServerError(410, "too old"))
    server.objects["trainingruns/llama"] = [away, away, sample.running()]
    assert until(server, sample.pending(), "running") == "Running"
    assert capsys.readouterr().err == f"{away}; asking again until it answers.\n"


@pytest.mark.parametrize("status", [400, 401, 403])
def test_who_is_refused_does_not_wait(status: int) -> None:
    with pytest.raises(ApiServerError, match="no"):
        until(watched(ApiServerError(status, "no")), sample.pending(), "running")


def test_the_time_is_up_for_a_server_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: float(next(passed)))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server = watched(*[ApiServerError(503, "no leader")] * 10)
    with pytest.raises(CliError, match="the time is up") as failure:
        until(server, sample.pending(), "running", timeout=3.0)
    assert failure.value.exit_code == ExitCode.TIMED_OUT


def test_a_deleted_run_ends_the_wait() -> None:
    with pytest.raises(CliError, match="was deleted while it was waited for"):
        until(watched([("DELETED", sample.pending())]), sample.pending(), "finished")


def test_a_new_run_of_the_same_name_is_not_the_one_waited_for() -> None:
    other = sample.running()
    other["metadata"]["uid"] = "another"
    with pytest.raises(CliError, match="deleted and created anew"):
        until(watched([("MODIFIED", other)]), sample.pending(), "running")


def test_when_the_time_is_up_the_exit_code_says_so() -> None:
    with pytest.raises(CliError, match=r"the time is up: llama is Pending \(Resources\)") as failure:
        until(watched(), sample.pending(), "running", timeout=0.0)
    assert failure.value.exit_code == ExitCode.TIMED_OUT
