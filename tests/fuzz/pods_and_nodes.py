"""Pods and nodes as kubelets, controllers and administrators may leave them, and pods in a gang's name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from fuzz.values import CODES, COUNTS, NODES
from lockstep.api.base import names
from lockstep.core.model.cluster_objects import parse_pod
from lockstep.core.model.snapshot import NodeFailure, NodeView, PodPhase, PodView, RunSnapshot, Taint

POD_REASONS = (
    *("", "Evicted", "OOMKilled", "Error", "ImagePullBackOff", "Unschedulable", "NodeShutdown", "DeadlineExceeded"),
    *(
        "UnexpectedAdmissionError",
        "OutOfcpu",
        "TopologyAffinityError",
        "NodeAffinity",
        "NodePorts",
        "ContainerCannotRun",
    ),
    *("CreateContainerConfigError", "Completed", "PreemptionByScheduler", "StartError", "FailedMount", "x"),
)


def pods(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    found = list(snapshot.pods)
    if not found:
        return None
    index = rng.randrange(len(found))
    match rng.randrange(6):
        case 0:
            del found[index]
        case 1:
            if (made := forged(rng, found[index], now)) is not None:
                found.append(made)
        case _:
            found[index] = replace(found[index], **rng.choice(_ABOUT_PODS)(rng, found[index], now))
    return replace(snapshot, pods=tuple(found))


def forged(rng: Random, pod: PodView, now: float) -> PodView | None:
    """One that somebody else made in the gang's name, with the run for its owner. None: it is read as nobody's."""
    slot, incarnation = rng.choice((0, 1, 2, 7, 20_000)), rng.choice((0, 1, 2, 99, 2**31 - 1))
    name = names.pod_name(pod.run, pod.run_uid, slot, incarnation)
    start, *ends = name.rsplit("-", 2)
    if rng.random() < 0.3:
        name = "-".join((start, *("0" * rng.randrange(3) + end for end in ends)))
    read = _as_read(name, pod)
    if read is None:
        return None
    return replace(
        pod,
        name=name,
        uid=f"forged-{rng.randrange(1000)}",
        slot=read.slot,
        incarnation=read.incarnation,
        node=rng.choice(NODES),
        bound=rng.random() < 0.5,
        resolved=rng.choice(("", pod.resolved, "{}", "[", '{"nodes": 2}', '{"gpusPerNode": "x"}')),
        created_at=rng.choice((0.0, now, now + 100)),
        attempt=rng.choice(COUNTS),
    )


def _as_read(name: str, pod: PodView) -> PodView | None:
    owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "name": pod.run, "uid": pod.run_uid}
    meta = {"name": name, "uid": "forged", "ownerReferences": [owner | {"controller": True}]}
    read = parse_pod(json.dumps({"metadata": meta}).encode()).view
    return read if isinstance(read, PodView) else None


_ABOUT_PODS: Sequence[Callable[[Random, PodView, float], Mapping[str, Any]]] = (
    lambda rng, p, now: {"phase": rng.choice([*PodPhase]), "exit_code": rng.choice((None, *CODES))},
    lambda rng, p, now: {
        "phase": PodPhase.FAILED,
        "reason": rng.choice(POD_REASONS),
        "message": rng.choice(("", "Usage of EmptyDir volume exceeds the limit", "exceeded quota", "é" * 3000)),
        "exit_code": rng.choice((None, *CODES)),
        "ended_at": rng.choice((None, 0.0, now - 1, now + 100)),
    },
    lambda rng, p, now: {"reason": rng.choice(POD_REASONS), "message": rng.choice(("", "x", "é" * 3000))},
    lambda rng, p, now: {"deleting": True, "killed_at": rng.choice((0.0, now + 30, now - 30))},
    lambda rng, p, now: {"bound": not p.bound, "bound_at": rng.choice((None, now, 0.0))},
    lambda rng, p, now: {"started_at": rng.choice((None, 0.0, now - 10, now + 10))},
    lambda rng, p, now: {"node": rng.choice(NODES)},
    lambda rng, p, now: {"incarnation": rng.choice((0, 1, 2, 3, 99, 2**31 - 1))},
    lambda rng, p, now: {"slot": rng.choice((0, 1, 2, 3, 7, 32_767))},
    lambda rng, p, now: {"disruption": rng.choice(("EvictionByEvictionAPI", "DeletionByTaintManager", "x"))},
    lambda rng, p, now: {"resolved": rng.choice(("", "{}", "[", "null", '{"nodes": -1}', "x" * 300))},
    lambda rng, p, now: {"attempt": rng.choice(COUNTS)},
    lambda rng, p, now: {"created_at": rng.choice((0.0, now - 1000, now + 1000))},
    lambda rng, p, now: {"uid": "another", "owner_uid": rng.choice((p.owner_uid, "", "x"))},
    lambda rng, p, now: {"pod_ip": rng.choice(("", "::1", "10.0.0.9"))},
)


def nodes(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    known = dict(snapshot.nodes)
    if not known:
        return None
    name = rng.choice([*known])
    if rng.random() < 0.2:
        del known[name]
    else:
        known[name] = altered_node(rng, known[name], now)
    return replace(snapshot, nodes=known)


def altered_node(rng: Random, node: NodeView, now: float) -> NodeView:
    """As its kubelet, a controller or an administrator may make it."""
    return replace(node, **rng.choice(_ABOUT_NODES)(rng, node, now))


_TAINTS = (
    *(
        (names.TAINT_NOT_READY, "NoExecute"),
        (names.TAINT_UNREACHABLE, "NoExecute"),
        (names.TAINT_UNSCHEDULABLE, "NoSchedule"),
    ),
    *(
        (names.TAINT_OUT_OF_SERVICE, "NoExecute"),
        ("nvidia.com/gpu", "NoSchedule"),
        ("x", "NoExecute"),
        ("x", "PreferNoSchedule"),
    ),
)
_ABOUT_NODES: Sequence[Callable[[Random, NodeView, float], Mapping[str, Any]]] = (
    lambda rng, n, now: {"ready": not n.ready, "ready_changed_at": rng.choice((0.0, now - 400, now, now + 60))},
    lambda rng, n, now: {"unschedulable": not n.unschedulable},
    lambda rng, n, now: {"taints": tuple(Taint(*rng.choice(_TAINTS)) for _ in range(rng.choice((0, 1, 2))))},
    lambda rng, n, now: {"drain": rng.choice(("", "new firmware", "é" * 256))},
    lambda rng, n, now: {
        "conditions": rng.choice(({}, {"GpuUnhealthy": "Xid"}, {"MemoryPressure": ""}, {"x": "y"})),
        "conditions_changed_at": rng.choice((0.0, now - 10, now)),
    },
    lambda rng, n, now: {
        "allocatable": rng.choice(
            (
                {},
                {"cpu": 1},
                {**n.allocatable, "nvidia.com/gpu": 0},
                {**n.allocatable, "nvidia.com/gpu": 3},
                {"nvidia.com/gpu": 8, "cpu": 2**63 - 1, "memory": 0, "pods": 1},
            )
        )
    },
    lambda rng, n, now: {"deleting": True},
    lambda rng, n, now: {"labels": rng.choice(({}, {**n.labels, "nvidia.com/gpu.product": "NVIDIA-H200"}))},
    lambda rng, n, now: {
        "failures": tuple(
            NodeFailure(f"ns/{rng.choice(('one', 'two', 'x'))}", rng.choice((0.0, now - 100, now)), "Hardware")
            for _ in range(rng.choice((1, 8)))
        ),
        "suspect": rng.choice(("", "two runs")),
    },
    lambda rng, n, now: {"internal_ip": rng.choice(("", "::1"))},
    lambda rng, n, now: {"uid": "another"},
)
