"""A run of a higher class sends one away that really trains: it saves, waits, and goes on from its save."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.training import TrainingSite
from localcluster.api import Request
from lockstep.api.base import names

pytestmark = pytest.mark.nodes

STEPS = 100
LISTENING = ("--listen", "--save-every=100000", "--step-delay=0.1")
NO_CADENCE = {"format": "Manifest", "shared": {"claimName": "checkpoints"}, "cadence": {"interval": "Disabled"}}
QUEUE = {"preemption": {"withinQueue": "LowerPriority", "minRuntime": "0s"}}


@pytest.fixture
def queue(site: TrainingSite) -> Iterator[str]:
    """A queue with two classes, batch below production."""
    api = site.world.cluster.api
    made: list[tuple[str, str, dict[str, Any]]] = [
        (f"/apis/{names.API_VERSION}/{names.QUEUES}", "shared", {"apiVersion": names.API_VERSION, "spec": QUEUE}),
    ]
    for name, value in (("batch", 10), ("production", 1000)):
        body = {"apiVersion": "scheduling.k8s.io/v1", "value": value}
        made.append(("/apis/scheduling.k8s.io/v1/priorityclasses", name, body))
    for path, name, body in made:
        kind = "TrainingQueue" if name == "shared" else "PriorityClass"
        api.send(Request("POST", path, {"kind": kind, "metadata": {"name": name}, **body}))
    yield "shared"
    for path, name, _ in made:
        api.send(Request("DELETE", f"{path}/{name}", absence_is_fine=True))


@pytest.mark.nightly  # in every run the fault menu preempts, and kills the operator amid it
def test_a_run_makes_room_with_a_save_and_goes_on_from_it_afterwards(site: TrainingSite, queue: str) -> None:
    old = site.train("old", 3, STEPS, *LISTENING, checkpoint=NO_CADENCE, queue=queue, priorityClassName="batch")
    old.wait_until_step(1, 5)
    urgent = site.train("urgent", 2, 20, *LISTENING, checkpoint=NO_CADENCE, queue=queue, priorityClassName="production")
    urgent.wait("it has nodes", lambda: urgent.status.get("assignment", {}).get("nodes"))
    old.wait("it waits again", lambda: old.status.get("admission", {}).get("requeuedFor") == "Preempted")
    assert old.events("PreemptionNotice")
    assert urgent.events("NodesReserved")
    save = old.status["checkpoint"]["save"]
    assert (save["outcome"], save["reason"], save["step"]) == ("Saved", "Preempted", save["atStep"])
    first = old.attempts[0]
    assert (first["cause"], first["message"]) == ("Preempted", "preempted for training/urgent; it queues again")
    urgent.wait_until_succeeded()
    old.wait_until_succeeded()
    assert old.status["start"]["resume"]["step"] == save["step"]
    assert old.status["admission"]["preemptions"] == 1
    assert "reservation" not in urgent.status
    assert "preemption" not in old.status
    old.assert_undisturbed(STEPS)
    urgent.assert_undisturbed(20)
