"""What others wrote, on its way into status, events and terminals."""

import json
import sys
import time
from typing import Any

import pytest

from lockstep.cli import output
from lockstep.controller.workers.protocol import decode_report
from lockstep.controller.workers.reports import ReportBook
from lockstep.controller.workers.trust import SenderClaim
from lockstep.core.model import sanitise
from support.manual_clock import ManualClock

CLEAR_SCREEN = "\x1b[2J\x1b[H"
TITLE = "\x1b]0;owned\x07"
BACKWARDS = "\u202egnp.exe"


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
