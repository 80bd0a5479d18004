"""A retry that is cut off: its manifest is never lost, nor the code that it mounts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from lockstep.api.base import names
from lockstep.cli.errors import ApiServerError, CliError, Unreachable
from lockstep.cli.submission import retry
from lockstep.cli.submission.flags import Flags
from support import sample_runs as sample
from support.cli_retry import OLD, Retried, ended, kept, retrying, with_run
from support.cli_server import CliServer


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Retried:
    return retrying(monkeypatch, tmp_path)


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
