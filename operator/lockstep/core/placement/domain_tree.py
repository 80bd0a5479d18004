"""The domains of some topology levels as a tree, and how many nodes of a set lie in each of its leaves.

The tree is the same for every run; what differs is the set of nodes, so that an arrangement is chosen on
plain lists of counts, one per leaf.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any

from lockstep.core.model import node_set
from lockstep.core.model.natural_order import NaturalKey, natural_key
from lockstep.core.model.node_set import ALL, EMPTY, NodeSet

Part = tuple[int, NaturalKey]
Span = tuple[int, int]

_REMEMBERED = 64
"""Sets whose counts are kept."""
_COMPARED = 16
"""Of the last of them the nearest is sought. Sets that are asked about one after the other differ by a few nodes."""
_ANSWERS_KEPT = 2048
"""Each of two sets: a few kilobytes in the largest cluster."""
_NEAR = 192
"""Nodes by which a set may differ from a remembered one for its counts to be told from those."""
_FEW = 16
"""Up to so many leaves each is counted by itself, which is cheaper than to look for a set that is near."""


@dataclass(frozen=True, slots=True)
class NodeRange:
    """Nodes ``first`` to ``end`` - 1, alike in the values of all topology labels (widest first, None: absent)."""

    values: tuple[str | None, ...]
    first: int
    end: int


@dataclass(slots=True)
class _Leaf:
    """A domain at the last depth. ``named_in_order``: its nodes ascend by name; None: nobody has asked yet."""

    spans: list[Span] = field(default_factory=list)
    value: str | None = None
    named_in_order: bool | None = True  # nodes of one place are

    def add(self, first: int, end: int, value: str | None) -> None:
        self.value = value
        if self.spans:
            self.named_in_order = None
        if self.spans and self.spans[-1][1] == first:
            self.spans[-1] = (self.spans[-1][0], end)
        else:
            self.spans.append((first, end))

    def nodes(self) -> NodeSet:
        """All in it."""
        found = EMPTY
        for first, end in self.spans:
            found |= node_set.span(first, end)
        return found


class DomainTree:
    """Domains by depth, the root at 0, each in natural order; those at the last depth are the leaves.

    ``children[d][i]`` says which domains at depth d + 1 lie in domain i of depth d: from, and up to but not
    including. ``values`` are the leaves' label values on the narrowest level, None where a node has none and
    is a domain of its own.
    """

    def __init__(
        self,
        places: Iterable[NodeRange],
        depths: Sequence[int],
        name_of: Callable[[int], str],
        name_rank: Callable[[], Sequence[int]],
    ) -> None:
        """``depths`` are those of a place's values that count; ``name_rank`` orders bits by their nodes' names."""
        self._name_rank = name_rank
        root: Any = {} if depths else _Leaf()
        for place in places:
            incomplete = any(place.values[depth] is None for depth in depths)
            step = 1 if incomplete else max(place.end - place.first, 1)
            for first in range(place.first, place.end, step):
                path = [_part(name_of, first, place.values[: depth + 1]) for depth in depths]
                _leaf_at(root, path).add(first, first + step, place.values[depths[-1]] if depths else None)
        self.children: list[list[Span]] = []
        layer: list[Any] = [root]
        for _ in depths:
            below: list[Any] = []
            spans = []
            for domain in layer:
                spans.append((len(below), len(below) + len(domain)))
                below += [domain[part] for part in sorted(domain)]
            self.children.append(spans)
            layer = below
        self._leaves: list[_Leaf] = layer
        self.values = [leaf.value for leaf in layer]
        in_order = sorted((first, index) for index, leaf in enumerate(self._leaves) for first, _ in leaf.spans)
        self._firsts = [first for first, _ in in_order]
        self._leaf_of_span = [index for _, index in in_order]
        self._whole = all(len(leaf.spans) == 1 for leaf in self._leaves)
        self._begins = [leaf.spans[0][0] for leaf in self._leaves if self._whole]
        self._ends = [leaf.spans[0][1] for leaf in self._leaves if self._whole]
        few = self._leaves if len(self._leaves) <= _FEW else []
        self._few = [leaf.nodes() for leaf in few]
        self.nodes_apart = all(leaf.spans == [(index, index + 1)] for index, leaf in enumerate(self._leaves))
        self._counted: dict[NodeSet, list[int]] = {}
        self._answers: dict[Hashable, NodeSet | None] = {}

    def __len__(self) -> int:
        return len(self._leaves)

    def remember(self, asked: Hashable, answer: Callable[[], NodeSet | None]) -> NodeSet | None:
        """What ``answer`` gives, made once as long as it is among the last few thousand. It must follow from the tree
        and from what was ``asked`` alone."""
        if asked in self._answers:
            return self._answers[asked]
        if len(self._answers) >= _ANSWERS_KEPT:
            del self._answers[next(iter(self._answers))]
        found = self._answers[asked] = answer()
        return found

    def leaf_of(self, bit: int) -> int:
        """The leaf in which node ``bit`` lies."""
        return self._leaf_of_span[bisect_right(self._firsts, bit) - 1]

    def counts(self, nodes: NodeSet) -> Sequence[int]:
        """How many of ``nodes`` lie in each leaf."""
        if len(self._leaves) <= _FEW:
            return [(nodes & leaf).bit_count() for leaf in self._few]
        if (found := self._counted.get(nodes)) is not None:
            return found
        nearest, fewest = None, _NEAR + 1
        for known in islice(reversed(self._counted), _COMPARED):
            if (number := (known ^ nodes).bit_count()) < fewest:
                nearest, fewest = known, number
        counted = self._counted_anew(nodes) if nearest is None else self._counted_on(nodes, nearest)
        if len(self._counted) >= _REMEMBERED:
            del self._counted[next(iter(self._counted))]
        self._counted[nodes] = counted
        return counted

    def first_by_name(self, leaf: int, nodes: NodeSet, count: int) -> NodeSet:
        """Those ``count`` of ``nodes`` in ``leaf`` whose names come first."""
        spans = self._leaves[leaf].spans
        if len(spans) == 1 and self._is_named_in_order(leaf):
            first, end = spans[0]
            return node_set.lowest(nodes >> first & ~(ALL << (end - first)), count) << first
        inside = EMPTY
        for first, end in spans:
            inside |= (nodes >> first & ~(ALL << (end - first))) << first
        rank = self._name_rank()
        return node_set.from_bits(sorted(node_set.members(inside), key=rank.__getitem__)[:count], inside.bit_length())

    def _is_named_in_order(self, leaf: int) -> bool:
        domain = self._leaves[leaf]
        if domain.named_in_order is None:
            rank = self._name_rank()
            ranks = [rank[bit] for first, end in domain.spans for bit in range(first, end)]
            domain.named_in_order = ranks == sorted(ranks)
        return domain.named_in_order

    def _counted_anew(self, nodes: NodeSet) -> list[int]:
        digits = node_set.digits_of(nodes)
        if self._whole:
            return list(map(digits.count, repeat("1"), self._begins, self._ends))
        return [sum(digits.count("1", first, end) for first, end in leaf.spans) for leaf in self._leaves]

    def _counted_on(self, nodes: NodeSet, known: NodeSet) -> list[int]:
        counted = list(self._counted[known])
        for bit in node_set.members(nodes & ~known):
            counted[self.leaf_of(bit)] += 1
        for bit in node_set.members(known & ~nodes):
            counted[self.leaf_of(bit)] -= 1
        return counted


def _leaf_at(root: Any, path: Sequence[Part]) -> _Leaf:
    domain = root
    for part in path[:-1]:
        domain = domain.setdefault(part, {})
    found: _Leaf = domain.setdefault(path[-1], _Leaf()) if path else domain
    return found


def _part(name_of: Callable[[int], str], bit: int, values: Sequence[str | None]) -> Part:
    """The same rack name in two zones is two racks: wider levels are part of a domain's name."""
    if values[-1] is None:
        return (1, natural_key(name_of(bit)))  # a node without the label is a domain of its own
    return (0, tuple(item for value in values for item in natural_key(value or "")))
