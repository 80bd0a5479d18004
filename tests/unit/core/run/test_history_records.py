"""What is written down of runs and attempts that ended, and how it is read again."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.base.times import to_rfc3339
from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import Condition, TrainingRunStatus
from lockstep.cli.errors import CliError
from lockstep.cli.views.history import recorded, show_recorded
from lockstep.controller.reconcile.history import History
from lockstep.core.model.conditions import with_condition
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.run.history_records import records, records_of_deleted
from support.manual_clock import ManualClock
from support.world import spec, world

NOW = 1_000_000.0


def run_with(*attempts: AttemptStatus) -> RunView:
    w = world(1, now=NOW)
    w.apply("one", spec(1))
    return replace(w.runs["one"], status=status(*attempts))


def status(*attempts: AttemptStatus, finished: bool = False) -> TrainingRunStatus:
    made = TrainingRunStatus(attempt=len(attempts), attempts=attempts)
    if finished:
        made = with_condition(made, "Succeeded", False, "Deterministic", "it failed", now=NOW, generation=1)
        made = with_condition(made, "Finished", True, "Deterministic", "it failed", now=NOW, generation=1)
    return made


RUNNING = AttemptStatus(number=1, started_at=NOW - 60)
ENDED = changed(RUNNING, ended_at=NOW, cause="Application", rank=2, node="n0")


def test_an_attempt_is_written_down_when_it_ends_and_again_when_its_cause_was_another() -> None:
    assert list(records(run_with(), status(RUNNING), NOW)) == []
    first = list(records(run_with(RUNNING), status(ENDED), NOW))
    assert [(r["kind"], r["attempt"], r["cause"], r["rank"]) for r in first] == [("attempt", 1, "Application", 2)]
    assert list(records(run_with(ENDED), status(ENDED), NOW)) == []
    other = changed(ENDED, cause="NodeLost")
    assert [r["cause"] for r in records(run_with(ENDED), status(other), NOW)] == ["NodeLost"]


def test_an_attempt_is_written_down_with_the_nodes_that_trained_in_it() -> None:
    shrunk = status(changed(ENDED, nodes=3))
    assignment = changed(shrunk.assignment, nodes=("n0", "n1", "", "n3"), incarnations=(1, 1, 2, 1))
    (record,) = records(run_with(RUNNING), changed(shrunk, assignment=assignment), NOW)
    assert record["nodes"] == 3


def test_the_end_of_a_run_is_written_down_once_with_its_totals() -> None:
    over = status(ENDED, finished=True)
    over = changed(over, goodput=changed(over.goodput, state="{}", failures=3))
    made = list(records(run_with(ENDED), over, NOW))
    assert [(r["kind"], r["outcome"], r["reason"]) for r in made] == [("run", "Failed", "Deterministic")]
    assert json.dumps(made)
    assert made[0]["goodput"]["failures"] == 3
    assert made[0]["user"] == ""
    assert "state" not in made[0]["goodput"]
    assert list(records(replace(run_with(), status=over), over, NOW)) == []


def test_the_end_of_a_run_is_told_again_as_of_then_once_what_was_kept_of_it_is_counted() -> None:
    over = status(ENDED, finished=True)
    counted = changed(over, goodput=changed(over.goodput, gpu_hours="16.00"))
    (record,) = records(replace(run_with(), status=over), counted, NOW + 3600)
    (first,) = records(run_with(ENDED), over, NOW)
    assert (record["kind"], record["recordedAt"]) == ("run", first["recordedAt"])
    assert record["goodput"]["gpuHours"] == "16.00"


def test_the_end_of_a_run_says_whose_it_was_in_so_many_characters() -> None:
    for user, written in (("ada", "ada"), ("a" * 10_000, None)):
        run = replace(run_with(ENDED), annotations={"lockstep.dev/user": user})
        (record,) = records(run, status(ENDED, finished=True), NOW)
        assert record["user"] == (written or record["user"])
        assert len(record["user"]) <= 253


@pytest.mark.parametrize(
    ("value", "reason", "outcome"),
    [("True", "Succeeded", "Succeeded"), ("False", "Cancelled", "Cancelled"), ("False", "TimeLimit", "Failed")],
)
def test_the_outcome_of_a_run_is_that_of_its_state(value: Any, reason: str, outcome: str) -> None:
    over = status(ENDED, finished=True)
    conditions = [c for c in over.conditions if c.type != "Succeeded"]
    conditions.append(Condition(type="Succeeded", status=value, reason=reason, last_transition_time=NOW))
    made = list(records(run_with(ENDED), changed(over, conditions=tuple(conditions)), NOW))
    assert [record["outcome"] for record in made] == [outcome]


@pytest.mark.slow
def test_a_run_that_is_deleted_while_it_trains_is_written_down_with_what_it_has_used() -> None:
    w = world(2, now=NOW)
    w.apply("one", spec(2, gpusPerNode=8))
    w.settle()
    w.pass_time(1800)
    run = w.runs["one"]
    attempt, end = records_of_deleted(run, w.tunables, NOW + 3600)
    assert (attempt["kind"], attempt["attempt"], attempt["cause"]) == ("attempt", 1, "Deleted")
    assert attempt["endedAt"] == end["recordedAt"] == to_rfc3339(NOW + 3600)
    assert (end["kind"], end["outcome"], end["reason"]) == ("run", "Cancelled", "Deleted")
    assert float(end["goodput"]["gpuHours"]) == pytest.approx(16, abs=0.1)
    assert sum(end["goodput"]["buckets"].values()) == 3600
    assert json.dumps([attempt, end])


def test_a_run_that_is_deleted_while_it_waits_has_waited_until_then() -> None:
    w = world(1, now=NOW)
    w.apply("one", spec(2))
    w.settle()
    (end,) = records_of_deleted(w.runs["one"], w.tunables, NOW + 60)
    assert (end["attempt"], end["goodput"]["gpuHours"]) == (0, "0.00")
    assert end["goodput"]["buckets"]["queue"] == 60


def test_a_run_that_is_deleted_while_its_nodes_are_kept_for_debugging_has_used_them_until_then() -> None:
    w = world(2, now=NOW)
    w.roll_out("one", spec(2, gpusPerNode=8, checkpoint=None, recovery={"debugHold": "2h"}))
    w.end_child("one", 1, 1)
    w.pass_time(60, step=10)
    used = float(w.status("one").goodput.gpu_hours)
    (end,) = records_of_deleted(w.runs["one"], w.tunables, w.now + 3600)
    assert (end["outcome"], end["reason"]) == ("Failed", "ProcessFailed")
    assert float(end["goodput"]["gpuHours"]) == pytest.approx(used + 16, abs=0.5)


def test_of_a_run_that_had_ended_or_only_asked_nothing_is_written_down_once_it_is_deleted() -> None:
    ended = replace(run_with(), status=status(ENDED, finished=True))
    asked = replace(run_with(), annotations={"lockstep.dev/test-only": "true"})
    for run in (ended, asked):
        assert list(records_of_deleted(run, Tunables(), NOW)) == []


def test_lines_reach_the_file_and_are_found_again_when_the_run_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    history = History(str(path), 100_000, ManualClock(NOW), lambda: None)
    history.status_written(run_with(RUNNING), status(ENDED))
    other = changed(ENDED, cause="NodeLost")
    history.status_written(run_with(ENDED), status(other, finished=True))
    history.close()
    with path.open("a") as file:
        file.write("[" * 100_000 + '\n{"cut short')
    found = recorded(path.read_text().splitlines(), "ns", "one")
    assert [(r["kind"], r.get("cause")) for r in found] == [("attempt", "NodeLost"), ("run", None)]
    show_recorded(str(path), "ns", "one", "table")
    assert "NodeLost" in capsys.readouterr().out


def test_a_run_that_the_file_does_not_know_is_said_to_be_unknown(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("")
    with pytest.raises(CliError, match="tells of no run one in namespace ns"):
        show_recorded(str(path), "ns", "one", "table")
    with pytest.raises(CliError, match="No such file"):
        show_recorded(str(tmp_path / "absent"), "ns", "one", "table")


def test_what_a_full_disk_does_not_take_is_counted_and_told_once(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    dropped: list[int] = []
    history = History("/dev/full", 100_000, ManualClock(NOW), lambda: dropped.append(1))
    for _ in range(3):
        history.status_written(run_with(RUNNING), status(ENDED))
    history.close()  # nor does it keep the operator from ending
    assert len(dropped) >= 3
    [told] = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert "No space left on device" in told
    assert capsys.readouterr().err == ""


def test_what_cannot_be_written_in_time_is_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.controller.reconcile.history.QUEUED", 1)
    dropped: list[int] = []
    history = History(str(tmp_path / "h"), 100_000, ManualClock(NOW), lambda: dropped.append(1))
    assert history._listener is not None
    history._listener.stop()  # a file server that does not answer
    for _ in range(3):
        history.status_written(run_with(RUNNING), status(ENDED))
    assert len(dropped) >= 2
    history.close()  # not held up by what could not be written
    for handler in history._listener.handlers:
        handler.close()
