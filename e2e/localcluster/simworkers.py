"""Simulated workers: one process that speaks the worker protocol for every gang pod on KWOK nodes.
A worker on a node that is silenced or deleted falls silent too.

A container's variable SIMULATED_TRAINING, JSON of fields of Training, goes over what the command line says of it.
Each pod gets a real token bound to it, as a kubelet would project it. Ends on SIGTERM or SIGINT, with --once
when every worker has been told that its run is complete, or with --until-released when N have been told START.
The first line printed says that the cluster is being followed, the last one is JSON:
{"workers", "registered", "errors", "runs": {uid: {"registered", "firstRegisteredAt", "lastRegisteredAt",
"attempts": {N: {"released", "firstAt", "lastAt"}}}}}, times in Unix seconds.
"""

import argparse
import asyncio
import contextlib
import json
import random
import resource
import signal
import ssl
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from localcluster.kwok import KWOK_LABEL
from localcluster.processnodes.kubeapi import UNREACHABLE, ApiError, KubeApi
from localcluster.simworker import SimWorker, Training

Json = dict[str, Any]
RUN_UID_LABEL = "lockstep.dev/run-uid"
TRAINING_VARIABLE = "SIMULATED_TRAINING"
AUDIENCE = "lockstep"
TOKEN_SECONDS = 3600
TOKENS_AT_ONCE = 64
ANSWER_SECONDS = 10.0  # beyond the time for which the operator may hold a poll, as the worker has it
_RETRY_SECONDS = 1.0
_JITTER_SECONDS = 0.5


class Operator:
    """The operator's worker endpoint."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self.errors: Counter[str] = Counter()  # by HTTP status or exception

    async def send(self, endpoint: str, token: str, body: Json) -> tuple[int, Json]:
        """``(status, answer)``; status 0 when nobody answered."""
        timeout = aiohttp.ClientTimeout(total=body.get("waitSeconds", 0) + ANSWER_SECONDS)
        try:
            async with self._session.post(
                f"{self._url}/v1/{endpoint}",
                data=json.dumps(body),
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                timeout=timeout,
            ) as response:
                answer = await response.json(content_type=None)
        except (*UNREACHABLE, ValueError) as error:
            self.errors[type(error).__name__] += 1
            return 0, {}
        if response.status != 200:
            self.errors[str(response.status)] += 1
        return response.status, answer


class Stats:
    """What happened when; the launch benchmark reads it."""

    def __init__(self) -> None:
        self._workers: dict[str, SimWorker] = {}
        self._registered: dict[str, float] = {}  # pod UID: first time

    def saw(self, worker: SimWorker) -> None:
        self._workers[worker.pod_uid] = worker

    def registered(self, worker: SimWorker, now: float) -> None:
        self._registered.setdefault(worker.pod_uid, now)

    @property
    def released(self) -> int:
        """Workers that were told START at least once."""
        return sum(bool(worker.released) for worker in self._workers.values())

    @property
    def all_complete(self) -> bool:
        return bool(self._workers) and all(worker.is_complete for worker in self._workers.values())

    def to_json(self, errors: Mapping[str, int]) -> Json:
        runs: dict[str, Json] = {}
        for uid in {worker.run_uid for worker in self._workers.values()}:
            workers = [worker for worker in self._workers.values() if worker.run_uid == uid]
            registered = [self._registered[w.pod_uid] for w in workers if w.pod_uid in self._registered]
            attempts = {}
            for attempt in sorted({number for worker in workers for number in worker.released}):
                times = [worker.released[attempt] for worker in workers if attempt in worker.released]
                attempts[attempt] = {"released": len(times), "firstAt": min(times), "lastAt": max(times)}
            runs[uid] = {
                "registered": len(registered),
                "firstRegisteredAt": min(registered, default=None),
                "lastRegisteredAt": max(registered, default=None),
                "attempts": attempts,
            }
        return {
            "workers": len(self._workers),
            "registered": len(self._registered),
            "errors": dict(errors),
            "runs": runs,
        }


class SimWorkers:
    """Keeps one worker for every running gang pod on the simulated nodes."""

    def __init__(self, api: KubeApi, operator: Operator, training: Training) -> None:
        self.stats = Stats()
        self._api = api
        self._operator = operator
        self._training = training
        self._tokens_at_once = asyncio.Semaphore(TOKENS_AT_ONCE)
        self._nodes: set[str] = set()  # those that KWOK plays
        self._pods: dict[str, Json] = {}  # by UID
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by pod UID
        self._ports = random.Random(0)
        self.follows = asyncio.Event()
        """Nodes and pods have been listed: from now on no pod is missed."""

    async def run(self) -> None:
        """Follow nodes and pods until cancelled; no worker is left then."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_nodes())
                group.create_task(self._follow_pods())
        finally:
            workers = list(self._tasks.values())
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _follow_nodes(self) -> None:
        async for kind, found in self._api.follow("/api/v1/nodes", {"labelSelector": f"{KWOK_LABEL}=fake"}):
            if kind == "LIST":
                self._nodes = {node["metadata"]["name"] for node in found}
            elif kind == "DELETED":  # or silenced: it has lost the label
                self._nodes.discard(found["metadata"]["name"])
            elif found["metadata"]["name"] in self._nodes:
                continue
            else:
                self._nodes.add(found["metadata"]["name"])
            self._reconcile(self._pods)

    async def _follow_pods(self) -> None:
        async for kind, found in self._api.follow("/api/v1/pods", {"labelSelector": RUN_UID_LABEL}):
            if kind == "LIST":
                gone = self._pods.keys() - {pod["metadata"]["uid"] for pod in found}
                self._pods = {pod["metadata"]["uid"]: pod for pod in found}
                self._reconcile(self._pods.keys() | gone)
                self.follows.set()
                continue
            uid = found["metadata"]["uid"]
            if kind == "DELETED":
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = found
            self._reconcile([uid])

    def _reconcile(self, uids: Any) -> None:
        """Start and end workers so that exactly the running pods have one."""
        for uid in list(uids):
            wanted = self._runs(self._pods.get(uid))
            if wanted and uid not in self._tasks:
                task = asyncio.create_task(self._work(self._pods[uid]))
                self._tasks[uid] = task
            elif not wanted and uid in self._tasks:
                self._tasks.pop(uid).cancel()

    def _runs(self, pod: Json | None) -> bool:
        if pod is None or pod.get("status", {}).get("phase") != "Running":
            return False
        if "deletionTimestamp" in pod["metadata"]:
            return False
        return pod["spec"].get("nodeName", "") in self._nodes

    async def _work(self, pod: Json) -> None:
        """One worker, from its first registration to the end of its pod."""
        metadata = pod["metadata"]
        labels = metadata["labels"]
        worker = SimWorker(
            run_uid=labels[RUN_UID_LABEL],
            slot=int(labels["lockstep.dev/slot"]),
            incarnation=int(labels["lockstep.dev/incarnation"]),
            pod_uid=metadata["uid"],
            training=training_of(pod, self._training),
        )
        self.stats.saw(worker)
        token, renew_at = "", 0.0
        while not worker.is_complete:
            if time.time() >= renew_at:
                token = await self._token(pod)
                renew_at = time.time() + TOKEN_SECONDS * 0.8
            worker.advance(time.time())
            status, reply = await self._exchange(worker, pod, token)
            now = time.time()
            if status == 200:
                worker.obey(reply, self._ports.randrange(32768, 60999), now)
            elif status == 409:
                worker.must_register = True
            elif status == 401:
                renew_at = 0.0
            if status != 200:
                await asyncio.sleep(_RETRY_SECONDS + random.random() * _JITTER_SECONDS)
        await self._finish(pod, worker)

    async def _exchange(self, worker: SimWorker, pod: Json, token: str) -> tuple[int, Json]:
        """Register, or report and wait; the end of the child interrupts the wait."""
        now, mono = time.time(), time.monotonic()
        identity = {
            "protocol": 1,
            "runUid": worker.run_uid,
            "slot": worker.slot,
            "incarnation": worker.incarnation,
            "podUid": worker.pod_uid,
        }
        if worker.must_register:
            body = identity | _node_facts(pod) | {"inventory": worker.inventory, "report": worker.report(now, mono, 0)}
            status, reply = await self._operator.send("register", token, body)
            if status == 200:
                worker.must_register = False
                self.stats.registered(worker, time.time())
            return status, reply
        ends_at = worker.ends_at()
        body = identity | worker.report(now, mono, worker.poll_seconds)
        poll = self._operator.send("report", token, body)
        if ends_at is None or ends_at > now + worker.poll_seconds:
            return await poll
        try:
            return await asyncio.wait_for(poll, max(0.01, ends_at - now))
        except TimeoutError:
            worker.advance(max(time.time(), ends_at))
            return await self._operator.send("report", token, identity | worker.report(ends_at, mono, 0))

    async def _token(self, pod: Json) -> str:
        metadata = pod["metadata"]
        account = pod["spec"].get("serviceAccountName", "default")
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_SECONDS, "boundObjectRef": bound}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        while True:
            try:
                async with self._tokens_at_once:
                    return str((await self._api.post(path, body))["status"]["token"])
            except (ApiError, *UNREACHABLE):
                await asyncio.sleep(_RETRY_SECONDS)

    async def _finish(self, pod: Json, worker: SimWorker) -> None:
        """End the pod with the child's code, as the kubelet would when the worker leaves."""
        code = _exit_code(worker.exit)
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        containers = [
            status | {"ready": False, "started": False, "state": {"running": None, "terminated": ended}}
            for status in pod["status"].get("containerStatuses") or ()
        ]
        phase = "Succeeded" if code == 0 else "Failed"
        body = {"metadata": {"uid": metadata["uid"]}, "status": {"phase": phase, "containerStatuses": containers}}
        while True:
            try:
                await self._api.patch(path, body)
                return
            except ApiError:
                return  # the pod has gone, or another one has its name
            except UNREACHABLE:
                await asyncio.sleep(_RETRY_SECONDS)


def training_of(pod: Json, usual: Training) -> Training:
    """What a pod pretends to train."""
    variables = pod["spec"]["containers"][0].get("env") or ()
    said = next((each["value"] for each in variables if each["name"] == TRAINING_VARIABLE), "{}")
    return replace(usual, **json.loads(said))


def _exit_code(ended: Json | None) -> int:
    if ended is None:
        return 0
    if ended["signal"]:
        return 128 + int(ended["signal"])
    return int(ended["code"] or 0)


def _node_facts(pod: Json) -> Json:
    """What a registration says beside identity and state."""
    node = pod["spec"]["nodeName"]
    return {
        "namespace": pod["metadata"]["namespace"],
        "run": pod["metadata"]["labels"]["lockstep.dev/run"],
        "node": node,
        "hostname": node,
        "address": pod["status"]["podIP"],
        "workerVersion": "sim",
        "problem": "",
    }


async def simulate(options: argparse.Namespace) -> Json:
    """Run until told to end; the statistics."""
    training = Training(
        step_seconds=options.step_seconds,
        total_steps=options.total_steps,
        exit_rank=options.exit_rank,
        exit_step=options.at_step,
        exit_attempt=options.exit_attempt,
        exit_times=options.exit_times,
        saves=options.saves,
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    tls = ssl.create_default_context(cafile=options.ca_file) if options.ca_file else True
    # Shorter than the server's, which otherwise closes a connection just as it is used again.
    connector = aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=30)
    async with (
        KubeApi.from_kubeconfig(options.kubeconfig) as api,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        operator = Operator(session, options.operator_url)
        workers = SimWorkers(api, operator, training)
        running = asyncio.create_task(workers.run())
        await asyncio.wait([running, asyncio.create_task(workers.follows.wait())], return_when="FIRST_COMPLETED")
        print("following the cluster", flush=True)
        while not (stop.is_set() or running.done() or _is_enough(options, workers.stats)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 0.2)
        if running.done():
            await running  # it follows for ever, so this raises what went wrong
        running.cancel()
        await asyncio.wait([running])  # before the sessions are closed that its workers use
        return workers.stats.to_json(operator.errors)


def _is_enough(options: argparse.Namespace, stats: Stats) -> bool:
    if options.until_released and stats.released >= options.until_released:
        return True
    return bool(options.once and stats.all_complete)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m localcluster.simworkers", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--operator-url", required=True)
    parser.add_argument("--ca-file", help="that signed the operator's certificate")
    parser.add_argument("--step-seconds", type=float, default=Training.step_seconds)
    parser.add_argument("--total-steps", type=int, default=Training.total_steps)
    parser.add_argument("--exit-rank", type=int, help="this rank fails with code 1 …")
    parser.add_argument("--at-step", type=int, default=0, help="… after this step …")
    parser.add_argument("--exit-attempt", type=int, default=1, help="… of this attempt")
    parser.add_argument("--exit-times", type=int, default=1, help="… and of those that follow, so often in all")
    parser.add_argument("--saves", action="store_true", help="every attempt saves its first step")
    parser.add_argument("--once", action="store_true", help="end when all runs are complete")
    parser.add_argument("--until-released", type=int, metavar="N", help="end when N workers have been told START")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # every worker keeps a poll open
    print(json.dumps(uvloop.run(simulate(options))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
