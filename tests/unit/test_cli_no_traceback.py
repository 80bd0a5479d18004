"""No verb ends in a traceback: whatever the server answers, or does not, and whoever closes the output."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from urllib3.exceptions import HTTPError, ProtocolError

from lockstep.cli import client
from lockstep.cli.main import app, main
from support import sample_runs as sample

VERBS: dict[str, list[str]] = {
    "bundle": ["llama", "-o", "/dev/null"],
    "cancel": ["llama"],
    "checkpoint leftovers": ["/nonexistent"],
    "checkpoint save": ["llama"],
    "checkpoint verify": ["/nonexistent"],
    "events": ["llama"],
    "explain": ["llama"],
    "history": ["llama"],
    "hold": ["llama"],
    "info": ["llama"],
    "logs": ["llama"],
    "nodes": [],
    "nodes clear": ["gpu-1"],
    "nodes drain": ["gpu-1"],
    "nodes undrain": ["gpu-1"],
    "prio": [],
    "queue": [],
    "queues": [],
    "release": ["llama"],
    "render": ["llama"],
    "report": [],
    "requeue": ["llama"],
    "resume": ["llama"],
    "retry": ["llama"],
    "sbatch": ["--wrap=true"],
    "status": ["llama"],
    "submit": ["--image", "X", "--", "true"],
    "suspend": ["llama"],
    "ui": ["--no-browser"],
    "wait": ["llama", "--timeout", "1s"],
}
"""By verb: the rest of a command line that asks the server."""


def verbs_of(command: Any, name: str = "") -> Iterator[str]:
    for word, found in getattr(command, "commands", {}).items():
        full = f"{name} {word}".strip()
        if hasattr(found, "commands"):
            yield from verbs_of(found, full)
        else:
            yield full


@pytest.fixture(scope="module")
def command() -> Any:
    """The program, put together once."""
    return typer.main.get_command(app)


def test_every_verb_is_tried(command: Any) -> None:
    there = {*verbs_of(command)}
    assert there - {*VERBS} == set(), "add it to VERBS, with a command line that asks the server"


class Api:
    """Answers each request alike."""

    configuration = SimpleNamespace(host="https://there:6443", auth_settings=dict)

    def __init__(self, status: int, body: bytes, breaks: HTTPError | None = None) -> None:
        self.status, self.body, self.breaks = status, body, breaks

    def param_serialize(self, method: str, path: str, *_: Any, **__: Any) -> tuple[Any, ...]:
        return method, path, {}

    def call_api(self, *_: Any, **__: Any) -> Any:
        if self.breaks is not None and not self.status:
            raise self.breaks

        def stream(size: int) -> Iterator[bytes]:
            yield self.body
            if self.breaks is not None:
                raise self.breaks

        def read() -> bytes:
            if self.breaks is not None:
                raise self.breaks
            return self.body

        return SimpleNamespace(
            status=self.status, read=read, close=lambda: None, response=SimpleNamespace(stream=stream)
        )


def refusal(code: int, reason: str, name: str = "llama") -> bytes:
    details = {"name": name, "kind": "trainingruns"}
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": "no", "details": details}).encode()


SERVERS = {
    "expired token": Api(401, refusal(401, "Unauthorized")),
    "missing right": Api(403, refusal(403, "Forbidden")),
    "not found": Api(404, refusal(404, "NotFound")),
    "conflict": Api(409, refusal(409, "Conflict")),
    "gone": Api(410, refusal(410, "Expired")),
    "broken": Api(500, b"\xff\x00 oops"),
    "a proxy's login page": Api(200, b"<html>log in</html>"),
    "lost connection": Api(200, b"", ProtocolError("Connection broken: IncompleteRead")),
    "nobody there": Api(0, b"", ProtocolError("Connection refused")),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("server", SERVERS)
def test_a_verb_says_in_words_what_the_server_does(
    verb: str, server: str, command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lockstep.cli.main.app", command)
    monkeypatch.setattr(client, "connect", lambda *_: client.Cluster(SERVERS[server], "team"))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("webbrowser.open", lambda url: True)
    with pytest.raises(SystemExit) as end:
        main([*verb.split(), *VERBS[verb]])
    said = capsys.readouterr()
    assert "Traceback" not in said.err + said.out
    assert end.value.code in (0, 1, 2, 124), said


class ClosedPipe(io.TextIOWrapper):
    """Whoever read it has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


RUN = json.dumps(sample.running()).encode()


@pytest.mark.parametrize("verb", ["info", "explain", "history", "cancel", "render"])
def test_a_closed_pipe_ends_a_verb_without_a_word(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "connect", lambda *_: client.Cluster(Api(200, RUN), "team"))
    monkeypatch.setattr("sys.stdout", ClosedPipe(io.BytesIO()))
    with pytest.raises(SystemExit) as end:
        main([*verb.split(), "llama"])
    assert end.value.code == 1
    assert "Traceback" not in capsys.readouterr().err
