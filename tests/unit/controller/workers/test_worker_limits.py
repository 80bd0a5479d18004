"""What a worker says always fits into a request that the operator takes."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.controller.workers import protocol
from lockstep.worker.checkpoints.formats.findings import Finding
from lockstep.worker.checkpoints.tiers import inventory_row
from lockstep.worker.limits import REGISTRATION_BYTES, REPORT_BYTES, encoded, fitted_registration, fitted_report

IDENTITY = {"protocol": 1, "runUid": "u", "slot": 0, "incarnation": 1, "podUid": "p"}
BINARY = "\0"


def row(step: int, tier: str = "local", owners: int = 1024, path: str = "/local") -> dict[str, Any]:
    found = Finding("Valid", "", "Megatron", bytes=1 << 40, owners=tuple(range(owners)))
    return inventory_row(tier, step, 1, f"{path}/step-{step}", found)


def report(text: str = "", rows: list[dict[str, Any]] | None = None, path: str = "/p") -> dict[str, Any]:
    answers = [{"tier": "shared", "path": path, "verdict": "Valid", "reason": text[:256]} for _ in range(8)]
    signs = [{"kind": f"Rule:{n}", "at": 1.0, "step": 1, "text": text[:256]} for n in range(16)]
    return {
        "phase": "Exited", "wall": 1.0, "mono": 1.0, "attempt": 1, "newCheckpoints": rows or [], "signs": signs,
        "exit": {"code": 1, "signal": None, "at": 1.0, "reason": "Error", "stderrTail": text[:4096]},
        "stacks": {"id": "x", "text": text[:2048]}, "verified": answers, "problem": "",
    }  # fmt: skip


def registration(inventory: list[dict[str, Any]], **said: Any) -> dict[str, Any]:
    about = {"namespace": "team", "run": "r", "address": "10.0.0.1"}
    return {**IDENTITY, **about, "inventory": inventory, "report": report(**said)}


def test_what_fits_is_sent_as_it_is() -> None:
    rows = [row(1, owners=0), row(2, owners=0)]
    body = {**IDENTITY, **report("words", rows)}
    assert fitted_report(body) == (encoded(body), rows)


def test_of_more_new_checkpoints_than_fit_the_newest_are_told_and_the_others_are_left_for_the_next_report() -> None:
    rows = [row(step) for step in range(32)]
    content, told = fitted_report({**IDENTITY, **report("", rows)})
    assert len(content) <= REPORT_BYTES
    assert [entry.step for entry in protocol.decode_report(content).new_checkpoints] == [r["step"] for r in told]
    assert 0 < len(told) < len(rows)
    assert told == rows[-len(told) :]


def test_a_row_that_finds_no_room_at_all_is_not_tried_for_ever() -> None:
    endless = row(1, path="/" + BINARY * 20_000)
    content, told = fitted_report({**IDENTITY, **report("", [endless])})
    assert protocol.decode_report(content).new_checkpoints == ()
    assert told == [endless]


@pytest.mark.parametrize("text", [BINARY * 4096, "\ufffd" * 4096, "\U0001f600" * 4096, chr(0xD800) * 4096])
def test_binary_output_leaves_room_for_new_checkpoints(text: str) -> None:
    rows = [row(step, owners=64) for step in range(4)]
    content, told = fitted_report({**IDENTITY, **report(text, rows, path="/" + text[:4000])})
    assert len(content) <= REPORT_BYTES
    read = protocol.decode_report(content)
    assert len(read.new_checkpoints) == len(told) > 0
    assert read.exit is not None
    assert len(read.exit.stderr_tail) > 1000
    assert len(read.signs) == 16
    assert read.verified


def test_of_stderr_the_end_is_kept() -> None:
    content, _ = fitted_report({**IDENTITY, **report("", [row(step) for step in range(32)])})
    assert json.loads(content)["exit"]["stderrTail"] == ""
    body = {**IDENTITY, **report(BINARY * 4090 + "ending", [row(step) for step in range(32)])}
    assert json.loads(fitted_report(body)[0])["exit"]["stderrTail"].endswith("\0ending")


def test_of_an_inventory_that_does_not_fit_each_tier_keeps_its_newest() -> None:
    path = "/" + BINARY * 4000
    inventory = [row(step, tier, path=path) for tier in ("local", "shared") for step in range(32, 0, -1)]
    content, _ = fitted_registration(registration(inventory))
    assert len(content) <= REGISTRATION_BYTES
    kept = [(entry.tier, entry.step) for entry in protocol.decode_registration(content).inventory]
    assert kept == [(r["tier"], r["step"]) for r in inventory if (r["tier"], r["step"]) in kept]
    for tier in ("local", "shared"):
        steps = [step for its, step in kept if its == tier]
        assert steps == list(range(32, 32 - len(steps), -1))
        assert len(steps) > 10


@given(st.text(max_size=5000), st.lists(st.integers(0, 1 << 53), max_size=32), st.integers(0, 1024))
def test_whatever_is_said_the_operator_takes_it(text: str, steps: list[int], owners: int) -> None:
    rows = [row(step, owners=owners, path="/" + text[:3000]) for step in steps]
    content, told = fitted_report({**IDENTITY, **report(text, rows, path="/" + text[:3000])})
    assert len(content) <= REPORT_BYTES
    assert bool(told) == bool(rows)
    msgspec.json.decode(content, type=protocol.Report)
    content, _ = fitted_registration(registration(rows, text=text, rows=rows))
    assert len(content) <= REGISTRATION_BYTES
    msgspec.json.decode(content, type=protocol.Registration)


def test_the_last_words_of_steps_are_cut_before_a_report_is_too_large() -> None:
    row = {"step": "s", "task": 0, "program": "p", "code": 1, "signal": None, "at": 1.0, "asked": False}
    ends = [dict(row, stderrTail="\0" * 1023 + "!")] * 16
    content, _ = fitted_report({"newCheckpoints": [], "stepEnds": ends, "verified": []})
    assert len(content) <= REPORT_BYTES
    told = json.loads(content)["stepEnds"]
    assert len(told) == 16
    assert all(each["stderrTail"].endswith("\0!") for each in told)


def test_requests_of_a_job_fit_beside_everything_else_or_wait() -> None:
    def ask(size: int) -> dict[str, Any]:
        return {"id": "one", "kind": "submit", "body": {"script": "x" * size}}

    for size, told in ((20_000, True), (7000, True), (23_000, False)):
        full = report(BINARY * 5000 if size != 20_000 else "words", [row(step) for step in range(32)])
        content, _ = fitted_report({**IDENTITY, **full, "asks": [ask(size)]})
        assert len(content) <= REPORT_BYTES
        assert bool(protocol.decode_report(content).asks) is told, size
