"""Two candidates and a real Lease, with the operator's own rights."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from harness.kube import OPERATOR_NAMESPACE, Kubectl, install, operator_kubeconfig
from localcluster import LocalCluster
from localcluster.api import Request
from localcluster.errors import ApiError
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import load_credentials
from lockstep.controller.kube.election import Election, LostLeadershipError
from lockstep.controller.kube.leader_endpoint import LeaderEndpoint
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.runtime.resources import ENDPOINT_SLICES, LEASES

pytestmark = pytest.mark.cluster
DURATION = 6.0
"""Seconds: five without a renewal have to be had by no machine that is only busy."""


TLS_GOODBYE = 0.5
"""Seconds: aiohttp does not wait for the end of the TLS connections it closes, and the loop ends with the test."""
OBJECTS = ("endpointslices.discovery.k8s.io/lockstep-operator-ipv4", "lease/lockstep-operator")
SERVICES = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/services"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/endpointslices"


@pytest.fixture(scope="module")
def kubeconfig(cluster: LocalCluster, crds_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The operator's; no operator runs."""
    install(Kubectl(cluster.kubeconfig))
    yield operator_kubeconfig(Kubectl(cluster.kubeconfig), tmp_path_factory.mktemp("operator") / "kubeconfig")
    forget(cluster)


@pytest.fixture
async def kube(cluster: LocalCluster, kubeconfig: Path) -> AsyncIterator[KubeClient]:
    await asyncio.to_thread(forget, cluster)
    async with KubeClient(lambda: load_credentials(str(kubeconfig)), SystemClock()) as client:
        yield client
    await asyncio.sleep(TLS_GOODBYE)


def forget(cluster: LocalCluster) -> None:
    """What tests before have left in the operator's namespace."""
    cluster.kubectl("delete", "-n", OPERATOR_NAMESPACE, "--ignore-not-found", *OBJECTS)


def candidate(kube: KubeClient, identity: str) -> Election:
    return Election(
        kube,
        SystemClock(),
        namespace=OPERATOR_NAMESPACE,
        name="lockstep-operator",
        identity=identity,
        duration=DURATION,
        renew_every=0.5,
        retry_every=0.3,
        margin=1.0,
    )


async def test_one_leads_until_it_releases_and_the_next_epoch_is_higher(kube: KubeClient) -> None:
    first, second = (candidate(kube, name) for name in ("first", "second"))
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(DURATION + 1)  # only its renewals keep the second one out
    assert first.is_leading()
    assert not waiting.done()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    await first.release()
    lease = json.loads(await kube.get(LEASES, "lockstep-operator", OPERATOR_NAMESPACE))
    assert lease["spec"].get("holderIdentity", "") != "first"  # the second need not wait for it to run out
    async with asyncio.timeout(60):
        await waiting
    assert second.is_leading()
    assert not first.is_leading()
    assert second.epoch > first.epoch


async def test_a_dead_leader_is_succeeded_once_its_lease_has_run_out(kube: KubeClient) -> None:
    first, second = (candidate(kube, name) for name in ("first", "second"))
    await first.acquire()
    async with asyncio.timeout(60):
        await second.acquire()
    assert not first.is_leading()
    with pytest.raises(LostLeadershipError, match="second holds"):
        await first.try_renew()


async def test_a_leader_cut_off_from_the_api_server_stops_in_time(cluster: LocalCluster, kube: KubeClient) -> None:
    leader = candidate(kube, "first")
    await leader.acquire()
    await asyncio.to_thread(cluster.pause_component, "apiserver")
    try:
        async with asyncio.timeout(60):
            with pytest.raises(LostLeadershipError):
                await leader.hold()
        assert not leader.is_leading()
    finally:
        await asyncio.to_thread(cluster.resume_component, "apiserver")


async def test_a_lease_whose_count_can_grow_no_more_is_replaced(kube: KubeClient) -> None:
    first, second = (candidate(kube, name) for name in ("first", "second"))
    await first.acquire()
    lease = json.loads(await kube.get(LEASES, "lockstep-operator", OPERATOR_NAMESPACE))
    lease["spec"]["leaseTransitions"] = 2**31 - 1
    await kube.replace(LEASES, "lockstep-operator", lease, OPERATOR_NAMESPACE, guarded=False)
    async with asyncio.timeout(60):
        await second.acquire()
    assert second.epoch > (first.epoch[0], 2**31 - 1)


async def test_a_slice_for_addresses_of_another_kind_is_replaced(cluster: LocalCluster, kube: KubeClient) -> None:
    service = {"kind": "Service", "metadata": {"name": "lockstep-operator"}, "spec": {"ports": [{"port": 443}]}}
    made = True
    try:
        cluster.api.send(Request("POST", SERVICES, {"apiVersion": "v1", **service}))
    except ApiError as error:  # the replicas of other tests have one
        if error.status != 409:
            raise
        made = False
    cluster.api.send(Request("DELETE", f"{SLICES}/lockstep-operator-ipv4", absence_is_fine=True))
    try:
        wrong = {"kind": "EndpointSlice", "metadata": {"name": "lockstep-operator-ipv4"}, "addressType": "FQDN"}
        body = {"apiVersion": "discovery.k8s.io/v1", **wrong, "endpoints": []}
        await kube.create(ENDPOINT_SLICES, body, OPERATOR_NAMESPACE)
        endpoint = LeaderEndpoint(
            kube,
            SystemClock(),
            namespace=OPERATOR_NAMESPACE,
            service="lockstep-operator",
            address="10.9.8.7",
            port=8443,
        )
        await endpoint.point_here()
        found = json.loads(await kube.get(ENDPOINT_SLICES, "lockstep-operator-ipv4", OPERATOR_NAMESPACE))
        assert (found["addressType"], found["endpoints"][0]["addresses"]) == ("IPv4", ["10.9.8.7"])
    finally:
        if made:
            cluster.api.send(Request("DELETE", f"{SERVICES}/lockstep-operator"))
