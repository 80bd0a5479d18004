"""Runs in the words of the engine: who waits for which nodes for how long, and who holds which until when."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter

from lockstep.api.base.changes import changed
from lockstep.api.base.durations import parse_duration
from lockstep.api.queue import ANY_GPU_TYPE, TrainingQueueSpec
from lockstep.api.run_spec import PlacementSpec, TrainingRunSpec
from lockstep.core.admission.cache.entry import Entry, lacks_nodes
from lockstep.core.admission.cache.equivalence import Group, Wish
from lockstep.core.admission.cache.run_index import Row
from lockstep.core.admission.cycle_state import Floor
from lockstep.core.admission.engine.jobs import NO_LIMIT, Job, Option, Running
from lockstep.core.model import assignment as slots
from lockstep.core.model.limits import asked_limit
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.world_size import world_size
from lockstep.core.placement.node_fit import Requirement
from lockstep.core.placement.node_pool import Ground, Kind
from lockstep.core.pods.requirement import wish_of

_GROUP = attrgetter("group")
_LEAST = 60  # seconds, for a run that had used up its time when it was suspended
ENDING = 60.0
"""Seconds within which a node is expected back that nothing but pods being deleted still holds."""


def job_of(row: Row, floor: Floor) -> Job:
    """The job that a pending run is. What it used before it was suspended counts towards its time limit."""
    group = row.group
    if group is None or group.rules is not floor.memory.rules.of(row.queue):
        group = row.group = group_of(row.entry, floor)
    _look_at_ground(group, row, floor)
    return row.wanted


def see_groups(rows: Sequence[Row], floor: Floor) -> Sequence[Group]:
    """The groups of ``rows``, which wait by the rules of now, in the same order. What each may have is found."""
    groups: list[Group] = [*map(_GROUP, rows)]
    if None in groups:
        for at, row in enumerate(rows):
            if row.group is None:
                groups[at] = row.group = group_of(row.entry, floor)
    ground, found = floor.memory.ground, dict[object, tuple[Option, ...]]()
    outdated = {group for group in {*groups} if group.ground is not ground or not group.shared}
    for group, row in zip(groups, rows, strict=True) if outdated else ():
        if group not in outdated:
            continue
        outdated.discard(group)
        key = (group.wish, group.rules.ground) if group.shared else group
        options = found.get(key)
        if options is None:
            options = found[key] = _options(row.entry, floor, group)
        group.options, group.ground = options, ground
    return groups


def _look_at_ground(group: Group, row: Row, floor: Floor) -> None:
    if group.ground is not floor.memory.ground or not group.shared:
        group.options, group.ground = _options(row.entry, floor, group), floor.memory.ground


def group_of(entry: Entry, floor: Floor) -> Group:
    """Those that are alike: the same object for all of them, for as long as any of them has it."""
    spec, memory = entry.spec, floor.memory
    rules = memory.rules.of(spec.queue)
    limits = *_limits(entry, rules.spec), spec.deadline
    # What may be had depends on how many nodes are free, or on what happened to this run alone.
    if spec.elastic is not None or entry.status.recovery.excluded_nodes:
        return Group(Wish(), rules, False, *limits)
    content = wish_of(spec)
    wish = memory.wishes.get(content)
    if wish is None:
        wish = memory.wishes[content] = Wish()
    key = wish, rules, limits, entry.run.namespace if rules.discreet else ""
    group = memory.groups.get(key)
    if group is None:
        group = memory.groups[key] = Group(wish, rules, True, *limits)
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
        longest = max(_LEAST, longest - used)
    least = parse_duration(spec.min_time_limit) if spec.min_time_limit is not None else None
    return longest, None if least is None else float(max(_LEAST, least - used))


def granted_at_most(spec: TrainingRunSpec, queue: TrainingQueueSpec) -> float:
    """Seconds for which the run may have its nodes, if nothing is in the way; ``NO_LIMIT`` when nobody said."""
    limits = queue.limits
    asked = asked_limit(spec, limits)
    longest = parse_duration(limits.max_time_limit) if limits.max_time_limit is not None else None
    known = [float(bound) for bound in (asked, longest) if bound is not None]
    return min(known, default=NO_LIMIT)


def running_in(row: Row, floor: Floor) -> Running:
    """The run of ``row``, which holds nodes, as it was seen."""
    rules, numbering, known = floor.memory.rules.of(row.queue), floor.index.numbering, row.running
    if known is not None and known[0] is numbering and known[1] is rules:
        return known[2]
    found = running_of(row.run, floor, floor.now)
    if row.run.status.last_admitted is not None:  # else it rests on the time
        row.running = numbering, rules, found
    return found


def running_of(run: RunView, floor: Floor, now: float) -> Running:
    """The run that holds nodes, until its time limit as granted, be that over or not."""
    assert run.spec is not None
    status = run.status
    ends = ends_by(run, status.admission.time_limit, now)
    limited = status.admission.time_limit is not None
    if status.stop is not None:
        ends, limited = min(ends, status.stop.deadline), True
    elif status.preemption is not None:
        ends, limited = min(ends, status.preemption.deadline), True
    nodes = floor.held(run)
    queue_name = run.spec.queue if status.kueue is None else ""  # what Kueue reserved is in nobody's quota here
    return Running(run.uid, queue_name, status.resolved.gpu_type, nodes, _counted(run), ends, limited)


def ends_by(run: RunView, limit: int | None, now: float) -> float:
    """When a run that holds nodes ends by a time limit of so many seconds."""
    status = run.status
    since = status.last_admitted if status.last_admitted is not None else now
    return since + (NO_LIMIT if limit is None else limit - status.held_seconds)


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
        count = max(len(held), _counted(run))
        yield Running(run.uid, run.spec.queue, gpu_type, nodes, count, now + NO_LIMIT, limited=False)


def _counted(run: RunView) -> int:
    """Nodes that the run uses of the quotas: lost ones too, which are replaced without a look at these."""
    assignment = run.status.assignment
    return sum(map(bool, assignment.nodes)) + (len(slots.lacking(assignment)) if lacks_nodes(run) else 0)


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


def _options(entry: Entry, floor: Floor, group: Group) -> tuple[Option, ...]:
    """What may be had now or later. The same object for groups alike, for as long as it holds."""
    if not group.shared:
        return _options_of_its_own(entry, floor, group)
    key = group.wish, group.rules.ground
    return floor.memory.by_ground(key, partial(_options_of_its_own, entry, floor, group))


def _options_of_its_own(entry: Entry, floor: Floor, group: Group) -> tuple[Option, ...]:
    spec, queue, found = entry.spec, group.rules.spec, list[Option]()
    for requirement in floor.requirements(entry, group):
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


def _option(floor: Floor, ground: Ground, kind: Kind, count: int, limit: NodeSet, *, fallback: bool = False) -> Option:
    def make() -> Option:
        able = floor.awaited(ground, kind)
        choose = partial(ground.choose, able, count)
        return Option(kind.gpu_type, count, able.able & limit, choose, fallback, ground.is_strict)

    return floor.memory.by_ground((ground, kind, count, limit, fallback), make)


def wanted_of(entry: Entry, group: Group, floor: Floor) -> PlacementSpec:
    """Its placement with the GPU types that the quotas of its queue leave to it, for the words about what lacks."""
    placement, quotas = entry.spec.placement, group.rules.spec.quotas
    types = tuple(quota.gpu_type for quota in quotas if quota.gpu_type in floor.index.gpu_types)
    if placement.gpu_types or not types or any(quota.gpu_type == ANY_GPU_TYPE for quota in quotas):
        return placement
    return changed(placement, gpu_types=types)


def left_no_type(entry: Entry, group: Group, floor: Floor) -> str:
    """In words, that the quotas of its queue are for no GPU type that there is; empty: they are for some."""
    quotas, known = group.rules.spec.quotas, (*floor.index.gpu_types, ANY_GPU_TYPE)
    if entry.spec.placement.gpu_types or not quotas or any(quota.gpu_type in known for quota in quotas):
        return ""
    named = ", ".join(quota.gpu_type for quota in quotas)
    return (
        f"queue {entry.spec.queue} has quotas of {named} alone, and no node is of such a type for the operator; "
        "its administrator has to correct spec.quotas of the queue, whose condition Valid says more"
    )


def _grounds(
    floor: Floor, requirement: Requirement, placement: PlacementSpec, queue: TrainingQueueSpec
) -> Iterator[tuple[Ground, NodeSet]]:
    """Where the gang may stand, and the nodes to which its queue's quotas restrict it, in the order of the quotas."""
    index = floor.index
    if not queue.quotas or placement.gpu_types:
        yield Ground.of(index, requirement, placement), index.everything
        return
    named = EMPTY
    for quota in queue.quotas:
        if quota.gpu_type != ANY_GPU_TYPE and quota.gpu_type in index.gpu_types:
            named |= index.of_gpu_type(quota.gpu_type)
            of_type = changed(placement, gpu_types=(quota.gpu_type,))
            yield Ground.of(index, requirement, of_type), index.everything
    if any(quota.gpu_type == ANY_GPU_TYPE for quota in queue.quotas):
        yield Ground.of(index, requirement, placement), index.everything & ~named
