"""Seeing the pods of a namespace become Running, at next to no cost to what is measured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from localcluster.processnodes.kubeapi import KubeApi

_RUNNING = {"fieldSelector": "status.phase=Running"}
_GONE_EVERY = 0.2  # seconds


@asynccontextmanager
async def all_running(api: KubeApi, namespace: str, count: int) -> AsyncIterator[asyncio.Task[None]]:
    """A task that ends at the moment when ``count`` pods of the namespace were seen Running; it has none yet."""
    before = await api.get(_pods(namespace))
    if before["items"]:
        raise ValueError(f"namespace {namespace} still has {len(before['items'])} pods")
    ready = asyncio.Event()
    task = asyncio.create_task(_watch(api, namespace, count, ready))
    try:
        await ready.wait()
        yield task
    finally:
        task.cancel()


async def _watch(api: KubeApi, namespace: str, count: int, ready: asyncio.Event) -> None:
    seen: set[str] = set()
    # The server leaves out all pods but the Running ones: each comes once, when it becomes so.
    async for kind, found in api.follow(_pods(namespace), _RUNNING):
        ready.set()
        if kind in ("LIST", "ADDED"):
            seen |= {pod["metadata"]["uid"] for pod in (found if kind == "LIST" else [found])}
        if len(seen) >= count:
            return


async def all_gone(api: KubeApi, namespace: str, seconds: float) -> None:
    """Return when the namespace has no pod. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        # Polled: a watch of what goes would cost as much as one of what comes.
        while (await api.get(_pods(namespace), {"limit": "1"}))["items"]:  # noqa: ASYNC110
            await asyncio.sleep(_GONE_EVERY)


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"
