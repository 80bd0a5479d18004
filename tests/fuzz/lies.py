"""Snapshots with lies in them: whatever others can write of what a decision reads, and nobody vouches for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from fuzz.asks import submissions
from fuzz.edited_runs import annotations, spec, stored_status, with_edited_status
from fuzz.pods_and_nodes import nodes, pods
from fuzz.values import STEPS
from fuzz.worker_lies import reports
from lockstep.api.base import names
from lockstep.api.queue import TrainingQueueSpec
from lockstep.core.checkpoints.archive_job import RESULT_FORMAT
from lockstep.core.model import reasons
from lockstep.core.model.snapshot import (
    DryRunResult,
    JobPhase,
    JobView,
    Lag,
    PoolRecord,
    QueueView,
    RefusedCreate,
    RunSnapshot,
    RunView,
)


def corrupted(rng: Random, snapshot: RunSnapshot, now: float) -> tuple[RunSnapshot, float, str]:
    """The snapshot with a few of the things changed that somebody else may write, as an API server or the listener
    would let it through; and in a word, what was changed."""
    did: list[str] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        name, change = rng.choice(_CHANGES)
        found = change(rng, snapshot, now)
        if found is not None:
            snapshot = found
            did.append(name)
    if rng.random() < 0.15:
        now += rng.choice((0.5, 3.0, 20.0, 100.0, 400.0, 4000.0, 1e5, 1e7, 3e8, -0.5, -60.0))
        did.append("time")
    return snapshot, now, ", ".join(did)


def jobs(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    awaited = snapshot.run.status.checkpoint.archive.job
    if awaited is None and not snapshot.jobs:
        return None
    name = awaited.name if awaited is not None else snapshot.jobs[0].name
    return replace(snapshot, jobs=(job(rng, snapshot.run, name, now),) if rng.random() < 0.9 else ())


def job(rng: Random, run: RunView, name: str, now: float) -> JobView:
    """As it may stand, with whatever its pod has left as its last words."""
    row = {
        "step": rng.choice((*STEPS, -1, "x")),
        "attempt": rng.choice((1, 2, 99)),
        "bytes": rng.choice((0, 2**53, 2**70)),
    }
    said = {
        "format": rng.choice((RESULT_FORMAT, RESULT_FORMAT, RESULT_FORMAT, "x")),
        "outcome": rng.choice(("Done", *map(str, reasons.ArchiveFailure), "x")),
        "message": rng.choice(("", "x" * 2000)),
        "path": rng.choice(("", "/shared/5", "x")),
    }
    said |= {"checkpoint": row} if rng.random() < 0.6 else {}
    said |= {"published": [row] * rng.choice((0, 1, 9))} if rng.random() < 0.5 else {}
    return JobView(
        namespace=run.namespace,
        name=name,
        uid="job",
        run_uid=run.uid,
        phase=rng.choice([*JobPhase]),
        idle_since=rng.choice((0.0, now - 1000, now)),
        finished_at=rng.choice((0.0, now - 5, now + 5)),
        message=rng.choice(("", "BackoffLimitExceeded", "é" * 2000)),
        result=rng.choice((json.dumps(said), json.dumps(said), "", "{", "null", "[]")),
        deleting=rng.random() < 0.2,
        removes=rng.random() < 0.3,
    )


def cluster(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    leadership = snapshot.leadership
    match rng.randrange(5):
        case 0:
            since = rng.choice((now, now - 5, now - 1e6, now + 5))
            leadership = replace(leadership, since=since)
        case 1:
            leadership = replace(leadership, disruption=rng.choice(("", "3 of 6 nodes are NotReady")), calm_since=now)
        case 2:
            lag = Lag(
                rng.choice((0.0, 3.0, 100.0)),
                rng.choice((0.0, 9.0)),
                ((now - 3, 20.0),) if rng.random() < 0.5 else (),
                rng.choice((0.0, 0.0, 70.0)),
            )
            leadership = replace(leadership, lag=lag)
        case 3:
            leadership = replace(leadership, pools={"": PoolRecord(rng.choice((0, 9)), rng.choice((0.0, 0.1, 1e9)))})
        case _:
            leadership = replace(leadership, workers=rng.choice((0, 100_000)))
    return replace(snapshot, leadership=leadership)


def refusals(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    run = snapshot.run
    if rng.random() < 0.5:
        generation = rng.choice((run.generation, run.generation - 1))
        accepted, at = rng.choice((None, False, True)), rng.choice((0.0, now - 100, now - 6, now))
        return replace(snapshot, dry_run=DryRunResult(generation, accepted, rng.choice(("", "é" * 2000)), at))
    pod = names.pod_name(run.name, run.uid, rng.randrange(3), rng.choice((1, 2)))
    refused = RefusedCreate(
        rng.choice((0.0, now - 500, now)), rng.choice(("exceeded quota: x", "é" * 2000)), rng.random() < 0.5
    )
    return replace(snapshot, refused_creates={pod: refused})


def others(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    match rng.randrange(4):
        case 0:
            return replace(snapshot, origin=None if rng.random() < 0.4 else with_edited_status(rng, snapshot.run, now))
        case 1:
            return replace(snapshot, successors=(with_edited_status(rng, snapshot.run, now),))
        case 2:
            return replace(
                snapshot, preemptor=None if rng.random() < 0.4 else with_edited_status(rng, snapshot.run, now)
            )
        case _:
            return replace(snapshot, recorded=not snapshot.recorded)


def queue(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    fields: dict[str, Any] = {"stopPolicy": rng.choice(("None", "Hold", "HoldAndDrain"))}
    if rng.random() < 0.5:
        fields["limits"] = {"defaultTimeLimit": rng.choice(("1s", "5m", "9999d")), "maxTimeLimit": "1h"}
    if rng.random() < 0.2:
        fields["backend"] = "Kueue"
    return replace(snapshot, queue=QueueView("default", TrainingQueueSpec.model_validate(fields)))


_Change = Callable[[Random, RunSnapshot, float], RunSnapshot | None]


_CHANGES: Sequence[tuple[str, _Change]] = (
    *[("submissions", submissions)] * 2,
    *[("status", stored_status)] * 5,
    *[("reports", reports)] * 6,
    *[("pods", pods)] * 4,
    *[("nodes", nodes)] * 2,
    *[("spec", spec)] * 3,
    ("jobs", jobs),
    ("jobs", jobs),
    ("cluster", cluster),
    ("refusals", refusals),
    ("others", others),
    ("queue", queue),
    ("annotations", annotations),
)
