"""Nodes numbered in the order of their ranks."""

from collections.abc import Mapping

import pytest

from lockstep.core.placement.node_order import Numbering

RACK, ZONE = "rack", "zone"
LABELS: Mapping[str, Mapping[str, str]] = {
    "n10": {RACK: "r2", ZONE: "a"},
    "n9": {RACK: "r2", ZONE: "a"},
    "n3": {RACK: "r10", ZONE: "a"},
    "n20": {RACK: "r1", ZONE: "b"},
    "n1": {ZONE: "a"},
    "n2": {},
}


@pytest.mark.parametrize(
    ("levels", "names"),
    [
        ((), ["n1", "n2", "n3", "n9", "n10", "n20"]),
        ((RACK,), ["n20", "n9", "n10", "n3", "n1", "n2"]),
        ((ZONE, RACK), ["n9", "n10", "n3", "n1", "n20", "n2"]),
    ],
)
def test_ranks_go_zone_by_zone_and_rack_by_rack_those_without_a_label_last(
    levels: tuple[str, ...], names: list[str]
) -> None:
    assert Numbering(LABELS, levels).names == names
    assert Numbering(dict(reversed(LABELS.items())), levels).names == names


def test_a_set_has_those_names_that_are_nodes() -> None:
    numbering = Numbering(LABELS, (ZONE, RACK))
    nodes = numbering.mask(["n20", "gone", "n9"])
    assert nodes.bit_count() == 2
    assert numbering.in_rank_order(nodes) == ("n9", "n20")
    assert not numbering.mask([])


@pytest.mark.parametrize(
    ("absent", "merged"),
    [
        ([], ("n9", "n2")),
        (["n0"], ("n9", "n0", "n2")),  # of a node that is no more nobody knows the rack
        (["n3x", "n1000"], ("n9", "n2", "n3x", "n1000")),
    ],
)
def test_nodes_that_are_no_more_come_last_among_the_nodes_without_labels_by_name(
    absent: list[str], merged: tuple[str, ...]
) -> None:
    numbering = Numbering(LABELS, (ZONE, RACK))
    assert numbering.merged_in_rank_order(numbering.mask(["n2", "n9"]), absent) == merged


def test_nodes_that_are_no_more_are_domains_of_their_own_behind_the_others() -> None:
    numbering = Numbering(LABELS, (ZONE, RACK))
    with_absent = numbering.tree([RACK], ["gone", "n0"])
    without = numbering.tree([RACK])
    assert len(with_absent) == len(without) + 2
    assert numbering.tree([RACK]) is without
    assert with_absent.leaf_of(len(numbering)) != with_absent.leaf_of(len(numbering) + 1)
