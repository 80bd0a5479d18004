"""The operator or the API server is away: what trains goes on, and what breaks meanwhile is mended afterwards."""

from __future__ import annotations

import os
import random
import secrets
import time

import pytest

from harness.training import TrainingRun, TrainingSite

pytestmark = pytest.mark.nodes

# `make test-outages` takes ten and two minutes. The API server's absence outlasts a lease, a node's grace period and
# the operator's timeouts either way.
OPERATOR_AWAY_SECONDS = float(os.environ.get("LOCKSTEP_TEST_OPERATOR_AWAY", "20"))
API_SERVER_AWAY_SECONDS = float(os.environ.get("LOCKSTEP_TEST_API_SERVER_AWAY", "60"))
STEPS, LOSS_AFTER_STEP = 60, 20
KILLS = 10
KILLED_WITHIN_SECONDS = 25.0


def assert_trained_on(run: TrainingRun, pods: set[str]) -> None:
    assert run.status["attempt"] == 1
    assert run.pod_uids == pods
    assert run.status["totals"].get("restarts", 0) == 0


@pytest.mark.nightly  # the fault menu kills it
def test_a_gang_trains_on_and_finishes_while_the_operator_is_down(site: TrainingSite) -> None:
    lasting = site.train("lasts", 2, 100_000)
    ending = site.train("ends", 2, 60)
    for run in (lasting, ending):
        run.wait_until_step(1, 5)
    pods = lasting.pod_uids
    site.world.operator.kill_for_good()
    site.drop_lease()
    try:
        before = lasting.step(1)
        time.sleep(OPERATOR_AWAY_SECONDS)
        assert lasting.step(1) > before + 10
        ending.wait_until_step(1, 60)
    finally:
        site.world.operator.run()
        site.world.operator.wait_until_leading()
    ending.wait_until_succeeded()
    ending.assert_undisturbed(60)
    lasting.wait_until_step(1, lasting.step(1) + 3)
    assert_trained_on(lasting, pods)


@pytest.mark.nightly  # in every run the fault menu has a shorter one, and test_training_nodes.py one with unready nodes
def test_a_gang_trains_on_while_the_api_server_is_down(site: TrainingSite) -> None:
    run = site.train("alone", 3, 100_000)
    run.wait_until_step(1, 5)
    pods = run.pod_uids
    site.world.cluster.stop_component("apiserver", kill=True)
    try:
        before = run.step(1)
        time.sleep(API_SERVER_AWAY_SECONDS)
        assert run.step(1) > before + 20
    finally:
        site.world.cluster.start_component("apiserver")
        site.world.operator.wait_until_leading()
    time.sleep(10.0)  # all that was missed is seen now, NotReady nodes among it
    before = run.step(1)
    run.wait_until_step(1, before + 3)
    assert_trained_on(run, pods)


@pytest.mark.nightly  # tests/cluster/test_crashes.py has every write
@pytest.mark.parametrize("number", [1, 2])
def test_kill_minus_nine_of_the_operator_at_random_moments_changes_nothing(site: TrainingSite, number: int) -> None:
    """Launch, training, the loss of a node, recovery and the end: nowhere does its death make a difference."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # shown when the test fails
    random_moment = random.Random(seed)
    moments = sorted(random_moment.uniform(0.0, KILLED_WITHIN_SECONDS) for _ in range(KILLS))
    print("operator killed after", ", ".join(f"{moment:.1f} s" for moment in moments))
    begun = time.monotonic()
    run = site.train(f"unmoved-{number}", 3, STEPS, "--step-delay=0.2")
    node_is_lost = False
    for moment in moments:
        while (left := begun + moment - time.monotonic()) > 0:
            time.sleep(min(0.1, left))
            if not node_is_lost and run.step(1) >= LOSS_AFTER_STEP:
                lose_a_node(site, run)
                node_is_lost = True
        site.kill_operator()
    if not node_is_lost:
        run.wait_until_step(1, LOSS_AFTER_STEP, 120)
        lose_a_node(site, run)
    run.wait_until_succeeded(180)
    run.assert_undisturbed(STEPS)
    assert [(entry["number"], entry["cause"]) for entry in run.attempts] == [(1, "NodeLost"), (2, "Succeeded")]
    assert run.status["assignment"]["incarnations"] == [1, 2, 1]
    totals = run.status["totals"]
    assert (totals["attempts"], totals["nodesReplaced"]) == (2, 1)


def lose_a_node(site: TrainingSite, run: TrainingRun) -> None:
    node = run.nodes[1]
    site.world.process_nodes.kill_node(node)
    site.declare_not_ready(node)
