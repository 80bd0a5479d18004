"""The Workload that a run asks Kueue with: one pod set, as many pods as nodes, what each of them requests."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from typing import Any

from lockstep.api.base import names
from lockstep.core.kueue.choice import topology_rule, workload_name
from lockstep.core.kueue.kueue_record import forget_kueue
from lockstep.core.model.kueue import api_names
from lockstep.core.model.kueue.installation import Flavor, Kueue
from lockstep.core.model.kueue.workload import ANNOTATION_ASKED, ANNOTATION_AVOIDED, WorkloadView
from lockstep.core.model.quantities import CPU, MEMORY, amounts
from lockstep.core.model.snapshot import NodeView, QueueView, RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.node_conditions import is_refused_by_us_alone
from lockstep.core.placement.node_fit import untolerated
from lockstep.core.pods import gang, pod_template
from lockstep.core.pods.requirement import avoided_nodes

_OPEN_BY_DEFAULT = (CPU, MEMORY)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MOST_UNFIT = 1000
"""Nodes that no gang can have and a Workload leaves out, at most: it is one object, and has to stay small enough."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The spec of the Workload, a digest of it, and the nodes that it leaves out: because recovery avoids them, or as
    Kueue would name them, and no gang can have them.

    Those are not in the digest: they are avoided for a time, and what leaves out more than it has to still serves.
    """

    spec: Mapping[str, Any]
    digest: str
    avoided: frozenset[str]

    @property
    def annotations(self) -> dict[str, str]:
        """By which its Workload tells what it was asked for."""
        return {ANNOTATION_ASKED: self.digest, ANNOTATION_AVOIDED: ",".join(sorted(self.avoided))}


def ask_of(
    run: RunView, queue: QueueView | None, kueue: Kueue, nodes: Mapping[str, NodeView], tunables: Tunables, now: float
) -> Ask:
    """What ``run``, whose ``status.kueue`` names its LocalQueue, asks for at ``now``."""
    assert run.status.kueue is not None
    avoided = frozenset(entry.node for entry in avoided_nodes(run.status.recovery.excluded_nodes, now))
    spec = _spec(run, queue, kueue, nodes, tunables, frozenset())
    if api_names.HOSTNAME_LEVEL in kueue.levels_of(run.namespace, run.status.kueue.queue):
        refused = [node for node in nodes.values() if is_refused_by_us_alone(node, tunables.drain_taints)]
        flavors = kueue.flavors_of(run.namespace, run.status.kueue.queue)
        avoided |= frozenset(sorted(_nameable(refused, spec, flavors))[:_MOST_UNFIT])
    digest = sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
    return Ask(_spec(run, queue, kueue, nodes, tunables, avoided) if avoided else spec, digest, avoided)


def _nameable(nodes: Collection[NodeView], spec: Mapping[str, Any], flavors: Iterable[Flavor]) -> Iterator[str]:
    """Those of ``nodes`` that Kueue may name: it leaves out the others anyway, and what becomes of them is nothing to
    the run."""
    pod = spec["podSets"][0]["template"]["spec"]
    wanted = {name for each in pod["containers"] for name in each["resources"].get("requests", ())}
    terms = pod_template.terms(pod)
    kinds = [
        (
            {*pod_template.node_selector(pod), *flavor.update.node_selector.items()},
            pod_template.tolerations((*pod["tolerations"], *flavor.update.tolerations)),
        )
        for flavor in flavors
    ]
    for node in nodes:
        view = replace(node, labels={api_names.HOSTNAME_LEVEL: node.name, **node.labels})
        if (
            all(name in node.allocatable or name in node.withheld for name in wanted)
            and (not terms or any(all(line.accepts(view) for line in term) for term in terms))
            and any(labels <= view.labels.items() and untolerated(view, allowed) is None for labels, allowed in kinds)
        ):
            yield node.name


def _spec(
    run: RunView,
    queue: QueueView | None,
    kueue: Kueue,
    nodes: Mapping[str, NodeView],
    tunables: Tunables,
    avoided: frozenset[str],
) -> dict[str, Any]:
    assert run.spec is not None
    assert run.status.kueue is not None
    local_queue = run.status.kueue.queue
    pod_set: dict[str, Any] = {
        "name": api_names.POD_SET,
        "count": run.spec.nodes,
        "template": {"metadata": {}, "spec": _pod_spec(run, queue, nodes, tunables, avoided)},
    }
    request = _topology_request(run, kueue.levels_of(run.namespace, local_queue), tunables)
    if request:
        pod_set["topologyRequest"] = request
    return {"queueName": local_queue, **_priority(run, kueue), "podSets": [pod_set]}


def is_as_asked(workload: WorkloadView, ask: Ask) -> bool:
    """The Workload asks for just what the run does."""
    return workload.avoided == ask.avoided and does_for(workload, ask)


def does_for(workload: WorkloadView, ask: Ask) -> bool:
    """What is reserved for the Workload serves the run: by its digest, and where it counts by what it says itself.

    Whoever may edit Workloads could otherwise have less reserved than the run uses. Whether the nodes can be had is
    seen when they are taken.
    """
    (pod_set,) = ask.spec["podSets"]
    if (workload.asked, workload.queue, workload.pods) != (ask.digest, ask.spec["queueName"], pod_set["count"]):
        return False
    wanted = {each["name"]: each["resources"].get("requests", {}) for each in pod_set["template"]["spec"]["containers"]}
    try:
        requested = {name: amounts(requests) for name, requests in workload.requests}
    except ValueError:
        return False
    return requested == {name: amounts(requests) for name, requests in wanted.items()}


def workload_body(run: RunView, ask: Ask) -> dict[str, Any]:
    """The Workload, to be created."""
    return {
        "apiVersion": api_names.API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": workload_name(run),
            "namespace": run.namespace,
            "labels": workload_labels(run),
            "annotations": ask.annotations,
            "ownerReferences": [
                {
                    "apiVersion": names.API_VERSION,
                    "kind": names.RUN_KIND,
                    "name": run.name,
                    "uid": run.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {**ask.spec, "active": True},
    }


def workload_labels(run: RunView) -> dict[str, str]:
    """By these its Workload is watched, and found by people."""
    return {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.LABEL_RUN: run.name,
        names.LABEL_RUN_UID: run.uid,
        api_names.LABEL_JOB_UID: run.uid,
    }


def topology_marks(request: Mapping[str, Any]) -> dict[str, str]:
    """The annotation by which Kueue knows that a pod was placed by it, and does not count it a second time."""
    if "required" in request:
        return {api_names.REQUIRED_TOPOLOGY: request["required"]}
    if "preferred" in request:
        return {api_names.PREFERRED_TOPOLOGY: request["preferred"]}
    return {api_names.UNCONSTRAINED_TOPOLOGY: "true"} if request.get("unconstrained") else {}


def _topology_request(run: RunView, levels: tuple[str, ...], tunables: Tunables) -> dict[str, Any]:
    assert run.spec is not None
    if not levels:
        return {}
    found = topology_rule(run.spec, levels, tunables)
    if found is None:
        return {"unconstrained": True}
    rule, label = found
    return {"required" if rule.mode == "Required" else "preferred": label}


def _priority(run: RunView, kueue: Kueue) -> dict[str, Any]:
    """A WorkloadPriorityClass by label, else the run's own class; a class that nobody knows counts 0."""
    assert run.spec is not None
    labelled, own = run.labels.get(api_names.LABEL_PRIORITY_CLASS, ""), run.spec.priority_class_name
    if labelled:
        ref = {"group": api_names.GROUP, "kind": "WorkloadPriorityClass", "name": labelled}
        return {"priorityClassRef": ref, "priority": kueue.classes.get(labelled, 0)}
    if own is None:
        return {"priority": 0}
    ref = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": own}
    return {"priorityClassRef": ref, "priority": kueue.pod_classes.get(own, 0)}


def _pod_spec(
    run: RunView, queue: QueueView | None, nodes: Mapping[str, NodeView], tunables: Tunables, avoided: frozenset[str]
) -> dict[str, Any]:
    """What Kueue reads: requests, selectors and tolerations. The rest of a pod is none of its business."""
    assert run.spec is not None
    view = replace(run, status=forget_kueue(run.status))
    body = gang.template_for(view, gang.dry_run_status(view, tunables.accelerators), tunables).body["spec"]
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [_container(each, run) for each in body["containers"]],
        "tolerations": body["tolerations"],
    }
    if inits := pod_template.items(body, "initContainers"):
        spec["initContainers"] = [_container(each, run) for each in inits]
    for name in ("runtimeClassName", "overhead"):
        if name in body:
            spec[name] = body[name]
    selector = {**(queue.spec.node_selector if queue is not None else {}), **dict(pod_template.node_selector(body))}
    if selector:
        spec["nodeSelector"] = selector
    if terms := _terms(run, body, nodes, tunables, avoided):
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
    return spec


def _container(raw: Mapping[str, Any], run: RunView) -> dict[str, Any]:
    """Its requests. CPU and memory that the spec leaves open are settled on the nodes, and not reserved."""
    assert run.spec is not None
    resources = raw.get("resources", {})
    if raw.get("name") == names.CONTAINER_NAME:
        left_open = [name for name in _OPEN_BY_DEFAULT if name not in run.spec.resources_per_node]
        resources = {
            kind: {name: value for name, value in amounts.items() if name not in left_open}
            for kind, amounts in resources.items()
        }
    found = {"name": raw.get("name"), "image": raw.get("image", ""), "resources": resources}
    return found | ({"restartPolicy": raw["restartPolicy"]} if "restartPolicy" in raw else {})


def _terms(
    run: RunView, body: Mapping[str, Any], nodes: Mapping[str, NodeView], tunables: Tunables, avoided: frozenset[str]
) -> list[dict[str, Any]]:
    """Required node affinity: what the template says, GPU types, and which hosts it may be and may not be."""
    assert run.spec is not None
    placement = run.spec.placement
    kinds = [_is_type(tunables.gpu_types[word]) for word in placement.gpu_types if word in tunables.gpu_types]
    hosts = list(_hosts(run, nodes, avoided))
    theirs = pod_template.affinity_terms(body)
    if not kinds and not hosts:
        return [dict(term) for term in theirs]
    return [
        {**term, "matchExpressions": [*term.get("matchExpressions", ()), *kind, *hosts]}
        for term, kind in product(theirs or ({},), kinds or ([],))
    ]


def _is_type(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(labels.items())]


def _hosts(run: RunView, nodes: Mapping[str, NodeView], avoided: frozenset[str]) -> Iterator[dict[str, Any]]:
    assert run.spec is not None

    def labels(found: set[str]) -> list[str]:
        known = (nodes[name].labels.get(api_names.HOSTNAME_LEVEL, name) if name in nodes else name for name in found)
        return sorted(known)

    wanted, placement = set(run.spec.placement.nodes), run.spec.placement
    excluded = set(placement.exclude_nodes) | avoided
    left = wanted - excluded
    if wanted:
        yield {"key": api_names.HOSTNAME_LEVEL, "operator": "In", "values": labels(left or wanted)}
    if excluded and not left:  # where that is all of those wanted, nothing is reserved meanwhile
        yield {"key": api_names.HOSTNAME_LEVEL, "operator": "NotIn", "values": labels(excluded)}
