"""Kubeconfigs, addresses and credentials that are none: one sentence with its remedy, no traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.answering_server import answering, kubeconfig, refuses
from support.typed_verbs import HELLO, assert_clear, out_of_the_way, typed

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_the_way(tmp_path, monkeypatch)


KUBECONFIGS: dict[str, bytes | None] = {
    "none": None,
    "empty": b"",
    "a list": b"[1]",
    "text": b"hello",
    "no YAML": b"a: [",
    "bytes": b"\xff\x00",
    "no contexts": b"apiVersion: v1\nkind: Config\n",
    "contexts of nothing": b"contexts: null\nclusters: null\nusers: null\ncurrent-context: a\n",
    "a context that leads nowhere": b"current-context: a\ncontexts: [{name: a, context: {cluster: b}}]\nclusters: []",
    "a context that is a word": b"current-context: a\ncontexts: [a]\nclusters: [b]\nusers: [c]\n",
}
SERVERS = ["", "localhost", "http://", "ftp://a", "http://[", "http://a:99999", "http://a b", "https://127.0.0.1:1/x?y"]
USERS: dict[str, dict[str, Any]] = {
    "a program that is not there": {"exec": {"command": "/none", "apiVersion": "client.authentication.k8s.io/v1"}},
    "a program that fails": {"exec": {"command": "false", "apiVersion": "client.authentication.k8s.io/v1"}},
    "a program that says nothing": {"exec": {"command": "true", "apiVersion": "client.authentication.k8s.io/v1"}},
    "certificates that are not there": {"client-certificate": "/none.crt", "client-key": "/none.key"},
    "certificates that are none": {"client-certificate-data": "aGVsbG8=", "client-key-data": "aGVsbG8="},
    "what is no base64": {"client-certificate-data": "!", "client-key-data": "!"},
    "a token that is a number": {"token": 7},
    "a token of two lines": {"token": "a\nb"},
    "a token with an umlaut": {"token": "ü€"},
}


@pytest.mark.parametrize("what", KUBECONFIGS)
def test_a_kubeconfig_that_is_none(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, content = tmp_path / "config", KUBECONFIGS[what]
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    for words in (["queue"], ["submit", HELLO]):
        code, said = typed(words, capsys)
        assert_clear(code, said, ("set KUBECONFIG",), words)
    code, said = typed(["queue", "--kubeconfig", str(tmp_path)], capsys)
    assert_clear(code, said, ("set KUBECONFIG",), ["queue", "--kubeconfig", "FOLDER"])


@pytest.mark.parametrize("server", SERVERS)
def test_an_address_that_leads_nowhere(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", server)))
    for words in (["queue"], ["submit", HELLO], ["wait", "llama", "--timeout", "1s"]):
        code, said = typed(words, capsys)
        assert_clear(code, said, ("kubeconfig", "KUBECONFIG"), words)


@pytest.mark.parametrize("what", USERS)
def test_credentials_that_are_none(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(refuses(401, "Unauthorized", "Unauthorized")) as server:
        for address in (server, server.replace("http:", "https:")):
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", address, **USERS[what])))
            for words in (["queue"], ["submit", HELLO]):
                code, said = typed(words, capsys)
                assert_clear(code, said, ("kubeconfig", "KUBECONFIG", "log in again"), words)
