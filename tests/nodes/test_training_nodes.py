"""A run in training loses a machine, or what connects it: it comes back only when it has to, and loses no step."""

from __future__ import annotations

import time

import pytest

from harness.training import SETTINGS, SILENT_AFTER, TrainingRun, TrainingSite, is_in_order

pytestmark = pytest.mark.nodes

WATCHED_SECONDS = SILENT_AFTER + SETTINGS["stepsStoppedAfter"] + 4.0
"""Long enough for a false alarm to go off."""


def assert_steps_advance(run: TrainingRun, attempt: int = 1) -> None:
    before = run.step(attempt)
    run.wait_until_step(attempt, before + 3)


@pytest.mark.nightly  # in every run the fault menu has it
def test_a_killed_node_is_replaced_and_free_again_once_it_returns(site: TrainingSite) -> None:
    run = site.train("killed", 3, 60, "--hold-after=22")
    run.wait_until_saved(1, 20)
    before, survivors = run.nodes, run.pod_uids
    site.world.process_nodes.kill_node(before[1])
    run.wait_until_step(2, 21)
    after = run.nodes
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] not in before
    assert len(run.pod_uids & survivors) >= 2
    run.wait_until_succeeded()
    run.assert_undisturbed(60)
    first = run.attempts[0]
    assert (first["cause"], first["rank"], first["node"], first["action"]) == ("NodeLost", 1, before[1], "Replace")
    assert run.status["totals"]["nodesReplaced"] == 1

    waits = site.train("waits", 4, 20)
    waits.wait("is told what lacks", lambda: "3 fit" in waits.status.get("queue", {}).get("message", ""))
    assert not waits.pods
    site.world.process_nodes.return_node(before[1])
    waits.wait_until_succeeded()


@pytest.mark.nightly  # in every run the fault menu has it
def test_a_frozen_node_is_replaced_and_harms_nothing_when_it_wakes(site: TrainingSite) -> None:
    run = site.train("frozen", 3, 90, "--save-every=20", "--hold-after=23")
    run.wait_until_saved(1, 20)
    run.wait_until_step(1, 23)  # so that the zombie has something to save
    node = run.nodes[2]
    site.world.process_nodes.freeze_node(node)
    run.wait_until_saved(2, 40)
    newer, thawed_at = run.files(2), time.time()
    older = run.folder / "a1"
    site.world.process_nodes.thaw_node(node)
    run.wait("the zombie wrote", lambda: [f for f in older.glob("step-*/shard-2.bin") if f.stat().st_mtime > thawed_at])
    now = run.files(2)
    assert all(now[name].startswith(content) for name, content in newer.items())
    run.wait_until_succeeded()
    assert [entry["number"] for entry in run.attempts] == [1, 2]
    run.assert_undisturbed(90)
    run.wait("the zombie's pod is gone", lambda: len(run.pods) == 3)


def test_a_node_cut_off_from_the_operator_alone_trains_on(site: TrainingSite) -> None:
    run = site.train("cut-off", 3, 100_000)
    run.wait_until_step(1, 5)
    pods, node = run.pod_uids, run.nodes[1]
    site.world.process_nodes.cut_node(node, "operator")
    time.sleep(WATCHED_SECONDS)
    assert_steps_advance(run)
    site.world.process_nodes.heal_node(node)
    assert_steps_advance(run)
    assert run.status["attempt"] == 1
    assert run.pod_uids == pods


@pytest.mark.nightly  # in every run the fault menu has it
def test_a_gang_whose_node_cannot_reach_its_peers_comes_back_when_it_can(site: TrainingSite) -> None:
    run = site.train("torn-apart", 3, 60, "--hold-after=22")
    run.wait_until_saved(1, 20)
    pods, node = run.pod_uids, run.nodes[1]
    site.world.process_nodes.cut_node(node, "peers")
    run.wait("a rank gave up", lambda: run.status["attempt"] >= 2)
    site.world.process_nodes.heal_node(node)
    run.wait_until_succeeded()
    assert run.pod_uids == pods
    assert run.attempts[0]["cause"] == "Application"
    run.assert_undisturbed(60)


def test_nodes_that_are_not_ready_do_not_stop_a_gang_that_trains(site: TrainingSite) -> None:
    run = site.train("not-ready", 3, 100_000)
    run.wait_until_step(1, 5)
    pods, node = run.pod_uids, run.nodes[0]
    site.world.process_nodes.cut_node(node, "apiserver")
    site.declare_not_ready(node)
    time.sleep(WATCHED_SECONDS)
    assert is_unreachable(site, node)
    assert_steps_advance(run)
    site.world.process_nodes.heal_node(node)
    run.wait("the node is Ready", lambda: is_in_order(site.world, node))
    assert_steps_advance(run)
    assert run.status["attempt"] == 1
    assert run.pod_uids == pods


def is_unreachable(site: TrainingSite, node: str) -> bool:
    taints = site.world.cluster.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints", ())
    return any(taint["key"] == "node.kubernetes.io/unreachable" for taint in taints)
