"""Two candidates and a real Lease."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from localcluster import LocalCluster
from lockstep.controller.clock import SystemClock
from lockstep.controller.credentials import load_credentials
from lockstep.controller.election import Election, LostLeadershipError
from lockstep.controller.kube import KubeClient
from lockstep.controller.resources import LEASES

pytestmark = pytest.mark.cluster


@pytest.fixture
async def kube(cluster: LocalCluster) -> AsyncIterator[KubeClient]:
    async with KubeClient(lambda: load_credentials(str(cluster.kubeconfig)), SystemClock()) as client:
        yield client


def candidate(kube: KubeClient, namespace: str, identity: str) -> Election:
    return Election(
        kube,
        SystemClock(),
        namespace=namespace,
        name="lockstep-operator",
        identity=identity,
        duration=3.0,
        renew_every=0.5,
        retry_every=0.3,
        margin=1.0,
    )


async def test_one_leads_until_it_releases_and_the_next_epoch_is_higher(kube: KubeClient, namespace: str) -> None:
    first, second = (candidate(kube, namespace, name) for name in ("first", "second"))
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(4)  # longer than the lease: only its renewals keep the second one out
    assert first.is_leading()
    assert not waiting.done()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    await first.release()
    lease = json.loads(await kube.get(LEASES, "lockstep-operator", namespace))
    assert lease["spec"].get("holderIdentity", "") != "first"  # the second need not wait for it to run out
    async with asyncio.timeout(30):
        await waiting
    assert second.is_leading()
    assert not first.is_leading()
    assert second.epoch > first.epoch


async def test_a_dead_leader_is_succeeded_once_its_lease_has_run_out(kube: KubeClient, namespace: str) -> None:
    first, second = (candidate(kube, namespace, name) for name in ("first", "second"))
    await first.acquire()
    async with asyncio.timeout(10):
        await second.acquire()
    assert not first.is_leading()
    with pytest.raises(LostLeadershipError, match="second holds"):
        await first.try_renew()


async def test_a_leader_cut_off_from_the_api_server_stops_in_time(
    cluster: LocalCluster, kube: KubeClient, namespace: str
) -> None:
    leader = candidate(kube, namespace, "first")
    await leader.acquire()
    await asyncio.to_thread(cluster.pause_component, "apiserver")
    try:
        async with asyncio.timeout(10):
            with pytest.raises(LostLeadershipError):
                await leader.hold()
        assert not leader.is_leading()
    finally:
        await asyncio.to_thread(cluster.resume_component, "apiserver")
