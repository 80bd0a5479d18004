"""What asks an autoscaler for nodes: what is in it, and who vouches for it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import ExcludedNode
from lockstep.api.run_status import ScaleUpStatus, TrainingRunStatus
from lockstep.core.model.cluster_objects import ForeignPod, parse_pod
from lockstep.core.model.snapshot import PlaceholderView, RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods.gang import KEEP_NODE
from lockstep.core.pods.placeholders import foreign_placeholders, is_placeholder_of, placeholders, provisioning
from support.admission import run

NOW = 1_000.0
ASKED = ScaleUpStatus(by="Placeholders", nodes=2, generation=1)


def asking(**spec: Any) -> RunView:
    view = run("llama", 2, gpusPerNode=8, **spec)
    return replace(view, status=changed(view.status, scale_up=ASKED))


def body(view: RunView, asked: ScaleUpStatus = ASKED, **settings: Any) -> dict[str, Any]:
    return dict(placeholders(view, asked, Tunables(**settings), NOW)[0].body)


def requests(of: dict[str, Any]) -> dict[str, str]:
    resources = of["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"]
    found: dict[str, str] = resources["requests"]
    return found


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "8"}),
        (
            {"resourcesPerNode": {"cpu": "190", "memory": "1800Gi", "rdma/ib": "8"}},
            {"cpu": "190", "memory": "1800Gi", "nvidia.com/gpu": "8", "rdma/ib": "8"},
        ),
        (
            {"podTemplate": {"spec": {"containers": [{"name": "side", "resources": {"requests": {"cpu": "2"}}}]}}},
            {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "8"},
        ),
    ],
)
def test_a_placeholder_asks_for_what_a_gang_pod_does(spec: dict[str, Any], expected: dict[str, str]) -> None:
    assert requests(body(asking(**spec))) == expected


def test_it_asks_for_gpus_of_the_make_that_status_names_and_has_their_tolerations() -> None:
    of = body(asking(), changed(ASKED, gpu_resource="habana.ai/gaudi"))
    assert requests(of) == {"cpu": "1", "memory": "1Gi", "habana.ai/gaudi": "8"}
    assert "habana.ai/gaudi" in [each["key"] for each in of["spec"]["tolerations"]]


def test_it_goes_where_a_gang_pod_may_go_and_shares_the_node_with_none() -> None:
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
    required = {"nodeSelectorTerms": [term]}
    view = asking(
        placement={"excludeNodes": ["n9"]},
        podTemplate={
            "spec": {
                "nodeSelector": {"disk": "nvme"},
                "tolerations": [{"key": "team", "operator": "Exists"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
                "schedulerName": "other",
            }
        },
    )
    kept_off = ExcludedNode(node="n7", reason="it failed", until=NOW + 60)
    recovery = changed(view.status.recovery, excluded_nodes=(kept_off,))
    view = replace(view, status=changed(view.status, recovery=recovery))
    asked = changed(ASKED, gpu_type="H100", node_selector={"team": "a"})
    spec = body(view, asked, gpu_types={"H100": {"gpu": "h100"}})["spec"]
    assert spec["nodeSelector"] == {"gpu": "h100", "team": "a", "disk": "nvme"}
    assert {"key": "team", "operator": "Exists"} in spec["tolerations"]
    assert spec["schedulerName"] == "other"
    (found,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert found["matchExpressions"] == term["matchExpressions"]
    assert [field["values"] for field in found["matchFields"]] == [["n7"], ["n9"]]
    apart = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    keys = {each["labelSelector"]["matchExpressions"][0]["key"] for each in apart}
    assert keys == {names.LABEL_RUN_UID, names.LABEL_PLACEHOLDER_OF}


def test_it_is_below_everybody_preempts_nobody_and_is_no_gang_pod() -> None:
    found = body(asking())
    assert (found["spec"]["priorityClassName"], found["spec"]["preemptionPolicy"]) == ("lockstep-placeholder", "Never")
    assert names.LABEL_RUN_UID not in found["metadata"]["labels"]
    assert names.LABEL_RUN not in found["metadata"]["labels"]
    assert found["metadata"]["annotations"] == {names.ANNOTATION_SCALE_UP: "1", **KEEP_NODE}, "its node stays"
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("uid-llama", True)


def test_there_is_one_for_each_node_of_the_gang_under_names_that_stay() -> None:
    made = placeholders(asking(), ASKED, Tunables(), NOW)
    assert [pod.name for pod in made] == ["llama-uid-l-scale-up-0", "llama-uid-l-scale-up-1"]


def test_a_provisioning_request_is_for_the_whole_gang_of_the_same_pods() -> None:
    asked = changed(ASKED, by="ProvisioningRequest", provisioning_class="queued.example.com", attempt=3)
    made = provisioning(asking(), asked, Tunables(), NOW)
    assert made.body["spec"] == {
        "provisioningClassName": "queued.example.com",
        "podSets": [{"podTemplateRef": {"name": made.name}, "count": 2}],
    }
    assert made.template["metadata"]["name"] == made.name
    spec = dict(made.template["template"]["spec"])
    assert requests({"spec": spec})["nvidia.com/gpu"] == "8"
    assert "priorityClassName" not in spec
    for each in (made.body, made.template):
        assert each["metadata"]["annotations"] == {names.ANNOTATION_SCALE_UP: "3"}


def seen(view: RunView, **changes: Any) -> dict[str, Any]:
    """A placeholder as the API server has it on a node."""
    raw = json.loads(json.dumps(body(view)))
    raw["metadata"] |= {"uid": "p1", "resourceVersion": "5"} | changes.pop("metadata", {})
    raw["spec"] |= {"priority": -10, "nodeName": "n0"} | changes.pop("spec", {})
    return {**raw, **changes}


def parsed(raw: dict[str, Any]) -> PlaceholderView | ForeignPod:
    view = parse_pod(json.dumps(raw).encode()).view
    assert isinstance(view, (PlaceholderView, ForeignPod))
    return view


OTHERS = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "llama", "uid": "uid-llama", "controller": True}]


@pytest.mark.parametrize(
    ("metadata", "spec"),
    [
        ({}, {"priority": 0}),
        ({}, {"priority": 1000}),
        ({"labels": {}}, {}),
        ({"labels": {names.LABEL_PLACEHOLDER_OF: "another"}}, {}),
        ({"labels": {names.LABEL_PLACEHOLDER_OF: "uid-llama", names.LABEL_RUN_UID: "uid-llama"}}, {}),
        ({"ownerReferences": OTHERS}, {}),
        ({"ownerReferences": []}, {}),
    ],
)
def test_a_pod_that_is_no_placeholder_is_anybodys(metadata: dict[str, Any], spec: dict[str, Any]) -> None:
    found = parsed(seen(asking(), metadata=metadata, spec=spec))
    assert isinstance(found, ForeignPod)
    assert found.requests["nvidia.com/gpu"] == 8


NOT_ASKING = TrainingRunStatus()
BY_REQUEST = TrainingRunStatus(scale_up=changed(ASKED, by="ProvisioningRequest"))


@pytest.mark.parametrize(
    ("metadata", "status", "vouched"),
    [
        ({}, None, True),
        ({"name": "llama-uid-l-scale-up-17"}, None, True),
        ({"name": "mine"}, None, False),
        ({"name": "llama-uid-l-scale-up-"}, None, False),
        ({"name": "llama-uid-l-scale-up-999999"}, None, False),
        ({"name": "llama-uid-l-scale-up-1x"}, None, False),
        ({"namespace": "elsewhere"}, None, False),
        ({}, NOT_ASKING, False),
        ({}, BY_REQUEST, False),
    ],
)
def test_a_pod_that_only_calls_itself_a_placeholder_takes_what_it_requests(
    metadata: dict[str, Any], status: TrainingRunStatus | None, vouched: bool
) -> None:
    view = asking()
    found = parsed(seen(view, metadata=metadata))
    assert isinstance(found, PlaceholderView)
    view = view if status is None else replace(view, status=status)
    assert is_placeholder_of(found, view) is vouched
    known = {view.uid: view}
    sums = foreign_placeholders({"n0": {"cpu": 500}}, [found, replace(found, node="")], known.get)
    assert sums["n0"].get("nvidia.com/gpu", 0) == (0 if vouched else 8)
    assert foreign_placeholders({}, [replace(found, terminal=True)], known.get) == {}
    assert not is_placeholder_of(found, None)
