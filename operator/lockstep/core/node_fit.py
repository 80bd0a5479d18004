"""Whether one node can hold a pod of a run, and if not, why: in words a person can act on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from lockstep.api import names
from lockstep.core.quantities import in_words
from lockstep.core.snapshot import NodeView, Resources, Taint

WHOLE_NODE_SHARE = 4
"""A resource that the spec leaves open must be free to one part in this many: the gang takes its smallest node's."""

_STATE_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_SAID_OTHERWISE = (names.TAINT_UNSCHEDULABLE, names.TAINT_NOT_READY, names.TAINT_UNREACHABLE)  # by NodeView fields
_NAMES_SHOWN = 3


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
        value = node.name if self.key == "metadata.name" else node.labels.get(self.key)
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


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a node must offer to hold one pod of the run."""

    resources: Resources
    """Amounts that must be free."""
    open: tuple[str, ...] = ()
    """Resources that the gang takes as it finds them: as much as its smallest node has free."""
    open_gpus: bool = False
    """The gang takes all GPUs of its nodes, however many these are."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels the node must carry: of the queue and of the pod template."""
    terms: tuple[tuple[Expression, ...], ...] = ()
    """Required node affinity: one of the terms must hold whole. Empty: no wish."""
    tolerations: tuple[Toleration, ...] = ()
    excluded: frozenset[str] = frozenset()
    """Nodes the user excludes."""
    named: frozenset[str] = frozenset()
    """The only nodes the user lets it choose from; empty: any."""
    avoided: Mapping[str, str] = field(default_factory=dict)
    """Nodes that recovery keeps the run off, and why."""
    levels: tuple[str, ...] = ()
    """Topology labels without which a required rule cannot be judged."""


class Obstacle(IntEnum):
    """What keeps a run off a node. In the order in which people want to hear of it."""

    BOOKED = 1
    ENDING = 2
    CORDONED = 3
    NOT_READY = 4
    AVOIDED = 5
    SHORT = 6
    TAINTED = 7
    DELETING = 8
    EXCLUDED = 9
    UNLABELLED = 10
    OTHER_GPU = 11
    NOT_SELECTED = 12


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


def node_refusal(node: NodeView, foreign: Resources, requirement: Requirement) -> Refusal | None:
    """Why ``node`` cannot hold a pod, bookings aside; None when it can. Lasting reasons come first.

    ``foreign`` is what pods of others on the node request: DaemonSets, system pods, strangers.
    """
    tainted = _taint_refusal(node, requirement.tolerations)
    lasting = (
        _label_refusal(node, requirement)
        or (tainted if tainted is not None and tainted.lasting else None)
        or _resource_refusal(node, foreign, requirement)
    )
    if lasting is not None:
        return lasting
    if node.name in requirement.avoided:
        return Refusal(Obstacle.AVOIDED, "avoided after failures", requirement.avoided[node.name], lasting=False)
    if node.unschedulable:
        return Refusal(Obstacle.CORDONED, "cordoned", lasting=False)
    if not node.ready:
        return Refusal(Obstacle.NOT_READY, "not Ready", lasting=False)
    return tainted


def _label_refusal(node: NodeView, requirement: Requirement) -> Refusal | None:
    if node.deleting:
        return Refusal(Obstacle.DELETING, "being deleted")
    if node.name in requirement.excluded:
        return Refusal(Obstacle.EXCLUDED, "excluded by placement.excludeNodes")
    if requirement.named and node.name not in requirement.named:
        return Refusal(Obstacle.NOT_SELECTED, "not among placement.nodes")
    for key, value in requirement.labels:
        if node.labels.get(key) != value:
            return Refusal(Obstacle.NOT_SELECTED, "outside the node selector", f"needs {key}={value}")
    if requirement.terms and not any(all(e.accepts(node) for e in term) for term in requirement.terms):
        return Refusal(Obstacle.NOT_SELECTED, "outside the pod template's node affinity")
    for label in requirement.levels:
        if label not in node.labels:
            return Refusal(Obstacle.UNLABELLED, f"without the label {label}")
    return None


def _taint_refusal(node: NodeView, tolerations: Sequence[Toleration]) -> Refusal | None:
    for taint in node.taints:
        if taint.effect == "PreferNoSchedule" or taint.key in _SAID_OTHERWISE:
            continue
        if not any(toleration.tolerates(taint) for toleration in tolerations):
            shown = f"{taint.key}={taint.value}" if taint.value else taint.key
            passing = taint.key.startswith(_STATE_TAINTS)
            return Refusal(Obstacle.TAINTED, f"tainted {shown}:{taint.effect}", lasting=not passing)
    return None


def _resource_refusal(node: NodeView, foreign: Resources, requirement: Requirement) -> Refusal | None:
    for resource, asked in requirement.resources.items():
        has = node.allocatable.get(resource, 0)
        left = has - foreign.get(resource, 0)
        if left < asked:
            return Refusal(Obstacle.SHORT, f"short of {resource}", _shortage(resource, has, left, asked))
    for resource in requirement.open:
        has = node.allocatable.get(resource, 0)
        left = has - foreign.get(resource, 0)
        if left * WHOLE_NODE_SHARE < has or left <= 0:
            return Refusal(Obstacle.SHORT, f"short of {resource}", _shortage(resource, has, left, None))
    if requirement.open_gpus and foreign.get(names.GPU_RESOURCE, 0):
        has = node.allocatable.get(names.GPU_RESOURCE, 0)
        left = has - foreign[names.GPU_RESOURCE]
        return Refusal(Obstacle.SHORT, f"short of {names.GPU_RESOURCE}", _shortage(names.GPU_RESOURCE, has, left, None))
    return None


def _shortage(resource: str, has: int, left: int, asked: int | None) -> str:
    wanted = "" if asked is None else f", {in_words(resource, asked)} asked"
    if left == has:
        return f"it has {in_words(resource, has)}{wanted}"
    return f"DaemonSets and other pods leave {in_words(resource, left)} of {in_words(resource, has)}{wanted}"


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
