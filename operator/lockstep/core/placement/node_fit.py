"""Node fit: whether one node can hold a pod of a run, and if not, why, in words a person can act on."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from lockstep.api.base import names
from lockstep.core.model.accelerators import NO_GPUS, GpuRequest, gpus_of, is_part
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.quantities import in_words
from lockstep.core.model.snapshot import NodeView, Resources, Taint
from lockstep.core.placement.node_conditions import bad_conditions

WHOLE_NODE_SHARE = 4
"""A resource that the spec leaves open must be free to one part in this many: the gang takes its smallest node's."""

NAME_FIELD = "metadata.name"
"""Key of an expression that stands for the node's name."""

_STATE_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_SAID_OTHERWISE = (names.TAINT_UNSCHEDULABLE, names.TAINT_NOT_READY, names.TAINT_UNREACHABLE)  # by NodeView fields
_NAMES_SHOWN, _WITHHELD_SHOWN = 3, 8


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration as in core/v1; an empty ``effect`` matches every one."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """A pod with this toleration may be on a node with ``taint``."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return self.key == taint.key and self.value == taint.value


@dataclass(frozen=True, slots=True)
class Expression:
    """One line of a node selector term, as in core/v1. The key ``metadata.name`` stands for the node's name."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def accepts(self, node: NodeView) -> bool:
        """``node`` meets it. An operator that is not known is met by no node."""
        return self.admits(node.name if self.key == NAME_FIELD else node.labels.get(self.key))

    def admits(self, value: str | None) -> bool:
        """A node with ``value`` meets it; None: the node has none."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                try:
                    actual, bound = int(value or ""), int(self.values[0])
                except (ValueError, IndexError):
                    return False
                return actual > bound if self.operator == "Gt" else actual < bound
        return False


Terms = tuple[tuple[Expression, ...], ...]
"""One of the terms must hold whole."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a node must offer to hold one pod of the run."""

    resources: Resources
    """Amounts that must be free."""
    open: tuple[str, ...] = ()
    """Resources that the gang takes as it finds them: as much as its smallest node has free."""
    gpus: GpuRequest = NO_GPUS
    labels: tuple[tuple[str, str], ...] = ()
    """Labels the node must carry: of the queue and of the pod template."""
    terms: Terms = ()
    """Required node affinity. Empty: no wish."""
    tolerations: tuple[Toleration, ...] = ()
    excluded: frozenset[str] = frozenset()
    """Nodes the user excludes."""
    named: frozenset[str] = frozenset()
    """The only nodes the user lets it choose from; empty: any."""
    avoided: Mapping[str, str] = field(default_factory=dict)
    """Nodes that recovery keeps the run off, and why."""
    drain_taints: frozenset[str] = frozenset()
    """Keys of taints for which gangs leave a node, tolerated or not: one that is to be left is not taken."""
    levels: tuple[str, ...] = ()
    """Topology labels without which a required rule cannot be judged."""

    @property
    def key(self) -> Hashable:
        """Equal for requirements that are met by the same nodes."""
        avoided = frozenset(self.avoided.items())
        flat = (self.open, self.gpus, self.labels, self.terms, self.tolerations, self.drain_taints, self.levels)
        return (tuple(self.resources.items()), flat, self.excluded, self.named, avoided)


class Obstacle(IntEnum):
    """What keeps a run off a node. In the order in which people want to hear of it."""

    BOOKED = 1
    ENDING = 2
    CLOSED = 3
    CORDONED = 4
    NOT_READY = 5
    FAULTY = 6
    AVOIDED = 7
    WITHHELD = 8
    SHORT = 9
    TAINTED = 10
    DELETING = 11
    EXCLUDED = 12
    UNLABELLED = 13
    OTHER_GPU = 14
    NOT_SELECTED = 15


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node is not used. ``lasting``: not for something that passes by itself."""

    obstacle: Obstacle
    group: str
    """What all nodes refused for the same thing have in common: ``5 booked by other runs``."""
    detail: str = ""
    """What is particular to this node: ``4 of 8 free``."""
    lasting: bool = True

    def __str__(self) -> str:
        return f"{self.group} ({self.detail})" if self.detail else self.group


DELETING = Refusal(Obstacle.DELETING, "being deleted")
"""Comes before everything else."""


def selections(requirement: Requirement) -> Iterator[tuple[Terms, Refusal]]:
    """What the run wants of names and labels, most important first, and why nodes are refused that lack it."""
    if requirement.excluded:
        others = Expression(NAME_FIELD, "NotIn", tuple(requirement.excluded))
        yield ((others,),), Refusal(Obstacle.EXCLUDED, "excluded by placement.excludeNodes")
    if requirement.named:
        chosen = Expression(NAME_FIELD, "In", tuple(requirement.named))
        yield ((chosen,),), Refusal(Obstacle.NOT_SELECTED, "not among placement.nodes")
    for key, value in requirement.labels:
        wanted = Expression(key, "In", (value,))
        yield ((wanted,),), Refusal(Obstacle.NOT_SELECTED, "outside the node selector", f"needs {key}={value}")
    if requirement.terms:
        yield requirement.terms, Refusal(Obstacle.NOT_SELECTED, "outside the pod template's node affinity")
    for label in requirement.levels:
        yield ((Expression(label, "Exists"),),), Refusal(Obstacle.UNLABELLED, f"without the label {label}")


def avoidance(reason: str) -> Refusal:
    """Why a node is refused that recovery keeps the run off for ``reason``. Lasting refusals come before it."""
    return Refusal(Obstacle.AVOIDED, "avoided after failures", reason, lasting=False)


def class_refusal(node: NodeView, foreign: Resources, requirement: Requirement) -> Refusal | None:
    """Why neither ``node`` nor any other in its state can hold a pod, whatever its name and labels."""
    tainted = taint_refusal(node, requirement.tolerations)
    short = _resource_refusal(node, foreign, requirement)
    lasting = tainted if tainted is not None and tainted.lasting else short
    if lasting is not None and lasting.lasting:
        return lasting
    if node.drain:
        return Refusal(Obstacle.CORDONED, "being drained", node.drain, lasting=False)
    drained_by = next((taint.key for taint in node.taints if taint.key in requirement.drain_taints), "")
    if drained_by:
        return Refusal(Obstacle.CORDONED, "being drained", f"taint {drained_by}", lasting=False)
    if node.unschedulable:
        return Refusal(Obstacle.CORDONED, "cordoned", lasting=False)
    if not node.ready:
        return Refusal(Obstacle.NOT_READY, "not Ready", lasting=False)
    faults = bad_conditions(node)
    if faults:
        return Refusal(Obstacle.FAULTY, f"with the condition {faults[0]}", node.conditions[faults[0]], lasting=False)
    return tainted or short


def node_class(node: NodeView, foreign: Resources) -> Hashable:
    """Equal for nodes that ``class_refusal`` cannot tell apart."""
    faults = bad_conditions(node) if node.conditions else ()
    return (
        node.taints,
        node.deleting,
        node.unschedulable,
        node.ready,
        node.drain,
        (faults[0], node.conditions[faults[0]]) if faults else (),
        frozenset(node.allocatable.items()),
        frozenset(node.withheld.items()) if node.withheld else (),
        frozenset(foreign.items()),
    )


def untolerated(node: NodeView, tolerations: Sequence[Toleration]) -> Taint | None:
    """The first taint that keeps new pods with these tolerations off the node, but for what its other fields say."""
    for taint in node.taints:
        if taint.effect == "PreferNoSchedule" or taint.key in _SAID_OTHERWISE:
            continue
        if not any(toleration.tolerates(taint) for toleration in tolerations):
            return taint
    return None


def taint_refusal(node: NodeView, tolerations: Sequence[Toleration]) -> Refusal | None:
    """Why a node is refused for its taints."""
    taint = untolerated(node, tolerations)
    if taint is None:
        return None
    shown = f"{taint.key}={taint.value}" if taint.value else taint.key
    passing = taint.key.startswith(_STATE_TAINTS)
    return Refusal(Obstacle.TAINTED, f"tainted {shown}:{taint.effect}", lasting=not passing)


def gpu_refusal(node: NodeView, foreign: Resources, gpus: GpuRequest) -> Refusal | None:
    """Why neither ``node`` nor any other in its state has the GPUs, but for those that merely withhold them."""
    if gpus.count == 0:
        return None
    resource, has = gpus_of(node.allocatable, gpus.resources)
    if not has:
        offered = (name for name, number in sorted(node.allocatable.items()) if number > 0)
        parts = next((name for name in offered if any(is_part(name, whole) for whole in gpus.resources)), "")
        if parts:
            return Refusal(Obstacle.OTHER_GPU, f"with {parts} in place of whole GPUs", "resourcesPerNode may name it")
        if gpus.count is None:
            return None
        resource, has = gpus_of(node.withheld, gpus.resources)
    resource = resource or gpus.resource
    left = has - foreign.get(resource, 0)
    if left < (has if gpus.count is None else gpus.count):
        return Refusal(Obstacle.SHORT, f"short of {resource}", _shortage(resource, has, left, gpus.count))
    return None


def withheld(resource: str) -> Refusal:
    """Why a node is refused that has the resource and offers none of it. It is waited for."""
    group = f"offering no {resource} now"
    return Refusal(Obstacle.WITHHELD, group, "its device plugin or driver is away", lasting=False)


def _resource_refusal(node: NodeView, foreign: Resources, requirement: Requirement) -> Refusal | None:
    """Lasting ones first."""
    passing: Refusal | None = None
    for resource, asked in requirement.resources.items():
        has = node.allocatable.get(resource, 0)
        left = has - foreign.get(resource, 0)
        if left >= asked:
            continue
        if not has and resource in node.withheld and (node.withheld[resource] or asked) >= asked:
            passing = passing or withheld(resource)
            continue
        return Refusal(Obstacle.SHORT, f"short of {resource}", _shortage(resource, has, left, asked))
    for resource in requirement.open:
        has = node.allocatable.get(resource, 0)
        left = has - foreign.get(resource, 0)
        if left * WHOLE_NODE_SHARE < has or left <= 0:
            return Refusal(Obstacle.SHORT, f"short of {resource}", _shortage(resource, has, left, None))
    return passing


def _shortage(resource: str, has: int, left: int, asked: int | None) -> str:
    wanted = "" if asked is None else f", {in_words(resource, asked)} asked"
    if left == has:
        return f"it has {in_words(resource, has)}{wanted}"
    return f"DaemonSets and other pods leave {in_words(resource, left)} of {in_words(resource, has)}{wanted}"


def summary(refused: Iterable[tuple[Refusal, NodeSet]], names_of: Callable[[NodeSet], Iterable[str]]) -> str:
    """All refusals in one line: ``5 booked by other runs, 1 cordoned (gpu-3), 2 short of cpu (…)``.

    ``refused`` are disjoint sets of nodes, some of them empty; ``names_of`` names their members.
    """
    groups: dict[tuple[Obstacle, str], tuple[NodeSet, set[str]]] = {}
    for refusal, nodes in refused:
        if not nodes:
            continue
        known, details = groups.get((refusal.obstacle, refusal.group), (EMPTY, set()))
        groups[refusal.obstacle, refusal.group] = known | nodes, details | {refusal.detail}
    return ", ".join(
        _group_summary(obstacle, group, nodes, details, names_of)
        for (obstacle, group), (nodes, details) in sorted(groups.items())
    )


def _group_summary(
    obstacle: Obstacle,
    group: str,
    nodes: NodeSet,
    details: Collection[str],
    names_of: Callable[[NodeSet], Iterable[str]],
) -> str:
    number = nodes.bit_count()
    few = number <= _NAMES_SHOWN and obstacle is not Obstacle.BOOKED
    shown = ", ".join(sorted(names_of(nodes))) if few else ""
    if obstacle is Obstacle.WITHHELD and not few:  # somebody has to look at them
        found = sorted(names_of(nodes))
        shown = ", ".join(found[:_WITHHELD_SHOWN]) + (", …" if number > _WITHHELD_SHOWN else "")
    if len(details) == 1 and (detail := next(iter(details))):
        shown = f"{shown}: {detail}" if shown else detail
    return f"{number} {group} ({shown})" if shown else f"{number} {group}"
