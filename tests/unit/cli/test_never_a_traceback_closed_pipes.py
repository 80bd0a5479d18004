"""Every verb whose reader goes away, as with `| head`: it ends in silence, no traceback. So do full disks and closed
streams, with a sentence."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from lockstep.cli.main import app
from support import sample_runs as sample
from support.answering_server import answering, kubeconfig, says
from support.sample_cluster import has
from support.typed_verbs import HELLO, TYPED, VERBS, WITHOUT_A_CLUSTER, out_of_the_way, typed

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_the_way(tmp_path, monkeypatch)


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
REFUSED = [["submit", HELLO], ["queue", "-o", "xml"]]  # what they say is all on standard error


@pytest.mark.process
@pytest.mark.parametrize("words", PRINTS, ids=lambda words: " ".join(words).replace(HELLO, "run.yaml"))
def test_who_reads_what_is_printed_may_go_away(words: list[str], tmp_path: Path) -> None:
    """As with `| head`: it ends in silence."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        said = ended(words, tmp_path, stdin=subprocess.DEVNULL, stdout=writing)
    finally:
        os.close(writing)
    assert "BrokenPipe" not in said


@pytest.mark.process
@pytest.mark.parametrize("words", PRINTS, ids=lambda words: " ".join(words).replace(HELLO, "run.yaml"))
def test_a_disk_that_is_full_is_one_sentence(words: list[str], tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        said = ended(words, tmp_path, stdin=subprocess.DEVNULL, stdout=full)
    if words not in REFUSED:
        assert "error: the output cannot be written: No space left on device" in said


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["submit", "-"], "error: - holds no run\n"),
        (["retry", "llama", "-f", "-"], "error: - holds no run\n"),
        (["sbatch"], "sbatch: error: Batch script is empty!\n"),
        (["--help"], ""),
        (["logs", "llama"], ""),
    ],
    ids=lambda words: " ".join(words).replace(HELLO, "run.yaml") if isinstance(words, list) else "",
)
def test_standard_input_and_output_may_be_closed(words: list[str], told: str, tmp_path: Path) -> None:
    run = sample.failed() if words[0] == "retry" else None
    assert ended(words, tmp_path, run, preexec_fn=lambda: [os.close(stream) for stream in (0, 1)]) == told


def ended(words: list[str], tmp_path: Path, raw: Any = None, **streams: Any) -> str:
    """What the program says, in a process of its own, of the run ``raw`` or of one that fits the verb."""
    run = sample.run("llama", status={})
    body = run | {"items": [run] * 2000} if words[0] in ("queue", "events") else run
    raw = sample.running() if words[0] == "logs" else raw
    with answering(has(raw) if raw else says(200, body)) as server:
        config = kubeconfig(tmp_path / "config", server)
        done = subprocess.run(
            [sys.executable, "-c", "from lockstep.cli.main import main; main()", *words],
            env={**os.environ, "KUBECONFIG": str(config), "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
            **streams,
        )
    said = done.stderr.decode()
    assert done.returncode in (0, 1, 2), said
    assert not any(word in said for word in ("Traceback", "Exception ignored", "defect of lockstep")), said
    return said


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
