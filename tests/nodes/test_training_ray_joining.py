"""`launcher: Ray` with a real Ray whose nodes are lost and join again: the driver is the same process all the time."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from containers.test_anywhere import annotate
from harness.proc import children
from harness.ray_program import assert_one_driver, let_go, said, wait_until_held
from harness.training import TrainingRun, TrainingSite
from lockstep.api.base import names
from support.ray import MISSING, VENV, lose, processes, train

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.nightly,  # two minutes each, most of it the start of Ray on every node
    pytest.mark.skipif(not (VENV / "bin" / "ray").exists(), reason=MISSING),
]

WHY = "another node takes its place"
JOINS_WITHIN = 10.0 * float(os.environ.get("LOCKSTEP_TEST_SLOWER", "1"))
"""Seconds from when a loss is established. ``LOCKSTEP_TEST_SLOWER``: how many times as slow this machine is."""


def test_a_spare_joins_within_ten_seconds_of_the_loss_of_one_of_four_nodes(larger_site: TrainingSite) -> None:
    """From when the loss of the last rank's node is established, until Ray says that the spare is alive."""
    run = train(larger_site, "joined", 4, spareNodes=1)
    wait_until_held(run)
    run.wait("the spare is ready", lambda: run.status.get("spares") == "1/1")
    lost, assigned, looks = run.nodes[3], run.status["assignment"], [time.time()]
    before, heard = set(said(run, 1, "alive")[-1]["alive"]), len(said(run, 1))
    lose(larger_site, lost)

    def is_established() -> bool:
        looks.append(time.time())
        return bool(run.status["assignment"] != assigned)

    run.wait("the loss is established", is_established)
    established = looks[-2]  # not later than that
    run.wait("the spare has joined", lambda: [0, 1, 2, 3] in [line["ranks"] for line in said(run, 1)[heard:]])
    joined = next(line["at"] for line in said(run, 1, "alive") if set(line["alive"]) - before)
    print(f"a spare joined {joined - established:.1f} s after the loss was established")
    assert lost not in [run.nodes[slot] for slot in run.status["assignment"]["rankToSlot"]]
    let_go(run)
    run.wait_until_succeeded()
    assert_one_driver(run)
    assert joined - established < JOINS_WITHIN, f"{joined - established:.1f} s"


def test_without_a_spare_a_new_pod_joins_and_the_driver_goes_on(site: TrainingSite) -> None:
    run = train(site, "refilled")
    wait_until_held(run)
    lost = run.nodes[1]
    lose(site, lost)
    run.wait("rank 1 is missed", lambda: said(run, 1)[-1]["ranks"] == [0, 2])
    run.wait("another one has joined", lambda: said(run, 1)[-1]["ranks"] == [0, 1, 2])
    assert lost not in run.nodes
    let_go(run)
    run.wait_until_succeeded()
    assert_one_driver(run)
    assert run.events("Joined")


def test_an_operator_that_is_killed_while_a_node_is_absent_has_it_join_all_the_same(site: TrainingSite) -> None:
    run = train(site, "leaderless")
    wait_until_held(run)
    lost = run.nodes[1]
    lose(site, lost)
    run.wait("it is replaced", lambda: run.status["assignment"]["incarnations"][1] == 2)
    site.kill_operator()
    run.wait("another one has joined", lambda: said(run, 1)[-1]["ranks"] == [0, 1, 2] and lost not in run.nodes)
    let_go(run)
    run.wait_until_succeeded()
    assert_one_driver(run)


def test_a_killed_raylet_is_started_again_and_the_driver_goes_on(site: TrainingSite) -> None:
    run = train(site, "again", 2)
    wait_until_held(run)
    pods = run.pod_uids
    [raylet] = processes(run, 1, "raylet")
    os.kill(raylet, signal.SIGKILL)
    run.wait("it is missed", lambda: said(run, 1)[-1]["ranks"] == [0])
    run.wait("it is back", lambda: said(run, 1)[-1]["ranks"] == [0, 1])
    let_go(run)
    run.wait_until_succeeded()
    assert_one_driver(run)
    assert run.pod_uids == pods


def test_a_killed_process_that_runs_rays_tasks_is_rays_affair(site: TrainingSite) -> None:
    run = train(site, "task", 2)
    wait_until_held(run)
    pods, killed = run.pod_uids, task_processes(run, 1)
    assert killed
    for pid in killed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    run.wait("another one is there", lambda: set(task_processes(run, 1)) - set(killed))
    run.wait("it is asked", lambda: said(run, 1)[-1]["ranks"] == [0, 1])
    assert run.status["start"].get("joins", 0) == 0
    let_go(run)
    run.wait_until_succeeded()
    assert_one_driver(run)
    assert run.pod_uids == pods


def task_processes(run: TrainingRun, rank: int) -> list[int]:
    """PIDs of Ray's processes that run tasks on the node of a rank: not the agents, without which the raylet ends."""
    [raylet] = processes(run, rank, "raylet")
    found = []
    for pid in children(raylet):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith((b"ray::IDLE", b"ray::rank_here")):
                found.append(pid)
    return found


def test_a_drained_node_is_drained_by_ray_while_another_joins(site: TrainingSite) -> None:
    run = train(site, "drained")
    wait_until_held(run)
    drained = run.nodes[2]
    annotate(site, f"/api/v1/nodes/{drained}", names.ANNOTATION_DRAIN, "new firmware")
    try:
        run.wait("Ray has drained it", lambda: WHY in str(said(run, 1, "alive")[-1]["dead"]))
        run.wait("another one has joined", lambda: drained not in run.nodes and run.status["start"].get("joins") == 1)
        run.wait("all are there", lambda: said(run, 1)[-1]["ranks"] == [0, 1, 2])
        let_go(run)
        run.wait_until_succeeded()
    finally:
        annotate(site, f"/api/v1/nodes/{drained}", names.ANNOTATION_DRAIN, None)
    assert_one_driver(run)
    assert "save" not in run.status["checkpoint"]
