"""What the page is told of queues: of one's own runs everything, of others as much as visibility allows."""

import json
from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.controller.web import queue
from lockstep.controller.web import rows as table_rows
from lockstep.present.runs import queue_of
from support import sample_runs, web_site, web_views
from support.manual_clock import ManualClock
from support.web_answers import ALL, MINE, NEXT, NOBODY_AT_ALL, NOW, OWN, TENANT, THEIRS, listed, rows
from support.web_views import waiting


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
    found = listed([NEXT, MINE if own else idle], TENANT, web_views.queue(visibility=visibility))
    assert rows(found) == shown
    assert found["queues"][0]["hidden"] == hidden


def test_of_a_foreign_run_nothing_but_name_and_position_is_told() -> None:
    found = listed([NEXT, MINE], TENANT)
    assert found["queues"][0]["waiting"][0] == {"foreign": "products/next", "position": 1}
    assert "secrets" not in json.dumps(found)


def test_who_has_nothing_in_a_queue_does_not_hear_of_it() -> None:
    assert listed([NEXT, THEIRS], NOBODY_AT_ALL, web_views.queue("skunkworks"))["queues"] == []
    assert "skunkworks" not in json.dumps(listed([MINE], TENANT, web_views.queue("skunkworks")))


def test_quotas_and_usage_are_for_those_who_may_list_queues() -> None:
    view = web_views.queue(quotas=[{"gpuType": "H100", "nominalNodes": 64}])
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
    assert [each["name"] for each in listed([gone], ALL, web_views.queue("reserch"))["queues"]] == [
        "default",
        "reserch",
    ]


@pytest.mark.slow
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
    queue.queues(queue.QueueFacts(many, [web_views.queue(f"q{i}") for i in range(50)]), ALL)
    assert len(looked_at) <= 4 * len(many)
