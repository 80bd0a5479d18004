"""One launch by Lockstep, from the apply to the last worker that was told START."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bench.observing import all_gone, all_running
from harness.kube import OPERATOR_NAMESPACE, ROOT, Kubectl
from harness.world import World
from localcluster.processnodes.kubeapi import KubeApi
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import RunView

LAUNCH_SECONDS = 300.0
RUN = "bench"
_APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Launch:
    """What was seen of one launch: seconds from the apply, and the operator's cost of it."""

    running: float
    started: float  # the same as ``running`` without workers
    api_requests: float  # by the operator, leases and events included
    operator_cpu: float  # seconds
    rss: float  # bytes, of the operator at the end
    restarts: int  # of the operator: its counters then tell of a part only
    run: RunView  # as it was then


class Launcher:
    """Launches gangs of ``count`` nodes, one after another, each within ``seconds``, and leaves nothing of them."""

    def __init__(self, world: World, namespace: str, count: int, seconds: float = LAUNCH_SECONDS) -> None:
        self._world = world
        self._namespace = namespace
        self._count = count
        self._seconds = seconds
        self._ca_file = world.folder / "workers-ca.crt"
        self._ca_file.write_text(workers_ca(world.kubectl))

    async def launch(self, *, with_workers: bool, meanwhile: AbstractContextManager[object] | None = None) -> Launch:
        """Launch a gang and take it away again. ``meanwhile`` is entered for the launch. Raises TimeoutError."""
        operator = self._world.operator
        async with contextlib.AsyncExitStack() as stack:
            api = await stack.enter_async_context(KubeApi.from_kubeconfig(self._world.cluster.kubeconfig))
            workers = await stack.enter_async_context(self._workers()) if with_workers else None
            before, starts = operator.metrics(), operator.starts
            under_way = stack.enter_context(contextlib.ExitStack())
            under_way.enter_context(meanwhile or contextlib.nullcontext())
            async with all_running(api, self._namespace, self._count) as running, asyncio.timeout(self._seconds):
                applied, begun = time.time(), time.monotonic()
                await apply(api, self._namespace, RUN, self._count)
                await running
                seconds = time.monotonic() - begun
                started = seconds if workers is None else await self._released(workers) - applied
            after, restarts = operator.metrics(), operator.starts - starts
            run = parse_run(await api.get(run_path(self._namespace, RUN)))
            under_way.close()
            await api.request("DELETE", run_path(self._namespace, RUN))
            await all_gone(api, self._namespace, self._seconds)
        return Launch(
            running=seconds,
            started=started,
            api_requests=_total(after, "lockstep_api_requests_total") - _total(before, "lockstep_api_requests_total"),
            operator_cpu=_total(after, "process_cpu_seconds_total") - _total(before, "process_cpu_seconds_total"),
            rss=_total(after, "process_resident_memory_bytes"),
            restarts=restarts,
            run=run,
        )

    @asynccontextmanager
    async def _workers(self) -> AsyncIterator[Process]:
        """Simulated workers that end by themselves once all of them were told START."""
        command = [sys.executable, "-m", "localcluster.simworkers", f"--kubeconfig={self._world.cluster.kubeconfig}"]
        options = [f"--operator-url={self._world.operator.url}", f"--ca-file={self._ca_file}"]
        process = await asyncio.create_subprocess_exec(
            *command,
            *options,
            f"--until-released={self._count}",
            stdout=PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT / "e2e")},
        )
        try:
            assert process.stdout is not None
            await asyncio.wait_for(process.stdout.readline(), timeout=120)  # it says that it follows the cluster
            yield process
        finally:
            if process.returncode is None:
                process.terminate()  # it says then what it has seen
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(20):
                        print((await process.communicate())[0].decode()[-600:], flush=True)
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()

    async def _released(self, workers: Process) -> float:
        """The moment (Unix seconds) when the last worker was told START."""
        output, _ = await workers.communicate()
        stats = json.loads(output.splitlines()[-1])
        (run,) = stats["runs"].values()
        return float(run["attempts"]["1"]["lastAt"])


def manifest(name: str, nodes: int) -> dict[str, Any]:
    """A TrainingRun of the shortest kind."""
    return {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": name},
        "spec": {"nodes": nodes, "image": "train", "command": ["torchrun", "train.py"]},
    }


async def apply(api: KubeApi, namespace: str, name: str, nodes: int) -> dict[str, Any]:
    """What ``kubectl apply --server-side`` does; the object."""
    return await api.request(
        "PATCH",
        run_path(namespace, name),
        manifest(name, nodes),
        params={"fieldManager": "bench"},
        content_type=_APPLY,
    )


def run_path(namespace: str, name: str) -> str:
    """Where a TrainingRun is found."""
    return f"/apis/lockstep.dev/v1alpha1/namespaces/{namespace}/trainingruns/{name}"


def workers_ca(kubectl: Kubectl) -> str:
    """PEM of the authority that workers trust."""
    secret = kubectl.json("get", "secret", "-n", OPERATOR_NAMESPACE, "lockstep-worker-tls")
    return base64.b64decode(secret["data"]["ca.crt"]).decode()


def _total(metrics: dict[str, dict[Any, float]], name: str) -> float:
    return sum(metrics[name].values())
