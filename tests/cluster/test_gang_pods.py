"""The API server takes the pods that the core makes, strictly validated."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster import LocalCluster
from localcluster.api import Request
from localcluster.errors import ApiError
from lockstep.api.base import names
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods.gang import dry_run_body

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "unit" / "core" / "pods" / "golden"


@pytest.fixture(scope="module")
def priority_class(cluster: LocalCluster) -> None:
    """The class of gang pods as the operator's own manifest has it: its value can't be changed later."""
    documents = yaml.safe_load_all((ROOT / "manifests" / "operator.yaml").read_text())
    classes = {each["metadata"]["name"]: each for each in documents if each and each["kind"] == "PriorityClass"}
    wanted = classes[names.GANG_PRIORITY_CLASS]
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(wanted))


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("pod-*.json")), ids=lambda path: path.stem)
@pytest.mark.usefixtures("priority_class")
def test_the_pods_on_record_pass_strict_validation(cluster: LocalCluster, namespace: str, golden: Path) -> None:
    pod = json.loads(golden.read_text())
    pod["metadata"]["namespace"] = namespace
    account = pod["spec"].get("serviceAccountName")
    if account:
        cluster.kubectl("create", "serviceaccount", account, "-n", namespace)
    cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", input=json.dumps(pod))


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def dry_run(cluster: LocalCluster, namespace: str, **template: Any) -> dict[str, Any]:
    """What the API server makes of the pod that a run is accepted by. Raises CommandError when it refuses it."""
    fields = {"nodes": 2, "image": "pytorch/pytorch", "command": ["train"], "podTemplate": template}
    spec = TrainingRunSpec.model_validate(fields)
    uid = "0f3a9c1e-0000-4000-8000-000000000000"
    view = RunView(namespace, "hello", uid, 1, "7", 0.0, spec, TrainingRunStatus())
    pod = dry_run_body(view, Tunables(gang=GangSettings(worker_archive=b"zip", ca_certificate="PEM")))
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
    answer: dict[str, Any] = cluster.api.send(Request("POST", path, pod))
    return answer


@pytest.mark.parametrize(
    "affinity",
    [
        None,
        {"nodeAffinity": None, "podAffinity": None},
        {"nodeAffinity": {REQUIRED: None}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": None}]}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [None]}}},
    ],
)
@pytest.mark.usefixtures("priority_class")
def test_nulls_in_a_template_are_what_the_api_server_makes_of_them(
    cluster: LocalCluster, namespace: str, affinity: Any
) -> None:
    """As in a pod of somebody who sends them to it."""
    theirs = {
        "metadata": {"name": "raw", "labels": {"team": None}, "annotations": None},
        "spec": {
            "affinity": affinity,
            "nodeSelector": {"pool": None},
            "tolerations": None,
            "containers": [{"name": "logs", "image": "x", "resources": {"limits": {"cpu": None}}, "env": None}],
        },
    }
    template = {**theirs, "metadata": {"labels": {"team": None}, "annotations": None}}
    ours = dry_run(cluster, namespace, **template)
    assert ours["metadata"]["labels"]["team"] == ours["spec"]["nodeSelector"]["pool"] == ""
    if "[None]" in str(affinity):
        return  # it matches no node, which only the pin makes sense of
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    raw = cluster.api.send(Request("POST", path, {"apiVersion": "v1", "kind": "Pod", **theirs}))
    assert (raw["metadata"]["labels"], raw["spec"]["nodeSelector"]) == ({"team": ""}, {"pool": ""})


@pytest.mark.parametrize(
    "affinity",
    [
        "gpu",
        [],
        {"nodeAffinity": 7},
        {"nodeAffinity": {REQUIRED: []}},
        {"nodeAffinity": {REQUIRED: {}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": {"matchExpressions": []}}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ["gpu"]}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": "gpu"}]}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": "gpu"}]}}},
    ],
)
@pytest.mark.usefixtures("priority_class")
def test_an_affinity_that_makes_no_sense_is_refused_by_the_dry_run(
    cluster: LocalCluster, namespace: str, affinity: Any
) -> None:
    with pytest.raises(ApiError, match=r"affinity|nodeSelectorTerms"):
        dry_run(cluster, namespace, spec={"affinity": affinity})
