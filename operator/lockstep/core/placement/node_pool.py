"""Candidate nodes of one requirement and placement, whoever has them at the moment."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

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
        self._wanted = index.everything
        self.kept = index.mask(kept)
        self._absent = tuple(dict.fromkeys(name for name in kept if name not in index)) if kept else ()
        self._obliged = self.kept | node_set.span(len(index), len(index) + len(self._absent))
        self.is_strict = any(rule.mode == "Required" for rule in placement.topology)
        self._resources: dict[str, str] = {}  # by GPU type: what its GPUs are requested as
        self._bare = self._of_others = self.able = self.passing = EMPTY
        self._kinds: dict[int, tuple[HomogeneousNodes, ...]] = {}
        self._hopeless: dict[tuple[int, NodeSet], bool] = {}
        if not self.unknown and placement.gpu_types:
            self._wanted = EMPTY
            for word in placement.gpu_types:
                self._wanted |= index.of_gpu_type(word)
        if not self.unknown and requirement.gpus.count != 0:
            requirement = self._of_one_make(requirement)
        self._gpus = requirement.gpus
        self._judged = index.judged(requirement)
        if self.unknown:
            return
        left_out = self.kept | self._of_others | self._bare
        self.able = self._judged.able & self._wanted & ~left_out
        self.passing = self._judged.passing & self._wanted & ~left_out
        self._attempts = tuple(map(tuple, attempts(placement.topology, index.levels)))
        labels = [[wish.label for wish in wishes] for wishes in self._attempts]
        self._trees = tuple(index.numbering.tree(each, self._absent) for each in labels)

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

    def is_hopeless(self, count: int, without: NodeSet = EMPTY) -> bool:
        """An idle and healthy cluster could not hold ``count`` nodes either, ``without`` some of them."""
        kinds = self.kinds(count)
        if not self.is_strict:
            kept = self._obliged.bit_count()
            return all((kind.idle & ~without).bit_count() + kept < count for kind in kinds)
        known = self._hopeless.get((count, without))
        if known is None:
            idle = [kind.idle & ~without for kind in kinds]
            known = all(self._arranged(nodes, nodes, count) is None for nodes in idle)
            self._hopeless[count, without] = known
        return known

    @property
    def withheld(self) -> NodeSet:
        """Nodes that are waited for as they don't offer devices that they have."""
        found = EMPTY
        for refusal, nodes in self._judged.refused:
            if refusal.obstacle is Obstacle.WITHHELD:
                found |= nodes & self.passing
        return found

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
        left_out = self.kept | self._of_others | self._bare
        for refusal, nodes in self._judged.refused:
            yield refusal, nodes & ~left_out if refusal.lasting else nodes & self.passing
        words = f"without {' or '.join(self.placement.gpu_types)} GPUs"
        others = (self._judged.able | self._judged.passing) & ~self._wanted & ~left_out
        yield Refusal(Obstacle.OTHER_GPU, words), others
        taken = " or ".join(dict.fromkeys(self._resources.values()))
        yield Refusal(Obstacle.OTHER_GPU, f"without {taken if self._gpus.named else 'GPUs'}"), self._bare
        yield Refusal(Obstacle.OTHER_GPU, f"with other GPUs than {taken}", "gpuResource chooses"), self._of_others
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
        """Trees outlive these candidates: most of what is asked after a node has changed was asked before."""
        asked = self._attempts, usable, idle, self._obliged, count
        return self._trees[0].remember(asked, lambda: arrange(self._trees, *asked))

    def _of_one_make(self, requirement: Requirement) -> Requirement:
        """Who takes GPUs gets one make of them, and no nodes without, where there are any that the run may use.

        It is that of the nodes, not of what they offer at the moment, or of what is free.
        """
        index, gpus, closed = self._index, requirement.gpus, self._index.closed_to(requirement)
        for word in self.placement.gpu_types or ("",):
            admitted = (index.of_gpu_type(word) if word else index.everything) & ~closed & ~self.kept
            having = {name: index.accelerator(name).having & admitted for name in gpus.resources}
            resource = next((name for name, nodes in having.items() if nodes), "")
            self._resources[word] = resource or gpus.resource
            if not resource and not gpus.named:
                continue
            others = EMPTY
            for nodes in having.values():
                others |= nodes & ~having[resource or gpus.resource]
            self._of_others |= others
            if gpus.count is None:
                self._bare |= admitted & ~having[resource or gpus.resource] & ~others
        self._bare &= ~self._of_others
        return replace(requirement, gpus=replace(gpus, resources=tuple(dict.fromkeys(self._resources.values()))))

    def _kinds_for(self, count: int) -> Iterator[HomogeneousNodes]:
        universe = self.able | self.passing
        for gpu_type in self.placement.gpu_types or ("",):
            admitted = self._index.of_gpu_type(gpu_type) if gpu_type else self._index.everything
            alike = [admitted]
            if self._gpus.count is None:
                nodes = self._index.accelerator(self._resources[gpu_type])
                present = {number: universe & admitted & those for number, those in nodes.by_number.items()}
                # Nodes that will offer nobody knows how many are waited for: they may be like any of the others.
                alike = [
                    admitted & (nodes.by_number[number] | nodes.uncounted)
                    for number in sorted(present, reverse=True)
                    if present[number]
                ]
                if all((universe & those).bit_count() < count for those in alike):
                    alike.append(admitted)  # unequal nodes, of which the smallest sets the number
            for those in alike:
                if not self.kept & ~those:
                    yield HomogeneousNodes(gpu_type, self.able & those, universe & those)


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
