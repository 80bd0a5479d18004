"""One run that Kueue admits, and what an admission cycle makes of its Workload."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lockstep.api.base.changes import changed
from lockstep.api.kueue_status import KueueStatus
from lockstep.core.admission.admit import admit
from lockstep.core.kueue.workload_request import ask_of, workload_body
from lockstep.core.model.kueue.installation import Flavor, Kueue, Presence
from lockstep.core.model.kueue.workload import ANNOTATION_ASKED, PodSetUpdate, parse_workload
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot, NodeView, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, node, run, statuses, world
from support.kueue_double import encode

RACK, HOST = "topology.kubernetes.io/rack", "kubernetes.io/hostname"
TRUE = {"QuotaReserved": "True", "Admitted": "True"}
FLAVOR = Flavor(PodSetUpdate("ResourceFlavor gpus", node_selector={"pool": "a"}, tolerations=({"key": "pool"},)))


def nodes(*names: str, **changes: Any) -> list[NodeView]:
    labelled = {"labels": {"pool": "a"}, **changes}
    return [node(name, rack, **labelled) for name, rack in zip(names, ("r1", "r1", "r2", "r2", "r3"), strict=False)]


def kueues(count: int = 2, **spec: Any) -> RunView:
    view = replace(run("llama", count, gpusPerNode=8, **spec), labels={"kueue.x-k8s.io/queue-name": "team"})
    return replace(view, status=changed(view.status, kueue=KueueStatus(queue="team", chosen_by="Label")))


def conditions(said: Mapping[str, str], reason: str = "Said", message: str = "so") -> list[dict[str, Any]]:
    return [{"type": kind, "status": value, "reason": reason, "message": message} for kind, value in said.items()]


def passed(
    view: RunView,
    cluster: Sequence[NodeView],
    status: Mapping[str, Any],
    *others: RunView,
    flavors: Mapping[str, Flavor] | None = None,
    **changes: Any,
) -> ClusterPlan:
    """One pass with the Workload that ``view`` asks with, in ``status``; ``changes`` are of its spec and metadata."""
    known = installed({"gpus": FLAVOR} if flavors is None else flavors)
    raw = _asked(view, cluster, known)
    raw["metadata"] |= {"uid": "workload-1", "resourceVersion": "5"}
    raw["metadata"]["annotations"] |= {ANNOTATION_ASKED: changes["asked"]} if "asked" in changes else {}
    raw["spec"] |= changes.get("spec", {})
    if "owner" in changes:
        raw["metadata"]["ownerReferences"][0]["uid"] = changes["owner"]
    workload = parse_workload({**raw, "status": status})
    known = replace(known, workloads={("team", workload.name): workload})
    return admit(replace(world([view, *others], cluster), kueue=known), Tunables(), NOW)


def installed(flavors: Mapping[str, Flavor]) -> Kueue:
    """Kueue with one queue."""
    queues = {("team", "team"): "shared"}
    return Kueue(Presence.PRESENT, local_queues=queues, cluster_queues={"shared": ("gpus",)}, flavors=flavors)


def all_in(
    views: Sequence[RunView], cluster: Sequence[NodeView], status: Mapping[str, Any], *others: RunView
) -> ClusterSnapshot:
    """What a cycle sees of ``views``, each with a Workload in ``status``."""
    known = installed({"gpus": FLAVOR})
    raws = ({**_asked(view, cluster, known), "status": status} for view in views)
    workloads = [
        parse_workload({**raw, "metadata": raw["metadata"] | {"uid": "w", "resourceVersion": "5"}}) for raw in raws
    ]
    known = replace(known, workloads={("team", workload.name): workload for workload in workloads})
    return replace(world([*views, *others], cluster), kueue=known)


def _asked(view: RunView, cluster: Sequence[NodeView], known: Kueue) -> dict[str, Any]:
    by_name = {each.name: each for each in cluster}
    return workload_body(view, ask_of(view, None, known, by_name, Tunables(), NOW))


def admitted(count: int = 2, topology: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    assignment = {"name": "gang", "count": count, "flavors": {"nvidia.com/gpu": "gpus"}}
    if topology is not None:
        assignment["topologyAssignment"] = topology
    admission = {"clusterQueue": "shared", "podSetAssignments": [assignment]}
    return {"conditions": conditions(TRUE), "admission": admission, **more}


def hosts(*names: str) -> dict[str, Any]:
    return encode([HOST], [((name,), 1) for name in names])


def told(plan: ClusterPlan) -> tuple[str, str]:
    queue = statuses(plan)["llama"].queue
    return queue.reason, queue.message
