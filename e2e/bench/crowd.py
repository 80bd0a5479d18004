"""A large cluster with a long queue, as the admission cycle sees it: made of views, no API server behind it.

Nodes stand in racks of 16, a quarter of them A100, the others H100. 50 queues in 5 cohorts have quotas that add up to
the cluster. Runs are of a few dozen shapes: sizes from 1 to 512 nodes, small ones more often, time limits from an hour
to two days, some with topology rules. Nine tenths of the nodes are held by runs of the same shapes, with their pods.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from lockstep.api.base.changes import changed
from lockstep.api.queue import TrainingQueueSpec
from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import (
    AdmissionStatus,
    AssignmentStatus,
    Condition,
    ResolvedStatus,
    TrainingRunStatus,
)
from lockstep.core.model.assignment import assigned, is_held, released
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import (
    Changes,
    ClusterSnapshot,
    Leadership,
    NodeView,
    PodPhase,
    PodView,
    QueueView,
    RunView,
)

_View = TypeVar("_View")

NOW = 1_000_000.0
RACK = "topology.kubernetes.io/rack"
ZONE = "topology.kubernetes.io/zone"
NODES_PER_RACK = 16
QUEUES, COHORTS, NAMESPACES, SHAPES = 50, 5, 100, 36
_TAKEN = 0.9
_SIZES = (1, 1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 16, 16, 32, 32, 64, 128, 256, 512)
_HOURS = (1, 2, 4, 8, 12, 24, 48)
_CLASSES = {"urgent": 1000, "normal": 500, "spare-time": 0}
_TOPOLOGIES: tuple[list[dict[str, object]], ...] = (
    [],
    [],
    [{"level": "rack", "policy": "Pack", "mode": "Preferred"}],
    [{"level": "zone", "policy": "Pack", "mode": "Required"}],
    [{"level": "rack", "policy": "Contiguous", "mode": "Preferred"}],
)
_PRODUCTS = {"H100": "NVIDIA-H100-80GB-HBM3", "A100": "NVIDIA-A100-SXM4-80GB"}
_ACCEPTED = Condition(
    type="Accepted", status="True", reason="Accepted", last_transition_time=NOW - 1000, observed_generation=1
)


@dataclass(frozen=True)
class Shape:
    """What many runs ask for alike."""

    nodes: int
    hours: int
    gpu_type: str
    topology: Sequence[dict[str, object]]

    def spec(self, queue: str, priority_class: str) -> TrainingRunSpec:
        """The spec of a run of this shape."""
        fields: dict[str, Any] = {
            "nodes": self.nodes,
            "gpusPerNode": 8,
            "image": "train",
            "command": ["torchrun", "train.py"],
            "queue": queue,
            "priorityClassName": priority_class,
            "timeLimit": f"{self.hours}h",
            "placement": {"gpuTypes": [self.gpu_type], "topology": list(self.topology)},
        }
        return TrainingRunSpec.model_validate(fields)


class Crowd:
    """Makes runs, deterministically. ``nodes`` and ``runs`` (those that wait) are numbers."""

    def __init__(self, runs: int, nodes: int, seed: int = 1, preemption: Mapping[str, str] | None = None) -> None:
        """``preemption``: the rules of every queue for sending others away; None: nobody is sent away."""
        self._chance = random.Random(seed)
        self._preemption = preemption
        self._made = 0
        self._nodes = [_node(number, nodes) for number in range(nodes)]
        sizes = [size for size in _SIZES if size <= max(1, nodes // 16)]
        self._shapes = [
            Shape(
                sizes[number % len(sizes)],
                self._chance.choice(_HOURS),
                "A100" if number % 4 == 0 and sizes[number % len(sizes)] <= nodes // 32 else "H100",
                self._chance.choice(_TOPOLOGIES),
            )
            for number in range(SHAPES)
        ]
        holding, pods = self._holding()
        waiting = [self.waiting() for _ in range(runs)]
        self.snapshot = ClusterSnapshot(
            runs=(*holding, *waiting),
            queues=dict(self._queues()),
            nodes={node.name: node for node in self._nodes},
            gang_pods=tuple(pods),
            foreign_requests={node.name: {"cpu": 2_000, "memory": 2**32} for node in self._nodes},
            in_flight={},
            leadership=Leadership(0.0),
            priority_classes=_CLASSES,
        )

    def waiting(self) -> RunView:
        """One more run that waits."""
        return self._run(self._chance.choice(self._shapes))

    def _holding(self) -> tuple[list[RunView], list[PodView]]:
        """Runs on nine tenths of the nodes, begun within the last hours."""
        free = {
            kind: [n.name for n in self._nodes if n.labels["nvidia.com/gpu.product"] == product]
            for kind, product in _PRODUCTS.items()
        }
        spare = {kind: int(len(nodes) * (1 - _TAKEN)) for kind, nodes in free.items()}
        runs, pods = [], []
        while any(len(free[kind]) > spare[kind] for kind in free):
            shape = self._chance.choice(self._shapes)
            left = free[shape.gpu_type]
            if len(left) <= spare[shape.gpu_type]:
                continue
            count = min(shape.nodes, len(left) - spare[shape.gpu_type])
            chosen, free[shape.gpu_type] = left[:count], left[count:]
            begun = NOW - self._chance.uniform(0, 0.9) * shape.hours * 3600
            run = self._run(replace(shape, nodes=count))
            status = changed(
                run.status,
                attempt=1,
                assignment=assigned(AssignmentStatus(), chosen),
                last_admitted=float(int(begun)),
                attempts=(AttemptStatus(number=1, started_at=float(int(begun))),),
                admission=AdmissionStatus(time_limit=shape.hours * 3600, asked_limit=f"{shape.hours}h"),
                resolved=ResolvedStatus(
                    generation=1, gpu_type=shape.gpu_type, gpus_per_node=8, cpu="100", memory="1Ti", nodes=count
                ),
            )
            run = replace(run, status=status)
            runs.append(run)
            pods += [_pod(run, slot, node) for slot, node in enumerate(chosen)]
        return runs, pods

    def _run(self, shape: Shape) -> RunView:
        number, chance = self._made, self._chance
        self._made += 1
        queue, priority_class = f"queue-{chance.randrange(QUEUES)}", chance.choice([*_CLASSES])
        return RunView(
            namespace=f"team-{chance.randrange(NAMESPACES)}",
            name=f"run-{number}",
            uid=f"00000000-0000-4000-8000-{number:012d}",
            generation=1,
            resource_version="7",
            created_at=NOW - chance.uniform(0, 86_400),
            spec=shape.spec(queue, priority_class),
            status=TrainingRunStatus(conditions=(_ACCEPTED,)),
        )

    def _queues(self) -> Iterator[tuple[str, QueueView]]:
        """Each has the same part of the nodes of both types, and may borrow as much again."""
        for number in range(QUEUES):
            quotas = [
                {
                    "gpuType": kind,
                    "nominalNodes": sum(n.labels["nvidia.com/gpu.product"] == product for n in self._nodes) // QUEUES,
                }
                for kind, product in _PRODUCTS.items()
            ]
            fields: dict[str, Any] = {"cohort": f"cohort-{number % COHORTS}", "quotas": quotas}
            if self._preemption is not None:
                fields["preemption"] = dict(self._preemption)
            name = f"queue-{number}"
            yield name, QueueView(name, TrainingQueueSpec.model_validate(fields))


def written(snapshot: ClusterSnapshot, plan: ClusterPlan) -> ClusterSnapshot:
    """The snapshot once the plan is carried out, the pods of those who got nodes aside. Whoever was given notice has
    saved by then, and is gone."""
    statuses = {write.uid: write.status for write in plan.writes}
    gone = {uid for uid, status in statuses.items() if status.preemption is not None and is_held(status.assignment)}
    if statuses:
        statuses.update((uid, _requeued(statuses[uid])) for uid in gone)
        runs = tuple(replace(run, status=statuses[run.uid]) if run.uid in statuses else run for run in snapshot.runs)
        snapshot = replace(snapshot, runs=runs)
    if gone:
        pods = tuple(pod for pod in snapshot.gang_pods if pod.run_uid not in gone)
        snapshot = replace(snapshot, gang_pods=pods)
    if plan.queues:
        told = {write.name: replace(snapshot.queues[write.name], status=write.status) for write in plan.queues}
        snapshot = replace(snapshot, queues={**snapshot.queues, **told})
    return snapshot


def with_changes(before: ClusterSnapshot, now: ClusterSnapshot) -> ClusterSnapshot:
    """``now`` as the store gives it after ``before``: it says what has changed. Others request what they did."""
    runs = _differing({run.uid: run for run in before.runs}, {run.uid: run for run in now.runs})
    pods = _differing({pod.uid: pod for pod in before.gang_pods}, {pod.uid: pod for pod in now.gang_pods})
    return replace(now, changes=Changes(runs, pods, _differing(before.nodes, now.nodes).keys()))


def _differing(before: Mapping[str, _View], now: Mapping[str, _View]) -> dict[str, _View | None]:
    return {name: now.get(name) for name in before.keys() | now.keys() if before.get(name) is not now.get(name)}


def _requeued(status: TrainingRunStatus) -> TrainingRunStatus:
    """Of a run that was stopped for another, as lockstep.core.run.stopping leaves it."""
    admission = AdmissionStatus(
        since=status.admission.since, requeued_for="Preempted", preemptions=status.admission.preemptions + 1
    )
    assignment = released(status.assignment)
    return changed(status, assignment=assignment, preemption=None, last_admitted=None, admission=admission)


def _node(number: int, nodes: int) -> NodeView:
    rack, name = number // NODES_PER_RACK, f"node-{number}"
    racks = -(-nodes // NODES_PER_RACK)
    kind = "A100" if rack * 4 < racks else "H100"
    labels = {
        "kubernetes.io/hostname": name,
        RACK: f"rack-{rack}",
        ZONE: f"zone-{rack * 4 // racks}",
        "nvidia.com/gpu.product": _PRODUCTS[kind],
    }
    allocatable = {"cpu": 192_000, "memory": 2**41, "nvidia.com/gpu": 8, "pods": 110}
    return NodeView(name, f"uid-{name}", labels, allocatable, ready_changed_at=NOW - 86_400)


def _pod(run: RunView, slot: int, node: str) -> PodView:
    name = f"{run.name}-{slot}-1"
    return PodView(
        namespace=run.namespace,
        name=name,
        uid=f"pod-{name}",
        run=run.name,
        run_uid=run.uid,
        owner_uid=run.uid,
        slot=slot,
        incarnation=1,
        node=node,
        bound=True,
        phase=PodPhase.RUNNING,
        created_at=run.status.last_admitted or NOW,
    )
