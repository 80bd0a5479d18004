"""The admission pass, run here and now by the operator's own function, where rights allow reading the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from lockstep.api import names
from lockstep.api.run_status import QueueStatus
from lockstep.cli import runs
from lockstep.cli.client import Cluster, Json, core_path, resource_path, runs_path
from lockstep.cli.errors import ApiError, CliError
from lockstep.controller.parse import ForeignPod, parse_node, parse_pod
from lockstep.core.admission.admit import admit
from lockstep.core.admission.kueue import KUEUES
from lockstep.core.admission.ledger import Ledger
from lockstep.core.admission.order import share_key
from lockstep.core.admission.settings import AdmissionSettings
from lockstep.core.conditions import find
from lockstep.core.natural import natural_key
from lockstep.core.objects import parse_queue
from lockstep.core.snapshot import ClusterSnapshot, Leadership, NodeView, PodView, RunView
from lockstep.core.tunables import Mode, Tunables


@dataclass(frozen=True, slots=True)
class LiveAdmission:
    """What the next admission pass would find for one run."""

    queue: QueueStatus
    """Why it would wait; empty when it would get all its nodes."""
    ahead: tuple[tuple[str, QueueStatus], ...]
    """Who waits for nodes in front of it in its queue, as namespace/name, and what they lack; first come first."""
    nodes: int
    """Nodes that were looked at."""
    holders: tuple[tuple[str, tuple[str, ...]], ...]
    """Who holds nodes, as namespace/name, with the nodes; most nodes first."""


class NotLive(Exception):  # noqa: N818 (a reason, not a failure)
    """Why nothing is recomputed, in words."""


def admission(cluster: Cluster, run: RunView, tunables: Tunables, now: float) -> LiveAdmission:
    """Decide as the operator would at ``now``. Raises NotLive where that would not be the truth."""
    reason = run.status.queue.reason
    if run.status.kueue is not None or reason in KUEUES:
        raise NotLive("Kueue admits it")
    if reason in (Mode.NO_NEW_ADMISSIONS.value, Mode.REPORT_ONLY.value, "ClusterDisruption"):
        raise NotLive("the operator alone knows its mode and its breaker")
    if _uses_configured_names(run, tunables):
        raise NotLive("the run uses names of the operator's configuration")
    snapshot = cluster_snapshot(cluster)
    plan = admit(snapshot, tunables, now)
    written = {write.uid: write.status.queue for write in plan.writes}
    queues = {
        other.key: written.get(other.uid, other.status.queue) for other in snapshot.runs if _same_queue(other, run)
    }
    queue = queues.get(run.key, run.status.queue)
    booked = Ledger.of(snapshot)
    held: dict[str, list[str]] = {}
    for node in sorted(booked.booked_nodes, key=natural_key):
        for holder in booked.holders(node):
            held.setdefault(holder, []).append(node)
    held.pop(run.key, None)
    return LiveAdmission(
        queue=queue,
        ahead=tuple(
            (key, other)
            for key, other in sorted(queues.items(), key=lambda item: item[1].position)
            if 0 < other.position < queue.position and other.reason != "Priority"
        ),
        nodes=len(snapshot.nodes),
        holders=tuple((holder, tuple(nodes)) for holder, nodes in sorted(held.items(), key=lambda item: -len(item[1]))),
    )


def cluster_snapshot(cluster: Cluster) -> ClusterSnapshot:
    """Everything an admission pass looks at. Raises NotLive when the user may not read some of it."""
    found: dict[str, list[Json]] = {}
    for resource, path in (
        ("nodes", core_path(None, "nodes")),
        ("pods of all namespaces", core_path(None, "pods")),
        ("runs of all namespaces", runs_path(None)),
        ("queues", resource_path(f"/apis/{names.API_VERSION}", None, names.QUEUES)),
        ("namespaces", core_path(None, "namespaces")),
        ("priority classes", resource_path("/apis/scheduling.k8s.io/v1", None, "priorityclasses")),
    ):
        try:
            found[resource] = cluster.list(path)["items"]
        except ApiError as error:
            if error.status != 403:
                raise
            raise NotLive(f"you may not read the {resource}") from error
    gang_pods: list[PodView] = []
    foreign: dict[str, dict[str, int]] = {}
    for raw in found["pods of all namespaces"]:
        pod = parse_pod(msgspec.json.encode(raw)).view
        if isinstance(pod, ForeignPod):
            _add(foreign, pod)
        else:
            gang_pods.append(pod)
    views = tuple(_whole_if_readable(cluster, runs.view(raw)) for raw in found["runs of all namespaces"])
    disrupted = next((c for run in views if (c := find(run.status, "ClusterDisruption"))), None)
    return ClusterSnapshot(
        runs=views,
        queues={raw["metadata"]["name"]: parse_queue(raw) for raw in found["queues"]},
        nodes=node_views(found["nodes"]),
        gang_pods=tuple(gang_pods),
        foreign_requests=foreign,
        in_flight={},
        leadership=Leadership(since=0.0, disruption=disrupted.message if disrupted is not None else ""),
        namespace_labels={raw["metadata"]["name"]: raw["metadata"].get("labels") or {} for raw in found["namespaces"]},
        priority_classes={raw["metadata"]["name"]: raw["value"] for raw in found["priority classes"]},
        fair_shares=_told_shares(views),
    )


def _told_shares(views: Iterable[RunView]) -> dict[tuple[str, str, str], float]:
    """What the operator alone keeps, read off the points that it told those who wait."""
    weight = AdmissionSettings().weights.fair_share
    told = [run for run in views if run.status.queue.updated is not None and not run.status.admission.requeued_for]
    return {share_key(run): min(1.0, run.status.queue.factors.get("fairShare", 0) / weight) for run in told}


def readable_nodes(cluster: Cluster) -> dict[str, NodeView]:
    """The cluster's nodes; empty when the user may not read them."""
    try:
        items = cluster.list(core_path(None, "nodes"))["items"]
    except ApiError as error:
        if error.status != 403:
            raise
        return {}
    return node_views(items)


def node_views(items: Iterable[Json]) -> dict[str, NodeView]:
    """Nodes by name, as the core sees them."""
    return {raw["metadata"]["name"]: parse_node(msgspec.json.encode(raw)).view for raw in items}


def _same_queue(one: RunView, other: RunView) -> bool:
    return one.spec is not None and other.spec is not None and one.spec.queue == other.spec.queue


def _uses_configured_names(run: RunView, tunables: Tunables) -> bool:
    if run.spec is None:
        return False
    levels = {rule.level for rule in run.spec.placement.topology}
    return not (
        levels <= set(tunables.topology_levels) and set(run.spec.placement.gpu_types) <= set(tunables.gpu_types)
    )


def _whole_if_readable(cluster: Cluster, run: RunView) -> RunView:
    """The assignment from its ConfigMap; where that cannot be read, the pods tell which nodes are booked."""
    try:
        return runs.with_reservation(cluster, runs.whole(cluster, run))
    except CliError:
        return run


def _add(foreign: dict[str, dict[str, int]], pod: ForeignPod) -> None:
    if pod.terminal or not pod.node:
        return
    total = foreign.setdefault(pod.node, {})
    for resource, value in pod.requests.items():
        total[resource] = total.get(resource, 0) + value
