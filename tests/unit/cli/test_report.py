"""`lockstep report`: sums over runs that ended, by the history, and over those that are still there."""

from __future__ import annotations

import csv
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lockstep.api.base.times import to_rfc3339
from lockstep.cli import runs
from lockstep.cli.errors import CliError, UsageError
from lockstep.cli.main import main
from lockstep.cli.views import report
from lockstep.cli.views.report import FIELDS, as_csv, as_json, begin_of, listing, summed
from lockstep.cli.views.run_use import Past, use_of
from lockstep.core.accounting.goodput import Bucket
from support import sample_runs as sample

NOW = sample.NOW
DAY = 86_400.0
SINCE = NOW - 30 * DAY


def end(uid: str, days_ago: float = 1.0, **said: Any) -> str:
    """The record of a run that ended so long ago, after a day."""
    usual = {
        "schema": "lockstep.dev/history/1", "kind": "run", "namespace": "nlp", "run": f"run-{uid}", "uid": uid,
        "recordedAt": to_rfc3339(NOW - days_ago * DAY), "createdAt": to_rfc3339(NOW - (days_ago + 1) * DAY),
        "attempt": 1, "outcome": "Succeeded", "reason": "AllRanksSucceeded", "message": "", "queue": "research",
        "user": "ada", "nodes": 1, "gpuType": "H100", "gpusPerNode": 8, "step": 1, "loss": "", "saved": [],
        "totals": {}, "goodput": goodput(),
    }  # fmt: skip
    return json.dumps(usual | said)


def goodput(queue: int = 60, productive: int = 900, restart: int = 100, failures: int = 0, hours: str = "10.00") -> Any:
    buckets = {"queue": queue, "productive": productive, "restart": restart, "suspended": 5_000}
    return {"buckets": buckets, "gpuHours": hours, "failures": failures}


def failure(uid: str, attempt: int, cause: str, days_ago: float = 1.0, **said: Any) -> str:
    """The record of an attempt that a rank ended."""
    usual = {
        "kind": "attempt", "namespace": "nlp", "run": f"run-{uid}", "uid": uid, "attempt": attempt, "cause": cause,
        "rank": 0, "recordedAt": to_rfc3339(NOW - days_ago * DAY),
    }  # fmt: skip
    return json.dumps(usual | said)


def past(*lines: str) -> Past:
    found = Past()
    for line in lines:
        found.take(line)
    return found


def figures(*lines: str, by: report.By = "user") -> dict[str, Any]:
    return {name: one.figures() for name, one in summed(past(*lines).ended(), by, SINCE, NOW, ()).rows}


def test_runs_are_summed_by_who_made_them_by_queue_and_by_namespace() -> None:
    lines = (
        end("1"), end("2", user="grace", queue="batch"), end("4", outcome="Failed", reason="Cancelled"),
        end("3", namespace="cv", outcome="Failed", reason="NoProgress"),
    )  # fmt: skip
    by_user = figures(*lines, end("5", user="root", outcome="Cancelled", reason="Deleted"))
    assert by_user["root"]["cancelled"] == 1
    assert [by_user["ada"][name] for name in FIELDS[:6]] == [3, 1, 1, 1, 0, 30.0]
    assert [by_user["grace"][name] for name in FIELDS[:6]] == [1, 1, 0, 0, 0, 10.0]
    assert {name: row["runs"] for name, row in figures(*lines, by="queue").items()} == {"research": 3, "batch": 1}
    assert {name: row["runs"] for name, row in figures(*lines, by="namespace").items()} == {"nlp": 3, "cv": 1}


def test_who_used_most_comes_first_and_all_together_last() -> None:
    lines = (end("1", user="a"), end("2", user="b", goodput=goodput(hours="90.5")))
    table = listing(summed(past(*lines).ended(), "user", SINCE, NOW, ()))
    assert [line.split()[0] for line in table] == ["USER", "b", "a", "all"]
    assert "100.5" in table[-1]
    alone = listing(summed(past(lines[0]).ended(), "user", SINCE, NOW, ()))
    assert [line.split()[0] for line in alone] == ["USER", "a"]


def test_a_run_on_many_nodes_weighs_as_much_in_the_goodput_as_it_holds_nodes() -> None:
    wasted = goodput(productive=0, restart=1000)
    assert figures(end("1"), end("2", outcome="Failed", goodput=wasted))["ada"]["goodput"] == 0.45
    assert figures(end("1", nodes=9), end("2", outcome="Failed", goodput=wasted))["ada"]["goodput"] == 0.81
    idle = goodput(productive=0, restart=0)
    assert figures(end("1", goodput=idle))["ada"]["goodput"] is None


def test_of_a_script_that_reports_no_step_nobody_knows_the_goodput_unless_it_failed() -> None:
    script = goodput(productive=0, restart=1000)
    assert figures(end("1", goodput=script))["ada"]["goodput"] is None
    assert figures(end("1", goodput=script), end("2"))["ada"]["goodput"] == 0.9
    assert figures(end("1", outcome="Failed", goodput=script))["ada"]["goodput"] == 0.0


def test_waits_are_those_of_the_runs_themselves() -> None:
    lines = [end(str(n), goodput=goodput(queue=n)) for n in range(1, 101)]
    assert [figures(*lines)["ada"][name] for name in ("waitP50Seconds", "waitP95Seconds")] == [50, 95]


def test_failures_are_told_by_cause_and_those_nobody_remembers_as_unknown() -> None:
    lines = (
        end("1", goodput=goodput(failures=4)), failure("1", 1, "NodeLost"), failure("1", 2, "Application"),
        failure("1", 3, "NodeLost"), failure("1", 5, "Suspended", rank=None), failure("other", 1, "Hang"),
    )  # fmt: skip
    row = figures(*lines)["ada"]
    assert row["failures"] == 4
    assert row["failuresByCause"] == {"NodeLost": 2, "Application": 1, "unknown": 1}


def test_of_a_record_that_came_again_the_newer_counts_in_whatever_order_files_are_read() -> None:
    older, newer = failure("1", 1, "Application", 2.0), failure("1", 1, "NodeLost", 1.0)
    ends = end("1", 2.0, user="ada"), end("1", 1.0, user="grace")
    for lines in ([older, newer, *ends], [newer, older, *reversed(ends)]):
        assert figures(*lines)["grace"]["failuresByCause"] == {"NodeLost": 1}
        assert list(figures(*lines)) == ["grace"]


@pytest.mark.parametrize(
    "line",
    [
        "", '{"cut sho', "[]", "17", '"run"', "null", "{}", end("1")[:-30], end("1", goodput=7), end("1", nodes="many"),
        end("1", goodput={"buckets": []}), end("1", createdAt="x"), failure("1", 1, "Hang").replace("1,", '"x",'),
        "[" * 100_000 + "]" * 100_000, '{"uid": ' * 100_000, failure("1", 1, "Hang").replace("0,", f"{'[' * 9000},"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_record_is_passed_over(line: str) -> None:
    row = figures(end("2"), line)
    assert row["ada"]["runs"] == 1


@pytest.mark.parametrize("hours", ["nan", "inf", "-3", "much"])
def test_gpu_hours_that_are_no_amount_count_as_none(hours: str) -> None:
    assert figures(end("1", goodput=goodput(hours=hours)))["ada"]["gpuHours"] == 0.0


def test_what_ended_before_is_left_out_and_what_was_made_before_is_told() -> None:
    found = summed(past(end("1", 40.0), end("2", 29.5), end("3", 1.0)).ended(), "user", SINCE, NOW, ["by a test"])
    assert found.total.figures()["runs"] == 2
    assert "by a test" in found.notes[0]
    assert found.notes[1] == "1 run of these was made before: of it counts what lies in this time."
    assert found.notes[2] == "Not all attempts of 1 run are known: taken for evenly spread over its time."


def attempt(uid: str, number: int, began: float, ended: float, nodes: int = 1, **said: Any) -> str:
    """The record of one that trained between these days before now."""
    times = {"startedAt": to_rfc3339(NOW - began * DAY), "endedAt": to_rfc3339(NOW - ended * DAY)}
    return failure(uid, number, said.pop("cause", "Succeeded"), ended, nodes=nodes, **{"rank": None} | times | said)


LONG = {"createdAt": to_rfc3339(NOW - 60 * DAY), "goodput": goodput(1000, 4000, 400, 3, "100.00")}


@pytest.mark.parametrize(
    ("attempts", "hours", "failures"),
    [
        # Within are ten days on two nodes, of 20 on two and 10 on one.
        ([attempt("1", 1, 50, 40, cause="Hang", rank=1), attempt("1", 2, 40, 20, 2, cause="Hang", rank=0)], 40.0, 1),
        ([attempt("1", 1, 50, 30.5), attempt("1", 2, 29, 1)], 100 * 28 / 47.5, 0),
        ([attempt("1", 1, 50, 40), attempt("1", 2, 40, 31, cause="NodeLost", rank=1)], 0.0, 0),
        ([attempt("1", 1, 29, 1)], 100.0, 3),
        ([], 100 * 29 / 59, 3),
        ([attempt("1", 2, 29, 1, cause="Hang", rank=0)], 100 * 29 / 59, 3),
        ([attempt("1", 2, 40, 31, cause="Hang", rank=0)], 100 * 29 / 59, 0),
    ],
    ids=["across", "of two", "before", "after", "none known", "the first forgotten", "all before"],
)
def test_of_a_run_that_began_before_as_much_counts_as_lies_within(
    attempts: list[str], hours: float, failures: int
) -> None:
    row = figures(*attempts, end("1", **LONG))["ada"]
    assert row["gpuHours"] == pytest.approx(hours, abs=0.01)
    assert row["failures"] == failures
    assert row["waitP50Seconds"] == 1000, "it has waited for as long as it has"
    assert row["goodput"] == (pytest.approx(4000 / 4400, abs=0.01) if hours else None)


@pytest.mark.parametrize(
    ("attempts", "starts", "hours"),
    [
        ([attempt("1", 2, 29, 1)], 1, 100.0),
        ([attempt("1", 1, 50, 40), attempt("1", 3, 40, 20, 2)], 2, 40.0),
        ([failure("1", 1, "NodeLost", 35), attempt("1", 2, 29, 1)], 1, 100.0),
        ([failure("1", 2, "NodeLost", 35), attempt("1", 3, 29, 1)], 2, 100 * 29 / 59),
        ([attempt("1", 2, 29, 1)], 2, 100 * 29 / 59),
    ],
    ids=["the first", "between", "recorded", "forgotten too", "of one forgotten"],
)
def test_a_number_that_a_launch_took_which_failed_is_no_attempt_that_nobody_knows(
    attempts: list[str], starts: int, hours: float
) -> None:
    uses = past(*attempts, end("1", **LONG, totals={"attempts": starts})).ended()
    told = summed(uses, "user", SINCE, NOW, ())
    assert told.total.figures()["gpuHours"] == pytest.approx(hours, abs=0.01)
    assert any("Not all attempts" in note for note in told.notes) == (hours not in (100.0, 40.0))


@pytest.mark.parametrize("totals", ["3", {"attempts": "x"}, {"attempts": [1]}])
def test_a_record_whose_totals_are_none_is_passed_over(totals: Any) -> None:
    assert past(end("1", totals=totals)).ended() == []


def test_a_run_that_is_there_tells_itself_how_many_attempts_began() -> None:
    status = {"attempts": [{"number": 2, "startedAt": sample.at(60), "nodes": 1}], "totals": {"attempts": 1}}
    assert use_of(runs.view(sample.run(status=status)), NOW).is_remembered
    status["totals"] = {"attempts": 2}
    assert not use_of(runs.view(sample.run(status=status)), NOW).is_remembered


def test_a_run_that_still_trains_counts_from_then_on_until_now() -> None:
    begun = to_rfc3339(NOW - 40 * DAY)
    status = {
        "conditions": [sample.condition("Admitted", "True", "Admitted")],
        "attempts": [{"number": 1, "startedAt": begun, "nodes": 1}],
        "goodput": goodput(0, 4000, 0, 0, "80.00"),
    }
    raw = sample.run(status=status)
    raw["metadata"]["creationTimestamp"] = begun
    found = summed([use_of(runs.view(raw), NOW)], "user", SINCE, NOW, ())
    assert found.total.figures()["gpuHours"] == pytest.approx(60.0)
    assert len(found.notes) == 2


def test_a_run_that_is_still_there_counts_by_its_status() -> None:
    use = use_of(runs.view(sample.recovering()), NOW)
    assert (use.outcome, use.ended, use.namespace) == ("not ended", None, "team")
    assert use.causes.total() > 0
    failed = use_of(runs.view(sample.failed()), NOW)
    assert failed.outcome == "Failed"
    assert failed.ended is not None


@pytest.mark.parametrize(("admitted", "suspended", "more"), [(False, False, 60), (True, False, 0), (False, True, 0)])
def test_a_run_that_only_waits_has_waited_until_now(admitted: bool, suspended: bool, more: int) -> None:
    conditions = [
        sample.condition("Admitted", str(admitted), "Resources"),
        sample.condition("Suspended", str(suspended), "Suspended"),
    ]
    found = [
        use_of(runs.view(sample.run(status={"conditions": conditions})), now).seconds[Bucket.QUEUE]
        for now in (NOW, NOW + 60)
    ]
    assert found[1] - found[0] == more
    assert (found[0] > 0) == bool(more)


def test_failures_that_status_has_forgotten_are_those_of_the_history() -> None:
    use = use_of(runs.view(sample.recovering()), NOW)
    first = max(use.attempts) + 1
    lines = [failure(use.uid, number, "Hang") for number in range(first, first + 20)]
    assert past(*lines).told_of(use).causes == use.causes + Counter({"Hang": 20})
    assert past().told_of(use) == use


def test_csv_has_numbers_for_programs_and_no_formula_for_spreadsheets() -> None:
    lines = (end("1", user="=HYPERLINK(1)"), end("2", user="a,b"), failure("2", 1, "Hang"), failure("2", 2, "NodeLost"))
    header, *rows = csv.reader(as_csv(summed(past(*lines).ended(), "user", SINCE, NOW, ())).splitlines())
    assert header == ["user", *FIELDS]
    assert {row[0] for row in rows} == {"'=HYPERLINK(1)", "a,b"}
    assert {row[-1] for row in rows} == {"", "Hang=1 NodeLost=1"}


def test_json_says_the_period_and_where_it_comes_from() -> None:
    told = as_json(summed(past(end("1")).ended(), "queue", SINCE, NOW, ["by a test"]))
    assert (told["by"], told["since"], told["until"]) == ("queue", to_rfc3339(SINCE), to_rfc3339(NOW))
    assert told["rows"][0]["queue"] == "research"
    assert told["rows"][0]["gpuHours"] == told["total"]["gpuHours"] == 10.0
    assert json.dumps(told)


def test_since_is_so_long_ago_or_a_moment() -> None:
    assert begin_of("30d", NOW) == SINCE
    assert begin_of("2026-11-01T00:00:00Z", NOW) == 1_793_491_200.0
    with pytest.raises(UsageError, match="--since yesterday is no time"):
        begin_of("yesterday", NOW)


def test_since_is_in_the_past() -> None:
    for minutes in (-1, 1):
        clock = time.strftime("%H:%M", time.localtime(NOW + minutes * 60))
        assert 0 <= NOW - begin_of(clock, NOW) < DAY, "the last such"
    for days in (-2, 2):
        day = time.strftime("%m/%d", time.localtime(NOW + days * DAY))
        assert 0 <= NOW - begin_of(day, NOW) < 367 * DAY, "the last such"
    for text in ("now+2h", "2999-01-01"):
        with pytest.raises(UsageError, match="is in the future"):
            begin_of(text, NOW)
    with pytest.raises(UsageError, match="--since 30 is no time") as refused:
        begin_of("30", NOW)
    assert "write 30d, 2026-11-01," in refused.value.remedy


def types(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["report", *words])
    return int(ended.value.code or 0)


def test_files_alone_are_read_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    current, rotated = tmp_path / "history.jsonl", tmp_path / "history.jsonl.1"
    current.write_text(end("1") + "\n" + end("2", namespace="cv"))
    rotated.write_text(failure("1", 1, "NodeLost") + "\n")
    files = ["--from", str(current), "--from", str(rotated), "--offline", "--since", "2020-01-01"]
    assert types(*files, "-n", "nlp") == 0
    told = capsys.readouterr()
    assert "NodeLost 1" in told.out
    assert told.out.splitlines()[1].split()[:2] == ["ada", "1"]
    assert f"by the history in {current}" in told.err
    assert "runs that it does not have" not in told.err
    assert types(*files, "-A", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["total"]["runs"] == 2


def test_runs_that_were_deleted_before_their_end_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = tmp_path / "history.jsonl"
    lines = [end("1"), attempt("1", 1, 2, 1), attempt("2", 1, 3, 2), attempt("2", 2, 2, 1), attempt("3", 1, 2, 1)]
    history.write_text("\n".join([*lines, attempt("4", 1, 2, 1, namespace="cv")]))
    files = ["--from", str(history), "--offline", "--since", "2020-01-01"]
    assert types(*files, "-n", "nlp") == 0
    assert "Of 2 runs the history has attempts and no end, and nothing is counted: del" in capsys.readouterr().err
    assert types(*files, "-A", "-o", "json") == 0
    assert "Of 3 runs" in capsys.readouterr().out
    past = Past.read([str(history)])
    assert past.without_end("nlp", NOW - 1.5 * DAY, {"2"}) == 1
    assert past.without_end(None, NOW - 0.5 * DAY, set()) == 0


def test_lines_that_are_no_record_are_told_and_a_file_of_nothing_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, wrong, empty = (tmp_path / name for name in ("history.jsonl", "wrong.bin", "history.jsonl.1"))
    history.write_text(f"{end('1')}\n\n{{'cut\n17\n")
    wrong.write_bytes(bytes(range(256)) * 12)
    empty.touch()
    offline = ["--offline", "--since", "2020-01-01", "-n", "nlp", "--from"]
    assert types(*offline, str(history), "--from", str(empty)) == 0
    assert "2 lines of the history cannot be read as a record" in capsys.readouterr().err
    assert types(*offline, str(history), "--from", str(wrong)) == 1
    told = capsys.readouterr()
    assert f"error: {wrong} has no record of a run" in told.err
    assert "history.path" in told.err
    assert not told.out


def test_what_makes_no_sense_is_refused_with_its_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert types("--offline") == 2
    assert "leaves nothing to report" in capsys.readouterr().err
    assert types("--offline", "--from", str(tmp_path / "absent")) == 1
    assert "name files that history.path" in capsys.readouterr().err
    with pytest.raises(CliError):
        Past.read([str(tmp_path)])
