"""Every verb as somebody types it, and what is to be said where one of them fails."""

from __future__ import annotations

import gc
import io
import sys
from pathlib import Path

import pytest

from lockstep.cli.main import main

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


def out_of_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory with nothing in it, with nothing to read, and without patience."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lockstep.cli.submission.verdicts.PATIENCE", 0.0)
    monkeypatch.setattr("lockstep.cli.actions.wait._RETRY_SECONDS", 0.01)
    monkeypatch.setattr("lockstep.cli.views.queue._AT_LEAST_SECONDS", 0.0)
    monkeypatch.setattr("lockstep.cli.submission.test_only._ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def typed(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and what was said of it. No garbage is collected meanwhile: where recursion is at its limit, what
    other tests have left would fail to end, and be told among it."""
    gc.disable()
    try:
        with pytest.raises(SystemExit) as end:
            main(words)
    finally:
        gc.enable()
    return int(end.value.code or 0), capsys.readouterr().err


def assert_clear(code: int, said: str, remedies: tuple[str, ...], words: list[str]) -> None:
    shown = f"lockstep {' '.join(words)} ended with {code}:\n{said}"
    assert code in (1, 124), shown
    assert "Traceback" not in said, shown
    assert "defect of lockstep" not in said, shown
    assert "error: " in said, shown
    assert any(remedy in said for remedy in remedies), shown
    assert len(said.splitlines()) <= 6, shown


def assert_no_traceback(said: str, words: list[str]) -> None:
    shown = f"lockstep {' '.join(map(ascii, words))}:\n{said}"
    assert "Traceback" not in said, shown
    assert "defect of lockstep" not in said, shown
    assert "rror" in said, shown
