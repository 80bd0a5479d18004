"""What asks an autoscaler for nodes: pods that hold the places of a gang, or a ProvisioningRequest for as many.

Both are of one body: what a gang pod asks of its node, and nothing of what it does. A placeholder shares its node with
no gang pod and no other placeholder, as gangs take whole nodes. It has the lowest priority for which cluster-autoscaler
still makes nodes, so that every other pod comes before it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lockstep.api.base import names
from lockstep.api.run_status import ScaleUpStatus
from lockstep.core.model.plan import CreatePlaceholder, EnsureProvisioning
from lockstep.core.model.quantities import CPU, MEMORY, amount, quantity
from lockstep.core.model.snapshot import PlaceholderView, Resources, RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods import gang, pod_template
from lockstep.core.pods.requirement import avoided_nodes, requirement_of

API_VERSION = "autoscaling.x-k8s.io/v1"
DEFAULT_CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
GRACE = 1
"""Seconds that a placeholder is given to end: there is nothing in it."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_OPEN = {CPU: "1", MEMORY: "1Gi"}
"""What is asked for where the spec leaves it open: the gang takes what its nodes have."""
_NOBODY = 65_535  # the user that the image of pause runs as


def placeholder_names(run: RunView, count: int) -> tuple[str, ...]:
    """The names that placeholders of ``run`` may have, so that making one twice is harmless."""
    name = names.scale_up_name(run.name, run.uid)
    return tuple(f"{name}-{index}" for index in range(count))


def asks_by_placeholders(run: RunView | None) -> bool:
    """It asked for nodes by them, and has not seen the end of it."""
    return run is not None and run.status.scale_up is not None and run.status.scale_up.by == "Placeholders"


def is_placeholder_of(pod: PlaceholderView, run: RunView | None) -> bool:
    """``run``, which the pod names as its owner, vouches for it: it asked for nodes by such a pod, and has not seen
    the end of it. Others take what they request, as any pod does."""
    if run is None or (pod.namespace, pod.run_uid) != (run.namespace, run.uid):
        return False
    start = f"{names.scale_up_name(run.name, run.uid)}-"
    if not asks_by_placeholders(run) or not pod.name.startswith(start):
        return False
    number = pod.name.removeprefix(start)
    return number.isascii() and number.isdecimal() and len(number) <= 5


def foreign_placeholders(
    foreign: Mapping[str, Resources], pods: Iterable[PlaceholderView], run_of: Callable[[str], RunView | None]
) -> Mapping[str, Resources]:
    """``foreign``, the requests on each node, with those of ``pods`` that no run vouches for. ``run_of``: by UID."""
    sums: dict[str, Resources] = {}
    for pod in pods:
        if pod.node and not pod.terminal and not is_placeholder_of(pod, run_of(pod.run_uid)):
            before = sums.get(pod.node, foreign.get(pod.node, {}))
            more = {name: before.get(name, 0) + value for name, value in pod.requests.items()}
            sums[pod.node] = {**before, **more}
    return {**foreign, **sums} if sums else foreign


def placeholders(run: RunView, asked: ScaleUpStatus, tunables: Tunables, now: float) -> list[CreatePlaceholder]:
    """One for each node of the gang: those that fit a node that is there keep it, the others have nodes made."""
    spec = {
        **_pod_spec(run, asked, tunables, now),
        "priorityClassName": tunables.scale_up.priority_class,
        "preemptionPolicy": "Never",
    }
    common, found = _metadata(run, asked), []
    common["annotations"] |= gang.KEEP_NODE  # until the others are there
    for name in placeholder_names(run, asked.nodes):
        metadata = {**common, "name": name}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        found.append(CreatePlaceholder(run.namespace, name, body))
    return found


def provisioning(run: RunView, asked: ScaleUpStatus, tunables: Tunables, now: float) -> EnsureProvisioning:
    """The same as one request."""
    name = names.scale_up_name(run.name, run.uid)
    common = _metadata(run, asked)
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {**common, "name": name},
        "template": {
            "metadata": {"labels": common["labels"]},
            "spec": _pod_spec(run, asked, tunables, now),
        },
    }
    body = {
        "apiVersion": API_VERSION,
        "kind": "ProvisioningRequest",
        "metadata": {**common, "name": name},
        "spec": {
            "provisioningClassName": asked.provisioning_class or DEFAULT_CLASS,
            "podSets": [{"podTemplateRef": {"name": name}, "count": asked.nodes}],
        },
    }
    return EnsureProvisioning(run.namespace, name, template, body)


def _metadata(run: RunView, asked: ScaleUpStatus) -> dict[str, Any]:
    return {
        "namespace": run.namespace,
        "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.LABEL_PLACEHOLDER_OF: run.uid},
        "annotations": {names.ANNOTATION_SCALE_UP: str(asked.attempt)},
        "ownerReferences": [gang.owner_reference(run)],
    }


def _pod_spec(run: RunView, asked: ScaleUpStatus, tunables: Tunables, now: float) -> dict[str, Any]:
    assert run.spec is not None
    theirs = pod_template.section(run.spec.pod_template, "spec")
    requirement = requirement_of(run, asked.node_selector, tunables, now, held=False)
    gpus = {asked.gpu_resource or requirement.gpus.resource: requirement.gpus.count} if requirement.gpus.count else {}
    wanted = {resource: amount(resource, value) for resource, value in _OPEN.items()}
    wanted |= {**requirement.resources, **gpus}
    amounts = {resource: quantity(resource, value) for resource, value in sorted(wanted.items()) if value}
    selector = {**tunables.gpu_types.get(asked.gpu_type, {}), **dict(requirement.labels)}
    kept_off = {*run.spec.placement.exclude_nodes}
    kept_off |= {avoided.node for avoided in avoided_nodes(run.status.recovery.excluded_nodes, now)}
    spec: dict[str, Any] = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": GRACE,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "placeholder",
                "image": tunables.scale_up.image,
                "resources": {"requests": amounts, "limits": amounts},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
        "tolerations": gang.tolerations(run.spec, tunables.gang, gpus),
        "affinity": {"podAntiAffinity": _alone_on_its_node(), **_node_affinity(theirs, sorted(kept_off))},
    }
    if selector:
        spec["nodeSelector"] = selector
    for field in ("schedulerName", "runtimeClassName"):
        if field in theirs:
            spec[field] = theirs[field]
    return spec


def _node_affinity(theirs: pod_template.Object, kept_off: list[str]) -> dict[str, Any]:
    terms = [dict(term) for term in pod_template.affinity_terms(theirs)]
    if kept_off:
        off = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in kept_off]
        terms = [{**term, "matchFields": [*pod_template.items(term, "matchFields"), *off]} for term in terms or [{}]]
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}} if terms else {}


def _alone_on_its_node() -> dict[str, Any]:
    """No gang pod and no other placeholder is on it, of whatever namespace."""
    return {
        _REQUIRED: [
            {
                "labelSelector": {"matchExpressions": [{"key": label, "operator": "Exists"}]},
                "namespaceSelector": {},
                "topologyKey": names.LABEL_HOSTNAME,
            }
            for label in (names.LABEL_RUN_UID, names.LABEL_PLACEHOLDER_OF)
        ]
    }
