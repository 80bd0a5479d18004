"""What a spec asks for beyond the usual, with real processes: a signal, a debug hold, a roll-back, another size, a try
of the network."""

from __future__ import annotations

import pytest

from harness import stub_trainer
from harness.training import NODES, TrainingSite
from localcluster.api import MERGE_PATCH, Request
from lockstep.api.base import names

pytestmark = pytest.mark.nodes

QUICK = "--step-delay=0.05"
ON_SIGNAL = {
    "format": "Manifest",
    "shared": {"claimName": "checkpoints"},
    "cadence": {"interval": "Disabled"},
    "signal": "SIGUSR1",
}


def test_a_program_that_knows_nothing_of_lockstep_saves_on_its_signal_before_it_is_stopped(site: TrainingSite) -> None:
    run = site.train("signalled", 2, 100, "--save-on=SIGUSR1", "--save-every=100000", checkpoint=ON_SIGNAL)
    run.wait_until_step(1, 5)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods)
    save = run.status["checkpoint"]["save"]
    assert save["outcome"] == "Saved"
    assert (run.folder / "a1" / f"step-{save['step']}" / "manifest.json").exists()
    run.change(suspend=False)
    run.wait_until_succeeded()
    assert run.attempts[1]["resumeStep"] >= save["step"]  # the stub saves once more on its SIGTERM
    run.assert_undisturbed(100)


PRINTS = """
import time
for step in range(40):
    print(f"step {step}/40 loss {1 / (step + 1)}")
    time.sleep(0.2)
time.sleep(600)
"""


def test_a_program_that_only_prints_is_seen_as_it_prints_and_its_loss_is_short(site: TrainingSite) -> None:
    run = site.apply("prints", 2, ["python", "-c", PRINTS])
    run.wait("its steps are seen", lambda: run.status.get("progress", {}).get("totalSteps") == 40)
    assert len(run.status["progress"]["loss"]) <= len("0.0001234")
    assert "step 0/40 loss 1.0" in run.log(0).splitlines()
    assert not run.is_true("Finished")
    run.change(cancel=True)


def test_a_loss_that_jumps_is_rolled_back_where_that_is_asked_for(site: TrainingSite) -> None:
    options = ("--save-every=10", "--spike-at=65", QUICK)
    run = site.train("spiky", 2, 90, *options, recovery={"onLossSpike": "RollBack"})
    run.wait_until_succeeded()
    first, second = run.attempts[0], run.attempts[1]
    assert (first["cause"], first["action"]) == ("LossSpike", "RollBack")
    assert "usual are" in first["message"]
    assert 10 <= second["resumeStep"] <= 50, "step 60 was saved before the jump as well, and may be spoilt already"
    run.assert_undisturbed(90)


def test_a_failed_run_keeps_its_pods_for_a_look_inside_until_it_is_released(site: TrainingSite) -> None:
    run = site.apply("held", 2, ["sh", "-c", "sleep 2; exit 93"], recovery={"debugHold": "10m"})
    run.wait_until_finished()
    before = run.pod_uids
    assert len(before) == 2
    assert run.status["recovery"]["debugUntil"]
    assert not run.processes()
    assert run.pod_uids == before
    assert {pod["status"]["phase"] for pod in run.pods} == {"Running"}
    patch = {"metadata": {"annotations": {names.ANNOTATION_DEBUG_RELEASE: "now"}}}
    site.world.cluster.api.send(Request("PATCH", run.path, patch, MERGE_PATCH))
    run.wait("its pods have ended", lambda: all(p["status"]["phase"] in ("Succeeded", "Failed") for p in run.pods))


def test_an_elastic_gang_grows_again_once_its_node_is_back(site: TrainingSite) -> None:
    options = ("--any-size", "--listen", "--save-every=10", "--hold-after=12", "--later-delay=0.2")
    unasked = {"cadence": {"interval": "Disabled"}, "shared": {"claimName": "checkpoints"}, "format": "Manifest"}
    run = site.train("grows", 4, 200, *options, elastic={"min": 2, "growAfter": "5s"}, checkpoint=unasked)
    run.wait_until_saved(1, 10)
    lost = run.nodes[2]
    site.world.process_nodes.kill_node(lost)
    run.wait("the gang has shrunk", lambda: run.status["resolved"]["nodes"] == 3 and "nodes" in run.attempts[-1])
    site.world.process_nodes.return_node(lost)
    sizes = [4, 3, 4]
    run.wait("the gang has grown", lambda: [e["nodes"] for e in run.attempts if "nodes" in e] == sizes)
    save = run.status["checkpoint"]["save"]
    assert (save["outcome"], save["reason"]) == ("Saved", "Resized")
    assert run.attempts[-1]["resumeStep"] >= save["step"]
    assert sorted(run.nodes) == sorted(shape.name for shape in NODES)
    run.wait_until_step(run.attempts[-1]["number"], run.attempts[-1]["resumeStep"] + 5)
    states = {0: stub_trainer.BEGINNING}
    for entry in (entry for entry in run.attempts if "nodes" in entry):
        for step in range(entry.get("resumeStep", 0) + 1, 201):
            batches = [stub_trainer.batch(step, rank) for rank in range(entry["nodes"])]
            states[step] = stub_trainer.advanced(states[step - 1], batches)
        for rank in range(entry["nodes"]):
            for line in run.lineage(entry["number"], rank):
                assert line == stub_trainer.lineage_line(line["step"], rank, states[line["step"]])


def test_a_node_that_cannot_reach_its_peers_is_swapped_before_any_program_starts(site: TrainingSite) -> None:
    cut, other = NODES[1].name, NODES[3].name
    site.world.kubectl("cordon", other)
    try:
        site.world.process_nodes.cut_node(cut, "peers")
        run = site.train("swapped", 3, 20, QUICK, preflight={"warmUp": "Pairwise"})
        run.wait("it is given the other three", lambda: cut in run.status.get("assignment", {}).get("nodes", ()))
    finally:
        site.world.kubectl("uncordon", other)
    run.wait_until_succeeded()
    assert cut not in run.nodes
    lost = run.events("PodLost")
    assert [note for note in lost if f"the exchange of the other nodes with {cut} failed" in note], lost
    assert [entry["cause"] for entry in run.attempts] == ["Succeeded"], "no attempt was begun with it"
    run.assert_undisturbed(20)
