"""Status of TrainingQueues: whether they admit, what is wrong with them, and who uses what."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from lockstep.api.base.changes import changed
from lockstep.api.queue import QuotaUsage, TrainingQueueStatus
from lockstep.core.admission.cache.entry import is_pending
from lockstep.core.admission.cache.memory import CycleMemory, ReportedQueueStatus
from lockstep.core.admission.cache.run_index import RunIndex, RunRow, count_held
from lockstep.core.admission.engine.quota import QuotaRules
from lockstep.core.admission.queueing.holds import mode_words
from lockstep.core.admission.queueing.queue_problems import problems_of
from lockstep.core.model.conditions import with_condition
from lockstep.core.model.plan import QueueStatusWrite, StatusWrite
from lockstep.core.model.reasons import ConditionType, QueueReason
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.snapshot import SHED, ClusterSnapshot, QueueView, RunView
from lockstep.core.model.tunables import Mode, Tunables

TOLD_EVERY = 10.0
"""Seconds between two writes about one queue, more in an overload; a condition that changes is written at once."""
OTHER_GPU_TYPE = "Other"
"""Stands for nodes of no configured GPU type."""
_TYPES_TOLD = 16


@dataclass(slots=True)
class _Figures:
    """What the runs of one queue come to."""

    pending: int = 0
    running: int = 0
    nodes: int = 0
    by_gpu_type: dict[str, int] = field(default_factory=dict)  # "" for nodes of no configured type


def queue_writes(
    snapshot: ClusterSnapshot, memory: CycleMemory, decided: Iterable[StatusWrite], tunables: Tunables, now: float
) -> tuple[tuple[QueueStatusWrite, ...], float | None]:
    """The queues whose status is to change once ``decided`` is carried out, and when to check the others again.

    ``memory`` has seen the snapshot. A queue of which nothing has changed says what it said, until it may say more.
    """
    if not snapshot.queues:
        return (), None
    figures = _figures(snapshot, memory.run_index, decided)
    every = TOLD_EVERY * (SHED if snapshot.leadership.lag.allowance else 1.0)
    before, memory.reported_queues = memory.reported_queues, {}
    writes: list[QueueStatusWrite] = []
    wake_at: float | None = None
    for name, view in snapshot.queues.items():
        rests_on, hours = (view, figures[name], memory.rules.version), snapshot.gpu_hours.get(name)
        reported = before.get(name)
        may_speak = view.status.updated is None or not now - every < view.status.updated <= now
        if (
            reported is None
            or reported.rests_on != rests_on
            or (may_speak and (reported.hours != hours or not reported.complete))
        ):
            status = _status(view, figures[name], memory.rules.quotas, snapshot, tunables, now)
            due = _due(view.status, status, now, every)
            if due is not None and due <= now:
                updated = changed(status, updated=float(int(now)))
                writes.append(QueueStatusWrite(name, view.uid, view.resource_version, updated))
                continue
            reported = ReportedQueueStatus(rests_on, hours, due, status == view.status)
        memory.reported_queues[name] = reported
        if reported.due is not None:
            wake_at = reported.due if wake_at is None else min(wake_at, reported.due)
    return tuple(writes), wake_at


def counted(queue: str, runs: Iterable[RunView]) -> TrainingQueueStatus:
    """What the runs of a queue come to that has no object, and so no status of its own."""
    there = [run for run in runs if run.spec is not None and queue_of(run) == queue]
    sizes = [row.size for row in map(RunRow, there) if row.holds or row.size]
    return TrainingQueueStatus(pending=sum(map(is_pending, there)), running=len(sizes), nodes_in_use=sum(sizes))


def _figures(snapshot: ClusterSnapshot, run_index: RunIndex, decided: Iterable[StatusWrite]) -> Mapping[str, _Figures]:
    figures = {name: _Figures() for name in snapshot.queues}
    status_of = {write.uid: write.status for write in decided}
    after = [RunRow(replace(run_index.rows[uid].run, status=status)) for uid, status in status_of.items()]
    pending = run_index.pending_in.copy()
    held = run_index.held_in.copy()
    for rows, step in (([run_index.rows[uid] for uid in status_of], -1), (after, 1)):
        for row in rows:
            pending[row.queue] += step * row.pending
            count_held(held, row, step)
    for name, figure in figures.items():
        figure.pending = pending[name]
    for (queue, gpu_type), holding in held.items():
        if queue in figures:
            figure = figures[queue]
            figure.running += holding.runs
            figure.nodes += holding.nodes
            figure.by_gpu_type[gpu_type] = holding.nodes
    return figures


def _status(
    view: QueueView, figures: _Figures, rules: QuotaRules, snapshot: ClusterSnapshot, tunables: Tunables, now: float
) -> TrainingQueueStatus:
    before = view.status
    status = changed(
        before,
        observed_generation=view.generation,
        pending=figures.pending,
        running=figures.running,
        nodes_in_use=figures.nodes,
        usage=_usage(view.name, figures.by_gpu_type, rules),
        gpu_hours_last_day=snapshot.gpu_hours.get(view.name, before.gpu_hours_last_day),
    )
    admits, reason, message = _activity(view, figures, tunables.mode)
    status = with_condition(status, ConditionType.ACTIVE, admits, reason, message, now=now, generation=view.generation)
    wrong = list(problems_of(view, snapshot.queues, tunables.gpu_types, snapshot.priority_classes))
    reason = wrong[0].reason if wrong else QueueReason.VALID
    words = "; ".join(problem.message for problem in wrong)
    return with_condition(status, ConditionType.VALID, not wrong, reason, words, now=now, generation=view.generation)


def _activity(view: QueueView, figures: _Figures, mode: Mode) -> tuple[bool, QueueReason, str]:
    """Whether the queue admits, in a word, and in a sentence."""
    if mode is not Mode.ACTIVE:
        return False, QueueReason(mode.value), mode_words(mode)
    if view.is_closed:
        return False, QueueReason.INVALID_SPEC, "its spec cannot be read: nothing new is admitted, what runs goes on"
    match view.spec.stop_policy:
        case "Hold":
            return False, QueueReason.HOLD, "stopPolicy is Hold: nothing new is admitted, what runs goes on"
        case "HoldAndDrain" if figures.running:
            return False, QueueReason.DRAINING, "stopPolicy is HoldAndDrain: what runs saves and gives its nodes back"
        case "HoldAndDrain":
            return False, QueueReason.DRAINED, "stopPolicy is HoldAndDrain: no run of the queue holds nodes any more"
        case _:
            return True, QueueReason.ADMITTING, ""


def _usage(queue: str, held: Mapping[str, int], rules: QuotaRules) -> tuple[QuotaUsage, ...]:
    """By the entries of the queue's quotas, in their order; what no entry is for comes last, as borrowed."""
    used = dict.fromkeys(rules.types.get(queue, {}), 0)
    nominal: dict[str, int | None] = {}
    for gpu_type, nodes in sorted(held.items()):
        account = rules.account(queue, gpu_type)
        name = (gpu_type if account is None else account.gpu_type) or OTHER_GPU_TYPE
        used[name] = used.get(name, 0) + nodes
        nominal[name] = None if account is None else account.nominal
    rows = []
    for name, nodes in used.items():
        own = nominal.get(name)
        rows.append(QuotaUsage(gpu_type=name, nodes=nodes, borrowed=0 if own is None else max(0, nodes - own)))
    return tuple(rows[:_TYPES_TOLD])


def _due(before: TrainingQueueStatus, after: TrainingQueueStatus, now: float, every: float) -> float | None:
    """When ``after`` is to be written: at ``now``, later, or never, as it says what ``before`` said."""
    if before == after:
        return None
    if before.updated is None or before.updated > now or _verdicts(before) != _verdicts(after):
        return now
    due = before.updated + every
    hours_alone = before == changed(after, gpu_hours_last_day=before.gpu_hours_last_day)
    return due if due <= now or not hours_alone else None  # they grow with every look, and are worth none


def _verdicts(status: TrainingQueueStatus) -> Sequence[object]:
    conditions = ((c.type, c.status, c.reason, c.observed_generation) for c in status.conditions)
    return [status.observed_generation, *chain.from_iterable(conditions)]
