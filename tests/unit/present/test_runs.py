"""Whose a run is, what it holds, for how long, and how fast it is: as every list says it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lockstep.api.base.times import to_rfc3339
from lockstep.cli import runs
from lockstep.cli.views import history, queue
from lockstep.present.amounts import duration
from lockstep.present.runs import completion, gpus_of, nodelist, pace, seconds_left, seconds_used, user_of
from support import sample_runs as sample

NOW = sample.NOW


def running(limit: int | None = None, asked: str | None = None, **status: Any) -> Any:
    raw = sample.running(lastAdmitted=sample.at(3600), **status)
    raw["status"]["admission"] = {"timeLimit": limit} if limit is not None else {}
    raw["spec"] |= {"timeLimit": asked} if asked else {}
    return runs.view(raw)


def ended() -> Any:
    raw = sample.failed()
    raw["status"] |= {"lastAdmitted": sample.at(3660)}
    return runs.view(raw | {"spec": raw["spec"] | {"timeLimit": "2h"}})


@pytest.mark.parametrize(
    ("run", "used", "left"),
    [
        pytest.param(running(), 3600, None, id="no limit"),
        pytest.param(running(7200, "8h"), 3600, 3600, id="as granted"),
        pytest.param(running(heldSeconds=600, limit=7200), 4200, 3000, id="before a suspension too"),
        pytest.param(running(60), 3600, 0, id="over it"),
        pytest.param(runs.view(sample.pending()), None, None, id="pending without a limit"),
        pytest.param(runs.view(sample.run(timeLimit="2h")), None, 7200, id="pending: all that it asks for"),
        pytest.param(ended(), 3600, None, id="ended: as long as it had them"),
    ],
)
def test_time_used_and_left(run: Any, used: float | None, left: float | None) -> None:
    assert (seconds_used(run, NOW), seconds_left(run, NOW)) == (used, left)


def test_nodes_are_one_compressed_list_in_the_order_of_ranks() -> None:
    assert nodelist(running()) == "gpu-[1-2,10-11]"
    assert nodelist(runs.view(sample.pending())) == ""


@pytest.mark.parametrize(
    ("raw", "gpus"),
    [
        (sample.running(), "32"),
        (sample.run(), "32"),
        (sample.run(gpusPerNode=None), ""),
        (sample.run(gpusPerNode=0), "0"),
    ],
)
def test_gpus_are_those_of_the_whole_gang(raw: Any, gpus: str) -> None:
    assert gpus_of(runs.view(raw)) == gpus


@pytest.mark.parametrize(
    ("micros", "words"),
    [(None, ""), (0, ""), (1_500_000, "1.5 s/step"), (416_667, "2.4 steps/s"), (61_000_000, "61 s/step")],
)
def test_a_pace_is_said_the_way_that_gives_a_number_above_one(micros: int | None, words: str) -> None:
    raw = sample.running()
    raw["status"]["progress"] |= {"stepMicroseconds": micros} if micros is not None else {}
    assert pace(runs.view(raw).status.progress) == words


def foretold(**changes: Any) -> Any:
    raw = sample.running(**changes)
    ends = {"expectedEnd": 7800, "earliestEnd": 7200, "latestEnd": 9000}
    raw["status"]["progress"] |= {field: to_rfc3339(NOW + left) for field, left in ends.items()}
    return raw


def test_the_end_is_said_with_its_spread_and_only_of_what_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.localtime", time.gmtime)
    words = completion(runs.view(foretold()), NOW)
    assert words.startswith(f"in {duration(7800)} (2026-11-")
    assert words.endswith(f"), between {duration(7200)} and {duration(9000)}")
    recovering = foretold()
    recovering["status"] |= {"start": None}
    assert completion(runs.view(recovering), NOW) == ""
    assert completion(runs.view(sample.running()), NOW) == ""
    assert completion(runs.view(foretold()), NOW + 8000) == "", "it is late, and nobody knows"


USERS: list[tuple[dict[str, str], str]] = [({}, ""), ({"lockstep.dev/user": "ann"}, "ann")]


@pytest.mark.parametrize(("annotations", "user"), USERS)
def test_who_submitted_it_is_what_the_annotation_says(annotations: dict[str, str], user: str) -> None:
    assert user_of(annotations) == user


def test_a_user_with_a_long_name_does_not_push_the_rest_off_the_screen() -> None:
    raw = sample.running()
    raw["metadata"]["annotations"] = {"lockstep.dev/user": "system:serviceaccount:research:pipeline"}
    header, row = queue.listing([runs.view(raw)], False, False, NOW)
    assert header.split()[:3] == ["NAME", "USER", "STATE"]
    assert row.split()[1] == "system:serviceaccou…"


def test_the_attempt_that_runs_shows_its_newest_step() -> None:
    raw = sample.running()
    rows = history.listing(runs.view(raw).status, wide=False, now=NOW)
    assert rows[-1].split()[-5] == "412"
    raw["status"]["progress"]["time"] = sample.at(700)  # of the attempt before
    rows = history.listing(runs.view(raw).status, wide=False, now=NOW)
    assert rows[-1].split()[-5] == "-"
