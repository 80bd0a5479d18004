"""A few runs beside each other: how far each is, how fast, and its loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.controller.web import measured
from lockstep.controller.web.losses import Point
from lockstep.controller.web.run import curve
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.worker_report import WorkerReport
from lockstep.present.amounts import zone_named
from lockstep.present.runs import completion, nodes_of, state_of

MOST_RUNS = 4


@dataclass(frozen=True, slots=True)
class Facts:
    """What one of them is made from."""

    run: RunView
    reports: Mapping[int, WorkerReport]
    losses: Sequence[Point]


@zone_named()
def side(facts: Facts, now: float) -> dict[str, Any]:
    """One of them, for somebody who may read it."""
    run = facts.run
    state, reason = state_of(run)
    return {
        "namespace": run.namespace,
        "name": run.name,
        "uid": run.uid,
        "state": state,
        "reason": reason,
        "nodes": nodes_of(run),
        "attempt": run.status.attempt,
        "progress": run.status.progress.dump(),
        "measured": measured.measured(run, facts.reports),
        "completion": completion(run, now),
        "losses": curve(facts.losses),
    }
