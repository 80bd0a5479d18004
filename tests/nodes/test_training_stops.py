"""Stops, drains and evictions of training that listens: all ranks save at one step, and it goes on from there."""

from __future__ import annotations

import time

import pytest

from localcluster.api import MERGE_PATCH, Request
from lockstep.api.base import names
from lockstep.api.base.times import to_unix
from support import stub_trainer
from support.training import NAMESPACE, TrainingRun, TrainingSite

pytestmark = pytest.mark.nodes

STEPS = 100
LISTENING = ("--listen", "--save-every=100000", "--step-delay=0.1")
"""Nothing is saved but what is asked for, and the end."""
NO_CADENCE = {"format": "Manifest", "shared": {"claimName": "checkpoints"}, "cadence": {"interval": "Disabled"}}


def listening(site: TrainingSite, name: str, nodes: int) -> TrainingRun:
    run = site.train(name, nodes, STEPS, *LISTENING, checkpoint=NO_CADENCE)
    run.wait_until_step(1, 5)
    return run


def annotate(site: TrainingSite, path: str, annotation: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {annotation: value}}}
    site.world.cluster.api.send(Request("PATCH", path, patch, MERGE_PATCH))


def test_a_suspended_run_saves_at_one_step_on_all_ranks_and_resumes_from_it(site: TrainingSite) -> None:
    run = listening(site, "suspended", site.all_but_one)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods)
    save = run.status["checkpoint"]["save"]
    assert (save["outcome"], save["step"]) == ("Saved", save["atStep"])
    assert run.step(1) == save["step"]
    assert (run.folder / "a1" / f"step-{save['step']}" / "manifest.json").exists()
    run.change(suspend=False)
    run.wait_until_succeeded()
    assert run.status["start"]["resume"]["step"] == save["step"]
    run.assert_undisturbed(STEPS)


def test_a_save_on_request_is_acknowledged_with_its_step_and_disturbs_nothing(site: TrainingSite) -> None:
    run = listening(site, "saves", 2)
    annotate(site, run.path, names.ANNOTATION_CHECKPOINT_REQUEST, "now")

    def answer() -> str:
        return next((str(request["result"]) for request in run.status.get("requests", ())), "")

    run.wait("it says what it saved", lambda: answer().startswith("Saved step"))
    step = int(answer().rpartition(" ")[2])
    assert (run.folder / "a1" / f"step-{step}" / "manifest.json").exists()
    run.wait_until_succeeded()
    assert run.status["attempt"] == 1
    run.assert_undisturbed(STEPS)


def test_a_drained_node_alone_is_left_and_the_others_keep_their_pods(site: TrainingSite) -> None:
    run = listening(site, "drained", site.all_but_one)
    drained, pods = run.nodes[1], {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in run.pods}
    annotate(site, f"/api/v1/nodes/{drained}", names.ANNOTATION_DRAIN, "new firmware")
    try:
        run.wait("it goes on elsewhere", lambda: run.status["attempt"] == 2 and drained not in run.nodes)
        run.wait_until_succeeded()
    finally:
        annotate(site, f"/api/v1/nodes/{drained}", names.ANNOTATION_DRAIN, None)
    first, save = run.attempts[0], run.status["checkpoint"]["save"]
    assert (first["cause"], first["node"], first.get("charged", False)) == ("Drained", drained, False)
    assert save["outcome"] == "Saved"
    assert run.attempts[1]["resumeStep"] >= save["step"]  # the stub saves once more on its SIGTERM
    assert set(run.nodes) <= set(site.nodes) - {drained}
    for rank in {*range(run.ranks)} - {1}:
        name = names.pod_name(run.name, run.uid, rank, 1)
        assert {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in run.pods}[name] == pods[name]
    run.assert_undisturbed(STEPS)


def test_a_pod_that_somebody_deletes_is_saved_with_its_gang_before_it_goes(site: TrainingSite) -> None:
    run = listening(site, "evicted", 3)
    pod = names.pod_name(run.name, run.uid, 1, 1)
    site.world.kubectl("delete", "pod", "-n", NAMESPACE, pod, "--wait=false")
    run.wait_until_succeeded()
    first, save = run.attempts[0], run.status["checkpoint"]["save"]
    assert (first["cause"], first.get("charged", False)) == ("Disruption", False)
    assert (save["outcome"], save["reason"]) == ("Saved", "PodTerminated"), run.events("SaveFailed")
    assert run.attempts[1]["resumeStep"] >= save["step"]
    run.assert_undisturbed(STEPS)


def test_a_run_whose_time_is_up_saves_and_ends(site: TrainingSite) -> None:
    run = site.train("timed", 2, 100_000, *LISTENING, checkpoint=NO_CADENCE)
    run.wait_until_step(1, 5)
    # Half of the limit is over in ten seconds: then the save is asked for, which may take as long as the start did.
    since_admitted = time.time() - to_unix(run.status["lastAdmitted"])
    run.change(timeLimit=f"{2 * int(since_admitted + 10)}s")
    run.wait_until_finished()
    ended = run.condition("Succeeded")
    assert (ended["status"], ended["reason"]) == ("False", "TimeLimit"), run.summary()
    save = run.status["checkpoint"]["save"]
    assert (save["outcome"], save["step"]) == ("Saved", save["atStep"])
    assert (run.folder / "a1" / f"step-{save['step']}" / "manifest.json").exists()
    run.wait("its programs have ended", lambda: not run.processes())
    assert run.status["attempt"] == 1
    for rank in range(run.ranks):
        taken = run.lineage(1, rank)
        assert taken == list(stub_trainer.undisturbed(save["step"], run.ranks, rank))
