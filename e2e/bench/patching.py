"""What the control plane alone takes to write the smallest status that there is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from harness.proc import cpu_seconds
from harness.world import World
from localcluster import state
from localcluster.processnodes.kubeapi import MERGE_PATCH, ApiError, KubeApi

_GROUP, _VERSION, _PLURAL = "bench.lockstep.dev", "v1", "floors"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_DEFINITION = f"{_PLURAL}.{_GROUP}"
_SERVED_WITHIN, _LOOK_EVERY = 60.0, 0.2  # seconds
_CONTROL_PLANE = ("kube-apiserver", "etcd")


@dataclass(frozen=True)
class Floor:
    """``per_second`` statuses written by a bare client, and the milliseconds of the control plane's CPU for each."""

    per_second: float
    cpu_ms: float


def control_plane_cpu(world: World) -> float:
    """Seconds of CPU that API server and etcd have used so far."""
    processes = state.load(world.cluster.state_dir).processes
    return sum(cpu_seconds(processes[name].pid) for name in _CONTROL_PLANE)


async def measure(world: World, namespace: str, count: int, concurrency: int) -> Floor:
    """Write the status of ``count`` objects, each with one integer, guarded by resourceVersion as the operator's are.

    As long as that takes the operator has nothing to do. Nothing of it is left.
    """
    path = f"/apis/{_GROUP}/{_VERSION}/namespaces/{namespace}/{_PLURAL}"
    async with KubeApi.from_kubeconfig(world.cluster.kubeconfig, concurrency, seconds=120.0) as api:
        await api.post(_DEFINITIONS, _definition())
        try:
            await _served(api, path)
            numbers = iter(range(count))
            made: dict[str, bytes] = {}
            await asyncio.gather(*(_create_from(api, path, numbers, made) for _ in range(concurrency)))
            cpu, begun, bodies = control_plane_cpu(world), time.monotonic(), iter(made.items())
            await asyncio.gather(*(_write_from(api, bodies) for _ in range(concurrency)))
            seconds = time.monotonic() - begun
            return Floor(count / seconds, 1000 * (control_plane_cpu(world) - cpu) / count)
        finally:
            await api.request("DELETE", f"{_DEFINITIONS}/{_DEFINITION}")


async def _served(api: KubeApi, path: str) -> None:
    async with asyncio.timeout(_SERVED_WITHIN):
        while True:
            try:
                await api.get(path)
                return
            except ApiError:
                await asyncio.sleep(_LOOK_EVERY)


async def _create_from(api: KubeApi, path: str, numbers: Iterator[int], made: dict[str, bytes]) -> None:
    for number in numbers:
        name = f"floor-{number}"
        body = {"apiVersion": f"{_GROUP}/{_VERSION}", "kind": "Floor", "metadata": {"name": name}, "spec": {}}
        metadata = (await api.post(path, body))["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": {"number": 1}}
        made[f"{path}/{name}/status"] = orjson.dumps(patch)


async def _write_from(api: KubeApi, bodies: Iterator[tuple[str, bytes]]) -> None:
    for path, body in bodies:
        await api.send("PATCH", path, body, content_type=MERGE_PATCH)


def _definition() -> dict[str, object]:
    number = {"type": "object", "properties": {"number": {"type": "integer"}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": _DEFINITION},
        "spec": {
            "group": _GROUP,
            "names": {"kind": "Floor", "plural": _PLURAL},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": _VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": number, "status": number}}},
                }
            ],
        },
    }
