"""A run that Kueue admits really trains, is evicted, and goes on from what it saved; Kueue itself is its own
manager where LOCKSTEP_TEST_KUEUE names one, else a double."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.training import NAMESPACE, NODES, TrainingSite
from localcluster.api import Request
from lockstep.api.base import names
from support.kueue_at_work import QUEUE, KueueAtWork, kueue_at_work
from support.kueue_double import assigned_hosts

pytestmark = pytest.mark.nodes

STEPS = 100
LISTENING = ("--listen", "--save-every=100000", "--step-delay=0.1")
NO_CADENCE = {"format": "Manifest", "shared": {"claimName": "checkpoints"}, "cadence": {"interval": "Disabled"}}
SOON = 90.0


@pytest.fixture
def kueue(site: TrainingSite) -> Iterator[KueueAtWork]:
    """A TrainingQueue, kueue, whose runs Kueue admits."""
    api, path = site.world.cluster.api, f"/apis/{names.API_VERSION}/{names.QUEUES}"
    spec = {"backend": "Kueue", "localQueue": QUEUE}
    kind = {"apiVersion": names.API_VERSION, "kind": "TrainingQueue"}
    api.send(Request("POST", path, {**kind, "metadata": {"name": "kueue"}, "spec": spec}))
    with kueue_at_work(site.world.cluster, NAMESPACE, [shape.name for shape in NODES]) as work:
        yield work
        site.put_in_order()
    api.send(Request("DELETE", f"{path}/kueue", absence_is_fine=True))


@pytest.mark.nightly  # tests/cluster/test_kueue.py evicts simulated workers
def test_a_run_that_kueue_evicts_saves_waits_and_goes_on_from_its_save(site: TrainingSite, kueue: KueueAtWork) -> None:
    run = site.train("llama", 3, STEPS, *LISTENING, checkpoint=NO_CADENCE, queue="kueue", gpusPerNode=8)
    run.wait("it has nodes", lambda: run.status.get("assignment", {}).get("nodes"), SOON)
    run.wait_until_step(1, 5)
    assert run.status["assignment"]["nodes"] == assigned_hosts(kueue.of("llama"))
    run.wait("Kueue is told", lambda: kueue.told("llama", "PodsReady") == ("True", "Started"))
    with kueue.rival():
        run.wait("it is released", lambda: kueue.told("llama", "QuotaReserved")[0] == "False", SOON)
        save = run.status["checkpoint"]["save"]
        assert (save["outcome"], save["reason"], save["step"]) == ("Saved", "EvictedByKueue", save["atStep"])
        assert kueue.told("llama", "Requeued") == ("True", "Preempted")
    run.wait_until_succeeded()
    assert run.status["start"]["resume"]["step"] == save["step"]
    run.wait("the quota is back", lambda: kueue.told("llama", "Finished") == ("True", "Succeeded"), 300)
    run.assert_undisturbed(STEPS)
