"""An array of a hundred runs, of which some are at work, and an API server that has them."""

from __future__ import annotations

from typing import Any

from lockstep.api.base import names
from support import sample_runs as sample
from support.cli_server import CliServer

SWEEP_UID = "0c0ffee0-0000-4000-8000-000000000000"


def sweep(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """An array of a hundred, eight at once."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_SET_KIND,
        "metadata": {
            "name": "sweep",
            "namespace": "team",
            "uid": SWEEP_UID,
            "generation": 1,
            "resourceVersion": "9",
            "creationTimestamp": sample.at(7200),
        },
        "spec": {"indices": "0-99", "maxRunning": 8, "template": {"spec": sample.SPEC}} | spec,
        "status": status or {},
    }


def of_sweep(raw: dict[str, Any], index: int) -> dict[str, Any]:
    """A run of it."""
    owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_SET_KIND, "name": "sweep", "uid": SWEEP_UID}
    metadata = {"name": f"sweep-{index}", "uid": f"uid-{index}", "ownerReferences": [owner]}
    return raw | {"metadata": raw["metadata"] | metadata}


AT_WORK = {
    "observedGeneration": 1,
    "state": "Running",
    "reason": "RunsActive",
    "done": "43/100",
    "counts": {"total": 100, "pending": 55, "running": 2, "succeeded": 41, "failed": 1, "cancelled": 1},
    "indices": {"active": "43-46", "succeeded": "0-40", "failed": "41", "cancelled": "42"},
}
RUNS = [
    of_sweep(sample.running(), 43),
    of_sweep(sample.recovering(), 44),
    of_sweep(sample.pending(position=3, updated=sample.at(30), priority=7), 46),
    of_sweep(sample.pending(position=2, updated=sample.at(30), priority=8), 45),
]


def with_run(own: bool, **spec: Any) -> CliServer:
    """The set, and one of its runs, which its user holds or not."""
    run = RUNS[3] | {"spec": RUNS[3]["spec"] | {"suspend": own}}
    return CliServer({"trainingrunsets/sweep": sweep(AT_WORK, **spec), "trainingruns/sweep-45": run})


def with_sweep(conflicts: int = 0, refusals: dict[str, BaseException] | None = None, **spec: Any) -> CliServer:
    """One set and one of its runs."""
    there = {"trainingrunsets/sweep": sweep(AT_WORK, **spec), "trainingruns/sweep-43": RUNS[0]}
    return CliServer(there, conflicts=conflicts, refusals=refusals)
