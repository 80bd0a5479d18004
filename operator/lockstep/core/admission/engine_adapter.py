"""Converts runs to scheduler jobs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from operator import attrgetter

from lockstep.api.base.changes import changed
from lockstep.api.base.durations import parse_duration
from lockstep.api.queue import ANY_GPU_TYPE, TrainingQueueSpec
from lockstep.api.run_spec import PlacementSpec, TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.admission.cache.entry import Entry, holds_nodes, is_unjudged, lacks_nodes
from lockstep.core.admission.cache.equivalence import EquivalenceClass, NodeRequest
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.backfill import BackfillPolicy
from lockstep.core.admission.engine.jobs import NO_LIMIT, Job, Option, RunningJob
from lockstep.core.admission.queueing.holds import queue_spec
from lockstep.core.model import assignment as slots
from lockstep.core.model.admission_settings import AdmissionSettings, Backfill
from lockstep.core.model.conditions import is_true
from lockstep.core.model.kept_nodes import is_kept
from lockstep.core.model.limits import asked_limit, limit_allowed
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.quarantine import in_quarantine, quarantine_of
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.snapshot import PodView, RunView
from lockstep.core.model.world_size import world_size
from lockstep.core.placement.node_fit import Requirement
from lockstep.core.placement.node_pool import CandidateNodes, HomogeneousNodes
from lockstep.core.pods.leftover_pods import holds_node
from lockstep.core.pods.requirement import wish_of

_GROUP = attrgetter("group")
_LEAST = 60  # seconds, or its whole limit, for a run that had used up its time when it was suspended
ENDING = 60.0
"""Seconds after the moment by which a run or a pod is to be gone, within which its node is still expected back."""


def job_of(row: RunRow, cycle: CycleState) -> Job:
    """The job that a pending run is. What it used before it was suspended counts towards its time limit."""
    group = row.group
    if group is None or group.rules is not cycle.memory.rules.for_queue(row.queue):
        group = row.group = group_of(row.entry, cycle)
    _observe_nodes(group, row, cycle)
    return row.wanted


def refresh_groups(rows: Sequence[RunRow], cycle: CycleState) -> Sequence[EquivalenceClass]:
    """The groups of ``rows``, which wait by the rules of now, in the same order. What each may have is found."""
    groups: list[EquivalenceClass] = [*map(_GROUP, rows)]
    if None in groups:
        for at, row in enumerate(rows):
            if row.group is None:
                groups[at] = row.group = group_of(row.entry, cycle)
    node_version, found = cycle.memory.node_version, dict[object, tuple[Option, ...]]()
    outdated = {group for group in {*groups} if group.node_version is not node_version or not group.shared}
    for group, row in zip(groups, rows, strict=True) if outdated else ():
        if group not in outdated:
            continue
        outdated.discard(group)
        key = (group.wish, group.rules.node_choice) if group.shared else group
        options = found.get(key)
        if options is None:
            options = found[key] = _options(row.entry, cycle, group)
        group.options, group.node_version = options, node_version
    return groups


def _observe_nodes(group: EquivalenceClass, row: RunRow, cycle: CycleState) -> None:
    if group.node_version is not cycle.memory.node_version or not group.shared:
        group.options, group.node_version = _options(row.entry, cycle, group), cycle.memory.node_version


def group_of(entry: Entry, cycle: CycleState) -> EquivalenceClass:
    """Those that are alike: the same object for all of them, for as long as any of them has it."""
    spec, memory = entry.spec, cycle.memory
    rules = memory.rules.for_queue(spec.queue)
    limits = *_limits(entry, rules.spec), spec.deadline, not is_unjudged(entry.run)
    # What may be had depends on how many nodes are free, or on what happened to this run alone.
    if spec.elastic is not None or entry.status.recovery.excluded_nodes:
        return EquivalenceClass(NodeRequest(), rules, False, *limits)
    content = wish_of(spec)
    wish = memory.wishes.get(content)
    if wish is None:
        wish = memory.wishes[content] = NodeRequest()
    key = wish, rules, limits, entry.run.namespace if rules.discreet else ""
    group = memory.groups.get(key)
    if group is None:
        group = memory.groups[key] = EquivalenceClass(wish, rules, True, *limits)
    return group


def lengths_of(entry: Entry, queue: TrainingQueueSpec) -> tuple[float, float]:
    """(shortest, longest) time in seconds for which the pending run is to have its nodes."""
    longest, shortest = _limits(entry, queue)
    return longest if shortest is None else min(shortest, longest), longest


def _limits(entry: Entry, queue: TrainingQueueSpec) -> tuple[float, float | None]:
    """(longest, shortest) that is left of its time in seconds; None: it may not be cut."""
    spec, used = entry.spec, entry.status.held_seconds
    longest = granted_at_most(spec, queue)
    if longest < NO_LIMIT:
        longest = _what_is_left(longest, used)
    least = parse_duration(spec.min_time_limit) if spec.min_time_limit is not None else None
    return longest, None if least is None else _what_is_left(float(least), used)


def _what_is_left(limit: float, used: int) -> float:
    return max(min(_LEAST, limit), limit - used)


def granted_at_most(spec: TrainingRunSpec, queue: TrainingQueueSpec) -> float:
    """Seconds for which the run may have its nodes, if nothing is in the way; ``NO_LIMIT`` when nobody said."""
    limits = queue.limits
    asked = asked_limit(spec, limits)
    longest = parse_duration(limits.max_time_limit) if limits.max_time_limit is not None else None
    known = [float(bound) for bound in (asked, longest) if bound is not None]
    return min(known, default=NO_LIMIT)


def _running_in(row: RunRow, cycle: CycleState) -> RunningJob:
    """The run of ``row``, which holds nodes, as it was seen."""
    rules, numbering, known = cycle.memory.rules.for_queue(row.queue), cycle.index.numbering, row.running
    if known is not None and known[0] is numbering and known[1] is rules:
        return known[2]
    found = running_of(row.run, cycle, cycle.now)
    if row.run.status.last_admitted is not None:  # else it rests on the time
        row.running = numbering, rules, found
    return found


def running_of(run: RunView, cycle: CycleState, now: float) -> RunningJob:
    """The run that holds nodes, until its time limit as granted, be that over or not."""
    assert run.spec is not None
    status = run.status
    ends = ends_by(run, status.admission.time_limit, now)
    limited = status.admission.time_limit is not None
    if status.stop is not None:
        ends, limited = min(ends, status.stop.deadline), True
    elif status.preemption is not None:
        ends, limited = min(ends, status.preemption.deadline), True
    nodes = cycle.held(run)
    queue_name = queue_of(run) if status.kueue is None else ""  # what Kueue reserved is in nobody's quota here
    return RunningJob(run.uid, queue_name, status.resolved.gpu_type, nodes, _counted(run), ends, limited)


def ends_by(run: RunView, limit: int | None, now: float) -> float:
    """When a run that holds nodes ends by a time limit of so many seconds."""
    status = run.status
    since = status.last_admitted if status.last_admitted is not None else now
    return since + (NO_LIMIT if limit is None else limit - status.held_seconds)


def running_jobs(cycle: CycleState) -> list[RunningJob]:
    """Who holds nodes, as decided so far."""
    known = []
    for row in (*cycle.decided_rows(cycle.run_index.holding), *cycle.started):
        entry = row.entry
        if entry.status is row.run.status:
            held = _running_in(row, cycle)
            held = _if_granted(held, row, cycle) if row.uid in cycle.snapshot.in_flight else held
            known.append(_unless_overdue(held, row.run, cycle))
        elif holds_nodes(entry.view):
            known.append(_unless_overdue(running_of(entry.view, cycle, cycle.now), entry.view, cycle))
    known += unsettled(cycle, cycle.now)
    return [*known, *other_jobs(cycle, known, cycle.now)]


def free_nodes(cycle: CycleState) -> NodeSet:
    """Nodes that nobody has, as decided so far."""
    free = cycle.index.everything & ~cycle.cluster.booked
    for nodes in cycle.returning.values():
        free &= ~nodes
    return free


def policy_of(settings: AdmissionSettings) -> BackfillPolicy:
    """How many promises are made, and how much one cycle does."""
    return BackfillPolicy(
        reservations_per_queue=None if settings.backfill is Backfill.CONSERVATIVE else 1,
        depth=settings.depth,
        admissions=settings.admissions,
        overtaking=settings.backfill is not Backfill.DISABLED,
    )


def _if_granted(held: RunningJob, row: RunRow, cycle: CycleState) -> RunningJob:
    """The run of ``row`` with all that it asks for: a write with an answer that never came may have given it that."""
    if row.run.status.stop is not None or row.run.status.preemption is not None:
        return held
    entry = row.entry
    wanted = limit_allowed(entry.spec, queue_spec(cycle.snapshot, queue_of(row.run)).limits)
    ends = ends_by(row.run, wanted, cycle.now)
    return held if ends <= held.ends else replace(held, ends=ends, limited=wanted is not None)


def _unless_overdue(held: RunningJob, run: RunView, cycle: CycleState) -> RunningJob:
    """``held``, or for as long as nobody knows: a run that is long overdue may never go, as on a node that hangs. Where
    nobody has led for a while, nobody has stopped it either."""
    now = cycle.now
    if max(held.ends, cycle.snapshot.leadership.since) + ENDING > now:
        return held
    stop = run.status.stop
    if stop is not None and stop.deadline + ENDING > now:  # begun when its time was up
        return replace(held, ends=stop.deadline, limited=True)
    return replace(held, ends=now + NO_LIMIT, limited=False)


def is_ending_in_time(pod: PodView, now: float) -> bool:
    """The pod is being deleted, and its grace is not long over."""
    return pod.deleting and now < pod.killed_at + ENDING


def ending_nodes(cycle: CycleState, now: float) -> Mapping[float, NodeSet]:
    """Nodes that nothing but pods being deleted holds, by when they are expected back; infinity: that is long over."""
    last: dict[str, float] = {}
    for pod in cycle.snapshot.gang_pods if cycle.cluster.ending else ():
        if holds_node(pod):
            ends = pod.killed_at + ENDING if is_ending_in_time(pod, now) else inf
            last[pod.node] = max(last.get(pod.node, 0.0), ends)
    found: dict[float, list[str]] = {}
    for node, ends in last.items():
        found.setdefault(ends, []).append(node)
    masks = {ends: cycle.index.mask(nodes) & cycle.cluster.ending for ends, nodes in found.items()}
    return {ends: nodes for ends, nodes in masks.items() if nodes}


def unsettled(cycle: CycleState, now: float) -> Iterator[RunningJob]:
    """Runs whose admission is written with a result that is not known yet: they use what they may have got."""
    in_flight = {uid: nodes for uid, nodes in cycle.snapshot.in_flight.items() if nodes}
    for run in cycle.snapshot.runs if in_flight else ():
        if run.uid not in in_flight or run.spec is None:
            continue
        held = in_flight[run.uid] | {node for node in run.status.assignment.nodes if node}
        nodes, index = cycle.index.mask(held), cycle.index
        alike = (name for name in index.gpu_types if not nodes & ~index.of_gpu_type(name))
        gpu_type = run.status.resolved.gpu_type or next(alike, "")
        count = max(len(held), _counted(run))
        yield RunningJob(run.uid, queue_of(run), gpu_type, nodes, count, now + NO_LIMIT, limited=False)


def _counted(run: RunView) -> int:
    """Nodes that the run uses of the quotas: lost ones too, which are replaced without a look at these."""
    assignment = run.status.assignment
    return sum(map(bool, assignment.nodes)) + (len(slots.lacking(assignment)) if lacks_nodes(run) else 0)


def other_jobs(cycle: CycleState, known: Iterable[RunningJob], now: float) -> Iterator[RunningJob]:
    """Nodes that nobody known holds: of gangs that are over or gone, or whose writes are under way, and nodes out of
    order."""
    left = cycle.cluster.booked & ~cycle.cluster.ending
    for running in known:
        left &= ~running.nodes
    for ended in _ended(cycle, now) if left else ():
        if nodes := ended.nodes & left:
            left &= ~nodes
            yield replace(ended, nodes=nodes)
    if left:
        yield RunningJob("", "", "", left, 0, now + NO_LIMIT, limited=False)
    for ends, nodes in ending_nodes(cycle, now).items():
        yield RunningJob("", "", "", nodes, 0, min(ends, now + NO_LIMIT), limited=ends < inf)
    for at, nodes in cycle.returning.items():
        yield RunningJob("", "", "", nodes, 0, at)


def _ended(cycle: CycleState, now: float) -> Iterator[RunningJob]:
    """Runs that are over and whose pods still hold nodes, until those are deleted: in nobody's quota, unless they are
    kept for debugging."""
    for uid, pods in cycle.memory.pods.by_run.items():
        row = cycle.run_index.rows.get(uid)
        leaving = row.run.status.leaving if row is not None else None
        if row is not None and is_true(row.run.status, ConditionType.FINISHED):
            ends = max(leaving.until, cycle.snapshot.leadership.since) + ENDING if leaving is not None else now
            in_time = ends > now
            nodes = cycle.index.mask(pod.node for pod in pods if holds_node(pod))
            ends = ends if in_time else now + NO_LIMIT
            found = RunningJob("", "", "", nodes, 0, ends, limited=in_time, left_by=uid)
            status = row.run.status
            if is_kept(status) and status.kueue is None:
                count, gpu_type = nodes.bit_count(), status.resolved.gpu_type
                found = replace(found, queue=row.queue, gpu_type=gpu_type, count=count)
            yield found


def _options(entry: Entry, cycle: CycleState, group: EquivalenceClass) -> tuple[Option, ...]:
    """What may be had now or later. The same object for groups alike, for as long as it holds."""
    if not group.shared:
        return _options_of_its_own(entry, cycle, group)
    key = group.wish, group.rules.node_choice
    return cycle.memory.by_nodes(key, partial(_options_of_its_own, entry, cycle, group))


def _options_of_its_own(entry: Entry, cycle: CycleState, group: EquivalenceClass) -> tuple[Option, ...]:
    spec, queue, found = entry.spec, group.rules.spec, list[Option]()
    for requirement in cycle.requirements(entry, group):
        grounds = list(_candidate_nodes(cycle, requirement, spec.placement, queue))
        for candidates, limit in grounds:
            found += [_option(cycle, candidates, kind, spec.nodes, limit) for kind in candidates.kinds(spec.nodes)]
        if spec.elastic is None or entry.status.reservation is not None:
            continue  # others make room for all of its nodes
        for candidates, limit in grounds:
            free = candidates.most(spec.nodes, ~(cycle.cluster.booked | cycle.reserved) & limit)
            fewer = _size_to_start_with(entry, free)
            if 0 < fewer < spec.nodes:
                found += [
                    _option(cycle, candidates, kind, fewer, limit, fallback=True) for kind in candidates.kinds(fewer)
                ]
    return tuple(found)


def _size_to_start_with(entry: Entry, free: int) -> int:
    """With how many of ``free`` nodes the elastic run may start; 0: with none. What is saved is known to be loadable
    only by as many as saved it."""
    spec, status = entry.spec, entry.status
    if status.checkpoint.latest:
        size = _saved_by(status)
        return size if size <= free and world_size(spec, size) == size else 0
    return world_size(spec, free) if not status.resolved.start_root else 0


def _saved_by(status: TrainingRunStatus) -> int:
    """How many nodes saved what the run will resume from; 0: that is not known."""
    checkpoint = status.checkpoint
    bad = quarantine_of(checkpoint)
    if (
        checkpoint.ceiling is not None
        or checkpoint.quarantined
        or any(in_quarantine(bad, saved.tier, saved.step, saved.attempt) for saved in checkpoint.latest)
    ):
        return 0  # it may be an older one
    nodes = {attempt.number: attempt.nodes for attempt in status.attempts}
    sizes = {nodes.get(saved.attempt or 0, 0) for saved in checkpoint.latest}
    return sizes.pop() if len(sizes) == 1 else 0


def _option(
    cycle: CycleState,
    candidates: CandidateNodes,
    kind: HomogeneousNodes,
    count: int,
    limit: NodeSet,
    *,
    fallback: bool = False,
) -> Option:
    def make() -> Option:
        able = cycle.awaited(kind)
        choose = partial(candidates.choose, able, count)
        return Option(kind.gpu_type, count, able.able & limit, choose, fallback, candidates.is_strict)

    return cycle.memory.by_nodes((candidates, kind, count, limit, fallback), make)


def wanted_of(entry: Entry, group: EquivalenceClass, cycle: CycleState) -> PlacementSpec:
    """Its placement with the GPU types that the quotas of its queue leave to it, for the words about what lacks."""
    placement, quotas = entry.spec.placement, group.rules.spec.quotas
    types = tuple(quota.gpu_type for quota in quotas if quota.gpu_type in cycle.index.gpu_types)
    if placement.gpu_types or not types or any(quota.gpu_type == ANY_GPU_TYPE for quota in quotas):
        return placement
    return changed(placement, gpu_types=types)


def left_no_type(entry: Entry, group: EquivalenceClass, cycle: CycleState) -> str:
    """In words, that the quotas of its queue are for no GPU type that there is; empty: they are for some."""
    quotas, known = group.rules.spec.quotas, (*cycle.index.gpu_types, ANY_GPU_TYPE)
    if entry.spec.placement.gpu_types or not quotas or any(quota.gpu_type in known for quota in quotas):
        return ""
    named = ", ".join(quota.gpu_type for quota in quotas)
    return (
        f"queue {entry.spec.queue} has quotas of {named} alone, and no node is of such a type for the operator; "
        "its administrator has to correct spec.quotas of the queue, whose condition Valid says more"
    )


def _candidate_nodes(
    cycle: CycleState, requirement: Requirement, placement: PlacementSpec, queue: TrainingQueueSpec
) -> Iterator[tuple[CandidateNodes, NodeSet]]:
    """Where the gang may stand, and the nodes to which its queue's quotas restrict it, in the order of the quotas."""
    index = cycle.index
    if not queue.quotas or placement.gpu_types:
        yield CandidateNodes.for_requirement(index, requirement, placement), index.everything
        return
    named = EMPTY
    for quota in queue.quotas:
        if quota.gpu_type != ANY_GPU_TYPE and quota.gpu_type in index.gpu_types:
            named |= index.of_gpu_type(quota.gpu_type)
            of_type = changed(placement, gpu_types=(quota.gpu_type,))
            yield CandidateNodes.for_requirement(index, requirement, of_type), index.everything
    if any(quota.gpu_type == ANY_GPU_TYPE for quota in queue.quotas):
        yield CandidateNodes.for_requirement(index, requirement, placement), index.everything & ~named
