"""An installation for one namespace: what its operator may do, against what one that works with these rights asks for.

Kueue is a double, and the nodes and workers are simulated. The API server, its audit log and the rights are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.test_kueue import labelled
from cluster.test_run_sets import apply as apply_array
from harness.kube import Kubectl, create_namespace, wait_until_established
from harness.site import TLS_SECRET, Site
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from localcluster.errors import ApiError
from localcluster.kwok import NodeBatch
from lockstep.api.base import names
from support.helm import CHART, NAMESPACE, Helm
from support.kueue_at_work import KueueAtWork, kueue_at_work
from support.rights import (
    NODE_EVENTS_NAMESPACE,
    UNSEEN,
    AuditLogs,
    Right,
    Scope,
    granted,
    lacking,
    listed,
    recorded,
    right,
)

pytestmark = pytest.mark.cluster

ONE, OTHER = "one", "other"
PATIENCE = 180.0
OVERLAP = 4.0  # seconds between two steps to another CA, in life a day
NAMESPACED = ("--set", f"namespaces={{{ONE}}}")
Json = dict[str, Any]
UNSEEN_HERE = {
    right(Scope.NODE_EVENTS, "events.events.k8s.io patch"): "takes a run that leaves a node twice within minutes",
    right(Scope.RUNS, "configmaps get"): "takes a gang of hundreds of nodes: cluster/test_large_gangs",
    right(Scope.RUNS, "jobs.batch delete"): "takes a job that is in a gang's way: cluster/test_archive_jobs",
}
"""What is granted and not needed by what is done here, and why."""
LOOKED_UP = {"storageclasses.storage.k8s.io"}
"""What is listed for a name that is not there, and never watched."""


@pytest.fixture(scope="module")
def kueue(bare_cluster: LocalCluster) -> Iterator[KueueAtWork]:
    """There before Lockstep is installed, which is how the chart knows of it."""
    for namespace in (NAMESPACE, ONE, OTHER):
        create_namespace(Kubectl(bare_cluster.kubeconfig), namespace)
    nodes = bare_cluster.add_kwok_nodes(NodeBatch(count=8, prefix="shared"), wait=120)
    with kueue_at_work(bare_cluster, ONE, nodes) as work:
        yield work


@pytest.fixture(scope="module")
def helm(bare_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"), bare_cluster.kubeconfig)


def test_every_right_of_an_installation_for_one_namespace_is_needed_there_and_none_lacks(
    bare_cluster: LocalCluster, helm: Helm, kueue: KueueAtWork, tmp_path: Path
) -> None:
    helm("install", "lockstep", CHART, "--namespace", NAMESPACE, *NAMESPACED)
    wait_until_established(bare_cluster.kubectl, "crd/trainingruns.lockstep.dev", "crd/trainingqueues.lockstep.dev")
    grants = granted(parsed_release(helm))
    logs = AuditLogs([bare_cluster.state_dir])
    # One address makes the operator say where it leads, in the EndpointSlice.
    settings = of_release(bare_cluster) | {"workerAddress": "192.0.2.1", "caOverlap": OVERLAP, "leaseDuration": 6}
    with Site.started(bare_cluster, tmp_path, settings, is_installed=True) as site:
        it_looks_after_one_namespace_alone(site)
        ranks_fail_and_a_node_goes(site)
        somebody_elses_pod_is_in_the_way(site)
        an_archive_is_looked_through(site)
        what_a_run_names_is_not_there(site)
        an_array_comes_and_goes(site)
        kueue_admits_a_run_and_gets_its_workload_back(site, kueue)
        the_ca_changes(site)
        another_operator_leads(site)
    used = wait_for("the watches are over, and on record", lambda: watched(logs.used()), seconds=60)
    assert logs.refused() == []
    assert listed(lacking(used, grants)) == ""
    # What is done in the operator's own namespace is the same whosever runs it looks after.
    elsewhere = {each for each in recorded() if each.scope is Scope.OWN}
    unused = grants - used - elsewhere - UNSEEN.keys() - UNSEEN_HERE.keys()
    assert listed(unused) == "", "granted, and needed by nobody"


def parsed_release(helm: Helm) -> list[Json]:
    """The objects of the release, as they were installed."""
    text = helm("get", "manifest", "lockstep", "--namespace", NAMESPACE)
    return [each for each in yaml.safe_load_all(text) if each and each["kind"] != "CustomResourceDefinition"]


def of_release(cluster: LocalCluster) -> Json:
    """What the release tells its operator of namespaces and of Kueue."""
    found = cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/lockstep-operator")["data"]["operator.yaml"]
    config = yaml.safe_load(found)
    return {key: config[key] for key in ("namespaces", "kueue")}


def watched(used: set[Right]) -> set[Right]:
    """``used`` once it has the watches, which are on record when they end."""
    kinds = {each.resource for each in used if each.verb == "list" and each.scope is Scope.CLUSTER} - LOOKED_UP
    return used if {each.resource for each in used if each.verb == "watch"} >= kinds else set()


def events_in(site: Site, namespace: str) -> list[Json]:
    found: list[Json] = site.cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return found


def is_gone(site: Site, path: str) -> bool:
    try:
        site.cluster.api.get(path)
    except ApiError as error:
        return error.status == 404
    return False


def it_looks_after_one_namespace_alone(site: Site) -> None:
    queues = f"/apis/{names.API_VERSION}/{names.QUEUES}"
    body = {"apiVersion": names.API_VERSION, "kind": "TrainingQueue", "metadata": {"name": "research"}, "spec": {}}
    site.cluster.api.send(Request("POST", queues, body))
    not_ours = site.apply(OTHER, "theirs", nodes=1)
    run = site.apply(ONE, "ours", nodes=1, queue="research")
    run.wait_until_running(1, PATIENCE)
    run.wait("its queue is told", lambda: site.cluster.api.get(f"{queues}/research").get("status"), PATIENCE)
    assert (not_ours.pods, not_ours.status) == ([], {})
    for attempt in (2, 3):  # the same words again within minutes are one event
        run.patch_spec({"suspend": True})
        run.wait("its pods are gone", lambda: not run.pods, PATIENCE)
        run.patch_spec({"suspend": False})
        run.wait_until_running(attempt, PATIENCE)
    site.workers.finish(run.uid)
    run.wait_until_finished(PATIENCE)
    for each in (run, not_ours):
        each.delete()


def ranks_fail_and_a_node_goes(site: Site) -> None:
    run = site.apply(ONE, "llama", nodes=2)
    run.wait_until_running(1, PATIENCE)
    first = str(run.status["assignment"]["nodes"][0])
    site.workers.fail(run.uid, rank=0)
    run.wait_until_running(2, PATIENCE)

    def is_remembered() -> bool:
        annotations = site.cluster.api.get(f"/api/v1/nodes/{first}")["metadata"].get("annotations", {})
        return names.ANNOTATION_FIRST_FAILURES in annotations

    run.wait("its node remembers", is_remembered, PATIENCE)
    lost = str(run.status["assignment"]["nodes"][1])
    site.cluster.remove_kwok_nodes([lost])
    run.wait_until_running(3, PATIENCE)

    def is_told() -> bool:
        return any(each["regarding"].get("name") == lost for each in events_in(site, NODE_EVENTS_NAMESPACE))

    run.wait("it is told of the node", is_told, PATIENCE)
    run.delete()
    run.wait("its pods are gone", lambda: not run.pods, PATIENCE)


def somebody_elses_pod_is_in_the_way(site: Site) -> None:
    run = site.apply(ONE, "mistral", nodes=1, suspend=True)
    pods = f"/api/v1/namespaces/{ONE}/pods"
    name = run.pod_name(0, 1)
    spec = {"containers": [{"name": "c", "image": "c"}], "terminationGracePeriodSeconds": 0}
    theirs = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    site.cluster.api.send(Request("POST", pods, theirs))
    run.patch_spec({"suspend": False})
    run.wait("it is told", lambda: any(e["reason"] == "PodNameConflict" for e in events_in(site, ONE)), PATIENCE)
    site.cluster.api.send(Request("DELETE", f"{pods}/{name}"))
    run.wait_until_running(1, PATIENCE)
    run.delete()


def an_archive_is_looked_through(site: Site) -> None:
    site.make_claim(ONE, "lustre")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3"}}
    site.cluster.api.send(Request("POST", f"/api/v1/namespaces/{ONE}/secrets", secret))
    archive = {"uri": "s3://golden/llama", "credentialsSecretRef": {"name": "s3"}}
    checkpoint = {"format": "Manifest", "shared": {"claimName": "lustre"}, "archive": archive}
    run = site.apply(ONE, "archived", nodes=1, checkpoint=checkpoint)
    run.wait_until_running(1, PATIENCE)
    site.workers.fail(run.uid, rank=0)
    jobs = f"/apis/batch/v1/namespaces/{ONE}/jobs?labelSelector={names.LABEL_ARCHIVE_OF}={run.uid}"
    run.wait("a job looks", lambda: site.cluster.api.get(jobs)["items"], PATIENCE)
    run.delete()


def what_a_run_names_is_not_there(site: Site) -> None:
    claims = {
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claims}}}
    checkpoint, template = {"shared": {"claimName": "lustr"}}, {"spec": {"volumes": [scratch]}}
    run = site.apply(ONE, "mistyped", nodes=1, checkpoint=checkpoint, podTemplate=template)

    def is_told() -> bool:
        words = run.condition("Accepted").get("message", "")
        return "did you mean lustre?" in words and "StorageClass fast" in words

    run.wait("both are told", is_told, PATIENCE)
    run.delete()


def an_array_comes_and_goes(site: Site) -> None:
    site.proxy.lose_answers(True)  # then the array is read anew, to know what was written
    try:
        array = apply_array(site, ONE, "sweep", "0-1", ttlAfterFinished="1s")
        # What others see of it may be there before its answer is lost.
        array.wait("its status is written", lambda: any(w.path == f"{array.path}/status" for w in site.proxy.writes))
    finally:
        site.proxy.lose_answers(False)

    def over() -> bool:
        if is_gone(site, array.path):
            return True
        array.finish_those_that_train()
        return False

    array.wait("it is deleted after its time", over)


def kueue_admits_a_run_and_gets_its_workload_back(site: Site, kueue: KueueAtWork) -> None:
    kueue.give(0)
    with labelled(site, ONE, "olmo", 2) as run:
        run.wait("Kueue is asked", lambda: kueue.workloads, PATIENCE)
        run.patch_spec({"nodes": 3})
        run.wait("for three", lambda: kueue.workloads[0]["spec"]["podSets"][0]["count"] == 3, PATIENCE)
        kueue.give(4)
        run.wait_until_running(1, PATIENCE)
        run.wait("Kueue is told", lambda: kueue.told("olmo", "PodsReady") == ("True", "Started"), PATIENCE)
        run.patch_spec({"suspend": True})
        run.wait("the Workload is gone", lambda: not kueue.workloads, PATIENCE)


def the_ca_changes(site: Site) -> None:
    run = site.apply(ONE, "trusting", nodes=1)  # where nobody trains, nobody is told
    run.wait_until_running(1, PATIENCE)
    trusted = f"/api/v1/namespaces/{ONE}/configmaps/{names.CA_CONFIG_MAP}"
    before = site.cluster.api.get(trusted)["data"]
    asked = {"metadata": {"annotations": {names.ANNOTATION_ROTATE_CA: "now"}}}
    site.cluster.api.send(Request("PATCH", TLS_SECRET, asked, MERGE_PATCH))
    wait_for("workers trust another", lambda: site.cluster.api.get(trusted)["data"] != before, seconds=PATIENCE)
    run.delete()


def another_operator_leads(site: Site) -> None:
    starts = site.operator.starts
    site.operator.kill9()
    wait_for("it is started again", lambda: site.operator.starts > starts, seconds=PATIENCE)
    site.operator.wait_until_leading(PATIENCE)
