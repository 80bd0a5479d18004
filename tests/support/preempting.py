"""Runs that train, runs that want their nodes, and what an admission cycle makes of both."""

from collections.abc import Mapping
from typing import Any

from lockstep.api.checkpoint_status import CheckpointStatus, SavedCheckpoint
from lockstep.api.preemption_status import ReservationStatus
from lockstep.api.recovery_status import AttemptStatus
from lockstep.core.admission.admit import admit
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot, RunView
from lockstep.core.model.tunables import Mode, Tunables
from support.admission import NOW, held, run, statuses, world

HOUR = 3600.0
CLASSES = {"low": 10, "middle": 100, "high": 1000}
WITHIN = {"preemption": {"withinQueue": "LowerPriority"}}
CHECKPOINT = {"shared": {"claimName": "lustre"}, "gracePeriod": "2m"}


def passed(snapshot: ClusterSnapshot, now: float = NOW, mode: Mode = Mode.ACTIVE, **settings: Any) -> ClusterPlan:
    """What an admission cycle decides."""
    return admit(snapshot, Tunables(mode=mode, admission=AdmissionSettings(**settings)), now)


def training(
    name: str,
    *nodes: str,
    of_class: str | None = "low",
    since: float = NOW - HOUR,
    saved: float | None = None,
    **spec: Any,
) -> RunView:
    """A run that has trained since ``since`` and saved at ``saved``."""
    latest = (SavedCheckpoint(tier="shared", step=7, time=saved),) if saved is not None else ()
    status = {
        **held(*nodes),
        "last_admitted": since,
        "attempts": (AttemptStatus(number=1, started_at=since),),
        "checkpoint": CheckpointStatus(latest=latest),
    }
    return run(name, len(nodes), at=since, status=status, priorityClassName=of_class, **spec)


def urgent(nodes: int = 2, of_class: str = "high", name: str = "urgent", at: float = NOW, **spec: Any) -> RunView:
    """A run that waits and that others may have to make room for."""
    return run(name, nodes, at=at, priorityClassName=of_class, **spec)


def cluster(*runs: RunView, nodes: Any = 4, queue: Mapping[str, Any] = WITHIN, **more: Any) -> ClusterSnapshot:
    """Classes, and a queue that preempts within itself unless ``queue`` says otherwise."""
    return world(runs, nodes, **{"queues": {"default": queue}, "classes": CLASSES, **more})


def reservation(plan: ClusterPlan, name: str = "urgent") -> ReservationStatus | None:
    """What the cycle writes that is kept for a run."""
    written = statuses(plan).get(name)
    return written.reservation if written is not None else None


def victims(snapshot: ClusterSnapshot, now: float = NOW, **settings: Any) -> tuple[str, ...]:
    """Whom the run sends away, by name; nobody: empty."""
    found = reservation(passed(snapshot, now, **settings))
    return tuple(uid.removeprefix("uid-") for uid in found.victims) if found is not None else ()


def events(plan: ClusterPlan) -> set[tuple[str, str]]:
    """Names of runs, and what is said of them."""
    return {(write.name, event.reason) for write in plan.writes for event in write.events}
