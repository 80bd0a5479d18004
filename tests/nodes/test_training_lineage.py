"""Real data-parallel training in JAX: the loss of a node leaves no trace in what is learnt."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.training import TrainingSite

pytestmark = [pytest.mark.nodes, pytest.mark.nightly]  # `make demo` and the faults compare as well

RANKS, STEPS = 3, 40
TRAIN_LM = Path(__file__).resolve().parents[2] / "e2e" / "demo" / "train_lm.py"
SETTINGS = ("--save-every=10", "--batch=2", "--context=16", "--width=16", "--layers=1")


def test_training_through_a_killed_node_is_bit_identical_to_undisturbed_training(site: TrainingSite) -> None:
    def train(name: str, *options: str):
        tiers = {"format": "Manifest", "shared": {"claimName": "checkpoints"}, "local": {"storage": "nvme"}}
        command = ["python3", "-B", str(TRAIN_LM), f"--steps={STEPS}", *SETTINGS, *options]
        return site.apply(name, RANKS, command, launcher={"type": "JAX"}, checkpoint=tiers)

    disturbed = train("disturbed", "--step-delay=0.2")
    disturbed.wait_until_saved(1, 10, 120)
    lost = disturbed.nodes[1]
    site.world.process_nodes.kill_node(lost)
    disturbed.wait_until_succeeded(240)
    assert lost not in disturbed.nodes
    assert [entry["cause"] for entry in disturbed.attempts] == ["NodeLost", "Succeeded"]
    resume = disturbed.status["start"]["resume"]
    # What lay on the lost node's own disk is gone with it.
    assert (resume["tier"], resume["step"] % 10) == ("shared", 0)
    assert resume["step"] >= 10
    site.world.process_nodes.return_node(lost)

    undisturbed = train("undisturbed")
    undisturbed.wait_until_succeeded(180)
    assert [entry["number"] for entry in undisturbed.attempts] == [1]
    disturbed.assert_lineage_is(lambda rank: undisturbed.lineage(1, rank))
