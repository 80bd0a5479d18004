"""Whatever happens to a run that Kueue admits: its quota is not given back while it runs, nodes are nobody else's, and
once everything is well again, it trains or has ended."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.api.base.changes import changed
from lockstep.core.model.kueue.installation import Presence
from lockstep.core.model.lifecycle import Phase, phase_of
from support.examples import examples
from support.kueue_double import HOSTNAME
from support.kueue_world import KueueWorld, kueue_world

RACK = "topology.kubernetes.io/rack"
EVENTS = (
    "train",
    "evict: Preempted",
    "evict: PodsReadyTimeout",
    "deactivate",
    "activate",
    "delete the Workload",
    "suspend",
    "resume",
    "resize",
    "fail a process",
    "lose a node",
    "drain a node",
    "cordon a node",
    "spoil a node",
    "crash",
    "lag",
    "catch up",
    "remove Kueue",
    "install Kueue",
    "wait",
)


def _happen(world: KueueWorld, event: str) -> None:
    view = world.runs["run"]
    assert view.spec is not None
    here = bool(world.workloads) and world.presence is Presence.PRESENT
    nodes = [name for name in view.status.assignment.nodes if name]
    if event == "train":
        world.train("run", 10)
    elif event.startswith("evict") and here and world.told("QuotaReserved")[0] == "True":
        world.evict(event.removeprefix("evict: "))
    elif event in ("deactivate", "activate") and here:
        world.activate(event == "activate")
    elif event == "delete the Workload" and here:
        world.lose_workload()
    elif event in ("suspend", "resume"):
        world.apply("run", changed(view.spec, suspend=event == "suspend"))
    elif event == "resize":
        world.apply("run", changed(view.spec, nodes=5 - view.spec.nodes))
    elif event == "fail a process":
        world.exit_child("run", 0, 1)
    elif event == "lose a node" and nodes and not world.silent_nodes:
        world.fail_node(nodes[0])
        world.double.unhealthy.add(nodes[0])
    elif event.endswith("a node") and nodes:
        last = world.nodes[nodes[-1]]
        world.nodes[last.name] = {
            "drain a node": replace(last, drain="new firmware"),
            "cordon a node": replace(last, unschedulable=True),
            "spoil a node": replace(last, conditions={"XidCriticalError": "Xid 79"}),
        }.get(event, last)
    elif event == "crash":
        world.crash()
    elif event == "lag" and here:
        world.freeze()
    elif event == "catch up":
        world.stale = None
    elif event == "remove Kueue":
        world.presence, world.stale = Presence.ABSENT, None
    elif event == "install Kueue":
        world.presence = Presence.PRESENT
    world.pass_time(20, 10)


def _is_sound(world: KueueWorld) -> None:
    taken = [node for run in world.runs.values() for node in run.status.assignment.nodes if node]
    assert len(taken) == len(set(taken)), "a node of two gangs"
    bound = [pod.node for pod in world.pods.values() if pod.bound and not pod.is_terminal]
    assert len(bound) == len(set(bound)), "two gang pods on a node"


@pytest.mark.slow
@settings(max_examples=examples(8))
@given(
    levels=st.sampled_from([(), (RACK,), (RACK, HOSTNAME)]),
    events=st.lists(st.sampled_from(EVENTS), min_size=2, max_size=7),
)
def test_whatever_happens_it_trains_in_the_end_and_gave_nothing_back_too_early(
    levels: tuple[str, ...], events: list[str]
) -> None:
    world = kueue_world(8, pods=6, levels=levels)  # that nothing is released while pods run, the world sees to itself
    world.double.nodes = {name: labels for name, labels in world.double.nodes.items() if name not in ("n6", "n7")}
    world.submit("ours", 2, labels={}, placement={"nodes": ["n6", "n7"]})
    world.queue_up()
    for event in events:
        _happen(world, event)
        _is_sound(world)
    world.presence, world.stale = Presence.PRESENT, None
    for name, node in world.nodes.items():
        world.nodes[name] = replace(node, drain="", unschedulable=False, conditions={})
    world.exclude_nodes("run")  # not for a day: in a rack Kueue counts on them all the while
    view = world.runs["run"]
    assert view.spec is not None
    if view.spec.suspend:
        world.apply("run", changed(view.spec, suspend=False))
    world.settle()
    if world.workloads and not world.workload()["spec"]["active"]:
        world.activate(True)
    world.pass_time(900, 30)
    _is_sound(world)
    status = world.status("run")
    assert phase_of(status, False) in (Phase.RUNNING, Phase.FINISHED), (status.queue, status.stop, world.workloads)
    if phase_of(status, False) is Phase.RUNNING:
        assert status.kueue is not None
        assert status.kueue.workload_uid == world.workload()["metadata"]["uid"]
        assert world.told("Admitted")[0] == "True"
