"""What the verbs print, word by word. LOCKSTEP_WRITE_GOLDEN=1 writes the expected texts anew."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest

from lockstep.api.base import names
from lockstep.api.run_status import QueueStatus
from lockstep.cli import output, runs
from lockstep.cli.errors import ApiServerError, CliError, Unreachable
from lockstep.cli.options import Selection
from lockstep.cli.views import events, explain, history, info, priorities, queue, queues
from lockstep.core.model.snapshot import NodeView
from lockstep.core.model.tunables import Tunables
from lockstep.present import start_estimate
from lockstep.present.amounts import duration, local_time
from lockstep.present.explanation import LiveAdmission, NotLive, waits_for_nodes
from support import sample_runs as sample
from support.cli_server import CliServer
from support.sample_runs import NOW

GOLDEN = Path(__file__).parent / "golden" / "cli"
LEVELS = Tunables().topology_levels


def node(name: str, rack: str) -> NodeView:
    labels = {names.LABEL_HOSTNAME: name, LEVELS["rack"]: rack}
    return NodeView(name=name, uid=name, labels=labels, allocatable={})


NODES = {n.name: n for n in (node("gpu-1", "r2"), node("gpu-2", "r2"), node("gpu-10", "r10"), node("gpu-11", "r10"))}
BUSY = LiveAdmission(
    queue=QueueStatus(position=2, reason="Priority", message="behind team/big"),
    ahead=(("team/big", QueueStatus(position=1, reason="Resources", message="needs 8 nodes, 1 fit")),),
    nodes=4,
    holders=(("team/llama", ("gpu-1", "gpu-2", "gpu-10")),),
)
FREE = LiveAdmission(queue=QueueStatus(), ahead=(), nodes=4, holders=())


def explained(raw: dict[str, Any], found: LiveAdmission | NotLive | None = None) -> list[str]:
    return list(explain.explanation(runs.view(raw), found, NOW))


def gone_on_from() -> dict[str, Any]:
    raw = sample.failed()
    return raw | {"status": raw["status"] | {"next": {"name": "llama-2", "uid": "u"}}}


def goes_on() -> dict[str, Any]:
    raw = sample.pending()
    before = {"name": "llama", "uid": "u-1", "outcome": "Failed", "reason": "NoProgress", "ended": sample.at(600)}
    previous = [before | {"attempts": 3, "saved": 400}, before | {"uid": "u-0"}]
    return raw | {"status": raw["status"] | {"previous": previous}}


def paged(raw: dict[str, Any], nodes: dict[str, NodeView] | None = None) -> list[str]:
    return list(info.page(runs.view(raw), nodes or {}, LEVELS, NOW))


def everybody() -> list[dict[str, Any]]:
    return [sample.failed(), sample.pending("second"), sample.running(), sample.pending("first", position=1)]


def listed(*, wide: bool = False, with_namespace: bool = False) -> list[str]:
    views = sorted((runs.view(raw) for raw in everybody()), key=queue.order)
    return queue.listing(views, with_namespace, wide, NOW)


TOLD = {
    "blockedBy": ["team/llama", "vision/resnet"],
    "estimatedStart": sample.at(-2400),
    "assumption": "every run uses its whole time limit, and nobody more urgent comes",
    "priority": 1234,
    "factors": {"class": 1000, "age": 240, "nice": -6},
    "updated": sample.at(30),
}
FORETOLD = LiveAdmission(
    queue=QueueStatus.load({"position": 1, "reason": "Resources", "message": "needs 4 nodes, 1 fit", **TOLD}),
    ahead=(),
    nodes=4,
    holders=(),
)
UNKNOWN = {"assumption": "not known: it rests on the end of a run that has no time limit", "updated": sample.at(30)}


def waiting() -> list[dict[str, Any]]:
    return [sample.pending("second", **UNKNOWN), sample.pending("first", position=1, **TOLD)]


def backfilled() -> dict[str, Any]:
    raw = sample.running()
    raw["status"]["admission"] = {"timeLimit": 7200, "askedLimit": "8h", "backfilled": True}
    return raw | {"spec": raw["spec"] | {"timeLimit": "8h"}}


def extended() -> dict[str, Any]:
    raw = sample.running()
    why = "it would overrun the maintenance window firmware, which begins at 2026-12-01T08:00:00Z"
    raw["status"]["admission"] = {"timeLimit": 7200, "askedLimit": "8h", "limitedBy": why}
    return raw | {"spec": raw["spec"] | {"timeLimit": "8h"}}


def queue_objects() -> list[dict[str, Any]]:
    quotas = [{"gpuType": "H100", "nominalNodes": 8, "borrowingLimit": 4}, {"gpuType": "Any", "nominalNodes": 2}]
    usage = [{"gpuType": "H100", "nodes": 10, "borrowed": 2}]
    lab = {"cohort": "lab", "quotas": quotas, "heldRuns": ["team/llama"]}
    status = {"pending": 3, "running": 2, "nodesInUse": 10, "usage": usage, "gpuHoursLastDay": 1920}
    return [
        {"metadata": {"name": "research"}, "spec": lab, "status": status},
        {"metadata": {"name": "spare"}, "spec": {"stopPolicy": "Hold"}},
    ]


VIEWS: dict[str, Callable[[], Iterable[str]]] = {
    "queue": listed,
    "queue-wide": lambda: listed(wide=True, with_namespace=True),
    "queue-told": lambda: queue.listing([runs.view(raw) for raw in waiting()], False, True, NOW),
    "queue-start": lambda: queue.starts(sorted((runs.view(raw) for raw in waiting()), key=queue.soonest), True),
    "prio": lambda: priorities.listing([runs.view(raw) for raw in waiting()], False),
    "queues": lambda: queues.listing(queue_objects(), False),
    "queues-wide": lambda: queues.listing(queue_objects(), True),
    "info-told": lambda: paged(sample.pending(**TOLD)),
    "info-backfilled": lambda: paged(backfilled(), NODES),
    "explain-pending-foretold": lambda: explained(sample.pending(), FORETOLD),
    "explain-pending-unknown-start": lambda: explained(
        sample.pending(**UNKNOWN), NotLive("you may not read the nodes")
    ),
    "explain-backfilled": lambda: explained(backfilled()),
    "info-running": lambda: paged(sample.running(), NODES),
    "info-without-node-rights": lambda: paged(sample.running()),
    "info-pending": lambda: paged(sample.pending()),
    "explain-extended": lambda: explained(extended()),
    "explain-new": lambda: explained(sample.run()),
    "explain-pending-live": lambda: explained(sample.pending(), BUSY),
    "explain-pending-free": lambda: explained(sample.pending(), FREE),
    "explain-pending-from-status": lambda: explained(sample.pending(), NotLive("you may not read the nodes")),
    "explain-running": lambda: explained(sample.running()),
    "explain-recovering": lambda: explained(sample.recovering()),
    "explain-failed": lambda: explained(sample.failed()),
    "explain-gone-on-from": lambda: explained(gone_on_from()),
    "explain-goes-on": lambda: explained(goes_on()),
    "history": lambda: history.listing(runs.view(sample.recovering()).status, wide=False, now=NOW),
    "history-wide": lambda: history.listing(runs.view(sample.recovering()).status, wide=True, now=NOW),
}


@pytest.fixture(autouse=True)
def _far_from_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_reads_as_it_was_reviewed(name: str) -> None:
    text = "\n".join(VIEWS[name]()) + "\n"
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("LOCKSTEP_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_output_that_nobody_looks_at_has_no_colour() -> None:
    assert all("\x1b" not in line for line in listed())


def test_a_terminal_gets_colour_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain = [line for line in listed() if "\x1b" not in line]
    assert len(plain) < len(listed())
    monkeypatch.setenv("NO_COLOR", "1")
    assert all("\x1b" not in line for line in listed())


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (3600, "60m"), (3 * 3600, "3h"),
     (5 * 3600 + 600, "5h10m"), (47 * 3600, "47h"), (50 * 3600, "2d2h"), (9 * 86_400, "9d")],
)  # fmt: skip
def test_ages_are_written_as_kubectl_writes_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_events_come_in_the_order_they_were_last_seen_with_their_count() -> None:
    def event(reason: str, seconds_ago: float, **more: Any) -> dict[str, Any]:
        return {
            "metadata": {"creationTimestamp": sample.at(5000)},
            "eventTime": sample.at(seconds_ago),
            "regarding": {"kind": "TrainingRun", "name": "llama", "uid": sample.UID},
            "type": "Normal",
            "reason": reason,
            "note": f"{reason} it\nwas",
            **more,
        }

    repeated = event("Again", 4000, series={"count": 3, "lastObservedTime": sample.at(10)})
    of_node = event("NodeLost", 60, related={"kind": "Node", "name": "gpu-3"})
    rows = events.listing(sorted([repeated, event("Old", 300), of_node], key=events.last_seen), NOW)
    assert [row.split()[0] for row in rows[1:]] == ["5m", "60s", "10s"]
    assert "TrainingRun/llama, Node/gpu-3" in rows[2]
    assert "10s (x3)" in rows[3]
    assert rows[3].endswith("Again it was")


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


def test_the_dashboard_of_ray_is_shown_where_there_is_one() -> None:
    raw = sample.running()
    assert not [line for line in paged(raw) if "Dashboard" in line]
    raw["status"]["start"]["dashboard"] = "10.0.0.1:20002"
    [line] = [line for line in paged(raw) if "Dashboard" in line]
    assert line.endswith(" http://10.0.0.1:20002")


def test_a_run_that_has_ended_and_holds_nodes_is_in_the_queue_until_it_does_not() -> None:
    raw = sample.running(state="Cancelled", reason="Cancelled", leaving={"nodes": 4, "until": sample.at(-90)})
    raw["status"]["conditions"][-2] = sample.condition("Finished", "True", "Cancelled")
    ended = runs.view(raw)
    assert not queue.is_over(ended)
    everybody = sorted([runs.view(sample.pending()), ended], key=queue.order)
    line = queue.listing(everybody, False, True, NOW)[1]
    assert line.split()[:6] == ["llama", "-", "Cancelled", "Cancelled", "4", "held"]
    assert "its pods still hold 4 nodes; they are deleted in 90s at the latest" in line
    del raw["status"]["leaving"]
    assert queue.is_over(runs.view(raw))


def test_an_estimate_is_worded_by_one_function_for_every_table_and_sentence() -> None:
    told = QueueStatus.load({"position": 1, **TOLD})
    assert start_estimate.column(told, NOW) == "in 40m"
    assert start_estimate.expectation(told, NOW).startswith("in 40m (")
    assert start_estimate.column(told) in start_estimate.expectation(told, NOW)
    assert [start_estimate.column(QueueStatus(position=place), NOW) for place in (1, 0)] == ["?", ""]
    assert start_estimate.column(QueueStatus()) == "?"
    assert start_estimate.column(told, NOW + 9000) == "now"


def test_prio_stands_in_the_order_of_the_queue_though_points_are_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A position is told within seconds, points every quarter of an hour."""
    raws = [
        sample.pending("gp", position=3, priority=16, updated=sample.at(5)),
        sample.pending("sweep", position=2, priority=15, updated=sample.at(5)),
        sample.pending("held", position=0, priority=99, updated=sample.at(5)),
        sample.pending("first", position=1, priority=9, updated=sample.at(5)),
    ]
    lines: list[str] = []
    by_name = {raw["metadata"]["name"]: raw for raw in raws}
    monkeypatch.setattr(runs, "fetch", lambda _, name: by_name[name])
    monkeypatch.setattr(output, "print_lines", lines.extend)
    priorities.show(cast(Any, None), [*by_name], Selection())
    assert [line.split()[0] for line in lines[1:]] == ["first", "sweep", "gp", "held"]


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


def everything_of(raw: dict[str, Any], found: LiveAdmission | None = None) -> list[str]:
    return list(explain.explanation(runs.view(raw), found, NOW, everything=True))


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


@pytest.mark.parametrize(
    "away", [Unreachable("no answer"), ApiServerError(500, "no leader"), ApiServerError(429, "busy")]
)
def test_a_watched_queue_waits_for_a_server_that_is_away(
    away: CliError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(queue, "_AT_LEAST_SECONDS", 0.0)
    listed: list[Any] = [away, {"metadata": {"resourceVersion": "9"}, "items": [sample.failed()]}]

    def look(path: str, **_: Any) -> Any:
        answer = listed.pop(0)
        if isinstance(answer, CliError):
            raise answer
        return answer

    changes = [[("MODIFIED", sample.running())], away, ApiServerError(410, "too old"), [("MODIFIED", sample.pending())]]
    server = CliServer(watches=[away, away, *changes, ApiServerError(403, "forbidden")])
    monkeypatch.setattr(server, "list", look)
    seen = queue._changes(server, "/runs", {}, "3")
    states = [runs.view(raw).status.state for raw in islice(seen, 3)]
    assert states == [runs.view(raw).status.state for raw in (sample.running(), sample.failed(), sample.pending())]
    assert server.versions == ["3", "3", "3", "7", "7", "9"]
    assert capsys.readouterr().err == f"{away}; asking again until it answers.\n" * 2
    with pytest.raises(ApiServerError, match="forbidden"):
        next(seen)
