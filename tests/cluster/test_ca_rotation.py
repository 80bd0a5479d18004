"""Another CA for the worker API, on a real API server, with workers that connect anew all the time."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from harness.site import TLS_SECRET, Run
from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from lockstep.api.base import names
from support.replica_site import ReplicaSite

pytestmark = pytest.mark.cluster

OVERLAP = 6.0  # a day in life
PATIENCE = 120.0
IN_PLACE = {"recovery": {"rules": [{"name": "on-purpose", "exitCodes": [1], "action": "RestartInPlace"}]}}


@pytest.fixture(scope="module")
def site(
    cluster: LocalCluster, crds_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReplicaSite]:
    settings = {"leaseDuration": 6, "caOverlap": OVERLAP}
    with (
        ReplicaSite.with_replicas(cluster, tmp_path_factory.mktemp("replicas"), settings) as site,
        site.with_nodes(4),
    ):
        yield site


def bundle_in(site: ReplicaSite, namespace: str) -> str:
    """What the kubelet would have in the pods of that namespace."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/{names.CA_CONFIG_MAP}"
    return str(site.cluster.api.get(path)["data"][names.CA_FILE])


def shake_hands(site: ReplicaSite, bundle: str) -> bool:
    """As a worker with that file would. False when nobody is there. Raises SSLCertVerificationError."""
    context = ssl.create_default_context(cadata=bundle)
    service = site.replicas.service
    try:
        with (
            socket.create_connection((service.address, service.port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=service.address),
        ):
            return True
    except ssl.SSLCertVerificationError:
        raise
    except OSError:
        return False


def follow(site: ReplicaSite, run: Run, seen: list[str], *, until: int) -> int:
    """Have workers connect, whose kubelet is late by half the overlap, until so many bundles were seen.

    How many of them were served.
    """
    served = 0
    deadline = time.monotonic() + PATIENCE
    replaced_at = 0.0
    while len(seen) < until:
        assert time.monotonic() < deadline, f"only {len(seen)} bundles: {site.replicas.log_tail()}"
        read_at = time.monotonic()
        bundle = bundle_in(site, run.namespace)
        if bundle != seen[-1]:
            seen.append(bundle)
            replaced_at = time.monotonic()
        is_late = len(seen) > 1 and time.monotonic() < replaced_at + OVERLAP / 2
        try:
            served += shake_hands(site, seen[-2] if is_late else seen[-1])
        except ssl.SSLCertVerificationError:
            # A machine that stood still in between made it later than any kubelet is.
            if time.monotonic() < read_at + OVERLAP / 4:
                raise
    return served


def test_the_ca_changes_under_a_running_gang_and_a_change_of_leader(site: ReplicaSite, namespace: str) -> None:
    run = site.apply(namespace, "llama", nodes=3, launcher={"steps": True}, **IN_PLACE)
    run.wait_until_running(1, PATIENCE)
    pods = run.pod_uids
    seen = [bundle_in(site, namespace)]
    of_steps = site.cluster.api.get(TLS_SECRET)["data"]["steps.key"]
    asked = {"metadata": {"annotations": {names.ANNOTATION_ROTATE_CA: "now"}}}
    site.cluster.api.send(Request("PATCH", TLS_SECRET, asked, MERGE_PATCH))
    follow(site, run, seen, until=2)
    site.replicas.leader.process.kill9()  # whoever leads next goes on where this one was
    served = follow(site, run, seen, until=4)
    assert [bundle.count("BEGIN CERTIFICATE") for bundle in seen] == [1, 2, 2, 1]
    assert seen[3] in seen[1]
    assert seen[3] != seen[0]
    assert served >= len(seen)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(site, seen[0])
    site.workers.trust(seen[3])
    site.replicas.service.hang_up()
    site.workers.fail(run.uid, rank=2)
    run.wait_until_running(2, PATIENCE)
    assert (run.pod_uids, run.heard.attempts()) == (pods, [1, 2])
    secret = site.cluster.api.get(TLS_SECRET)
    assert sorted(secret["data"]) == ["ca.crt", "ca.key", "steps.key", "tls.crt", "tls.key"]
    assert secret["data"]["steps.key"] == of_steps
    assert names.ANNOTATION_ROTATE_CA not in secret["metadata"].get("annotations", {})
