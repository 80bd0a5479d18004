"""What programs of batch jobs ask for, and what has become of it."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

from msgspec import Raw

from lockstep.api.base import names
from lockstep.api.run_status import Condition, TrainingRunStatus
from lockstep.core.batch.inside import mark_of, submitted_name
from lockstep.core.model.snapshot import RunSnapshot
from lockstep.core.model.worker_report import JobAsk

_KINDS = ("requeue", "cancel", "hold", "submit", "submit", "submit", "", "x")
_SCRIPTS = ("#!/bin/sh\nsrun x\n", "#!/bin/sh\n#SBATCH -N2 --gpus-per-node=8 --time=10\nsrun x\n", "", "\0", "x")
_OPTIONS = (
    *("--nodes=2", "--nodes=1-2", "-N0", "-N16384", "--ntasks=4", "--ntasks-per-node=2", "--gpus-per-node=8"),
    *("--time=5", "--time=0", "--time=x", "--array=0-3", "--wrap=srun x", "--wait", "--test-only", "--parsable", "--"),
    *("--dependency=afterok:1", "--dependency=afterany:2:3", "--dependency=singleton", "--dependency=afterok:x"),
    *("--partition=default", "--partition=own,lent", "--requeue", "--no-requeue", "--signal=B:USR1@120", "--nice=5"),
    *("--begin=now+1hour", "--deadline=2031-01-01", "--constraint=h100", "--exclude=n1", "--nodelist=n[0-2]"),
    *("--export=ALL,A=1", "--export=NONE", "--chdir=/x", "--output=%x-%j.out", "--job-name=" + "x" * 300, "--mem=1T"),
)
_NO_SUBMISSIONS = ("{}", "[]", "7", '{"options": 7}', "[" * 40 + "]" * 40)


def ask(rng: Random) -> JobAsk:
    """As the listener lets it through."""
    body: dict[str, Any] = {"script": rng.choice(_SCRIPTS), "name": rng.choice(("job.sh", "", "é" * 300, "/"))}
    body["options"] = rng.sample(_OPTIONS, rng.choice((0, 1, 2, 4)))
    if rng.random() < 0.3:
        body["variables"] = {rng.choice(("A", "PATH", "1", "", "a b")): rng.choice(("1", "é" * 4096, "\n"))}
        body["directory"] = rng.choice(("/work", "work", "", "/" + "x" * 5000))
    text = json.dumps(body) if rng.random() < 0.8 else rng.choice(_NO_SUBMISSIONS)
    return JobAsk(rng.choice(("a", "b", "c", "0-0", "x" * 36)), rng.choice(_KINDS), Raw(text.encode()))


def submissions(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    """A job that it asked to submit is there, or another run of that name."""
    asks = [each for report in snapshot.reports.values() for each in report.asks if each.kind == "submit"]
    if not asks:
        return None
    wanted = rng.choice(asks)
    name = submitted_name(snapshot.run, wanted)
    conditions = [
        Condition(type="Accepted", status=accepted, reason="x", message="x" * 900, last_transition_time=0.0)
        for accepted in rng.choice(((), ("True",), ("False",)))
    ]
    there = replace(
        snapshot.run,
        name=name,
        uid="uid-of-it",
        status=TrainingRunStatus(conditions=tuple(conditions), job_id=rng.choice((None, 1, 2))),
        annotations={names.ANNOTATION_SUBMITTED_BY: rng.choice((mark_of(snapshot.run, wanted), "x", ""))},
    )
    known = range(1, rng.choice((1, 3, 5)))
    numbers = {number: (rng.choice(("one", "two", "é")), rng.random() < 0.3) for number in known}
    return replace(snapshot, submitted={name: there}, numbers=numbers)
