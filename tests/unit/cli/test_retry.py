"""Going on after the end: what the new run is, and what cannot be gone on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.api.base import names
from lockstep.cli.errors import CliError, UsageError
from lockstep.cli.main import main
from lockstep.cli.submission.flags import Flags, Schedule
from support import sample_runs as sample
from support.cli_retry import OLD, ONE_DIRECTORY, SAVED, Retried, ended, kept, retrying, with_run
from support.cli_server import USER


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Retried:
    return retrying(monkeypatch, tmp_path)


def test_a_new_run_takes_the_place_of_the_old_one_and_goes_on_from_its_newest_checkpoint(
    retried: Retried, capsys: pytest.CaptureFixture[str]
) -> None:
    server = retried(with_run(ended(spec={"cancel": True})))
    assert server.done == ["ask", "delete", "create"]
    assert server.made["spec"] == sample.SPEC | {
        "checkpoint": {"shared": {"claimName": "lustre"}, "start": {"path": OLD}},
    }
    assert server.made["metadata"]["name"] == "llama"
    assert server.made["metadata"]["annotations"][names.ANNOTATION_USER] == USER
    (record,) = json.loads(server.made["metadata"]["annotations"][names.ANNOTATION_PREVIOUS])
    assert (record["uid"], record["outcome"], record["saved"]) == (sample.UID, "Failed", 400)
    said = capsys.readouterr()
    assert said.out == "trainingrun.lockstep.dev/llama created\n"
    assert "llama goes on from step 400 of llama." in said.err
    assert kept() == []


@pytest.mark.parametrize("form", ["name", "json"])
def test_it_is_told_when_it_is_asked_to_save_before_its_limit_as_submit_tells_it(
    retried: Retried, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    retried(with_run(ended()), schedule=Schedule(time="30m"), output=form)
    assert "Its time: 30m with its nodes; after 20m all ranks are asked to save, " in capsys.readouterr().err


def test_where_an_array_has_the_name_by_now_the_old_run_is_not_deleted(retried: Retried) -> None:
    server = with_run(ended())
    spec = {"indices": "0-3", "template": {"spec": sample.SPEC}}
    server.objects["trainingrunsets/llama"] = {"metadata": sample.run("llama")["metadata"], "spec": spec}
    with pytest.raises(CliError, match="there is an array llama"):
        retried(server)
    assert server.done == []


def test_it_is_mended_by_flags_a_command_or_a_file(retried: Retried, tmp_path: Path) -> None:
    old = ended(spec={"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]})
    made = retried(with_run(old), flags=Flags(image="new", env=["B=3", "C=4"]), schedule=Schedule(time="2h")).created[
        0
    ]["spec"]
    assert (made["nodes"], made["image"], made["timeLimit"]) == (4, "new", "2h")
    assert {each["name"]: each["value"] for each in made["env"]} == {"A": "1", "B": "3", "C": "4"}
    assert retried(with_run(old), command=["train.py", "--lr", "1e-4"]).made["spec"]["command"][-1] == "1e-4"
    file = tmp_path / "mended.yaml"
    spec = {"nodes": 2, "image": "x", "command": ["a"], "checkpoint": {"shared": {"claimName": "lustre"}}}
    file.write_text(
        yaml.safe_dump({"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": {}, "spec": spec})
    )
    server = retried(with_run(old), file=str(file))
    assert server.made["metadata"]["name"] == "llama"
    assert server.made["spec"] == spec | {"checkpoint": {"shared": {"claimName": "lustre"}, "start": {"path": OLD}}}


@pytest.mark.parametrize("name", [None, "second"])
def test_what_a_retry_would_go_on_from_and_when_it_would_start_is_asked_and_nothing_is_changed(
    retried: Retried, capsys: pytest.CaptureFixture[str], name: str | None
) -> None:
    answer = {"at": sample.at(0), "observedGeneration": 1, "priority": 12, "start": sample.at(0), "nodes": ["gpu-1"]}
    server = with_run(ended(), statuses=[{"conditions": [sample.ACCEPTED], "testOnly": answer}])
    retried(server, test_only=True, name=name)
    assert server.done == ["create", "delete"], "the question, and the question alone, is deleted"
    assert "trainingruns/llama" in server.objects
    assert server.made["metadata"]["generateName"] == f"{name or 'llama'}-test-"
    assert server.made["metadata"]["annotations"][names.ANNOTATION_TEST_ONLY] == "true"
    start = {"run": "llama"} if name else {"path": OLD}
    assert server.made["spec"]["checkpoint"]["start"] == start
    said = capsys.readouterr()
    assert said.err == f"{name or 'llama'} goes on from step 400 of llama.\n"
    assert said.out.startswith(f"{name or 'llama'} would start now on gpu-1")
    assert kept() == []


def test_a_retry_that_would_be_refused_is_said_before_the_old_run_is_touched(retried: Retried) -> None:
    refusal = sample.ACCEPTED | {"status": "False", "message": "spec.queue: there is no such queue"}
    server = with_run(ended(), statuses=[{"conditions": [refusal]}])
    with pytest.raises(CliError, match=r"would not be accepted: spec\.queue"):
        retried(server, test_only=True)
    assert "trainingruns/llama" in server.objects
    assert server.done == ["create", "delete"]


@pytest.mark.parametrize("words", [{"wait": True}, {"dry_run": "server"}])
def test_a_question_starts_nothing_and_waits_for_no_end(retried: Retried, words: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--test-only starts nothing"):
        retried(with_run(ended()), test_only=True, **words)


def test_with_a_name_of_its_own_the_old_run_stays_and_is_named(retried: Retried) -> None:
    server = retried(with_run(ended()), name="llama-2")
    assert server.done == ["create"]
    assert "trainingruns/llama" in server.objects
    assert server.made["spec"]["checkpoint"]["start"] == {"run": "llama"}


@pytest.mark.parametrize(
    ("raw", "given", "words"),
    [
        (sample.running(), {}, "llama has not ended: it is Running"),
        (
            ended(checkpoint={"latest": [{"tier": "local", "step": 7}]}),
            {},
            "step 7 of llama is on its nodes' own disks",
        ),
        (ended(checkpoint=SAVED | {"ceiling": 300}), {}, "training went wrong after step 300"),
        (
            ended(checkpoint={"unrecognised": [{"tier": "local", "path": "/local-checkpoints/x.bin"}]}),
            {},
            "what llama may have saved is on its nodes' own disks",
        ),
        (ended(), {"flags": Flags(claim="nfs")}, "saved on claim lustre, the new one on nfs"),
        (ended(), {"schedule": Schedule(dependency="aftercorr:sweep")}, "aftercorr is for arrays"),
        (ended(), {"fresh": True, "step": 3}, "--fresh begins at step 0"),
        (ended(checkpoint={}), {"step": 3}, "has no step 3"),
        (ended(spec=ONE_DIRECTORY), {"step": 300}, "step 300 of llama is in the directory that all attempts save in"),
    ],
)
def test_what_cannot_be_gone_on_from_is_said_and_nothing_is_deleted(
    retried: Retried, raw: dict[str, Any], given: dict[str, Any], words: str
) -> None:
    server = with_run(raw)
    with pytest.raises(CliError, match=words) as refused:
        retried(server, **given)
    assert refused.value.remedy
    assert server.done == []


def test_help_promises_no_default_where_the_old_run_says_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["retry", "--help"])
    of_the_run = capsys.readouterr().out.partition("--time ")[0]
    assert "Whole nodes; 1 where nothing else says it." in of_the_run
    assert "by default" not in of_the_run


@pytest.mark.parametrize(
    "text",
    ["metadata: [1]", "spec: [1]", "spec: {checkpoint: [1]}", "spec: {checkpoint: {start: [1], shared: 1}}", "{}"],
)
def test_a_file_that_makes_no_sense_is_refused_without_a_traceback(retried: Retried, tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.yaml"
    head = f"apiVersion: {names.API_VERSION}\nkind: {names.RUN_KIND}\n" if text != "{}" else ""
    file.write_text(head + text + "\n")
    server = with_run(ended())
    with pytest.raises(CliError):
        retried(server, file=str(file))
    assert server.done == []


def test_a_run_of_an_array_is_not_replaced(retried: Retried) -> None:
    raw = ended()
    raw["metadata"] = raw["metadata"] | {"ownerReferences": [{"kind": names.RUN_SET_KIND, "uid": "s", "name": "sweep"}]}
    with pytest.raises(UsageError, match="is a run of an array") as refused:
        retried(with_run(raw))
    assert "--name" in refused.value.remedy


@pytest.mark.parametrize("mended", [False, True])
def test_a_run_of_an_array_is_retried_with_its_index(retried: Retried, tmp_path: Path, mended: bool) -> None:
    shape = {names.ANNOTATION_ARRAY: "index=3 count=10 min=0 max=9", names.ANNOTATION_ARRAY_JOB: "job=12 step=1"}
    raw = ended()
    raw["metadata"] = raw["metadata"] | {"annotations": shape, "labels": {names.LABEL_INDEX: "3"}}
    file = tmp_path / "mended.yaml"
    file.write_text(
        yaml.safe_dump({"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": {}, "spec": sample.SPEC})
    )
    made = retried(with_run(raw), name="llama-r2", file=str(file) if mended else None).made["metadata"]
    assert shape.items() <= made["annotations"].items(), "its program reads it"
    assert names.LABEL_INDEX not in made.get("labels", {}), "it is none of the array"


def test_what_is_over_is_left_out_and_said(retried: Retried, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {
        "dependsOn": [{"name": "base"}],
        "notBefore": sample.at(9000),
        "deadline": "2020-01-01T00:00:00Z",
        "suspend": True,
    }
    raw = ended(spec=spec)
    raw["metadata"] = raw["metadata"] | {
        "labels": {"team": "nlp", names.LABEL_INDEX: "3"},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "note": "mine",
            "lockstep.dev/paused": "true",
        },
    }
    server = retried(with_run(raw))
    assert not {*spec} & {*server.made["spec"]}
    assert server.made["metadata"]["labels"] == {"team": "nlp"}
    assert {*server.made["metadata"]["annotations"]} == {"note", names.ANNOTATION_USER, names.ANNOTATION_PREVIOUS}
    assert "dependsOn, notBefore, deadline of llama is over and left out" in capsys.readouterr().err
