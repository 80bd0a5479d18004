"""What the web page is told: of one's own runs everything, of others as much as the queue's visibility allows."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import msgspec
import orjson
import pytest

from lockstep.api.base.changes import changed
from lockstep.api.goodput_status import BucketsStatus
from lockstep.api.run_status import Condition, ExitsStatus, LeavingStatus
from lockstep.controller.web import array, compare, fleet, queue, run
from lockstep.controller.web import rows as table_rows
from lockstep.controller.web.access import Sight
from lockstep.controller.web.losses import EVERY, MOST_POINTS, Losses, Point
from lockstep.core.model.snapshot import NodeFailure, PodPhase, PodView
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import ProgressReport, StepEnd, TimingReport, Verdict, WorkerPhase
from lockstep.present.runs import queue_of
from support import sample_runs, web_site
from support.manual_clock import ManualClock
from support.web_site import holding, node, report, saved, waiting

ALL = Sight(True, frozenset(), nodes=True, queues=True)
TENANT = Sight(False, frozenset({"research"}), nodes=False, queues=False)
NOBODY_AT_ALL = Sight(False, frozenset(), nodes=False, queues=False)
NOW = sample_runs.NOW


def facts(nodes: Any, runs: Any, pods: Any = None, foreign: Any = None) -> fleet.FleetFacts:
    usual = Tunables()
    return fleet.FleetFacts(nodes, runs, pods or {}, foreign or {}, usual.topology_levels, usual.gpu_types, NOW)


def mapped(nodes: Any, runs: Any, sight: Sight = ALL, **more: Any) -> dict[str, Any]:
    """As it arrives."""
    answer: dict[str, Any] = json.loads(orjson.dumps(fleet.seen(fleet.fleet(facts(nodes, runs, **more)), sight)))
    return answer


RACK = [node(f"n{i}", "z1", f"r{i // 2 + 1}") for i in range(8)]
OWN = holding("research", "mine", ["n0", "n1"])
THEIRS = holding("products", "launch-x", ["n2", "n3"])
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


# -- queues -----------------------------------------------------------------------------------------


def listed(runs: Any, sight: Sight, *queues: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(orjson.dumps(queue.queues(queue.QueueFacts(runs, queues), sight)))
    return answer


def rows(answer: dict[str, Any], name: str = "default") -> list[str]:
    found = next(each for each in answer["queues"] if each["name"] == name)
    return [row.get("foreign") or f"{row['namespace']}/{row['name']}" for row in found["waiting"]]


MINE = waiting("research", "mine", position=2, reason="Priority", message="behind products/next")
NEXT = waiting("products", "next", position=1, message="needs 4 nodes: secrets", priority=7)


def test_a_queue_lists_who_waits_by_position() -> None:
    held = waiting("research", "held", position=0, reason="Paused")
    assert rows(listed([held, MINE, NEXT], ALL)) == ["products/next", "research/mine", "research/held"]


@pytest.mark.parametrize(
    ("visibility", "own", "shown", "hidden"),
    [
        ("Full", True, ["products/next", "research/mine"], 0),
        ("OwnNamespace", True, ["research/mine"], 1),
        ("Full", False, [], 1),  # nobody of theirs waits there, who would be told
    ],
)
def test_runs_of_others_appear_as_far_as_visibility_allows(
    visibility: str, own: bool, shown: list[str], hidden: int
) -> None:
    idle = replace(OWN, namespace="research")  # a run in the queue that does not wait
    found = listed([NEXT, MINE if own else idle], TENANT, web_site.queue(visibility=visibility))
    assert rows(found) == shown
    assert found["queues"][0]["hidden"] == hidden


def test_of_a_foreign_run_nothing_but_name_and_position_is_told() -> None:
    found = listed([NEXT, MINE], TENANT)
    assert found["queues"][0]["waiting"][0] == {"foreign": "products/next", "position": 1}
    assert "secrets" not in json.dumps(found)


def test_who_has_nothing_in_a_queue_does_not_hear_of_it() -> None:
    assert listed([NEXT, THEIRS], NOBODY_AT_ALL, web_site.queue("skunkworks"))["queues"] == []
    assert "skunkworks" not in json.dumps(listed([MINE], TENANT, web_site.queue("skunkworks")))


def test_quotas_and_usage_are_for_those_who_may_list_queues() -> None:
    view = web_site.queue(quotas=[{"gpuType": "H100", "nominalNodes": 64}])
    assert "quotas" in listed([MINE], ALL, view)["queues"][0]
    assert not {"quotas", "status", "cohort"} & set(listed([MINE], TENANT, view)["queues"][0])


def test_runs_that_hold_nodes_or_have_ended_are_shown_to_those_who_may_read_them() -> None:
    cluster = web_site.busy_cluster(ManualClock(NOW), 64)
    found = listed(cluster.runs, TENANT)
    assert {row["namespace"] for row in found["holding"]} == {"research"}
    assert [row["name"] for row in found["finished"]] == ["gpt2-debug"]
    assert "products" not in json.dumps([found["holding"], found["finished"], found["suspended"]])


def test_what_the_runs_of_the_default_queue_hold_is_counted_though_it_has_no_object() -> None:
    found = listed([OWN, MINE, NEXT], ALL)["queues"][0]
    assert (found["name"], found["status"]["running"], found["status"]["pending"]) == ("default", 1, 2)
    assert found["status"]["nodesInUse"] == len(OWN.status.assignment.nodes)


def test_a_queue_without_an_object_is_said_to_be_none() -> None:
    lost = waiting("research", "lost", queue="typo", position=0, reason="QueueNotFound")
    found = {each["name"]: each["exists"] for each in listed([lost], TENANT)["queues"]}
    assert found == {"default": True, "typo": False}


def test_a_queue_that_only_ended_runs_name_is_no_card() -> None:
    ended = web_site.parse_run(sample_runs.failed())
    spec = changed(ended.spec, queue="reserch") if ended.spec is not None else None
    gone = replace(ended, namespace="research", spec=spec)
    assert [each["name"] for each in listed([gone], TENANT)["queues"]] == ["default"]
    assert [each["name"] for each in listed([gone], ALL, web_site.queue("reserch"))["queues"]] == ["default", "reserch"]


def test_ten_thousand_runs_are_cut_to_what_can_be_read() -> None:
    many = [waiting("research", f"r{i}", position=i + 1) for i in range(2000)]
    found = listed(many, ALL)["queues"][0]
    assert (len(found["waiting"]), found["more"]) == (queue.MOST_ROWS, 2000 - queue.MOST_ROWS)


def test_of_whatever_is_cut_it_is_said_how_much() -> None:
    idle = changed(waiting("research", "idle").status, state="Suspended")
    spec = changed(OWN.spec, suspend=True) if OWN.spec is not None else None
    many = [replace(MINE, spec=spec, status=idle, name=f"r{i}", uid=f"u{i}") for i in range(queue.MOST_ROWS + 3)]
    found = listed(many, ALL)
    assert (len(found["suspended"]), found["more"]["suspended"]) == (queue.MOST_ROWS, 3)


def test_the_length_of_the_line_counts_once_however_many_queues_and_namespaces_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[str] = []
    for module in (queue, table_rows):
        monkeypatch.setattr(module, "queue_of", lambda run: looked_at.append(run.key) or queue_of(run))
    many = [replace(MINE, namespace=f"team-{i % 64}", name=f"r{i}", uid=f"u{i}") for i in range(500)]
    queue.queues(queue.QueueFacts(many, [web_site.queue(f"q{i}") for i in range(50)]), ALL)
    assert len(looked_at) <= 4 * len(many)


# -- arrays -----------------------------------------------------------------------------------------

READER = replace(TENANT, arrays=frozenset({"research"}))
SWEEP = web_site.sweep("research", "sweep")
THEIR_SWEEP = web_site.sweep("products", "ads-sweep")
TRAINS = web_site.member(SWEEP, 43, OWN)
LINED_UP = [web_site.member(SWEEP, index, MINE) for index in (45, 46)]


def with_arrays(runs: Any, sight: Sight, *sets: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(orjson.dumps(queue.queues(queue.QueueFacts(runs, (), sets), sight)))
    return answer


def test_what_waits_of_an_array_is_one_row_in_the_place_of_the_first_of_its_runs() -> None:
    last = waiting("research", "last", position=9)
    found = with_arrays([last, *LINED_UP, TRAINS, NEXT], READER, SWEEP)["queues"][0]["waiting"]
    assert [row.get("foreign") or row.get("array") or row["name"] for row in found] == [
        "products/next",
        "sweep_[45-99%8]",
        "last",
    ]
    (folded,) = (row for row in found if "array" in row)
    assert (folded["name"], folded["position"], folded["reason"]) == ("sweep", 2, "Priority")


def test_an_array_without_a_run_in_line_waits_as_well() -> None:
    idle = web_site.sweep("research", "idle", {})
    found = with_arrays([], READER, idle)["queues"]
    assert [(each["name"], [row["array"] for row in each["waiting"]]) for each in found] == [
        ("default", ["idle_[0-99%8]"])
    ]


def test_arrays_that_go_on_are_listed_for_those_who_may_read_them() -> None:
    over = web_site.sweep("research", "over", {"conditions": [sample_runs.condition("Finished", "True", "Succeeded")]})
    found = with_arrays([TRAINS], READER, SWEEP, THEIR_SWEEP, over)
    assert [each["name"] for each in found["arrays"]] == ["sweep"]
    assert found["arrays"][0]["counts"] == {"succeeded": 41, "failed": 1, "cancelled": 1, "running": 2, "pending": 55}
    assert "ads-sweep" not in json.dumps(found)


def test_who_may_read_runs_and_not_arrays_sees_the_runs_alone() -> None:
    found = with_arrays(LINED_UP, TENANT, SWEEP)
    assert rows(found) == ["research/sweep-45", "research/sweep-46"]
    assert found["arrays"] == []


def test_the_page_of_an_array_tells_what_became_of_each_index() -> None:
    facts = array.ArrayFacts(SWEEP, [*LINED_UP, TRAINS], ())
    told: dict[str, Any] = json.loads(orjson.dumps(array.array(facts)))
    found = {each["outcome"]: (each["count"], each["indices"]) for each in told["outcomes"]}
    assert found["running"] == (1, "43")
    assert found["pending"] == (56, "44-99")
    assert found["failed"] == (1, "41")
    assert told["sentences"] == ["Indices 0-99, at most 8 at once."]
    assert [row["name"] for row in told["runs"]] == ["sweep-43", "sweep-45", "sweep-46"]


def test_who_may_not_see_the_runs_of_an_array_is_not_told_that_those_that_run_wait() -> None:
    told: dict[str, Any] = json.loads(orjson.dumps(array.array(array.ArrayFacts(SWEEP, None, ()))))
    found = {each["outcome"]: (each["count"], each["indices"]) for each in told["outcomes"]}
    assert [*found] == ["succeeded", "failed", "cancelled", "not ended"]
    assert found["not ended"] == (57, "43-99")
    assert (told["runs"], told["finished"]) == ([], [])


def test_an_array_whose_spec_cannot_be_read_has_a_page_too() -> None:
    broken = replace(SWEEP, spec=None, spec_error="indices: ...")
    told = array.array(array.ArrayFacts(broken, [TRAINS], ()))
    assert (told["outcomes"], told["indices"], told["state"]) == ([], "", "Running")
    assert with_arrays([TRAINS], READER, broken)["arrays"][0]["name"] == "sweep"


# -- one run ----------------------------------------------------------------------------------------


def paged(view: Any, reports: Any = None, losses: Any = (), said: Any = ()) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(orjson.dumps(run.run(run.RunFacts(view, reports or {}, losses, said, NOW))))
    return answer


def test_a_run_is_told_in_the_sentences_of_the_command_line() -> None:
    told = paged(OWN)
    assert (told["state"], told["reason"]) == ("Running", "StepsReported")
    assert any("NodeLost" in sentence for sentence in told["sentences"])


def test_runs_that_are_compared_are_done_when_their_own_pages_say() -> None:
    progress = changed(OWN.status.progress, total_steps=1000, expected_end=NOW + 7800)
    ends = replace(OWN, status=changed(OWN.status, progress=progress))
    words = paged(ends)["completion"]
    assert words.startswith("in ")
    sides = [compare.Side(each, {}, ()) for each in (ends, OWN)]
    assert [side["completion"] for side in compare.compare(sides, NOW)["runs"]] == [words, ""]


def test_each_attempt_comes_with_what_its_time_went_to_and_what_it_lost() -> None:
    view = web_site.busy_cluster(ManualClock(NOW), 64).runs[0]
    first, *_, last = paged(view)["attempts"]
    begun = int(NOW) - 98_000
    assert first["parts"][1] == {"bucket": "init", "from": begun, "to": begun + 240}
    assert first["lost"] == {"steps": 700, "seconds": 926}
    assert last["parts"][-1] == {"bucket": "productive", "from": int(NOW) - 9_250, "to": None}
    assert last["lost"] == {"steps": None, "seconds": None}


@pytest.mark.parametrize(
    ("raw", "written", "bucket"),
    [
        (sample_runs.pending(), None, {"queue": 7200}),  # since it was made
        (sample_runs.pending(), (48, 100), {"queue": 148}),
        (sample_runs.running(), (48, 100), {"queue": 48}),  # it waits no longer
    ],
)
def test_whoever_waits_has_waited_until_now(raw: Any, written: tuple[int, int] | None, bucket: Any) -> None:
    view = web_site.parse_run(raw)
    if written is not None:
        goodput = changed(view.status.goodput, buckets=BucketsStatus(queue=written[0]), time=NOW - written[1])
        view = replace(view, status=changed(view.status, goodput=goodput))
    assert paged(view)["goodput"]["buckets"] == bucket


def test_saves_that_were_seen_are_told_beside_the_plan() -> None:
    def row(step: int, at: float, attempt: int = 2) -> Any:
        return msgspec.structs.replace(saved(step), attempt=attempt, committed_at=at)

    rows = (row(100, NOW - 30), row(90, NOW - 36), row(80, NOW - 42), row(10, NOW - 9000, attempt=1))
    slow = TimingReport(save_block=0.12, persist=3.0)
    reports = {
        0: report(0, "n0", 100, now=NOW, inventory=rows, timing=TimingReport(save_block=0.1)),
        1: report(1, "n1", 100, now=NOW, inventory=rows, timing=slow, listens=True),
        2: report(2, "n2", 100, now=NOW, attempt=1, timing=TimingReport(save_block=99.0)),
    }
    told = paged(OWN, reports)["checkpoints"]
    assert told["observed"] == {
        "tiers": [{"tier": "shared", "interval": 6.0, "count": 3}],
        "block": 0.12,
        "persist": 3.0,
        "listens": True,
    }
    assert paged(OWN)["checkpoints"]["observed"] == {}  # nobody is heard: nothing is claimed


@pytest.mark.parametrize(
    ("progress", "steps", "pace"),
    [
        ({"step": 400, "total_steps": 1000}, (0.4, 0.5, 0.6), {"stepSeconds": 0.5, "left": 300}),
        ({"step": 400, "total_steps": None}, (0.5,), {"stepSeconds": 0.5}),
        ({"step": 1000, "total_steps": 1000}, (0.5,), {"stepSeconds": 0.5}),
        ({"step": 400, "total_steps": 1000}, (0.0,), {}),  # not measured yet
    ],
)
def test_how_fast_it_trains_and_how_long_it_takes_is_by_the_median_rank(
    progress: Any, steps: tuple[float, ...], pace: Any
) -> None:
    view = replace(OWN, status=changed(OWN.status, progress=changed(OWN.status.progress, **progress)))
    reports = {i: report(i, f"n{i}", 400, now=NOW, timing=TimingReport(step=each)) for i, each in enumerate(steps)}
    reports[9] = report(9, "n9", 400, now=NOW, attempt=1, timing=TimingReport(step=77.0))
    assert paged(view, reports)["measured"] == pace
    assert paged(web_site.parse_run(sample_runs.pending()), reports)["measured"] == {}


def test_what_was_last_known_of_ranks_outlives_their_workers() -> None:
    ended = web_site.parse_run(sample_runs.failed())
    exits = ExitsStatus(attempt=3, succeeded="0-2", first="rank 0 ended with code 0")
    told = paged(replace(ended, status=changed(ended.status, exits=exits)))
    assert told["exits"] == {"attempt": 3, "succeeded": "0-2", "first": "rank 0 ended with code 0"}


def test_what_only_the_account_reads_is_not_sent() -> None:
    goodput = changed(OWN.status.goodput, state="opaque-account", ettr="0.9")
    view = replace(OWN, status=changed(OWN.status, goodput=goodput))
    assert paged(view)["goodput"] == {"ettr": "0.9"}


def test_checkpoints_have_the_verdict_of_the_whole_gang() -> None:
    torn = saved(300, Verdict.INVALID, "shard 1 is empty")
    reports = {
        0: report(0, "n0", 400, now=NOW, inventory=(saved(300), saved(200))),
        1: report(1, "n1", 400, now=NOW, inventory=(torn, saved(200))),
    }
    found = {each["step"]: (each["verdict"], each["reason"]) for each in paged(OWN, reports)["checkpoints"]["found"]}
    assert found[300] == ("Invalid", "shard 1 is empty (rank 1 on n1)")
    assert found[200][0] == "Valid"


def test_a_rank_asks_for_no_more_than_its_newest_checkpoints() -> None:
    many = tuple(saved(step) for step in range(100, 4000, 100))
    reports = {slot: report(slot, f"n{slot}", 4000, now=NOW, inventory=many) for slot in (0, 1)}
    steps = {each["step"] for each in paged(OWN, reports)["checkpoints"]["found"] if each["verdict"] == "Valid"}
    assert len(steps) == run.NEWEST_SAVES
    assert max(steps) == 3900


def test_ranks_tell_step_phase_silence_and_trouble() -> None:
    reports = {
        0: report(0, "n0", 400, now=NOW - 47),
        1: report(1, "n1", 398, now=NOW, phase=WorkerPhase.PREPARING, problem="no GPU is seen", progress=None),
    }
    found = paged(OWN, reports)["ranks"]
    assert found["node"] == ["n0", "n1"]
    assert found["step"] == [400, None]
    assert found["phase"] == ["Running", "Preparing"]
    assert found["silent"] == [40, 0]
    assert found["problem"] == {"1": "no GPU is seen"}
    assert paged(OWN)["ranks"]["silent"] == [-1, -1]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ({"step": "7", "program": "prepare", "code": 3}, {"1": "prepare of step 7 ended with exit code 3"}),
        ({"step": "MPI", "task": 5, "program": "python", "signal": 9},
         {"1": "python, rank 5 of MPI, ended with signal 9"}),
        ({"step": "mpirun", "signal": 9, "node_rank": 0}, {"0": "a process of step mpirun ended with signal 9"}),
        ({"step": "mpirun", "signal": 9, "node_rank": 7}, {}),
        ({"step": "7", "program": "prepare", "code": 3, "asked": True}, {}),
        ({"step": "7", "program": "prepare", "code": 0}, {}),
    ],
    ids=["a code", "a rank of MPI", "another's node", "nobody's node", "asked for", "none"],
)  # fmt: skip
def test_of_a_ranks_steps_the_first_failure_is_told(end: dict[str, Any], said: dict[str, str]) -> None:
    first = StepEnd(at=NOW - 5, **end)
    later = StepEnd(at=NOW, step="8", program="later", code=4, asked=bool(end.get("asked")) or not said or "0" in said)
    reports = {1: report(1, "n1", 398, now=NOW, step_ends=(later, first))}
    assert paged(OWN, reports)["ranks"]["steps"] == said
    old = {1: replace(reports[1], attempt=1)}
    assert paged(OWN, old)["ranks"]["steps"] == {}, "of an earlier attempt"


def test_a_loss_that_is_no_number_is_a_gap() -> None:
    points = [Point(1, NOW, 2.5, 1), Point(2, NOW, float("nan"), 1), Point(3, NOW, float("inf"), 1)]
    assert paged(OWN, losses=points)["losses"]["loss"] == [2.5, None, None]


MOMENTS = [sample_runs.pending(), sample_runs.recovering(), sample_runs.failed(), sample_runs.run()]


@pytest.mark.parametrize("raw", MOMENTS)
def test_runs_have_a_page_at_every_moment_of_their_lives(raw: dict[str, Any]) -> None:
    assert paged(web_site.parse_run(raw))["sentences"]
    broken = raw | {"spec": {"nodes": "many"}}
    assert paged(web_site.parse_run(broken))["sentences"]


# -- losses -----------------------------------------------------------------------------------------


class Watched:
    """Losses of one run, whose progress a test sets."""

    def __init__(self) -> None:
        self.runs = [OWN]
        self.reports: dict[int, Any] = {}
        self.losses = Losses(lambda: self.runs, lambda uid: self.reports, ManualClock())

    def at(self, step: int, loss: str, attempt: int = 2, told_at: float = NOW) -> None:
        progress = changed(OWN.status.progress, step=step, loss=loss, time=told_at)
        status = changed(OWN.status, progress=progress, attempt=attempt)
        self.runs = [replace(OWN, status=status)]
        self.losses.update()

    @property
    def points(self) -> list[tuple[int, float]]:
        return [(point.step, point.loss) for point in self.losses.points(OWN.uid)]


def test_each_step_is_one_point_however_often_it_is_seen() -> None:
    watched = Watched()
    for step, loss in ((1, "3.0"), (1, "3.0"), (2, "2.5"), (3, "broken"), (4, "")):
        watched.at(step, loss)
    assert watched.points == [(1, 3.0), (2, 2.5)]


def test_a_step_that_is_repeated_by_another_attempt_is_another_point() -> None:
    watched = Watched()
    watched.at(10, "2.0", attempt=2)
    watched.at(10, "2.1", attempt=3)
    assert watched.points == [(10, 2.0), (10, 2.1)]


def test_what_a_worker_said_since_status_was_written_counts() -> None:
    watched = Watched()
    watched.reports = {
        0: report(0, "n0", 20, loss="1.5", now=NOW + 5),
        1: report(1, "n1", 99, loss="9.9", now=NOW + 9, attempt=1),  # of an attempt that is over
        2: report(2, "n2", 21, now=NOW + 9, progress=ProgressReport(21, NOW + 9)),
    }
    watched.at(10, "2.0")
    assert watched.points == [(20, 1.5)]


def test_the_curve_of_a_run_that_has_ended_ends_with_its_last_step() -> None:
    """Which was reported after the last look at it."""
    watched = Watched()
    watched.at(10, "2.0")
    ended = web_site.parse_run(sample_runs.failed())
    progress = changed(OWN.status.progress, step=44, loss="1.5", time=NOW + 1)
    status = changed(ended.status, progress=progress, attempt=2)
    watched.runs = [replace(OWN, status=status), replace(OWN, uid="one that ended long ago", status=status)]
    watched.losses.update()
    watched.losses.update()
    assert watched.points == [(10, 2.0), (44, 1.5)]
    assert watched.losses.points("one that ended long ago") == ()


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    watched = Watched()
    for step in range(6000):
        watched.at(step, "1.0")
    steps = [step for step, _ in watched.points]
    assert len(steps) <= MOST_POINTS + 1
    assert steps[0] == 0
    assert steps[-1] > 5900
    assert steps == sorted(steps)


async def test_what_cannot_be_followed_does_not_end_the_operator() -> None:
    watched = Watched()
    clock = ManualClock()
    asked: list[str] = []

    def broken(uid: str) -> dict[int, Any]:
        asked.append(uid)
        raise KeyError("defect")

    following = asyncio.create_task(Losses(lambda: watched.runs, broken, clock).follow())
    for _ in range(3):
        await clock.advance(EVERY)
    assert len(asked) >= 3
    assert not following.done()
    following.cancel()


def test_the_newest_point_is_there_however_far_a_curve_was_thinned() -> None:
    watched = Watched()
    for step in range(6000):
        watched.at(step, "1.0")
        assert watched.points[-1] == (step, 1.0)


def test_curves_of_runs_that_are_gone_are_forgotten() -> None:
    watched = Watched()
    watched.at(1, "3.0")
    watched.runs = []
    watched.losses.update()
    assert watched.points == []
