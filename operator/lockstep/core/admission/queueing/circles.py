"""Circles among those who wait for each other: found for all of them in time linear in who waits for whom."""

from collections.abc import Container, Iterator, Mapping, Sequence

NAMES_TOLD = 16
"""Of a circle, as each that is in it is told of it, and there may be thousands."""
_MORE = "..."

Graph = Mapping[str, Sequence[str]]
"""Whom each waits for. One who is no key waits for nobody."""


class Circles:
    """Who of a graph is in a circle.

    Each strongly connected component has a root. A member's circle leads to that and from there back to it.
    """

    def __init__(self, graph: Graph) -> None:
        self._alone = {name for name, others in graph.items() if name in others}
        self._to_root: dict[str, tuple[str, int]] = {}  # the next one on the way, and its length
        self._from_root: dict[str, tuple[str, int]] = {}  # the one before on the way, and its length
        for root, to_root in _components(graph):
            if len(to_root) == 1:
                continue
            self._from_root |= _tree(root, graph, to_root)
            first = min((other for other in graph[root] if other in to_root), key=lambda other: to_root[other][1])
            self._to_root |= to_root
            self._to_root[root] = first, to_root[first][1] + 1

    def through(self, name: str) -> tuple[str, ...]:
        """A circle from ``name`` back to itself, cut where it is long; empty: it is in none."""
        if name in self._alone:
            return name, name
        if name not in self._to_root:
            return ()
        way, left = [name], self._to_root[name][1]
        while left and len(way) < NAMES_TOLD:
            way.append(self._to_root[way[-1]][0])
            left -= 1
        if left or self._from_root[name][1] > NAMES_TOLD:
            return (*way, _MORE, name)
        back = [name]
        while self._from_root[back[-1]][1]:
            back.append(self._from_root[back[-1]][0])
        way += reversed(back[:-1])
        return (*_without_detours(way[:-1]), name)


def _without_detours(way: Sequence[str]) -> Sequence[str]:
    kept: list[str] = []
    for name in way:
        if name in kept:
            del kept[kept.index(name) :]
        kept.append(name)
    return kept


def _components(graph: Graph) -> Iterator[tuple[str, dict[str, tuple[str, int]]]]:
    """Each strongly connected component by Kosaraju's algorithm: a root, and from each member the way to it."""
    awaited_by: dict[str, list[str]] = {name: [] for name in graph}
    for name, others in graph.items():
        for other in others:
            if other in graph:
                awaited_by[other].append(name)
    left = dict.fromkeys(graph)
    for root in reversed(_finishing_order(graph)):
        if root in left:
            members = _tree(root, awaited_by, left)
            for member in members:
                del left[member]
            yield root, members


def _finishing_order(graph: Graph) -> list[str]:
    """All of them, as a search in depth is done with them."""
    order, seen = list[str](), set[str]()
    for start in graph:
        if start in seen:
            continue
        seen.add(start)
        under_way = [(start, iter(graph[start]))]
        while under_way:
            name, others = under_way[-1]
            following = next((other for other in others if other in graph and other not in seen), None)
            if following is None:
                order.append(name)
                under_way.pop()
            else:
                seen.add(following)
                under_way.append((following, iter(graph[following])))
    return order


def _tree(root: str, graph: Graph, within: Container[str]) -> dict[str, tuple[str, int]]:
    """Who can be reached from ``root`` within these: by whom, and in how many steps."""
    found = {root: ("", 0)}
    line = [root]
    for name in line:
        for other in graph[name]:
            if other in within and other not in found:
                found[other] = name, found[name][1] + 1
                line.append(other)
    return found
