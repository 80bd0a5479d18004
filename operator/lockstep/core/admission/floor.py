"""The cluster while one admission pass gives its nodes away."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from lockstep.api.run_status import AssignmentStatus
from lockstep.core import assignment as slots
from lockstep.core.admission.entry import Entry
from lockstep.core.admission.holds import queue_spec
from lockstep.core.admission.ledger import held, taken
from lockstep.core.admission.memory import Memory
from lockstep.core.ground import Ground, Kind
from lockstep.core.leftovers import holds_up
from lockstep.core.node_fit import Requirement
from lockstep.core.node_index import NodeIndex
from lockstep.core.node_memory import suspicion
from lockstep.core.placement import Cluster, Placed, Unplaceable, place
from lockstep.core.requirement import requirement_of, wish_of
from lockstep.core.snapshot import ClusterSnapshot, PodView, RunView
from lockstep.core.tunables import Tunables


class Floor:
    """Nodes, who has them, and which are to be had."""

    def __init__(self, snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: Memory) -> None:
        self.snapshot = snapshot
        self.tunables = tunables
        self.now = now
        self.rows = memory.look(snapshot, tunables, now)
        self.index = NodeIndex.of(
            snapshot.nodes, snapshot.foreign_requests, tunables.topology_levels, tunables.gpu_types, memory.index
        )
        self.cluster = Cluster(self.index, *taken(snapshot, self.rows, self.index, memory))
        self.suspects = {node.name: why for node in self.index.failed_on if (why := suspicion(node, now))}
        self.returning = self._returning()
        self._all_returning = 0
        for nodes in self.returning.values():
            self._all_returning |= nodes
        self.reserved = 0
        """Nodes that are kept for runs that others make room for."""
        memory.look_at_ground(self.index, self.suspects, self._all_returning)
        self.memory = memory
        self._pods = memory.of_pods(snapshot.gang_pods, "by run", partial(_by_run, snapshot.gang_pods))

    def requirements(self, entry: Entry) -> tuple[Requirement, ...]:
        """What a pending run asks of its nodes, the most wanted first: without nodes that failed, then with them."""
        if entry.status.recovery.excluded_nodes:
            return tuple(self._requirements(entry, held=False))
        wish = self.wish(entry)
        return self.memory.on_ground(
            ("requirements", wish, entry.spec.queue), lambda: tuple(self._requirements(entry, held=False))
        )

    def wish(self, entry: Entry) -> Hashable:
        """The same for runs that ask the same of as many nodes, exclusions by recovery and elasticity aside."""
        row = self.memory.rows.get(entry.run.uid)
        if row is None or row.run is not entry.run:
            return wish_of(entry.spec)
        if row.wish is None:
            content = wish_of(entry.spec)
            row.wish = self.memory.shared(content, lambda: _Wish())
        return row.wish

    def place(self, entry: Entry, count: int, *, urgent: bool = False) -> Placed | Unplaceable:
        """Find ``count`` nodes beside those the run has. Those that are kept for others only if it is ``urgent``."""
        assignment = entry.status.assignment
        kept = [node for node in assignment.nodes if node]
        wanted, placement = len(kept) + count, entry.spec.placement
        found: Placed | Unplaceable | None = None
        booked = self.cluster.booked
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

    def held(self, run: RunView) -> int:
        """The nodes in the assignment of ``run``, which may be as a pass has changed it."""
        row = self.memory.rows.get(run.uid)
        if row is not None and row.run.status.assignment is run.status.assignment:
            return held(row, self.index)
        return self.index.mask(run.status.assignment.nodes)

    def awaited(self, ground: Ground, kind: Kind) -> Kind:
        """``kind`` with those of its nodes that are expected back soon: none of them is free before."""
        more = kind.idle & self._all_returning
        if not more:
            return kind
        return self.index.remember(("awaited", kind, more), lambda: Kind(kind.gpu_type, kind.able | more, kind.idle))

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

    def has_live_pods(self, entry: Entry) -> bool:
        """Pods of an earlier gang of the run have not ended."""
        return entry.run.uid in self._pods and any(
            holds_up(pod, self.snapshot.nodes) for pod in self._pods.get(entry.run.uid, ())
        )

    def seen_incarnations(self, entry: Entry) -> tuple[int, ...]:
        """The highest incarnation of every slot. Pods count too, should status have been set back."""
        seen = dict(enumerate(entry.status.assignment.incarnations))
        for pod in self._pods.get(entry.run.uid, ()):
            seen[pod.slot] = max(seen.get(pod.slot, 0), pod.incarnation)
        return tuple(seen.get(slot, 0) for slot in range(max(seen, default=-1) + 1))

    def _requirements(self, entry: Entry, *, held: bool) -> Iterator[Requirement]:
        labels = queue_spec(self.snapshot, entry.spec.queue).node_selector
        requirement = requirement_of(entry.view, labels, self.tunables, self.now, held=held)
        if self.suspects:
            yield replace(requirement, avoided={**self.suspects, **requirement.avoided})
        yield requirement  # better on nodes that failed before than not at all

    def _returning(self) -> dict[float, int]:
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


class _Wish:
    """Stands for what some runs ask for alike."""


def _by_run(pods: Iterable[PodView]) -> dict[str, list[PodView]]:
    found: dict[str, list[PodView]] = {}
    for pod in pods:
        if pod.owner_uid == pod.run_uid:
            found.setdefault(pod.run_uid, []).append(pod)
    return found
