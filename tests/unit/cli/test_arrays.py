"""Arrays at the command line as they are shown and found: rows of the queue, pages, explanations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lockstep.cli import arrays, runs
from lockstep.cli.errors import ApiServerError
from lockstep.cli.views import array_status, explain, queue
from lockstep.core.model.own_objects import parse_run_set
from lockstep.present.arrays import folded
from support import sample_runs as sample
from support.cli_server import CliServer
from support.sample_runs import NOW
from support.sweeps import AT_WORK, RUNS, of_sweep, sweep, with_run, with_sweep

GOLDEN = Path(__file__).parent / "golden"
STUCK = AT_WORK | {
    "conditions": [
        sample.condition("Accepted", "True", "Accepted"),
        sample.condition("Progressing", "False", "NameTaken", "there are runs sweep-50 that are not of this set"),
    ],
    "stop": {"reason": "StoppedOnFailure", "message": "1 index has failed: 41", "time": sample.at(60)},
}


def in_the_queue(**changes: Any) -> list[str]:
    views = [runs.view(raw) for raw in (*RUNS, sample.pending("other", position=1))]
    single, pending = folded(views, [parse_run_set(sweep(AT_WORK, **changes))])
    return queue.listing(single, False, False, NOW, pending)


def paged(status: dict[str, Any], **spec: Any) -> list[str]:
    return list(array_status.page(parse_run_set(sweep(status, **spec)), [runs.view(raw) for raw in RUNS]))


def test_a_run_whose_nodes_are_too_many_for_its_status_runs() -> None:
    large = of_sweep(sample.running(), 43)
    large["status"]["assignment"] = {"hash": "h", "configMap": "large"}
    lines = list(array_status.page(parse_run_set(sweep(AT_WORK)), [runs.view(large)]))
    assert [line.split() for line in lines if line.startswith("running")] == [["running", "1", "43"]]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("queue-array", in_the_queue),
        ("status-array", lambda: paged(AT_WORK)),
        ("status-array-stuck", lambda: paged(STUCK, afterCorr="prepare")),
        ("status-array-new", lambda: list(array_status.page(parse_run_set(sweep()), []))),
    ],
)
def test_what_is_shown_of_an_array(name: str, lines: Any) -> None:
    file = GOLDEN / f"{name}.txt"
    text = "\n".join(lines()) + "\n"
    if os.environ.get("LOCKSTEP_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize(
    ("status", "spec", "label", "state"),
    [
        ({}, {}, "sweep_[0-99%8]", ("Pending", "NotSeenYet")),
        ({}, {"suspend": True, "maxRunning": None}, "sweep_[0-99]", ("Suspended", "Held")),
        ({"indices": {"succeeded": "0-7"}}, {"suspend": True}, "sweep_[8-99%8]", ("Suspended", "Suspended")),
        ({}, {"indices": "0-98:2"}, "sweep_[0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,...%8]", ("Pending", "NotSeenYet")),
        ({"state": "Running", "indices": {"active": "0-7"}}, {}, "sweep_[8-99%8]", ("Pending", "MaxRunning")),
    ],
)
def test_a_row_says_which_indices_wait_and_why(
    status: dict[str, Any], spec: dict[str, Any], label: str, state: tuple[str, str]
) -> None:
    raw = sweep(status, **spec)
    raw["spec"] = {field: value for field, value in raw["spec"].items() if value is not None}
    held = [runs.view(of_sweep(sample.running(), index)) for index in range(8)] if status else []
    _, [pending] = folded(held, [parse_run_set(raw)])
    assert (pending.name, pending.state) == (label, state)


def test_a_run_that_its_user_holds_has_a_row_of_its_own() -> None:
    held = sample.run("x", status={"state": "Suspended", "reason": "SuspendRequested"}, suspend=True)
    single, [pending] = folded([runs.view(of_sweep(held, 43))], [parse_run_set(sweep(AT_WORK))])
    assert [run.name for run in single] == ["sweep-43"]
    assert 43 not in pending.indices


@pytest.mark.parametrize(("raw", "reason"), [(sample.pending(), "Held"), (sample.running(), "Suspended")])
def test_an_array_is_held_and_not_suspended_while_none_of_its_runs_has_begun(raw: dict[str, Any], reason: str) -> None:
    view = parse_run_set(sweep({"indices": {"active": "0"}, "counts": {"total": 100, "pending": 100}}, suspend=True))
    _, [pending] = folded([runs.view(of_sweep(raw, 0))], [view])
    assert pending.state == ("Suspended", reason)
    assert folded([], [parse_run_set(sweep(AT_WORK, suspend=True))])[1][0].state == ("Suspended", "Suspended")


@pytest.mark.parametrize(
    ("own", "spec", "words"),
    [
        (False, {"suspend": True}, "by suspend: true of its set sweep. Next: it waits for lockstep resume sweep."),
        (True, {"suspend": True}, "suspended. Next: it waits for lockstep resume sweep-45 (suspend: false)."),
        (False, {"indices": "x"}, "as the spec of its set sweep cannot be read. Next: it waits for that to be"),
    ],
)
def test_a_run_that_its_array_suspends_is_explained_so_and_does_not_start_next(
    own: bool, spec: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explain.show(with_run(own, **spec), "sweep-45", "text", "lockstep-system")
    said = capsys.readouterr().out
    assert words in said
    assert "Computed now" not in said


def test_a_status_that_is_no_ranges_spoils_nobodys_queue() -> None:
    _, [pending] = folded([], [parse_run_set(sweep({"indices": {"active": "x", "succeeded": "0-40"}}))])
    assert min(pending.indices) == 41


def test_an_array_in_which_nobody_waits_has_no_row() -> None:
    view = parse_run_set(sweep({"indices": {"succeeded": "0-98"}}))
    assert folded([runs.view(of_sweep(sample.running(), 99))], [view])[1] == []


def test_a_cluster_without_the_kind_has_no_arrays() -> None:
    without = CliServer(refusals={"list": ApiServerError(404, "the server could not find the requested resource")})
    assert arrays.listed(without, everywhere=False, selector="", queue="") == []


def test_a_set_is_found_by_its_queue() -> None:
    server = with_sweep()
    assert len(arrays.listed(server, everywhere=False, selector="", queue="default")) == 1
    assert arrays.listed(server, everywhere=False, selector="", queue="other") == []
