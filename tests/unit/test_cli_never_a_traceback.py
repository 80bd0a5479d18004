"""Every verb against all that can be in its way: one sentence with its remedy, the right exit code, no traceback."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import typer.main

from lockstep.cli.main import app, main
from support import sample_runs as sample
from support.answering_server import Answer, answering, breaks_off, hangs_up, kubeconfig, refuses, says
from support.sample_cluster import has

pytestmark = pytest.mark.slow
HELLO = str(Path(__file__).parents[2] / "manifests" / "hello.yaml")
VERBS: dict[tuple[str, ...], list[str]] = {
    ("submit",): [HELLO],
    ("sbatch",): ["--wrap=true", "--container-image=x"],
    ("queue",): [],
    ("info",): ["llama"],
    ("status",): ["llama"],
    ("explain",): ["llama"],
    ("logs",): ["llama"],
    ("events",): ["llama"],
    ("history",): ["llama"],
    ("bundle",): ["llama"],
    ("render",): ["llama"],
    ("wait",): ["llama", "--timeout", "1s"],
    ("cancel",): ["llama"],
    ("suspend",): ["llama"],
    ("resume",): ["llama"],
    ("prio",): ["llama"],
    ("queues",): [],
    ("hold",): ["llama"],
    ("release",): ["llama"],
    ("report",): [],
    ("requeue",): ["llama"],
    ("retry",): ["llama"],
    ("nodes",): [],
    ("nodes", "drain"): ["gpu-1"],
    ("nodes", "undrain"): ["gpu-1"],
    ("nodes", "clear"): ["gpu-1"],
    ("checkpoint", "save"): ["llama"],
    ("checkpoint", "leftovers"): ["."],
}
"""That talk to an API server, each with what it needs."""
WITHOUT_A_CLUSTER = {("checkpoint", "verify"), ("ui",)}
MORE: list[list[str]] = [
    ["queue", "-A", "--finished"],
    ["queue", "--start"],
    ["queue", "--watch"],
    ["queue", "-l", "a=b", "-o", "json"],
    ["cancel", "-l", "a=b"],
    ["submit", HELLO, "--test-only"],
    ["submit", HELLO, "--dry-run=server"],
    ["submit", HELLO, "--array", "0-3"],
    ["submit", HELLO, "--no-wait"],
    ["submit", HELLO, "--wait"],
    ["explain", "12_3"],
    ["prio"],
    ["hold", "--queue", "llama"],
    ["checkpoint", "llama", "--wait", "--timeout", "1s"],
    ["events", "llama", "--pods"],
    ["logs", "-f", "llama"],
]
TYPED = [[*verb, *words] for verb, words in VERBS.items()] + MORE
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


def verbs_of(command: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, inner in getattr(command, "commands", {}).items():
        if not hasattr(inner, "commands"):
            yield (*above, name)
        else:
            if inner.invoke_without_command:
                yield (*above, name)
            yield from verbs_of(inner, (*above, name))


def test_every_verb_is_tried() -> None:
    verbs = {*verbs_of(typer.main.get_command(app))}
    assert verbs == {*VERBS} | WITHOUT_A_CLUSTER
    closed = {tuple(words[:length]) for words in GOES_AWAY for length in (1, 2)}
    assert verbs <= closed, "each of them meets a closed pipe"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lockstep.cli.submission.verdicts.PATIENCE", 0.0)
    monkeypatch.setattr("lockstep.cli.actions.wait._RETRY_SECONDS", 0.01)
    monkeypatch.setattr("lockstep.cli.views.queue._AT_LEAST_SECONDS", 0.0)
    monkeypatch.setattr("lockstep.cli.submission.test_only._ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def typed(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and what was said of it."""
    with pytest.raises(SystemExit) as end:
        main(words)
    return int(end.value.code or 0), capsys.readouterr().err


def assert_clear(code: int, said: str, remedies: tuple[str, ...], words: list[str]) -> None:
    shown = f"lockstep {' '.join(words)} ended with {code}:\n{said}"
    assert code in (1, 124), shown
    assert "Traceback" not in said, shown
    assert "defect of lockstep" not in said, shown
    assert "error: " in said, shown
    assert any(remedy in said for remedy in remedies), shown
    assert len(said.splitlines()) <= 6, shown


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


NAMES = [
    "",
    "..",
    "../../secrets/x",
    "a/b",
    "a b",
    "a?x=1",
    "a%2fb",
    "a\nb",
    "ü",
    "\udcff",
    "x" * 5000,
    "-",
    "[",
    "12_[",
    "9" * 40,
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = refuses(404, "NotFound", 'trainingruns.lockstep.dev "x" not found', name="x", kind="trainingruns")
    with answering(answer) as server:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", server)))
        of_runs = [
            [*verb, name] for verb in (("info",), ("cancel",), ("hold",), ("nodes", "drain"), ("checkpoint", "save"))
        ]
        for words in [*of_runs, ["queue", "-n", name], ["cancel", "-l", name], ["submit", HELLO, "-n", name]]:
            code, said = typed(words, capsys)
            assert code in (1, 2), words
            assert_no_traceback(said, words)


def assert_no_traceback(said: str, words: list[str]) -> None:
    shown = f"lockstep {' '.join(map(ascii, words))}:\n{said}"
    assert "Traceback" not in said, shown
    assert "defect of lockstep" not in said, shown
    assert "rror" in said, shown


CODE = ["--code", "."]
HEAD = "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingRun\nmetadata: {name: a}\n"
MANIFESTS: dict[str, bytes] = {
    "nothing": b"",
    "a comment": b"# nothing\n",
    "a number": b"3",
    "a list": b"[1, 2]",
    "text": b"hello",
    "a list of runs": b"- " + HEAD.replace("\n", "\n  ").encode(),
    "no YAML": b"a: [",
    "a tab": b"a:\n\t- b",
    "bytes": b"\xff\xfe\x00",
    "another kind": b"kind: Pod\napiVersion: v1\nmetadata: {name: a}\n",
    "a kind that is a list": b"kind: [a]\napiVersion: {a: b}\n",
    "an old version": HEAD.replace("v1alpha1", "v1").encode(),
    "metadata as a list": HEAD.replace("{name: a}", "[a]").encode(),
    "metadata as a word": HEAD.replace("{name: a}", "a").encode(),
    "metadata as nothing": HEAD.replace("{name: a}", "").encode(),
    "a name that is a map": HEAD.replace("{name: a}", "{name: {a: b}}").encode(),
    "a name that is a list": HEAD.replace("{name: a}", "{generateName: [a]}").encode(),
    "a number as namespace": HEAD.replace("{name: a}", "{name: a, namespace: 3}").encode(),
    "labels as a word": HEAD.replace("{name: a}", "{name: a, labels: b}").encode(),
    "annotations as a list": HEAD.replace("{name: a}", "{name: a, annotations: [b]}").encode(),
    "no spec": HEAD.encode(),
    "a spec that is a word": f"{HEAD}spec: a\n".encode(),
    "a spec that is a list": f"{HEAD}spec: [a]\n".encode(),
    "maps everywhere": f"{HEAD}spec: {{nodes: {{}}, image: {{}}, command: {{}}, env: {{}}, launcher: []}}\n".encode(),
    "lists everywhere": f"{HEAD}spec: {{nodes: [], image: [], command: [[]], env: [[]], placement: []}}\n".encode(),
    "numbers for keys": f"{HEAD}spec: {{1: 2, 3.5: x, true: y}}\n".encode(),
    "a map for a key": f"{HEAD}spec: {{? {{a: b}} : c}}\n".encode(),
    "an infinity": f"{HEAD}spec: {{nodes: .inf, image: i}}\n".encode(),
    "no number": f"{HEAD}spec: {{nodes: .nan, image: i}}\n".encode(),
    "a number of a thousand digits": f"{HEAD}spec: {{nodes: {'9' * 1000}, image: i}}\n".encode(),
    "a number of ten thousand digits": f"{HEAD}spec: {{nodes: {'9' * 10_000}, image: i}}\n".encode(),
    "a date": f"{HEAD}spec: {{nodes: 2026-01-01, image: i}}\n".encode(),
    "a set": f"{HEAD}spec: {{nodes: 1, image: i, command: !!set {{a, b}}}}\n".encode(),
    "something binary": f"{HEAD}spec: {{nodes: 1, image: !!binary aGVsbG8=}}\n".encode(),
    "an object of Python": f"{HEAD}spec: !!python/object/apply:os.system [echo]\n".encode(),
    "what holds itself": f"{HEAD}spec: &a {{nodes: 1, podTemplate: *a}}\n".encode(),
    "a list that holds itself": f"{HEAD}spec: {{command: &a [*a]}}\n".encode(),
    "what is nested deeply": f"{HEAD}spec: {{podTemplate: {'{a: ' * 300}1{'}' * 300}}}\n".encode(),
    "what is nested very deeply": f"{HEAD}spec: {{podTemplate: {'[' * 2000}{']' * 2000}}}\n".encode(),
    "a surrogate": f'{HEAD}spec: {{nodes: 1, image: "\\udcff", command: [a]}}\n'.encode(),
    "a zero": f'{HEAD}spec: {{nodes: 1, image: "\\0", queue: 3}}\n'.encode(),
    "an array without a template": HEAD.replace("TrainingRun", "TrainingRunSet").encode(),
    "an array of words": f"{HEAD.replace('Run', 'RunSet')}spec: {{indices: 0-3, template: a}}\n".encode(),
    "volumes as a word": f"{HEAD}spec: {{nodes: 1, image: i, command: [a], volumes: 'data:/data'}}\n".encode(),
    "volumes as words": f"{HEAD}spec: {{nodes: 1, image: i, command: [a], volumes: ['data:/data']}}\n".encode(),
    "a volume of lists": f"{HEAD}spec: {{nodes: 1, image: i, volumes: [{{name: [], mountPath: []}}]}}\n".encode(),
    "an array in an array": f"{HEAD.replace('Run', 'RunSet')}spec: {{template: {{spec: [a]}}}}\n".encode(),
}


@pytest.mark.parametrize("what", MANIFESTS)
def test_a_manifest_that_is_none(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(MANIFESTS[what])
    answer = refuses(422, "Invalid", "it is invalid", name="a", causes=[{"field": "spec", "message": "Required value"}])
    with answering(answer) as server:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", server)))
        ways = (["--dry-run=client"], ["--name", "b"], ["--array", "0-3"], ["-t", "2h", "--test-only"], CODE)
        for more in ways:
            words = ["submit", str(path), *more]
            code, said = typed(words, capsys)
            assert code in (1, 2), words
            assert_no_traceback(said, words)
        code, said = typed(["render", str(path)], capsys)
        assert code in (1, 2)
        assert_no_traceback(said, ["render"])
    with answering(has(sample.failed())) as server:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", server)))
        for more in (["--name", "b"], ["--fresh"], CODE):
            words = ["retry", "llama", "-f", str(path), *more]
            code, said = typed(words, capsys)
            assert code in (1, 2), words
            assert_no_traceback(said, words)


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


WRONG = [
    ["queue", "-o", "xml"],
    ["submit"],
    ["submit", "nowhere.yaml"],
    ["submit", "."],
    ["submit", "-"],
    ["submit", HELLO, "--env", "A"],
    ["submit", "--image", "x", "--nodes", "0", "--", "true"],
    ["submit", HELLO, "-t", "soon"],
    ["submit", HELLO, "-t", "9" * 400],
    ["submit", HELLO, "--begin", "yesterdayish"],
    ["submit", HELLO, "--begin", "now+" + "9" * 400 + "days"],
    ["submit", HELLO, "-d", "after"],
    ["submit", HELLO, "-a", "0-" + "9" * 400],
    ["submit", HELLO, "-a", "3-1"],
    ["submit", HELLO, "--no-wait", "--wait"],
    ["wait", "llama", "--timeout", "soon"],
    ["wait", "llama", "--timeout", "9" * 400 + "d"],
    ["logs", "llama", "--rank", "x"],
    ["logs", "llama", "--rank", "9-1"],
    ["history", "llama", "--from", "/nowhere"],
    ["history", "llama", "--from", "."],
    ["history", "llama", "--from", sys.executable],
    ["checkpoint", "verify", "/nowhere"],
    ["checkpoint", "verify", HELLO],
    ["checkpoint", "verify", ".", "--format", "Nothing"],
    ["checkpoint", "verify", ".", "--format", "Torch:["],
    ["checkpoint", "leftovers", "/nowhere"],
    ["checkpoint", "leftovers", ".", "--older-than", "old"],
    ["render", "nowhere.yaml"],
    ["render", "."],
    ["sbatch", "nowhere.sh"],
    ["sbatch", "."],
    ["sbatch", "--time=soon", "--wrap=true"],
    ["sbatch", "--what"],
    ["nodes", "drain"],
    ["cancel"],
    ["frobnicate"],
    ["ui"],
    ["ui", "--url", "no url"],
]


@pytest.mark.parametrize("words", WRONG, ids=lambda words: " ".join(words)[:50].replace(HELLO, "run.yaml"))
def test_a_command_line_that_makes_no_sense(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")  # no kubectl, and no browser
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    with answering(refuses(404, "NotFound", 'x "llama" not found', name="llama")) as server:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", server)))
        code, said = typed(words, capsys)
    assert code in (1, 2)
    assert "Traceback" not in said
    assert "defect of lockstep" not in said, said


PRINTS = [
    ["--help"],
    ["submit", HELLO, "--dry-run=client"],
    ["render", HELLO],
    ["queue", "-o", "json"],
    ["info", "llama"],
    ["submit", HELLO],
    ["queue", "-o", "xml"],
    ["logs", "-f", "llama"],
]


@pytest.mark.process
@pytest.mark.parametrize("words", PRINTS, ids=lambda words: " ".join(words).replace(HELLO, "run.yaml"))
def test_who_reads_what_is_printed_may_go_away(words: list[str], tmp_path: Path) -> None:
    """As with `| head`: it ends in silence."""
    run = sample.run("llama", status={})
    body = run | {"items": [run] * 2000} if words[0] in ("queue", "events") else run
    with answering(has(sample.running()) if words[0] == "logs" else says(200, body)) as server:
        config = kubeconfig(tmp_path / "config", server)
        reading, writing = os.pipe()
        os.close(reading)
        try:
            ended = subprocess.run(
                [sys.executable, "-c", "from lockstep.cli.main import main; main()", *words],
                env={**os.environ, "KUBECONFIG": str(config), "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=subprocess.PIPE,
                timeout=120,
                check=False,
            )
        finally:
            os.close(writing)
    assert ended.returncode in (0, 1, 2)
    said = ended.stderr.decode()
    assert not any(word in said for word in ("Traceback", "Exception ignored", "BrokenPipe", "defect of lockstep")), (
        said
    )


class NobodyReads(io.RawIOBase):
    """Standard output into a pipe whose reader has gone away."""

    tried = over = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.tried = True
        if not self.over:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        return len(data)


MOMENTS = [
    sample.pending(updated=sample.at(5)),
    sample.pending() | {"spec": {**sample.SPEC, "suspend": True}},
    sample.running(),
    sample.failed(),
]
TRIAL = {"observedGeneration": 1, "at": sample.at(0), "start": sample.at(-60), "nodes": ["gpu-1"]}
# What follows a log goes on asking in a thread, which only the end of the program ends: PRINTS has it.
GOES_AWAY = [*(each for each in TYPED if "-f" not in each), ["ui", "--url", "http://a"], ["checkpoint", "verify", "."]]
WITHOUT_DATA = [
    ["checkpoint", "leftovers", "."],
    ["explain", "12_3"],
    ["checkpoint", "llama", "--wait", "--timeout", "1s"],
    ["ui", "--url", "http://a"],
]


def test_whatever_is_typed_who_reads_what_is_printed_may_go_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each verb at the first moment of a run's life at which it prints something; as Python flushes at its end."""
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    left = GOES_AWAY
    for run in MOMENTS:
        run["status"] |= {"jobId": 7, "testOnly": TRIAL}
        with answering(has(run)) as server:
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", server)))
            left = [words for words in left if not is_tried(words, monkeypatch, capsys)]
    assert left == WITHOUT_DATA


def is_tried(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether it had something to print; that its output is closed is no mistake to speak of."""
    pipe = NobodyReads()
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(pipe)))
        try:
            _, said = typed(words, capsys)
            sys.stdout.flush()
        except BrokenPipeError:
            raise AssertionError(f"lockstep {' '.join(words)} leaves something for Python to complain of") from None
        finally:
            pipe.over = True
    for word in ("Traceback", "Exception ignored", "roken pipe", "BrokenPipe", "defect of lockstep"):
        assert word not in said, f"lockstep {' '.join(words)}:\n{said}"
    return pipe.tried
