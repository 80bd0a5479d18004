"""Snapshots of a small cluster for one admission cycle, and what a cycle made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lockstep.api.base.changes import changed
from lockstep.api.base.durations import parse_duration
from lockstep.api.queue import TrainingQueueSpec
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import AdmissionStatus, AssignmentStatus, Condition, TrainingRunStatus
from lockstep.core.model.assignment import assigned, is_held
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot, Leadership, NodeView, PodPhase, PodView, QueueView, RunView

RACK = "topology.kubernetes.io/rack"
NOW = 1_000.0
ACCEPTED = Condition(type="Accepted", status="True", reason="Accepted", last_transition_time=0, observed_generation=1)
FINISHED = Condition(type="Finished", status="True", reason="Cancelled", last_transition_time=0, observed_generation=1)


def node(name: str, rack: str = "r1", **changes: Any) -> NodeView:
    """A node with eight GPUs."""
    free = {"cpu": 192_000, "memory": 2**41, "nvidia.com/gpu": 8}
    return NodeView(name, name, {RACK: rack, **changes.pop("labels", {})}, changes.pop("allocatable", free), **changes)


def run(name: str, nodes: int = 1, at: float = 0.0, status: Mapping[str, Any] | None = None, **spec: Any) -> RunView:
    """An accepted run of namespace team. One that has nodes was granted its time limit with them."""
    fields = {"nodes": nodes, "image": "image", "command": ["python", "train.py"], **spec}
    view = RunView(
        namespace="team",
        name=name,
        uid=f"uid-{name}",
        generation=1,
        resource_version="7",
        created_at=at,
        spec=TrainingRunSpec.model_validate(fields),
        status=changed(TrainingRunStatus(conditions=(ACCEPTED,)), **dict(status or {})),
    )
    has_nodes = is_held(view.status.assignment) and "admission" not in (status or {})
    return with_limit(view, spec.get("timeLimit")) if has_nodes else view


def with_limit(view: RunView, limit: str | None) -> RunView:
    """The same with this time limit, granted in full."""
    assert view.spec is not None
    granted = AdmissionStatus(time_limit=None if limit is None else parse_duration(limit), asked_limit=limit or "")
    spec = changed(view.spec, time_limit=limit)
    return replace(view, spec=spec, status=changed(view.status, admission=granted))


def pod(of: RunView, slot: int, on: str, phase: PodPhase = PodPhase.RUNNING, **changes: Any) -> PodView:
    """A gang pod of a run. One that is being deleted has a grace that ends now."""
    if changes.get("deleting"):
        changes.setdefault("killed_at", NOW)
    incarnation = changes.pop("incarnation", 1)
    name = f"{of.name}-{slot}-{incarnation}"
    return PodView("team", name, name, of.name, of.uid, of.uid, slot, incarnation, on, True, phase, 0.0, **changes)


def world(
    runs: Sequence[RunView],
    nodes: Sequence[NodeView] | int = 4,
    *,
    queues: Mapping[str, Mapping[str, Any]] | None = None,
    disruption: str = "",
    classes: Mapping[str, int] | None = None,
    **rest: Any,
) -> ClusterSnapshot:
    """What a cycle sees; ``nodes`` as a number are n0, n1, … in one rack."""
    views = [node(f"n{index}") for index in range(nodes)] if isinstance(nodes, int) else nodes
    return ClusterSnapshot(
        runs=tuple(runs),
        queues={name: QueueView(name, TrainingQueueSpec.model_validate(spec)) for name, spec in (queues or {}).items()},
        nodes={view.name: view for view in views},
        gang_pods=tuple(rest.get("pods", ())),
        foreign_requests=rest.get("foreign", {}),
        in_flight=rest.get("in_flight", {}),
        leadership=Leadership(0.0, disruption),
        namespace_labels=rest.get("namespace_labels", {}),
        priority_classes=classes or {},
        fair_shares=rest.get("fair_shares", {}),
        gpu_hours=rest.get("gpu_hours", {}),
    )


def statuses(plan: ClusterPlan) -> dict[str, TrainingRunStatus]:
    """What is written, by run."""
    return {write.name: write.status for write in plan.writes}


def after(snapshot: ClusterSnapshot, plan: ClusterPlan) -> ClusterSnapshot:
    """The snapshot once the plan is carried out."""
    written = statuses(plan)
    return replace(
        snapshot,
        runs=tuple(replace(view, status=written.get(view.name, view.status)) for view in snapshot.runs),
    )


def reason(plan: ClusterPlan, name: str) -> tuple[int, str]:
    """Position and reason that a run is told."""
    queue = statuses(plan)[name].queue
    return queue.position, queue.reason


def held(*nodes: str) -> dict[str, Any]:
    """The status of a run that has these nodes, in its first attempt."""
    return {"attempt": 1, "assignment": assigned(AssignmentStatus(), nodes)}
