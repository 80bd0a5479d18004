"""What the page is told of nodes and who is on them: as much as the viewer may see."""

import json
import time
from dataclasses import replace
from typing import Any

import orjson
import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import Condition, LeavingStatus
from lockstep.controller.web import fleet
from lockstep.controller.web.access import Sight
from lockstep.core.model.snapshot import NodeFailure, PodPhase, PodView
from lockstep.core.model.tunables import Tunables
from support import web_site
from support.manual_clock import ManualClock
from support.web_answers import ALL, NOW, OWN, TENANT, THEIRS, listed, paged
from support.web_views import holding, node


def facts(nodes: Any, runs: Any, pods: Any = None, foreign: Any = None) -> fleet.FleetFacts:
    usual = Tunables()
    return fleet.FleetFacts(nodes, runs, pods or {}, foreign or {}, usual.topology_levels, usual.gpu_types, NOW)


def mapped(nodes: Any, runs: Any, sight: Sight = ALL, **more: Any) -> dict[str, Any]:
    """As it arrives."""
    answer: dict[str, Any] = json.loads(orjson.dumps(fleet.seen(fleet.fleet(facts(nodes, runs, **more)), sight)))
    return answer


RACK = [node(f"n{i}", "z1", f"r{i // 2 + 1}") for i in range(8)]
OTHER_TEAM = holding("secret", "merger", ["n4"])


def test_nodes_stand_in_the_order_of_their_places_and_names() -> None:
    nodes = [node("n10", "z1", "r10"), node("n2", "z1", "r2"), node("n9", "z2", "r1"), node("n1", "z1", "r10")]
    found = mapped(nodes, [])
    assert found["name"] == ["n2", "n1", "n10", "n9"]
    places = [(tuple(group["path"]), group["count"]) for group in found["groups"]]
    assert places == [(("z1", "r2"), 1), (("z1", "r10"), 2), (("z2", "r1"), 1)]
    assert found["levels"] == ["zone", "rack"]


def test_a_node_without_labels_stands_last() -> None:
    assert mapped([replace(RACK[0], labels={}), RACK[1]], [])["name"] == ["n1", "n0"]


def test_nodes_without_gpus_are_left_out_unless_no_node_has_any_or_a_rank_is_on_them() -> None:
    cpu = replace(node("cpu", "z1", "r9"), allocatable={"cpu": 1}, labels={})
    assert "cpu" not in mapped([*RACK, cpu], [])["name"]
    assert "cpu" in mapped([*RACK, cpu], [holding("research", "tiny", ["cpu"])])["name"]
    assert mapped([cpu], [])["name"] == ["cpu"]


def test_nodes_whose_gpus_are_away_or_of_another_make_are_on_the_map() -> None:
    away = replace(node("away", "z1", "r9"), allocatable={"cpu": 1})
    other = replace(away, name="other", labels={}, allocatable={"amd.com/gpu": 8})
    found = mapped([*RACK, away, other], [], foreign={"other": {"amd.com/gpu": 1}})
    place = found["name"].index("away")
    assert found["why"] == {str(place): "offering no nvidia.com/gpu now"}
    assert found["run"][found["name"].index("other")] == -3


def test_each_node_tells_its_run_and_rank() -> None:
    found = mapped(RACK, [OWN, THEIRS])
    names = [f"{each['namespace']}/{each['name']}" for each in found["runs"]]
    assert names == ["products/launch-x", "research/mine"]
    assert found["run"] == [1, 1, 0, 0, -1, -1, -1, -1]
    assert found["rank"] == [0, 1, 0, 1, -2, -2, -2, -2]


def test_runs_that_a_viewer_may_not_see_are_all_alike() -> None:
    found = mapped(RACK, [OWN, THEIRS, OTHER_TEAM], TENANT)
    assert found["run"] == [0, 0, -2, -2, -2, -1, -1, -1]
    assert found["rank"] == [0, 1, -2, -2, -2, -2, -2, -2]
    assert [each["name"] for each in found["runs"]] == ["mine"]
    told = json.dumps(found)
    assert not any(word in told for word in ("products", "launch-x", "secret", "merger"))


def test_names_of_nodes_and_why_they_are_not_used_are_for_those_who_may_list_nodes() -> None:
    failures = tuple(NodeFailure(f"secret/merger{ago}", NOW - ago, "NCCL:Timeout") for ago in (60, 30))
    nodes = [*RACK[:6], replace(RACK[6], failures=failures, suspect="x"), replace(RACK[7], drain="for secret/merger")]
    full = mapped(nodes, [OWN])
    assert "secret/merger" in full["why"]["6"]
    assert full["why"]["7"] == "draining: for secret/merger"
    found = mapped(nodes, [OWN], TENANT)
    assert found["name"] == ["n0", "n1", "", "", "", "", "", ""]
    assert found["why"] == {}
    assert found["state"] == full["state"]  # that a node is in trouble is everybody's business


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "Ready"),
        ({"unschedulable": True}, "Cordoned"),
        ({"drain": "firmware", "unschedulable": True}, "Draining"),
        ({"ready": False}, "NotReady"),
        ({"conditions": {"XidCriticalError": "Xid79"}}, "Unhealthy"),
    ],
)
def test_a_node_is_in_the_state_that_the_command_line_shows(changes: dict[str, Any], state: str) -> None:
    found = mapped([replace(RACK[0], **changes)], [])
    assert found["states"][found["state"][0]] == state


def test_gpus_that_pods_of_no_gang_have_are_not_free() -> None:
    found = mapped(RACK, [], foreign={"n3": {"nvidia.com/gpu": 1}, "n4": {"cpu": 500}})
    assert found["run"] == [-1, -1, -1, -3, -1, -1, -1, -1]


def test_nodes_of_a_run_whose_assignment_was_not_read_are_told_by_its_pods() -> None:
    assignment = changed(OWN.status.assignment, nodes=(), incarnations=(), config_map="large")
    large = replace(OWN, status=changed(OWN.status, assignment=assignment))
    pod = PodView("research", "p", "u", "mine", OWN.uid, OWN.uid, 0, 1, "n5", True, PodPhase.RUNNING, 0.0)
    found = mapped(RACK, [large], pods={large.uid: [pod, replace(pod, node="n6", phase=PodPhase.FAILED)]})
    assert found["run"] == [-1, -1, -1, -1, -1, 0, -1, -1]


def test_a_status_edited_by_hand_is_drawn_as_far_as_it_makes_sense() -> None:
    assignment = changed(OWN.status.assignment, rank_to_slot=(7, 7, 9))
    edited = replace(OWN, status=changed(OWN.status, assignment=assignment))
    assert mapped(RACK, [edited])["run"][:2] == [0, 0]
    assert paged(edited)["ranks"]["node"] == ["n0", "n1"]


def test_runs_that_have_ended_hold_nothing() -> None:
    ended = web_site.busy_cluster(ManualClock(NOW), 64).runs[-1]
    assert ended.status.assignment.nodes
    assert mapped(RACK, [ended])["runs"] == []


def test_a_run_that_has_ended_is_on_the_nodes_that_its_pods_still_hold_and_gives_way_to_the_next() -> None:
    leaving = LeavingStatus(nodes=2, until=NOW + 60)
    over = Condition(type="Finished", status="True", reason="Cancelled", last_transition_time=NOW)
    ended = replace(OWN, status=changed(OWN.status, leaving=leaving, conditions=(over,)))
    pod = PodView("research", "p", "u", "mine", OWN.uid, OWN.uid, 0, 1, "n0", True, PodPhase.RUNNING, 0.0)
    pods = {OWN.uid: [pod, replace(pod, node="n1", phase=PodPhase.FAILED)]}
    assert mapped(RACK, [ended], pods=pods)["run"][:2] == [0, -1]
    heir = replace(OWN, name="a", uid="heir")
    both = mapped(RACK, [heir, ended], pods=pods)
    assert [both["runs"][index]["name"] for index in both["run"][:2]] == ["a", "a"]
    assert [row["nodes"] for row in listed([ended], ALL)["holding"]] == ["2 held"]


@pytest.mark.slow
def test_the_largest_cluster_is_a_matter_of_a_second_and_of_kilobytes() -> None:
    cluster = web_site.busy_cluster(ManualClock(NOW), 16_384)
    began = time.process_time()
    body = orjson.dumps(fleet.seen(fleet.fleet(facts(cluster.nodes, cluster.runs)), ALL))
    assert time.process_time() - began < 5
    assert len(body) < 600_000
