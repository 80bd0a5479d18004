"""What one admission cycle makes of what Kueue says: nodes, or words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.kueue_status import KueueStatus
from lockstep.api.run_status import AssignmentStatus
from lockstep.core.admission.admit import admit
from lockstep.core.kueue.workload_request import ask_of, workload_body
from lockstep.core.model.assignment import assigned
from lockstep.core.model.kueue.installation import Flavor, Kueue, Presence
from lockstep.core.model.kueue.workload import ANNOTATION_ASKED, PodSetUpdate, parse_workload
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import NodeView, RunView, Taint
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods import gang
from support.admission import NOW, held, node, run, statuses, world
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
    known = Kueue(
        Presence.PRESENT,
        local_queues={("team", "team"): "shared"},
        cluster_queues={"shared": ("gpus",)},
        flavors=flavors if flavors is not None else {"gpus": FLAVOR},
    )
    by_name = {each.name: each for each in cluster}
    raw = workload_body(view, ask_of(view, None, known, by_name, Tunables(), NOW))
    raw["metadata"] |= {"uid": "workload-1", "resourceVersion": "5"}
    raw["metadata"]["annotations"] |= {ANNOTATION_ASKED: changes["asked"]} if "asked" in changes else {}
    raw["spec"] |= changes.get("spec", {})
    if "owner" in changes:
        raw["metadata"]["ownerReferences"][0]["uid"] = changes["owner"]
    workload = parse_workload({**raw, "status": status})
    known = replace(known, workloads={("team", workload.name): workload})
    return admit(replace(world([view, *others], cluster), kueue=known), Tunables(), NOW)


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


def test_the_gang_gets_the_named_nodes_in_rank_order_and_its_pods_their_marks() -> None:
    view = kueues()
    check = {"name": "prov", "state": "Ready", "podSetUpdates": [{"name": "gang", "annotations": {"note": "x"}}]}
    plan = passed(view, nodes("n1", "n2", "n3"), admitted(topology=hosts("n3", "n1"), admissionChecks=[check]))
    status = statuses(plan)["llama"]
    assert status.assignment.nodes == ("n3", "n1")
    assert plan.writes[0].nodes == {"n3", "n1"}
    assert status.kueue is not None
    assert (status.kueue.workload_uid, status.kueue.cluster_queue) == ("workload-1", "shared")
    body = gang.pod_body(view, status, Tunables(), 0, 1, "n3")
    assert body["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "gang"
    assert body["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == status.kueue.workload
    assert body["metadata"]["annotations"]["note"] == "x"
    assert body["spec"]["nodeSelector"] == {"pool": "a"}
    assert {"key": "pool"} in body["spec"]["tolerations"]
    assert "schedulingGates" not in body["spec"]


def test_host_names_may_differ_from_node_names() -> None:
    view = kueues(1)
    cluster = [node("n1", labels={"pool": "a", HOST: "host-1"}), node("n2", labels={"pool": "a", HOST: "n1"})]
    plan = passed(view, cluster, admitted(1, hosts("n1")))
    assert statuses(plan)["llama"].assignment.nodes == ("n2",)


def test_racks_are_filled_in_their_order_as_far_as_they_are_given() -> None:
    topology = encode([RACK], [(("r2",), 1), (("r1",), 2)])
    plan = passed(kueues(3), nodes("n1", "n2", "n3", "n4"), admitted(3, topology))
    assert statuses(plan)["llama"].assignment.nodes == ("n3", "n1", "n2")


def test_the_whole_gang_is_of_one_gpu_type_whatever_kueue_names() -> None:
    view = kueues(placement={"gpuTypes": ["H100", "A100"]})
    h100, a100 = ({"pool": "a", **Tunables().gpu_types[word]} for word in ("H100", "A100"))
    mixed = [*nodes("n1", labels=h100), *nodes("n3", labels=a100), node("n2", "r2", labels=a100)]
    word, message = told(passed(view, mixed, admitted(topology=hosts("n1", "n2"))))
    assert word == "KueueAssignment"
    assert "its nodes are not all of one of spec.placement.gpuTypes (H100, A100)" in message
    assert statuses(passed(view, mixed, admitted(topology=hosts("n2", "n3"))))["llama"].resolved.gpu_type == "A100"
    racks = encode([RACK], [(("r1",), 1), (("r2",), 1)])
    found = statuses(passed(view, mixed, admitted(topology=racks)))["llama"]
    assert (found.assignment.nodes, found.resolved.gpu_type) == (("n3", "n2"), "A100")


@pytest.mark.parametrize(("label", "usable"), [("H100", True), ("A100", False)])
def test_a_lost_node_is_replaced_by_one_of_the_gangs_gpu_type_alone(label: str, usable: bool) -> None:
    h100, other = ({"pool": "a", **Tunables().gpu_types[word]} for word in ("H100", label))
    cluster = [*nodes("n1", labels=h100), node("n4", "r2", labels=other)]
    view = kueues(placement={"gpuTypes": ["H100", "A100"]})
    lost = changed(assigned(AssignmentStatus(), ("n1", "n2")), nodes=("n1", ""), vacant=(1,))
    kueue = KueueStatus(queue="team", chosen_by="Label", workload_uid="workload-1")
    view = replace(view, status=changed(view.status, attempt=1, assignment=lost, kueue=kueue))
    plan = passed(view, cluster, admitted(topology=hosts("n1", "n4"), unhealthyNodes=[{"name": "n2"}]))
    status = statuses(plan)["llama"]
    assert status.assignment.nodes == (("n1", "n4") if usable else ("n1", ""))
    if not usable:
        assert told(plan)[0] == "KueueAssignment"
        assert "n4, which Kueue names, is not of the gang's GPU type (H100)" in told(plan)[1]


def test_without_topology_nodes_are_ours_to_choose_within_the_flavor() -> None:
    cluster = [*nodes("n1"), *nodes("n2", labels={"pool": "b"}), *nodes("n3")]
    plan = passed(kueues(), cluster, admitted())
    assert set(statuses(plan)["llama"].assignment.nodes) == {"n1", "n3"}


def test_a_flavors_toleration_opens_its_nodes() -> None:
    cluster = nodes("n1", "n2", taints=(Taint("pool", "NoSchedule"),))
    assert statuses(passed(kueues(), cluster, admitted()))["llama"].assignment.nodes
    bare = {"gpus": Flavor(PodSetUpdate("ResourceFlavor gpus"))}
    assert "tainted pool" in told(passed(kueues(), cluster, admitted(), flavors=bare))[1]


OTHER = run("other", 1, status=held("n1"))
CLASH = {"name": "c", "state": "Ready", "podSetUpdates": [{"name": "gang", "nodeSelector": {"pool": "b"}}]}
