"""Mutable node and quota state of one admission cycle."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import cast

from lockstep.api.run_status import AssignmentStatus
from lockstep.core.admission.cache.entry import Entry
from lockstep.core.admission.cache.equivalence import EquivalenceClass
from lockstep.core.admission.cache.ledger import held, taken
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cache.pending_reasons import visible_names
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.engine.jobs import NodeClaim
from lockstep.core.admission.queueing.holds import queue_spec
from lockstep.core.failures.node_memory import suspicion
from lockstep.core.model import assignment as slots
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.snapshot import ClusterSnapshot, PodView, RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.node_fit import Requirement
from lockstep.core.placement.node_index import NodeIndex
from lockstep.core.placement.node_pool import HomogeneousNodes
from lockstep.core.placement.placement import ClusterNodes, Placed, Unplaceable, place
from lockstep.core.pods.leftover_pods import holds_up
from lockstep.core.pods.requirement import requirement_of


class CycleState:
    """Nodes, their bookings, which of them are free for whom, and who got some.

    All steps of a cycle share it; ``admit`` numbers them. What is decided of a run is in its entry, and what else a
    step finds it returns.
    """

    def __init__(self, snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: CycleMemory) -> None:
        # Given.
        self.snapshot = snapshot
        self.tunables = tunables
        self.now = now
        self.memory = memory

        # Set by step 1, read by all.
        self.run_index = memory.observe(snapshot, tunables, now)
        self.quotas = memory.rules.quotas
        self.busy = {uid for uid, nodes in snapshot.in_flight.items() if nodes}
        """Runs whose admission is being written."""
        self.index = NodeIndex.from_nodes(
            snapshot.nodes,
            snapshot.foreign_requests,
            tunables.topology_levels,
            tunables.gpu_types,
            memory.index,
            snapshot.changes.nodes,
            tunables.accelerators,
        )
        self.suspects = {node.name: why for node in self.index.failed_on if (why := suspicion(node, now))}
        self.returning = self._returning()
        self.all_returning = EMPTY
        for nodes in self.returning.values():
            self.all_returning |= nodes
        self.pods_of = _with_doubtful(memory.pods.by_run, snapshot.doubtful_pods)

        # Set by step 1, read by all; steps 4, 5, 8 and 12 book the nodes that they give.
        self.cluster = ClusterNodes(self.index, *taken(snapshot, self.run_index, self.index, memory.pods))

        # Set by step 3, read by 4 to 6, 12 and 15; step 8 adds what pending runs are to have.
        self.reserved = EMPTY
        """Nodes reserved for preemptors."""

        # Set by step 3, read by 4 to 7, 9, 10, 12 and 15.
        self.windows: Sequence[NodeClaim] = ()
        """Maintenance, which nothing that is to start may be in or run into."""

        # Set by steps 5 and 8, read by 6, 9, 10 and 12 to 15.
        self.started: list[RunRow] = []
        """Whole gangs that got nodes."""

        # Set by most steps, each to its own time if that comes first; read by step 16.
        self.wake_at: float | None = None
        """When the next cycle is due at the latest."""

        memory.observe_nodes(self.index, self.suspects, self.all_returning)

    def wake(self, at: float | None) -> None:
        """Look again ``at`` that time, if not before; None: no need."""
        if at is not None:
            self.wake_at = at if self.wake_at is None else min(self.wake_at, at)

    def decided_rows(self, rows: Mapping[str, RunRow]) -> list[RunRow]:
        """Those of ``rows`` that this cycle decides about, by age."""
        return sorted((row for row in rows.values() if row.uid not in self.busy), key=attrgetter("place"))

    def requirements(self, entry: Entry, group: EquivalenceClass) -> tuple[Requirement, ...]:
        """What a pending run asks of its nodes, the most wanted first: without nodes that failed, then with them."""
        if not group.shared:
            return tuple(self._requirements(entry, held=False))
        key = "requirement", group.wish, group.rules.node_choice
        plain = self.memory.by_rules(key, lambda: self._requirement(entry, held=False))
        return tuple(self._avoiding(plain))

    def place(self, entry: Entry, count: int, closed: NodeSet = EMPTY, *, urgent: bool = False) -> Placed | Unplaceable:
        """Find ``count`` nodes beside those the run has, none of them ``closed`` to it. Those that are kept for others
        only if it is ``urgent``."""
        assignment = entry.status.assignment
        kept = [node for node in assignment.nodes if node]
        wanted, placement = len(kept) + count, entry.spec.placement
        found: Placed | Unplaceable | None = None
        booked = self.cluster.booked | closed
        for gone in (booked | self.reserved, booked) if urgent and self.reserved else (booked | self.reserved,):
            cluster = replace(self.cluster, booked=gone)
            for requirement in self._requirements(entry, held=slots.is_held(assignment)):
                found = place(cluster, requirement, wanted, placement, kept)
                if isinstance(found, Placed):
                    return found
        return cast("Unplaceable", found)

    def book(self, entry: Entry, nodes: Iterable[str]) -> None:
        """Give ``nodes`` to a run."""
        booked = frozenset(nodes)
        entry.nodes |= booked
        self.cluster.booked |= self.index.mask(booked)

    def held(self, run: RunView) -> NodeSet:
        """The nodes in the assignment of ``run``, which may be as a cycle has changed it."""
        row = self.run_index.rows.get(run.uid)
        if row is not None and row.run.status.assignment is run.status.assignment:
            return held(row, self.index)
        return self.index.mask(run.status.assignment.nodes)

    def awaited(self, kind: HomogeneousNodes) -> HomogeneousNodes:
        """``kind`` with those of its nodes that are expected back soon: none of them is free before."""
        more = kind.idle & self.all_returning
        if not more:
            return kind
        return self.index.remember(
            ("awaited", kind, more), lambda: HomogeneousNodes(kind.gpu_type, kind.able | more, kind.idle)
        )

    def by_slot(self, assignment: AssignmentStatus, vacant: Sequence[int], nodes: Sequence[str]) -> dict[int, str]:
        """New nodes to vacant slots: into the rack of a neighbouring rank first, then as they come."""
        kept, held = set(assignment.nodes), [assignment.nodes[slot] for slot in slots.ranked_slots(assignment)]
        ranks = slots.slot_ranks(assignment)
        new = [node for node in nodes if node not in kept]
        found: dict[int, str] = {}
        for slot in vacant:
            rank = ranks[slot]
            near = (rank - 1, rank + 1) if rank >= 0 else ()
            beside = {self._rack(held[other]) for other in near if 0 <= other < len(held)} - {""}
            same = next((node for node in new if self._rack(node) in beside), None)
            if same is not None:
                found[slot] = same
                new.remove(same)
        return found | dict(zip((slot for slot in vacant if slot not in found), new, strict=False))

    def names_for(self, entry: Entry) -> Mapping[str, str]:
        """What a run may hear of others, by UID: their namespace and name, or nothing."""
        rows, discreet = self.run_index.rows, self.memory.rules.discreet
        return visible_names(
            entry.run.namespace, queue_of(entry.view), self.run_index.keys, lambda uid: rows[uid].queue, discreet
        )

    def entry_of(self, uid: str) -> Entry | None:
        """The run, if this cycle decides about it."""
        row = self.run_index.rows.get(uid)
        return row.entry if row is not None and not row.is_test_only and uid not in self.busy else None

    def has_live_pods(self, run: RunView) -> bool:
        """Pods of an earlier gang of the run have not ended."""
        return any(holds_up(pod, self.snapshot.nodes) for pod in self.pods_of.get(run.uid, ()))

    def seen_incarnations(self, entry: Entry) -> tuple[int, ...]:
        """The highest incarnation of every slot. Pods count too, should status have been set back."""
        seen = dict(enumerate(entry.status.assignment.incarnations))
        for pod in self.pods_of.get(entry.run.uid, ()):
            seen[pod.slot] = max(seen.get(pod.slot, 0), pod.incarnation)
        return tuple(seen.get(slot, 0) for slot in range(max(seen, default=-1) + 1))

    def _requirements(self, entry: Entry, *, held: bool) -> Iterator[Requirement]:
        yield from self._avoiding(self._requirement(entry, held=held))

    def _requirement(self, entry: Entry, *, held: bool) -> Requirement:
        labels = queue_spec(self.snapshot, queue_of(entry.view)).node_selector
        return requirement_of(entry.view, labels, self.tunables, self.now, held=held)

    def _avoiding(self, requirement: Requirement) -> Iterator[Requirement]:
        if self.suspects:
            yield replace(requirement, avoided={**self.suspects, **requirement.avoided})
        yield requirement  # better on nodes that failed before than not at all

    def _returning(self) -> dict[float, NodeSet]:
        """Nodes that are NotReady since a moment ago, by when they are expected back."""
        patience = self.tunables.admission.node_return
        found: dict[float, list[str]] = {}
        for node in self.index.not_ready:
            back = node.ready_changed_at + patience
            if back > self.now:
                found.setdefault(back, []).append(node.name)
        return {back: self.index.mask(nodes) for back, nodes in found.items()}

    def _rack(self, node: str) -> str:
        view = self.snapshot.nodes.get(node)
        narrowest = next(iter(self.tunables.topology_levels.values()), "")
        return view.labels.get(narrowest, "") if view is not None else ""


def _with_doubtful(by_run: Mapping[str, Sequence[PodView]], more: Sequence[PodView]) -> Mapping[str, Sequence[PodView]]:
    if not more:
        return by_run
    found = dict(by_run)
    for pod in more:
        found[pod.run_uid] = [*found.get(pod.run_uid, ()), pod]
    return found
