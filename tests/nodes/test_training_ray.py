"""`launcher: Ray` with a real Ray: a cluster for each attempt, and the command as its driver."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path

import pytest

from harness.ray_program import STEPS, let_go, said, wait_until_held
from harness.shown_commands import ROOT, block_on
from harness.training import TrainingRun, TrainingSite
from support.ray import MISSING, VENV, driver, lose, processes, train

pytestmark = [pytest.mark.nodes, pytest.mark.skipif(not (VENV / "bin" / "ray").exists(), reason=MISSING)]
TIER = {"shared": {"claimName": "checkpoints"}}  # the format is seen
PAGE = ROOT / "docs" / "ray.md"
RAY_TRAIN = block_on(PAGE, "python", "ScalingConfig")
nightly = pytest.mark.nightly  # one after the other they take more than every run has

RESTART = {"onNodeLoss": "Restart"}


@nightly
def test_the_command_is_rays_driver_once_all_nodes_have_joined(site: TrainingSite) -> None:
    run = train(site, "whole", held_at=0)
    run.wait_until_succeeded()
    heard = said(run, 1)
    assert {tuple(line["ranks"]) for line in heard} == {(0, 1, 2)}
    assert [attempt["number"] for attempt in run.attempts] == [1]
    run.assert_undisturbed(STEPS)


def test_ray_obeys_nobody_without_the_attempts_token(site: TrainingSite) -> None:
    run = train(site, "token")
    wait_until_held(run)
    start = run.status["start"]
    gcs = f"{start['masterAddress']}:{start['masterPort']}"
    ask = f"from ray._raylet import GcsClient; print(len(GcsClient(address={gcs!r}).get_all_node_info(timeout=5)))"
    [token] = tokens(run)
    for given, knows in ((token, True), ("0" * 64, False), ("", False)):
        answer = run_outside(ask, given)
        assert (answer == "3") == knows, f"{given!r}: {answer}"
    host, _, port = start["dashboard"].rpartition(":")
    assert dashboard_status(host, int(port), "") == 401
    assert dashboard_status(host, int(port), token) == 200
    let_go(run)
    run.wait_until_succeeded()


def tokens(run: TrainingRun) -> set[str]:
    """What the nodes' files say: all the same."""
    found = set()
    for rank in range(3):
        for pid in processes(run, rank, "raylet"):
            found.add(Path(f"/proc/{pid}/root/run/lockstep/a1/ray/token").read_text())
    return found


def run_outside(program: str, token: str) -> str:
    """What a process that is no part of the gang hears of Ray: the last line."""
    import subprocess

    environ = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "RAY_AUTH_MODE": "token" if token else "disabled"}
    environ |= {"RAY_AUTH_TOKEN": token} if token else {}
    done = subprocess.run(
        [VENV / "bin" / "python", "-c", program], env=environ, capture_output=True, text=True, timeout=60
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def dashboard_status(host: str, port: int, token: str) -> int:
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    with socket.create_connection((host, port), timeout=20) as connection:
        request = f"GET /api/version HTTP/1.1\r\nHost: {host}\r\n{authorization}Connection: close\r\n\r\n"
        connection.sendall(request.encode())
        return int(connection.makefile("rb").readline().split()[1])


@nightly
def test_a_killed_raylet_ends_the_attempt_and_all_start_again_in_their_pods(site: TrainingSite) -> None:
    run = train(site, "raylet", ray=RESTART)
    wait_until_held(run)
    pods = run.pod_uids
    [raylet] = processes(run, 2, "raylet")
    os.kill(raylet, signal.SIGKILL)
    run.wait_until_succeeded()
    assert run.pod_uids == pods
    assert run.attempts[0]["action"] == "RestartInPlace"
    assert "rank 2" in run.attempts[0]["message"], run.attempts[0]
    run.assert_undisturbed(STEPS)


@nightly
def test_a_driver_that_is_killed_is_the_cause_and_starts_again(site: TrainingSite) -> None:
    run = train(site, "driver")
    wait_until_held(run)
    os.kill(driver(run), signal.SIGKILL)
    run.wait_until_succeeded()
    assert (run.attempts[0]["rank"], run.attempts[0]["exitCode"]) == (0, 137), run.attempts[0]
    run.assert_undisturbed(STEPS)


@nightly
def test_a_node_that_is_lost_is_replaced_and_the_driver_resumes(site: TrainingSite) -> None:
    run = train(site, "lost", ray=RESTART)
    wait_until_held(run)
    lost = run.nodes[2]
    lose(site, lost)
    run.wait_until_succeeded()
    assert lost not in run.nodes
    assert said(run, 2)[-1]["ranks"] == [0, 1, 2]
    run.assert_undisturbed(STEPS)


@nightly
@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_a_killed_process_of_rays_head_ends_the_attempt_and_the_driver_resumes_in_the_same_pods(
    site: TrainingSite, name: str
) -> None:
    run = train(site, f"head-{name[:3]}")
    wait_until_held(run)
    pods = run.pod_uids
    [killed] = processes(run, 0, name)
    os.kill(killed, signal.SIGKILL)
    run.wait_until_succeeded()
    assert_resumed_in_second_attempt(run)
    assert run.pod_uids == pods
    assert run.attempts[0]["rank"] == 0, run.attempts[0]
    assert "Ray ended on this node" in run.attempts[0]["message"], run.attempts[0]


@nightly
def test_the_loss_of_the_heads_node_ends_the_attempt_and_the_driver_resumes_elsewhere(site: TrainingSite) -> None:
    run = train(site, "headless")
    wait_until_held(run)
    lost = run.nodes[0]
    lose(site, lost)
    run.wait_until_succeeded()
    assert_resumed_in_second_attempt(run)
    assert lost not in run.nodes
    assert (run.attempts[0]["cause"], run.attempts[0]["rank"]) == ("NodeLost", 0), run.attempts[0]


def assert_resumed_in_second_attempt(run: TrainingRun) -> None:
    """From the first one's checkpoint, with all nodes; what it learnt is that of a run to which nothing happened."""
    assert [attempt["number"] for attempt in run.attempts] == [1, 2], run.attempts
    assert run.status["start"]["resume"]["step"] == 10
    assert said(run, 2)[-1]["ranks"] == [0, 1, 2]
    run.assert_undisturbed(STEPS)


@nightly
def test_an_operator_that_is_killed_is_missed_by_nobody(site: TrainingSite) -> None:
    run = train(site, "alone", held_at=0)
    run.wait_until_saved(1, 10)
    site.kill_operator()
    run.wait_until_succeeded()
    assert len(run.attempts) == 1
    run.assert_undisturbed(STEPS)


@nightly
def test_a_run_that_is_suspended_saves_first_and_resumes_there(site: TrainingSite) -> None:
    run = train(site, "paused", held_at=0)
    run.wait_until_step(1, 12)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods)
    save = run.status["checkpoint"]["save"]
    assert save["outcome"] == "Saved"
    run.change(suspend=False)
    run.wait_until_succeeded()
    assert run.status["start"]["resume"]["step"] >= save["step"]  # one of its own may have done for the one asked for
    run.assert_undisturbed(STEPS)


def test_the_program_of_the_page_runs_as_shown(site: TrainingSite) -> None:
    run = train(site, "shown", 2, program=block_on(PAGE, "python", "def gradient"))
    run.wait_until_succeeded()
    assert "weight 3.5" in run.log(0)


def wait_until_reported(run: TrainingRun, step: int) -> None:
    """Ray Train has committed a checkpoint of this step, or a later one, and Lockstep has seen it."""

    def newest() -> int:
        return max((int(each["step"]) for each in run.status.get("checkpoint", {}).get("latest", ())), default=0)

    run.wait(f"step {step} is reported", lambda: newest() >= step)


@nightly
def test_ray_train_goes_on_from_its_last_checkpoint_once_another_node_has_joined(site: TrainingSite) -> None:
    run = train(site, "ray-train", spareNodes=1, program=RAY_TRAIN, checkpoint=TIER)
    wait_until_reported(run, 60)
    run.wait("the spare is ready", lambda: run.status.get("spares") == "1/1")
    lost = run.nodes[2]
    lose(site, lost)
    run.wait("the spare has joined", lambda: run.status["start"].get("joins") == 1)
    run.wait_until_succeeded()
    assert [attempt["number"] for attempt in run.attempts] == [1], run.attempts
    begun = [int(step) for step in re.findall(r"rank 0 goes on after step (\d+)", run.log(0))]
    assert (begun[0], begun[-1] >= 40) == (0, True), begun


@nightly
def test_ray_train_saves_when_it_is_suspended_and_resumes_there(site: TrainingSite) -> None:
    run = train(site, "ray-pause", 2, program=RAY_TRAIN, checkpoint=TIER)
    run.wait("it trains", lambda: run.status.get("progress", {}).get("step", 0) > 25)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods)
    save = run.status["checkpoint"]["save"]
    assert save["outcome"] == "Saved"
    run.change(suspend=False)
    run.wait_until_succeeded()
    assert run.status["start"]["resume"]["step"] >= save["step"]  # one of its own may have done for the one asked for


@nightly
def test_ray_train_resumes_in_a_new_attempt_from_what_it_has_reported(site: TrainingSite) -> None:
    run = train(site, "ray-head", 2, program=RAY_TRAIN, checkpoint=TIER)
    wait_until_reported(run, 60)
    [killed] = processes(run, 0, "gcs_server")
    os.kill(killed, signal.SIGKILL)
    run.wait_until_succeeded()
    assert [attempt["number"] for attempt in run.attempts] == [1, 2], run.attempts
    resumed = run.status["start"]["resume"]["step"]
    assert resumed >= 60
    assert f"rank 0 goes on after step {resumed}" in run.log(0)


def test_a_node_where_ray_is_missing_says_so(site: TrainingSite) -> None:
    run = site.apply("missing", 2, ["python3", "-c", "pass"], launcher={"type": "Ray"}, checkpoint=None)
    run.wait_until_finished()
    assert "install ray[default]" in run.attempts[-1]["message"] + run.condition("Succeeded")["message"]
