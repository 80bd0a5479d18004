"""What kube-proxy does for one Service, on a machine where no cluster IP leads anywhere.

New connections go to the endpoint that the Service's EndpointSlices name now; connections that stand are left alone,
as kube-proxy leaves them. The ports of all replicas are this machine's, so of an endpoint only the port is looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from localcluster.processnodes.kubeapi import KubeApi

Json = dict[str, Any]
T = TypeVar("T")
_PATIENCE = 30.0
_CHUNK = 2**16
_GOODBYE = 0.5  # connections that were aborted are closed a moment later


class ServiceProxy:
    """Serves from ``start`` to ``stop`` on a thread of its own, at a free port of ``address``."""

    def __init__(self, kubeconfig: Path, namespace: str, service: str, address: str = "127.0.0.1") -> None:
        self.address = address
        self.port = 0
        self.leads_to = 0
        """Port of the endpoint now; 0: there is none, and connections are hung up on."""
        self._kubeconfig = kubeconfig
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._selector = {"labelSelector": f"kubernetes.io/service-name={service}"}
        self._slices: dict[str, Json] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="service-proxy", daemon=True)
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where workers are told that the Service is."""
        return f"https://{self.address}:{self.port}"

    def start(self) -> None:
        """Listen, and follow the slices."""
        self._thread.start()
        self._on_loop(self._open())

    def stop(self) -> None:
        """Cut everybody off and end."""
        self._on_loop(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hang_up(self) -> None:
        """Cut all connections, as a network does that was away for long; new ones are served."""
        self._on_loop(self._cut())

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, self.address, 0, backlog=2048)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._following = asyncio.create_task(self._follow())

    async def _close(self) -> None:
        self._server.close()
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self._cut()
        await asyncio.sleep(_GOODBYE)

    async def _cut(self) -> None:
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> None:
        async with KubeApi.from_kubeconfig(self._kubeconfig) as api:
            async for kind, found in api.follow(self._path, self._selector):
                if kind == "LIST":
                    self._slices = {each["metadata"]["name"]: each for each in found}
                elif kind == "DELETED":
                    self._slices.pop(found["metadata"]["name"], None)
                else:
                    self._slices[found["metadata"]["name"]] = found
                ports = [
                    int(port["port"])
                    for each in self._slices.values()
                    if each["endpoints"]
                    for port in each["ports"]
                    if port["name"] == "leader"
                ]
                self.leads_to = ports[0] if ports else 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        with contextlib.suppress(OSError):
            try:
                there, back = await asyncio.open_connection(self.address, self.leads_to or None)
                try:
                    await _first_of(_copy(reader, back), _copy(there, writer))
                finally:
                    back.transport.abort()
            finally:
                writer.transport.abort()
                self._connections.discard(task)


async def _first_of(*copies: Coroutine[Any, Any, None]) -> None:
    """TLS has no half of a connection: when one side ends, both do."""
    tasks = [asyncio.create_task(copy) for copy in copies]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while chunk := await source.read(_CHUNK):
        sink.write(chunk)
        await sink.drain()
    with contextlib.suppress(OSError):
        await asyncio.wait_for(sink.drain(), 1.0)
