"""The API server takes the archive jobs that the core makes, also where Pod Security is at its strictest."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from harness.site import Site
from localcluster import LocalCluster
from localcluster.api import Request
from localcluster.errors import KubectlError
from lockstep.api.base import names
from lockstep.api.checkpoint_status import ArchiveJobStatus
from lockstep.core.checkpoints.archive_job import job_body, job_name
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.quarantine import Save
from lockstep.core.model.settings import ArchiveSettings
from support import sample_runs

pytestmark = pytest.mark.cluster
SETTINGS = ArchiveSettings(
    image="registry.example/lockstep:1", image_pull_secrets=("pull",), node_selector={"pool": "cpu"}, bandwidth=10**9
)


@pytest.mark.parametrize("action", ["Upload", "Restore", "List", "Prune"])
@pytest.mark.parametrize(
    ("security", "refused"),
    [
        ({}, False),
        ({"runAsUser": 1000, "fsGroup": 2000, "supplementalGroups": [3000]}, False),
        ({"runAsUser": 0}, True),
    ],
    ids=["no user named", "the gang's user", "a gang of root's, which no restricted namespace would take"],
)
def test_jobs_and_their_pods_pass_strict_validation_and_restricted_pod_security(
    cluster: LocalCluster, namespace: str, action: str, security: dict[str, object], refused: bool
) -> None:
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    archive = {
        "uri": "s3://golden/llama",
        "endpoint": "https://s3.example",
        "credentialsSecretRef": {"name": "s3"},
        "retention": {"keepLast": 2, "keepFor": "30d"},
    }
    raw = sample_runs.run(
        "r" * 40,
        checkpoint={"shared": {"claimName": "lustre"}, "archive": archive},
        podTemplate={"spec": {"securityContext": security}},
    )
    run = replace(parse_run(raw), namespace=namespace)
    assert run.spec is not None
    assert run.spec.checkpoint is not None
    assert run.spec.checkpoint.archive is not None
    name = job_name(run, run.spec.checkpoint.archive, action, 12, 250_000, 3)
    work = ArchiveJobStatus(name=name, action=action, step=250_000, attempt=12, path="/shared-checkpoints/x")
    body = job_body(run, run.spec.checkpoint.archive, work, SETTINGS, pinned=("a1/step-5",), quarantined=(Save(7, 1),))
    create = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    cluster.kubectl(*create, input=json.dumps(body))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "as-the-job-makes-it", "namespace": namespace},
        "spec": body["spec"]["template"]["spec"],
    }
    with pytest.raises(KubectlError, match="PodSecurity") if refused else nullcontext():
        cluster.kubectl(*create, input=json.dumps(pod))


def test_a_run_that_finds_nothing_to_resume_from_has_its_archive_looked_through(site: Site, namespace: str) -> None:
    site.make_claim(namespace, "lustre")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3"}}
    site.cluster.api.send(Request("POST", f"/api/v1/namespaces/{namespace}/secrets", secret))
    archive = {"uri": "s3://golden/llama", "credentialsSecretRef": {"name": "s3"}}
    checkpoint = {"format": "Manifest", "shared": {"claimName": "lustre"}, "archive": archive}
    run = site.apply(namespace, "llama", nodes=2, checkpoint=checkpoint)
    run.wait_until_running(1)
    site.workers.fail(run.uid, rank=1)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs?labelSelector={names.LABEL_ARCHIVE_OF}={run.uid}"
    run.wait("a job looks", lambda: site.cluster.api.get(jobs)["items"])
    assert run.status["checkpoint"]["archive"]["job"]["action"] == "List"
    run.delete()


def test_a_job_that_may_remove_checkpoints_is_gone_with_its_pods_before_a_gang_starts(
    site: Site, namespace: str
) -> None:
    site.make_claim(namespace, "lustre")
    checkpoint = {"format": "Manifest", "shared": {"claimName": "lustre"}, "retention": {"keepLast": 2}}
    run = site.apply(namespace, "llama", nodes=2, checkpoint=checkpoint)
    run.wait_until_running(1)
    site.workers.save(run.uid, namespace, run.name, step=100)
    site.workers.fail(run.uid, rank=1)
    run.wait_until_running(2)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs?labelSelector={names.LABEL_ARCHIVE_OF}={run.uid}"
    pods = f"/api/v1/namespaces/{namespace}/pods?labelSelector={names.LABEL_ARCHIVE_OF}={run.uid}"
    run.wait("a job has a pod to tidy", lambda: site.cluster.api.get(pods)["items"])
    (first,) = site.cluster.api.get(jobs)["items"]
    site.workers.fail(run.uid, rank=1)
    run.wait_until_running(3)
    left = [each["metadata"]["uid"] for url in (jobs, pods) for each in site.cluster.api.get(url)["items"]]
    owners = [each["metadata"]["ownerReferences"][0]["uid"] for each in site.cluster.api.get(pods)["items"]]
    assert first["metadata"]["uid"] not in (*left, *owners)
    assert run.status["checkpoint"]["archive"].get("tidied") is None, "it did not come to its end"
    run.delete()
