"""Times and dependencies as Slurm's users write them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.cli.errors import UsageError
from lockstep.cli.main import main
from lockstep.cli.submission import slurm_syntax
from lockstep.cli.submission.flags import Schedule

HELLO = str(Path(__file__).parents[3] / "manifests" / "hello.yaml")
NOW = 1_795_000_000.0  # 2026-11-18T11:06:40Z


@pytest.fixture(autouse=True)
def _two_hours_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "EET-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("words", "duration"),
    [
        ("2h", "2h"), ("36h", "1d12h"), ("90", "1h30m"), ("1:30", "1m30s"), ("1:30:00", "1h30m"),
        ("2-12", "2d12h"), ("2-12:30", "2d12h30m"), ("2-00:00:05", "2d5s"),
    ],
)  # fmt: skip
def test_a_time_limit_reads_as_in_slurm_or_as_in_the_api(words: str, duration: str) -> None:
    assert slurm_syntax.time_limit("--time", words) == duration


@pytest.mark.parametrize("words", ["", "h2", "1:2:3:4", "-5", "2 h", "1-", "unlimited"])
def test_a_time_limit_that_is_none_is_refused_with_both_forms(words: str) -> None:
    with pytest.raises(UsageError, match="units d, h, m, s") as refused:
        slurm_syntax.time_limit("--time", words)
    assert "2-12:00" in refused.value.remedy


@pytest.mark.parametrize(
    ("words", "moment"),
    [
        ("2026-12-01T08:00:00Z", "2026-12-01T08:00:00Z"),
        ("2026-12-01T08:00", "2026-12-01T06:00:00Z"),
        ("2026-12-01", "2026-11-30T22:00:00Z"),
        ("14:00", "2026-11-18T12:00:00Z"),
        ("13:00:30", "2026-11-19T11:00:30Z"),
        ("now", "2026-11-18T11:06:40Z"),
        ("now+60", "2026-11-18T11:07:40Z"),
        ("now+2hours", "2026-11-18T13:06:40Z"),
        ("now+1h30m", "2026-11-18T12:36:40Z"),
        ("now+1week", "2026-11-25T11:06:40Z"),
        ("2026-12-01T08:00:00-05:00", "2026-12-01T13:00:00Z"),
        ("2026-12-01 08:00", "2026-12-01T06:00:00Z"),
        ("tomorrow", "2026-11-18T22:00:00Z"),
        ("4:00PM", "2026-11-18T14:00:00Z"),
        ("noon 01/20/27", "2027-01-20T10:00:00Z"),
    ],
)
def test_a_moment_is_local_time_unless_it_says_otherwise(words: str, moment: str) -> None:
    assert slurm_syntax.moment("--begin", words, NOW) == moment


@pytest.mark.parametrize("words", ["", "soon", "25:00", "2026-13-01", "now+soon", "16"])
def test_a_moment_that_is_none_is_refused_with_a_remedy(words: str) -> None:
    with pytest.raises(UsageError) as refused:
        slurm_syntax.moment("--begin", words, NOW)
    assert "now+" in refused.value.remedy


def test_dependencies_are_those_of_slurm_by_name() -> None:
    assert slurm_syntax.dependencies("afterok:a:b,afterany:c,afternotok:d,after:e,singleton=w") == {
        "dependsOn": [
            {"name": "a", "condition": "Succeeded"},
            {"name": "b", "condition": "Succeeded"},
            {"name": "c", "condition": "Finished"},
            {"name": "d", "condition": "Failed"},
            {"name": "e", "condition": "Started"},
        ],
        "singleton": "w",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("afterok", "names no run"), ("afterok:", "names no run"), ("afterok:a::b", "names no run"),
        ("afterok:a?afterok:b", "not any"), ("after:a+5", "on top"), ("aftercorr:a:b", "several sets"),
        ("before:a", "is none"), ("singleton", "names no word"), ("singleton=", "names no word"),
        ("afterok:a,after:a", "names a twice"),
    ],
)  # fmt: skip
def test_a_dependency_that_is_none_is_refused(words: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        slurm_syntax.dependencies(words)


def test_every_flag_is_a_field_that_the_spec_has() -> None:
    schedule = Schedule("2h", "1h", "production", 5, "now", "now+1week", "afterok:a,singleton=w", hold=True)
    fields = schedule.fields(NOW)
    assert set(fields) == {
        *("timeLimit", "minTimeLimit", "priorityClassName", "nice", "notBefore", "deadline"),
        *("dependsOn", "singleton", "suspend"),
    }
    spec = TrainingRunSpec.model_validate({"nodes": 1, "image": "X", "command": ["true"], **fields})
    assert (spec.time_limit, spec.nice, spec.suspend) == ("2h", 5, True)
    assert Schedule().fields(NOW) == {}


@pytest.mark.parametrize("spec", [None, {"nodes": 2}, [1]])
def test_flags_go_before_what_the_manifest_says_and_leave_nonsense_to_others(spec: Any) -> None:
    manifest = {"spec": spec}
    Schedule(nice=0).put_into(manifest, NOW)
    assert manifest["spec"] == (spec if isinstance(spec, list) else {**(spec or {}), "nice": 0})


def test_they_may_be_said_beside_a_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["submit", HELLO, "--dry-run=client", "-t", "1-12", "-H", "--dependency", "afterany:first"])
    spec = yaml.safe_load(capsys.readouterr().out)["spec"]
    assert (spec["timeLimit"], spec["suspend"], spec["nodes"]) == ("1d12h", True, 2)
    assert spec["dependsOn"] == [{"name": "first", "condition": "Finished"}]


@pytest.mark.parametrize(
    "flags", [("--test-only", "--wait"), ("--test-only", "--dry-run=server"), ("--begin", "soon"), ("-t", "x")]
)
def test_flags_that_make_no_sense_are_usage_errors(flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["submit", HELLO, *flags])
    assert capsys.readouterr().err.startswith("error: ")
