"""Gives whole gangs their nodes: assignment, what the nodes settle, time limit, and the events that say so."""

from collections.abc import Sequence

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.core.admission.cache.entry import Entry
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.cycle_result import JobStart
from lockstep.core.admission.engine.jobs import NO_LIMIT
from lockstep.core.admission.engine_adapter import lengths_of
from lockstep.core.admission.kueue_admission import NodeGrant
from lockstep.core.admission.queueing.holds import hours_used_up, queue_spec
from lockstep.core.admission.queueing.order import waits_since
from lockstep.core.failures.recovery_record import record_shrink
from lockstep.core.model import assignment as slots
from lockstep.core.model.accelerators import gpu_request
from lockstep.core.model.admission_record import record_admission, record_limit
from lockstep.core.model.plan import Event
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.resolved_record import record_resolved, record_template
from lockstep.core.placement.topology import fullest_domains
from lockstep.core.pods import gang
from lockstep.core.pods.pod_groups import planned
from lockstep.core.pods.requirement import resolve

_NODES_NAMED = 8


def start_gang(row: RunRow, start: JobStart, cycle: CycleState) -> None:
    """Give a run what the engine found for it."""
    entry, spec, limit = row.entry, row.entry.spec, round(start.until - cycle.now, 3)  # floats are not exact
    chosen = cycle.index.names(start.nodes)
    _give(entry, chosen, start.option.gpu_type, cycle, limit, backfilled=start.backfilled)
    words = _map_in_words(chosen, cycle)
    if start.backfilled:
        words += "; ahead of runs before it in the order, which it does not delay"
    if limit < row.wanted.duration:
        words += f"; with a time limit of {int(limit)} s"
    entry.events.append(Event("Normal", EventReason.ADMITTED, ActionWord.ADMIT, words))
    if cycle.tunables.pod_groups.lack:
        note = f"the gang starts without a PodGroup: {cycle.tunables.pod_groups.lack}"
        entry.events.append(Event("Normal", EventReason.WITHOUT_POD_GROUP, ActionWord.ADMIT, note))
    queue, used = queue_spec(cycle.snapshot, spec.queue), cycle.snapshot.gpu_hours.get(spec.queue, 0)
    if hours_used_up(queue, used):
        note = f"queue {spec.queue} used {used} GPU-hours in the last 24 hours, of {queue.limits.gpu_hours_per_day}"
        entry.events.append(Event("Warning", EventReason.GPU_HOURS_LIMIT, ActionWord.ADMIT, note))


def start_granted_gang(grant: NodeGrant, cycle: CycleState) -> None:
    """Give a run the nodes that Kueue reserved for it."""
    entry = grant.entry
    longest = lengths_of(entry, queue_spec(cycle.snapshot, entry.spec.queue))[1]
    _give(entry, grant.nodes, grant.gpu_type, cycle, min(grant.limit, longest))
    words = _map_in_words(grant.nodes, cycle)
    entry.events.append(Event("Normal", EventReason.ADMITTED, ActionWord.ADMIT, words))


def _give(
    entry: Entry, chosen: Sequence[str], gpu_type: str, cycle: CycleState, limit: float, *, backfilled: bool = False
) -> None:
    """The whole gang gets its nodes, from which all else of its attempt follows. ``limit``: seconds."""
    spec, status, tunables = entry.spec, entry.status, cycle.tunables
    asked = status.scale_up
    by_request = asked is not None and asked.by == "ProvisioningRequest" and asked.nodes > 0
    incarnations = cycle.seen_incarnations(entry)
    before = slots.counted(status.assignment, incarnations)
    stamp = float(int(cycle.now))
    given = record_shrink(status, stamp if len(chosen) < spec.nodes else None)
    given = slots.put(given, slots.assigned(before, chosen, spares=spec.spare_nodes))
    given = record_resolved(
        given,
        resolve(entry.run, cycle.cluster, chosen, gpu_type),
        pod_group=planned(entry.run, tunables.pod_groups, status.attempt + 1),
        provisioning_request=names.scale_up_name(entry.run.name, entry.run.uid) if by_request else "",
        provisioning_class=asked.provisioning_class if by_request and asked is not None else "",
    )
    given = changed(given, attempt=status.attempt + 1, last_admitted=stamp, reservation=None)
    template = gang.template_for(entry.run, given, tunables)
    granted = None if limit >= NO_LIMIT else int(limit) + status.held_seconds
    given = record_limit(record_template(given, template.hash), granted, spec.time_limit or "", "")
    entry.status = record_admission(given, waits_since(entry.run, stamp), backfilled=backfilled)
    resolved = entry.status.resolved
    if resolved.unused_gpus:
        note = f"{resolved.unused_gpus} stay unused: the gang has {resolved.gpus_per_node} of each node"
        why = ", as the smallest has no more" if gpu_request(spec, cycle.index.accelerators).count is None else ""
        remedy = "; gpusPerNode, placement.gpuTypes or placement.excludeNodes choose otherwise"
        entry.events.append(Event("Warning", EventReason.GPUS_UNUSED, ActionWord.ADMIT, note + why + remedy))
    entry.reason = None
    cycle.started.append(cycle.run_index.rows[entry.run.uid])
    cycle.book(entry, chosen)


def _map_in_words(chosen: Sequence[str], cycle: CycleState) -> str:
    words = f"{len(chosen)} node{'' if len(chosen) == 1 else 's'}, rank 0 on {chosen[0]}"
    for level, label in cycle.tunables.topology_levels.items():
        counts: dict[str, int] = {}
        for name in chosen:
            value = cycle.snapshot.nodes[name].labels.get(label)
            if value is not None:
                counts[value] = counts.get(value, 0) + 1
        if lying := fullest_domains(counts, shown=_NODES_NAMED):
            return f"{words}; nodes by {level}: {lying}"
    return words
