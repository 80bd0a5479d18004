"""The API server takes the pods that the core makes, strictly validated."""

import json
from pathlib import Path

import pytest
import yaml

from localcluster import LocalCluster

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "unit" / "core" / "pods" / "golden"


@pytest.fixture(scope="module")
def priority_class(cluster: LocalCluster) -> None:
    """The class of gang pods as the operator's own manifest has it: its value can't be changed later."""
    documents = yaml.safe_load_all((ROOT / "manifests" / "operator.yaml").read_text())
    (wanted,) = [document for document in documents if document and document["kind"] == "PriorityClass"]
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
