"""What one admission cycle makes of what Kueue says: nodes, or words."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.kueue_status import KueueStatus
from lockstep.api.run_status import AssignmentStatus
from lockstep.core.model.assignment import assigned
from lockstep.core.model.kueue.installation import Flavor
from lockstep.core.model.kueue.workload import PodSetUpdate
from lockstep.core.model.snapshot import Taint
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods import gang
from support.admission import held, node, run, statuses
from support.admitted_by_kueue import HOST, RACK, admitted, hosts, kueues, nodes, passed, told
from support.kueue_double import encode


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


@pytest.mark.parametrize("names", [("n1", "n2", "n3"), ("n1", "n3")], ids=["held-by-others", "deleted"])
def test_while_kueue_seeks_another_node_for_a_lost_one_nobody_is_blamed(names: tuple[str, ...]) -> None:
    lost = changed(assigned(AssignmentStatus(), ("n1", "n2")), nodes=("n1", ""), vacant=(1,))
    kueue = KueueStatus(queue="team", chosen_by="Label", workload_uid="workload-1")
    view = kueues()
    view = replace(view, status=changed(view.status, attempt=1, assignment=lost, kueue=kueue))
    other = run("other", 1, status=held("n2"))
    seeking = admitted(topology=hosts("n1", "n2"), unhealthyNodes=[{"name": "n2"}])
    plan = passed(view, nodes(*names), seeking, other)
    assert told(plan) == ("WaitingForKueue", "Kueue seeks a node in place of n2")


def test_of_nodes_that_kueue_names_and_that_cannot_be_used_these_alone_are_told() -> None:
    cluster = [*nodes("n1"), *nodes("n2", conditions={"XidCriticalError": "Xid 79"}), *nodes("n3", drain="firmware")]
    word, message = told(passed(kueues(), cluster, admitted(topology=hosts("n1", "n2"))))
    assert word == "KueueAssignment"
    assert message.endswith("can be used: 1 with the condition XidCriticalError (n2: Xid 79)")


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
