"""A dry run of admission by the operator's own function, here and now, where rights allow reading the cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.queue import ANY_GPU_TYPE, QueueLimits
from lockstep.api.run_status import QueueStatus
from lockstep.cli import operator_settings, runs
from lockstep.cli.client import Cluster, Json, core_path, resource_path, runs_path
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.operator_settings import OperatorSettings, fair_shares, read_settings
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.entry import is_pending
from lockstep.core.admission.cache.excluded_runs import without
from lockstep.core.admission.cache.ledger import Ledger, is_in_doubt, is_of_its_run, with_strangers
from lockstep.core.admission.cache.status_throttle import same_estimate
from lockstep.core.admission.kueue_admission import KUEUES
from lockstep.core.arrays.members import governed, is_member
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.cluster_objects import ForeignPod, parse_node, parse_pod
from lockstep.core.model.conditions import find
from lockstep.core.model.natural_order import natural_key
from lockstep.core.model.own_objects import parse_queue, parse_run_set
from lockstep.core.model.reasons import ConditionReason, ConditionType, WaitReason
from lockstep.core.model.reservation import is_unread
from lockstep.core.model.snapshot import (
    ClusterSnapshot,
    Leadership,
    NodeView,
    PlaceholderView,
    PodView,
    QueueView,
    RefusedAdmission,
    RunView,
)
from lockstep.core.model.tunables import Mode, Tunables
from lockstep.core.pods.placeholders import foreign_placeholders
from lockstep.present.explanation import LiveAdmission, NotLive, waits_for_nodes
from lockstep.present.runs import early_end, queue_of

_OPERATORS_ALONE: Mapping[str, str] = {
    WaitReason.CLUSTER_DISRUPTION: "its breaker",
    WaitReason.ADMISSION_REFUSED: "what the API server refused it",
    WaitReason.GPU_HOURS_UNKNOWN: "whether it has read its book of usage",
    WaitReason.UNDECIDABLE: "what it cannot decide",
}
"""Reasons that nothing outside of the operator tells of, and what it knows."""
_MODES = (Mode.NO_NEW_ADMISSIONS.value, Mode.REPORT_ONLY.value)


def admission(
    cluster: Cluster, run: RunView, now: float, operator_namespace: str = operator_settings.NAMESPACE
) -> LiveAdmission:
    """Decide as the operator would at ``now``. Raises NotLive where that would not be the truth."""
    told = run.status.queue.reason
    if run.status.kueue is not None or told in KUEUES:
        raise NotLive("Kueue admits it")
    if told in _OPERATORS_ALONE:
        raise NotLive(f"the operator alone knows {_OPERATORS_ALONE[told]}")
    settings = read_settings(cluster, operator_namespace)
    tunables, unread = settings.tunables, settings.unread
    if told in _MODES and tunables.mode.value != told:
        raise NotLive("the operator alone knows its mode")
    if told == WaitReason.WINDOW and unread:
        raise NotLive(f"maintenance windows are in the operator's settings, and {unread}")
    if settings.namespaces and run.namespace not in settings.namespaces:
        raise NotLive(f"the operator does not look after namespace {run.namespace}")
    snapshot = cluster_snapshot(cluster, settings, now, operator_namespace)
    unknown = _names_beyond(snapshot, tunables) if unread else ""
    if unknown:
        raise NotLive(f"{unknown} is a name of the operator's settings, and {unread}")
    mine = next((other for other in snapshot.runs if other.uid == run.uid), run)
    if told == WaitReason.MAX_RUNNING and (mine.namespace, mine.set_uid) not in snapshot.widths:
        raise NotLive("the maxRunning of its array could not be read")
    if told == WaitReason.PREEMPTING and is_unread(mine.status.reservation):
        raise NotLive("what is kept for it could not be read")
    plan = admit(snapshot, replace(tunables, admission=_unthrottled(tunables.admission)), now)
    written = {write.uid: write.status.queue for write in plan.writes}
    queues = {
        other.key: written.get(other.uid, other.status.queue)
        for other in snapshot.runs
        if _same_queue(other, run) and waits_for_nodes(other)  # what else has a position has kept it from before
    }
    queue = _as_told(queues.get(run.key, run.status.queue), run.status.queue)
    if told and (told == WaitReason.GPU_HOURS_LIMIT) is not (queue.reason == WaitReason.GPU_HOURS_LIMIT):
        raise NotLive("the operator alone counts GPU-hours")
    booked = Ledger.from_snapshot(snapshot)
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
            if 0 < other.position < queue.position and other.reason != WaitReason.PRIORITY
        ),
        nodes=len(snapshot.nodes),
        holders=tuple((holder, tuple(nodes)) for holder, nodes in sorted(held.items(), key=lambda item: -len(item[1]))),
        ended={run.key: at for run in snapshot.runs if run.key in held and (at := _pods_leave_at(run, tunables))},
        ends={run.key: words for run in snapshot.runs if run.key in held and (words := early_end(run, now))},
        limits=snapshot.queues[queue_of(run)].spec.limits if queue_of(run) in snapshot.queues else QueueLimits(),
        unread=unread,
    )


def _unthrottled(settings: AdmissionSettings) -> AdmissionSettings:
    """Everybody's reason is as of now: what is said of one run goes with what is said of the others."""
    often = replace(settings, told_every=0.0, told_far_every=0.0, told_points_every=0.0)
    return replace(often, told_per_second=1e9, told_per_pass=sys.maxsize)


def _as_told(queue: QueueStatus, told: QueueStatus) -> QueueStatus:
    """With the start that status tells, as long as it would not be told anew: one number, wherever it is shown."""
    is_same = same_estimate(told.estimated_start, queue.estimated_start)
    return changed(queue, estimated_start=told.estimated_start) if is_same else queue


def _pods_leave_at(run: RunView, tunables: Tunables) -> float:
    """When pods that an ended run has left are deleted at the latest; 0: it has not ended."""
    finished = find(run.status, ConditionType.FINISHED)
    if finished is None or finished.status != "True":
        return 0.0
    if run.status.leaving is not None:
        return run.status.leaving.until
    return max(run.status.recovery.debug_until or 0.0, finished.last_transition_time) + tunables.deadlines.registered


def cluster_snapshot(
    cluster: Cluster, settings: OperatorSettings, now: float, operator_namespace: str
) -> ClusterSnapshot:
    """Everything an admission pass looks at. Raises NotLive when the user may not read some of it."""
    found: dict[str, list[Json]] = {}
    for resource, path in (
        ("nodes", core_path(None, "nodes")),
        ("pods of all namespaces", core_path(None, "pods")),
        ("runs of all namespaces", runs_path(None)),
        ("arrays of all namespaces", resource_path(f"/apis/{names.API_VERSION}", None, names.RUN_SETS)),
        ("queues", resource_path(f"/apis/{names.API_VERSION}", None, names.QUEUES)),
        ("namespaces", core_path(None, "namespaces")),
        ("priority classes", resource_path("/apis/scheduling.k8s.io/v1", None, "priorityclasses")),
    ):
        try:
            found[resource] = cluster.list(path)["items"]
        except ApiServerError as error:
            if error.status != 403:
                raise
            raise NotLive(f"you may not read the {resource}") from error
    pods: list[PodView] = []
    places: list[PlaceholderView] = []
    foreign: dict[str, dict[str, int]] = {}
    for raw in found["pods of all namespaces"]:
        pod = parse_pod(msgspec.json.encode(raw)).view
        if isinstance(pod, ForeignPod):
            _add(foreign, pod)
        elif isinstance(pod, PlaceholderView):
            places.append(pod)
        else:
            pods.append(pod)
    sets = {view.uid: view for view in map(parse_run_set, found["arrays of all namespaces"])}
    views = []
    for raw in found["runs of all namespaces"]:
        if not settings.namespaces or raw["metadata"]["namespace"] in settings.namespaces:
            run = _whole_if_readable(cluster, runs.view(raw))
            owner = sets.get(run.set_uid)
            views.append(governed(run, owner if owner is not None and is_member(run, owner) else None))
    told = (find(run.status, ConditionType.CLUSTER_DISRUPTION) for run in views)
    disrupted = next((c for c in told if c is not None and c.reason == ConditionReason.BREAKER_OPEN), None)
    by_uid = {run.uid: run for run in views}
    gang_pods = [pod for pod in pods if is_of_its_run(pod, by_uid.get(pod.run_uid), gone=False)]
    ours = {*map(id, gang_pods)}
    strangers = [pod for pod in pods if id(pod) not in ours]
    queues = {raw["metadata"]["name"]: parse_queue(raw) for raw in found["queues"]}
    for name, queue in queues.items():
        if queue.spec_error:
            raise NotLive(f"the operator alone knows the rules of queue {name}, whose spec cannot be read")
    labels = {raw["metadata"]["name"]: raw["metadata"].get("labels") or {} for raw in found["namespaces"]}
    snapshot = ClusterSnapshot(
        runs=tuple(views),
        queues=queues,
        nodes=node_views(found["nodes"]),
        gang_pods=tuple(gang_pods),
        foreign_requests=foreign_placeholders(with_strangers(foreign, strangers), places, by_uid.get),
        doubtful_pods=tuple(pod for pod in strangers if is_in_doubt(pod, by_uid.get(pod.run_uid))),
        in_flight={},
        leadership=Leadership(since=0.0, disruption=disrupted.message if disrupted is not None else ""),
        namespace_labels=labels,
        priority_classes={raw["metadata"]["name"]: raw["value"] for raw in found["priority classes"]},
        fair_shares=fair_shares(cluster, operator_namespace, views, queues, labels, settings, now),
        widths={
            (view.namespace, view.uid): view.spec.max_running
            for view in sets.values()
            if view.spec is not None and view.spec.max_running is not None
        },
        gpu_hours=_gpu_hours(queues, views),
        refused=dict(_refused(views, now)),
    )
    return without(snapshot, (run.uid for run in views if run.status.queue.reason == WaitReason.UNDECIDABLE))


def _gpu_hours(queues: Mapping[str, QueueView], views: Sequence[RunView]) -> dict[str, int]:
    """As queues last said. What their runs are told is newer: that they wait for hours, or for something else."""
    hours: dict[str, int] = {}
    for name, queue in queues.items():
        used, most = queue.status.gpu_hours_last_day or 0, queue.spec.limits.gpu_hours_per_day
        told = {run.status.queue.reason for run in views if queue_of(run) == name and is_pending(run)} - {""}
        if most is not None and told:
            used = max(used, most) if WaitReason.GPU_HOURS_LIMIT in told else min(used, most - 1)
        hours[name] = used
    return hours


def _refused(views: Iterable[RunView], now: float) -> Iterator[tuple[str, RefusedAdmission]]:
    """Runs that are not tried for a while."""
    for run in views:
        told = run.status.queue
        if told.reason == WaitReason.ADMISSION_REFUSED and (told.estimated_start or 0.0) > now:
            yield run.uid, RefusedAdmission(told.message, told.estimated_start or 0.0)


def readable_nodes(cluster: Cluster) -> dict[str, NodeView]:
    """The cluster's nodes; empty when the user may not read them."""
    try:
        items = cluster.list(core_path(None, "nodes"))["items"]
    except ApiServerError as error:
        if error.status != 403:
            raise
        return {}
    return node_views(items)


def node_views(items: Iterable[Json]) -> dict[str, NodeView]:
    """Nodes by name, as the core sees them."""
    return {raw["metadata"]["name"]: parse_node(msgspec.json.encode(raw)).view for raw in items}


def _same_queue(one: RunView, other: RunView) -> bool:
    return one.spec is not None and other.spec is not None and one.spec.queue == other.spec.queue


def _names_beyond(snapshot: ClusterSnapshot, tunables: Tunables) -> str:
    """A name that waiting runs, or the quotas of queues, use and that ``tunables`` does not know; empty: there is none.

    Who waits for it may stand before anybody else.
    """
    known = {*tunables.gpu_types, *tunables.topology_levels, ANY_GPU_TYPE}
    used = [quota.gpu_type for queue in snapshot.queues.values() for quota in queue.spec.quotas]
    for run in snapshot.runs:
        if run.spec is not None and is_pending(run):
            placement = run.spec.placement
            used += [*placement.gpu_types, *(rule.level for rule in placement.topology)]
    return next((name for name in used if name not in known), "")


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
