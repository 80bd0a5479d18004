"""The domains of topology levels as a tree, and how many nodes of a set lie in each leaf."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.model import node_set
from lockstep.core.placement.node_order import Numbering

RACK, ZONE = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"


sets = st.sets(st.integers(0, 299))


def as_mask(bits: set[int]) -> int:
    return node_set.from_bits(bits, 300)


@given(st.lists(sets, min_size=1, max_size=12), st.sampled_from([[RACK], [ZONE, RACK], [ZONE], []]))
def test_nodes_are_counted_by_leaf_whatever_was_counted_before(several: list[set[int]], levels: list[str]) -> None:
    labels = {f"n{bit}": {RACK: f"r{bit // 7}", ZONE: f"z{bit // 50}"} for bit in range(280)} | {
        f"n{bit}": {} for bit in range(280, 300)
    }
    tree = Numbering(labels, (ZONE, RACK)).tree(levels)
    for bits in several:
        expected = [0] * len(tree)
        for bit in bits:
            expected[tree.leaf_of(bit)] += 1
        assert tree.counts(as_mask(bits)) == expected


LABELS: dict[str, dict[str, str]] = {
    "n1": {RACK: "r1", ZONE: "a"},
    "n2": {RACK: "r1", ZONE: "b"},
    "n3": {RACK: "r2", ZONE: "a"},
    "n4": {RACK: "r10", ZONE: "a"},
    "n5": {ZONE: "a"},
    "n6": {RACK: "r1", ZONE: "a"},
}


@pytest.mark.parametrize(
    ("levels", "values", "leaves"),
    [
        ([], [None], [["n1", "n6", "n3", "n4", "n5", "n2"]]),
        ([ZONE], ["a", "b"], [["n1", "n6", "n3", "n4", "n5"], ["n2"]]),
        # The same rack name in two zones is two racks, and a node without the label a domain of its own.
        ([ZONE, RACK], ["r1", "r2", "r10", None, "r1"], [["n1", "n6"], ["n3"], ["n4"], ["n5"], ["n2"]]),
        ([RACK], ["r1", "r2", "r10", "r1", None], [["n1", "n6"], ["n3"], ["n4"], ["n2"], ["n5"]]),
    ],
)
def test_leaves_are_the_narrowest_domains_in_natural_order(
    levels: Sequence[str], values: list[str | None], leaves: list[list[str]]
) -> None:
    numbering = Numbering(LABELS, (ZONE, RACK))
    tree = numbering.tree(levels)
    found: list[list[str]] = [[] for _ in range(len(tree))]
    for bit, name in enumerate(numbering.names):
        found[tree.leaf_of(bit)].append(name)
    assert (tree.values, found) == (values, leaves)


def test_each_depth_says_which_domains_below_lie_in_its_own() -> None:
    assert Numbering(LABELS, (ZONE, RACK)).tree([ZONE, RACK]).children == [[(0, 2)], [(0, 4), (4, 5)]]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, []), (1, ["n1"]), (2, ["n1", "n3"]), (3, ["n1", "n3", "n4"]), (9, ["n1", "n3", "n4", "n5", "n6"])],
)
def test_the_first_of_a_domain_are_the_first_by_name_wherever_they_are_numbered(
    count: int, expected: list[str]
) -> None:
    numbering = Numbering(LABELS, (ZONE, RACK))
    tree = numbering.tree([ZONE])
    everything = numbering.mask(LABELS)
    chosen = tree.first_by_name(0, everything, count)
    assert sorted(numbering.in_rank_order(chosen)) == expected


def test_an_answer_is_made_once_for_what_was_asked() -> None:
    tree = Numbering(LABELS, (ZONE, RACK)).tree([RACK])
    made: list[Any] = []

    def answer() -> Any:
        made.append(1)

    for _ in range(2):
        assert tree.remember("nothing found", answer) is None
    assert made == [1]
