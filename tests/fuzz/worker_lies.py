"""What workers may say, whatever the truth is: reports as the listener lets them through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from fuzz.asks import ask
from fuzz.values import CODES, COUNTS, FORMATS, RANGES, STEPS
from lockstep.controller.workers.protocol import MalformedError, _require_a_gang
from lockstep.core.model import reasons
from lockstep.core.model.snapshot import RunSnapshot
from lockstep.core.model.start_record import CollectiveStart, Members, Resume
from lockstep.core.model.worker_report import (
    CheckpointReport,
    ExitReport,
    PartlyEndedStep,
    PointReport,
    PreviousSavesReport,
    ProgressReport,
    Sign,
    StackReport,
    StepEnd,
    TimingReport,
    UnrecognisedReport,
    Verdict,
    VerifyReport,
    WarmUpReport,
    WorkerPhase,
    WorkerReport,
)

EARLIER = f"/shared-checkpoints/ns/{'x' * 200}/uid-x/a1/step-1"
SPANS = (0.0, 0.001, 1.0, 40.0, 4000.0, 366 * 86_400.0)
KINDS = (
    "Xid:79",
    "Xid:48",
    "Xid:31",
    "NCCL:Timeout",
    "CUDA:OutOfMemory",
    "Loss:NaN",
    "Loss:Inf",
    "Rule:mine",
    "",
    "Watch:Problem",
    "Xid:",
    "Xid:x",
    "Storage:NoSpace",
)


def reports(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    known = dict(snapshot.reports)
    if not known:
        return None
    slot = rng.choice([*known])
    match rng.randrange(8):
        case 0:
            del known[slot]
        case 1:
            elsewhere = rng.choice((*known, 7, 65_535))
            known[elsewhere] = replace(known[slot], slot=elsewhere)
        case 2:
            late = rng.choice((0.0, 3.0, 9.0, 60.0, 1e6))
            known[slot] = replace(known[slot], received_at=now - late, polling=late < 3)
        case _:
            known[slot] = lied(rng, known[slot], now)
    return replace(snapshot, reports=known)


def lied(rng: Random, report: WorkerReport, now: float) -> WorkerReport:
    """A report as the listener lets it through, whatever the truth is."""
    for _ in range(rng.choice((1, 2, 3))):
        report = replace(report, **rng.choice(_LIES)(rng, report, now))
    return report


def _row(rng: Random, report: WorkerReport, now: float) -> CheckpointReport:
    tier, step = rng.choice(("local", "shared")), rng.choice(STEPS)
    path = rng.choice(
        (
            f"/{tier}/{step}",
            f"/{tier}/{step}/rank-{rng.randrange(4)}",
            f"/{tier}-checkpoints/uid-one/a1/step-{step}",
            "x",
        )
    )
    return CheckpointReport(
        tier=tier,  # type: ignore[arg-type]
        step=step,
        path=path,
        verdict=rng.choice([*Verdict]),
        reason=rng.choice(("", "torn", "x" * 256)),
        format=rng.choice(FORMATS),
        attempt=rng.choice((report.attempt, *COUNTS)),
        world=rng.choice(COUNTS),
        run_uid=rng.choice(("", "uid-one", "uid-two")),
        bytes=rng.choice((0, 1, 2**40, 2**63 - 1)),
        committed_at=rng.choice((0.0, 1.0, now, now + 1e6, 2.0**40)),
        as_copied=rng.random() < 0.2,
        owners=rng.choice(((), (0, 1), (1,), tuple(range(64)))),
    )


def start_of(rng: Random, attempt: int) -> CollectiveStart | None:
    """One that the protocol lets through."""
    parts = [Members(rng.choice(RANGES), rng.choice(COUNTS)) for _ in range(rng.choice((0, 1, 1, 2)))]
    resume = Resume(rng.choice(("local", "shared", "x")), rng.choice(STEPS), rng.choice(("/shared/5", "")))
    start = CollectiveStart(
        attempt=rng.choice((attempt, attempt + 1, *COUNTS)),
        assignment_hash=rng.choice(("", "0123456789abcdef", "x" * 64)),
        master_address=rng.choice(("10.0.0.1", "::1", "x")),
        master_port=rng.choice((0, 1, 40_000, 65_535)),
        resume=resume if rng.random() < 0.5 else None,
        members=tuple(parts),
        order=rng.choice(RANGES),
    )
    try:
        _require_a_gang(start)
    except MalformedError:
        return None
    return start


_Lie = Callable[[Random, WorkerReport, float], Mapping[str, Any]]
_LIES: Sequence[_Lie] = (
    lambda rng, _, now: {"phase": rng.choice([*WorkerPhase]), "since": now},
    lambda rng, r, now: {"attempt": rng.choice((r.attempt + 1, max(0, r.attempt - 1), *COUNTS)), "since": now},
    lambda rng, r, now: {"ready_for": rng.choice((r.ready_for + 1, *COUNTS))},
    lambda rng, r, now: {"start": start_of(rng, r.attempt)},
    lambda rng, r, now: {
        "phase": WorkerPhase.EXITED,
        "exit": ExitReport(
            code=rng.choice(CODES),
            signal=rng.choice((0, 0, 9, 11, 15, 255)),
            at=rng.choice((0.0, now - 5, now, now + 1e5, 253_402_300_799.0)),
            reason=rng.choice((*map(str, reasons.ExitReason), "", "x")),
            stderr_tail=rng.choice(("", "Traceback\nValueError: x", "é" * 4096, "NCCL error")),
        ),
    },
    lambda rng, r, now: {"exit": None},
    lambda rng, r, now: {
        "progress": ProgressReport(
            step=rng.choice(STEPS),
            at=rng.choice((0.0, now - 60, now, now + 1e6, 253_402_300_799.0)),
            loss=rng.choice(("", "2.5", "nan", "inf", "-inf", "1e400", "1e-400", "x", "٣")),
            total_steps=rng.choice((None, 0, 1, 2**53)),
        )
    },
    lambda rng, r, now: {"progress": None},
    lambda rng, r, now: {"inventory": tuple(_row(rng, r, now) for _ in range(rng.choice((0, 1, 2, 5, 32))))},
    lambda rng, r, now: {"inventory": (*r.inventory, _row(rng, r, now))[-32:]},
    lambda rng, r, now: {
        "previous_saves": tuple(
            PreviousSavesReport(rng.choice(("", "uid-x", "a" * 64)), rng.choice(STEPS), rng.choice(("", "/", EARLIER)))
            for _ in range(rng.choice((0, 1, 4)))
        )
    },
    lambda rng, r, now: {
        "unrecognised": rng.choice((None, ()))
        if rng.random() < 0.3
        else tuple(
            UnrecognisedReport(rng.choice(("local", "shared")), f"/shared/{n}", rng.choice(COUNTS), "x" * 256)  # type: ignore[arg-type]
            for n in range(rng.choice((1, 8)))
        )
    },
    lambda rng, r, now: {
        "verified": tuple(
            VerifyReport(row.tier, row.path, rng.choice([*Verdict]), "what was read is not what was written")
            for row in r.inventory[:16]
        )
    },
    lambda rng, r, now: {"problem": rng.choice(("", "no GPU is seen", "x" * 1024))},
    lambda rng, r, now: {"leaving_by": rng.choice((0.0, now + 30, now - 30, 253_402_300_799.0))},
    lambda rng, r, now: {"saved": rng.choice(("", "x", "1-5", "a1-0"))},
    lambda rng, r, now: {
        "timing": TimingReport(
            section=rng.choice(("Init", "Step", "Save", "", "x")),
            step=rng.choice(SPANS),
            longest=rng.choice(SPANS),
            intervals=rng.choice(COUNTS),
            longest_init=rng.choice(SPANS),
            longest_save=rng.choice(SPANS),
            save_block=rng.choice(SPANS),
            persist=rng.choice(SPANS),
        )
    },
    lambda rng, r, now: {
        "signs": tuple(
            Sign(rng.choice(KINDS), rng.choice((0.0, now - 5, now, now + 1e6)), rng.choice(STEPS), "a line")
            for _ in range(rng.choice((1, 2, 16)))
        )
    },
    lambda rng, r, now: {"steps_port": rng.choice((0, 1, 65_535))},
    lambda rng, r, now: {
        "step_ends": tuple(
            StepEnd(
                rng.choice((0.0, now - 5, now, now + 1e6)),
                rng.choice(("", "1", "x" * 64)),
                rng.choice(COUNTS),
                rng.choice(("", "python")),
                rng.choice((None, 0, 1, 137, -(2**31))),
                rng.choice((None, 0, 9, 255)),
                rng.choice(("", "Traceback: x", "é" * 1024)),
                rng.choice((True, False)),
                rng.choice((None, 0, 1, 2, 2**31 - 1)),
                rng.choice(("", "NodeUnreachable", "OOMKilled", "x")),
            )
            for _ in range(rng.choice((1, 2, 16)))
        )
    },
    lambda rng, r, now: {
        "partly_ended": tuple(
            PartlyEndedStep(
                rng.choice(("", "MPI", "x" * 64)),
                rng.choice(COUNTS),
                rng.choice((None, 0, 1, 2, 2**31 - 1)),
                rng.choice((0.0, now - 5, now, now + 1e6)),
                rng.choice(COUNTS),
                rng.choice(COUNTS),
                rng.choice((0.0, now - 5, now + 1e6)),
            )
            for _ in range(rng.choice((1, 2, 4)))
        )
    },
    lambda rng, r, now: {"asks": tuple(ask(rng) for _ in range(rng.choice((1, 1, 4))))},
    lambda rng, r, now: {"stacks": StackReport(rng.choice(("", "x", "a1")), rng.choice(("", "é" * 2048)))},
    lambda rng, r, now: {"pointed": PointReport("/shared/5", rng.choice(STEPS), rng.choice(("", "it is read-only")))},
    lambda rng, r, now: {
        "warmed": WarmUpReport(
            rng.choice(("", "x")), rng.choice(SPANS), rng.choice((-1, 0, 1, 65_535)), rng.choice(("", "x"))
        )
    },
    lambda rng, r, now: {"listens": not r.listens},
    lambda rng, r, now: {"port": rng.choice((0, 1, 65_535)), "address": rng.choice(("::1", "x", "10.0.0.1"))},
    lambda rng, r, now: {"clock_skew": rng.choice((0.0, -40.0, 40.0, 2.0**40, -(2.0**40)))},
    lambda rng, r, now: {"incarnation": rng.choice((r.incarnation + 1, 0, 2**31 - 1))},
)
