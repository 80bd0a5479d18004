"""Placement: a gang's nodes in rank order, or the reason why there are none."""

from collections.abc import Collection
from dataclasses import dataclass

from lockstep.api.run_spec import PlacementSpec
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.placement.node_fit import Requirement, summary
from lockstep.core.placement.node_index import NodeIndex
from lockstep.core.placement.node_pool import CandidateNodes
from lockstep.core.placement.topology import fullest_domains


@dataclass(slots=True)
class ClusterNodes:
    """What placement reads beside the run. The bookings, sets of nodes, may change while it is in use."""

    index: NodeIndex
    booked: NodeSet = EMPTY
    """Nodes that any run has."""
    ending: NodeSet = EMPTY
    """Booked nodes that nothing but pods being deleted still holds."""

    def free(self, node: str, resource: str) -> int:
        """What pods of others leave of ``resource`` on ``node``."""
        return self.index.free(node, resource)


@dataclass(frozen=True, slots=True)
class Placed:
    """The gang's nodes in rank order, and the GPU type they share when the run asked for one."""

    nodes: tuple[str, ...]
    gpu_type: str = ""


class Unplaceable:
    """What lacks, with the bookings as they were. Words are made when somebody reads them: most are not read."""

    __slots__ = ("_booked", "_candidates", "_count", "_ending", "_kept", "fits")

    def __init__(self, candidates: CandidateNodes, count: int, kept: int, booked: NodeSet, ending: NodeSet) -> None:
        """``kept``: how many of ``count`` nodes the gang has."""
        self._candidates = candidates
        self._count = count
        self._kept = kept
        self._booked = booked
        self._ending = ending
        self.fits = candidates.most(count, ~booked)
        """Free nodes that one gang could have, were fewer enough."""

    @property
    def hopeless(self) -> bool:
        """It would lack on an idle and healthy cluster too."""
        return self._candidates.is_hopeless(self._count)

    @property
    def message(self) -> str:
        """What lacks, in words."""
        return shortage(self._candidates, self._count, self._kept, self._booked, self._ending)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unplaceable) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"Unplaceable{self._identity()}"

    def _identity(self) -> tuple[str, bool, int]:
        return self.message, self.hopeless, self.fits


def place(
    cluster: ClusterNodes,
    requirement: Requirement,
    count: int,
    placement: PlacementSpec,
    kept: Collection[str] = (),
) -> Placed | Unplaceable:
    """Choose ``count`` nodes; ``kept`` (the gang's already) are among them."""
    candidates = CandidateNodes.for_requirement(cluster.index, requirement, placement, kept)
    for kind in candidates.kinds(count):
        chosen = candidates.choose(kind, count, ~cluster.booked)
        if chosen is not None:
            return Placed(candidates.in_rank_order(chosen), kind.gpu_type)
    return Unplaceable(candidates, count, len(kept), cluster.booked, cluster.ending)


def shortage(
    candidates: CandidateNodes, count: int, kept: int, booked: NodeSet, ending: NodeSet, closed: NodeSet = EMPTY
) -> str:
    """Why ``count`` nodes, ``kept`` of them the gang's already, cannot be found, with these nodes booked and those
    ``closed`` for maintenance."""
    if candidates.unknown:
        return candidates.unknown
    placement = candidates.placement
    free = candidates.able & ~(booked | closed)
    needed, fits = count - kept, free.bit_count()
    more = "more " if kept else ""
    head = f"needs {needed} {more}node{'' if needed == 1 else 's'}, {fits} fit"
    why = ", ".join(
        filter(None, (summary(candidates.refused(booked, ending, closed), candidates.names), _missing(candidates)))
    )
    if fits < needed:
        idle = (candidates.able | candidates.passing).bit_count()
        return f"{head}: {'; '.join(filter(None, (why, 'the cluster has no more' if idle < needed else '')))}"
    obstacles = []
    if len(placement.gpu_types) > 1:
        obstacles.append("of one GPU type")
    for rule in placement.topology:
        if rule.mode == "Required":
            limit = f", at most {rule.max_nodes} in each" if rule.max_nodes else ""
            roomiest = fullest_domains(candidates.domains(rule.level, free | candidates.kept))
            found = f" (free: {roomiest})" if roomiest else ""
            obstacles.append(f"{rule.policy} by {rule.level}{limit}{found}")
    wanted = " and ".join(obstacles) or "of equal size"
    return f"{head}, but not as required: {wanted}" + (f"; {why}" if why else "")


def _missing(candidates: CandidateNodes) -> str:
    missing = candidates.missing_names()
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"placement.nodes names {missing[0]}{more}, which the cluster does not have" if missing else ""
