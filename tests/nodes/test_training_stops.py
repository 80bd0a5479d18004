"""Stops, drains and evictions of training that listens: all ranks save at one step, and it goes on from there."""

from __future__ import annotations

import pytest

from containers.test_anywhere import STEPS, annotate, listening
from harness.training import NAMESPACE, TrainingSite
from lockstep.api.base import names

pytestmark = pytest.mark.nodes


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


@pytest.mark.nightly  # on kind one is evicted
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
