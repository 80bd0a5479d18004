"""All nodes of one moment, indexed: which of them can hold a pod of a run is answered for whole sets at once.

Nodes in the same state form a class and are judged once; names and labels are looked up. What the index was
asked is remembered, and an index made from the one before takes over what has not changed.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TypeVar, cast

from lockstep.core.model import node_set
from lockstep.core.model.accelerators import ACCELERATORS, SAYS_NO, Accelerators, GpuRequest, is_part
from lockstep.core.model.node_set import EMPTY, ONE, NodeSet
from lockstep.core.model.snapshot import NodeView, Resources
from lockstep.core.placement.node_fit import (
    DELETING,
    NAME_FIELD,
    Expression,
    Refusal,
    Requirement,
    avoidance,
    class_refusal,
    gpu_refusal,
    node_class,
    selections,
    taint_refusal,
    withheld,
)
from lockstep.core.placement.node_order import Numbering

T = TypeVar("T")

_NOTHING: Resources = {}
_MOST_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Judgement:
    """Which nodes can hold a pod, bookings aside: disjoint sets."""

    able: NodeSet
    passing: NodeSet
    """Refused for something that passes by itself."""
    refused: tuple[tuple[Refusal, NodeSet], ...]


@dataclass(frozen=True, slots=True)
class AcceleratorNodes:
    """Nodes by what they have of one accelerator."""

    by_number: Mapping[int, NodeSet]
    """By how many they offer, or are known to have; 0: those that have none."""
    having: NodeSet
    """Those that have some, offered or not."""
    away: NodeSet
    """Those that have some and offer none, nor parts of them."""
    uncounted: NodeSet
    """Those among them of which nobody knows how many; they are in no set of ``by_number``."""


@dataclass(frozen=True, slots=True)
class _Class:
    """Nodes that are refused for the same reasons, names and labels aside, and one of them as an example."""

    view: NodeView
    foreign: Resources
    nodes: NodeSet


@dataclass(frozen=True, slots=True)
class _LabelValues:
    """Nodes by the value of one label. Sets are made when they are asked for."""

    bits: Mapping[str | None, Sequence[int]]
    size: int
    _sets: dict[str | None, NodeSet] = field(default_factory=dict)

    def holding(self, value: str | None) -> NodeSet:
        """Nodes with ``value``; None: those without the label."""
        known = self._sets.get(value)
        if known is None:
            known = self._sets[value] = node_set.from_bits(self.bits.get(value, ()), self.size)
        return known

    def meeting(self, expression: Expression) -> NodeSet:
        """Nodes that the expression accepts."""
        everything = node_set.span(0, self.size)
        match expression.operator:
            case "Exists":
                return everything & ~self.holding(None)
            case "In" | "NotIn":
                found = EMPTY
                for value in expression.values:
                    found |= self.holding(value)
                return found if expression.operator == "In" else everything & ~found
        accepted = (bits for value, bits in self.bits.items() if expression.admits(value))
        return node_set.from_bits(chain.from_iterable(accepted), self.size)


class NodeIndex:
    """Nodes as sets (``core/model/node_set.py``). Not changed once it is made, but for what it remembers."""

    def __init__(
        self,
        numbering: Numbering,
        levels: Mapping[str, str],
        gpu_types: Mapping[str, Mapping[str, str]],
        nodes: Mapping[str, NodeView],
        foreign: Mapping[str, Resources],
        classes: Mapping[Hashable, _Class],
        labels: dict[str, _LabelValues],
        remembered: dict[Hashable, object],
        accelerators: Accelerators,
    ) -> None:
        """``nodes`` are in the order of their bits. See ``of``."""
        self.numbering = numbering
        self.levels = levels
        self.gpu_types = gpu_types
        self.accelerators = accelerators
        self.everything = node_set.span(0, len(numbering))
        self._nodes = nodes
        self._foreign = foreign
        self._classes = classes
        self._labels = labels
        self._remembered = remembered
        self._settings = _settings(levels, gpu_types, accelerators)

    @classmethod
    def from_nodes(
        cls,
        nodes: Mapping[str, NodeView],
        foreign: Mapping[str, Resources],
        levels: Mapping[str, str],
        gpu_types: Mapping[str, Mapping[str, str]],
        before: "NodeIndex | None" = None,
        changed: Collection[str] | None = None,
        accelerators: Accelerators = ACCELERATORS,
    ) -> "NodeIndex":
        """Index ``nodes``. ``foreign``: by node, what pods of others request there.

        ``levels``: topology levels to node labels, narrowest first. ``gpu_types``: GPU type names to node
        labels. ``accelerators``: what counts as GPUs. ``before``: an index made earlier; only nodes ``changed`` since
        may be others than then (None: any).
        """
        if before is not None and before._settings == _settings(levels, gpu_types, accelerators):
            others = before._others(nodes, foreign, changed)
            if others is not None:
                return before._with(others, foreign) if others else before
        numbering = Numbering({name: node.labels for name, node in nodes.items()}, tuple(levels.values())[::-1])
        requests = dict(foreign)
        members: dict[Hashable, list[int]] = {}
        for bit, name in enumerate(numbering.names):
            members.setdefault(node_class(nodes[name], requests.get(name, _NOTHING)), []).append(bit)
        classes: dict[Hashable, _Class] = {}
        for key, bits in members.items():
            name = numbering.names[bits[0]]
            alike = node_set.from_bits(bits, len(numbering))
            classes[key] = _Class(nodes[name], requests.get(name, _NOTHING), alike)
        in_order = {name: nodes[name] for name in numbering.names}
        return cls(numbering, dict(levels), dict(gpu_types), in_order, requests, classes, {}, {}, accelerators)

    def __len__(self) -> int:
        return len(self.numbering)

    def __contains__(self, name: object) -> bool:
        return name in self.numbering.bits

    def view(self, name: str) -> NodeView:
        """The node of this name. Raises KeyError when there is none."""
        return self._nodes[name]

    def mask(self, names: Iterable[str]) -> NodeSet:
        """The set of those ``names`` that are nodes."""
        return self.numbering.mask(names)

    def names(self, nodes: NodeSet) -> tuple[str, ...]:
        """The names of ``nodes``, in the order in which they get their ranks."""
        return self.numbering.in_rank_order(nodes)

    def free(self, name: str, resource: str) -> int:
        """What pods of others leave of ``resource`` on a node."""
        return self._nodes[name].allocatable.get(resource, 0) - self._foreign.get(name, _NOTHING).get(resource, 0)

    def of_gpu_type(self, gpu_type: str) -> NodeSet:
        """Nodes with GPUs of this type. Raises KeyError for one that is not known."""
        return self.with_labels(self.gpu_types[gpu_type])

    def meeting(self, expression: Expression) -> NodeSet:
        """Nodes that the expression accepts."""
        if expression.key != NAME_FIELD:
            return self._values_of(expression.key).meeting(expression)
        if expression.operator in ("In", "NotIn"):
            named = self.mask(expression.values)
            return named if expression.operator == "In" else self.everything & ~named
        found = (bit for bit, name in enumerate(self.numbering.names) if expression.admits(name))
        return node_set.from_bits(found, len(self))

    def with_labels(self, labels: Mapping[str, str]) -> NodeSet:
        """Nodes that carry all of these labels."""
        found = self.everything
        for key, value in labels.items():
            found &= self._values_of(key).holding(value)
        return found

    @cached_property
    def not_ready(self) -> tuple[NodeView, ...]:
        """Nodes that are not Ready."""
        return tuple([node for node in self._nodes.values() if not node.ready])

    @cached_property
    def failed_on(self) -> tuple[NodeView, ...]:
        """Nodes that remember failures."""
        return tuple([node for node in self._nodes.values() if node.failures])

    def accelerator(self, resource: str) -> AcceleratorNodes:
        """Which nodes have how many of it."""
        return self.remember(("accelerator", resource), lambda: self._accelerator(resource))

    def withholding(self, gpus: GpuRequest) -> Iterator[tuple[str, NodeSet]]:
        """Nodes, by resource, that may have what is asked and offer none of it, nor any other of its resources."""
        offering = EMPTY
        for resource in gpus.resources:
            nodes = self.accelerator(resource)
            offering |= nodes.having & ~nodes.away
        for resource in gpus.resources:
            nodes = self.accelerator(resource)
            fewer = EMPTY
            for number, those in nodes.by_number.items():
                if gpus.count is not None and number < gpus.count:
                    fewer |= those
            yield resource, nodes.away & ~offering & ~fewer

    def closed_to(self, requirement: Requirement) -> NodeSet:
        """Nodes that the run may not use, whatever they offer: by their names, labels and taints."""

        def compute() -> NodeSet:
            closed = EMPTY
            for terms, _ in selections(requirement):
                closed |= self.everything & ~self._meeting_any(terms)
            for known in self._classes.values():
                tainted = taint_refusal(known.view, requirement.tolerations) if known.view.taints else None
                if tainted is not None and tainted.lasting:
                    closed |= known.nodes
            return closed

        return self.remember(("closed", requirement.key), compute)

    def judged(self, requirement: Requirement) -> Judgement:
        """Which nodes can hold a pod that requires this. Runs that ask for the same are judged once."""
        return self.remember(("judged", requirement.key), lambda: self._judge(requirement))

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once and kept under ``key`` while no node changes that matters."""
        known = self._remembered.get(key)
        if known is None:
            if len(self._remembered) >= _MOST_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            known = self._remembered[key] = make()
        return cast("T", known)

    def _devices(self) -> Mapping[str, Mapping[tuple[bool, int], NodeSet]]:
        """Nodes by their devices, and by whether these are offered, and how many."""

        def compute() -> Mapping[str, Mapping[tuple[bool, int], NodeSet]]:
            found: dict[str, dict[tuple[bool, int], NodeSet]] = {}
            for known in self._classes.values():
                for is_offered, amounts in ((True, known.view.allocatable), (False, known.view.withheld)):
                    for name, number in amounts.items():
                        if "/" in name:
                            nodes, key = found.setdefault(name, {}), (is_offered, number)
                            nodes[key] = nodes.get(key, EMPTY) | known.nodes
            return found

        return self.remember("devices", compute)

    def _look_up_signs(self) -> None:
        """Most labels by which nodes may say that they have GPUs are on no node: one look at each node tells."""
        signs = {sign.partition("=")[0] for labels in self.accelerators.values() for sign in labels}
        lacking = signs - self._labels.keys()
        if lacking:
            found = {key for view in self._nodes.values() for key in lacking & view.labels.keys()}
            for key in lacking - found:
                self._labels[key] = _LabelValues({None: range(len(self))}, len(self))

    def _accelerator(self, resource: str) -> AcceleratorNodes:
        by_number: dict[int, NodeSet] = {}
        having = offering = counted = EMPTY
        self._look_up_signs()
        for name, found in self._devices().items():
            for (is_offered, number), nodes in found.items():
                if name == resource and number:
                    by_number[number] = by_number.get(number, EMPTY) | nodes
                    counted |= nodes
                if is_offered and number and (name == resource or is_part(name, resource)):
                    offering |= nodes
                elif not is_offered and name == resource:
                    having |= nodes
        for label in self.accelerators.get(resource, ()):
            key, _, wanted = label.partition("=")
            labelled = self._values_of(key)
            for value in labelled.bits:
                if value is not None and (value == wanted if wanted else value not in SAYS_NO):
                    having |= labelled.holding(value)
        having |= offering
        away = having & ~offering
        by_number[0] = self.everything & ~having
        return AcceleratorNodes(by_number, having, away, away & ~counted)

    def _others(
        self, nodes: Mapping[str, NodeView], foreign: Mapping[str, Resources], changed: Collection[str] | None
    ) -> Mapping[str, NodeView] | None:
        """Nodes of which something is new; None when nodes came, went or moved to another place."""
        mine, requests = self._nodes, self._foreign
        others: dict[str, NodeView] = {}
        for name in nodes.keys() | mine.keys() if changed is None else changed:
            node, known = nodes.get(name), mine.get(name)
            if node is None and known is None:
                continue  # others have pods on a node that nobody has heard of
            if node is None or known is None:
                return None
            if node is not known and any(
                node.labels.get(level) != known.labels.get(level) for level in self.numbering.levels
            ):
                return None
            if node is not known or foreign.get(name, _NOTHING) != requests.get(name, _NOTHING):
                others[name] = node
        return others

    def _with(self, changed: Mapping[str, NodeView], foreign: Mapping[str, Resources]) -> "NodeIndex":
        nodes, requests, classes = dict(self._nodes), dict(self._foreign), dict(self._classes)
        stale_labels: set[str] = set()
        same = True
        for name, node in changed.items():
            bit, view = ONE << self.numbering.bits[name], nodes[name]
            old, new = node_class(view, requests.get(name, _NOTHING)), node_class(node, foreign.get(name, _NOTHING))
            if node.labels != view.labels:
                stale_labels |= {key for key in self._labels if node.labels.get(key) != view.labels.get(key)}
            nodes[name], requests[name] = node, foreign.get(name, _NOTHING)
            if old == new:
                continue
            same = False
            left = classes.pop(old)
            if left.nodes != bit:  # the example may be the node that leaves, but as it was when it belonged here
                classes[old] = _Class(left.view, left.foreign, left.nodes ^ bit)
            joined = classes[new].nodes if new in classes else EMPTY
            classes[new] = _Class(node, requests[name], joined | bit)
        labels = {key: values for key, values in self._labels.items() if key not in stale_labels}
        remembered = self._remembered if same and not stale_labels else {}
        return NodeIndex(
            self.numbering, self.levels, self.gpu_types, nodes, requests, classes, labels, remembered, self.accelerators
        )

    def _values_of(self, label: str) -> _LabelValues:
        known = self._labels.get(label)
        if known is None:
            bits: dict[str | None, list[int]] = {}
            for bit, view in enumerate(self._nodes.values()):
                bits.setdefault(view.labels.get(label), []).append(bit)
            known = self._labels[label] = _LabelValues(bits, len(self))
        return known

    def _judge(self, requirement: Requirement) -> Judgement:
        refused: dict[Refusal, NodeSet] = {}
        left = self.everything

        def refuse(nodes: NodeSet, refusal: Refusal) -> None:
            nonlocal left
            if nodes := nodes & left:
                refused[refusal] = refused.get(refusal, EMPTY) | nodes
                left ^= nodes

        for known in self._classes.values():
            if known.view.deleting:
                refuse(known.nodes, DELETING)
        for terms, unselected in selections(requirement):
            refuse(self.everything & ~self._meeting_any(terms), unselected)
        refusals = [
            (known.nodes, refusal)
            for known in self._classes.values()
            if known.nodes & left and (refusal := class_refusal(known.view, known.foreign, requirement)) is not None
        ]
        withholding = [*self.withholding(requirement.gpus)] if requirement.gpus.count != 0 else []
        away = EMPTY
        for _, nodes in withholding:
            away |= nodes
        refusals += [
            (known.nodes & ~away, refusal)
            for known in self._classes.values()
            if known.nodes & left & ~away
            and (refusal := gpu_refusal(known.view, known.foreign, requirement.gpus)) is not None
        ]
        for nodes, refusal in refusals:
            if refusal.lasting:
                refuse(nodes, refusal)
        for name, reason in requirement.avoided.items():
            refuse(self.mask((name,)), avoidance(reason))
        for nodes, refusal in refusals:
            refuse(nodes, refusal)
        for resource, nodes in withholding:
            refuse(nodes, withheld(resource))
        passing = EMPTY
        for refusal, nodes in refused.items():
            if not refusal.lasting:
                passing |= nodes
        return Judgement(left, passing, tuple(refused.items()))

    def _meeting_any(self, terms: Iterable[Iterable[Expression]]) -> NodeSet:
        found = EMPTY
        for term in terms:
            whole = self.everything
            for expression in term:
                whole &= self.meeting(expression)
            found |= whole
        return found


def _settings(
    levels: Mapping[str, str], gpu_types: Mapping[str, Mapping[str, str]], accelerators: Accelerators
) -> tuple[object, ...]:
    """What all of an index rests on, whatever the nodes are. The order of levels and of accelerators counts."""
    return [*levels.items()], gpu_types, [*accelerators.items()]
