"""Placement as it was before it was done on sets: node by node, and slow. What ``place`` is held to."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.api.base import names
from lockstep.api.run_spec import PlacementSpec
from lockstep.core.model.snapshot import NodeView, Resources
from lockstep.core.placement.node_fit import (
    DELETING,
    Obstacle,
    Refusal,
    Requirement,
    avoidance,
    class_refusal,
    selections,
)
from support.topology_by_node import Labels, arrange, fullest_domains

_NAMES_SHOWN = 3
_NOTHING: Resources = {}


def node_refusal(node: NodeView, foreign: Resources, requirement: Requirement) -> Refusal | None:
    """Why ``node`` cannot hold a pod, bookings aside; None when it can. Lasting reasons come first.

    ``foreign`` is what pods of others on the node request: DaemonSets, system pods, strangers.
    """
    if node.deleting:
        return DELETING
    for terms, unselected in selections(requirement):
        if not any(all(expression.accepts(node) for expression in term) for term in terms):
            return unselected
    refusal = class_refusal(node, foreign, requirement)
    if node.name in requirement.avoided and (refusal is None or not refusal.lasting):
        return avoidance(requirement.avoided[node.name])
    return refusal


@dataclass(frozen=True, slots=True)
class Cluster:
    """What placement looks at beside the run. ``booked`` may grow while it is in use, the rest may not change."""

    nodes: Mapping[str, NodeView]
    foreign: Mapping[str, Resources]
    """By node: what pods of others request there."""
    booked: Collection[str]
    """Nodes that any run has."""
    levels: Mapping[str, str]
    """Topology levels to node labels, narrowest first."""
    gpu_types: Mapping[str, Mapping[str, str]]
    """GPU type names to node labels."""
    ending: Collection[str] = ()
    """Booked nodes that nothing but pods being deleted still holds."""
    _judged: list[tuple[Requirement, Mapping[str, Refusal]]] = field(default_factory=list)

    def refusals(self, requirement: Requirement) -> Mapping[str, Refusal]:
        """Nodes that cannot hold a pod, bookings aside. Runs that ask for the same are judged once."""
        for known, refusals in self._judged:
            if known == requirement:
                return refusals
        refusals = {}
        for name, node in self.nodes.items():
            refusal = node_refusal(node, self.foreign.get(name, _NOTHING), requirement)
            if refusal is not None:
                refusals[name] = refusal
        self._judged.append((requirement, refusals))
        return refusals


@dataclass(frozen=True, slots=True)
class Placed:
    """The gang's nodes in rank order, and the GPU type they share when the run asked for one."""

    nodes: tuple[str, ...]
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """What lacks. ``hopeless``: it would lack on an idle and healthy cluster too."""

    message: str
    hopeless: bool
    fits: int = 0
    """Free nodes that one gang could have, were fewer enough."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Nodes alike enough for one gang: of one GPU type, with one number of GPUs."""

    gpu_type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: int | None = None

    def admits(self, node: NodeView) -> bool:
        if self.gpus is not None and node.allocatable.get(names.GPU_RESOURCE, 0) != self.gpus:
            return False
        return all(node.labels.get(key) == value for key, value in self.labels.items())


@dataclass(slots=True)
class _Survey:
    """Every node but the kept ones, judged."""

    fits: list[NodeView] = field(default_factory=list)
    waiting: list[NodeView] = field(default_factory=list)  # would fit, were they idle and healthy
    refused: dict[str, Refusal] = field(default_factory=dict)


def place(
    cluster: Cluster,
    requirement: Requirement,
    count: int,
    placement: PlacementSpec,
    kept: Collection[str] = (),
) -> Placed | Unplaceable:
    """Choose ``count`` nodes; ``kept`` (the gang's already) are among them."""
    unknown = _unknown_word(cluster, placement)
    if unknown:
        return Unplaceable(unknown, hopeless=True)
    survey = _survey(cluster, requirement, placement, frozenset(kept))
    obliged: dict[str, Labels] = {name: _labels(cluster, name) for name in kept}
    kinds = list(_kinds(cluster, requirement, placement, survey, count))
    for kind in kinds:
        nodes = _arrange(cluster, survey.fits, survey.waiting, obliged, count, placement, kind)
        if nodes is not None:
            return Placed(nodes, kind.gpu_type)
    hopeless = all(
        _arrange(cluster, survey.fits + survey.waiting, (), obliged, count, placement, kind) is None for kind in kinds
    )
    fits = max((len(_usable(cluster, survey.fits, obliged, kind) or ()) for kind in kinds), default=0)
    return Unplaceable(_shortage(cluster, survey, count, placement, obliged, len(kept)), hopeless, fits)


def _unknown_word(cluster: Cluster, placement: PlacementSpec) -> str:
    for word in placement.gpu_types:
        if word not in cluster.gpu_types:
            known = ", ".join(sorted(cluster.gpu_types)) or "none"
            return f"GPU type {word} is not in the operator's configuration; known: {known}"
    for rule in placement.topology:
        if rule.level not in cluster.levels:
            known = ", ".join(cluster.levels) or "none"
            return f"topology level {rule.level} is not in the operator's configuration; known: {known}"
    return ""


def _labels(cluster: Cluster, name: str) -> Labels:
    return cluster.nodes[name].labels if name in cluster.nodes else {}


def _survey(cluster: Cluster, requirement: Requirement, placement: PlacementSpec, kept: frozenset[str]) -> _Survey:
    survey = _Survey()
    types = [_Kind(labels=cluster.gpu_types[word]) for word in placement.gpu_types]
    refusals = cluster.refusals(requirement)
    for name, node in cluster.nodes.items():
        if name in kept:
            continue
        refusal = refusals.get(name)
        if types and (refusal is None or not refusal.lasting) and not any(kind.admits(node) for kind in types):
            refusal = Refusal(Obstacle.OTHER_GPU, f"without {' or '.join(placement.gpu_types)} GPUs")
        elif refusal is None and name in cluster.booked:
            refusal = Refusal(Obstacle.BOOKED, "booked by runs", lasting=False)
            if name in cluster.ending:
                refusal = Refusal(Obstacle.ENDING, "held by pods that have not ended yet", lasting=False)
        if refusal is None:
            survey.fits.append(node)
        else:
            survey.refused[name] = refusal
            if not refusal.lasting:
                survey.waiting.append(node)
    if requirement.open_gpus:
        _leave_out_nodes_without_gpus(survey)
    return survey


def _leave_out_nodes_without_gpus(survey: _Survey) -> None:
    """Who leaves the number of GPUs open means the cluster's GPU nodes, where there are any."""
    bare = [node for node in survey.fits + survey.waiting if not node.allocatable.get(names.GPU_RESOURCE)]
    if len(bare) == len(survey.fits) + len(survey.waiting):
        return
    for node in bare:
        survey.refused[node.name] = Refusal(Obstacle.OTHER_GPU, "without GPUs")
    survey.fits = [node for node in survey.fits if node.allocatable.get(names.GPU_RESOURCE)]
    survey.waiting = [node for node in survey.waiting if node.allocatable.get(names.GPU_RESOURCE)]


def _kinds(
    cluster: Cluster, requirement: Requirement, placement: PlacementSpec, survey: _Survey, count: int
) -> Iterator[_Kind]:
    """Kinds of nodes that will do, the most wanted first."""
    for gpu_type in placement.gpu_types or ("",):
        labels = cluster.gpu_types[gpu_type] if gpu_type else {}
        kind = _Kind(gpu_type, labels)
        if not requirement.open_gpus:
            yield kind
            continue
        numbers: dict[int, int] = {}
        for node in survey.fits + survey.waiting:
            if kind.admits(node):
                gpus = node.allocatable.get(names.GPU_RESOURCE, 0)
                numbers[gpus] = numbers.get(gpus, 0) + 1
        for gpus in sorted(numbers, reverse=True):
            yield _Kind(gpu_type, labels, gpus)
        if all(nodes < count for nodes in numbers.values()):
            yield kind  # unequal nodes, of which the smallest sets the number


def _usable(
    cluster: Cluster, nodes: Sequence[NodeView], obliged: Mapping[str, Labels], kind: _Kind
) -> dict[str, Labels] | None:
    """Those of ``nodes`` that are of ``kind``; None when a node that must be in the gang is not."""
    if not all(kind.admits(cluster.nodes[name]) for name in obliged if name in cluster.nodes):
        return None
    return {node.name: node.labels for node in nodes if node.name not in obliged and kind.admits(node)}


def _arrange(
    cluster: Cluster,
    fits: Sequence[NodeView],
    waiting: Sequence[NodeView],
    obliged: Mapping[str, Labels],
    count: int,
    placement: PlacementSpec,
    kind: _Kind,
) -> tuple[str, ...] | None:
    usable = _usable(cluster, fits, obliged, kind)
    if usable is None:
        return None
    idle: dict[str, Labels] = {}
    if any(rule.policy in ("Pack", "Contiguous") for rule in placement.topology):  # others never look at it
        idle = _usable(cluster, waiting, obliged, kind) or {}
    return arrange(usable, idle, obliged, count, placement.topology, cluster.levels)


def _absent(cluster: Cluster, placement: PlacementSpec) -> str:
    absent = [name for name in placement.nodes if name not in cluster.nodes]
    more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
    return f"placement.nodes names {absent[0]}{more}, which the cluster does not have" if absent else ""


def _shortage(
    cluster: Cluster,
    survey: _Survey,
    count: int,
    placement: PlacementSpec,
    obliged: Mapping[str, Labels],
    kept: int,
) -> str:
    needed = count - kept
    more = "more " if kept else ""
    head = f"needs {needed} {more}node{'' if needed == 1 else 's'}, {len(survey.fits)} fit"
    why = ", ".join(filter(None, (summary(survey.refused.items()), _absent(cluster, placement))))
    if len(survey.fits) < needed:
        idle = len(survey.fits) + sum(not refusal.lasting for refusal in survey.refused.values())
        return f"{head}: {'; '.join(filter(None, (why, 'the cluster has no more' if idle < needed else '')))}"
    obstacles = []
    if len(placement.gpu_types) > 1:
        obstacles.append("of one GPU type")
    for rule in placement.topology:
        if rule.mode == "Required":
            limit = f", at most {rule.max_nodes} in each" if rule.max_nodes else ""
            nodes = {node.name: node.labels for node in survey.fits} | dict(obliged)
            roomiest = fullest_domains(nodes, cluster.levels[rule.level])
            found = f" (free: {roomiest})" if roomiest else ""
            obstacles.append(f"{rule.policy} by {rule.level}{limit}{found}")
    wanted = " and ".join(obstacles) or "of equal size"
    return f"{head}, but not as required: {wanted}" + (f"; {why}" if why else "")


def summary(refusals: Iterable[tuple[str, Refusal]]) -> str:
    """All refusals in one line: ``5 booked by other runs, 1 cordoned (gpu-3), 2 short of cpu (…)``."""
    groups: dict[tuple[Obstacle, str], list[tuple[str, Refusal]]] = {}
    for name, refusal in refusals:
        groups.setdefault((refusal.obstacle, refusal.group), []).append((name, refusal))
    return ", ".join(_group_summary(group, members) for (_, group), members in sorted(groups.items()))


def _group_summary(group: str, members: Sequence[tuple[str, Refusal]]) -> str:
    details = {refusal.detail for _, refusal in members}
    few = len(members) <= _NAMES_SHOWN and members[0][1].obstacle is not Obstacle.BOOKED
    shown = ", ".join(sorted(name for name, _ in members)) if few else ""
    if len(details) == 1 and (detail := details.pop()):
        shown = f"{shown}: {detail}" if shown else detail
    return f"{len(members)} {group} ({shown})" if shown else f"{len(members)} {group}"
