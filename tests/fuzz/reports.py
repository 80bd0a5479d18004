"""Bodies of requests to the worker API: what gets through is believed within bounds, and harms nobody."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from fuzz import worker_lies
from fuzz.judging import FoundError, Judge, Tally, guarded
from fuzz.world import FuzzedWorld
from lockstep.controller.workers.protocol import (
    PROTOCOL,
    REGISTER_LIMIT,
    REPORT_LIMIT,
    MalformedError,
    UnspokenProtocolError,
    decode_registration,
    decode_report,
)
from lockstep.controller.workers.reports import ReportBook, SupersededError, UnregisteredError
from lockstep.controller.workers.trust import SenderClaim
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import WorkerReport
from support.manual_clock import ManualClock
from support.world import node, spec

REPORTS = 40
"""Of a case, of one gang."""
_JUNK = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**53,
    2**53 + 1,
    2**63,
    2**64,
    1e308,
    -1e308,
    "",
    "x",
    "\ud800",
    "²",
    "0-9999999",
    "x" * 70_000,
    [],
    {},
    [[]],
)
_TUNABLES = Tunables(gang=GangSettings(local_storages={"nvme": "/mnt/nvme"}))


def reports(case: str, steps: Collection[int] | None = None, tally: Tally | None = None) -> Tally:
    """Of a case; ``steps``: those of them that are to be sent."""
    tally = tally or Tally()
    rng = Random(f"{case}/world")
    world = _gang(rng, tally)
    clock = ManualClock(world.now)
    book = ReportBook(clock, lambda _: None)
    for number in range(REPORTS):
        if steps is None or number in steps:
            try:
                _send(Random(f"{case}/{number}"), world, book, clock, tally)
            except FoundError as error:
                tally.note(error, f"report {number}")
    return tally


def _gang(rng: Random, tally: Tally) -> FuzzedWorld:
    world = FuzzedWorld(
        {f"n{index}": node(f"n{index}") for index in range(4)}, tunables=_TUNABLES, judge=Judge(tally), listens=True
    )
    world.now = 1_795_000_000.0
    tiers = rng.choice(({"shared": {"claimName": "lustre"}}, {"local": {"storage": "nvme"}}))
    world.apply("one", spec(2, checkpoint=tiers, spareNodes=rng.choice((0, 1))))
    world.settle(rounds=rng.choice((3, 12)))
    world.train("one", 5)
    world.work()
    return world


def _send(rng: Random, world: FuzzedWorld, book: ReportBook, clock: ManualClock, tally: Tally) -> None:
    """One body, and then what is decided with what was made of it."""
    tally.done["reports"] += 1
    honest = [*world.reports.get("uid-one", {}).values()]
    if not honest:
        return
    report = worker_lies.lied(rng, rng.choice(honest), world.now) if rng.random() < 0.7 else rng.choice(honest)
    claim = SenderClaim("uid-one", rng.choice((report.slot, 0, 65_535)), report.incarnation, report.pod_uid)
    state = _state(report, rng)
    registers = rng.random() < 0.3
    body = _body(state, claim, registers=registers)
    for _ in range(rng.choice((0, 0, 1, 2))):
        body = _spoilt(rng, body)
    text = _bytes(rng, body)
    if len(text) > (REGISTER_LIMIT if registers else REPORT_LIMIT):
        return
    decode: Any = decode_registration if registers else decode_report
    try:
        read = guarded("decoding", lambda: decode(text), but=(MalformedError, UnspokenProtocolError))
        if read is None:
            return
        tally.done["reports that are believed"] += 1
        if registers:
            guarded("register", lambda: book.register(claim, report.node, read), but=(SupersededError,))
        else:
            guarded("report", lambda: book.report(claim, read), but=(SupersededError, UnregisteredError))
        guarded("summary", lambda: book.summary("uid-one"))
        heard = book.reports("uid-one")
        snapshot = world.snapshot("one")
        known = {**snapshot.reports, **{slot: replace(said, polling=True) for slot, said in heard.items()}}
        snapshot = replace(snapshot, reports=known)
        world.judge.decided(snapshot, world.tunables, clock.now())
        if rng.random() < 0.1:
            world.judge.at_rest(snapshot, world.tunables, clock.now())
    except FoundError as error:
        raise FoundError(error.signature, f"body: {text[:1500]!r}\n{error.words}") from error


def _state(report: WorkerReport, rng: Random) -> dict[str, Any]:
    state: dict[str, Any] = {
        "phase": report.phase,
        "wall": rng.choice((1_795_000_000.0, 0.0, 2.0**40)),
        "mono": rng.choice((1.0, 1e9)),
        "attempt": report.attempt,
        "readyFor": report.ready_for,
        "port": report.port,
        "start": msgspec.to_builtins(report.start),
        "newCheckpoints": msgspec.to_builtins(report.inventory),
        "unrecognised": msgspec.to_builtins(report.unrecognised),
        "previousSaves": msgspec.to_builtins(report.previous_saves),
        "verified": msgspec.to_builtins(report.verified),
        "problem": report.problem,
        "leavingBy": report.leaving_by,
        "saved": report.saved,
        "timing": msgspec.to_builtins(report.timing),
        "stepsPort": report.steps_port,
        "stepEnds": msgspec.to_builtins(report.step_ends),
        "partlyEnded": msgspec.to_builtins(report.partly_ended),
        "asks": [{"id": each.id, "kind": each.kind, "body": json.loads(bytes(each.body))} for each in report.asks],
        "signs": msgspec.to_builtins(report.signs),
        "stacks": msgspec.to_builtins(report.stacks),
        "pointed": msgspec.to_builtins(report.pointed),
        "warmed": msgspec.to_builtins(report.warmed),
        "listens": report.listens,
    }
    if report.exit is not None:
        ended = report.exit
        state["exit"] = {
            "code": ended.code,
            "signal": ended.signal,
            "at": ended.at,
            "reason": ended.reason,
            "stderrTail": ended.stderr_tail,
        }
    if report.progress is not None:
        said = report.progress
        state["progress"] = {
            "step": said.step,
            "at": said.at,
            "loss": rng.choice((said.loss, 2.5, None)),
            "totalSteps": said.total_steps,
        }
    return state


def _body(state: dict[str, Any], claim: SenderClaim, *, registers: bool) -> dict[str, Any]:
    who = {
        "protocol": PROTOCOL,
        "runUid": claim.run_uid,
        "slot": claim.slot,
        "incarnation": claim.incarnation,
        "podUid": claim.pod_uid,
    }
    if not registers:
        return who | state
    rows = state.pop("newCheckpoints")
    return who | {"namespace": "ns", "run": "one", "address": "10.0.0.1", "report": state, "inventory": rows}


def _spoilt(rng: Random, body: Any) -> Any:
    """Somewhere in it something else."""
    if isinstance(body, dict) and body and rng.random() < 0.85:
        key = rng.choice([*body])
        return body | {key: _spoilt(rng, body[key])}
    if isinstance(body, list) and body and rng.random() < 0.85:
        index = rng.randrange(len(body))
        return [*body[:index], _spoilt(rng, body[index]), *body[index + 1 :]]
    return rng.choice(_JUNK)


def _bytes(rng: Random, body: dict[str, Any]) -> bytes:
    text = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    match rng.randrange(20):
        case 0:
            return text[: rng.randrange(len(text))]
        case 1:
            at = rng.randrange(len(text))
            return text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
        case 2:
            return text.replace(b"{", b'{"x": ' + b"[" * 300, 1)
    return text
