"""Kueue's objects as views: the Workload of a run, and what its reservation refers to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lockstep.api.base import names
from lockstep.api.base.times import to_unix
from lockstep.core.model.kueue import api_names
from lockstep.core.model.kueue.topology_assignment import TopologyAssignment, decode

ANNOTATION_ASKED = f"{names.GROUP}/asked"
"""On a Workload: digest of what it asks for, so that a run that changed since is noticed."""
ANNOTATION_AVOIDED = f"{names.GROUP}/avoided"
"""On a Workload: nodes that it leaves out as the run could not have them when it asked, with commas between."""
ANNOTATION_AMENDED = f"{names.GROUP}/amended"
"""On a Workload: when it was last changed to ask for something else, in Unix seconds."""

_LONGEST_TIME = 12


@dataclass(frozen=True, slots=True)
class WorkloadCondition:
    """metav1.Condition; ``since`` is its lastTransitionTime as written."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str = ""
    generation: int = 0

    @property
    def raw(self) -> dict[str, Any]:
        """As it is written."""
        return {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": self.since,
            "observedGeneration": self.generation,
        }


@dataclass(frozen=True, slots=True)
class PodSetUpdate:
    """What a flavor or an admission check wants of the pods. ``tolerations`` are raw, as in core/v1."""

    source: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """One check of the ClusterQueue: Pending, Ready, Retry or Rejected."""

    name: str
    state: str
    message: str = ""
    update: PodSetUpdate | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """The reservation. ``problem``: why its topology assignment cannot be read."""

    cluster_queue: str
    pod_set: str
    count: int
    flavors: tuple[str, ...] = ()
    topology: TopologyAssignment | None = None
    delayed: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A Workload. ``run`` and ``run_uid``: what its labels say; ``owner_uid``: UID of the controller that it names;
    ``pods`` and ``requests`` (by container): what it asks for, whatever ``asked`` says."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int = 0
    run: str = ""
    run_uid: str = ""
    owner_uid: str = ""
    queue: str = ""
    asked: str = ""
    avoided: frozenset[str] = frozenset()
    amended_at: int = 0
    pods: int = 0
    requests: tuple[tuple[str, Mapping[str, str]], ...] = ()
    active: bool = True
    deleting: bool = False
    conditions: tuple[WorkloadCondition, ...] = ()
    admission: Admission | None = None
    checks: tuple[AdmissionCheck, ...] = ()
    unhealthy_nodes: tuple[str, ...] = ()
    created_at: float = 0.0
    requeue_at: float | None = None
    requeues: int = 0
    past_seconds: int = 0

    def condition(self, kind: str) -> WorkloadCondition | None:
        """The condition of type ``kind``."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """The condition exists and is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def is_reserved(self) -> bool:
        """Kueue counts its quota as used."""
        return self.is_true(api_names.QUOTA_RESERVED) or self.admission is not None

    @property
    def is_evicted(self) -> bool:
        """Kueue wants the reservation back."""
        return self.is_true(api_names.EVICTED)

    @property
    def is_finished(self) -> bool:
        """Its quota is given back for good."""
        return self.is_true(api_names.FINISHED)

    @property
    def is_admitted(self) -> bool:
        """Nodes may be used: quota, admission checks and topology are all there, and nobody wants them back."""
        admitted = self.is_true(api_names.QUOTA_RESERVED) and self.is_true(api_names.ADMITTED)
        usable = self.admission is not None and not self.admission.delayed
        return admitted and usable and self.active and not (self.is_evicted or self.is_finished or self.deleting)


def parse_workload(raw: Mapping[str, Any]) -> WorkloadView:
    """A Workload as the API server has it. What does not make sense is explained in ``admission.problem``."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    owner: Mapping[str, Any] = next((each for each in meta.get("ownerReferences") or () if each.get("controller")), {})
    requeue, pod_sets = status.get("requeueState") or {}, spec.get("podSets") or ()
    at, annotations = requeue.get("requeueAt"), meta.get("annotations") or {}
    return WorkloadView(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
        generation=meta.get("generation", 0),
        run=(meta.get("labels") or {}).get(names.LABEL_RUN, ""),
        run_uid=(meta.get("labels") or {}).get(names.LABEL_RUN_UID, ""),
        owner_uid=owner.get("uid", ""),
        queue=spec.get("queueName", ""),
        pods=sum(each.get("count") or 0 for each in pod_sets),
        requests=tuple(
            (str(container.get("name")), (container.get("resources") or {}).get("requests") or {})
            for each in pod_sets
            for container in each.get("template", {}).get("spec", {}).get("containers") or ()
        ),
        asked=annotations.get(ANNOTATION_ASKED, ""),
        avoided=frozenset(filter(None, annotations.get(ANNOTATION_AVOIDED, "").split(","))),
        amended_at=_seconds(annotations.get(ANNOTATION_AMENDED, "")),
        active=spec.get("active") is not False,
        deleting=meta.get("deletionTimestamp") is not None,
        conditions=tuple(_condition(each) for each in status.get("conditions") or ()),
        admission=_admission(status.get("admission")),
        checks=tuple(_check(each) for each in status.get("admissionChecks") or ()),
        unhealthy_nodes=tuple(str(each.get("name")) for each in status.get("unhealthyNodes") or ()),
        created_at=to_unix(meta["creationTimestamp"]) if meta.get("creationTimestamp") else 0.0,
        requeue_at=to_unix(at) if at else None,
        requeues=requeue.get("count") or 0,
        past_seconds=status.get("accumulatedPastExecutionTimeSeconds") or 0,
    )


def _seconds(said: str) -> int:
    """0 where it is no time: anybody may write annotations."""
    return int(said) if len(said) <= _LONGEST_TIME and said.isdecimal() else 0


def _condition(raw: Mapping[str, Any]) -> WorkloadCondition:
    return WorkloadCondition(
        type=str(raw.get("type")),
        status=str(raw.get("status")),
        reason=raw.get("reason") or "",
        message=raw.get("message") or "",
        since=raw.get("lastTransitionTime") or "",
        generation=raw.get("observedGeneration") or 0,
    )


def _admission(raw: Mapping[str, Any] | None) -> Admission | None:
    if not raw:
        return None
    assignments: list[Mapping[str, Any]] = raw.get("podSetAssignments") or []
    if len(assignments) != 1:
        problem = f"it has {len(assignments)} podSetAssignments for the one podSet of a gang"
        return Admission(raw.get("clusterQueue") or "", "", 0, problem=problem)
    first = assignments[0]
    found = Admission(
        cluster_queue=raw.get("clusterQueue") or "",
        pod_set=first.get("name") or "",
        count=first.get("count") or 0,
        flavors=tuple(sorted({str(flavor) for flavor in (first.get("flavors") or {}).values()})),
        delayed=first.get("delayedTopologyRequest") == "Pending" and not first.get("topologyAssignment"),
    )
    try:
        topology = decode(first["topologyAssignment"]) if first.get("topologyAssignment") else None
    except ValueError as error:
        return replace(found, problem=str(error))
    return replace(found, topology=topology)


def _check(raw: Mapping[str, Any]) -> AdmissionCheck:
    name = str(raw.get("name"))
    update = next(
        (each for each in raw.get("podSetUpdates") or () if each.get("name") == api_names.POD_SET),
        None,
    )
    wanted = pod_set_update(f"admission check {name}", update) if update is not None else None
    return AdmissionCheck(name, str(raw.get("state")), raw.get("message") or "", wanted)


def pod_set_update(source: str, raw: Mapping[str, Any]) -> PodSetUpdate:
    """A ``podSetUpdate`` as ``source`` has it."""
    return PodSetUpdate(
        source=source,
        labels=dict(raw.get("labels") or {}),
        annotations=dict(raw.get("annotations") or {}),
        node_selector=dict(raw.get("nodeSelector") or {}),
        tolerations=tuple(raw.get("tolerations") or ()),
    )


class ConflictError(ValueError):
    """Two want different things of the pods."""


def merged(updates: Iterable[PodSetUpdate]) -> PodSetUpdate:
    """All of ``updates`` in one. Raises ConflictError where two of them say different things of one key."""
    parts: dict[str, dict[str, str]] = {"labels": {}, "annotations": {}, "node_selector": {}}
    sources: dict[tuple[str, str], str] = {}
    tolerations: list[Mapping[str, Any]] = []
    for update in updates:
        for part, known in parts.items():
            for key, value in getattr(update, part).items():
                if known.setdefault(key, value) != value:
                    raise ConflictError(f"{sources[part, key]} and {update.source} disagree about {key}")
                sources.setdefault((part, key), update.source)
        tolerations += [each for each in update.tolerations if each not in tolerations]
    return PodSetUpdate("", **parts, tolerations=tuple(tolerations))
