"""What keeps a run from being considered at all, however many nodes are free. Such a run blocks nobody."""

from dataclasses import dataclass

from lockstep.api import names
from lockstep.api.queue import TrainingQueueSpec
from lockstep.core.snapshot import ClusterSnapshot, RunView
from lockstep.core.tunables import Mode, Tunables


@dataclass(frozen=True, slots=True)
class Hold:
    """One reason, and until when it lasts if that is known."""

    reason: str
    message: str
    until: float | None = None


def queue_spec(snapshot: ClusterSnapshot, name: str) -> TrainingQueueSpec:
    """The queue's rules; a queue without an object (``default``) has none."""
    view = snapshot.queues.get(name)
    return view.spec if view is not None else TrainingQueueSpec()


def hold_of(
    run: RunView, snapshot: ClusterSnapshot, tunables: Tunables, now: float, *, has_live_pods: bool
) -> Hold | None:
    """The first reason that applies to a pending ``run``."""
    assert run.spec is not None
    name = run.spec.queue
    queue = queue_spec(snapshot, name)
    if tunables.mode is not Mode.ACTIVE:
        return Hold(tunables.mode.value, mode_words(tunables.mode))
    if name != names.DEFAULT_QUEUE and name not in snapshot.queues:
        known = ", ".join(sorted({names.DEFAULT_QUEUE, *snapshot.queues}))
        return Hold("QueueNotFound", f"there is no TrainingQueue {name}; there are: {known}")
    if queue.stop_policy == "Hold":
        return Hold("QueueHeld", f"queue {name} admits nothing: its stopPolicy is Hold")
    most = queue.limits.max_nodes_per_run
    if most is not None and run.spec.nodes > most:
        return Hold("NodesPerRunLimit", f"needs {run.spec.nodes} nodes; queue {name} admits runs of at most {most}")
    if run.annotations.get(names.ANNOTATION_PAUSED) == "true":
        return Hold("Paused", f"the annotation {names.ANNOTATION_PAUSED} is set")
    not_before = run.status.recovery.not_before
    if not_before is not None and not_before > now:
        return Hold("BeginTime", "it gave its nodes back and waits before it tries again", not_before)
    if has_live_pods:
        return Hold("EarlierPods", "pods of an earlier attempt have not ended")
    return None


def mode_words(mode: Mode) -> str:
    """Why nobody gets nodes now."""
    return f"the operator admits nothing: its mode is {mode.value}"
