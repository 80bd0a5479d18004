"""What the page is told of arrays, in the line and on a page of their own."""

import json
from dataclasses import replace
from typing import Any

import orjson

from lockstep.controller.web import array, queue
from lockstep.controller.web.access import Sight
from support import sample_runs, web_views
from support.web_answers import MINE, NEXT, OWN, TENANT, rows
from support.web_views import waiting

READER = replace(TENANT, arrays=frozenset({"research"}))
SWEEP = web_views.sweep("research", "sweep")
THEIR_SWEEP = web_views.sweep("products", "ads-sweep")
TRAINS = web_views.member(SWEEP, 43, OWN)
LINED_UP = [web_views.member(SWEEP, index, MINE) for index in (45, 46)]


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
    idle = web_views.sweep("research", "idle", {})
    found = with_arrays([], READER, idle)["queues"]
    assert [(each["name"], [row["array"] for row in each["waiting"]]) for each in found] == [
        ("default", ["idle_[0-99%8]"])
    ]


def test_arrays_that_go_on_are_listed_for_those_who_may_read_them() -> None:
    over = web_views.sweep("research", "over", {"conditions": [sample_runs.condition("Finished", "True", "Succeeded")]})
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
