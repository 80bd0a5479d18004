"""One pass of admission with two GPU types, runs that have nodes already, and what came of it."""

from dataclasses import replace
from typing import Any

from lockstep.api.base.changes import changed
from lockstep.core.admission.admit import admit
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, held, run, statuses

HOUR = 3600.0
GPU_TYPES = {"H100": {"gpu": "h100"}, "A100": {"gpu": "a100"}}


def passed(snapshot: ClusterSnapshot, now: float = NOW, **settings: Any) -> ClusterPlan:
    return admit(snapshot, Tunables(gpu_types=GPU_TYPES, admission=AdmissionSettings(**settings)), now)


def holding(name: str, *nodes: str, since: float = NOW, limit: int | None = None, **spec: Any) -> RunView:
    """A run that has nodes since ``since``, with ``limit`` seconds of time."""
    view = run(name, len(nodes), status={**held(*nodes), "last_admitted": since}, **spec)
    admission = changed(view.status.admission, time_limit=limit)
    return replace(view, status=changed(view.status, admission=admission))


def admitted(plan: ClusterPlan) -> set[str]:
    return {write.name for write in plan.writes if write.nodes}


def queue_of(plan: ClusterPlan, name: str) -> Any:
    return statuses(plan)[name].queue
