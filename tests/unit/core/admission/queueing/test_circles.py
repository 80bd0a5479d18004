"""Those who wait for each other are found, with one way back to each, however many they are."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.admission.queueing.circles import NAMES_TOLD, Circles

graphs = st.dictionaries(st.sampled_from("abcdefg"), st.lists(st.sampled_from("abcdefghi"), unique=True, max_size=4))


def reachable(graph: Mapping[str, list[str]], name: str) -> set[str]:
    found, line = set[str](), [*graph.get(name, ())]
    while line:
        if (other := line.pop()) not in found:
            found.add(other)
            line += graph.get(other, ())
    return found


@given(graphs)
def test_who_can_be_reached_from_itself_is_told_a_simple_way_and_nobody_else_is(graph: dict[str, list[str]]) -> None:
    circles = Circles(graph)
    for name in graph:
        way = circles.through(name)
        assert bool(way) is (name in reachable(graph, name))
        if way:
            assert way[0] == way[-1] == name
            assert len(set(way[:-1])) == len(way) - 1
            assert all(later in graph[earlier] for earlier, later in pairwise(way))


@pytest.mark.parametrize(
    ("graph", "name", "way"),
    [
        ({"a": ["x", "b"], "b": ["c"], "c": ["a"], "x": []}, "a", "abca"),
        ({"a": ["b"], "b": ["a"], "z": ["a"]}, "z", ""),
        ({"a": ["b"], "b": ["a", "m"], "m": ["c"], "c": ["d"], "d": ["c"]}, "m", ""),
        ({"a": ["a", "b"], "b": ["a"]}, "a", "aa"),
        ({"a": ["b", "c"], "b": ["a"], "c": ["a"]}, "c", "cac"),
    ],
    ids=["a circle", "before one", "between two", "itself", "two through one"],
)
def test_a_circle_leads_back(graph: dict[str, list[str]], name: str, way: str) -> None:
    assert Circles(graph).through(name) == tuple(way)


def test_a_long_circle_is_cut() -> None:
    names = [f"r{number}" for number in range(5000)]
    circles = Circles({name: [names[at - 1]] for at, name in enumerate(names)})
    for at, name in enumerate(names):
        way = circles.through(name)
        assert len(way) <= NAMES_TOLD + 2
        assert (*way[:2], *way[-2:]) == (name, names[at - 1], "...", name)


class CountedList(list[str]):
    """Counts who is read of it."""

    reads = 0

    def __iter__(self) -> Iterator[str]:
        for each in super().__iter__():
            CountedList.reads += 1
            yield each


@pytest.mark.parametrize("closed", [True, False], ids=["in a circle", "in none"])
def test_the_work_grows_no_faster_than_who_waits_for_whom(closed: bool) -> None:
    count, edges = 200, 8
    names = [f"r{number}" for number in range(count)]
    graph = {
        name: CountedList(names[at - back] for back in range(1, edges + 1) if closed or at >= back)
        for at, name in enumerate(names)
    }
    CountedList.reads = 0
    circles = Circles(graph)
    for name in names:
        assert bool(circles.through(name)) is closed
    assert CountedList.reads <= 5 * count * edges
