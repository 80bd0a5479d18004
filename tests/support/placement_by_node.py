"""Placement as it was before it was done on sets: node by node, and slow. What ``place`` is held to."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockstep.api.run_spec import PlacementSpec
from lockstep.core.model.accelerators import ACCELERATORS, GpuRequest, is_part, says
from lockstep.core.model.snapshot import NodeView, Resources
from lockstep.core.placement.node_fit import (
    DELETING,
    Obstacle,
    Refusal,
    Requirement,
    avoidance,
    class_refusal,
    gpu_refusal,
    selections,
    taint_refusal,
    withheld,
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
    refusal, away = class_refusal(node, foreign, requirement), ""
    if requirement.gpus.count != 0:
        away = _away(node, requirement.gpus)
        if (refusal is None or not refusal.lasting) and not away:
            refusal = gpu_refusal(node, foreign, requirement.gpus) or refusal
    if node.name in requirement.avoided and (refusal is None or not refusal.lasting):
        return avoidance(requirement.avoided[node.name])
    return refusal or (withheld(away) if away else None)


def offers(node: NodeView, resource: str) -> bool:
    """It offers some, whole or in parts."""
    offered = (name for name, number in node.allocatable.items() if number)
    return any(name == resource or is_part(name, resource) for name in offered)


def has(node: NodeView, resource: str) -> bool:
    """The node has some, offered or not."""
    return offers(node, resource) or resource in node.withheld or says(node.labels, ACCELERATORS[resource])


def _away(node: NodeView, gpus: GpuRequest) -> str:
    if any(offers(node, resource) for resource in gpus.resources):
        return ""
    for resource in gpus.resources:
        number = node.withheld.get(resource, 0)
        if has(node, resource) and (gpus.count is None or not number or number >= gpus.count):
            return resource
    return ""


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
    resource: str = ""

    def admits(self, node: NodeView) -> bool:
        if self.gpus is not None and _number(node, self.resource) not in (self.gpus, None):
            return False
        return all(node.labels.get(key) == value for key, value in self.labels.items())


@dataclass(slots=True)
class _Survey:
    """Every node but the kept ones, judged."""

    fits: list[NodeView] = field(default_factory=list)
    waiting: list[NodeView] = field(default_factory=list)  # would fit, were they idle and healthy
    refused: dict[str, Refusal] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)  # by GPU type: what its GPUs are requested as
    left_out: dict[str, Refusal] = field(default_factory=dict)  # of another make, or without GPUs


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
    if requirement.gpus.count != 0:
        requirement = _of_one_make(cluster, requirement, placement, survey, kept)
    types = [_Kind(labels=cluster.gpu_types[word]) for word in placement.gpu_types]
    refusals = cluster.refusals(requirement)
    for name, node in cluster.nodes.items():
        if name in kept:
            continue
        if name in survey.left_out:
            survey.refused[name] = survey.left_out[name]
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
    return survey


def _is_closed(node: NodeView, requirement: Requirement) -> bool:
    """The run may not use it, whatever it offers."""
    for terms, _ in selections(requirement):
        if not any(all(expression.accepts(node) for expression in term) for term in terms):
            return True
    tainted = taint_refusal(node, requirement.tolerations)
    return tainted is not None and tainted.lasting


def _of_one_make(
    cluster: Cluster, requirement: Requirement, placement: PlacementSpec, survey: _Survey, kept: frozenset[str]
) -> Requirement:
    """Who takes GPUs gets one make of them, and no nodes without, where there are any that the run may use."""
    gpus = requirement.gpus
    bare, others = set[str](), set[str]()
    for word in placement.gpu_types or ("",):
        kind = _Kind(word, cluster.gpu_types[word] if word else {})
        nodes = [node for node in cluster.nodes.values() if kind.admits(node) and node.name not in kept]
        mine = [node for node in nodes if not _is_closed(node, requirement)]
        resource = next((each for each in gpus.resources if any(has(node, each) for node in mine)), "")
        survey.resources[word] = resource or gpus.resource
        for node in mine if resource or gpus.named else ():
            if has(node, resource or gpus.resource):
                continue
            if any(has(node, other) for other in gpus.resources):
                others.add(node.name)
            elif gpus.count is None:
                bare.add(node.name)
    taken = " or ".join(dict.fromkeys(survey.resources.values()))
    without = Refusal(Obstacle.OTHER_GPU, f"without {taken if gpus.named else 'GPUs'}")
    other = Refusal(Obstacle.OTHER_GPU, f"with other GPUs than {taken}", "gpuResource chooses")
    survey.left_out = dict.fromkeys(bare, without) | dict.fromkeys(others, other)
    return replace(requirement, gpus=replace(gpus, resources=tuple(dict.fromkeys(survey.resources.values()))))


def _number(node: NodeView, resource: str) -> int | None:
    """GPUs that it has; None: nobody knows how many; -1: parts of them."""
    number = node.allocatable.get(resource, 0) or node.withheld.get(resource, 0)
    if number or not has(node, resource):
        return number
    return -1 if offers(node, resource) else None


def _kinds(
    cluster: Cluster, requirement: Requirement, placement: PlacementSpec, survey: _Survey, count: int
) -> Iterator[_Kind]:
    """Kinds of nodes that will do, the most wanted first."""
    for gpu_type in placement.gpu_types or ("",):
        labels = cluster.gpu_types[gpu_type] if gpu_type else {}
        kind = _Kind(gpu_type, labels)
        if requirement.gpus.count is not None:
            yield kind
            continue
        resource = survey.resources[gpu_type]
        found = [_number(node, resource) for node in survey.fits + survey.waiting if kind.admits(node)]
        numbers = {number: found.count(number) for number in found if number is not None}
        unknown = found.count(None)
        for number in sorted(numbers, reverse=True):
            yield _Kind(gpu_type, labels, number, resource)
        if all(nodes + unknown < count for nodes in numbers.values()):
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
