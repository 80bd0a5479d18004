"""Runs in the words of the engine: who waits for which nodes for how long, and who holds which until when."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from lockstep.api.durations import parse_duration
from lockstep.api.queue import ANY_GPU_TYPE, TrainingQueueSpec
from lockstep.api.run_spec import PlacementSpec, TrainingRunSpec
from lockstep.core.admission.entry import Entry
from lockstep.core.admission.floor import Floor
from lockstep.core.admission.jobs import NO_LIMIT, Job, Option, Running
from lockstep.core.admission.quota import QueueQuota, TypeQuota
from lockstep.core.ground import Ground, Kind
from lockstep.core.node_fit import Requirement
from lockstep.core.snapshot import QueueView, RunView
from lockstep.core.time_limit import asked_limit, limit_in_force
from lockstep.core.world_size import world_size

_LEAST = 60  # seconds, for a run that had used up its time when it was suspended
ENDING = 60.0
"""Seconds within which a node is expected back that nothing but pods being deleted still holds."""


def job_of(entry: Entry, floor: Floor, queue: TrainingQueueSpec) -> Job:
    """The job that a pending run is. What it used before it was suspended counts towards its time limit."""
    row, options = floor.memory.rows.get(entry.run.uid), _options(entry, floor, queue)
    if row is None or row.run is not entry.run:
        return _job_with(options, entry, queue)
    job = row.job
    if job is None or row.judged_era != floor.memory.era:
        job = _job_with(options, entry, queue)
    elif job.options is not options:
        job = replace(job, options=options)
    row.job, row.judged_era = job, floor.memory.era
    row.job_era = floor.memory.ground_era if _is_shared(entry) else -1
    return job


def _job_with(options: tuple[Option, ...], entry: Entry, queue: TrainingQueueSpec) -> Job:
    spec = entry.spec
    longest = granted_at_most(spec, queue)
    if longest < NO_LIMIT:
        longest = max(_LEAST, longest - entry.status.held_seconds)
    least = parse_duration(spec.min_time_limit) if spec.min_time_limit is not None else None
    return Job(
        uid=entry.run.uid,
        queue=spec.queue,
        options=options,
        duration=longest,
        min_duration=float(max(_LEAST, least - entry.status.held_seconds)) if least is not None else None,
        latest_end=spec.deadline,
    )


def granted_at_most(spec: TrainingRunSpec, queue: TrainingQueueSpec) -> float:
    """Seconds for which the run may have its nodes, if nothing is in the way; ``NO_LIMIT`` when nobody said."""
    limits = queue.limits
    asked = asked_limit(spec, limits)
    longest = parse_duration(limits.max_time_limit) if limits.max_time_limit is not None else None
    known = [float(bound) for bound in (asked, longest) if bound is not None]
    return min(known, default=NO_LIMIT)


def running_of(run: RunView, floor: Floor, queue: TrainingQueueSpec, now: float) -> Running:
    """The run that holds nodes, until its time limit."""
    assert run.spec is not None
    status = run.status
    since = status.last_admitted if status.last_admitted is not None else now
    limit = limit_in_force(run.spec, status, queue.limits)
    ends = since + (NO_LIMIT if limit is None else limit - status.held_seconds)
    limited = limit is not None
    if status.stop is not None:
        ends, limited = min(ends, max(now, status.stop.deadline)), True
    elif status.preemption is not None:
        ends, limited = min(ends, max(now, status.preemption.deadline)), True
    nodes = floor.held(run)
    count = sum(map(bool, status.assignment.nodes))
    queue_name = run.spec.queue if status.kueue is None else ""  # what Kueue reserved is in nobody's quota here
    return Running(run.uid, queue_name, status.resolved.gpu_type, nodes, count, max(now, ends), limited)


def unsettled(floor: Floor, now: float) -> Iterator[Running]:
    """Runs whose admission is written with a result that is not known yet: they use what they may have got."""
    in_flight = {uid: nodes for uid, nodes in floor.snapshot.in_flight.items() if nodes}
    for run in floor.snapshot.runs if in_flight else ():
        if run.uid not in in_flight or run.spec is None:
            continue
        held = in_flight[run.uid] | {node for node in run.status.assignment.nodes if node}
        nodes, index = floor.index.mask(held), floor.index
        alike = (name for name in index.gpu_types if not nodes & ~index.of_gpu_type(name))
        gpu_type = run.status.resolved.gpu_type or next(alike, "")
        yield Running(run.uid, run.spec.queue, gpu_type, nodes, len(held), now + NO_LIMIT, limited=False)


def others(floor: Floor, known: Iterable[Running], now: float) -> Iterator[Running]:
    """Nodes that nobody known holds: of gangs that are gone or whose writes are under way, and nodes out of order."""
    left = floor.cluster.booked & ~floor.cluster.ending
    for running in known:
        left &= ~running.nodes
    if left:
        yield Running("", "", "", left, 0, now + NO_LIMIT, limited=False)
    if floor.cluster.ending:
        yield Running("", "", "", floor.cluster.ending, 0, now + ENDING)
    for at, nodes in floor.returning.items():
        yield Running("", "", "", nodes, 0, at)


def quota_of(view: QueueView) -> QueueQuota:
    """The rules of one queue."""
    spec = view.spec
    return QueueQuota(
        cohort=spec.cohort or "",
        quotas={
            quota.gpu_type: TypeQuota(quota.nominal_nodes, quota.borrowing_limit, quota.lending_limit)
            for quota in spec.quotas
        },
        max_running_runs=spec.limits.max_running_runs,
    )


def _options(entry: Entry, floor: Floor, queue: TrainingQueueSpec) -> tuple[Option, ...]:
    """What may be had now or later. The same object for runs alike, for as long as it holds."""
    if not _is_shared(entry):
        return _options_of_its_own(entry, floor, queue)
    return floor.memory.on_ground(
        (floor.wish(entry), entry.spec.queue), partial(_options_of_its_own, entry, floor, queue)
    )


def _is_shared(entry: Entry) -> bool:
    """What the run may be placed on is the same for all that ask for the same, however many nodes are free."""
    return entry.spec.elastic is None and not entry.status.recovery.excluded_nodes


def _options_of_its_own(entry: Entry, floor: Floor, queue: TrainingQueueSpec) -> tuple[Option, ...]:
    spec, found = entry.spec, list[Option]()
    for requirement in floor.requirements(entry):
        grounds = list(_grounds(floor, requirement, spec.placement, queue))
        for ground, limit in grounds:
            found += [_option(floor, ground, kind, spec.nodes, limit) for kind in ground.kinds(spec.nodes)]
        if spec.elastic is None or entry.status.checkpoint.latest or entry.status.reservation is not None:
            continue  # what it saved a smaller gang may not be able to load; and others make room for all of its nodes
        for ground, limit in grounds:
            fewer = world_size(spec, ground.most(spec.nodes, ~(floor.cluster.booked | floor.reserved) & limit))
            if 0 < fewer < spec.nodes:
                found += [_option(floor, ground, kind, fewer, limit, fallback=True) for kind in ground.kinds(fewer)]
    return tuple(found)


def _option(floor: Floor, ground: Ground, kind: Kind, count: int, limit: int, *, fallback: bool = False) -> Option:
    def make() -> Option:
        able = floor.awaited(ground, kind)
        return Option(kind.gpu_type, count, able.able & limit, partial(ground.choose, able, count), fallback)

    return floor.memory.on_ground((ground, kind, count, limit, fallback), make)


def _grounds(
    floor: Floor, requirement: Requirement, placement: PlacementSpec, queue: TrainingQueueSpec
) -> Iterator[tuple[Ground, int]]:
    """Where the gang may stand, and the nodes to which its queue's quotas restrict it, in the order of the quotas."""
    index = floor.index
    if not queue.quotas or placement.gpu_types:
        yield Ground.of(index, requirement, placement), index.everything
        return
    named = 0
    for quota in queue.quotas:
        if quota.gpu_type != ANY_GPU_TYPE and quota.gpu_type in index.gpu_types:
            named |= index.of_gpu_type(quota.gpu_type)
            of_type = placement.model_copy(update={"gpu_types": (quota.gpu_type,)})
            yield Ground.of(index, requirement, of_type), index.everything
    if any(quota.gpu_type == ANY_GPU_TYPE for quota in queue.quotas):
        yield Ground.of(index, requirement, placement), index.everything & ~named


def queues_of(runs: Iterable[RunView]) -> Mapping[str, int]:
    """How many runs each queue has."""
    counts: dict[str, int] = {}
    for run in runs:
        if run.spec is not None:
            counts[run.spec.queue] = counts.get(run.spec.queue, 0) + 1
    return counts
