"""What others wrote, on its way into status, events and terminals."""

import json
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.cli import output
from lockstep.controller.runtime.clock import ManualClock
from lockstep.controller.workers.protocol import decode_report
from lockstep.controller.workers.reports import ReportBook
from lockstep.controller.workers.trust import SenderClaim
from lockstep.core.model import sanitise

CLEAR_SCREEN = "\x1b[2J\x1b[H"
TITLE = "\x1b]0;owned\x07"
BACKWARDS = "\u202egnp.exe"

SHOWN = {
    "as it is": ("ValueError: größer als 5 → 日本", "ValueError: größer als 5 → 日本"),
    "a colour": ("\x1b[31mRuntimeError\x1b[0m: x", "RuntimeError: x"),
    "a screen that is cleared": (f"{CLEAR_SCREEN}all is well", "all is well"),
    "a window's title": (f"{TITLE}x", "x"),
    "a link": ("\x1b]8;;https://x\x1b\\click\x1b]8;;\x1b\\", "click"),
    "half a sequence": ("\x1b[", f"{sanitise.UNSHOWN}["),
    "a sequence of one byte": ("\x9b2J", f"{sanitise.UNSHOWN}2J"),
    "text that reads backwards": (BACKWARDS, f"{sanitise.UNSHOWN}gnp.exe"),
    "what was overwritten": ("bad news\rgood", "bad news good"),
    "a line that looks like another field": ("x\nState: Succeeded", "x State: Succeeded"),
    "nothing that can be seen": ("\u200b\ufeff\x00\x7f", sanitise.UNSHOWN * 4),
    "words that no reader sees": ("ok\U000e0068\U000e0069\u00ad", f"ok{sanitise.UNSHOWN * 3}"),
    "half a character": ("\ud83d", sanitise.UNSHOWN),
}


@pytest.mark.parametrize(("said", "shown"), SHOWN.values(), ids=SHOWN)
def test_a_line_shows_what_it_says_and_does_nothing_else(said: str, shown: str) -> None:
    assert sanitise.line(said) == shown


def test_several_lines_stay_several_and_a_progress_bar_becomes_some() -> None:
    assert sanitise.lines("a\n\tb\r\nc\r 50%\r100%") == "a\n\tb\nc\n 50%\n100%"


@given(st.text(st.characters(codec=None)))
def test_whatever_is_said_a_line_is_one_line_and_cleaned_once_is_clean(text: str) -> None:
    once = sanitise.line(text)
    assert sanitise.line(once) == once
    assert all(letter.isprintable() or letter.isspace() or ord(letter) > 0x9F for letter in once)
    assert not {"\n", "\x1b"} & set(once)
    once.encode()  # status is UTF-8


def report(**said: Any) -> bytes:
    identity = {"protocol": 1, "runUid": "u", "slot": 0, "incarnation": 1, "podUid": "p"}
    return json.dumps({**identity, "phase": "Exited", "wall": time.time(), "mono": 1.0, **said}).encode()


def test_nothing_of_a_report_reaches_a_decision_that_a_terminal_would_obey() -> None:
    evil = f"{CLEAR_SCREEN}{TITLE}{BACKWARDS}\x00"
    claim = SenderClaim("u", 0, 1, "p")
    row = {"tier": "shared", "step": 1, "path": evil, "verdict": "Valid", "reason": evil}
    body = decode_report(report(
        problem=evil, exit={"code": 1, "reason": evil, "stderrTail": evil}, progress={"step": 1, "loss": evil},
        signs=[{"kind": evil, "at": 1.0, "text": evil}], stacks={"id": "x", "text": evil},
        newCheckpoints=[row], verified=[{key: row[key] for key in ("tier", "path", "verdict", "reason")}],
        pointed={"path": evil, "step": 1, "problem": evil}, warmed={"id": "x", "problem": evil},
        timing={"section": evil},
    ))  # fmt: skip
    book = ReportBook(ManualClock(), lambda run: None)
    book.register(claim, "node", _registration(body))
    book.report(claim, body)
    said = repr(book.reports("u")[0])
    assert sanitise.UNSHOWN in said
    for escape in ("\\x1b", "\\u202e", "\\x00"):
        assert escape not in said


def _registration(body: Any) -> Any:
    from lockstep.controller.workers.protocol import Registration

    return Registration(
        protocol=1, run_uid="u", slot=0, incarnation=1, pod_uid="p", namespace="team", run="r",
        address="10.0.0.1", report=body,
    )  # fmt: skip


def test_the_cli_shows_words_of_others_and_keeps_its_own_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_colourful", lambda: True)
    monkeypatch.setattr(output.typer, "echo", lambda words, err: print(words, file=sys.stderr if err else sys.stdout))
    output.print_lines(output.table(("NAME", "STATE", "WHY"), [("a", "Failed", f"{CLEAR_SCREEN}x\ny"), ("b", "", "")]))
    output.echo(f"{TITLE}\x1b[8mhidden\x1b[0m")
    output.note(f"error: {BACKWARDS}")
    said = capsys.readouterr()
    rows = said.out.splitlines()
    assert rows[1] == "a      \x1b[31mFailed\x1b[0m   x y"
    assert rows[3] == "hidden\x1b[0m"
    assert said.err == f"error: {sanitise.UNSHOWN}gnp.exe\n"


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_objects_are_shown_with_what_cannot_be_shown_written_out(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_object({"status": {"message": CLEAR_SCREEN}}, form)
    assert "\x1b" not in capsys.readouterr().out
