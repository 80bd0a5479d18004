"""What the page of a run is told, at every moment of its life."""

import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lockstep.api.base.changes import changed
from lockstep.api.goodput_status import BucketsStatus
from lockstep.api.run_status import ExitsStatus
from lockstep.controller.web import compare, run
from lockstep.controller.web.losses import Point
from lockstep.core.model.worker_report import StepEnd, TimingReport, Verdict, WorkerPhase
from lockstep.present.runs import completion
from support import sample_runs, web_site
from support.manual_clock import ManualClock
from support.web_answers import NOW, OWN, paged
from support.web_views import report, saved


def test_a_run_is_told_in_the_sentences_of_the_command_line() -> None:
    told = paged(OWN)
    assert (told["state"], told["reason"]) == ("Running", "StepsReported")
    assert any("NodeLost" in sentence for sentence in told["sentences"])


def test_runs_that_are_compared_are_done_when_their_own_pages_say() -> None:
    progress = changed(OWN.status.progress, total_steps=1000, expected_end=NOW + 7800)
    ends = replace(OWN, status=changed(OWN.status, progress=progress))
    words = paged(ends)["completion"]
    assert words.startswith("in ")
    sides = [compare.side(compare.Facts(each, {}, ()), NOW) for each in (ends, OWN)]
    assert [side["completion"] for side in sides] == [words, ""]


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        ("UTC", "T13:16:40 UTC)"),
        ("JST-9", "T22:16:40 UTC+9)"),
        ("IST-5:30", "T18:46:40 UTC+5:30)"),
        ("AST4", " UTC-4)"),
    ],
)
def test_a_time_of_the_operators_clock_has_its_zone(zone: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        progress = changed(OWN.status.progress, total_steps=1000, expected_end=NOW + 7800)
        ends = replace(OWN, status=changed(OWN.status, progress=progress))
        told = paged(ends)
        side = compare.side(compare.Facts(ends, {}, ()), NOW)
        assert all(words in said for said in (told["completion"], side["completion"], " ".join(told["sentences"])))
        assert "UTC" not in completion(ends, NOW)  # in a terminal it is the reader's own
    finally:
        monkeypatch.undo()
        time.tzset()


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
