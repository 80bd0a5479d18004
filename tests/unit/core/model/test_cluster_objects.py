"""From the API server's JSON to the views of the core."""

from typing import Any

import orjson
import pytest

from lockstep.core.model.cluster_objects import (
    ForeignPod,
    parse_namespace,
    parse_node,
    parse_pod,
    parse_priority_class,
    pod_requests,
)
from lockstep.core.model.snapshot import NodeView, PodPhase, PodView

GIB = 2**30


def gang_pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "llama-abcde-3-2",
            "namespace": "team",
            "uid": "pod-1",
            "resourceVersion": "17",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "lockstep.dev/run": "llama",
                "lockstep.dev/run-uid": "abcdefgh",
                "lockstep.dev/slot": "3",
                "lockstep.dev/incarnation": "2",
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Other", "name": "x", "uid": "other"},
                {
                    "apiVersion": "lockstep.dev/v1alpha1",
                    "kind": "TrainingRun",
                    "name": "llama",
                    "uid": "abcdefgh",
                    "controller": True,
                },
            ],
            "managedFields": [{"manager": "x", "fieldsV1": {"f:metadata": {}}}],
        },
        "spec": {
            "containers": [{"name": "trainer", "resources": {"requests": {"cpu": "180"}}}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-7"]}]}
                        ]
                    }
                }
            },
        },
        "status": {"phase": "Pending", **status},
    }


def parsed(pod: dict[str, Any]) -> PodView:
    view = parse_pod(orjson.dumps(pod)).view
    assert isinstance(view, PodView)
    return view


def test_a_gang_pod_is_known_by_its_owner_and_its_name_and_its_pinned_node_before_it_is_bound() -> None:
    item = parse_pod(orjson.dumps(gang_pod()))
    assert (item.uid, item.version) == ("pod-1", 17)
    assert item.view == PodView(
        namespace="team",
        name="llama-abcde-3-2",
        uid="pod-1",
        run="llama",
        run_uid="abcdefgh",
        owner_uid="abcdefgh",
        slot=3,
        incarnation=2,
        node="gpu-7",
        bound=False,
        phase=PodPhase.PENDING,
        created_at=1767225600.0,
        requests={"cpu": 180_000, "pods": 1},
    )


@pytest.mark.parametrize(("name", "is_its"), [(None, True), ("default-scheduler", True), ("volcano", False)])
def test_a_pod_says_whether_kube_scheduler_is_to_place_it(name: str | None, is_its: bool) -> None:
    raw = gang_pod()
    raw["spec"] |= {} if name is None else {"schedulerName": name}
    view = parse_pod(orjson.dumps(raw)).view
    assert isinstance(view, PodView)
    assert view.by_kube_scheduler is is_its


def test_a_bound_deleting_running_pod_says_so() -> None:
    raw = gang_pod(
        phase="Running",
        podIP="10.0.0.7",
        containerStatuses=[{"name": "trainer", "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}}],
    )
    raw["spec"]["nodeName"] = "gpu-7"
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    view = parsed(raw)
    assert (view.bound, view.deleting, view.phase) == (True, True, PodPhase.RUNNING)
    assert (view.started_at, view.pod_ip) == (1767225605.0, "10.0.0.7")
    assert view.killed_at == 1767229200.0


@pytest.mark.parametrize(
    ("status", "reason", "message", "exit_code"),
    [
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", "message": "disk pressure"},
            "Evicted",
            "disk pressure",
            None,
            id="the pod's own reason comes first",
        ),
        pytest.param(
            {
                "phase": "Failed",
                "containerStatuses": [
                    {"name": "trainer", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
                ],
            },
            "OOMKilled",
            "",
            137,
            id="else a failed container's",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    {"name": "trainer", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}
                ]
            },
            "ImagePullBackOff",
            "no",
            None,
            id="else why a container waits",
        ),
        pytest.param(
            {
                "initContainerStatuses": [
                    {"name": "prepare", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
                ],
                "containerStatuses": [{"name": "trainer", "state": {"waiting": {"reason": "PodInitializing"}}}],
            },
            "ErrImagePull",
            "no",
            None,
            id="an init container's reason rather than the wait for it",
        ),
        pytest.param(
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/4 nodes",
                    }
                ]
            },
            "Unschedulable",
            "0/4 nodes",
            None,
            id="else why it is not scheduled",
        ),
        pytest.param(
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": 'persistentvolumeclaim "lustre" not found. not found',
                    }
                ]
            },
            "Unschedulable",
            'persistentvolumeclaim "lustre" not found',
            None,
            id="which is said once",
        ),
    ],
)
def test_why_a_pod_does_not_run(status: dict[str, Any], reason: str, message: str, exit_code: int | None) -> None:
    view = parsed(gang_pod(**status))
    assert (view.reason, view.message, view.exit_code) == (reason, message, exit_code)


GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


@pytest.mark.parametrize(
    ("gates", "named"),
    [
        (["policy.example/review"], "scheduling gates: policy.example/review"),
        (["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"], "kueue.x-k8s.io/admission, kueue.x-k8s.io/topology"),
        ([f"g{number}" for number in range(90)], "g0, g1, g2, g3, g4, g5, g6, g7 and 82 more"),
        ([], "non-empty scheduling gates"),
    ],
)
def test_a_gated_pod_names_its_gates(gates: list[str], named: str) -> None:
    body = gang_pod(conditions=[GATED])
    body["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    view = parsed(body)
    assert view.reason == "SchedulingGated"
    assert view.message.endswith(named)


def test_a_pod_that_bears_the_labels_of_a_gang_alone_counts_as_foreign_and_takes_nothing_by_its_pin() -> None:
    raw = gang_pod()
    raw["metadata"]["ownerReferences"] = []
    assert parse_pod(orjson.dumps(raw)).view == ForeignPod("", {"cpu": 180_000, "pods": 1})
    raw["spec"]["nodeName"] = "gpu-7"
    assert parse_pod(orjson.dumps(raw)).view == ForeignPod("gpu-7", {"cpu": 180_000, "pods": 1})


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"lockstep.dev/slot": "three"},
        {"lockstep.dev/run-uid": "abcdefgh"},
        {
            "lockstep.dev/run": "mixtral",
            "lockstep.dev/run-uid": "12345678",
            "lockstep.dev/slot": "0",
            "lockstep.dev/incarnation": "9",
        },
    ],
    ids=["none", "no-slot", "of-the-run-alone", "of-another-run"],
)
def test_a_pod_whose_labels_somebody_changed_is_known_by_its_owner_and_its_name(labels: dict[str, str]) -> None:
    raw = gang_pod()
    whole = parsed(raw)
    raw["metadata"]["labels"] = labels
    assert parsed(raw) == whole


@pytest.mark.parametrize(
    "change",
    [
        {"controller": False},
        {"kind": "Job"},
        {"apiVersion": "lockstep.example/v1"},
        {"name": "other"},
        {"uid": "another"},
    ],
)
def test_a_pod_without_labels_is_nobodys_unless_owner_and_name_agree(change: dict[str, Any]) -> None:
    raw = gang_pod()
    raw["metadata"]["labels"] = {}
    raw["metadata"]["ownerReferences"][1] |= change
    assert isinstance(parse_pod(orjson.dumps(raw)).view, ForeignPod)


@pytest.mark.parametrize(
    "name", ["llama-abcde-3", "llama-abcde-3-x", "llama-abcde", "llama", "", "llama-abcde-99999999-1"]
)
def test_a_pod_without_labels_and_of_another_name_is_nobodys(name: str) -> None:
    raw = gang_pod()
    raw["metadata"] |= {"labels": {}, "name": name}
    assert isinstance(parse_pod(orjson.dumps(raw)).view, ForeignPod)


def test_a_foreign_pod_is_what_it_requests() -> None:
    raw = {
        "metadata": {"name": "web", "namespace": "x", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "nodeName": "gpu-1",
            "containers": [
                {"resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}},
                {"resources": {"limits": {"cpu": "1"}}},
            ],
            "overhead": {"cpu": "50m"},
        },
        "status": {"phase": "Succeeded"},
    }
    view = parse_pod(orjson.dumps(raw)).view
    assert view == ForeignPod("gpu-1", {"cpu": 150, "memory": GIB, "pods": 1}, terminal=True)


@pytest.mark.parametrize(
    ("containers", "init", "overhead", "pod_level", "expected"),
    [
        pytest.param([{"cpu": 1}, {"cpu": 2}], [], {}, {}, {"cpu": 3}, id="containers add up"),
        pytest.param(
            [{"cpu": 3}],
            [({"cpu": 5}, False), ({"cpu": 4}, False)],
            {},
            {},
            {"cpu": 5},
            id="init containers run alone",
        ),
        pytest.param([{"cpu": 3}], [({"cpu": 2}, True)], {}, {}, {"cpu": 5}, id="sidecars run beside containers"),
        pytest.param(
            [{"cpu": 1}],
            [({"cpu": 2}, True), ({"cpu": 4}, False)],
            {},
            {},
            {"cpu": 6},
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            [{"cpu": 1}],
            [({"cpu": 4}, False), ({"cpu": 2}, True)],
            {},
            {},
            {"cpu": 4},
            id="but not beside those after it",
        ),
        pytest.param([{"cpu": 3}], [], {"cpu": 1}, {}, {"cpu": 4}, id="overhead comes on top"),
        pytest.param(
            [{"cpu": 3, "memory": 1}],
            [],
            {"cpu": 1},
            {"cpu": 8},
            {"cpu": 9, "memory": 1},
            id="requests of the whole pod replace the sums",
        ),
    ],
)
def test_pod_requests_follow_the_scheduler(
    containers: Any, init: Any, overhead: Any, pod_level: Any, expected: dict[str, int]
) -> None:
    assert pod_requests(containers, init, overhead, pod_level) == expected


def test_a_node_is_its_labels_resources_taints_and_readiness() -> None:
    raw = {
        "metadata": {"name": "gpu-1", "uid": "n1", "resourceVersion": "9", "labels": {"rack": "r1"}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True},
        "status": {
            "allocatable": {"cpu": "191800m", "memory": "2Ti", "nvidia.com/gpu": "8"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ],
            "addresses": [
                {"type": "Hostname", "address": "gpu-1"},
                {"type": "InternalIP", "address": "10.1.0.1"},
            ],
            "images": [{"names": ["x"], "sizeBytes": 1}],
        },
    }
    node = parse_node(orjson.dumps(raw)).view
    assert isinstance(node, NodeView)
    assert node.allocatable == {"cpu": 191_800, "memory": 2 * 2**40, "nvidia.com/gpu": 8}
    assert (node.ready, node.unschedulable, node.internal_ip) == (False, True, "10.1.0.1")
    assert node.ready_changed_at == 1767225600.0
    assert node.taints[0].key == "k"


@pytest.mark.parametrize(
    ("annotations", "drain"),
    [
        ({}, ""),
        ({"lockstep.dev/drain": "new firmware"}, "new firmware"),
        ({"lockstep.dev/drain": ""}, "it is being drained"),  # an annotation without a value asks as well
        ({"example.com/drain": "x"}, ""),
    ],
)
def test_a_node_to_be_left_says_why(annotations: dict[str, str], drain: str) -> None:
    raw = {"metadata": {"name": "gpu-1", "uid": "n1", "resourceVersion": "9", "annotations": annotations}}
    assert parse_node(orjson.dumps(raw)).view.drain == drain


def test_of_a_nodes_conditions_those_are_kept_that_are_true() -> None:
    conditions = [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure"},
        {"type": "XidCriticalError", "status": "True", "reason": "GPU3", "lastTransitionTime": "2026-01-02T00:00:00Z"},
    ]
    raw = {"metadata": {"name": "gpu-1", "uid": "n1", "resourceVersion": "9"}, "status": {"conditions": conditions}}
    view = parse_node(orjson.dumps(raw)).view
    assert view.conditions == {"XidCriticalError": "GPU3"}
    assert view.conditions_changed_at == 1767312000.0


def test_a_disrupted_pod_says_by_what_and_when_it_ended() -> None:
    ended = {"exitCode": 137, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}
    view = parsed(
        gang_pod(
            phase="Failed",
            conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
            containerStatuses=[{"name": "trainer", "state": {"terminated": ended}}],
        )
    )
    assert (view.disruption, view.ended_at) == ("EvictionByEvictionAPI", 1767225600.0)


def test_a_node_that_never_reported_is_not_ready() -> None:
    raw = {"metadata": {"name": "gpu-1", "uid": "n1", "resourceVersion": "9"}}
    assert not parse_node(orjson.dumps(raw)).view.ready


def test_a_namespace_is_its_name_and_labels() -> None:
    raw = {"metadata": {"name": "team", "uid": "u", "resourceVersion": "3", "labels": {"a": "b"}}}
    assert parse_namespace(orjson.dumps(raw)).view == ("team", {"a": "b"})


@pytest.mark.parametrize(
    "ends",
    [
        *("999999999999-2", "-1-2", "\u0663-2", f"3-{'9' * 60}", f"3-{'9' * 5000}", "3-", "3-2-x", f"3-{2**31}"),
        *("03-2", "3-02", "00-2", f"{3:016}-{2:016}"),
    ],
)
def test_a_name_that_no_pod_of_ours_can_have_makes_it_somebody_elses_pod(ends: str) -> None:
    raw = gang_pod()
    raw["metadata"]["name"] = f"llama-abcde-{ends}"
    assert isinstance(parse_pod(orjson.dumps(raw)).view, ForeignPod)


def test_a_priority_class_has_a_name_and_a_value() -> None:
    raw = {"metadata": {"name": "urgent", "uid": "c1", "resourceVersion": "9"}, "value": -10, "globalDefault": False}
    item = parse_priority_class(orjson.dumps(raw))
    assert (item.uid, item.version, item.view) == ("c1", 9, ("urgent", -10))
    zero = {"metadata": {"name": "plain", "uid": "c2", "resourceVersion": "10"}}
    assert parse_priority_class(orjson.dumps(zero)).view == ("plain", 0)


@pytest.mark.parametrize(
    ("capacity", "allocatable", "withheld"),
    [
        ({"cpu": "4", "nvidia.com/gpu": "8"}, {"cpu": "4", "nvidia.com/gpu": "8"}, {}),
        ({"cpu": "4", "nvidia.com/gpu": "8"}, {"cpu": "4", "nvidia.com/gpu": "7"}, {}),
        # The device plugin has just gone; it has been gone for a while; somebody took the name away.
        ({"cpu": "4", "nvidia.com/gpu": "8"}, {"cpu": "4", "nvidia.com/gpu": "0"}, {"nvidia.com/gpu": 8}),
        ({"cpu": "4", "nvidia.com/gpu": "0"}, {"cpu": "4", "nvidia.com/gpu": "0"}, {"nvidia.com/gpu": 0}),
        ({"cpu": "4", "nvidia.com/gpu": "8"}, {"cpu": "4"}, {"nvidia.com/gpu": 8}),
        ({"cpu": "4"}, {"cpu": "4", "amd.com/gpu": "0"}, {"amd.com/gpu": 0}),
        ({"cpu": "4", "hugepages-1Gi": "0"}, {"cpu": "0", "hugepages-1Gi": "0"}, {}),
    ],
)
def test_a_node_says_which_devices_it_has_and_does_not_offer(
    capacity: dict[str, str], allocatable: dict[str, str], withheld: dict[str, int]
) -> None:
    raw = {"metadata": {"name": "n", "uid": "u"}, "status": {"capacity": capacity, "allocatable": allocatable}}
    assert parse_node(orjson.dumps(raw)).view.withheld == withheld
