"""Pods, nodes, namespaces and priority classes: from the JSON text of the API server to views, in one typed pass.

They are decoded straight into the few fields needed: a twelve-kilobyte pod costs some ten
microseconds and leaves a few hundred bytes behind. What does not parse never stops a stream: a pod
that is not understood counts as foreign, with whatever it requests.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from lockstep.api.base import names, nesting
from lockstep.api.base.times import to_unix
from lockstep.api.run_spec import MAX_NODES
from lockstep.core.model import sanitise, wire
from lockstep.core.model.node_failures import read_failures
from lockstep.core.model.quantities import amount
from lockstep.core.model.snapshot import NodeView, PlaceholderView, PodPhase, PodView, Resources, Taint

T_co = TypeVar("T_co", covariant=True)
_pods = msgspec.json.Decoder(wire.Pod)
_nodes = msgspec.json.Decoder(wire.Node)
_objects = msgspec.json.Decoder(wire.AnyObject)
_classes = msgspec.json.Decoder(wire.PriorityClass)
_identities = msgspec.json.Decoder(wire.Identified)
_LONGEST_NUMBER = 16  # digits; Python itself reads no more than 4,300


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T_co]):
    """A view with the identity and version of the object it was made of."""

    uid: str
    version: int
    view: T_co


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """A pod of nobody's gang: all that matters is what it requests, and where."""

    node: str
    requests: Resources
    terminal: bool = False


AnyPod = PodView | PlaceholderView | ForeignPod


@dataclass(frozen=True, slots=True)
class Unread:
    """An object of which only the metadata was looked at: most of what is heard is known already."""

    namespace: str
    text: msgspec.Raw

    def read(self) -> dict[str, Any]:
        """All of it, but for what is nested too deeply. Raises ValueError."""
        return nesting.read_object(self.text)


_PHASES = {phase.value: phase for phase in PodPhase}
_NONE: dict[str, str] = {}  # what almost every node has of conditions beyond Ready
_NONE_OF_THEM: Resources = {}
_GATES_NAMED = 8
_KUBE_SCHEDULER = "default-scheduler"
_amount = lru_cache(maxsize=4096)(amount)  # the same few quantities come again with every pod


def parse_pod(text: bytes | msgspec.Raw) -> Versioned[AnyPod]:
    """A pod: of a gang by its owner and its name, a placeholder by its owner and its priority; foreign otherwise.

    Raises msgspec.DecodeError.
    """
    pod = nesting.decode(_pods, text)
    meta = pod.metadata
    return Versioned(meta.uid, _version(meta), _gang_pod(pod) or _placeholder(pod) or _foreign_pod(pod))


def has_lost_its_labels(text: bytes) -> bool:
    """A pod on a node without the label that gangs' pods are selected by. Raises msgspec.DecodeError."""
    pod = nesting.decode(_pods, text)
    return bool(pod.spec.node_name) and names.LABEL_RUN_UID not in pod.metadata.labels


def holds_a_place(text: bytes) -> bool:
    """A pod with the label that placeholders are selected by. Raises msgspec.DecodeError."""
    labels = nesting.decode(_pods, text).metadata.labels
    return names.LABEL_PLACEHOLDER_OF in labels and names.LABEL_RUN_UID not in labels


def parse_node(text: bytes | msgspec.Raw) -> Versioned[NodeView]:
    """A node. Raises msgspec.DecodeError."""
    node = nesting.decode(_nodes, text)
    meta, status = node.metadata, node.status
    ready = next((condition for condition in status.conditions if condition.type == "Ready"), None)
    bad = [condition for condition in status.conditions if condition.status == "True" and condition is not ready]
    view = NodeView(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        allocatable={name: _amount(name, value) for name, value in status.allocatable.items()},
        taints=tuple(Taint(taint.key, taint.effect, taint.value) for taint in node.spec.taints),
        unschedulable=node.spec.unschedulable,
        ready=ready is not None and ready.status == "True",
        ready_changed_at=_seconds(ready.last_transition_time) if ready is not None else 0.0,
        internal_ip=next((a.address for a in status.addresses if a.type == "InternalIP"), ""),
        deleting=meta.deletion_timestamp is not None,
        drain=_drain_reason(meta),
        conditions={condition.type: condition.reason for condition in bad} if bad else _NONE,
        failures=read_failures(meta.annotations.get(names.ANNOTATION_FIRST_FAILURES, "")),
        suspect=meta.annotations.get(names.ANNOTATION_SUSPECT, "")[:512],
        failures_cleared_at=_cleared_at(meta),
        conditions_changed_at=max((_seconds(condition.last_transition_time) for condition in bad), default=0.0),
        withheld=_withheld(status) or _NONE_OF_THEM,
    )
    return Versioned(meta.uid, _version(meta), view)


def _withheld(status: wire.NodeStatus) -> Resources:
    """Devices that the node offers none of, as far as it says that it has them or had them: a kubelet goes on to name
    those whose plugin is gone, at first with their number and then with 0."""
    return {
        name: _amount(name, status.capacity.get(name, 0))
        for name in (*status.capacity, *status.allocatable)
        if "/" in name and not _amount(name, status.allocatable.get(name, 0))
    }


def _drain_reason(meta: wire.Metadata) -> str:
    """An annotation without a value asks as well."""
    reason = meta.annotations.get(names.ANNOTATION_DRAIN)
    return "" if reason is None else reason[:256] or "it is being drained"


def _cleared_at(meta: wire.Metadata) -> float:
    """Annotations are anybody's to write."""
    try:
        return to_unix(meta.annotations.get(names.ANNOTATION_FAILURES_CLEARED, 0.0))
    except ValueError:
        return 0.0


def parse_namespace(text: bytes | msgspec.Raw) -> Versioned[tuple[str, dict[str, str]]]:
    """A namespace: its name and labels. Raises msgspec.DecodeError."""
    meta = nesting.decode(_objects, text).metadata
    return Versioned(meta.uid, _version(meta), (meta.name, meta.labels))


def parse_priority_class(text: bytes | msgspec.Raw) -> Versioned[tuple[str, int]]:
    """A PriorityClass: its name and value. Raises msgspec.DecodeError."""
    parsed = nesting.decode(_classes, text)
    return Versioned(parsed.metadata.uid, _version(parsed.metadata), (parsed.metadata.name, parsed.value))


def parse_unread(text: msgspec.Raw) -> Versioned[Unread]:
    """Any object, unread. Raises msgspec.DecodeError."""
    meta = nesting.decode(_identities, text).metadata
    return Versioned(meta.uid, int(meta.resource_version), Unread(meta.namespace, text))


def pod_requests(
    containers: Iterable[Resources],
    init_containers: Iterable[tuple[Resources, bool]],
    overhead: Resources,
    pod_level: Resources,
) -> dict[str, int]:
    """What a pod takes from its node, by the scheduler's rules.

    ``init_containers`` come in order, each with whether it is a sidecar (restartPolicy Always).
    Sidecars run beside everything after them, other init containers alone; requests of the pod as a
    whole stand in for the sums of its containers; overhead comes on top.
    """
    running: dict[str, int] = {}
    for container in containers:
        _add(running, container)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container, is_sidecar in init_containers:
        beside = dict(sidecars)
        _add(beside, container)
        for name, value in beside.items():
            peak[name] = max(peak.get(name, 0), value)
        if is_sidecar:
            sidecars = beside
    _add(running, sidecars)
    total = {name: max(running.get(name, 0), peak.get(name, 0)) for name in running.keys() | peak.keys()}
    total.update(pod_level)
    _add(total, overhead)
    return total


def _gang_pod(pod: wire.Pod) -> PodView | None:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    place = _owned(meta)
    if place is None:
        return None
    trainer = next((c.state for c in status.container_statuses if c.name == names.CONTAINER_NAME), None)
    terminated = trainer.terminated if trainer else None
    begun = (trainer.running or trainer.terminated) if trainer else None
    reason, message = map(sanitise.lines, _why(pod))
    return PodView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        run=place.run,
        run_uid=place.run_uid,
        owner_uid=next((owner.uid for owner in meta.owner_references if owner.controller), ""),
        slot=place.slot,
        incarnation=place.incarnation,
        node=spec.node_name or _pinned_node(spec),
        bound=bool(spec.node_name),
        phase=_PHASES.get(status.phase, PodPhase.UNKNOWN),
        created_at=_seconds(meta.creation_timestamp),
        deleting=meta.deletion_timestamp is not None,
        killed_at=_seconds(meta.deletion_timestamp) if meta.deletion_timestamp else 0.0,
        by_kube_scheduler=spec.scheduler_name in ("", _KUBE_SCHEDULER),
        bound_at=next((_seconds(c.last_transition_time) for c in status.conditions if _is_placed(c)), None),
        started_at=_seconds(begun.started_at) if begun and begun.started_at else None,
        ended_at=_seconds(terminated.finished_at) if terminated and terminated.finished_at else None,
        pod_ip=status.pod_ip,
        exit_code=terminated.exit_code if terminated else None,
        reason=reason,
        message=message,
        resolved=meta.annotations.get(names.ANNOTATION_RESOLVED, ""),
        disruption=next(
            (c.reason for c in status.conditions if c.type == "DisruptionTarget" and c.status == "True"), ""
        ),
        attempt=_attempt(meta.annotations.get(names.ANNOTATION_ATTEMPT, "")),
        requests=_requests(spec),
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Whose pod it is."""

    run: str
    run_uid: str
    slot: int
    incarnation: int


def _owned(meta: wire.Metadata) -> _Place | None:
    """By its owner, if that is what its name says: labels are anybody's to set and to change, a name is not."""
    for owner in meta.owner_references:
        if owner.controller and owner.kind == names.RUN_KIND and owner.api_version == names.API_VERSION:
            start, *numbers = meta.name.rsplit("-", 2)
            if len(numbers) == 2 and start == f"{owner.name}-{owner.uid[:5]}":
                return _place(owner.name, owner.uid, *numbers)
    return None


def _place(run: str, run_uid: str, slot: str, incarnation: str) -> _Place | None:
    if not (run_uid and _is_number(slot, below=MAX_NODES * 2) and _is_number(incarnation, below=2**31)):
        return None
    return _Place(run, run_uid, int(slot), int(incarnation))


def _attempt(annotation: str) -> int:
    return int(annotation) if _is_number(annotation, below=2**31) else 0


def _is_number(text: str, *, below: int) -> bool:
    """Names are their makers' to choose: what is made of these has to fit into memory and into status, and only one
    name stands for a number."""
    is_decimal = text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER
    return is_decimal and (text[0] != "0" or text == "0") and int(text) < below


def _placeholder(pod: wire.Pod) -> PlaceholderView | None:
    """By its label and its owner, which are anybody's to write, and its priority, which the API server has set: it is
    in nobody's way. Whether its run vouches for it is asked of that (``is_placeholder_of``)."""
    meta = pod.metadata
    of = meta.labels.get(names.LABEL_PLACEHOLDER_OF, "")
    if not of or names.LABEL_RUN_UID in meta.labels or pod.spec.priority >= 0:
        return None
    for owner in meta.owner_references:
        if owner.controller and (owner.kind, owner.api_version, owner.uid) == (names.RUN_KIND, names.API_VERSION, of):
            reason, message = map(sanitise.lines, _why(pod))
            return PlaceholderView(
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
                run_uid=of,
                node=pod.spec.node_name,
                deleting=meta.deletion_timestamp is not None,
                terminal=pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED),
                why=": ".join(filter(None, (reason, message)))[:256],
                requests=_requests(pod.spec),
            )
    return None


def _foreign_pod(pod: wire.Pod) -> ForeignPod:
    terminal = pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)
    return ForeignPod(pod.spec.node_name, _requests(pod.spec), terminal)


def _requests(spec: wire.PodSpec) -> Resources:
    """Of the pod, itself counted."""
    requests = pod_requests(
        [_amounts(container.resources.requests) for container in spec.containers],
        [(_amounts(c.resources.requests), c.restart_policy == "Always") for c in spec.init_containers],
        _amounts(spec.overhead),
        _amounts(spec.resources.requests),
    )
    requests["pods"] = 1
    return requests


def _pinned_node(spec: wire.PodSpec) -> str:
    """The one node that the affinity leaves, read from where gang pods carry it."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None or affinity.required is None:
        return ""
    for term in affinity.required.node_selector_terms:
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
                return field.values[0]
    return ""


def _why(pod: wire.Pod) -> tuple[str, str]:
    """Reason and message for the state of a pod: its own, else a failed container's, else why it waits."""
    status = pod.status
    if status.reason:
        return status.reason, status.message
    states = [c.state for c in (*status.init_container_statuses, *status.container_statuses)]
    for state in states:
        if state.terminated is not None and state.terminated.exit_code != 0:
            return state.terminated.reason, state.terminated.message
    for state in states:
        if state.waiting is not None and state.waiting.reason not in ("", "PodInitializing"):
            return state.waiting.reason, state.waiting.message
    for condition in status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason, _gates(pod.spec) or condition.message.replace("not found. not found", "not found")
    return "", ""


def _gates(spec: wire.PodSpec) -> str:
    """Which scheduling gates a pod has: of their names the scheduler says nothing."""
    found = spec.scheduling_gates
    more = f" and {len(found) - _GATES_NAMED} more" if len(found) > _GATES_NAMED else ""
    return f"scheduling gates: {', '.join(gate.name for gate in found[:_GATES_NAMED])}{more}" if found else ""


def _is_placed(condition: wire.ObjectCondition) -> bool:
    return condition.type == "PodScheduled" and condition.status == "True" and bool(condition.last_transition_time)


def _amounts(requests: wire.Requests) -> Resources:
    return {name: _amount(name, value) for name, value in requests.items()}


def _add(total: dict[str, int], more: Resources) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _version(meta: wire.Metadata) -> int:
    return int(meta.resource_version or 0)


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment is not None else 0.0
