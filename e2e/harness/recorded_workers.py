"""Simulated workers whose every word is kept, and whose training the test steers.

They speak the real protocol with real tokens (localcluster.simworkers); beside that they pretend to save
checkpoints, so that there is something to resume from.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import aiohttp

from localcluster.processnodes.kubeapi import KubeApi
from localcluster.simworker import SimWorker, Training
from localcluster.simworkers import Operator, SimWorkers

Json = dict[str, Any]
ENDLESS = Training(step_seconds=0.05, total_steps=1_000_000)
_PATIENCE = 30.0
_TLS_GOODBYE = 0.5  # aiohttp does not wait for the end of the TLS connections it closes


@dataclasses.dataclass
class Heard:
    """What was seen on the wire of one run. ``starts``: attempt -> pod UID -> START records it ran with."""

    starts: dict[int, dict[str, set[str]]] = dataclasses.field(default_factory=lambda: defaultdict(dict))
    slots: dict[str, int] = dataclasses.field(default_factory=dict)  # pod UID -> slot
    checkpoints: list[Json] = dataclasses.field(default_factory=list)

    def attempts(self) -> list[int]:
        return sorted(self.starts)

    def start(self, attempt: int) -> Json:
        """The one record with which all ranks ran the attempt. Fails when there is more than one."""
        records = {record for seen in self.starts[attempt].values() for record in seen}
        assert len(records) == 1, f"attempt {attempt} was started from {len(records)} records: {records}"
        record: Json = json.loads(records.pop())
        return record

    def slots_of(self, attempt: int) -> list[int]:
        """Slots that ran the attempt, one entry for each pod."""
        return sorted(self.slots[uid] for uid in self.starts[attempt])


class _Wire(Operator):
    """Keeps what is said. ``lets_through`` may keep a reply from its worker."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        super().__init__(session, url)
        self.heard: dict[str, Heard] = defaultdict(Heard)
        self.lets_through: Callable[[Json, Json], bool] = lambda body, reply: True
        self._verified: dict[str, list[Json]] = defaultdict(list)  # pod UID -> answers

    async def send(self, endpoint: str, token: str, body: Json) -> tuple[int, Json]:
        heard = self.heard[body["runUid"]]
        self._note(heard, body["podUid"], body["slot"], body.get("report", body))
        verified = {"verified": self._verified[body["podUid"]]}
        if endpoint == "register":
            body = body | {"inventory": heard.checkpoints, "report": body["report"] | verified}
        else:
            body = body | verified
        status, reply = await super().send(endpoint, token, body)
        if status == 200 and not self.lets_through(body, reply):
            return 0, {}
        if wanted := reply.get("verify"):
            answer = {"tier": wanted["tier"], "path": wanted["path"], "verdict": "Valid", "reason": ""}
            if answer not in self._verified[body["podUid"]]:
                self._verified[body["podUid"]].append(answer)
        return status, reply

    def _note(self, heard: Heard, pod_uid: str, slot: int, state: Json) -> None:
        if state["phase"] not in ("Running", "Exited") or not state["start"]:
            return
        heard.slots[pod_uid] = slot
        record = json.dumps(state["start"], sort_keys=True)
        heard.starts[state["attempt"]].setdefault(pod_uid, set()).add(record)


class _Gangs(SimWorkers):
    """Also watches over the promise that no two gang pods are on one node."""

    def __init__(self, api: KubeApi, operator: Operator) -> None:
        super().__init__(api, operator, ENDLESS)
        self.shared_nodes: list[str] = []
        self.nodes_that_only_look_dead: set[str] = set()

    def _reconcile(self, uids: Any) -> None:
        on_node: dict[str, str] = {}
        for pod in self._pods.values():
            node = pod["spec"].get("nodeName")
            if node is None or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                continue
            other = on_node.setdefault(node, pod["metadata"]["name"])
            if other != pod["metadata"]["name"]:
                self.shared_nodes.append(f"{node}: {other}, {pod['metadata']['name']}")
        super()._reconcile(uids)

    async def end(self) -> None:
        """Stop every worker, without a word to anybody."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _runs(self, pod: Json | None) -> bool:
        lives_on = pod is not None and pod["spec"].get("nodeName") in self.nodes_that_only_look_dead
        return lives_on or super()._runs(pod)

    def of(self, run_uid: str) -> list[SimWorker]:
        """The workers of a run that live."""
        pods = {uid for uid, task in self._tasks.items() if not task.done()}
        return [w for uid, w in self.stats._workers.items() if uid in pods and w.run_uid == run_uid]


class RecordedWorkers:
    """A thread that plays all workers of the cluster, from ``start`` to ``stop``."""

    def __init__(self, kubeconfig: Path, url: str, ca: str) -> None:
        self._kubeconfig = kubeconfig
        self._url = url
        self._trusted = ssl.create_default_context(cadata=ca)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="workers", daemon=True)
        self._running: asyncio.Task[None] | None = None
        self._gangs: _Gangs
        self._wire: _Wire

    def start(self) -> None:
        self._thread.start()
        ready = threading.Event()

        async def begin() -> None:
            self._running = asyncio.create_task(self._play(ready))

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result(_PATIENCE)
        assert ready.wait(_PATIENCE)

    def stop(self) -> None:
        async def end() -> None:
            assert self._running is not None
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            await asyncio.sleep(_TLS_GOODBYE)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(_PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _play(self, ready: threading.Event) -> None:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._trusted)
        async with (
            KubeApi.from_kubeconfig(self._kubeconfig) as api,
            aiohttp.ClientSession(connector=connector) as session,
        ):
            self._wire = _Wire(session, self._url)
            self._gangs = _Gangs(api, self._wire)
            ready.set()
            try:
                await self._gangs.run()
            finally:  # before the sessions that they use
                await self._gangs.end()

    # What tests ask and do

    def trust(self, ca: str) -> None:
        """Trust these authorities as well, from the next connection on."""
        self._trusted.load_verify_locations(cadata=ca)

    def heard(self, run_uid: str) -> Heard:
        return self._wire.heard[run_uid]

    @property
    def shared_nodes(self) -> list[str]:
        """Nodes on which two gang pods were seen at once; to stay empty."""
        return self._gangs.shared_nodes

    def running(self, run_uid: str, attempt: int) -> int:
        """How many living workers of the run are in the attempt now."""
        workers = list(self._gangs.of(run_uid))
        return sum(worker.phase == "Running" and worker.attempt == attempt for worker in workers)

    def phases(self, run_uid: str) -> list[str]:
        """For messages."""
        return [f"{w.slot}/{w.incarnation}: {w.phase} {w.attempt}->{w.ready_for}" for w in self._gangs.of(run_uid)]

    def outlive(self, nodes: Iterable[str]) -> None:
        """Workers on these nodes go on whatever the Node object says."""
        self._gangs.nodes_that_only_look_dead = set(nodes)

    def steps(self, run_uid: str) -> int:
        """The step that all ranks have done."""
        now = time.time()
        reports = [worker.report(now, 0.0, 0.0)["progress"] for worker in self._gangs.of(run_uid)]
        return min((report["step"] if report else 0 for report in reports), default=0)

    def hold_replies(self, lets_through: Callable[[Json, Json], bool]) -> None:
        """From now on a worker gets only those replies for which this holds, given its own words and the reply."""
        self._wire.lets_through = lets_through

    def save(self, run_uid: str, namespace: str, run: str, step: int) -> str:
        """All ranks have saved ``step`` in the shared tier; the path."""
        workers = self._gangs.of(run_uid)
        attempt = max(worker.attempt for worker in workers)
        path = f"/shared-checkpoints/{namespace}/{run}/{run_uid}/a{attempt}/step-{step}"
        row = {"tier": "shared", "step": step, "path": path, "verdict": "Valid", "format": "Manifest"}
        facts = {"attempt": attempt, "world": len(workers), "runUid": run_uid, "bytes": 1000}
        self._wire.heard[run_uid].checkpoints.append(row | facts | {"committedAt": time.time()})
        return path

    def fail(self, run_uid: str, rank: int) -> None:
        """The process of ``rank`` ends with code 1 now; its peers hang, as collectives do."""
        for worker in self._gangs.of(run_uid):
            at = worker.resumed_from + int((time.time() - worker.started_at) / ENDLESS.step_seconds)
            worker.training = dataclasses.replace(ENDLESS, exit_rank=rank, exit_step=at, exit_attempt=worker.attempt)

    def finish(self, run_uid: str) -> None:
        """Every process ends with code 0 within the second."""
        for worker in self._gangs.of(run_uid):
            at = worker.resumed_from + int((time.time() - worker.started_at) / ENDLESS.step_seconds)
            worker.training = dataclasses.replace(ENDLESS, total_steps=at + 1)
