"""What a scrape says of nodes and of the operator itself, and what is counted of status writes."""

import pytest

from lockstep.api.base import names
from lockstep.controller.runtime.tallies import Tallies
from lockstep.core.model.snapshot import NodeView
from support.scrapes import HELD, RUNNING, World, run, status


@pytest.fixture
def world() -> World:
    return World()


async def test_the_operators_own_figures_are_there(world: World) -> None:
    value = await world.scrape()
    assert value("lockstep_leader") == 1
    assert value("lockstep_workqueue_depth") == 3
    assert value("lockstep_workqueue_oldest_due_seconds") == 0.5
    assert value("lockstep_informer_last_heard_seconds", informer="pods") == 12
    assert [value("lockstep_lag_seconds", part=part) for part in ("loop", "api-server", "scheduler")] == [0.1, 2.5, 7.0]
    assert value("lockstep_lag_allowance_seconds") == 25
    assert value("lockstep_events_dropped_total") == 6
    assert value("lockstep_api_requests_total", verb="create", resource="pods", code="201") == 512
    assert value("lockstep_worker_api_requests_total", endpoint="/v1/report", code="200") == 9
    assert value("lockstep_token_reviews_total", outcome="Authenticated") == 4
    assert value("process_resident_memory_bytes")


async def test_nodes_are_counted_by_state_and_by_whether_a_run_holds_them(world: World) -> None:
    gpus = {names.GPU_RESOURCE: 8}
    world.runs = [run("llama", RUNNING)]
    world.nodes = [
        NodeView("gpu-1", "u1", {}, gpus),
        NodeView("gpu-2", "u2", {}, gpus, ready=False),
        NodeView("gpu-3", "u3", {}, gpus),
        NodeView("gpu-4", "u4", {}, gpus, unschedulable=True),
        NodeView("gpu-5", "u5", {}, {"amd.com/gpu": 4}, unschedulable=True),
        NodeView("cpu-1", "u6", {}, {"cpu": 4}, unschedulable=True),
    ]
    world.disruption = "3 of 4 nodes turned NotReady"
    world.flaps = {"gpu-2": 4}
    value = await world.scrape()
    assert value("lockstep_nodes", state="Ready", held="true") == 1
    assert value("lockstep_nodes", state="NotReady", held="true") == 1
    assert value("lockstep_nodes", state="Ready", held="false") == 1
    assert value("lockstep_nodes", state="Cordoned", held="false") == 3
    assert value("lockstep_node_gpus", state="Cordoned", held="false") == 12
    assert value("lockstep_node_gpus", state="Ready", held="true") == 8
    assert value("lockstep_node_flaps", node="gpu-2") == 4
    assert value("lockstep_node_losses_total") == 7
    assert value("lockstep_breaker_open") == 1
    assert value("lockstep_mode", mode="NoNewAdmissions") == 1
    assert value("lockstep_mode", mode="Active") == 0


def test_what_a_status_write_changed_is_counted_once() -> None:
    tallies = Tallies()
    pending, admitted = status(), status(**HELD)
    lost = {"number": 1, "endedAt": 10, "cause": "NodeLost", "action": "RestartInPlace"}
    recovered = status(**HELD, attempts=[lost], totals={"nodesReplaced": 1, "podsReplaced": 2})
    for before, after in ((pending, admitted), (admitted, admitted), (admitted, recovered)):
        tallies.status_written(before, after)
    tallies.status_written(recovered, recovered)
    assert tallies.admissions == 1
    assert (tallies.nodes_replaced, tallies.pods_replaced) == (1, 2)
    assert tallies.attempts_ended == {("NodeLost", "RestartInPlace"): 1}
    tallies.status_written(recovered, admitted)  # rebuilt after its loss
    assert tallies.nodes_replaced == 1
