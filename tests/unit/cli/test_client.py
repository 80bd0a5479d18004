"""Which cluster is asked, and what it says no with, in the words that a user is shown."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from lockstep.cli.client import Cluster, _api_error, connect
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.submission.refusals import in_fields

NAME_RULE = "metadata.name must be at most 40 lower case letters, digits and '-'; shorten it"
UNCHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)
NODES = "Invalid value: 0: spec.nodes in body should be greater than or equal to 1"


class Server:
    """Answers everything with one Status."""

    def __init__(self, message: str, causes: list[tuple[str, str]]) -> None:
        details = {"name": "llama", "causes": [{"field": field, "message": words} for field, words in causes]}
        self.said = json.dumps({"kind": "Status", "message": message, "details": details}).encode()

    def param_serialize(self, *_: Any, **__: Any) -> tuple[Any, ...]:
        return "POST", "url", {}

    def call_api(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(status=422, read=lambda: self.said, close=lambda: None)


def refusal(message: str, *causes: tuple[str, str]) -> ApiServerError:
    with pytest.raises(ApiServerError) as refused:
        Cluster(Server(message, list(causes)), "team").merge_patch("path", {})
    return refused.value


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f"llama is invalid: <nil>: Invalid value: {NAME_RULE}", f"llama is invalid: {NAME_RULE}"),
        (f'llama is invalid: <nil>: Invalid value: "object": {NAME_RULE}', f"llama is invalid: {NAME_RULE}"),
        (f"llama is invalid: [spec.nodes: {NODES}, <nil>: {UNCHECKED}]", f"llama is invalid: [spec.nodes: {NODES}]"),
        ("the object has been modified", "the object has been modified"),
    ],
)
def test_what_is_said_of_the_whole_object_stands_behind_no_placeholder(said: str, told: str) -> None:
    assert str(refusal(said)) == told


def test_a_refused_run_is_told_its_fields_and_rules_and_not_what_was_left_unchecked() -> None:
    error = refusal("", ("spec.nodes", NODES), ("<nil>", f"Invalid value: {NAME_RULE}"), ("<nil>", UNCHECKED))
    manifest = {"kind": "TrainingRun", "metadata": {"name": "llama"}}
    assert str(in_fields(error, manifest, "team")).splitlines() == [
        "llama is refused:",
        "  spec.nodes: is too small; write 1 or more",
        f"  {NAME_RULE}",
    ]


@pytest.mark.parametrize(
    ("scope", "remedy"), [(' in the namespace "x"', "the role edit in the namespace"), (" at the cluster scope", "-n")]
)
def test_a_right_that_lacks_is_named_where_it_lacks(scope: str, remedy: str) -> None:
    message = f'trainingruns.lockstep.dev is forbidden: User "ann" cannot list resource{scope}'
    said = _api_error(403, {"message": message, "reason": "Forbidden", "details": {"name": ""}})
    assert remedy in said.remedy
    assert ("ClusterRoleBinding" in said.remedy) is ("cluster scope" in scope)


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b'{"kind":', b"<html>log in</html>", b'"x"', b"\xff\x00", b"null"]
)
def test_what_is_no_answer_of_an_api_server_is_said_to_be_none(answer: bytes) -> None:
    def chunks(size: int) -> Any:
        yield answer + b"\n"

    api = SimpleNamespace(
        configuration=SimpleNamespace(host="https://there"),
        param_serialize=lambda *_, **__: ("GET", "url", {}),
        call_api=lambda *_, **__: SimpleNamespace(
            status=200, read=lambda: answer, close=lambda: None, response=SimpleNamespace(stream=chunks)
        ),
    )
    cluster = Cluster(api, "team")
    for ask in (cluster.get, cluster.list):
        with pytest.raises(CliError, match="is no API server"):
            ask("path")
    with pytest.raises(CliError, match="is no API server"):
        list(cluster.watch("path", seconds=1))


def kubeconfig(path: Path, *contexts: str, **more: Any) -> str:
    """A file that knows these contexts: the server, user and namespace of each have its name."""
    content: dict[str, Any] = {
        "contexts": [{"name": it, "context": {"cluster": it, "user": it, "namespace": f"of-{it}"}} for it in contexts],
        "clusters": [{"name": it, "cluster": {"server": f"http://{path.name}.{it}"}} for it in contexts],
        "users": [{"name": it, "user": {"token": f"{path.name}.{it}"}} for it in contexts],
    }
    path.write_text(yaml.safe_dump(content | more))
    return str(path)


@pytest.mark.parametrize(
    ("first", "second", "context", "chosen"),
    [
        ({"current-context": "a"}, {"current-context": "b"}, None, "first.a"),
        ({"current-context": "a"}, {"current-context": ""}, None, "first.a"),
        ({"current-context": ""}, {"current-context": "b"}, None, "second.b"),
        ({"current-context": None}, {"current-context": "both"}, None, "first.both"),
        ({}, {"current-context": "b"}, None, "second.b"),
        ({"current-context": "a"}, {}, "b", "second.b"),
        ({"current-context": ""}, {}, "a", "first.a"),
        ({}, {}, "b", "second.b"),
        ({"current-context": "deleted"}, {}, "both", "first.both"),
        ({"current-context": "a"}, {}, "", "first.a"),
    ],
)
def test_a_kubeconfig_leads_where_it_leads_kubectl(
    first: dict[str, Any],
    second: dict[str, Any],
    context: str | None,
    chosen: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = [
        kubeconfig(tmp_path / "first", "a", "both", **first),
        kubeconfig(tmp_path / "second", "b", "both", **second),
    ]
    monkeypatch.setenv("KUBECONFIG", ":".join(files))
    cluster, name = connect(None, context, None), chosen.partition(".")[2]
    assert cluster._api.configuration.host == f"http://{chosen}"
    assert cluster.token() == chosen
    assert (cluster.context, cluster.namespace) == (name, f"of-{name}")


def test_what_a_kubeconfig_names_by_a_relative_path_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, token in (("there", "right"), ("here", "wrong")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "token").write_text(token)
    monkeypatch.chdir(tmp_path / "here")
    users = [{"name": "a", "user": {"tokenFile": "token"}}]
    file = kubeconfig(tmp_path / "there" / "config", "a", **{"current-context": "a", "users": users})
    assert connect(None, None, file).token() == "right"


def test_without_a_current_context_the_remedy_is_told(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="it has no current-context; kubectl config use-context NAME") as refused:
        connect(None, None, kubeconfig(tmp_path / "config", "a", **{"current-context": ""}))
    assert "--context" in refused.value.remedy
