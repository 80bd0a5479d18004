"""A cluster to look at: nodes in racks, and runs of two teams in all states."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lockstep.api.base import names
from lockstep.controller.kube.caller import CallerApi
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.recent_events import RecentEvents
from lockstep.controller.runtime.resources import RUNS
from lockstep.controller.web.server import WebPage
from lockstep.controller.web.sources import PageSources
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.plan import Event
from lockstep.core.model.reasons import ActionWord, Recorded
from lockstep.core.model.snapshot import NodeFailure, NodeView, PodView, QueueView, RunView, Taint
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import TimingReport, Verdict, WorkerReport
from support import sample_runs
from support.web_api import ApiServer, Reviewer
from support.web_views import (
    GPUS,
    Json,
    holding,
    member,
    queue,
    racks,
    report,
    saved,
    saved_as,
    saved_here,
    sweep,
    waiting,
)


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
