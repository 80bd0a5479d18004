"""The job that copies checkpoints: its name, its body, and what is believed of its last words."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.checkpoint_spec import ArchiveTier, RetentionSpec
from lockstep.api.checkpoint_status import ArchiveJobStatus
from lockstep.archive import outcomes
from lockstep.core.checkpoints.archive_job import (
    FINAL_CODES,
    LIST,
    MAX_TOLD,
    PRUNE,
    RESTORE,
    RESULT_FORMAT,
    TIDY,
    UPLOAD,
    is_removal,
    job_body,
    job_name,
    options_told,
    parse_result,
    retention_arguments,
)
from lockstep.core.model.settings import ArchiveSettings
from lockstep.core.model.snapshot import RunView
from support.archive_plans import run_of
from support.world import spec, world

COPY = {"step": 5, "attempt": 1}


@pytest.mark.parametrize(
    ("fields", "believed"),
    [
        ({}, True),
        ({"checkpoint": COPY}, True),
        ({"checkpoint": {**COPY, "step": -1}}, False),
        ({"checkpoint": {**COPY, "step": 2**53 + 1}}, False),
        ({"checkpoint": {"step": 5}}, False),
        ({"checkpoint": {**COPY, "step": "5"}}, False),
        ({"checkpoint": {**COPY, "world": 2**20 + 1}}, False),
        ({"format": "lockstep-archive-job/2"}, False),
        ({"published": 3}, False),
        ({"message": float("nan")}, False),
        ({"message": "\ud800"}, False),
    ],
)
def test_last_words_are_believed_only_where_they_fit_into_status(fields: dict[str, Any], believed: bool) -> None:
    text = json.dumps({"format": RESULT_FORMAT, "outcome": "Done", **fields})
    assert (parse_result(text) is not None) is believed


@pytest.mark.parametrize(
    "field",
    [
        '"checkpoint": {"bytes": Infinity}',
        '"checkpoint": {"bytes": 1%s}' % ("0" * 30),
        '"message": "\\udc80"',
        '"published": [{"step": 1, "attempt": -1}]',
        '"published": [{"step": 1, "attempt": 1, "time": NaN}]',
        '"published": [{"step": 1, "attempt": 1, "time": 999999999999999}]',
        '"published": %s' % ("[" * 4000),
    ],
)
def test_last_words_that_do_not_fit_into_status_are_none(field: str) -> None:
    assert parse_result(f'{{"format": "{RESULT_FORMAT}", "outcome": "Done", {field}}}') is None


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"format": "lockstep-archive-job/1"', "[" * 100_000])
def test_words_of_another_form_say_nothing(text: str) -> None:
    assert parse_result(text) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', '{"format": "lockstep-archive-job/1"}', "null"])
def test_a_message_of_another_form_is_no_result(text: str) -> None:
    assert parse_result(text) is None


def test_so_many_copies_are_told_of_and_an_unknown_format_is_none() -> None:
    published = [{**COPY, "format": "made-up"}] * (MAX_TOLD + 1)
    result = parse_result(json.dumps({"format": RESULT_FORMAT, "outcome": "Done", "published": published}))
    assert result is not None
    assert result.published is not None
    assert [copy.format for copy in result.published] == [""] * MAX_TOLD


ARCHIVE = ArchiveTier(uri="s3://bucket/runs")


def run(name: str = "one", **checkpoint: object) -> RunView:
    w = world(1)
    tiers = {"shared": {"claimName": "lustre"}, "archive": {"uri": "s3://bucket/runs"}, **checkpoint}
    return w.apply(name, spec(1, checkpoint=tiers))


@pytest.mark.parametrize(
    ("action", "failures", "fetched", "end"),
    [
        (UPLOAD, 0, 0, "PLACE-archive-2-7"),
        (UPLOAD, 3, 9, "PLACE-archive-2-7-3"),
        (RESTORE, 0, 0, "PLACE-restore-2-7"),
        (RESTORE, 3, 1, "PLACE-restore-2-7-n1-3"),
        (LIST, 0, 0, "PLACE-archive-list"),
        (LIST, 0, 2, "PLACE-archive-list-n2"),
        (TIDY, 0, 9, "tidy-2-7"),
        (TIDY, 1764346000, 9, "tidy-2-7-1764346000"),
        (PRUNE, 1764346000, 9, "PLACE-prune-2-7-1764346000"),
    ],
)
def test_the_same_work_has_the_same_name_and_it_fits(action: str, failures: int, fetched: int, end: str) -> None:
    end = end.replace("PLACE", "9bcadf")
    assert job_name(run(), ARCHIVE, action, 2, 7, failures, fetched) == f"one-uid-o-{end}"
    long = job_name(run("x" * 52 + ".y-z"), ARCHIVE, action, 2, 7, failures, fetched)
    assert len(long) <= 63
    assert long.endswith(end)


@pytest.mark.parametrize(("action", "names"), [(UPLOAD, 3), (RESTORE, 3), (LIST, 3), (PRUNE, 3), (TIDY, 1)])
def test_the_same_work_for_another_archive_has_another_name(action: str, names: int) -> None:
    moved = ArchiveTier(uri="s3://bucket/other")
    elsewhere = ArchiveTier(uri="s3://bucket/runs", endpoint="https://minio.example")
    assert len({job_name(run(), archive, action, 2, 7, 0) for archive in (ARCHIVE, moved, elsewhere)}) == names


def test_job_names_fit_their_label_and_still_tell_the_work_apart() -> None:
    run, tier = replace(run_of(), name="r" * 40), ArchiveTier(uri="s3://golden/llama")
    names = {job_name(run, tier, "Upload", 2, step, failures) for step in (10**15, 10**15 + 1) for failures in (0, 1)}
    assert len(names) == 4
    assert all(len(name) <= 63 for name in names)


@pytest.mark.parametrize(
    ("action", "first", "read_only"),
    [
        (UPLOAD, "upload", True),
        (RESTORE, "restore", False),
        (LIST, "list", True),
        (TIDY, "prune", False),
        (PRUNE, "prune", True),
    ],
)
def test_only_what_writes_to_the_shared_tier_may(action: str, first: str, read_only: bool) -> None:
    tier = {"uri": "s3://bucket/runs", "retention": {"keepLast": 1}}
    view = run(retention={"keepLast": 3}, archive=tier)
    assert view.spec is not None
    assert view.spec.checkpoint is not None
    work = ArchiveJobStatus(name="job", action=action, step=7, attempt=2, path="/shared/7")
    body = job_body(view, view.spec.checkpoint.archive, work, ArchiveSettings(image="op"))
    (container,) = body["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == first
    assert container["volumeMounts"][0]["readOnly"] is read_only
    assert body["metadata"]["ownerReferences"][0]["uid"] == view.uid
    kept = {(TIDY, "3"), (PRUNE, "2")}
    assert {(action, word) for option, word in options_told(container["args"]) if option == "--keep-last"} <= kept
    assert is_removal(container["args"]) is (action in (TIDY, PRUNE)) is ("--keep-last" in container["args"])


def test_the_job_gives_up_on_exactly_the_codes_that_the_program_calls_final() -> None:
    assert FINAL_CODES == outcomes.FINAL_CODES
    assert len({reason.exit_code for reason in outcomes.REASONS}) == len(outcomes.REASONS)


@pytest.mark.parametrize(("checkpoint", "told"), [({}, None), ({"trustTimes": False}, "no")])
def test_the_job_judges_by_times_where_the_run_does(checkpoint: dict[str, object], told: str | None) -> None:
    view = run(**checkpoint)
    work = ArchiveJobStatus(name="job", action=UPLOAD, step=7, attempt=2, path="/shared/7")
    assert view.spec is not None
    assert view.spec.checkpoint is not None
    body = job_body(view, view.spec.checkpoint.archive, work, ArchiveSettings(image="op"))
    (container,) = body["spec"]["template"]["spec"]["containers"]
    assert {each["name"]: each["value"] for each in container["env"]}.get("LOCKSTEP_TRUST_TIMES") == told


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        ({"keepLast": 3}, ["--keep-last", "3"]),
        ({"keepLast": 1}, ["--keep-last", "2"]),
        ({"keepLast": 3, "keepEvery": 100}, ["--keep-last", "3", "--keep-every", "100"]),
        ({"keepLast": 3, "keepFor": "2h"}, ["--keep-last", "3", "--keep-for", "7200s"]),
    ],
)
def test_the_policy_is_told_as_the_program_reads_it(retention: dict[str, Any], words: list[str]) -> None:
    assert retention_arguments(RetentionSpec.model_validate(retention)) == words
