"""Every example of manifests/ is applied as it is, and accepted; those that lack nothing run to their end.

What installs the operator: test_installing.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from containers.any_cluster import Json
from containers.site import KindSite
from harness.kube import Kubectl, create_namespace
from harness.waiting import wait_for
from localcluster.build import REPOSITORY
from localcluster.errors import KubectlError
from lockstep.api.base import names

pytestmark = pytest.mark.containers
SECONDS = 240.0
INSTALLING = ("install", "operator", "operator-kueue", "operator-look-up", "operator-pod-groups", "operator-scale-up")
EXAMPLES = sorted(path for path in (REPOSITORY / "manifests").glob("*.yaml") if path.stem not in INSTALLING)
NAMELESS = REPOSITORY / "manifests" / "hello.yaml"
NAMESPACE = "examples"
DEMO = REPOSITORY / "e2e" / "demo"
# What each kind's status has to say, and the operator alone says.
TAKEN_IN = {
    "TrainingRun": {"Accepted": "True"},
    "TrainingRunSet": {"Accepted": "True"},
    "TrainingQueue": {"Active": "True", "Valid": "True"},
}
# The runs of those whose image and program are there for everybody.
COMPLETE = {
    "hello": ["hello"],
    "queue": ["example-queued"],
    "suspend": ["example-held"],
    "array": ["example-array-0", "example-array-1"],
    "pod-template": ["example-template"],
}


@pytest.fixture(scope="module", autouse=True)
def namespace(training_site: KindSite) -> Iterator[None]:
    """One of their own with what the demo's page has its reader make, gone afterwards with all that is in it."""
    kubectl = training_site.world.kubectl
    create_namespace(kubectl, NAMESPACE)
    files = [f"--from-file={DEMO / name}" for name in ("train_lm.py", "corpus.txt")]
    kubectl("create", "configmap", "trainer", "-n", NAMESPACE, *files)
    yield
    kubectl("delete", "namespace", NAMESPACE, "--timeout=300s")


@pytest.mark.parametrize("manifest", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_applied_and_accepted(site: KindSite, manifest: Path) -> None:
    kubectl = site.world.kubectl
    documents = [document for document in yaml.safe_load_all(manifest.read_text()) if document]
    applied = kubectl("apply", "-n", NAMESPACE, "-f", str(manifest))
    assert len(applied.splitlines()) == len(documents)
    try:
        if manifest.stem == "admission-policy":
            wait_for("who names no user is refused", lambda: not is_taken(kubectl, NAMELESS), seconds=SECONDS)
        for document in documents:
            wait_until_taken(site, manifest.name, document)
    finally:
        kubectl("delete", "-n", NAMESPACE, "--ignore-not-found", "--timeout=180s", "-f", str(manifest))
        # A policy may judge for a moment longer than it is there.
        wait_for("nothing stands in the way of the next", lambda: is_taken(kubectl, NAMELESS), seconds=SECONDS)


def wait_until_taken(site: KindSite, name: str, document: Json) -> None:
    """The operator says of it what it is to say."""
    wanted = TAKEN_IN.get(document["kind"], {})
    wait_for(
        f"{name}: {document['kind']} with {wanted}",
        lambda: wanted.items() <= conditions(site, document).items(),
        seconds=SECONDS,
        last_seen=lambda: f"{found(site, document)}\n{site.world.operator.log_tail(5)}",
    )


def is_taken(kubectl: Kubectl, manifest: Path) -> bool:
    """The API server would have it."""
    try:
        kubectl("apply", "-n", NAMESPACE, "--dry-run=server", "-f", str(manifest))
    except KubectlError:
        return False
    return True


@pytest.mark.parametrize("stem", COMPLETE)
def test_an_example_that_lacks_nothing_succeeds(site: KindSite, stem: str) -> None:
    kubectl, manifest = site.world.kubectl, REPOSITORY / "manifests" / f"{stem}.yaml"
    kubectl("apply", "-n", NAMESPACE, "-f", str(manifest))
    try:
        if stem == "suspend":
            patch = ("--type=merge", "-p", '{"spec":{"suspend":false}}')
            kubectl("patch", "trun", "example-held", "-n", NAMESPACE, *patch)
        wait_for(
            f"{COMPLETE[stem]} have succeeded",
            lambda: succeeded(site).issuperset(COMPLETE[stem]),
            seconds=SECONDS,
            last_seen=lambda: f"{kubectl('get', 'trun', '-n', NAMESPACE)}\n{site.world.operator.log_tail(5)}",
        )
        if stem == "hello":
            told = kubectl("logs", "-n", NAMESPACE, "--tail=-1", "-l", f"{names.LABEL_RUN}=hello")
            assert "hello from rank 1 of 2" in told
    finally:
        kubectl("delete", "-n", NAMESPACE, "--ignore-not-found", "--timeout=180s", "-f", str(manifest))


def succeeded(site: KindSite) -> set[str]:
    """The names of runs that have."""
    runs = site.world.kubectl.json("get", "trun", "-n", NAMESPACE)["items"]
    good = {"type": "Succeeded", "status": "True"}
    return {
        run["metadata"]["name"]
        for run in runs
        if any(good.items() <= told.items() for told in run.get("status", {}).get("conditions", ()))
    }


def conditions(site: KindSite, document: Json) -> dict[str, str]:
    """Those that are of the spec as it is now."""
    now = found(site, document)
    told = now.get("status", {}).get("conditions", ())
    generation = now["metadata"].get("generation")
    return {each["type"]: each["status"] for each in told if each.get("observedGeneration") == generation}


def found(site: KindSite, document: Json) -> Json:
    name = document["metadata"]["name"]
    return dict(site.world.kubectl.json("get", document["kind"].lower(), name, "-n", NAMESPACE))
