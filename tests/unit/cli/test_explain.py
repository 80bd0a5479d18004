"""What `lockstep explain` says of a run: what it does, waits for or ended by, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lockstep.api.run_status import QueueStatus
from lockstep.cli import runs
from lockstep.cli.views import explain
from lockstep.present import start_estimate
from lockstep.present.amounts import local_time
from lockstep.present.explanation import LiveAdmission, waits_for_nodes
from support import sample_runs as sample
from support.cli_views import FREE, GOLDEN, everything_of, explained, in_utc, paged
from support.sample_runs import NOW


@pytest.fixture(autouse=True)
def _far_from_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with in_utc(monkeypatch):
        yield


def test_checkpoints_of_the_same_step_are_told_apart_by_who_saved_them() -> None:
    raw = sample.running()
    told = raw["status"]["checkpoint"]
    told["rejected"] = [{"tier": "shared", "step": 400, "attempt": 1, "reason": "is quarantined"}]
    told["quarantined"] = [
        {"tier": "shared", "step": 400, "attempt": 1, "reason": "could not be loaded"},
        {"tier": "local", "step": 300, "reason": "NaN"},
    ]
    told["diverged"] = [{"step": 350, "attempt": 2}]
    lines = explained(raw)
    assert "Not loaded again: step 350 and later of attempts up to 2: training had gone wrong" in lines
    assert "Not loaded again: step 400 of attempt 1 (shared): could not be loaded" in lines
    assert "Not loaded again: step 300 (local): NaN" in lines
    assert "  passed over: step 400 of attempt 1 (shared): is quarantined" in lines
    assert "  step 400 of attempt 1 (shared): is quarantined" in paged(raw)


def test_a_run_that_saves_before_it_stops_says_at_which_step_and_for_how_long() -> None:
    stop = {
        "reason": "Suspended",
        "message": "suspend: true",
        "time": sample.at(10),
        "deadline": sample.at(-590),
        "save": "save-1",
    }
    save = {"id": "save-1", "atStep": 120, "needsStep": 110, "reason": "Suspended", "deadline": sample.at(-290)}
    raw = sample.running(stop=stop)
    raw["status"]["checkpoint"]["save"] = save
    told = explained(raw)
    assert "Next: all ranks save at step 120, which is waited for 4m50s at most; then they are told to end." in told
    raw["status"]["stop"]["save"] = ""
    assert any(line.startswith("Next: the ranks end by themselves") for line in explained(raw))


def test_a_run_that_nobody_judges_is_explained_by_who_does_not() -> None:
    raw = sample.pending("new")
    raw["status"]["conditions"] = [
        {
            "type": "Accepted",
            "status": "Unknown",
            "reason": "PodNotJudged",
            "message": "the API server does not judge the pod: failed calling webhook",
            "lastTransitionTime": sample.at(60),
        }
    ]
    told = explained(raw)
    assert "It is not accepted yet: the API server does not judge the pod: failed calling webhook" in told
    assert not any("the operator is not running" in line for line in told)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("PlaceholdersWait", "It would have nodes made: by 2 placeholder pods"),
        ("CannotAskForNodes", "It cannot have nodes made: by 2 placeholder pods"),
    ],
)
def test_who_asks_an_autoscaler_for_nodes_is_told_how_that_goes(reason: str, said: str) -> None:
    raw = sample.pending("new")
    status = "False" if reason == "CannotAskForNodes" else "True"
    raw["status"]["conditions"].append(sample.condition("ScaleUp", status, reason, "by 2 placeholder pods"))
    assert said in explained(raw)


def test_a_half_finished_gang_is_explained_with_its_step() -> None:
    raw = sample.running()
    words = "rank 1 ended with code 0 at 2026-11-25T16:33:51Z (after step 14); the other 3 still run"
    for each in raw["status"]["conditions"]:
        if each["type"] == "Progressing":
            each["message"] = words
    told = explained(raw)
    assert any(line.startswith("It runs: step ") for line in told)
    assert f"Not all of it: {words}." in told


def test_a_gang_that_leaves_gpus_unused_is_explained_with_them() -> None:
    raw = sample.running()
    raw["status"]["resolved"] |= {"gpuResource": "amd.com/gpu", "unusedGpus": "8 amd.com/gpu on gpu-1, gpu-2"}
    assert "It leaves GPUs of its nodes unused: 8 amd.com/gpu on gpu-1, gpu-2." in explained(raw)
    large = raw | {"status": raw["status"] | {"assignment": {"hash": "h", "configMap": "large"}}}
    assert "It leaves GPUs of its nodes unused: 8 amd.com/gpu on gpu-1, gpu-2." in explained(large)
    shown = "\n".join(paged(raw))
    assert "amd.com/gpu, " in shown
    assert "8 amd.com/gpu on gpu-1, gpu-2" in shown


@pytest.mark.parametrize(
    ("launcher", "said"),
    [({"type": "MPI"}, True), ({"type": "DeepSpeed"}, False), ({"type": "Plain", "steps": True}, False)],
)
def test_where_the_others_stand_by_it_is_said_whose_log_has_the_output(launcher: dict[str, Any], said: bool) -> None:
    raw = sample.running()
    raw["spec"] |= {"launcher": launcher, "command": ["deepspeed", "train.py"]}
    words = (
        "Its command is on rank 0, and ranks 1-3 stand by for what that starts there: its output is in rank 0's log."
    )
    assert (words in explained(raw)) is said


LIMIT = {"seconds": 14_400, "endAt": sample.at(-3540), "overAt": sample.at(-3600)}


@pytest.mark.parametrize(
    ("limit", "checkpoint", "words"),
    [
        (
            LIMIT | {"saveAt": sample.at(-3000)},
            True,
            "all ranks are asked to save at {save}, and end once they have; ",
        ),
        (LIMIT, True, "unasked for a save, as no program asks for one so far"),
        (LIMIT, False, "its ranks are told to end at {end}"),
    ],
)
def test_a_run_with_nodes_is_told_what_is_done_about_its_limit_and_when(
    limit: dict[str, Any], checkpoint: bool, words: str
) -> None:
    raw = sample.running(admission={"timeLimit": 14_400, "askedLimit": "4h"}, timeLimit=limit)
    raw["spec"] = raw["spec"] | {"timeLimit": "4h"} | ({} if checkpoint else {"checkpoint": None})
    told = start_estimate.granted(runs.view(raw))
    save, end, over = (local_time(NOW + left) for left in (3000, 3540, 3600))
    assert told.startswith(f"4h, until {over}; ")
    assert words.format(save=save, end=end) in told
    assert any(told in sentence for sentence in explain.explanation(runs.view(raw), None, NOW))


def test_a_short_limit_is_one_number_everywhere() -> None:
    limit = {"seconds": 40, "endAt": sample.at(-20), "overAt": sample.at(-40)}
    raw = sample.running(admission={"timeLimit": 40, "askedLimit": "40s"}, timeLimit=limit)
    raw["spec"] = raw["spec"] | {"timeLimit": "40s"}
    assert start_estimate.granted(runs.view(raw)).startswith("40s, until ")
    waiting = sample.pending()
    waiting["spec"] = waiting["spec"] | {"timeLimit": "40s"}
    said = [*explain.explanation(runs.view(waiting), None, NOW)]
    assert any(sentence.startswith("Its time is to be 40s with its nodes; after 20s") for sentence in said)


def test_the_cause_of_an_end_is_said_once_and_what_matters_first() -> None:
    told = explained(sample.failed())
    assert sum("ended with exit code 1" in line for line in told) == 1
    assert told[1].startswith("The end: rank 1 on gpu-2 ended with exit code 1")
    assert "Its last attempt, 2, was ended 60s ago by Application." in told
    assert not any("the run is stopped" in line for line in told)


@pytest.mark.parametrize("ways", ["", "; to begin at step 0: lockstep retry llama --fresh"])
def test_the_command_that_goes_on_is_said_once_and_with_what_is_saved_by_now(ways: str) -> None:
    raw = sample.failed()
    for told in raw["status"]["conditions"][1:]:
        told["message"] += f"; to go on from step 380: lockstep retry llama [-f FILE]{ways}"
    assert "\n".join(explained(raw)) + "\n" == (GOLDEN / "explain-failed.txt").read_text()


@pytest.mark.parametrize("saved", [True, False])
def test_a_run_that_has_ended_says_from_which_step_another_goes_on(saved: bool) -> None:
    raw = sample.failed()
    if not saved:
        raw["status"]["checkpoint"] = {}
    step = "go on from step 400" if saved else "begin at step 0"
    assert f"Next: nothing by itself; to {step}: lockstep retry llama [-f FILE]." in explained(raw)
    for told in raw["status"]["conditions"][1:]:
        told |= {"status": "True", "reason": "AllRanksSucceeded"}
    assert f"Next: nothing, it is done; lockstep retry llama would {step}." in explained(raw)


@pytest.mark.parametrize("stops", [False, True], ids=["ended", "stopping"])
def test_who_ends_with_a_rank_that_had_no_node_is_promised_none(stops: bool) -> None:
    raw = sample.running() if stops else sample.failed()
    raw["status"]["assignment"] |= {"nodes": ["gpu-1", "", "gpu-10", "gpu-11"], "vacant": [1]}
    assert waits_for_nodes(runs.view(raw)) is stops, "until its stop is written it does wait for one"
    if stops:
        raw["status"]["stop"] = {"reason": "Cancelled", "message": "", "time": sample.at(5), "deadline": sample.at(-60)}
    assert not waits_for_nodes(runs.view(raw))
    assert not [line for line in explained(raw, FREE) if line.startswith(("It waits", "Computed now"))]


def test_paths_of_checkpoints_are_for_who_asks_for_everything() -> None:
    assert not any("/shared-checkpoints/" in line for line in explained(sample.running()))
    assert sum("/shared-checkpoints/" in line for line in everything_of(sample.running())) == 2


def test_a_run_that_succeeded_says_what_happened_on_the_way() -> None:
    raw = sample.running(state="Succeeded", reason="Succeeded")
    raw["status"]["attempts"][0]["cause"] = "Hang"
    raw["status"]["attempts"][1] |= {"endedAt": sample.at(60), "cause": "Succeeded"}
    raw["status"]["conditions"] = [
        sample.ACCEPTED,
        sample.condition("Finished", "True", "Succeeded", "all 4 ranks ended with code 0", 60),
        sample.condition("Succeeded", "True", "Succeeded", "all 4 ranks ended with code 0", 60),
    ]
    assert "On the way ended attempt 1 Hang (lockstep history llama)." in explained(raw)


AHEAD = tuple((f"team/run-{n}", QueueStatus(position=n, reason="Resources", message="x")) for n in range(1, 8))


@pytest.mark.parametrize(
    ("reason", "holders"), [("Resources", True), ("Quota", True), ("QueueNotFound", False), ("Dependency", False)]
)
def test_who_holds_nodes_is_said_where_nodes_are_what_it_waits_for(reason: str, holders: bool) -> None:
    queue = QueueStatus(position=9, reason=reason, message="x")
    found = LiveAdmission(queue=queue, ahead=AHEAD, nodes=4, holders=(("team/big", ("gpu-1",)),))
    told = explained(sample.pending(), found)
    assert any("held by team/big" in line for line in told) is holders
    assert [line for line in told if "in front of it" in line][-1] == "  and 4 more runs in front of it"
    everything = everything_of(sample.pending(), found)
    assert sum("waits in front of it" in line for line in everything) == len(AHEAD)
    assert any("held by team/big" in line for line in everything)


def test_who_waits_is_told_when_holders_end_by_their_pace_beside_what_is_promised_by_their_limits() -> None:
    queue = QueueStatus(position=1, reason="Resources", message="x", estimated_start=NOW + 7200, assumption="limits")
    holders = (("team/big", ("gpu-1",)), ("team/other", ("gpu-2",)))
    found = LiveAdmission(
        queue=queue, ahead=(), nodes=4, holders=holders, ends={"team/big": "at its pace ends in 40m (17:30)"}
    )
    told = explained(sample.pending(), found)
    assert "  1 node held by team/big, which at its pace ends in 40m (17:30): gpu-1" in told
    assert "  1 node held by team/other: gpu-2" in told
    assert any(line.startswith("It is expected to start in 120m") and line.endswith(", if limits.") for line in told)


@pytest.mark.parametrize(("reason", "verb"), [("Held", "release"), ("Suspended", "resume")])
def test_who_is_held_is_released_and_who_is_suspended_resumed(reason: str, verb: str) -> None:
    raw = sample.run(status={"state": "Suspended", "reason": reason, "conditions": [sample.ACCEPTED]}, suspend=True)
    told = explained(raw)
    assert told[0] == f"llama is Suspended ({reason})."
    assert any(f"lockstep {verb} llama" in line for line in told)


def test_a_program_that_has_reported_no_step_is_told_how_to() -> None:
    raw = sample.running(progress={})
    raw["status"]["conditions"][3] = sample.condition(
        "Progressing", "False", "NoStepYet", "no step of this attempt was reported yet"
    )
    told = explained(raw)
    assert any("lockstep_training.report(step)" in line and "hangs cannot be seen" in line for line in told)


def test_an_end_by_its_pace_is_said_with_the_limit_that_comes_before() -> None:
    raw = sample.running(lastAdmitted=sample.at(3600))
    raw["status"]["progress"] |= {"stepMicroseconds": 500_000, "expectedEnd": sample.at(-7200)}
    assert "It runs: step 412, 5s ago, 2 steps/s." in explained(raw)
    done = next(line for line in explained(raw) if line.startswith("At this pace all steps are done in 120m ("))
    assert "time limit" not in done
    raw["status"]["admission"] = {"timeLimit": 7200}
    assert any(line.endswith(", and its time limit is over before that, in 60m.") for line in explained(raw))
