"""A cluster to look at: nodes in racks, runs of two teams in all states, and an API server that only reviews."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from lockstep.api.base import names
from lockstep.controller.kube.caller import CallerApi
from lockstep.controller.kube.credentials import Credentials
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.recent_events import RecentEvents
from lockstep.controller.runtime.resources import RUNS
from lockstep.controller.web.server import WebPage
from lockstep.controller.web.sources import PageSources
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.own_objects import parse_queue, parse_run, parse_run_set
from lockstep.core.model.plan import Event
from lockstep.core.model.reasons import ActionWord, Recorded
from lockstep.core.model.snapshot import NodeFailure, NodeView, PodView, QueueView, RunView, Taint
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import (
    CheckpointReport,
    ProgressReport,
    TimingReport,
    Verdict,
    WorkerPhase,
    WorkerReport,
)
from support import sample_runs
from support.answering_server import answering_here

GPUS = {names.GPU_RESOURCE: 8, "cpu": 192_000, "memory": 2**41, "pods": 110}
Json = dict[str, Any]


@dataclass
class ApiServer:
    """Of the API server what viewers ask by their own tokens. ``may``: by token, ``edit`` and ``logs``."""

    may: dict[str, frozenset[str]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=lambda: ["step 1", "step 2"])
    asked: list[tuple[str, str, Mapping[str, str], Any]] = field(default_factory=list)
    """Method, path, headers, and the query or the body."""
    answer: tuple[int, Json] | None = None
    """Instead of what it would say to a change or for a log."""
    objects: dict[str, Json] = field(default_factory=dict)
    """What may be read by who may do anything, by path."""
    url: str = "http://127.0.0.1:1"
    following: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: what is followed ends."""
    breaks: bool = False
    """Rather than to end, it breaks off."""

    @asynccontextmanager
    async def served(self) -> AsyncIterator[ApiServer]:
        """It listens."""
        async with answering_here(self._answer) as self.url:
            yield self

    async def credentials(self) -> Credentials:
        """As an operator has them, whose own token and certificate nobody else is to come with."""

        async def own() -> str:
            return "Bearer the-operators-own"

        return Credentials(self.url, False, None, own, trust=False)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        changes = request.method != "GET"
        sent: Any = await request.json() if changes else dict(request.query)
        self.asked.append((request.method, request.path, dict(request.headers), sent))
        if self.answer is not None and (changes or request.path not in self.objects):
            return web.json_response(self.answer[1], status=self.answer[0])
        rights = self.may.get(token)
        if rights is None:
            return web.json_response({"message": "Unauthorized", "code": 401}, status=401)
        if ("edit" if changes else "logs") not in rights:
            words = 'forbidden: User "x" cannot do resource "y" in API group "" in the namespace'
            return web.json_response({"message": words, "reason": "Forbidden", "code": 403}, status=403)
        if request.method == "POST":
            return web.json_response({"metadata": {"name": sent["metadata"]["name"], "uid": "uid-made"}})
        if changes:
            return web.json_response({})
        if not request.path.endswith("/log"):
            found = self.objects.get(request.path)
            return web.json_response(found or {"message": "not found"}, status=200 if found else 404)
        response = web.StreamResponse()
        await response.prepare(request)
        self.following += 1
        try:
            for line in self.lines:
                await response.write(f"{line}\n".encode())
            await self.ended.wait()
            if self.breaks and request.transport is not None:
                request.transport.abort()
        finally:
            self.following -= 1
        return response


@dataclass
class Reviewer:
    """The API server's answers. ``users``: by token, name and what they may."""

    users: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    down: bool = False

    def admit(self, token: str, name: str, *rights: str) -> None:
        """``rights``: namespaces where they may get runs and arrays, ``*`` for all; ``no arrays``: runs alone,
        ``no runs``: arrays alone; ``nodes`` and ``queues`` to list those, ``edit`` to change runs, ``logs`` to read
        those of pods."""
        self.users[token] = name, frozenset(rights)

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the API server would say."""
        self.asked.append((path, body))
        if self.down:
            raise OSError("connection refused")
        if path.endswith("tokenreviews"):
            audiences = list(body["spec"].get("audiences", ()))
            known = self.users.get(body["spec"]["token"])
            if known is None or audiences:
                return {"status": {"authenticated": False}}
            user = {"username": known[0], "uid": f"uid-{known[0]}", "groups": ["system:authenticated"]}
            return {"status": {"authenticated": True, "user": user}}
        spec = body["spec"]
        rights = next((rights for name, rights in self.users.values() if name == spec["user"]), frozenset())
        wanted = spec["resourceAttributes"]
        if wanted.get("subresource") == "log":
            allowed = "logs" in rights
        elif wanted["verb"] in ("patch", "create"):
            allowed = "edit" in rights
        elif {names.RUN_SETS: "no arrays", names.RUNS: "no runs"}.get(wanted["resource"]) in rights:
            allowed = False
        elif wanted["resource"] in (names.RUNS, names.RUN_SETS):
            allowed = "*" in rights or (wanted["namespace"] in rights and bool(wanted["namespace"]))
        else:
            allowed = {"nodes": "nodes", names.QUEUES: "queues"}[wanted["resource"]] in rights
        return {"status": {"allowed": allowed}}

    def reviews(self, kind: str) -> int:
        """How often it was asked."""
        return sum(path.endswith(kind) for path, _ in self.asked)


def node(name: str, zone: str, rack: str, **changes: Any) -> NodeView:
    """An eight-GPU node."""
    labels = {
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/rack": rack,
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    }
    return replace(NodeView(name=name, uid=f"uid-{name}", labels=labels, allocatable=GPUS), **changes)


def racks(count: int, per_rack: int = 16, racks_per_zone: int = 16) -> list[NodeView]:
    """Nodes in their places."""
    return [
        node(f"gpu-{i}", f"zone-{i // (per_rack * racks_per_zone) + 1}", f"rack-{i // per_rack + 1}")
        for i in range(count)
    ]


def raw_run(namespace: str, name: str, count: int, **status: Any) -> Json:
    """A TrainingRun as the API server has it."""
    raw = sample_runs.run(name, nodes=count, status=status)
    raw["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    return raw


def holding(namespace: str, name: str, nodes: Sequence[str], **changes: Any) -> RunView:
    """A run that trains on ``nodes``."""
    raw = sample_runs.running(
        nodesReady=f"{len(nodes)}/{len(nodes)}",
        assignment={"revision": 1, "hash": "0" * 16, "nodes": list(nodes), "incarnations": [1] * len(nodes)},
        **changes,
    )
    raw["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{name}", "name": name}
    raw["spec"]["nodes"] = len(nodes)
    raw["metadata"]["creationTimestamp"] = sample_runs.at(100_000)
    return parse_run(raw)


def waiting(namespace: str, name: str, count: int = 4, queue: str = "default", **said: Any) -> RunView:
    """A run that has been told its place."""
    raw = sample_runs.pending(name, **{"message": f"needs {count} nodes, 1 fit: the others are booked by runs"} | said)
    raw["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    raw["spec"] |= {"nodes": count, "queue": queue}
    raw["status"]["nodesReady"] = f"0/{count}"
    return parse_run(raw)


def queue(name: str = "default", **spec: Any) -> QueueView:
    """A TrainingQueue."""
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": sample_runs.at(9000)}
    return parse_queue({"metadata": meta, "spec": spec})


def report(slot: int, on: str, step: int, *, loss: str = "", now: float, **changes: Any) -> WorkerReport:
    """What a worker that trains last said."""
    return replace(
        WorkerReport(
            slot=slot,
            incarnation=1,
            pod_uid=f"pod-{slot}",
            node=on,
            phase=WorkerPhase.RUNNING,
            received_at=now,
            attempt=2,
            progress=ProgressReport(step, now, loss),
            timing=TimingReport(section="Step"),
        ),
        **changes,
    )


def saved(step: int, verdict: Verdict = Verdict.VALID, reason: str = "") -> CheckpointReport:
    """A checkpoint of the shared tier as one worker sees it."""
    path = f"/shared-checkpoints/c83fa/a4/step-{step}"
    return CheckpointReport("shared", step, path, verdict, reason, "TorchDCP", 4, bytes=1100 * 2**30)


def saved_here(step: int, rank: int) -> CheckpointReport:
    """The share of one rank on its own disks."""
    path = f"/local-checkpoints/c83fa/a4/step-{step}/rank-{rank}"
    return CheckpointReport("local", step, path, Verdict.VALID, "", "TorchDCP", 4, bytes=17 * 2**30)


@dataclass
class Cluster:
    """What the operator knows. Plain lists: a test changes them as it likes."""

    clock: Clock
    nodes: list[NodeView] = field(default_factory=list)
    runs: list[RunView] = field(default_factory=list)
    queues: list[QueueView] = field(default_factory=list)
    reports: dict[str, dict[int, WorkerReport]] = field(default_factory=dict)
    pods: dict[str, tuple[PodView, ...]] = field(default_factory=dict)
    foreign: dict[str, dict[str, int]] = field(default_factory=dict)
    sets: list[RunSetView] = field(default_factory=list)
    said: RecentEvents = field(default_factory=RecentEvents)
    synced: bool = True
    leads: bool = True
    reviewer: Reviewer = field(default_factory=Reviewer)
    api: ApiServer = field(default_factory=ApiServer)

    def page(self) -> WebPage:
        """The page over all this."""
        usual = Tunables()
        sources = PageSources(
            synced=lambda: self.synced,
            leading=lambda: self.leads,
            runs=lambda: self.runs,
            run=lambda namespace, name: next(
                (run for run in self.runs if (run.namespace, run.name) == (namespace, name)), None
            ),
            queues=lambda: self.queues,
            nodes=lambda: self.nodes,
            pods_of=lambda uid: self.pods.get(uid, ()),
            foreign_requests=lambda: self.foreign,
            reports=lambda uid: self.reports.get(uid, {}),
            run_sets=lambda: self.sets,
            run_set=lambda namespace, name: next(
                (each for each in self.sets if (each.namespace, each.name) == (namespace, name)), None
            ),
            events=self.said.for_run,
            levels=usual.topology_levels,
            gpu_types=usual.gpu_types,
        )
        return WebPage(sources, self.reviewer.post, CallerApi(self.api.credentials, self.clock), self.clock)


def busy_cluster(clock: Clock, count: int = 512, seed: int = 7) -> Cluster:
    """Runs of two teams on most of ``count`` nodes, some of which are in trouble; the clock is to be at NOW."""
    dice = random.Random(seed)
    cluster = Cluster(clock, nodes=racks(count))
    cluster.reviewer.admit("admin", "ada", "*", "nodes", "queues", "edit", "logs")
    cluster.api.may = {"admin": frozenset({"edit", "logs"}), "tenant": frozenset()}
    cluster.reviewer.admit("tenant", "tim", "research")
    free = iter([view.name for view in cluster.nodes])
    shares: tuple[tuple[int, str, str], ...] = (
        (64, "research", "llama-70b"),
        (16, "research", "ablation-lr"),
        (128, "products", "search-ranker"),
    )
    shares += ((32, "products", "moe-16x"), (24, "research", "vision-l"), (8, "research", "sft-chat"))
    shares += ((48, "products", "speech-2"), (12, "research", "rlhf-probe"))
    for size, namespace, name in shares:
        nodes = [next(free) for _ in range(max(1, size * count // 512))]
        cluster.runs.append(_trains(cluster, namespace, name, nodes, dice))
    cluster.runs += _waits(clock.now())
    _sweeps(cluster)
    ended = sample_runs.failed()
    ended["metadata"] |= {"namespace": "research", "name": "gpt2-debug", "uid": "uid-ended"}
    cluster.runs.append(parse_run(ended))
    cluster.api.objects[f"{RUNS.path('research')}/gpt2-debug"] = ended
    cluster.queues = [
        queue(),
        queue("batch", visibility="OwnNamespace", quotas=[{"gpuType": "H100", "nominalNodes": 64}]),
    ]
    _trouble(cluster, clock.now(), dice)
    return cluster


def _trains(cluster: Cluster, namespace: str, name: str, nodes: Sequence[str], dice: random.Random) -> RunView:
    now = cluster.clock.now()
    step = dice.randrange(72_500, 74_000)
    state = {"speech-2": "Recovering", "sft-chat": "Launching"}.get(name, "Running")
    told: Json = {
        "state": state,
        "reason": "Gathering" if state != "Running" else "StepsReported",
        "resolved": {"generation": 1, "gpuType": "H100", "gpusPerNode": 8, "cpu": "190", "memory": "1900Gi"},
        "progress": {
            "step": step,
            "totalSteps": 250_000,
            "loss": f"{1.9 + dice.random() / 5:.3f}",
            "time": sample_runs.at(3),
            "summary": f"{step // 1000}k/250k",
        },
        "goodput": {
            "buckets": {"queue": 2000, "provision": 180, "init": 240, "loading": 320, "productive": 92_966}
            | {"saveBlock": 1130, "lostWork": 2690, "detect": 64, "restart": 410},
            "ettr": "0.930",
            "goodput": "0.949",
            "gpuHours": f"{len(nodes) * GPUS[names.GPU_RESOURCE] * 97_900 / 3600:.0f}",
            "mfu": "0.412",
            "mttrP50": 96,
            "mttrP95": 190,
            "failures": 3,
            "stepsLost": 3 * _LOST_STEPS,
            "time": sample_runs.at(3),
        },
        "checkpoint": _checkpoints(step),
        "attempts": list(_attempts(len(nodes), nodes)),
        "attempt": 4,
        "start": sample_runs.running()["status"]["start"]
        | {"attempt": 4 if state == "Running" else 3, "resume": _checkpoints(step)["resume"]},
        "totals": {"attempts": 4, "restarts": 3, "nodesReplaced": 1, "restartsInPlace": 2},
    }
    run = holding(namespace, name, nodes, **told)
    inventory = (
        saved(step - 400),
        saved(step - 900),
        saved(step - 1400, Verdict.INVALID, "shard 12 of 512 is 0 bytes: the save did not finish"),
    )
    losses = [dice.gauss(0, 1) for _ in nodes]
    cluster.reports[run.uid] = {}
    for slot, on in enumerate(nodes):
        behind = 2 if losses[slot] > 2.2 else 0
        seen = (saved_here(step - 200, slot), *inventory)
        timing = TimingReport(section="Step", step=1.32, save_block=11.0, persist=64.0)
        cluster.reports[run.uid][slot] = report(
            slot, on, step - behind, now=now, attempt=4, inventory=seen, timing=timing, listens=True
        )
    for ago, kind, reason, note in _EVENTS:
        cluster.said.keep(run.uid, Event(kind, Recorded(reason), ActionWord.REPORT, note), now - ago)
    return run


def _checkpoints(step: int) -> Json:
    where = "/shared-checkpoints/c83fa/a3/step"
    return {
        "resume": {"tier": "shared", "step": 66_000, "path": f"{where}-66000", "attempt": 3},
        "latest": [saved_as(step - 200, "local"), saved_as(step - 400, "shared")],
        "rejected": [
            {"tier": "shared", "step": 66_500, "path": f"{where}-66500", "attempt": 3}
            | {"reason": "shard 12 of 512 is 0 bytes: the save did not finish"}
        ],
        "cadence": {
            "interval": 600,
            "steps": 500,
            "why": "a save stops training for 11 s",
        },
    }


def saved_as(step: int, tier: str) -> Json:
    """A checkpoint as status has it."""
    return {"tier": tier, "step": step, "path": f"/{tier}-checkpoints/c83fa/a4/step-{step}", "attempt": 4}


_LOST_NODE = "gpu-1037"  # of none of the racks: it was taken away
_STEPS, _LOST_STEPS = 22_000, 700
"""Of every attempt that has ended: those that the next one went on from, and those that it took after its last save."""
_STARTS_UP = (240, 110, 110, 100)
"""Seconds from START to the first step."""
_EVENTS = (
    (38_500.0, "Normal", "Started", "attempt 3 started on all ranks from step 44000 (shared)"),
    (9_460.0, "Warning", "NodeLost", f"no heartbeat for 12 s from {_LOST_NODE} and it is NotReady; it is replaced"),
    (9_350.0, "Normal", "Started", "attempt 4 started on all ranks from step 66000 (shared)"),
)


def _attempts(count: int, nodes: Sequence[str]) -> Iterator[Json]:
    begins = (98_000, 67_500, 38_500, 9_350)
    ends = (67_740, 38_610, 9_460, None)
    rank = 7 % count
    told = (
        ("Hang", "RestartInPlace", nodes[rank], "no step for 184 s, three times the longest interval"),
        ("Application", "RestartInPlace", nodes[rank], f"rank {rank} ended with exit code 1: loss is NaN"),
        ("NodeLost", "Replace", _LOST_NODE, f"no heartbeat for 12 s from {_LOST_NODE} and the node is NotReady"),
    )
    for index, (begun, ended) in enumerate(zip(begins, ends, strict=True)):
        attempt: Json = {"number": index + 1, "startedAt": sample_runs.at(begun), "nodes": count}
        attempt |= {"admittedAt": sample_runs.at(98_180), "firstStepAt": sample_runs.at(begun - _STARTS_UP[index])}
        if index:
            attempt |= {"resumeStep": _STEPS * index, "resumeTier": "shared"}
        if ended is not None:
            cause, action, where, words = told[index]
            attempt |= {"endedAt": sample_runs.at(ended), "seenAt": sample_runs.at(ended - 20)}
            attempt |= {"cause": cause, "message": words, "action": action, "rank": rank, "node": where}
            attempt |= {"lastStep": _STEPS * (index + 1) + _LOST_STEPS, "stepsLost": _LOST_STEPS}
        yield attempt


def _waits(now: float) -> list[RunView]:
    soon, later = sample_runs.at(-2400), sample_runs.at(-26_000)
    rests = "every run uses its whole time limit, and nobody more urgent comes"
    told = sample_runs.at(20)
    return [
        waiting(
            "research",
            "llama-405b",
            192,
            position=1,
            priority=12_400,
            factors={"class": 10_000, "age": 2400},
            estimatedStart=soon,
            assumption=rests,
            updated=told,
            blockedBy=["products/search-ranker"],
            message="needs 192 nodes, 176 fit: 332 booked by runs, 4 not ready",
        ),
        waiting(
            "products",
            "ads-v9",
            64,
            position=2,
            priority=11_020,
            updated=told,
            reason="Priority",
            message="behind research/llama-405b",
            blockedBy=["research/llama-405b"],
        ),
        waiting(
            "research",
            "tokenizer-sweep",
            8,
            position=3,
            priority=9_800,
            factors={"age": 800, "fairShare": 9000},
            estimatedStart=later,
            assumption=rests,
            updated=told,
            reason="Priority",
            message="behind research/llama-405b",
            blockedBy=["research/llama-405b", "products/ads-v9"],
        ),
        waiting(
            "research", "eval-night", 2, position=0, reason="Dependency", message="waits for tokenizer-sweep: Succeeded"
        ),
        waiting(
            "research",
            "distill-3b",
            16,
            "batch",
            position=2,
            priority=8_000,
            updated=told,
            reason="Quota",
            message="queue batch uses 64 of its 64 H100 nodes; the run needs 16",
        ),
        waiting(
            "products",
            "secret-project",
            32,
            "batch",
            position=1,
            priority=9_000,
            updated=told,
            reason="Quota",
            message="queue batch uses 64 of its 64 H100 nodes; the run needs 32",
        ),
    ]


SWEEP: Json = {
    "observedGeneration": 1,
    "state": "Running",
    "reason": "RunsActive",
    "done": "43/100",
    "counts": {"total": 100, "pending": 55, "running": 2, "succeeded": 41, "failed": 1, "cancelled": 1},
    "indices": {"active": "43-46", "succeeded": "0-40", "failed": "41", "cancelled": "42"},
}
"""Of a hundred indices two train, and two have runs that wait."""


def sweep(namespace: str, name: str, status: Json | None = None, **spec: Any) -> RunSetView:
    """An array of a hundred, eight at once."""
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "generation": 1}
    meta |= {"resourceVersion": "9", "creationTimestamp": sample_runs.at(7200)}
    asked = {"indices": "0-99", "maxRunning": 8, "template": {"spec": sample_runs.SPEC}} | spec
    return parse_run_set({"metadata": meta, "spec": asked, "status": SWEEP if status is None else status})


def member(owner: RunSetView, index: int, run: RunView) -> RunView:
    """``run`` as that of an index."""
    name = f"{owner.name}-{index}"
    uid = f"uid-{owner.namespace}-{name}"
    return replace(run, set_uid=owner.uid, set_name=owner.name, namespace=owner.namespace, name=name, uid=uid)


def _sweeps(cluster: Cluster) -> None:
    own, foreign = sweep("research", "lr-sweep"), sweep("products", "ads-sweep")
    cluster.sets = [own, foreign]
    for index, position in ((45, 4), (46, 5)):
        cluster.runs.append(member(own, index, waiting("research", "x", 2, position=position, reason="Resources")))
    cluster.said.keep(
        own.uid, Event("Normal", Recorded("RunsCreated"), ActionWord.CREATE_RUN, "made 4 runs"), cluster.clock.now()
    )


def _trouble(cluster: Cluster, now: float, dice: random.Random) -> None:
    def change(index: int, **changes: Any) -> None:
        cluster.nodes[index] = replace(cluster.nodes[index], **changes)

    count = len(cluster.nodes)
    for index in dice.sample(range(count), max(1, count // 100)):
        change(index, ready=False, ready_changed_at=now - 600)
    for index in range(count - 16, count - 8):
        change(index, unschedulable=True, taints=(Taint(names.TAINT_UNSCHEDULABLE, "NoSchedule"),))
    change(count - 40, drain="firmware 24.3", unschedulable=True)
    change(count - 41, drain="firmware 24.3", unschedulable=True)
    change(5, conditions={"XidCriticalError": "Xid79"}, conditions_changed_at=now - 900)
    failures = tuple(
        NodeFailure(f"products/moe-{size}x", now - ago, "NCCL:Timeout") for size, ago in ((8, 30_000.0), (16, 8_000.0))
    )
    change(21, failures=failures, suspect="first failures of 2 runs within a day")
    for index in range(count - 60, count - 52):
        cluster.foreign[cluster.nodes[index].name] = {names.GPU_RESOURCE: 4, "pods": 1}
