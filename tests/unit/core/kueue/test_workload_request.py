"""The Workload that a run asks with, and how its answer is read."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.kueue_status import KueueStatus
from lockstep.api.queue import TrainingQueueSpec
from lockstep.api.recovery_status import ExcludedNode
from lockstep.core.kueue.choice import workload_name
from lockstep.core.kueue.workload_request import Ask, ask_of, does_for, is_as_asked, topology_marks, workload_body
from lockstep.core.model.kueue.installation import (
    Flavor,
    Kueue,
    Presence,
)
from lockstep.core.model.kueue.workload import PodSetUpdate, parse_workload
from lockstep.core.model.snapshot import NodeView, QueueView, RunView, Taint
from lockstep.core.model.tunables import Tunables
from support.admission import node, run

RACK, HOST = "topology.kubernetes.io/rack", "kubernetes.io/hostname"
NODES = {"n1": node("n1", labels={HOST: "host-1"}), "n2": node("n2")}
TOLERATED = [
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    {"key": "nvidia.com/gpu", "operator": "Exists"},
    {"key": "amd.com/gpu", "operator": "Exists"},
]


def asking(view: RunView) -> RunView:
    return replace(view, status=changed(view.status, kueue=KueueStatus(queue="team")))


def kueue(*levels: str) -> Kueue:
    return Kueue(
        Presence.PRESENT,
        local_queues={("team", "team"): "shared"},
        cluster_queues={"shared": ("gpus",)},
        flavors={"gpus": Flavor(PodSetUpdate("gpus"), "racks" if levels else "")},
        topologies={"racks": levels},
        classes={"bulk": 5},
        pod_classes={"high": 100},
    )


def ask(view: RunView, *levels: str, queue: QueueView | None = None) -> Ask:
    return ask_of(asking(view), queue, kueue(*levels), NODES, Tunables(), 1_000.0)


def terms(found: Ask) -> list[dict[str, Any]]:
    affinity = found.spec["podSets"][0]["template"]["spec"]["affinity"]["nodeAffinity"]
    listed: list[dict[str, Any]] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return listed


def test_one_pod_set_of_whole_nodes_asks_for_what_each_pod_requests() -> None:
    found = ask(run("llama", 4, gpusPerNode=8, resourcesPerNode={"rdma/hca": 8}))
    assert found.spec == {
        "queueName": "team",
        "priority": 0,
        "podSets": [
            {
                "name": "gang",
                "count": 4,
                "template": {
                    "metadata": {},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [
                            {
                                "name": "trainer",
                                "image": "image",
                                "resources": {
                                    "requests": {"rdma/hca": "8", "nvidia.com/gpu": "8"},
                                    "limits": {"rdma/hca": "8", "nvidia.com/gpu": "8"},
                                },
                            }
                        ],
                        "tolerations": TOLERATED,
                    },
                },
            }
        ],
    }


def test_the_workload_is_the_runs_and_names_it() -> None:
    view = asking(run("llama", gpusPerNode=8))
    body = workload_body(view, ask(view))
    meta = body["metadata"]
    assert meta["name"] == workload_name(view) == "trainingrun-llama-uid-l"
    assert meta["labels"]["kueue.x-k8s.io/job-uid"] == view.uid
    assert meta["ownerReferences"][0]["uid"] == view.uid
    assert meta["ownerReferences"][0]["controller"] is True
    assert "finalizers" not in meta
    assert body["spec"]["active"] is True
    assert len(workload_name(replace(view, name="x" * 40))) <= 63


def test_resources_that_are_asked_for_are_reserved_and_sidecars_with_them() -> None:
    sidecar = {"name": "logs", "image": "logs", "resources": {"requests": {"cpu": "1"}}}
    found = ask(
        run(
            "llama",
            gpusPerNode=0,
            resourcesPerNode={"cpu": 90, "memory": "1Ti"},
            podTemplate={"spec": {"containers": [sidecar]}},
        )
    )
    trainer, logs = found.spec["podSets"][0]["template"]["spec"]["containers"]
    assert trainer["resources"]["requests"] == {"cpu": "90", "memory": "1Ti"}
    assert logs["resources"] == {"requests": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("labels", "fields", "expected"),
    [
        ({}, {}, {"priority": 0}),
        (
            {},
            {"priorityClassName": "high"},
            {
                "priority": 100,
                "priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"},
            },
        ),
        (
            {"kueue.x-k8s.io/priority-class": "bulk"},
            {"priorityClassName": "high"},
            {
                "priority": 5,
                "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "bulk"},
            },
        ),
    ],
)
def test_the_priority_is_that_of_kueues_class_else_of_the_runs(
    labels: dict[str, str], fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = ask(replace(run("llama", gpusPerNode=8, **fields), labels=labels))
    assert {key: found.spec[key] for key in ("priority", "priorityClassRef") if key in found.spec} == expected


@pytest.mark.parametrize(
    ("topology", "levels", "expected"),
    [
        ([], (), None),
        ([{"level": "rack", "mode": "Required"}], (), None),
        ([], (RACK, HOST), {"unconstrained": True}),
        ([{"level": "rack"}], (RACK, HOST), {"preferred": RACK}),
        ([{"level": "rack", "mode": "Required"}], (RACK,), {"required": RACK}),
        ([{"level": "zone"}, {"level": "rack", "mode": "Required"}], (RACK,), {"required": RACK}),
        ([{"level": "rack", "policy": "Spread", "maxNodes": 1}], (RACK,), {"unconstrained": True}),
    ],
)
def test_topology_is_asked_for_where_the_flavors_place_by_it(
    topology: list[dict[str, Any]], levels: tuple[str, ...], expected: dict[str, Any] | None
) -> None:
    found = ask(run("llama", gpusPerNode=8, placement={"topology": topology}), *levels)
    assert found.spec["podSets"][0].get("topologyRequest") == expected


def test_every_topology_request_has_its_mark_on_the_pods() -> None:
    assert topology_marks({"required": RACK}) == {"kueue.x-k8s.io/podset-required-topology": RACK}
    assert topology_marks({"preferred": RACK}) == {"kueue.x-k8s.io/podset-preferred-topology": RACK}
    assert topology_marks({"unconstrained": True}) == {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    assert topology_marks({}) == {}


def test_nodes_that_are_wanted_or_not_are_said_by_host_name() -> None:
    wanted = ask(run("llama", 1, gpusPerNode=8, placement={"nodes": ["n1", "n2"], "excludeNodes": ["n2"]}))
    assert terms(wanted) == [{"matchExpressions": [{"key": HOST, "operator": "In", "values": ["host-1"]}]}]
    view = kept_off(run("llama", gpusPerNode=8), "n1")
    assert terms(ask(view)) == [{"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": ["host-1"]}]}]


def kept_off(view: RunView, *names: str) -> RunView:
    entries = tuple(ExcludedNode(node=name, reason="Xid 79", since=0, until=2_000) for name in names)
    recovery = changed(view.status.recovery, excluded_nodes=entries)
    return replace(view, status=changed(view.status, recovery=recovery))


@pytest.mark.parametrize(
    ("then", "now", "exactly"),
    [
        ((), (), True),
        (("n1", "n2"), ("n1", "n2"), True),
        (("n1", "n2"), ("n2",), False),
        (("n1",), (), False),
        (("n1",), ("n2",), False),
        ((), ("n1",), False),
    ],
)
def test_what_is_reserved_serves_whichever_nodes_were_left_out_and_what_waits_leaves_out_just_these(
    then: tuple[str, ...], now: tuple[str, ...], exactly: bool
) -> None:
    view = run("llama", gpusPerNode=8)
    raw = workload_body(asking(view), ask(kept_off(view, *then)))
    workload = parse_workload({**raw, "metadata": {**raw["metadata"], "uid": "u", "resourceVersion": "1"}})
    wanted = ask(kept_off(view, *now))
    assert (does_for(workload, wanted), is_as_asked(workload, wanted)) == (True, exactly)


def test_nodes_that_no_gang_can_have_are_left_out_where_kueue_names_nodes_and_no_more_than_fit_an_object() -> None:
    sound, bad = {"n1": node("n1")}, {f"b{index}": node(f"b{index}", drain="soon") for index in range(1_200)}
    view = asking(run("llama", gpusPerNode=8))

    def avoided(*levels: str, nodes: dict[str, NodeView]) -> frozenset[str]:
        return ask_of(view, None, kueue(*levels), nodes, Tunables(), 1_000.0).avoided

    few = {name: bad[name] for name in ("b7", "b8")}
    assert avoided(RACK, HOST, nodes=sound | few) == {"b7", "b8"}
    assert avoided(RACK, nodes=sound | few) == avoided(nodes=sound | few) == frozenset()
    assert len(avoided(HOST, nodes=sound | bad)) == 1_000


PERFECT = {"allocatable": {"cpu": 8_000, "memory": 2**34, "nvidia.com/gpu": 8}, "labels": {"pool": "a", "zone": "z1"}}
TAINTED = {"taints": (Taint("maintenance", "NoSchedule"),), "drain": ""}
MAINTAINED = {"spec": {"tolerations": [{"key": "maintenance", "operator": "Exists"}]}}


@pytest.mark.parametrize(
    ("changes", "spec", "left_out"),
    [
        ({}, {}, True),
        ({"allocatable": {"cpu": 8_000, "memory": 2**34}}, {}, False),
        ({"allocatable": {"cpu": 8_000, "memory": 2**34, "nvidia.com/gpu": 0}}, {}, True),
        ({"allocatable": {"cpu": 8_000, "memory": 2**34}}, {"gpusPerNode": 0}, True),
        ({"labels": {"pool": "a", "zone": "z2"}}, {}, False),
        ({"labels": {"pool": "b", "zone": "z1"}}, {}, False),
        ({}, {"podTemplate": {"spec": {"nodeSelector": {"disk": "nvme"}}}}, False),
        ({}, {"placement": {"nodes": ["n1"]}}, False),
        ({}, {"placement": {"nodes": ["n1", "bad"]}}, True),
        ({}, {"placement": {"excludeNodes": ["bad"]}}, False),
        (TAINTED, {}, False),
        (TAINTED, {"podTemplate": MAINTAINED}, True),
        ({"taints": (Taint("flavor", "NoSchedule"),)}, {}, True),
        ({"taints": (Taint("else", "NoSchedule"),)}, {}, False),
    ],
)
def test_of_the_nodes_that_no_gang_can_have_those_alone_are_left_out_that_kueue_would_name(
    changes: dict[str, Any], spec: dict[str, Any], left_out: bool
) -> None:
    bad = node("bad", **{"drain": "soon", **PERFECT, **changes})
    queue = QueueView("q", TrainingQueueSpec.model_validate({"nodeSelector": {"zone": "z1"}}))
    flavor = PodSetUpdate("gpus", node_selector={"pool": "a"}, tolerations=({"key": "flavor", "operator": "Exists"},))
    here = replace(kueue(HOST), flavors={"gpus": Flavor(flavor, "racks")})
    view, tunables = asking(run("llama", **{"gpusPerNode": 8, **spec})), Tunables(drain_taints=("maintenance",))
    found = ask_of(view, queue, here, {"n1": node("n1"), "bad": bad}, tunables, 1_000.0)
    assert found.avoided == ({"bad"} if left_out else frozenset())


def test_where_all_nodes_that_it_names_are_left_out_it_asks_for_none() -> None:
    found = ask(kept_off(run("llama", 1, gpusPerNode=8, placement={"nodes": ["n2"]}), "n2"))
    (term,) = terms(found)
    assert [(line["operator"], line["values"]) for line in term["matchExpressions"]] == [
        ("In", ["n2"]),
        ("NotIn", ["n2"]),
    ]


def test_gpu_types_and_the_queues_selector_are_node_labels() -> None:
    queue = QueueView("default", TrainingQueueSpec.model_validate({"nodeSelector": {"pool": "a"}}))
    found = ask(run("llama", gpusPerNode=8, placement={"gpuTypes": ["H100", "H200"]}), queue=queue)
    assert [term["matchExpressions"][0]["values"] for term in terms(found)] == [
        ["NVIDIA-H100-80GB-HBM3"],
        ["NVIDIA-H200"],
    ]
    assert found.spec["podSets"][0]["template"]["spec"]["nodeSelector"] == {"pool": "a"}


def test_the_digest_changes_with_what_is_asked_and_with_nothing_else() -> None:
    view = run("llama", 2, gpusPerNode=8)
    same = replace(view, status=changed(view.status, attempt=7), resource_version="99")
    assert ask(view).digest == ask(same).digest
    assert view.spec is not None
    larger = replace(view, spec=changed(view.spec, nodes=3))
    assert ask(view).digest != ask(larger).digest


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        ({"gpusPerNode": 8}, {"nvidia.com/gpu": "8"}),
        ({"gpusPerNode": 8, "gpuResource": "habana.ai/gaudi"}, {"habana.ai/gaudi": "8"}),
        ({"resourcesPerNode": {"amd.com/gpu": 8}}, {"amd.com/gpu": "8"}),
    ],
)
def test_gpus_of_the_make_that_the_run_names_are_reserved(spec: dict[str, Any], requests: dict[str, str]) -> None:
    (container,) = ask(run("llama", **spec)).spec["podSets"][0]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == requests
