"""Holds: what keeps a run from being considered at all, however many nodes are free. It blocks nobody."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lockstep.api.base import names
from lockstep.api.base.durations import parse_duration
from lockstep.api.queue import LabelSelector, SelectorExpression, TrainingQueueSpec
from lockstep.api.recovery_status import NodeRefusalsStatus
from lockstep.core.failures.failure_memory import named_nodes
from lockstep.core.model.conditions import find
from lockstep.core.model.limits import asked_limit
from lockstep.core.model.near_names import suggestion
from lockstep.core.model.plural import plural
from lockstep.core.model.reasons import ConditionType, WaitReason
from lockstep.core.model.snapshot import ClusterSnapshot, RunView
from lockstep.core.model.tunables import Mode, Tunables
from lockstep.core.placement.node_fit import Expression


@dataclass(frozen=True, slots=True)
class Hold:
    """One reason, and until when it lasts if that is known."""

    reason: WaitReason
    message: str
    until: float | None = None


def queue_spec(snapshot: ClusterSnapshot, name: str) -> TrainingQueueSpec:
    """The queue's rules; a queue without an object (``default``) has none."""
    view = snapshot.queues.get(name)
    return view.spec if view is not None else _NO_RULES


def hold_of(
    run: RunView, snapshot: ClusterSnapshot, tunables: Tunables, now: float, *, has_live_pods: bool
) -> Hold | None:
    """The first reason that applies to a pending ``run``."""
    assert run.spec is not None
    name = run.spec.queue
    if tunables.mode is not Mode.ACTIVE:
        return Hold(WaitReason(tunables.mode.value), mode_words(tunables.mode))
    if name != names.DEFAULT_QUEUE and name not in snapshot.queues:
        known = sorted({names.DEFAULT_QUEUE, *_open_to(run, snapshot)})
        words = f"there is no TrainingQueue {name}; {suggestion(name, known)}open to this namespace are: "
        return Hold(WaitReason.QUEUE_NOT_FOUND, words + ", ".join(known))
    refused = snapshot.refused.get(run.uid)
    if refused is not None and refused.until > now:
        words = f"the API server does not take its admission, which is tried again: {refused.message}"
        return Hold(WaitReason.ADMISSION_REFUSED, words, refused.until)
    queue = queue_spec(snapshot, name)
    hold = _refused_by_queue(run, queue, snapshot) or _held_by_people(run, queue, snapshot)
    hold = hold or _beyond_limits(run, queue) or _hours_used_up(run, queue, snapshot)
    if hold is not None:
        return hold
    begin = run.spec.not_before
    if begin is not None and begin > now:
        return Hold(WaitReason.BEGIN_TIME, "spec.notBefore has not come yet", begin)
    not_before = run.status.recovery.not_before
    if not_before is not None and not_before > now:
        refusals = run.status.recovery.refusals
        if refusals is not None and refusals.waits:
            return Hold(WaitReason.NODES_REFUSE_PODS, _refused_by_nodes(refusals), not_before)
        return Hold(WaitReason.BEGIN_TIME, "it gave its nodes back and waits before it tries again", not_before)
    if (undecidable := find(run.status, ConditionType.UNDECIDABLE)) is not None:
        return Hold(WaitReason.UNDECIDABLE, undecidable.message)
    if has_live_pods:
        return Hold(WaitReason.EARLIER_PODS, "pods of an earlier attempt have not ended")
    return None


def _refused_by_nodes(refusals: NodeRefusalsStatus) -> str:
    count = len(refusals.nodes)
    which = f"{count} nodes refused its pods in a row" if count > 1 else "a node refused its pods"
    remedy = "look at what they lack (devices, a port, CPU) or at what the run asks of a node"
    return f"{which} ({named_nodes(refusals.nodes)}), the last one: {refusals.message}; {remedy}"


def _open_to(run: RunView, snapshot: ClusterSnapshot) -> Iterator[str]:
    """The queues that take runs of its namespace. Of others a user need not hear."""
    labels = snapshot.namespace_labels.get(run.namespace, {})
    for name, view in snapshot.queues.items():
        if takes_namespace(view.spec, labels):
            yield name


def takes_namespace(queue: TrainingQueueSpec, labels: Mapping[str, str]) -> bool:
    """Whether the queue is for runs of a namespace with these labels."""
    return queue.namespace_selector is None or selects(queue.namespace_selector, labels)


def mode_words(mode: Mode) -> str:
    """Why nobody gets nodes now."""
    return f"the operator admits nothing: its mode is {mode.value}"


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether an object with ``labels`` is one of those that ``selector`` means."""
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_expression(line).admits(labels.get(line.key)) for line in selector.match_expressions)


def _expression(line: SelectorExpression) -> Expression:
    return Expression(line.key, line.operator, line.values)


def _refused_by_queue(run: RunView, queue: TrainingQueueSpec, snapshot: ClusterSnapshot) -> Hold | None:
    """The queue is not for such runs."""
    assert run.spec is not None
    name, wanted = run.spec.queue, run.spec.priority_class_name
    if not takes_namespace(queue, snapshot.namespace_labels.get(run.namespace, {})):
        words = f"queue {name} is not for runs of namespace {run.namespace}: its namespaceSelector leaves it out"
        return Hold(WaitReason.NAMESPACE_NOT_ALLOWED, words)
    if wanted is None:
        return None
    allowed = queue.allowed_priority_classes
    if allowed and wanted not in allowed:
        words = f"queue {name} does not allow priorityClassName {wanted}; it allows {', '.join(sorted(allowed))}"
        return Hold(WaitReason.PRIORITY_CLASS_NOT_ALLOWED, words)
    if wanted not in snapshot.priority_classes:
        words = f"there is no PriorityClass {wanted}; {suggestion(wanted, snapshot.priority_classes)}"
        return Hold(WaitReason.PRIORITY_CLASS_NOT_FOUND, f"{words}create it, or name another")
    return None


def _held_by_people(run: RunView, queue: TrainingQueueSpec, snapshot: ClusterSnapshot) -> Hold | None:
    assert run.spec is not None
    name = run.spec.queue
    if name in snapshot.queues and snapshot.queues[name].is_closed:
        return Hold(WaitReason.QUEUE_HELD, f"queue {name} admits nothing: its spec cannot be read")
    if queue.stop_policy != "None":
        return Hold(WaitReason.QUEUE_HELD, f"queue {name} admits nothing: its stopPolicy is {queue.stop_policy}")
    if run.key in queue.held_runs:
        return Hold(
            WaitReason.HELD_BY_ADMINISTRATOR, f"an administrator holds it back: it is among heldRuns of queue {name}"
        )
    if run.is_paused:
        return Hold(WaitReason.PAUSED, f"the annotation {names.ANNOTATION_PAUSED} is set")
    return None


def _beyond_limits(run: RunView, queue: TrainingQueueSpec) -> Hold | None:
    assert run.spec is not None
    spec, limits = run.spec, queue.limits
    wanted = spec.nodes + spec.spare_nodes
    if limits.max_nodes_per_run is not None and wanted > limits.max_nodes_per_run:
        with_spares = ", spares included" if spec.spare_nodes else ""
        words = f"needs {plural(wanted, 'node')}{with_spares}; queue {spec.queue} admits runs of at most"
        return Hold(WaitReason.NODES_PER_RUN_LIMIT, f"{words} {limits.max_nodes_per_run}")
    asked = asked_limit(spec, limits)
    if limits.max_time_limit is not None:
        longest = parse_duration(limits.max_time_limit)
        if asked is None:
            words = f"queue {spec.queue} admits no run without a time limit; write spec.timeLimit, at most"
            return Hold(WaitReason.TIME_LIMIT_TOO_LONG, f"{words} {limits.max_time_limit}")
        if spec.min_time_limit is not None and parse_duration(spec.min_time_limit) > longest:
            words = f"takes no time limit below spec.minTimeLimit, {spec.min_time_limit}; queue {spec.queue}"
            return Hold(WaitReason.TIME_LIMIT_TOO_LONG, f"{words} allows at most {limits.max_time_limit}")
        if asked > longest and spec.min_time_limit is None:
            whose = spec.time_limit or f"{limits.default_time_limit}, the default of its queue"
            words = f"asks for a time limit of {whose}; queue {spec.queue} allows at most"
            return Hold(WaitReason.TIME_LIMIT_TOO_LONG, f"{words} {limits.max_time_limit}")
    if spec.deadline is not None and asked is None:
        return Hold(
            WaitReason.DEADLINE_UNREACHABLE, "spec.deadline needs spec.timeLimit: nothing says when the run would end"
        )
    return None


def hours_used_up(queue: TrainingQueueSpec, used: int) -> bool:
    """The queue's GPU-hours of any 24 hours are used up."""
    most = queue.limits.gpu_hours_per_day
    return most is not None and used >= most


def _hours_used_up(run: RunView, queue: TrainingQueueSpec, snapshot: ClusterSnapshot) -> Hold | None:
    assert run.spec is not None
    if queue.limits.on_gpu_hours != "Block" or queue.limits.gpu_hours_per_day is None:
        return None
    used = snapshot.gpu_hours.get(run.spec.queue)
    if used is None:
        words = f"queue {run.spec.queue} has a limit on GPU-hours, and what was used of it cannot be read yet"
        return Hold(WaitReason.GPU_HOURS_UNKNOWN, f"{words}; the operator tries again every few seconds, and logs why")
    if not hours_used_up(queue, used):
        return None
    words = f"queue {run.spec.queue} used {used} GPU-hours in the last 24 hours; it may use"
    return Hold(
        WaitReason.GPU_HOURS_LIMIT, f"{words} {queue.limits.gpu_hours_per_day}; it goes on as they become a day old"
    )


_NO_RULES = TrainingQueueSpec()
