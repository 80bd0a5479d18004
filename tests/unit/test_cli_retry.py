"""Going on after the end: what the new run is, what it starts from, and that its manifest is never lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from lockstep.api.base import names
from lockstep.cli.commands import retry as command
from lockstep.cli.commands import submit as submitting
from lockstep.cli.errors import ApiServerError, CliError, Unreachable, UsageError
from lockstep.cli.options import Target
from lockstep.cli.submission import going_on, retry
from lockstep.cli.submission.flags import Creation, Flags, Schedule
from support import sample_runs as sample
from support.cli_server import USER, CliServer

SAVED = {
    "latest": [{"tier": "shared", "step": 400, "path": f"/shared-checkpoints/team/llama/{sample.UID}/a2/step-400"}]
}
BAD = {"tier": "shared", "step": 400, "reason": "it failed soon after it was loaded"}
OLD = f"team/llama/{sample.UID}"


def ended(
    *, checkpoint: dict[str, Any] | None = SAVED, spec: dict[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    """A run that has failed."""
    raw = sample.failed()
    raw["status"] = raw["status"] | {"checkpoint": checkpoint or {}} | status
    raw["spec"] = raw["spec"] | (spec or {})
    return raw


def ended_for(reason: str, **given: Any) -> dict[str, Any]:
    raw = ended(**given)
    of_its_end = [each for each in raw["status"]["conditions"] if each["type"] == "Finished"]
    for each in of_its_end:
        each["reason"] = reason
    assert of_its_end
    return raw


def with_run(raw: dict[str, Any], **more: Any) -> CliServer:
    there = {"persistentvolumeclaims/lustre": {}, "persistentvolumeclaims/nfs": {}}
    return CliServer({"trainingruns/llama": raw, **there}, **more)


Retried = Callable[..., CliServer]


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Retried:
    """Types `lockstep retry llama`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(retry.tempfile, "gettempdir", lambda: str(tmp_path))

    def types(server: CliServer, **given: Any) -> CliServer:
        monkeypatch.setattr(Target, "connect", lambda self: server)
        flags = given.pop("flags", Flags())
        schedule = given.pop("schedule", Schedule())
        verb = cast(Any, command.retry).__wrapped__
        about = {key: given.pop(key) for key in ("wait", "test_only", "dry_run", "output") if key in given}
        creation = Creation(no_wait=not about.get("wait"), **about)
        words = {"creation": creation, "flags": flags, "schedule": schedule, **given}
        verb(Target(), words.pop("run", "llama"), words.pop("command", None), **words)
        return server

    return types


def kept() -> list[Path]:
    return list(retry._folder().glob("*.yaml"))


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


ONE_DIRECTORY = {"checkpoint": {"shared": {"claimName": "lustre"}, "layout": "Shared"}}
IN_PLACE = {"uid": "", "step": 30, "path": "/shared-checkpoints/team/llama/step-30"}
EARLIER = {"uid": "u-1", "step": 30, "path": "/shared-checkpoints/team/llama/u-1/a1/step-30"}


@pytest.mark.parametrize(
    ("checkpoint", "spec", "given", "start"),
    [
        (SAVED, {}, {"step": 300}, {"path": OLD, "step": 300}),
        (SAVED, {}, {"fresh": True}, {"mode": "Fresh"}),
        (SAVED, {"checkpoint": {"shared": {"claimName": "lustre"}, "start": {"mode": "Require"}}}, {}, None),
        ({}, {}, {}, "nothing"),
        ({"previousSaves": [EARLIER]}, {}, {}, {"path": "team/llama/u-1"}),
        ({"unrecognised": [{"tier": "shared", "path": "/x"}]}, {}, {}, {"path": OLD}),
        ({}, {"checkpoint": {"shared": {"claimName": "lustre"}, "start": {"mode": "Fresh"}}}, {}, {"mode": "Fresh"}),
        (SAVED, ONE_DIRECTORY, {}, {"path": "team/llama"}),
        (SAVED, ONE_DIRECTORY, {"step": 400}, {"path": "team/llama"}),
        (SAVED, ONE_DIRECTORY, {"step": 300, "name": "other"}, {"run": "llama", "step": 300}),
        ({"previousSaves": [IN_PLACE]}, ONE_DIRECTORY, {}, {"path": "team/llama"}),
        ({"previousSaves": [IN_PLACE | {"uid": "u-1"}]}, ONE_DIRECTORY, {}, {"path": "team/llama"}),
    ],
)
def test_what_it_starts_from(retried: Retried, checkpoint: Any, spec: Any, given: Any, start: Any) -> None:
    made = retried(with_run(ended(checkpoint=checkpoint, spec=spec)), **given).made["spec"]["checkpoint"].get("start")
    if start == "nothing":
        assert not made
    else:
        assert made == (start or {"path": OLD, "mode": "Require"})


def corrected(tmp_path: Path, start: dict[str, Any], **more: Any) -> str:
    """``-f FILE`` whose manifest says what to start from."""
    checkpoint = {"shared": {"claimName": "lustre"}, "start": start, **more}
    manifest = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": {}}
    file = tmp_path / "corrected.yaml"
    file.write_text(yaml.safe_dump(manifest | {"spec": sample.SPEC | {"checkpoint": checkpoint}}))
    return str(file)


UNKNOWN = {"unrecognised": [{"tier": "shared", "path": "/shared-checkpoints/team/llama/model.bin"}]}


@pytest.mark.parametrize(
    ("checkpoint", "says", "given", "start"),
    [
        # What the run has saved itself comes first, as it does from attempt to attempt.
        (SAVED, {"run": "base"}, {}, {"path": OLD}),
        (SAVED, {"path": "team/base", "step": 12, "acceptCopy": True}, {}, {"path": OLD}),
        (SAVED, {"mode": "Fresh"}, {}, {"path": OLD}),
        (SAVED, {"run": "base", "mode": "Require"}, {}, {"path": OLD, "mode": "Require"}),
        (SAVED, {"run": "base"}, {"step": 300}, {"path": OLD, "step": 300}),
        (SAVED, {"run": "base"}, {"fresh": True}, {"mode": "Fresh"}),
        (SAVED, {"run": "base"}, {"name": "next"}, {"run": "llama"}),
        (UNKNOWN, {"run": "base"}, {}, {"run": "base"}),
        (UNKNOWN, {"mode": "Fresh"}, {}, {"mode": "Fresh"}),
        (UNKNOWN, {}, {}, {"path": OLD}),
        # It is what the manifest names.
        (SAVED, {"run": "llama"}, {}, {"path": OLD}),
        (SAVED, {"path": OLD, "step": 300, "acceptCopy": True}, {}, {"path": OLD, "step": 300, "acceptCopy": True}),
        (SAVED, {"path": OLD, "step": 300}, {"step": 200}, {"path": OLD, "step": 200}),
        # It has saved nothing.
        ({}, {"run": "base"}, {}, {"run": "base"}),
        ({}, {"mode": "Fresh"}, {}, {"mode": "Fresh"}),
        ({"previousSaves": [EARLIER]}, {"run": "base"}, {}, {"run": "base"}),
    ],
)
def test_what_a_corrected_manifest_says_to_start_from_is_for_a_run_that_has_saved_nothing(
    retried: Retried, tmp_path: Path, checkpoint: Any, says: Any, given: Any, start: Any
) -> None:
    server = retried(with_run(ended(checkpoint=checkpoint)), file=corrected(tmp_path, says), **given)
    assert server.made["spec"]["checkpoint"]["start"] == start


@pytest.mark.parametrize(
    ("says", "given", "start"),
    [
        ({"path": "team/restored"}, {}, {"path": "team/restored"}),
        ({"run": "base", "step": 12}, {}, {"run": "base", "step": 12}),
        ({"path": "team/base"}, {}, {"path": OLD}),  # as it was, so that nothing is meant by it
        ({"path": OLD}, {}, {"path": OLD}),
        ({"mode": "Fresh"}, {}, {"path": OLD}),
        ({"path": "team/restored"}, {"step": 300}, {"path": OLD, "step": 300}),
        ({"path": "team/restored"}, {"trustTimes": False}, {"path": OLD}),
    ],
)
def test_where_nothing_that_it_saved_was_valid_a_corrected_manifest_says_from_where_else(
    retried: Retried, tmp_path: Path, says: Any, given: dict[str, Any], start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"checkpoint": {"shared": {"claimName": "lustre"}, "start": {"path": "team/base"}}}
    raw = ended_for("NoValidCheckpoint", spec=spec)
    raw["status"]["previous"] = [{"name": "base", "uid": "uid-base"}]  # as of any that starts from another
    more = {name: given.pop(name) for name in ("trustTimes",) if name in given}
    server = retried(with_run(raw), file=corrected(tmp_path, says, **more), **given)
    assert server.made["spec"]["checkpoint"]["start"] == start
    assert ("nothing that llama saved was valid" in capsys.readouterr().err) == (start == says != {"path": OLD})


def test_what_a_retry_itself_began_from_is_no_place_that_a_manifest_corrects(retried: Retried, tmp_path: Path) -> None:
    spec = {"checkpoint": {"shared": {"claimName": "lustre"}, "start": {"path": "team/llama/uid-0"}}}
    raw = ended_for("NoValidCheckpoint", spec=spec)
    raw["metadata"]["annotations"] = {names.ANNOTATION_PREVIOUS: '[{"name": "llama", "uid": "uid-0"}]'}
    server = retried(with_run(raw), file=corrected(tmp_path, {"run": "base"}))
    assert server.made["spec"]["checkpoint"]["start"] == {"path": OLD}


def test_what_a_manifest_comes_to_is_said_before_anything_is_deleted(
    retried: Retried, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server, said = with_run(ended()), list[str]()
    delete = server.delete

    def deletes(*given: Any) -> None:
        said.append(capsys.readouterr().err)
        delete(*given)

    monkeypatch.setattr(server, "delete", deletes)
    retried(server, file=corrected(tmp_path, {"run": "base"}))
    assert "is for one that has saved nothing." in said[0]
    assert "goes on from" not in capsys.readouterr().err, "once is enough"


@pytest.mark.parametrize("says", [{"run": "base"}, {"path": "team/base"}, {"mode": "Fresh"}])
def test_a_step_that_would_not_be_used_is_refused_and_nothing_is_deleted(
    retried: Retried, tmp_path: Path, says: dict[str, Any]
) -> None:
    server = with_run(ended(checkpoint={}))
    with pytest.raises(CliError, match="--step 300 is not used"):
        retried(server, file=corrected(tmp_path, says), step=300)
    assert server.done == []


def test_that_a_manifest_is_not_followed_is_told(
    retried: Retried, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    retried(with_run(ended()), file=corrected(tmp_path, {"run": "base"}))
    said = capsys.readouterr().err
    assert "goes on from step 400 of llama; its manifest (goes on from base) is for one that has saved nothing." in said


@pytest.mark.parametrize(
    ("reason", "given", "start"),
    [
        ("NoStartCheckpoint", {}, {"path": "team/base/u-0"}),
        ("NoStartCheckpoint", {"step": 250}, {"path": "team/base/u-0", "step": 250}),
        ("OutOfMemory", {}, {"path": "team/base/u-0", "step": 300}),
    ],
)
def test_a_step_that_was_not_to_be_had_is_not_asked_for_again(
    retried: Retried, reason: str, given: dict[str, Any], start: dict[str, Any]
) -> None:
    spec = {"checkpoint": {"shared": {"claimName": "lustre"}, "start": {"path": "team/base/u-0", "step": 300}}}
    raw = ended_for(reason, checkpoint={}, spec=spec, resolved={"startRoot": "/shared-checkpoints/team/base/u-0"})
    assert retried(with_run(raw), **given).made["spec"]["checkpoint"]["start"] == start


def test_one_that_saved_nothing_itself_is_tried_from_where_it_was_to_start(retried: Retried) -> None:
    resolved = {"startRoot": "/shared-checkpoints/team/base/u-0", "startRun": "base", "startRunUid": "u-0"}
    spec = {"checkpoint": {"shared": {"claimName": "lustre"}, "start": {"run": "base", "step": 12}}}
    server = retried(with_run(ended(checkpoint={}, spec=spec, resolved=resolved)))
    assert server.made["spec"]["checkpoint"]["start"] == {"path": "team/base/u-0", "step": 12}


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


@pytest.mark.parametrize(
    ("step", "failure", "is_lost"),
    [
        ("ask", ApiServerError(422, "spec.image: too long"), False),
        ("delete", ApiServerError(403, "you may not"), False),
        ("delete", Unreachable("no answer"), True),
        ("delete", ApiServerError(504, "it took too long"), True),
        ("create", ApiServerError(500, "no"), True),
        ("create", Unreachable("no answer"), True),
        ("create", KeyboardInterrupt(), True),
    ],
)
def test_whatever_fails_the_manifest_is_kept_and_the_next_command_named(
    retried: Retried,
    capsys: pytest.CaptureFixture[str],
    step: str,
    failure: BaseException,
    is_lost: bool,
) -> None:
    server = with_run(ended(), refusals={step: failure})
    with pytest.raises(type(failure)):
        retried(server)
    assert bool(kept()) is is_lost
    if not is_lost:
        assert "trainingruns/llama" in server.objects
        return
    (file,) = kept()
    assert file.stat().st_mode & 0o077 == 0, "there may be secrets in it"
    assert f"lockstep submit {file}" in capsys.readouterr().err
    manifest = yaml.safe_load(file.read_text())
    assert manifest["spec"]["checkpoint"]["start"] == {"path": OLD}
    assert (manifest["metadata"]["name"], manifest["metadata"]["namespace"]) == ("llama", "team")
    if step == "create":  # and whoever types it once more is told
        with pytest.raises(CliError, match="a retry of it was cut off") as told:
            retried(server)
        assert str(file) in told.value.remedy


def a_link(file: Path) -> None:
    file.rename(file.with_suffix(".x"))
    file.symlink_to(file.with_suffix(".x"))


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.chmod(0o666),
        lambda file: file.parent.chmod(0o777),
        lambda file: os.chown(file, 12345, -1),
        lambda file: os.chown(file.parent, 12345, -1),
        a_link,
        lambda file: a_link(file.parent),
    ],
    ids=["a file for all", "a folder for all", "a stranger's file", "a stranger's folder", "a link", "a linked folder"],
)
def test_nobody_is_pointed_to_a_manifest_that_others_may_have_written(
    retried: Retried, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    monkeypatch.setattr(retry, "_fallback", lambda: tmp_path / "of-all" / "lockstep-retry")
    server = with_run(ended(), refusals={"create": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        retried(server)
    with pytest.raises(CliError, match="a retry of it was cut off"):
        retried(server)
    try:
        change(next((tmp_path / "of-all" / "lockstep-retry").glob("*.yaml")))
    except PermissionError:
        pytest.skip("only root may give files away")
    with pytest.raises(CliError, match="there is no run") as told:
        retried(server)
    assert "cut off" not in str(told.value)


@pytest.mark.parametrize("name", ["ll**ama", "a/../b", "[x"])
def test_an_odd_name_is_just_one_that_there_is_not(retried: Retried, name: str) -> None:
    with pytest.raises(CliError, match="there is no run"):
        retried(CliServer(), run=name)


def test_a_server_that_does_not_answer_says_nothing_of_a_run(
    retried: Retried,
) -> None:
    server = with_run(ended(), refusals={"create": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        retried(server)
    assert kept()
    server.refusals["get"] = Unreachable("no answer")
    with pytest.raises(Unreachable):
        retried(server)


def test_without_a_place_for_the_manifest_nothing_is_deleted(retried: Retried, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    monkeypatch.setattr(retry, "_fallback", lambda: Path("/proc/neither"))
    server = with_run(ended())
    with pytest.raises(CliError, match="can be kept neither in"):
        retried(server)
    assert "trainingruns/llama" in server.objects


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


def test_submit_from_a_run_names_it_and_takes_its_claim_where_the_new_one_has_none() -> None:
    manifest = Flags(image="x", command=["a"]).manifest("next")
    going_on.start_from(manifest, ended())
    assert manifest["spec"]["checkpoint"] == {"shared": {"claimName": "lustre"}, "start": {"run": "llama"}}


def test_submit_from_a_run_takes_the_step_that_its_manifest_names_whatever_came_of_it() -> None:
    manifest = Flags(image="x", command=["a"]).manifest("next")
    manifest["spec"]["checkpoint"] = {"shared": {"claimName": "lustre"}, "start": {"step": 400}}
    going_on.start_from(manifest, ended(checkpoint=SAVED | {"quarantined": [BAD]}))
    assert manifest["spec"]["checkpoint"]["start"] == {"run": "llama", "step": 400}


@pytest.mark.parametrize("array", ["", "0-3"])
def test_submit_takes_from_as_a_flag_for_runs_and_arrays(monkeypatch: pytest.MonkeyPatch, array: str) -> None:
    server = with_run(ended())
    monkeypatch.setattr(Target, "connect", lambda self: server)
    verb = cast(Any, submitting.submit).__wrapped__
    words: Any = {
        "flags": Flags(image="x"),
        "schedule": Schedule(),
        "origin": "llama",
        "creation": Creation(no_wait=True),
    }
    verb(Target(), ["a"], "next", array=array, **words)
    spec = server.made["spec"]["template"]["spec"] if array else server.made["spec"]
    assert spec["checkpoint"]["start"] == {"run": "llama"}
    assert server.done == ["create"]


@pytest.mark.parametrize(
    ("raw", "name", "checkpoint", "words"),
    [
        (ended(checkpoint={}), "next", None, "has saved nothing in a shared tier"),
        (ended(), "llama", None, "cannot start from itself"),
        (ended(checkpoint=SAVED | {"ceiling": 300}), "next", None, "went wrong after step 300 of llama"),
        (ended(checkpoint=SAVED | {"quarantined": [BAD]}), "next", None, "is in quarantine: it failed"),
        (ended(), "next", {"shared": {"claimName": "nfs"}}, "saved on claim lustre, the new one on nfs"),
        (ended(), "next", {"local": {"storage": "nvme"}}, "the new one names no shared tier"),
        (
            ended(),
            "next",
            {"shared": {"claimName": "lustre"}, "start": {"path": "a/b"}},
            "by its manifest it goes on from a/b",
        ),
    ],
)
def test_submit_from_a_run_that_it_cannot_start_from_is_refused(
    raw: dict[str, Any], name: str, checkpoint: Any, words: str
) -> None:
    manifest = Flags(image="x", command=["a"]).manifest(name)
    if checkpoint is not None:
        manifest["spec"]["checkpoint"] = checkpoint
    with pytest.raises(CliError, match=words):
        going_on.start_from(manifest, raw)


def mounted(manifest: dict[str, Any]) -> str:
    """The ConfigMap of its code."""
    [source] = manifest["spec"]["volumes"][-1]["projected"]["sources"]
    return cast(str, source["configMap"]["name"])


def test_code_goes_along_with_a_retry(retried: Retried, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    server = retried(with_run(ended()), flags=Flags(code=str(tmp_path)), command=["python3", "train.py"])
    made = server.made["spec"]
    assert made["workingDir"] == "/code"
    [source] = made["volumes"][-1]["projected"]["sources"]
    assert [item["path"] for item in source["configMap"]["items"]] == ["train.py"]
    [owner] = server.objects[f"configmaps/{mounted(server.made)}"]["metadata"]["ownerReferences"]
    assert owner["uid"] == server.made["metadata"]["uid"]


@pytest.mark.parametrize(
    ("step", "failure", "stays"),
    [
        ("ask", ApiServerError(422, "spec.image: too long"), False),
        ("ask", KeyboardInterrupt(), False),
        ("delete trainingruns", ApiServerError(403, "you may not"), False),
        ("delete trainingruns", Unreachable("no answer"), True),
        ("delete trainingruns", ApiServerError(504, "it took too long"), True),
        ("delete trainingruns", KeyboardInterrupt(), True),
        ("create trainingruns", ApiServerError(403, "no more of them"), True),
        ("create trainingruns", ApiServerError(500, "no"), True),
        ("create trainingruns", KeyboardInterrupt(), True),
    ],
)
def test_whatever_fails_the_code_is_kept_as_long_as_the_manifest_that_mounts_it(
    retried: Retried, tmp_path: Path, capsys: pytest.CaptureFixture[str], step: str, failure: BaseException, stays: bool
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text("print(1)\n")
    server = with_run(ended(), refusals={step: failure})
    with pytest.raises((type(failure), CliError)):
        retried(server, flags=Flags(code=str(source)))
    maps = [place for place in server.objects if place.startswith("configmaps/")]
    assert bool(maps) is bool(kept()) is stays
    if stays:
        (file,) = kept()
        assert maps == [f"configmaps/{mounted(yaml.safe_load(file.read_text()))}"]
        assert f"Its code stays in ConfigMap {maps[0].partition('/')[2]}" in capsys.readouterr().err


def test_an_object_that_is_not_gone_in_time_costs_no_code(
    retried: Retried, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "GONE_WITHIN", 0.01)
    monkeypatch.setattr(retry, "_LOOK_EVERY", 0.0)
    monkeypatch.setattr(retry, "_delete", lambda *about: None)
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text("print(1)\n")
    server = with_run(ended())
    with pytest.raises(CliError, match="its object is not gone"):
        retried(server, flags=Flags(code=str(source)))
    assert [place for place in server.objects if place.startswith("configmaps/")]


@pytest.mark.parametrize(("status", "whose"), [(403, [sample.UID]), (504, [])])
def test_code_is_the_old_runs_again_where_its_deletion_is_refused(
    retried: Retried, status: int, whose: list[str]
) -> None:
    name = "llama-code-abcde"
    volume = {"name": "code", "mountPath": "/code", "projected": {"sources": [{"configMap": {"name": name}}]}}
    owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "name": "llama", "uid": sample.UID}
    about = {"name": name, "uid": "c", "resourceVersion": "1", "labels": {"lockstep.dev/code": "true"}}
    server = with_run(ended(spec={"volumes": [volume]}), refusals={"delete": ApiServerError(status, "no")})
    server.objects[f"configmaps/{name}"] = {"metadata": about | {"ownerReferences": [owner]}}
    with pytest.raises(ApiServerError):
        retried(server)
    found = server.objects[f"configmaps/{name}"]["metadata"]["ownerReferences"]
    assert [each["uid"] for each in found] == whose
