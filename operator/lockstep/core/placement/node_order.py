"""Nodes numbered in the order of their ranks: zone by zone, rack by rack, all in natural order."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from lockstep.core.model import node_set
from lockstep.core.model.natural_order import NaturalKey, natural_key
from lockstep.core.model.node_set import NodeSet
from lockstep.core.placement.domain_tree import DomainTree, NodeRange

Values = tuple[str | None, ...]

_TREES_KEPT = 32


class Numbering:
    """Which bit stands for which node. Ranks are given in the order of bits.

    ``levels`` are topology labels, widest first. Nodes without a label come last on its level.
    """

    def __init__(self, labels_of: Mapping[str, Mapping[str, str]], levels: Sequence[str]) -> None:
        """``labels_of``: by node name."""
        self.levels = tuple(levels)
        by_values: dict[Values, list[str]] = {}
        for name, labels in labels_of.items():
            by_values.setdefault(tuple([labels.get(label) for label in self.levels]), []).append(name)
        self.names: list[str] = []
        self.places: list[NodeRange] = []
        for values in sorted(by_values, key=_values_key):
            first = len(self.names)
            self.names += sorted(by_values[values], key=natural_key)
            self.places.append(NodeRange(values, first, len(self.names)))
        self.bits = {name: bit for bit, name in enumerate(self.names)}
        self._trees: dict[tuple[tuple[str, ...], tuple[str, ...]], DomainTree] = {}

    def __len__(self) -> int:
        return len(self.names)

    def mask(self, names: Iterable[str]) -> NodeSet:
        """The set of those ``names`` that are nodes."""
        bits = self.bits
        return node_set.from_bits((bits[name] for name in names if name in bits), len(self.names))

    def in_rank_order(self, nodes: NodeSet) -> tuple[str, ...]:
        """The names of ``nodes``."""
        names = self.names
        return tuple([names[bit] for bit in node_set.members(nodes)])

    def tree(self, labels: Sequence[str], absent: Collection[str] = ()) -> DomainTree:
        """The domains of those levels (labels, widest first).

        ``absent`` are names of nodes that are no more: the bits after the last node stand for them, in the
        order given. They are domains of their own.
        """
        key = (tuple(labels), tuple(absent))
        if key in self._trees:
            return self._trees[key]
        depths = [self.levels.index(label) for label in labels]
        names = [*self.names, *absent]
        nowhere = (None,) * len(self.levels)
        after = [NodeRange(nowhere, len(self.names), len(names))] if absent else []

        def name_rank() -> Sequence[int]:
            return self._name_rank if not absent else _ranked_by_name(names)

        tree = DomainTree([*self.places, *after], depths, names.__getitem__, name_rank)
        if len(self._trees) >= _TREES_KEPT:
            del self._trees[next(iter(self._trees))]
        self._trees[key] = tree
        return tree

    def merged_in_rank_order(self, nodes: NodeSet, absent: Iterable[str]) -> tuple[str, ...]:
        """The names of ``nodes`` with those of nodes that are no more."""
        nowhere: Values = (None,) * len(self.levels)
        firsts = [place.first for place in self.places]

        def key(name: str) -> tuple[list[tuple[bool, NaturalKey]], NaturalKey]:
            bit = self.bits.get(name)
            values = nowhere if bit is None else self.places[bisect_right(firsts, bit) - 1].values
            return _values_key(values), natural_key(name)

        return tuple(sorted((*self.in_rank_order(nodes), *absent), key=key))

    @cached_property
    def _name_rank(self) -> Sequence[int]:
        return _ranked_by_name(self.names)


def _values_key(values: Values) -> list[tuple[bool, NaturalKey]]:
    return [(value is None, natural_key(value or "")) for value in values]


def _ranked_by_name(names: Sequence[str]) -> Sequence[int]:
    """By bit: at which position its node comes by name alone."""
    ranks = [0] * len(names)
    for rank, bit in enumerate(sorted(range(len(names)), key=lambda bit: natural_key(names[bit]))):
        ranks[bit] = rank
    return ranks
