"""Every verb against whatever answers in place of an API server: one sentence with its remedy, no traceback."""

from __future__ import annotations

import json
import socket
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from support import sample_runs as sample
from support.answering_server import Answer, answering, breaks_off, hangs_up, kubeconfig, refuses, says
from support.sample_cluster import has
from support.typed_verbs import TYPED, assert_clear, out_of_the_way, typed

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_the_way(tmp_path, monkeypatch)


FORBIDDEN = (
    'trainingruns.lockstep.dev is forbidden: User "ada" cannot list resource "trainingruns" in API group "lockstep.dev"'
)
ANSWERS: dict[str, tuple[Answer, tuple[str, ...]]] = {
    "an expired token": (refuses(401, "Unauthorized", "Unauthorized"), ("log in again",)),
    "a missing right": (refuses(403, "Forbidden", FORBIDDEN), ("ask for", "an administrator")),
    "a kind that is not served": (
        refuses(404, "NotFound", "the server could not find the requested resource"),
        ("install Lockstep there first", "there is no"),
    ),
    "an object that is not there": (
        refuses(404, "NotFound", 'trainingruns.lockstep.dev "llama" not found', name="llama", kind="trainingruns"),
        ("llama", "not found"),
    ),
    "an overload": (refuses(429, "TooManyRequests", "please try again"), ("try again",)),
    "a defect of the server": (refuses(500, "InternalError", "etcd is gone"), ("etcd is gone",)),
    "a gateway's page": (says(502, b"<html>bad gateway</html>", "text/html"), ("bad gateway",)),
    "somebody else's page": (says(200, b"<html>log in here</html>", "text/html"), ("no API server",)),
    "a page of bytes": (says(200, b"\xff\xfe\x00", "text/html"), ("no API server",)),
    "a number": (says(200, 7), ("no API server",)),
    "an empty list": (says(200, []), ("no API server",)),
    "an empty object": (says(200, {}), ("no API server",)),
    "an object of nulls": (says(200, {"metadata": None, "items": None, "spec": None}), ("no API server",)),
    "a connection that is closed": (hangs_up, ("no answer from the API server",)),
    "an answer that breaks off": (breaks_off, ("no answer from the API server",)),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_whatever_answers_in_place_of_an_api_server(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, remedies = ANSWERS[what]
    with answering(answer) as server:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", server)))
        for words in TYPED:
            code, said = typed(words, capsys)
            assert_clear(code, said, remedies, words)


def of_a_watch(*changes: Any) -> Answer:
    return says(200, b"".join(json.dumps(change).encode() + b"\n" for change in changes))


CHANGES: dict[str, tuple[Answer, tuple[str, ...]]] = {
    "a change of nothing": (of_a_watch({"type": "MODIFIED", "object": {}}), ("no API server",)),
    "a change without a version": (of_a_watch({"type": "ADDED", "object": {"metadata": {}}}), ("no API server",)),
    "a change that is a word": (of_a_watch({"type": "ADDED", "object": "llama"}), ("no API server",)),
    "an error without words": (of_a_watch({"type": "ERROR", "object": {}}), ("500",)),
}


@pytest.mark.parametrize("what", [*ANSWERS, *CHANGES])
def test_whatever_answers_once_it_is_watched(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, remedies = (ANSWERS | CHANGES)[what]
    listed, ends = has(sample.running()), refuses(403, "Forbidden", FORBIDDEN)
    watches: list[Answer] = []
    """The first of each time may be waited out."""

    def answered(request: BaseHTTPRequestHandler) -> None:
        (watches.pop(0) if "watch=" in request.path else listed)(request)

    with answering(answered) as server:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", server)))
        for more in ([], ["-A", "--finished"], ["-o", "json"]):
            words = ["queue", "--watch", *more]
            watches[:] = [answer, ends, ends]
            code, said = typed(words, capsys)
            assert_clear(code, said, remedies, words)


def test_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", server)))
        for words in TYPED:
            code, said = typed(words, capsys)
            assert_clear(
                code, said, ("check --context and --kubeconfig", "check --kube-context and --kubeconfig"), words
            )
