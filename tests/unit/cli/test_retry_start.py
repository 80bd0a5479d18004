"""What a retry starts from: by what was saved, by flags, and by a corrected manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.api.base import names
from lockstep.cli.errors import CliError
from support import sample_runs as sample
from support.cli_retry import OLD, ONE_DIRECTORY, SAVED, Retried, ended, ended_for, retrying, with_run

IN_PLACE = {"uid": "", "step": 30, "path": "/shared-checkpoints/team/llama/step-30"}
EARLIER = {"uid": "u-1", "step": 30, "path": "/shared-checkpoints/team/llama/u-1/a1/step-30"}


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Retried:
    return retrying(monkeypatch, tmp_path)


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
