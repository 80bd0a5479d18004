"""What the control plane alone takes to run a gang's pods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import orjson

from bench.launcher import LAUNCH_SECONDS, apply, run_path, workers_ca
from bench.observing import all_gone, all_running
from harness.world import World
from localcluster.processnodes.kubeapi import KubeApi
from lockstep.controller.workers.worker_archive import worker_archive
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods.gang import template_for

_RUN = "floor"


class Floor:
    """A bare client that creates a gang's pods while no operator runs.

    ``like`` is a run as Lockstep admitted it: what was resolved for it is part of its pods.
    """

    def __init__(self, world: World, namespace: str, like: RunView, concurrency: int) -> None:
        self._world = world
        self._namespace = namespace
        self._like = like
        self._concurrency = concurrency
        self._nodes = [node["metadata"]["name"] for node in world.cluster.kwok_nodes()]
        gang = GangSettings(
            operator_url=world.operator.url,
            worker_archive=worker_archive(),
            ca_certificate=workers_ca(world.kubectl),
        )
        self._tunables = Tunables(gang=gang)
        if template_for(like, like.status, self._tunables).hash != like.status.resolved.template_hash:
            raise AssertionError("the floor's pods would not be those that the operator makes")

    async def measure(self) -> float:
        """Seconds from the first request until all pods are Running. Nothing of them is left."""
        operator = self._world.operator.folder / "operator.kubeconfig"
        async with (
            KubeApi.from_kubeconfig(self._world.cluster.kubeconfig) as admin,
            KubeApi.from_kubeconfig(operator, self._concurrency) as client,
        ):
            # The pods have an owner that exists, or the garbage collector would take them.
            owner = await apply(admin, self._namespace, _RUN, len(self._nodes))
            bodies = self._bodies(parse_run(owner))
            async with all_running(admin, self._namespace, len(self._nodes)) as running:
                begun = time.monotonic()
                async with asyncio.timeout(LAUNCH_SECONDS):
                    await asyncio.gather(*(self._create_from(client, bodies) for _ in range(self._concurrency)))
                    await running
                seconds = time.monotonic() - begun
            await admin.request("DELETE", run_path(self._namespace, _RUN))
            pods = f"/api/v1/namespaces/{self._namespace}/pods"
            await admin.request("DELETE", pods, {"gracePeriodSeconds": 0}, seconds=LAUNCH_SECONDS)
            await all_gone(admin, self._namespace, LAUNCH_SECONDS)
        return seconds

    def _bodies(self, run: RunView) -> Iterator[bytes]:
        template = template_for(run, self._like.status, self._tunables)
        return iter([orjson.dumps(template.pod_body(slot, 1, node)) for slot, node in enumerate(self._nodes)])

    async def _create_from(self, client: KubeApi, bodies: Iterator[bytes]) -> None:
        for body in bodies:
            await client.send("POST", f"/api/v1/namespaces/{self._namespace}/pods", body)
