"""Runs as people edit them: status, spec and annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from fuzz.structural import Making, problem, schema_of
from fuzz.values import FORMATS, NODES, RANGES
from lockstep.api.base import names
from lockstep.api.base.times import to_rfc3339
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.controller.runtime.patches import dump_status
from lockstep.controller.store.whole_status import (
    is_assignment_missing,
    is_reservation_missing,
    without_assignment,
    without_reservation,
)
from lockstep.core.model import reasons
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import RunSnapshot, RunView


def _words() -> Mapping[str, tuple[Any, ...]]:
    """Of statuses, by field: as an operator writes them, and as people edit them."""
    enums = [kind for kind in vars(reasons).values() if isinstance(kind, type) and issubclass(kind, str)]
    every = tuple(str(word) for kind in enums for word in kind)
    paths = ("", "/shared/5", "/local/5/rank-0", "/shared-checkpoints/uid-one/a1/step-5", "/", "x", "a1/step-5")
    return {
        "type": tuple(map(str, reasons.ConditionType)),
        "reason": every,
        "cause": every,
        "state": (*map(str, reasons.Phase), *map(str, reasons.Outcome), "", "{}", '{"since": 1}', "[1, 2]"),
        "action": (*map(str, reasons.ActionWord), "Upload", "Restore", "List", "Tidy"),
        "outcome": ("", "Saved", "Expired", "Failed"),
        "tier": ("local", "shared", "archive", "", "x"),
        "path": paths,
        "startRoot": paths,
        "succeeded": RANGES,
        "victims": RANGES,
        "slots": RANGES,
        "order": RANGES,
        "node": NODES,
        "nodesReady": ("", "2/2", "0/2", "x", "2/"),
        "format": FORMATS,
        "name": ("checkpoint-request", "restart-request", "one", "mine", "n0", "one-uid-o-0-1", "x"),
        "token": ("a", "b", ""),
        "uri": ("", "s3://bucket/x", "s3://other"),
        "cpu": ("", "190", "0.5", "1e0", "x", "-1", "1e900"),
        "memory": ("", "1900Gi", "x", "0", "1e900"),
        "gpuType": ("", "H100", "Any", "x"),
        "configMap": ("", "", "one-uid-o-assignment-1-0123456789abcdef"),
        "gpuHours": ("", "0.5", "x", "nan", "1e400", "-1"),
    }


_STATUS = Making(_words())


def stored_status(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    """Somebody edits the status; the API server takes it."""
    return replace(snapshot, run=with_edited_status(rng, snapshot.run, now))


def with_edited_status(rng: Random, run: RunView, now: float) -> RunView:
    """Somebody has edited it in places."""
    schema, _STATUS.now = schema_of("trainingruns", "status"), now
    body = dump_status(run.status)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        edited = _STATUS.altered(schema, body, rng)
        if not problem(schema, edited):
            body = edited
    return _read(run, body)


def statuses(rng: Random, run: RunView, now: float) -> Iterator[RunView]:
    """The run with its status edited, in every field that there is."""
    schema, _STATUS.now = schema_of("trainingruns", "status"), now
    for body in _STATUS.everywhere(schema, dump_status(run.status), rng):
        if not problem(schema, body):
            yield _read(run, body)


def _read(run: RunView, body: Mapping[str, Any]) -> RunView:
    read = parse_run({"metadata": _metadata(run), "spec": {}, "status": body})
    edited = replace(run, status=read.status)
    # The operator reads the ConfigMaps that a status names, and decides nothing before.
    if is_assignment_missing(edited):
        edited = without_assignment(edited)
    return without_reservation(edited) if is_reservation_missing(edited) else edited


def _metadata(run: RunView) -> Mapping[str, Any]:
    return {
        "namespace": run.namespace,
        "name": run.name,
        "uid": run.uid,
        "resourceVersion": run.resource_version,
        "generation": run.generation,
        "creationTimestamp": to_rfc3339(run.created_at),
    }


def annotations(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    run = snapshot.run
    name = rng.choice(_ANNOTATIONS)
    said = {
        **run.annotations,
        f"{names.GROUP}/{name}": rng.choice(("true", "a", "b", "", "x" * 300, "index=1 count=4 min=0 max=3", "é")),
    }
    return replace(snapshot, run=replace(run, annotations=said))


_ANNOTATIONS = (
    *(
        "paused",
        "test-only",
        "restart-request",
        "requeue-request",
        "checkpoint-request",
        "debug-release",
        "array",
        "user",
    ),
)


def spec(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    run = snapshot.run
    if run.spec is None or rng.random() < 0.05:
        return replace(
            snapshot, run=replace(run, spec=None, spec_error="spec.nodes: no", generation=run.generation + 1)
        )
    body = run.spec.dump_written() | rng.choice(EDITS)(rng, now)
    new = TrainingRunSpec.model_validate({key: value for key, value in body.items() if value is not None})
    generation = run.generation + (rng.random() < 0.8)
    return replace(snapshot, run=replace(run, spec=new, generation=generation))


EDITS: Sequence[Callable[[Random, float], Mapping[str, Any]]] = (
    lambda rng, now: {"suspend": rng.random() < 0.5},
    lambda rng, now: {"cancel": True},
    lambda rng, now: {"nodes": rng.choice((1, 2, 3, 4, 16_384)), "elastic": None},
    lambda rng, now: {"timeLimit": rng.choice((None, "1s", "5m", "1h", "9999d")), "minTimeLimit": None},
    lambda rng, now: {
        "deadline": rng.choice((None, to_rfc3339(now + 60), to_rfc3339(now - 60), "9999-12-31T23:59:59Z")),
        "notBefore": None,
    },
    lambda rng, now: {"notBefore": to_rfc3339(now + rng.choice((-60, 60, 1e6))), "deadline": None},
    lambda rng, now: {
        "onTimeLimit": {"action": rng.choice(("Fail", "Requeue")), "leadTime": rng.choice(("0s", "10m", "9d"))}
    },
    lambda rng, now: {"budget": rng.choice((None, {"gpuHours": 1, "action": "Stop"}, {"gpuHours": 1}))},
    lambda rng, now: {"ttlAfterFinished": rng.choice((None, "0s", "1h"))},
    lambda rng, now: {
        "checkpoint": rng.choice((None, {"shared": {"claimName": "lustre"}}, {"local": {"storage": "nvme"}}))
    },
    lambda rng, now: {"recovery": rng.choice(RECOVERIES)},
    lambda rng, now: {
        "progress": {
            "totalSteps": rng.choice((1, 10, 2**53)),
            "tokensPerStep": 2**53,
            "flopsPerToken": 2**53,
            "pattern": "(?P<step>x)",
        }
    },
    lambda rng, now: {"queue": rng.choice(("default", "own", "gone"))},
    lambda rng, now: {"placement": {"excludeNodes": ["n0", "n1"]}},
)
RECOVERIES: Sequence[Mapping[str, Any]] = (
    {"noProgressLimit": 1, "debugHold": "5m"},
    {"maxRestarts": 0},
    {"hangTimeout": "2m", "onStraggler": "Replace", "onLossSpike": "RollBack", "onCordon": "Migrate"},
    {"hangTimeout": "Disabled", "onNaN": "Stop"},
    {"rules": [{"name": "mine", "exitCodes": [1], "action": "RollBack", "limit": 1}]},
    {
        "rules": [
            {"name": "mine", "logPattern": "x", "action": "ReplaceNode"},
            {"name": "other", "nodeCondition": "GpuUnhealthy", "action": "Stop"},
        ]
    },
)
