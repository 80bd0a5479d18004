"""`lockstep submit FILE`: what is created where; of several runs all are judged before one is created."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from lockstep.api.base import names
from lockstep.cli.commands import submit as command
from lockstep.cli.errors import ApiServerError, CliError, Unreachable, UsageError
from lockstep.cli.options import Target
from lockstep.cli.submission import submit
from lockstep.cli.submission.flags import Creation, Flags, Schedule
from lockstep.cli.submission.manifests import read_manifests
from support import sample_runs as sample
from support.cli_server import CliServer


def several(path: Path, *namespaces: str) -> str:
    """A manifest of runs in these namespaces; empty: it names none."""
    documents: list[dict[str, Any]] = [
        {
            "apiVersion": names.API_VERSION,
            "kind": names.RUN_KIND,
            "metadata": {"name": f"run-{index}"} | ({"namespace": namespace} if namespace else {}),
            "spec": {"nodes": 1, "image": "x", "command": ["a"]},
        }
        for index, namespace in enumerate(namespaces)
    ]
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def submitted(server: CliServer, monkeypatch: pytest.MonkeyPatch, *arguments: str, **given: Any) -> list[str]:
    """Types `lockstep submit`; the namespaces of what came of it."""
    monkeypatch.setattr(Target, "connect", lambda self: server)
    words = {"flags": Flags(), "schedule": Schedule(), "creation": Creation(no_wait=True), **given}
    cast(Any, command.submit).__wrapped__(words.pop("target", Target()), [*arguments], None, **words)
    return [made["metadata"]["namespace"] for made in server.created]


def test_each_run_of_a_manifest_is_created_in_the_namespace_that_it_names_or_in_that_of_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = several(tmp_path / "runs.yaml", "team-a", "", "team-b", "")
    assert submitted(CliServer(), monkeypatch, path) == ["team-a", "team", "team-b", "team"]


def test_the_run_that_one_starts_from_is_looked_for_in_the_namespace_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sample.failed()
    before["status"] |= {"checkpoint": {"latest": [{"tier": "shared", "step": 400, "path": "/x/a2/step-400"}]}}
    server = CliServer({"namespaces/team-a/trainingruns/llama": before, "persistentvolumeclaims/lustre": {}})
    path = several(tmp_path / "runs.yaml", "team-a")
    assert submitted(server, monkeypatch, path, origin="llama") == ["team-a"]
    with pytest.raises(CliError, match="there is no run llama in namespace team"):
        submitted(server, monkeypatch, several(tmp_path / "runs.yaml", ""), origin="llama")


def changed_document(path: Path, index: int, **fields: Any) -> str:
    documents = list(yaml.safe_load_all(path.read_text()))
    documents[index]["spec"] |= fields
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def test_of_a_manifest_with_a_run_that_is_wrong_none_is_created_and_each_that_is_wrong_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server, path = CliServer(), tmp_path / "runs.yaml"
    several(path, "team", "team", "team")
    changed_document(path, 1, nodes=0)
    with pytest.raises(CliError, match=r"^run-1 is refused:\n  spec.nodes: "):
        submitted(server, monkeypatch, str(path))
    changed_document(path, 2, timeLimit="soon")
    for creation in (Creation(no_wait=True), Creation(dry_run="client")):
        with pytest.raises(
            CliError, match=r"^run-1 is refused:\n  spec.nodes: .*\nrun-2 is refused:\n  spec.timeLimit: "
        ):
            submitted(server, monkeypatch, str(path), creation=creation)
    assert not server.created
    assert not capsys.readouterr().out


def test_what_the_api_server_has_against_one_of_several_comes_before_any_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = CliServer({"trainingruns/run-1": sample.failed()})
    with pytest.raises(CliError, match="there is a run run-1 in namespace team already"):
        submitted(server, monkeypatch, several(tmp_path / "runs.yaml", "", "", ""))
    assert not server.created
    submit.refuse_any_wrong(server, read_manifests(str(tmp_path / "runs.yaml")), is_question=True)


def test_two_of_one_name_in_a_manifest_are_refused_unless_they_are_for_two_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, path = CliServer(), tmp_path / "runs.yaml"
    for namespaces in (("team-a", "team-b"), ("team", "")):
        several(path, *namespaces)
        path.write_text(path.read_text().replace("run-1", "run-0"))
        with nullcontext() if "" not in namespaces else pytest.raises(CliError, match="two in the manifest are called"):
            submit.refuse_any_wrong(server, read_manifests(str(path)))


def test_a_manifest_with_a_run_for_another_namespace_than_that_of_n_is_refused_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, path = CliServer(), several(tmp_path / "runs.yaml", "team", "team-a")
    with pytest.raises(UsageError, match="the manifest says namespace team-a, -n says team"):
        submitted(server, monkeypatch, path, target=Target(namespace="team"))
    assert not server.created


@pytest.mark.parametrize(
    ("refusal", "stays"),
    [
        (None, True),
        (ApiServerError(422, "it is invalid"), False),
        (ApiServerError(403, "you may not"), False),
        (ApiServerError(504, "it took too long"), True),
        (Unreachable("no answer"), True),
        (KeyboardInterrupt(), True),
    ],
)
def test_code_goes_again_only_where_the_run_that_mounts_it_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: BaseException | None, stays: bool
) -> None:
    path = several(tmp_path / "run.yaml", "")
    (tmp_path / "train.py").write_text("print(1)\n")
    server = CliServer(refusals={} if refusal is None else {"create trainingruns": refusal})
    with nullcontext() if refusal is None else pytest.raises((type(refusal), CliError)):
        submitted(server, monkeypatch, path, flags=Flags(code=str(tmp_path)))
    assert any(place.startswith("configmaps/") for place in server.objects) is stays
