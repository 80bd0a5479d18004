"""Candidate nodes of one requirement and placement, whoever has them at the moment."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lockstep.api.run_spec import PlacementSpec
from lockstep.core.model import node_set
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.placement.node_fit import Obstacle, Refusal, Requirement
from lockstep.core.placement.node_index import NodeIndex
from lockstep.core.placement.topology import arrange, attempts


@dataclass(frozen=True, slots=True, eq=False)
class HomogeneousNodes:
    """Nodes alike enough for one gang: of one GPU type, with one number of GPUs."""

    gpu_type: str
    able: NodeSet
    """Nodes that can hold a pod, bookings and the gang's own nodes aside."""
    idle: NodeSet
    """Those, and nodes that wait for something to pass."""


class CandidateNodes:
    """The answers for one requirement and placement, remembered. Numbers of nodes include those kept."""

    def __init__(
        self, index: NodeIndex, requirement: Requirement, placement: PlacementSpec, kept: Collection[str] = ()
    ) -> None:
        """``kept`` are nodes that the gang has and keeps; they need not exist any more."""
        self.placement = placement
        self.unknown = _unknown_word(index, placement)
        self._index = index
        self._open_gpus = requirement.open_gpus
        self._judged = index.judged(requirement)
        self._wanted = index.everything
        self.kept = index.mask(kept)
        self._absent = tuple(dict.fromkeys(name for name in kept if name not in index)) if kept else ()
        self._obliged = self.kept | node_set.span(len(index), len(index) + len(self._absent))
        self.is_strict = any(rule.mode == "Required" for rule in placement.topology)
        self._bare = self.able = self.passing = EMPTY
        self._kinds: dict[int, tuple[HomogeneousNodes, ...]] = {}
        self._hopeless: dict[int, bool] = {}
        if self.unknown:
            return
        if placement.gpu_types:
            self._wanted = EMPTY
            for word in placement.gpu_types:
                self._wanted |= index.of_gpu_type(word)
        self.able = self._judged.able & self._wanted & ~self.kept
        self.passing = self._judged.passing & self._wanted & ~self.kept
        if requirement.open_gpus:
            self._leave_out_nodes_without_gpus()
        self._attempts = tuple(map(tuple, attempts(placement.topology, index.levels)))
        self._tree = index.numbering.tree([wish.label for wish in self._attempts[0]], self._absent)

    @classmethod
    def for_requirement(
        cls, index: NodeIndex, requirement: Requirement, placement: PlacementSpec, kept: Collection[str] = ()
    ) -> "CandidateNodes":
        """The same for the same arguments, as far as the index remembers it."""
        if kept:
            return cls(index, requirement, placement, kept)
        wishes = (placement.gpu_types, placement.topology, placement.nodes)
        return index.remember(("candidates", requirement.key, wishes), lambda: cls(index, requirement, placement))

    def kinds(self, count: int) -> tuple[HomogeneousNodes, ...]:
        """Kinds of nodes that will do for ``count``, the most wanted first."""
        known = self._kinds.get(count)
        if known is None:
            known = self._kinds[count] = () if self.unknown else tuple(self._kinds_for(count))
        return known

    def choose(self, kind: HomogeneousNodes, count: int, available: NodeSet) -> NodeSet | None:
        """``count`` nodes as the placement rules want them: those kept, the rest out of ``available``.

        None when the rules forbid it. Nodes that are no more are represented by the bits after the last one.
        """
        return self._arranged(available & kind.able, kind.idle, count)

    def is_hopeless(self, count: int) -> bool:
        """An idle and healthy cluster could not hold ``count`` nodes either."""
        kinds = self.kinds(count)
        if not self.is_strict:
            return all(kind.idle.bit_count() + self._obliged.bit_count() < count for kind in kinds)
        known = self._hopeless.get(count)
        if known is None:
            known = self._hopeless[count] = all(self._arranged(kind.idle, kind.idle, count) is None for kind in kinds)
        return known

    def most(self, count: int, available: NodeSet) -> int:
        """How many of ``available`` one gang could have beside those kept, were fewer than ``count`` enough."""
        return max(((available & kind.able).bit_count() for kind in self.kinds(count)), default=0)

    def in_rank_order(self, nodes: NodeSet) -> tuple[str, ...]:
        """The names of nodes that were chosen."""
        if not self._absent:
            return self._index.names(nodes)
        return self._index.numbering.merged_in_rank_order(nodes & self._index.everything, self._absent)

    def names(self, nodes: NodeSet) -> tuple[str, ...]:
        """The names of ``nodes`` that exist."""
        return self._index.names(nodes)

    def domains(self, level: str, nodes: NodeSet) -> dict[str, int]:
        """How many of ``nodes`` lie in each domain of ``level``, by the value of its label."""
        tree = self._index.numbering.tree([self._index.levels[level]])
        found: dict[str, int] = {}
        for value, number in zip(tree.values, tree.counts(nodes), strict=True):
            if number and value is not None:
                found[value] = found.get(value, 0) + number
        return found

    def refused(self, booked: NodeSet, ending: NodeSet, closed: NodeSet = EMPTY) -> Iterator[tuple[Refusal, NodeSet]]:
        """Nodes that are not free for this, by why: disjoint sets. ``ending`` are among ``booked``, ``closed`` need
        not be."""
        for refusal, nodes in self._judged.refused:
            yield refusal, nodes & ~self.kept if refusal.lasting else nodes & self.passing
        words = f"without {' or '.join(self.placement.gpu_types)} GPUs"
        others = (self._judged.able | self._judged.passing) & ~self._wanted & ~self.kept
        yield Refusal(Obstacle.OTHER_GPU, words), others
        yield Refusal(Obstacle.OTHER_GPU, "without GPUs"), self._bare
        yield Refusal(Obstacle.BOOKED, "booked by runs", lasting=False), self.able & booked & ~ending
        yield (
            Refusal(Obstacle.ENDING, "held by pods that have not ended yet", lasting=False),
            self.able & booked & ending,
        )
        yield Refusal(Obstacle.CLOSED, "kept free for maintenance", lasting=False), self.able & closed & ~booked

    def missing_names(self) -> list[str]:
        """Nodes that the user named and the cluster does not have."""
        return [name for name in self.placement.nodes if name not in self._index]

    def _arranged(self, usable: NodeSet, idle: NodeSet, count: int) -> NodeSet | None:
        """The tree outlives these candidates: most of what is asked after a node has changed was asked before."""
        asked = self._attempts, usable, idle, self._obliged, count
        return self._tree.remember(asked, lambda: arrange(self._tree, *asked))

    def _leave_out_nodes_without_gpus(self) -> None:
        """Who leaves the number of GPUs open means the cluster's GPU nodes, where there are any."""
        universe = self.able | self.passing
        bare = universe & self._index.by_gpus().get(0, EMPTY)
        if bare != universe:
            self._bare = bare
            self.able &= ~bare
            self.passing &= ~bare

    def _kinds_for(self, count: int) -> Iterator[HomogeneousNodes]:
        universe = self.able | self.passing
        for gpu_type in self.placement.gpu_types or ("",):
            admitted = self._index.of_gpu_type(gpu_type) if gpu_type else self._index.everything
            alike = [admitted]
            if self._open_gpus:
                by_gpus = self._index.by_gpus()
                numbers = {gpus: (universe & admitted & by_gpus[gpus]).bit_count() for gpus in by_gpus}
                alike = [admitted & by_gpus[gpus] for gpus in sorted(by_gpus, reverse=True) if numbers[gpus]]
                if all(number < count for number in numbers.values()):
                    alike.append(admitted)  # unequal nodes, of which the smallest sets the number
            for nodes in alike:
                if not self.kept & ~nodes:
                    yield HomogeneousNodes(gpu_type, self.able & nodes, universe & nodes)


def _unknown_word(index: NodeIndex, placement: PlacementSpec) -> str:
    for word in placement.gpu_types:
        if word not in index.gpu_types:
            known = ", ".join(sorted(index.gpu_types)) or "none"
            return f"GPU type {word} is not in the operator's configuration; known: {known}"
    for rule in placement.topology:
        if rule.level not in index.levels:
            known = ", ".join(index.levels) or "none"
            return f"topology level {rule.level} is not in the operator's configuration; known: {known}"
    return ""
