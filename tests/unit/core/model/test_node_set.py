"""Sets of nodes are integers for the machine, and none for mypy."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.model import node_set
from lockstep.core.model.node_set import ALL, EMPTY, ONE, NodeSet, members, span
from support.type_checks import lines_refused

MISTAKES = """
from lockstep.core.model.node_set import EMPTY, ONE, NodeSet, lowest, members

def counted(nodes: NodeSet, count: int) -> int:
    both = nodes & (ONE << count) | ~EMPTY
    return lowest(both, count).bit_count()

counted(ONE, 1)
counted(1, 1)
counted(ONE, ONE)
counted(ONE & 1, 1)
list(members(3))
"""


@pytest.mark.process
def test_mypy_takes_no_number_for_a_set_of_nodes_and_no_set_for_a_number(tmp_path: Path) -> None:
    assert lines_refused(MISTAKES, tmp_path) == [9, 10, 11, 12]


def test_a_set_costs_no_more_than_an_integer() -> None:
    assert NodeSet is int
    assert (EMPTY, ONE, ALL) == (0, 1, -1)


def test_the_first_nodes_are_those_that_are_not_beyond_them() -> None:
    assert [*members(~(ALL << 3))] == [0, 1, 2]
    assert [*members(span(2, 5))] == [2, 3, 4]
    assert span(4, 4) == EMPTY


@given(st.sets(st.integers(0, 299)), st.integers(0, 300))
def test_sets_of_nodes_are_what_they_say(bits: set[int], count: int) -> None:
    nodes = node_set.from_bits(bits, 300)
    assert nodes == sum(1 << bit for bit in bits)
    assert list(node_set.members(nodes)) == sorted(bits)
    assert list(node_set.members(node_set.lowest(nodes, count))) == sorted(bits)[:count]
