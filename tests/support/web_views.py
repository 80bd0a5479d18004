"""Nodes, runs, queues, arrays and what workers say, as the page reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lockstep.api.base import names
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.own_objects import parse_queue, parse_run, parse_run_set
from lockstep.core.model.snapshot import NodeView, QueueView, RunView
from lockstep.core.model.worker_report import (
    CheckpointReport,
    ProgressReport,
    TimingReport,
    Verdict,
    WorkerPhase,
    WorkerReport,
)
from support import sample_runs

GPUS = {names.GPU_RESOURCE: 8, "cpu": 192_000, "memory": 2**41, "pods": 110}
Json = dict[str, Any]


def node(name: str, zone: str, rack: str, **changes: Any) -> NodeView:
    """An eight-GPU node."""
    labels = {
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/rack": rack,
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    }
    return replace(NodeView(name=name, uid=f"uid-{name}", labels=labels, allocatable=GPUS), **changes)


def racks(count: int, per_rack: int = 16, racks_per_zone: int = 16) -> list[NodeView]:
    """Nodes in their places."""
    return [
        node(f"gpu-{i}", f"zone-{i // (per_rack * racks_per_zone) + 1}", f"rack-{i // per_rack + 1}")
        for i in range(count)
    ]


def raw_run(namespace: str, name: str, count: int, **status: Any) -> Json:
    """A TrainingRun as the API server has it."""
    raw = sample_runs.run(name, nodes=count, status=status)
    raw["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    return raw


def holding(namespace: str, name: str, nodes: Sequence[str], **changes: Any) -> RunView:
    """A run that trains on ``nodes``."""
    raw = sample_runs.running(
        nodesReady=f"{len(nodes)}/{len(nodes)}",
        assignment={"revision": 1, "hash": "0" * 16, "nodes": list(nodes), "incarnations": [1] * len(nodes)},
        **changes,
    )
    raw["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{name}", "name": name}
    raw["spec"]["nodes"] = len(nodes)
    raw["metadata"]["creationTimestamp"] = sample_runs.at(100_000)
    return parse_run(raw)


def waiting(namespace: str, name: str, count: int = 4, queue: str = "default", **said: Any) -> RunView:
    """A run that has been told its place."""
    raw = sample_runs.pending(name, **{"message": f"needs {count} nodes, 1 fit: the others are booked by runs"} | said)
    raw["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    raw["spec"] |= {"nodes": count, "queue": queue}
    raw["status"]["nodesReady"] = f"0/{count}"
    return parse_run(raw)


def queue(name: str = "default", **spec: Any) -> QueueView:
    """A TrainingQueue."""
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": sample_runs.at(9000)}
    return parse_queue({"metadata": meta, "spec": spec})


def report(slot: int, on: str, step: int, *, loss: str = "", now: float, **changes: Any) -> WorkerReport:
    """What a worker that trains last said."""
    return replace(
        WorkerReport(
            slot=slot,
            incarnation=1,
            pod_uid=f"pod-{slot}",
            node=on,
            phase=WorkerPhase.RUNNING,
            received_at=now,
            attempt=2,
            progress=ProgressReport(step, now, loss),
            timing=TimingReport(section="Step"),
        ),
        **changes,
    )


def saved(step: int, verdict: Verdict = Verdict.VALID, reason: str = "") -> CheckpointReport:
    """A checkpoint of the shared tier as one worker sees it."""
    path = f"/shared-checkpoints/c83fa/a4/step-{step}"
    return CheckpointReport("shared", step, path, verdict, reason, "TorchDCP", 4, bytes=1100 * 2**30)


def saved_here(step: int, rank: int) -> CheckpointReport:
    """The share of one rank on its own disks."""
    path = f"/local-checkpoints/c83fa/a4/step-{step}/rank-{rank}"
    return CheckpointReport("local", step, path, Verdict.VALID, "", "TorchDCP", 4, bytes=17 * 2**30)


def saved_as(step: int, tier: str) -> Json:
    """A checkpoint as status has it."""
    return {"tier": tier, "step": step, "path": f"/{tier}-checkpoints/c83fa/a4/step-{step}", "attempt": 4}


SWEEP: Json = {
    "observedGeneration": 1,
    "state": "Running",
    "reason": "RunsActive",
    "done": "43/100",
    "counts": {"total": 100, "pending": 55, "running": 2, "succeeded": 41, "failed": 1, "cancelled": 1},
    "indices": {"active": "43-46", "succeeded": "0-40", "failed": "41", "cancelled": "42"},
}
"""Of a hundred indices two train, and two have runs that wait."""


def sweep(namespace: str, name: str, status: Json | None = None, **spec: Any) -> RunSetView:
    """An array of a hundred, eight at once."""
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "generation": 1}
    meta |= {"resourceVersion": "9", "creationTimestamp": sample_runs.at(7200)}
    asked = {"indices": "0-99", "maxRunning": 8, "template": {"spec": sample_runs.SPEC}} | spec
    return parse_run_set({"metadata": meta, "spec": asked, "status": SWEEP if status is None else status})


def member(owner: RunSetView, index: int, run: RunView) -> RunView:
    """``run`` as that of an index."""
    name = f"{owner.name}-{index}"
    uid = f"uid-{owner.namespace}-{name}"
    return replace(run, set_uid=owner.uid, set_name=owner.name, namespace=owner.namespace, name=name, uid=uid)
