"""Admission on a real control plane, by an operator that is a process of its own.

Runs wait in a queue that is held until all of them are accepted; the clock starts when the queue is opened. So that
admission is seen by itself, an operator with ``reconcileWorkers: 1`` opens it: the admission cycle goes before all
other work, and with one worker no pod is made while one is due. An admitted run has its nodes in status.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.launcher import workers_ca
from bench.observing import all_gone
from bench.patching import control_plane_cpu
from bench.recoveries import Cost, cost_so_far
from harness.kube import ROOT
from harness.operator import OperatorProcess
from harness.waiting import WaitedInVain, wait_for
from harness.world import World
from localcluster.processnodes.kubeapi import KubeApi
from lockstep.api.base import names

PATIENT = {"leaseDuration": 30}
"""For operators on a machine that others use too: with ten seconds one that is not let run in time starts anew."""
NAMESPACE = "bench"
QUEUE = "bench"
_QUEUE_PATH = f"/apis/{names.API_VERSION}/trainingqueues/{QUEUE}"
_RUNS_PATH = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.RUNS}"
_ACCEPT_SECONDS = 900.0
_ADMIT_SECONDS = 900.0
_GONE_SECONDS = 900.0
_START_SECONDS = 0.5  # for each run, beside that: pods, scheduler, kubelets and workers share the machine
_REQUEST_SECONDS = 120.0  # a list of thousands of runs by a machine that is busy with them
_CONCURRENCY = 32


@dataclass(frozen=True)
class Admissions:
    """``seconds`` from the opening of the queue until each run was seen admitted, the operator's cost, the bytes of
    memory that it then held, and the seconds of CPU of API server and etcd."""

    seconds: tuple[float, ...]
    cost: Cost
    memory: float
    control_plane: float

    @property
    def per_second(self) -> float:
        """Over all of them."""
        return len(self.seconds) / max(self.seconds)

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of the operator's CPU per run: the figure that depends least on what else the machine does."""
        return 1000 * self.cost.cpu / len(self.seconds)

    @property
    def control_plane_cpu_ms(self) -> float:
        """As ``cpu_ms``, of API server and etcd."""
        return 1000 * self.control_plane / len(self.seconds)

    @property
    def writes(self) -> float:
        """Requests that change something at the API server, events and leases aside, per run."""
        return sum(self.cost.writes.values()) / len(self.seconds)


@dataclass
class _Seen:
    """Of the runs: which are accepted, and when (monotonic seconds) which were admitted; by name."""

    accepted: set[str] = field(default_factory=set)
    admitted: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, run: dict[str, Any]) -> None:
        name, status = run["metadata"]["name"], run.get("status", {})
        if name not in self.accepted:
            conditions = status.get("conditions", ())
            if any(one["type"] == "Accepted" and one["status"] == "True" for one in conditions):
                self.accepted.add(name)
        if name not in self.admitted and status.get("attempt"):
            self.admitted[name] = time.monotonic()
        self.changed.set()

    async def wait(self, what: str, seconds: float, reached: Callable[[], bool]) -> None:
        """Raises TimeoutError that says how far it came."""
        try:
            async with asyncio.timeout(seconds):
                while not reached():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            come = f"{len(self.accepted)} accepted, {len(self.admitted)} admitted"
            raise TimeoutError(f"{what}: not within {seconds:.0f} s; {come}") from None


@contextmanager
def pods_held_back(world: World) -> Iterator[OperatorProcess]:
    """In the place of the world's operator one that admits first and makes pods afterwards."""
    world.operator.stop()
    operator = OperatorProcess.start(world.kubectl, world.folder / "alone", settings=PATIENT | {"reconcileWorkers": 1})
    try:
        yield operator
    finally:
        operator.stop()
        world.operator.run()
        world.operator.wait_until_leading()


async def admit(world: World, runs: int, nodes: int) -> Admissions:
    """Admit ``runs`` runs of ``nodes`` nodes each, all at once; nothing of them is left. There is room for all."""
    async with _api(world) as api, _waiting(api, world, runs, nodes) as seen:
        with pods_held_back(world) as operator:
            await _idle(operator)
            return await _opened(api, world, operator, seen, runs)


async def launch(world: World, runs: int) -> float:
    """Seconds until as many one-node runs were admitted, had their pods and were told START."""
    async with _api(world) as api, _waiting(api, world, runs, 1):
        await _idle(world.operator)
        async with _workers(world, runs) as workers:
            begun = time.monotonic()
            await _set_queue(api, "None")
            # What it says at its end is more than a pipe holds: who does not read it waits for ever.
            await asyncio.wait_for(workers.communicate(), _ADMIT_SECONDS + runs * _START_SECONDS)
            if workers.returncode:
                raise WaitedInVain(f"the simulated workers ended with {workers.returncode}")
            return time.monotonic() - begun


async def waves(world: World, runs: int, nodes: int, at_once: int, report: Callable[[str], None]) -> list[float]:
    """Seconds from the opening of the queue until each of ``runs`` gangs was admitted, ``at_once`` at a time."""
    found: list[float] = []
    with pods_held_back(world) as operator:
        async with _api(world) as api:
            while len(found) < runs:
                count = min(at_once, runs - len(found))
                async with _waiting(api, world, count, nodes) as seen:
                    await _idle(operator)
                    found += (await _opened(api, world, operator, seen, count)).seconds
                report(f"{len(found)} gangs of {nodes} were admitted")
    return found


async def _opened(api: KubeApi, world: World, operator: OperatorProcess, seen: _Seen, runs: int) -> Admissions:
    before, control_plane, begun = cost_so_far(operator), control_plane_cpu(world), time.monotonic()
    await _set_queue(api, "None")
    await seen.wait("all are admitted", _ADMIT_SECONDS, lambda: len(seen.admitted) >= runs)
    cost, control_plane = cost_so_far(operator).since(before), control_plane_cpu(world) - control_plane
    memory = sum(operator.metrics()["process_resident_memory_bytes"].values())
    return Admissions(tuple(sorted(at - begun for at in seen.admitted.values())), cost, memory, control_plane)


@asynccontextmanager
async def _waiting(api: KubeApi, world: World, runs: int, nodes: int) -> AsyncIterator[_Seen]:
    """That many runs, accepted, in a queue that is held."""
    await _set_queue(api, "Hold")
    seen = _Seen()
    following = asyncio.create_task(_follow(api, seen))
    try:
        bodies = iter([_manifest(number, nodes) for number in range(runs)])
        await asyncio.gather(*(_create_from(api, bodies) for _ in range(_CONCURRENCY)))
        await seen.wait("all are accepted", _ACCEPT_SECONDS, lambda: len(seen.accepted) >= runs)
        yield seen
    finally:
        following.cancel()
    await _delete_all(api, _RUNS_PATH)
    await _delete_all(api, f"/api/v1/namespaces/{NAMESPACE}/pods")
    await all_gone(api, NAMESPACE, _GONE_SECONDS)


async def _delete_all(api: KubeApi, path: str) -> None:
    """One by one: the API server gives a request for all of them up when it takes too long."""
    found = (await api.get(path))["items"]
    left = iter([(f"{path}/{one['metadata']['name']}", one["metadata"]["uid"]) for one in found])

    async def delete() -> None:
        for one, uid in left:
            await api.delete(one, uid, grace=0)

    await asyncio.gather(*(delete() for _ in range(_CONCURRENCY)))


async def _follow(api: KubeApi, seen: _Seen) -> None:
    async for kind, found in api.follow(_RUNS_PATH):
        for run in found if kind == "LIST" else [found]:
            if kind != "DELETED":
                seen.take(run)


async def _create_from(api: KubeApi, bodies: Iterator[dict[str, Any]]) -> None:
    for body in bodies:
        await api.post(_RUNS_PATH, body)


async def _set_queue(api: KubeApi, policy: str) -> None:
    body = {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingQueue",
        "metadata": {"name": QUEUE},
        "spec": {"stopPolicy": policy},
    }
    apply = "application/apply-patch+yaml"
    await api.request("PATCH", _QUEUE_PATH, body, params={"fieldManager": "bench"}, content_type=apply)


async def _idle(operator: OperatorProcess) -> None:
    """Return when the operator has looked at all that was due."""

    def depth() -> float:
        return sum(operator.metrics()["lockstep_workqueue_depth"].values())

    await asyncio.to_thread(wait_for, "the operator has nothing to do", lambda: depth() <= 1, seconds=_ACCEPT_SECONDS)


@asynccontextmanager
async def _workers(world: World, count: int) -> AsyncIterator[Process]:
    """Simulated workers, which end when ``count`` of them were told START."""
    ca_file = world.folder / "workers-ca.crt"
    ca_file.write_text(workers_ca(world.kubectl))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "localcluster.simworkers", f"--kubeconfig={world.cluster.kubeconfig}"),
        *(f"--operator-url={world.operator.url}", f"--ca-file={ca_file}", f"--until-released={count}"),
        stdout=PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT / "e2e")},
    )
    try:
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), timeout=30)  # it says that it follows the cluster
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def _api(world: World) -> AsyncIterator[KubeApi]:
    async with KubeApi.from_kubeconfig(world.cluster.kubeconfig, seconds=_REQUEST_SECONDS) as api:
        yield api


def _manifest(number: int, nodes: int) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_KIND,
        "metadata": {"name": f"run-{number}", "namespace": NAMESPACE},
        "spec": {
            "nodes": nodes,
            "image": "train",
            "command": ["torchrun", "train.py"],
            "queue": QUEUE,
            "timeLimit": "4h",
        },
    }
