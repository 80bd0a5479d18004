"""Client, informers and store against a real API server, through its restarts and pauses."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import orjson
import pytest

from localcluster import LocalCluster
from lockstep.api.base import names
from lockstep.controller.kube import pages
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import load_credentials
from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome
from lockstep.controller.kube.informer import Informer
from lockstep.controller.kube.workqueue import WorkQueue
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.runtime.patches import merge_patch
from lockstep.controller.runtime.resources import CONFIG_MAPS, NAMESPACES, NODES, PODS, RUNS
from lockstep.controller.store.store import Store
from lockstep.core.model.cluster_objects import ForeignPod, parse_namespace, parse_node, parse_pod
from lockstep.core.model.snapshot import PodView

pytestmark = pytest.mark.cluster


@pytest.fixture
async def kube(cluster: LocalCluster) -> AsyncIterator[KubeClient]:
    async with KubeClient(lambda: load_credentials(str(cluster.kubeconfig)), SystemClock()) as client:
        yield client


class Following:
    """A store kept up to date by real informers."""

    def __init__(self, kube: KubeClient) -> None:
        clock = SystemClock()
        self.store = Store(WorkQueue(clock), clock)
        store = self.store
        has_run, ours = f"{names.LABEL_RUN_UID}", f"!{names.LABEL_RUN_UID}"
        live = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
        self.pods: Informer[PodView | ForeignPod] = Informer(
            "gang pods", kube, clock, PODS, parse_pod, store.gang_pods, labels=has_run
        )
        self.others: Informer[PodView | ForeignPod] = Informer(
            "other pods", kube, clock, PODS, parse_pod, store.other_pods, labels=ours, fields=live
        )
        self.nodes = Informer("nodes", kube, clock, NODES, parse_node, store.nodes)
        self.namespaces = Informer("namespaces", kube, clock, NAMESPACES, parse_namespace, store.namespaces)
        self.tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Following":
        informers: tuple[Informer[Any], ...] = (self.pods, self.others, self.nodes, self.namespaces)
        self.tasks = [asyncio.create_task(informer.run()) for informer in informers]
        async with asyncio.timeout(60):
            for informer in informers:
                await informer.synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.02)


def named(gang: str, slot: int = 0) -> str:
    return names.pod_name("llama", gang, slot, 1)


def pod(gang: str, slot: int = 0) -> dict[str, Any]:
    owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "name": "llama", "uid": gang, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": named(gang, slot),
            "ownerReferences": [owner],
            "labels": {
                names.LABEL_RUN: "llama",
                names.LABEL_RUN_UID: gang,
                names.LABEL_SLOT: str(slot),
                names.LABEL_INCARNATION: "1",
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": names.CONTAINER_NAME, "image": "none"}],
            "nodeSelector": {"nowhere": "at-all"},
        },
    }


def run(name: str) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_KIND,
        "metadata": {"name": name},
        "spec": {"nodes": 1, "image": "none", "command": ["true"]},
    }


@pytest.fixture
async def gang(kube: KubeClient, crds_installed: None, namespace: str) -> str:
    """UID of a run. Pods of one that is not there would be deleted by Kubernetes' own garbage collector."""
    return str(orjson.loads(await kube.create(RUNS, run("llama"), namespace))["metadata"]["uid"])


async def delete_now(kube: KubeClient, name: str, namespace: str) -> None:
    uid = orjson.loads(await kube.get(PODS, name, namespace))["metadata"]["uid"]
    await kube.delete(PODS, name, namespace, uid=uid, grace=0)


async def test_the_store_follows_pods_from_creation_to_deletion(kube: KubeClient, namespace: str, gang: str) -> None:
    async with Following(kube) as following:
        store = following.store
        await asyncio.gather(*(kube.create(PODS, pod(gang, n), namespace) for n in range(40)))
        await until(lambda: len(store.pods_of(gang)) == 40)
        await until(lambda: all(p.reason == "Unschedulable" for p in store.pods_of(gang)))
        await asyncio.gather(*(delete_now(kube, named(gang, n), namespace) for n in range(40)))
        await until(lambda: not store.pods_of(gang))


async def test_the_answer_to_a_create_and_the_watch_agree(kube: KubeClient, namespace: str, gang: str) -> None:
    async with Following(kube) as following:
        answer = await kube.create(PODS, pod(gang), namespace)
        following.store.apply_pod(answer)
        assert [p.slot for p in following.store.pods_of(gang)] == [0]
        await until(lambda: following.store.pods_of(gang)[0].reason == "Unschedulable")
        following.store.apply_pod(answer)  # read late: it must not undo what the watch said since
        assert following.store.pods_of(gang)[0].reason == "Unschedulable"


async def test_pages_and_streamed_lists_agree(kube: KubeClient, namespace: str, gang: str) -> None:
    await asyncio.gather(*(kube.create(PODS, pod(gang, n), namespace) for n in range(7)))
    async with Following(kube) as streamed:
        pages = Following(kube)
        for informer in (pages.pods, pages.others, pages.nodes, pages.namespaces):
            informer._streams_lists = False  # type: ignore[attr-defined]
        async with pages:
            assert {pod.uid for pod in pages.store.pods_of(gang)} == {pod.uid for pod in streamed.store.pods_of(gang)}
            # and in all else, once both have heard the scheduler
            await until(lambda: set(pages.store.pods_of(gang)) == set(streamed.store.pods_of(gang)))


async def test_informers_survive_a_restart_of_the_api_server_and_miss_no_deletion(
    cluster: LocalCluster, kube: KubeClient, namespace: str, gang: str
) -> None:
    for number in range(3):
        await kube.create(PODS, pod(gang, number), namespace)
    async with Following(kube) as following:
        store = following.store
        await until(lambda: len(store.pods_of(gang)) == 3)
        await asyncio.to_thread(cluster.stop_component, "apiserver")
        with pytest.raises(KubeError):
            await kube.get(PODS, named(gang), namespace)
        await asyncio.to_thread(cluster.start_component, "apiserver")
        await delete_now(kube, named(gang), namespace)
        await kube.create(PODS, pod(gang, 9), namespace)
        await until(lambda: {p.slot for p in store.pods_of(gang)} == {1, 2, 9})


async def test_a_deletion_nobody_watched_is_found_by_the_next_list(kube: KubeClient, namespace: str, gang: str) -> None:
    for number in range(2):
        await kube.create(PODS, pod(gang, number), namespace)
    async with Following(kube) as first:
        store = first.store
        await until(lambda: len(store.pods_of(gang)) == 2)
    await delete_now(kube, named(gang), namespace)
    again: Informer[PodView | ForeignPod] = Informer(
        "gang pods", kube, SystemClock(), PODS, parse_pod, store.gang_pods, labels=names.LABEL_RUN_UID
    )
    task = asyncio.create_task(again.run())
    await until(lambda: [p.slot for p in store.pods_of(gang)] == [1])
    task.cancel()


async def test_a_write_into_a_frozen_api_server_has_an_unknown_outcome_that_a_later_read_settles(
    cluster: LocalCluster, kube: KubeClient, namespace: str
) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "immutable": True, "data": {}}
    await asyncio.to_thread(cluster.pause_component, "apiserver")
    try:
        with pytest.raises(UnknownOutcome):
            await kube.create(CONFIG_MAPS, body, namespace, within=1)
    finally:
        await asyncio.to_thread(cluster.resume_component, "apiserver")
    with suppress(ApiError):  # it exists already if the frozen server carried the first write out
        await kube.create(CONFIG_MAPS, body, namespace)
    assert orjson.loads(await kube.get(CONFIG_MAPS, "c", namespace))["immutable"]


@pytest.mark.usefixtures("crds_installed")
async def test_a_status_is_written_only_over_the_version_it_was_decided_on(kube: KubeClient, namespace: str) -> None:
    async def write(version: str, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        patch = merge_patch(old, new)
        reply = await kube.patch_status(RUNS, "llama", namespace, resource_version=version, patch=patch)
        return dict(orjson.loads(reply))

    made = orjson.loads(await kube.create(RUNS, run("llama"), namespace))
    version = made["metadata"]["resourceVersion"]
    first = {"attempt": 1, "state": "Running", "queue": {"position": 1, "reason": "Resources"}}
    after = await write(version, {}, first)
    assert after["status"] == first
    with pytest.raises(ApiError) as stale:
        await write(version, {}, {"attempt": 9})
    assert stale.value.status == 409
    second = {"attempt": 2, "queue": {"position": 1}}
    version = after["metadata"]["resourceVersion"]
    after = await write(version, first, second)
    assert after["status"] == second

    version = after["metadata"]["resourceVersion"]
    await kube.delete(RUNS, "llama", namespace, uid=made["metadata"]["uid"])
    await kube.create(RUNS, run("llama"), namespace)
    with pytest.raises(ApiError) as namesake:
        await write(version, {}, {"attempt": 9})
    assert namesake.value.status == 409


async def test_a_strict_dry_run_stores_nothing_and_says_what_is_wrong(kube: KubeClient, namespace: str) -> None:
    await kube.create(PODS, pod("u"), namespace, dry_run=True)
    with pytest.raises(ApiError) as absent:
        await kube.get(PODS, named("u"), namespace)
    assert absent.value.status == 404
    typo = pod("u")
    typo["spec"]["containers"][0]["imagePolicy"] = "Always"
    with pytest.raises(ApiError, match="imagePolicy"):
        await kube.create(PODS, typo, namespace, dry_run=True)


async def test_a_delete_never_hits_another_object_of_the_same_name(kube: KubeClient, namespace: str, gang: str) -> None:
    await kube.create(PODS, pod(gang), namespace)
    wrong = "00000000-0000-0000-0000-000000000000"
    assert await kube.delete(PODS, named(gang), namespace, uid=wrong, grace=0) is None
    assert orjson.loads(await kube.get(PODS, named(gang), namespace))["metadata"]["name"] == named(gang)
    with pytest.raises(ApiError, match="AlreadyExists"):
        await kube.create(PODS, pod(gang), namespace)


async def test_a_list_of_large_objects_comes_in_small_pages_and_says_what_is_too_large_by_itself(
    kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kube.create(NAMESPACES, {"metadata": {"name": "large"}})
    uids = {}
    for name, size in (("a", 60_000), ("b", 300_000), ("c", 60_000), ("d", 60_000), ("e", 10)):
        body = {"metadata": {"name": name, "labels": {"size": "mine"}}, "data": {"x": "x" * size}}
        uids[name] = orjson.loads(await kube.create(CONFIG_MAPS, body, "large"))["metadata"]["uid"]
    monkeypatch.setattr(pages, "LONGEST_PAGE", 150_000)
    monkeypatch.setattr(pages, "LONGEST_BODY", 200_000)
    found = [page async for page in kube.list_pages(CONFIG_MAPS, "large", labels="size=mine")]
    read = [orjson.loads(bytes(item))["metadata"]["name"] for page in found for item in page.items]
    assert read == ["a", "c", "d", "e"]
    assert [uid for page in found for uid in page.unread] == [uids["b"]]
    assert len({page.resource_version for page in found}) == 1
    await kube.delete(NAMESPACES, "large", uid=orjson.loads(await kube.get(NAMESPACES, "large"))["metadata"]["uid"])
