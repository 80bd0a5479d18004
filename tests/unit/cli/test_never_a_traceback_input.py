"""Names, manifests and command lines that are none: a sentence and the right exit code, no traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support import sample_runs as sample
from support.answering_server import answering, kubeconfig, refuses
from support.sample_cluster import has
from support.typed_verbs import HELLO, assert_no_traceback, out_of_the_way, typed

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_the_way(tmp_path, monkeypatch)


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
