"""What nobody vouches for, made up: the words of workers, and whatever others can write of what a decision reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from fuzz.asks import ask, submissions
from fuzz.structural import Making, problem, schema_of
from lockstep.api.base import names
from lockstep.api.base.times import to_rfc3339
from lockstep.api.queue import TrainingQueueSpec
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.controller.runtime.patches import dump_status
from lockstep.controller.store.whole_status import (
    is_assignment_missing,
    is_reservation_missing,
    without_assignment,
    without_reservation,
)
from lockstep.controller.workers.protocol import MalformedError, _require_a_gang
from lockstep.core.checkpoints.archive_job import RESULT_FORMAT
from lockstep.core.model import reasons
from lockstep.core.model.cluster_objects import parse_pod
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import (
    DryRunResult,
    JobPhase,
    JobView,
    Lag,
    NodeFailure,
    NodeView,
    PodPhase,
    PodView,
    PoolRecord,
    QueueView,
    RefusedCreate,
    RunSnapshot,
    RunView,
    Taint,
)
from lockstep.core.model.start_record import CollectiveStart, Members, Resume
from lockstep.core.model.worker_report import (
    CheckpointReport,
    ExitReport,
    PartlyEndedStep,
    PointReport,
    PreviousSavesReport,
    ProgressReport,
    Sign,
    StackReport,
    StepEnd,
    TimingReport,
    UnrecognisedReport,
    Verdict,
    VerifyReport,
    WarmUpReport,
    WorkerPhase,
    WorkerReport,
)

COUNTS = (0, 1, 1, 2, 3, 5, 99, 2**31 - 1)
EARLIER = f"/shared-checkpoints/ns/{'x' * 200}/uid-x/a1/step-1"
STEPS = (0, 1, 3, 5, 10, 1000, 2**40, 2**53)
SPANS = (0.0, 0.001, 1.0, 40.0, 4000.0, 366 * 86_400.0)
CODES = (0, 1, 2, 14, 16, 17, 64, 93, 126, 127, 128, 134, 137, 139, 143, 201, 247, 255, -1, 2**31 - 1)
FORMATS = ("", "Manifest", "TorchDCP", "Megatron", "DeepSpeed", "Orbax", "Torch", "Nobody's")
KINDS = (
    "Xid:79",
    "Xid:48",
    "Xid:31",
    "NCCL:Timeout",
    "CUDA:OutOfMemory",
    "Loss:NaN",
    "Loss:Inf",
    "Rule:mine",
    "",
    "Watch:Problem",
    "Xid:",
    "Xid:x",
    "Storage:NoSpace",
)
RANGES = ("", "0", "0-1", "0-2", "1", "0,0", "1,0", "2-0", "0-65535", "7", "x", "-", "0-99999999999", "²")
POD_REASONS = (
    *("", "Evicted", "OOMKilled", "Error", "ImagePullBackOff", "Unschedulable", "NodeShutdown", "DeadlineExceeded"),
    *(
        "UnexpectedAdmissionError",
        "OutOfcpu",
        "TopologyAffinityError",
        "NodeAffinity",
        "NodePorts",
        "ContainerCannotRun",
    ),
    *("CreateContainerConfigError", "Completed", "PreemptionByScheduler", "StartError", "FailedMount", "x"),
)
NODES = ("n0", "n1", "n2", "n3", "n4", "n5", "n9", "")


def _words() -> Mapping[str, tuple[Any, ...]]:
    """Of statuses, by field: as an operator writes them, and as people edit them."""
    enums = [kind for kind in vars(reasons).values() if isinstance(kind, type) and issubclass(kind, str)]
    every = tuple(str(word) for kind in enums for word in kind)
    paths = ("", "/shared/5", "/local/5/rank-0", "/shared-checkpoints/uid-one/a1/step-5", "/", "x", "a1/step-5")
    return {
        "type": tuple(map(str, reasons.ConditionType)),
        "reason": every,
        "cause": every,
        "state": (*map(str, reasons.Phase), *map(str, reasons.Outcome), "", "{}", '{"since": 1}', "[1, 2]"),
        "action": (*map(str, reasons.ActionWord), "Upload", "Restore", "List", "Tidy"),
        "outcome": ("", "Saved", "Expired", "Failed"),
        "tier": ("local", "shared", "archive", "", "x"),
        "path": paths,
        "startRoot": paths,
        "succeeded": RANGES,
        "victims": RANGES,
        "slots": RANGES,
        "order": RANGES,
        "node": NODES,
        "nodesReady": ("", "2/2", "0/2", "x", "2/"),
        "format": FORMATS,
        "name": ("checkpoint-request", "restart-request", "one", "mine", "n0", "one-uid-o-0-1", "x"),
        "token": ("a", "b", ""),
        "uri": ("", "s3://bucket/x", "s3://other"),
        "cpu": ("", "190", "0.5", "1e0", "x", "-1", "1e900"),
        "memory": ("", "1900Gi", "x", "0", "1e900"),
        "gpuType": ("", "H100", "Any", "x"),
        "configMap": ("", "", "one-uid-o-assignment-1-0123456789abcdef"),
        "gpuHours": ("", "0.5", "x", "nan", "1e400", "-1"),
    }


_STATUS = Making(_words())


def corrupted(rng: Random, snapshot: RunSnapshot, now: float) -> tuple[RunSnapshot, float, str]:
    """The snapshot with a few of the things changed that somebody else may write, as an API server or the listener
    would let it through; and in a word, what was changed."""
    did: list[str] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        name, change = rng.choice(_CHANGES)
        found = change(rng, snapshot, now)
        if found is not None:
            snapshot = found
            did.append(name)
    if rng.random() < 0.15:
        now += rng.choice((0.5, 3.0, 20.0, 100.0, 400.0, 4000.0, 1e5, 1e7, 3e8, -0.5, -60.0))
        did.append("time")
    return snapshot, now, ", ".join(did)


# -- one thing each ----------------------------------------------------------------------------------


def stored_status(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    """Somebody edits the status; the API server takes it."""
    return replace(snapshot, run=with_edited_status(rng, snapshot.run, now))


def with_edited_status(rng: Random, run: RunView, now: float) -> RunView:
    """Somebody has edited it in places."""
    schema, _STATUS.now = schema_of("trainingruns", "status"), now
    body = dump_status(run.status)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        edited = _STATUS.altered(schema, body, rng)
        if not problem(schema, edited):
            body = edited
    return _read(run, body)


def statuses(rng: Random, run: RunView, now: float) -> Iterator[RunView]:
    """The run with its status edited, in every field that there is."""
    schema, _STATUS.now = schema_of("trainingruns", "status"), now
    for body in _STATUS.everywhere(schema, dump_status(run.status), rng):
        if not problem(schema, body):
            yield _read(run, body)


def _read(run: RunView, body: Mapping[str, Any]) -> RunView:
    read = parse_run({"metadata": _metadata(run), "spec": {}, "status": body})
    edited = replace(run, status=read.status)
    # The operator reads the ConfigMaps that a status names, and decides nothing before.
    if is_assignment_missing(edited):
        edited = without_assignment(edited)
    return without_reservation(edited) if is_reservation_missing(edited) else edited


def _metadata(run: RunView) -> Mapping[str, Any]:
    return {
        "namespace": run.namespace,
        "name": run.name,
        "uid": run.uid,
        "resourceVersion": run.resource_version,
        "generation": run.generation,
        "creationTimestamp": to_rfc3339(run.created_at),
    }


def reports(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    known = dict(snapshot.reports)
    if not known:
        return None
    slot = rng.choice([*known])
    match rng.randrange(8):
        case 0:
            del known[slot]
        case 1:
            elsewhere = rng.choice((*known, 7, 65_535))
            known[elsewhere] = replace(known[slot], slot=elsewhere)
        case 2:
            late = rng.choice((0.0, 3.0, 9.0, 60.0, 1e6))
            known[slot] = replace(known[slot], received_at=now - late, polling=late < 3)
        case _:
            known[slot] = lied(rng, known[slot], now)
    return replace(snapshot, reports=known)


def lied(rng: Random, report: WorkerReport, now: float) -> WorkerReport:
    """A report as the listener lets it through, whatever the truth is."""
    for _ in range(rng.choice((1, 2, 3))):
        report = replace(report, **rng.choice(_LIES)(rng, report, now))
    return report


def _row(rng: Random, report: WorkerReport, now: float) -> CheckpointReport:
    tier, step = rng.choice(("local", "shared")), rng.choice(STEPS)
    path = rng.choice(
        (
            f"/{tier}/{step}",
            f"/{tier}/{step}/rank-{rng.randrange(4)}",
            f"/{tier}-checkpoints/uid-one/a1/step-{step}",
            "x",
        )
    )
    return CheckpointReport(
        tier=tier,  # type: ignore[arg-type]
        step=step,
        path=path,
        verdict=rng.choice([*Verdict]),
        reason=rng.choice(("", "torn", "x" * 256)),
        format=rng.choice(FORMATS),
        attempt=rng.choice((report.attempt, *COUNTS)),
        world=rng.choice(COUNTS),
        run_uid=rng.choice(("", "uid-one", "uid-two")),
        bytes=rng.choice((0, 1, 2**40, 2**63 - 1)),
        committed_at=rng.choice((0.0, 1.0, now, now + 1e6, 2.0**40)),
        as_copied=rng.random() < 0.2,
        owners=rng.choice(((), (0, 1), (1,), tuple(range(64)))),
    )


def start_of(rng: Random, attempt: int) -> CollectiveStart | None:
    """One that the protocol lets through."""
    parts = [Members(rng.choice(RANGES), rng.choice(COUNTS)) for _ in range(rng.choice((0, 1, 1, 2)))]
    resume = Resume(rng.choice(("local", "shared", "x")), rng.choice(STEPS), rng.choice(("/shared/5", "")))
    start = CollectiveStart(
        attempt=rng.choice((attempt, attempt + 1, *COUNTS)),
        assignment_hash=rng.choice(("", "0123456789abcdef", "x" * 64)),
        master_address=rng.choice(("10.0.0.1", "::1", "x")),
        master_port=rng.choice((0, 1, 40_000, 65_535)),
        resume=resume if rng.random() < 0.5 else None,
        members=tuple(parts),
        order=rng.choice(RANGES),
    )
    try:
        _require_a_gang(start)
    except MalformedError:
        return None
    return start


_Lie = Callable[[Random, WorkerReport, float], Mapping[str, Any]]
_LIES: Sequence[_Lie] = (
    lambda rng, _, now: {"phase": rng.choice([*WorkerPhase]), "since": now},
    lambda rng, r, now: {"attempt": rng.choice((r.attempt + 1, max(0, r.attempt - 1), *COUNTS)), "since": now},
    lambda rng, r, now: {"ready_for": rng.choice((r.ready_for + 1, *COUNTS))},
    lambda rng, r, now: {"start": start_of(rng, r.attempt)},
    lambda rng, r, now: {
        "phase": WorkerPhase.EXITED,
        "exit": ExitReport(
            code=rng.choice(CODES),
            signal=rng.choice((0, 0, 9, 11, 15, 255)),
            at=rng.choice((0.0, now - 5, now, now + 1e5, 253_402_300_799.0)),
            reason=rng.choice((*map(str, reasons.ExitReason), "", "x")),
            stderr_tail=rng.choice(("", "Traceback\nValueError: x", "é" * 4096, "NCCL error")),
        ),
    },
    lambda rng, r, now: {"exit": None},
    lambda rng, r, now: {
        "progress": ProgressReport(
            step=rng.choice(STEPS),
            at=rng.choice((0.0, now - 60, now, now + 1e6, 253_402_300_799.0)),
            loss=rng.choice(("", "2.5", "nan", "inf", "-inf", "1e400", "1e-400", "x", "٣")),
            total_steps=rng.choice((None, 0, 1, 2**53)),
        )
    },
    lambda rng, r, now: {"progress": None},
    lambda rng, r, now: {"inventory": tuple(_row(rng, r, now) for _ in range(rng.choice((0, 1, 2, 5, 32))))},
    lambda rng, r, now: {"inventory": (*r.inventory, _row(rng, r, now))[-32:]},
    lambda rng, r, now: {
        "previous_saves": tuple(
            PreviousSavesReport(rng.choice(("", "uid-x", "a" * 64)), rng.choice(STEPS), rng.choice(("", "/", EARLIER)))
            for _ in range(rng.choice((0, 1, 4)))
        )
    },
    lambda rng, r, now: {
        "unrecognised": rng.choice((None, ()))
        if rng.random() < 0.3
        else tuple(
            UnrecognisedReport(rng.choice(("local", "shared")), f"/shared/{n}", rng.choice(COUNTS), "x" * 256)  # type: ignore[arg-type]
            for n in range(rng.choice((1, 8)))
        )
    },
    lambda rng, r, now: {
        "verified": tuple(
            VerifyReport(row.tier, row.path, rng.choice([*Verdict]), "what was read is not what was written")
            for row in r.inventory[:16]
        )
    },
    lambda rng, r, now: {"problem": rng.choice(("", "no GPU is seen", "x" * 1024))},
    lambda rng, r, now: {"leaving_by": rng.choice((0.0, now + 30, now - 30, 253_402_300_799.0))},
    lambda rng, r, now: {"saved": rng.choice(("", "x", "1-5", "a1-0"))},
    lambda rng, r, now: {
        "timing": TimingReport(
            section=rng.choice(("Init", "Step", "Save", "", "x")),
            step=rng.choice(SPANS),
            longest=rng.choice(SPANS),
            intervals=rng.choice(COUNTS),
            longest_init=rng.choice(SPANS),
            longest_save=rng.choice(SPANS),
            save_block=rng.choice(SPANS),
            persist=rng.choice(SPANS),
        )
    },
    lambda rng, r, now: {
        "signs": tuple(
            Sign(rng.choice(KINDS), rng.choice((0.0, now - 5, now, now + 1e6)), rng.choice(STEPS), "a line")
            for _ in range(rng.choice((1, 2, 16)))
        )
    },
    lambda rng, r, now: {"steps_port": rng.choice((0, 1, 65_535))},
    lambda rng, r, now: {
        "step_ends": tuple(
            StepEnd(
                rng.choice((0.0, now - 5, now, now + 1e6)),
                rng.choice(("", "1", "x" * 64)),
                rng.choice(COUNTS),
                rng.choice(("", "python")),
                rng.choice((None, 0, 1, 137, -(2**31))),
                rng.choice((None, 0, 9, 255)),
                rng.choice(("", "Traceback: x", "é" * 1024)),
                rng.choice((True, False)),
                rng.choice((None, 0, 1, 2, 2**31 - 1)),
                rng.choice(("", "NodeUnreachable", "OOMKilled", "x")),
            )
            for _ in range(rng.choice((1, 2, 16)))
        )
    },
    lambda rng, r, now: {
        "partly_ended": tuple(
            PartlyEndedStep(
                rng.choice(("", "MPI", "x" * 64)),
                rng.choice(COUNTS),
                rng.choice((None, 0, 1, 2, 2**31 - 1)),
                rng.choice((0.0, now - 5, now, now + 1e6)),
                rng.choice(COUNTS),
                rng.choice(COUNTS),
                rng.choice((0.0, now - 5, now + 1e6)),
            )
            for _ in range(rng.choice((1, 2, 4)))
        )
    },
    lambda rng, r, now: {"asks": tuple(ask(rng) for _ in range(rng.choice((1, 1, 4))))},
    lambda rng, r, now: {"stacks": StackReport(rng.choice(("", "x", "a1")), rng.choice(("", "é" * 2048)))},
    lambda rng, r, now: {"pointed": PointReport("/shared/5", rng.choice(STEPS), rng.choice(("", "it is read-only")))},
    lambda rng, r, now: {
        "warmed": WarmUpReport(
            rng.choice(("", "x")), rng.choice(SPANS), rng.choice((-1, 0, 1, 65_535)), rng.choice(("", "x"))
        )
    },
    lambda rng, r, now: {"listens": not r.listens},
    lambda rng, r, now: {"port": rng.choice((0, 1, 65_535)), "address": rng.choice(("::1", "x", "10.0.0.1"))},
    lambda rng, r, now: {"clock_skew": rng.choice((0.0, -40.0, 40.0, 2.0**40, -(2.0**40)))},
    lambda rng, r, now: {"incarnation": rng.choice((r.incarnation + 1, 0, 2**31 - 1))},
)


def pods(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    found = list(snapshot.pods)
    if not found:
        return None
    index = rng.randrange(len(found))
    match rng.randrange(6):
        case 0:
            del found[index]
        case 1:
            if (made := forged(rng, found[index], now)) is not None:
                found.append(made)
        case _:
            found[index] = replace(found[index], **rng.choice(_ABOUT_PODS)(rng, found[index], now))
    return replace(snapshot, pods=tuple(found))


def forged(rng: Random, pod: PodView, now: float) -> PodView | None:
    """One that somebody else made in the gang's name, with the run for its owner. None: it is read as nobody's."""
    slot, incarnation = rng.choice((0, 1, 2, 7, 20_000)), rng.choice((0, 1, 2, 99, 2**31 - 1))
    name = names.pod_name(pod.run, pod.run_uid, slot, incarnation)
    start, *ends = name.rsplit("-", 2)
    if rng.random() < 0.3:
        name = "-".join((start, *("0" * rng.randrange(3) + end for end in ends)))
    read = _as_read(name, pod)
    if read is None:
        return None
    return replace(
        pod,
        name=name,
        uid=f"forged-{rng.randrange(1000)}",
        slot=read.slot,
        incarnation=read.incarnation,
        node=rng.choice(NODES),
        bound=rng.random() < 0.5,
        resolved=rng.choice(("", pod.resolved, "{}", "[", '{"nodes": 2}', '{"gpusPerNode": "x"}')),
        created_at=rng.choice((0.0, now, now + 100)),
        attempt=rng.choice(COUNTS),
    )


def _as_read(name: str, pod: PodView) -> PodView | None:
    owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "name": pod.run, "uid": pod.run_uid}
    meta = {"name": name, "uid": "forged", "ownerReferences": [owner | {"controller": True}]}
    read = parse_pod(json.dumps({"metadata": meta}).encode()).view
    return read if isinstance(read, PodView) else None


_ABOUT_PODS: Sequence[Callable[[Random, PodView, float], Mapping[str, Any]]] = (
    lambda rng, p, now: {"phase": rng.choice([*PodPhase]), "exit_code": rng.choice((None, *CODES))},
    lambda rng, p, now: {
        "phase": PodPhase.FAILED,
        "reason": rng.choice(POD_REASONS),
        "message": rng.choice(("", "Usage of EmptyDir volume exceeds the limit", "exceeded quota", "é" * 3000)),
        "exit_code": rng.choice((None, *CODES)),
        "ended_at": rng.choice((None, 0.0, now - 1, now + 100)),
    },
    lambda rng, p, now: {"reason": rng.choice(POD_REASONS), "message": rng.choice(("", "x", "é" * 3000))},
    lambda rng, p, now: {"deleting": True, "killed_at": rng.choice((0.0, now + 30, now - 30))},
    lambda rng, p, now: {"bound": not p.bound, "bound_at": rng.choice((None, now, 0.0))},
    lambda rng, p, now: {"started_at": rng.choice((None, 0.0, now - 10, now + 10))},
    lambda rng, p, now: {"node": rng.choice(NODES)},
    lambda rng, p, now: {"incarnation": rng.choice((0, 1, 2, 3, 99, 2**31 - 1))},
    lambda rng, p, now: {"slot": rng.choice((0, 1, 2, 3, 7, 32_767))},
    lambda rng, p, now: {"disruption": rng.choice(("EvictionByEvictionAPI", "DeletionByTaintManager", "x"))},
    lambda rng, p, now: {"resolved": rng.choice(("", "{}", "[", "null", '{"nodes": -1}', "x" * 300))},
    lambda rng, p, now: {"attempt": rng.choice(COUNTS)},
    lambda rng, p, now: {"created_at": rng.choice((0.0, now - 1000, now + 1000))},
    lambda rng, p, now: {"uid": "another", "owner_uid": rng.choice((p.owner_uid, "", "x"))},
    lambda rng, p, now: {"pod_ip": rng.choice(("", "::1", "10.0.0.9"))},
)


def nodes(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    known = dict(snapshot.nodes)
    if not known:
        return None
    name = rng.choice([*known])
    if rng.random() < 0.2:
        del known[name]
    else:
        known[name] = altered_node(rng, known[name], now)
    return replace(snapshot, nodes=known)


def altered_node(rng: Random, node: NodeView, now: float) -> NodeView:
    """As its kubelet, a controller or an administrator may make it."""
    return replace(node, **rng.choice(_ABOUT_NODES)(rng, node, now))


_TAINTS = (
    *(
        (names.TAINT_NOT_READY, "NoExecute"),
        (names.TAINT_UNREACHABLE, "NoExecute"),
        (names.TAINT_UNSCHEDULABLE, "NoSchedule"),
    ),
    *(
        (names.TAINT_OUT_OF_SERVICE, "NoExecute"),
        ("nvidia.com/gpu", "NoSchedule"),
        ("x", "NoExecute"),
        ("x", "PreferNoSchedule"),
    ),
)
_ABOUT_NODES: Sequence[Callable[[Random, NodeView, float], Mapping[str, Any]]] = (
    lambda rng, n, now: {"ready": not n.ready, "ready_changed_at": rng.choice((0.0, now - 400, now, now + 60))},
    lambda rng, n, now: {"unschedulable": not n.unschedulable},
    lambda rng, n, now: {"taints": tuple(Taint(*rng.choice(_TAINTS)) for _ in range(rng.choice((0, 1, 2))))},
    lambda rng, n, now: {"drain": rng.choice(("", "new firmware", "é" * 256))},
    lambda rng, n, now: {
        "conditions": rng.choice(({}, {"GpuUnhealthy": "Xid"}, {"MemoryPressure": ""}, {"x": "y"})),
        "conditions_changed_at": rng.choice((0.0, now - 10, now)),
    },
    lambda rng, n, now: {
        "allocatable": rng.choice(
            (
                {},
                {"cpu": 1},
                {**n.allocatable, "nvidia.com/gpu": 0},
                {**n.allocatable, "nvidia.com/gpu": 3},
                {"nvidia.com/gpu": 8, "cpu": 2**63 - 1, "memory": 0, "pods": 1},
            )
        )
    },
    lambda rng, n, now: {"deleting": True},
    lambda rng, n, now: {"labels": rng.choice(({}, {**n.labels, "nvidia.com/gpu.product": "NVIDIA-H200"}))},
    lambda rng, n, now: {
        "failures": tuple(
            NodeFailure(f"ns/{rng.choice(('one', 'two', 'x'))}", rng.choice((0.0, now - 100, now)), "Hardware")
            for _ in range(rng.choice((1, 8)))
        ),
        "suspect": rng.choice(("", "two runs")),
    },
    lambda rng, n, now: {"internal_ip": rng.choice(("", "::1"))},
    lambda rng, n, now: {"uid": "another"},
)


def jobs(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    awaited = snapshot.run.status.checkpoint.archive.job
    if awaited is None and not snapshot.jobs:
        return None
    name = awaited.name if awaited is not None else snapshot.jobs[0].name
    return replace(snapshot, jobs=(job(rng, snapshot.run, name, now),) if rng.random() < 0.9 else ())


def job(rng: Random, run: RunView, name: str, now: float) -> JobView:
    """As it may stand, with whatever its pod has left as its last words."""
    row = {
        "step": rng.choice((*STEPS, -1, "x")),
        "attempt": rng.choice((1, 2, 99)),
        "bytes": rng.choice((0, 2**53, 2**70)),
    }
    said = {
        "format": rng.choice((RESULT_FORMAT, RESULT_FORMAT, RESULT_FORMAT, "x")),
        "outcome": rng.choice(("Done", *map(str, reasons.ArchiveFailure), "x")),
        "message": rng.choice(("", "x" * 2000)),
        "path": rng.choice(("", "/shared/5", "x")),
    }
    said |= {"checkpoint": row} if rng.random() < 0.6 else {}
    said |= {"published": [row] * rng.choice((0, 1, 9))} if rng.random() < 0.5 else {}
    return JobView(
        namespace=run.namespace,
        name=name,
        uid="job",
        run_uid=run.uid,
        phase=rng.choice([*JobPhase]),
        idle_since=rng.choice((0.0, now - 1000, now)),
        finished_at=rng.choice((0.0, now - 5, now + 5)),
        message=rng.choice(("", "BackoffLimitExceeded", "é" * 2000)),
        result=rng.choice((json.dumps(said), json.dumps(said), "", "{", "null", "[]")),
    )


def cluster(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    leadership = snapshot.leadership
    match rng.randrange(5):
        case 0:
            since = rng.choice((now, now - 5, now - 1e6, now + 5))
            leadership = replace(leadership, since=since)
        case 1:
            leadership = replace(leadership, disruption=rng.choice(("", "3 of 6 nodes are NotReady")), calm_since=now)
        case 2:
            lag = Lag(
                rng.choice((0.0, 3.0, 100.0)),
                rng.choice((0.0, 9.0)),
                ((now - 3, 20.0),) if rng.random() < 0.5 else (),
                rng.choice((0.0, 0.0, 70.0)),
            )
            leadership = replace(leadership, lag=lag)
        case 3:
            leadership = replace(leadership, pools={"": PoolRecord(rng.choice((0, 9)), rng.choice((0.0, 0.1, 1e9)))})
        case _:
            leadership = replace(leadership, workers=rng.choice((0, 100_000)))
    return replace(snapshot, leadership=leadership)


def refusals(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    run = snapshot.run
    if rng.random() < 0.5:
        generation = rng.choice((run.generation, run.generation - 1))
        accepted, at = rng.choice((None, False, True)), rng.choice((0.0, now - 100, now - 6, now))
        return replace(snapshot, dry_run=DryRunResult(generation, accepted, rng.choice(("", "é" * 2000)), at))
    pod = names.pod_name(run.name, run.uid, rng.randrange(3), rng.choice((1, 2)))
    refused = RefusedCreate(
        rng.choice((0.0, now - 500, now)), rng.choice(("exceeded quota: x", "é" * 2000)), rng.random() < 0.5
    )
    return replace(snapshot, refused_creates={pod: refused})


def others(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    match rng.randrange(4):
        case 0:
            return replace(snapshot, origin=None if rng.random() < 0.4 else with_edited_status(rng, snapshot.run, now))
        case 1:
            return replace(snapshot, successors=(with_edited_status(rng, snapshot.run, now),))
        case 2:
            return replace(
                snapshot, preemptor=None if rng.random() < 0.4 else with_edited_status(rng, snapshot.run, now)
            )
        case _:
            return replace(snapshot, recorded=not snapshot.recorded)


def queue(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    fields: dict[str, Any] = {"stopPolicy": rng.choice(("None", "Hold", "HoldAndDrain"))}
    if rng.random() < 0.5:
        fields["limits"] = {"defaultTimeLimit": rng.choice(("1s", "5m", "9999d")), "maxTimeLimit": "1h"}
    if rng.random() < 0.2:
        fields["backend"] = "Kueue"
    return replace(snapshot, queue=QueueView("default", TrainingQueueSpec.model_validate(fields)))


def annotations(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    run = snapshot.run
    name = rng.choice(_ANNOTATIONS)
    said = {
        **run.annotations,
        f"{names.GROUP}/{name}": rng.choice(("true", "a", "b", "", "x" * 300, "index=1 count=4 min=0 max=3", "é")),
    }
    return replace(snapshot, run=replace(run, annotations=said))


_ANNOTATIONS = (
    *(
        "paused",
        "test-only",
        "restart-request",
        "requeue-request",
        "checkpoint-request",
        "debug-release",
        "array",
        "user",
    ),
)


def spec(rng: Random, snapshot: RunSnapshot, now: float) -> RunSnapshot | None:
    run = snapshot.run
    if run.spec is None or rng.random() < 0.05:
        return replace(
            snapshot, run=replace(run, spec=None, spec_error="spec.nodes: no", generation=run.generation + 1)
        )
    body = run.spec.dump_written() | rng.choice(EDITS)(rng, now)
    new = TrainingRunSpec.model_validate({key: value for key, value in body.items() if value is not None})
    generation = run.generation + (rng.random() < 0.8)
    return replace(snapshot, run=replace(run, spec=new, generation=generation))


EDITS: Sequence[Callable[[Random, float], Mapping[str, Any]]] = (
    lambda rng, now: {"suspend": rng.random() < 0.5},
    lambda rng, now: {"cancel": True},
    lambda rng, now: {"nodes": rng.choice((1, 2, 3, 4, 16_384)), "elastic": None},
    lambda rng, now: {"timeLimit": rng.choice((None, "1s", "5m", "1h", "9999d")), "minTimeLimit": None},
    lambda rng, now: {
        "deadline": rng.choice((None, to_rfc3339(now + 60), to_rfc3339(now - 60), "9999-12-31T23:59:59Z")),
        "notBefore": None,
    },
    lambda rng, now: {"notBefore": to_rfc3339(now + rng.choice((-60, 60, 1e6))), "deadline": None},
    lambda rng, now: {
        "onTimeLimit": {"action": rng.choice(("Fail", "Requeue")), "leadTime": rng.choice(("0s", "10m", "9d"))}
    },
    lambda rng, now: {"budget": rng.choice((None, {"gpuHours": 1, "action": "Stop"}, {"gpuHours": 1}))},
    lambda rng, now: {"ttlAfterFinished": rng.choice((None, "0s", "1h"))},
    lambda rng, now: {
        "checkpoint": rng.choice((None, {"shared": {"claimName": "lustre"}}, {"local": {"storage": "nvme"}}))
    },
    lambda rng, now: {"recovery": rng.choice(RECOVERIES)},
    lambda rng, now: {
        "progress": {
            "totalSteps": rng.choice((1, 10, 2**53)),
            "tokensPerStep": 2**53,
            "flopsPerToken": 2**53,
            "pattern": "(?P<step>x)",
        }
    },
    lambda rng, now: {"queue": rng.choice(("default", "own", "gone"))},
    lambda rng, now: {"placement": {"excludeNodes": ["n0", "n1"]}},
)
RECOVERIES: Sequence[Mapping[str, Any]] = (
    {"noProgressLimit": 1, "debugHold": "5m"},
    {"maxRestarts": 0},
    {"hangTimeout": "2m", "onStraggler": "Replace", "onLossSpike": "RollBack", "onCordon": "Migrate"},
    {"hangTimeout": "Disabled", "onNaN": "Stop"},
    {"rules": [{"name": "mine", "exitCodes": [1], "action": "RollBack", "limit": 1}]},
    {
        "rules": [
            {"name": "mine", "logPattern": "x", "action": "ReplaceNode"},
            {"name": "other", "nodeCondition": "GpuUnhealthy", "action": "Stop"},
        ]
    },
)

_Change = Callable[[Random, RunSnapshot, float], RunSnapshot | None]


_CHANGES: Sequence[tuple[str, _Change]] = (
    *[("submissions", submissions)] * 2,
    *[("status", stored_status)] * 5,
    *[("reports", reports)] * 6,
    *[("pods", pods)] * 4,
    *[("nodes", nodes)] * 2,
    *[("spec", spec)] * 3,
    ("jobs", jobs),
    ("jobs", jobs),
    ("cluster", cluster),
    ("refusals", refusals),
    ("others", others),
    ("queue", queue),
    ("annotations", annotations),
)
