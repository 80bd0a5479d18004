"""What one admission cycle makes of what Kueue says: nodes, or words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.kueue_status import KueueStatus
from lockstep.core.admission.admit import admit
from lockstep.core.kueue.workload_request import ask_of, workload_body
from lockstep.core.model.kueue.installation import Flavor, Kueue, Presence
from lockstep.core.model.kueue.workload import ANNOTATION_ASKED, PodSetUpdate, parse_workload
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import NodeView, RunView
from lockstep.core.model.tunables import Tunables
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


OTHER = run("other", 1, status=held("n1"))
CLASH = {"name": "c", "state": "Ready", "podSetUpdates": [{"name": "gang", "nodeSelector": {"pool": "b"}}]}


@pytest.mark.parametrize(
    ("status", "changes", "word", "message"),
    [
        (
            {},
            {},
            "WaitingForKueue",
            "LocalQueue team has its Workload trainingrun-llama-uid-l, of which Kueue has said",
        ),
        (
            {"conditions": conditions({"QuotaReserved": "False"}, "ExceedsMaxQuota", "too many")},
            {},
            "WaitingForKueue",
            "Kueue: ExceedsMaxQuota: too many",
        ),
        (
            {
                "conditions": conditions({"QuotaReserved": "False", "Requeued": "False"}, "PodsReadyTimeout", "late"),
                "requeueState": {"count": 1, "requeueAt": "2026-01-01T00:00:00Z"},
            },
            {},
            "WaitingForKueue",
            "Kueue holds it back after PodsReadyTimeout: late; Kueue tries again at 2026-01-01T00:00:00Z",
        ),
        (
            {
                **admitted(),
                "conditions": conditions({"QuotaReserved": "True"}),
                "admissionChecks": [{"name": "prov", "state": "Pending", "message": "no machines yet"}],
            },
            {},
            "WaitingForKueue",
            "Kueue has the quota; admission checks are not through: prov is Pending (no machines yet)",
        ),
        (
            {**admitted(), "conditions": conditions({**TRUE, "Evicted": "True"})},
            {},
            "WaitingForKueue",
            "its reservation is being given back",
        ),
        (
            admitted(),
            {"asked": "something else"},
            "WaitingForKueue",
            "the run, or its Workload, has changed since it was admitted",
        ),
        (admitted(), {"owner": "somebody"}, "KueueAssignment", "that is not of this run is in the way; delete it"),
        (admitted(), {"spec": {"active": False}}, "KueueDeactivated", "set its spec.active to true"),
        (admitted(3), {}, "KueueAssignment", "for 3 pods instead of 2"),
        (admitted(topology={"levels": []}), {}, "KueueAssignment", "topologyAssignment has no levels"),
        (admitted(topology=hosts("n1", "n9")), {}, "KueueAssignment", "there is no node with the host name n9"),
        (admitted(topology=hosts("n2", "n2")), {}, "KueueAssignment", "Kueue puts two ranks on n2"),
        (
            admitted(topology=hosts("n1", "n2")),
            {},
            "KueueAssignment",
            "n1 of the nodes that Kueue names is held by others",
        ),
        (admitted(topology=hosts("n2", "n4")), {}, "KueueAssignment", "can be used: 1 cordoned (n4)"),
        (admitted(topology=encode([RACK], [(("r3",), 2)])), {}, "KueueAssignment", "the cluster has no nodes for it"),
        (
            admitted(admissionChecks=[CLASH]),
            {},
            "KueueAssignment",
            "ResourceFlavor gpus and admission check c disagree about pool",
        ),
        (admitted(), {"flavors": {}}, "KueueAssignment", "there is no ResourceFlavor gpus"),
    ],
)
def test_what_keeps_a_run_from_its_nodes_is_told(
    status: dict[str, Any], changes: dict[str, Any], word: str, message: str
) -> None:
    cluster = nodes("n1", "n2", "n3")
    cluster.append(node("n4", "r2", labels={"pool": "a"}, unschedulable=True))
    plan = passed(kueues(), cluster, status, OTHER, **changes)
    found = told(plan)
    assert found[0] == word
    assert message in found[1]
    assert not statuses(plan)["llama"].assignment.nodes


def test_whose_nodes_they_are_is_told_as_far_as_it_may_be() -> None:
    plan = passed(kueues(), nodes("n1", "n2"), admitted(topology=hosts("n1", "n2")), OTHER)
    assert statuses(plan)["llama"].queue.blocked_by == ("team/other",)
    assert "other" not in statuses(plan) or not statuses(plan)["other"].stop


def test_kueues_gangs_are_in_nobodys_quota_and_nobodys_victims() -> None:
    gang_of_kueues = run("kueues", 2, status={**held("n1", "n2"), "kueue": KueueStatus(queue="team")})
    waits = run("ours", 2, priorityClassName="high")
    rules = {
        "default": {
            "quotas": [{"gpuType": "Any", "nominalNodes": 2}],
            "preemption": {"withinQueue": "LowerPriority", "minRuntime": "0s"},
        }
    }
    full = admit(
        world([gang_of_kueues, waits], nodes("n1", "n2", "n3"), queues=rules, classes={"high": 9}), Tunables(), NOW
    )
    assert statuses(full)["ours"].reservation is None
    assert "kueues" not in statuses(full)
    roomy = admit(
        world([gang_of_kueues, waits], nodes("n1", "n2", "n3", "n4"), queues=rules, classes={"high": 9}),
        Tunables(),
        NOW,
    )
    assert statuses(roomy)["ours"].assignment.nodes == ("n3", "n4")
