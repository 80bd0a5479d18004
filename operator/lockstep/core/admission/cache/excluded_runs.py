"""What is excluded from admission cycles because a cycle fails with it; see ``poison_runs``."""

from collections.abc import Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import AssignmentStatus, QueueStatus, ResolvedStatus, TrainingRunStatus
from lockstep.core.model.assignment import is_held
from lockstep.core.model.conditions import cannot_decide, is_true
from lockstep.core.model.plan import Event, StatusWrite
from lockstep.core.model.reasons import ActionWord, ConditionType, EventReason, WaitReason
from lockstep.core.model.resolved_record import restore_resolved
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.snapshot import CLOSED_QUEUE, Changes, ClusterSnapshot, PodPhase, PodView, QueueView, RunView

PODS, NODES, QUEUES = "pods", "nodes", names.QUEUES
ObjectKey: TypeAlias = tuple[str, str]
"""Kind, in the plural, and name; of a pod its UID."""

_NOTHING_ASKED = TrainingRunSpec(nodes=1, image="unknown", command=("unknown",))
_UNKNOWN = "nothing is decided about it"


@dataclass(frozen=True, slots=True)
class ExcludedRun:
    """A run, as it was when it was left out, what a cycle with it raised, and until when (Unix seconds) that counts."""

    run: RunView
    error: Exception
    until: float

    def is_still(self, run: RunView, now: float) -> bool:
        """Nothing has changed that could make a difference."""
        known = self.run
        alike = (run.spec, run.labels, run.annotations) == (known.spec, known.labels, known.annotations)
        return alike and is_holding(run) == is_holding(known) and now < self.until


@dataclass(frozen=True, slots=True)
class ExcludedObject:
    """What a cycle with a pod, node or queue raised, and until when (Unix seconds) that counts."""

    error: Exception
    until: float


def is_holding(run: RunView) -> bool:
    """The run has nodes that nobody else may get, whatever else is known of it."""
    return is_held(run.status.assignment) and not is_true(run.status, ConditionType.FINISHED)


def without(
    snapshot: ClusterSnapshot,
    uids: Iterable[str],
    objects: Collection[ObjectKey] = (),
    known: MutableMapping[str, RunView] | None = None,
) -> ClusterSnapshot:
    """The same with runs and ``objects`` of which nothing counts but what they take from others.

    A run that waits is as one whose spec cannot be read: a run that depends on it does not find it gone. A pod takes
    its node, a node is nobody's, a queue admits nothing. ``known``: runs as they were set aside before, by UID.
    """
    known = known if known is not None else {}
    absent, gone = frozenset(uids), frozenset(objects)
    if not absent and not gone:
        return snapshot
    for run in snapshot.runs:
        if run.uid in absent and run.uid not in known:
            known[run.uid] = set_aside(run)
    runs = tuple(known[run.uid] if run.uid in absent else run for run in snapshot.runs)
    if gone:
        queues = snapshot.queues.items()
        snapshot = replace(
            snapshot,
            queues={name: QueueView(name, CLOSED_QUEUE) if (QUEUES, name) in gone else view for name, view in queues},
            nodes={name: view for name, view in snapshot.nodes.items() if (NODES, name) not in gone},
            gang_pods=_with_bare(snapshot.gang_pods, gone),
            doubtful_pods=_with_bare(snapshot.doubtful_pods, gone),
        )
    return replace(snapshot, runs=runs, changes=Changes())


def set_aside(run: RunView) -> RunView:
    """The run as an opaque booking: never a victim, and it asks for nothing.

    Its nodes stay its own, without end, and count in its queue; nobody else of its ``singleton`` and set starts
    instead. What else it says may be what a cycle fails with.
    """
    if not is_holding(run):
        known = TrainingRunStatus(conditions=run.status.conditions, attempt=run.status.attempt)
        return replace(run, spec=None, status=known, unread=True)
    spec, status = run.spec, run.status
    of_kueue = status.kueue is not None  # what Kueue reserved is in nobody's quota here
    if spec is not None:
        spec = changed(_NOTHING_ASKED, queue="" if of_kueue else queue_of(run), singleton=spec.singleton)
    nodes = tuple(node if isinstance(node, str) else "" for node in status.assignment.nodes)
    booking = changed(TrainingRunStatus(assignment=AssignmentStatus(nodes=nodes)), attempt=status.attempt)
    if isinstance(status.resolved.gpu_type, str):
        booking = restore_resolved(booking, ResolvedStatus(gpu_type=status.resolved.gpu_type))
    return RunView(
        run.namespace,
        run.name,
        run.uid,
        run.generation,
        run.resource_version,
        run.created_at,
        spec,
        booking,
        spec_error=_UNKNOWN,
        set_uid=run.set_uid,
        set_name=run.set_name,
        unread=True,
    )


def exclusion_writes(
    runs: Iterable[RunView], excluded_runs: Mapping[str, ExcludedRun], now: float
) -> Iterable[StatusWrite]:
    """Reasons still to be written of those of ``runs`` that are left out."""
    for run in runs:
        if run.uid not in excluded_runs or is_true(run.status, ConditionType.FINISHED):
            continue
        kind = type(excluded_runs[run.uid].error).__name__
        others = "it keeps its nodes and gets no others" if is_holding(run) else "other runs are admitted without it"
        message = f"{cannot_decide(kind)}; {others}, and it is tried again when it is edited, or in ten minutes"
        if (run.status.queue.reason, run.status.queue.message) == (WaitReason.UNDECIDABLE, message):
            continue
        queue = QueueStatus(reason=WaitReason.UNDECIDABLE, message=message, updated=float(int(now)))
        yield StatusWrite(
            namespace=run.namespace,
            name=run.name,
            uid=run.uid,
            resource_version=run.resource_version,
            status=changed(run.status, queue=queue),
            nodes=frozenset(),
            events=(Event("Warning", EventReason.UNDECIDABLE, ActionWord.ADMIT, message),),
        )


def _with_bare(pods: Iterable[PodView], gone: Collection[ObjectKey]) -> tuple[PodView, ...]:
    return tuple(_bare(pod) if (PODS, pod.uid) in gone else pod for pod in pods)


def _bare(pod: PodView) -> PodView:
    """A pod that is on its node, and no more."""
    return PodView(
        pod.namespace,
        pod.name,
        pod.uid,
        pod.run,
        pod.run_uid,
        pod.owner_uid,
        slot=0,
        incarnation=0,
        node=pod.node if isinstance(pod.node, str) else "",
        bound=True,
        phase=pod.phase if pod.is_terminal else PodPhase.RUNNING,
        created_at=0.0,
    )
