"""Topology-aware placement: which racks a gang gets and how many nodes in each, by counting on a small tree.

Nodes with the same place are alike here, so the tree's leaves are racks with so much room, not nodes;
that keeps the answer exact and the largest cluster cheap. Only where a required Pack lies below a required rule
of a wider level is not every share tried, so that an arrangement may be missed. A rule that cannot be met is
relaxed when it is only preferred, the last one listed first; a required rule is never relaxed.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from lockstep.api.run_spec import TopologyRule
from lockstep.core.model import node_set
from lockstep.core.model.natural_order import natural_key
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.placement.domain_tree import DomainTree
from lockstep.core.placement.rack_choice import fewest, windows


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """A topology rule as one attempt at an arrangement takes it."""

    label: str
    policy: str
    most: int | None  # nodes in one domain
    required: bool

    @property
    def fewest_possible(self) -> bool:
        """As few domains as on an idle cluster, or nothing."""
        return self.required and self.policy == "Pack"

    @property
    def is_exacting(self) -> bool:
        """Domains may refuse a share of the gang although they have room for it."""
        return self.required and self.policy in ("Pack", "Contiguous")


Attempts = Sequence[Sequence[TopologyRequest]]
"""At least one; each has a wish for every level that counts, widest first."""


def attempts(rules: Sequence[TopologyRule], levels: Mapping[str, str]) -> Attempts:
    """The rules as wished for, then with one preferred rule after the other relaxed, the last listed first.

    Then those that could still keep a required rule on a narrower level from being met go, one after the other: no
    preferred rule refuses what the required ones allow.

    ``levels`` maps level names to labels, narrowest first. Without rules the gang is packed on the narrowest.
    """
    narrowness = {level: index for index, level in enumerate(levels)}
    strict = {
        rule.level: TopologyRequest(levels[rule.level], rule.policy, rule.max_nodes, rule.mode == "Required")
        for rule in rules
    }
    if not strict and levels:
        narrowest = next(iter(levels))
        strict[narrowest] = TopologyRequest(levels[narrowest], "Pack", None, False)
    widest_first = sorted(strict, key=lambda level: -narrowness[level])
    found = [_that_count([strict[level] for level in widest_first])]
    for rule in reversed(rules):
        wish = strict[rule.level]
        if rule.mode == "Preferred" and (wish.policy == "Contiguous" or wish.most is not None):
            policy = "Pack" if wish.policy == "Contiguous" else wish.policy
            strict[rule.level] = replace(wish, policy=policy, most=None)
            found.append(_that_count([strict[level] for level in widest_first]))
    exacting = [narrowness[rule.level] for rule in rules if strict[rule.level].is_exacting]
    for rule in reversed(rules):
        wish = strict[rule.level]
        in_the_way = any(narrower < narrowness[rule.level] for narrower in exacting)
        if rule.mode == "Preferred" and wish.policy != "Any" and in_the_way:
            strict[rule.level] = replace(wish, policy="Any")
            found.append(_that_count([strict[level] for level in widest_first]))
    return found


def _that_count(wishes: Sequence[TopologyRequest]) -> Sequence[TopologyRequest]:
    """Without those that wish for nothing; the narrowest stays, as its domains are taken one after the other."""
    return [wish for wish in wishes[:-1] if wish.policy != "Any" or wish.most is not None] + [*wishes[-1:]]


def arrange(
    trees: Sequence[DomainTree], attempts: Attempts, usable: NodeSet, idle: NodeSet, obliged: NodeSet, count: int
) -> NodeSet | None:
    """Choose ``count`` nodes, all ``obliged`` ones among them; None when the rules forbid it.

    ``usable``: nodes that can be taken, apart from ``obliged``. ``idle``: those that could be on an idle
    cluster, which only tell how few racks are possible. ``trees``: of the levels of each attempt's wishes.
    """
    if count < obliged.bit_count() or count > usable.bit_count() + obliged.bit_count():
        return None
    for tree, wishes in zip(trees, attempts, strict=True):
        if tree.nodes_apart and not obliged and len(wishes) <= 1 and _any_will_do(wishes):
            return node_set.lowest(usable, count)
        layers = _measure(tree, wishes, usable, usable | idle | obliged, obliged)
        taken = _Search(tree, wishes, layers).take(0, 0, count)
        if taken is not None:
            return obliged | _picked(tree, taken, usable, layers[-1].musts)
    return None


def fullest_domains(counts: Mapping[str, int], shown: int = 4) -> str:
    """The domains with the most nodes, for people: ``r2 8, r1 6 and 3 more``."""
    ordered = sorted(counts, key=lambda value: (-counts[value], natural_key(value)))
    words = ", ".join(f"{value} {counts[value]}" for value in ordered[:shown])
    return f"{words} and {len(ordered) - shown} more" if len(ordered) > shown else words


_SHARES_TRIED = 16
"""So many over all domains below one, or more over fewer of them: no user's rules may hold up the others' admission."""

Taken = list[tuple[int, int]]
"""Leaves and the number of nodes in each."""


@dataclass(slots=True)
class _Layer:
    """What can be taken of the domains at one depth when the rest of the wishes holds there."""

    musts: Sequence[int]  # nodes that must be taken
    rooms: Sequence[int]  # nodes that can be
    ideals: Sequence[int]  # the same, were every node idle, under the required rules alone
    idles: Sequence[int]  # nodes that could be taken some day
    _neighbours: dict[tuple[int, int], tuple[Sequence[int], "_Layer"]] = field(default_factory=dict, init=False)

    def part(self, first: int, end: int, *, neighbouring: bool) -> tuple[Sequence[int], "_Layer"]:
        """Of domains ``first`` to ``end`` - 1 the indices and what is said of them here.

        Domains that never have a node for this run do not come between ``neighbouring`` ones.
        """
        cut = slice(first, end)
        if neighbouring and (known := self._neighbours.get((first, end))):
            return known
        if neighbouring and not all(ever := self.idles[cut]):
            columns = (self.musts, self.rooms, self.ideals, self.idles)
            layer = _Layer(*([*compress(column[cut], ever)] for column in columns))
            found = self._neighbours[first, end] = [*compress(range(first, end), ever)], layer
            return found
        if first == 0 and end == len(self.rooms):
            return range(end), self
        return range(first, end), _Layer(self.musts[cut], self.rooms[cut], self.ideals[cut], self.idles[cut])


def _any_will_do(wishes: Sequence[TopologyRequest]) -> bool:
    return all(wish.policy != "Contiguous" for wish in wishes)


def _measure(
    tree: DomainTree, wishes: Sequence[TopologyRequest], usable: NodeSet, idle: NodeSet, obliged: NodeSet
) -> list[_Layer]:
    """By depth, the root first."""
    rooms = tree.counts(usable)
    musts: Sequence[int] = [0] * len(rooms)
    if obliged:
        musts = [0] * len(rooms)
        for bit in node_set.members(obliged):
            musts[tree.leaf_of(bit)] += 1
        rooms = [room + must for room, must in zip(rooms, musts, strict=True)]
    looks = any(wish.policy == "Contiguous" or wish.fewest_possible for wish in wishes)
    idles = tree.counts(idle) if looks else rooms
    layers = [_Layer(musts, rooms, idles, idles)]
    for wish, children in zip(reversed(wishes), reversed(tree.children), strict=True):
        below = layers[-1]
        if wish.most is not None:
            below.rooms = [min(room, wish.most) for room in below.rooms]
            below.ideals = [min(ideal, wish.most) for ideal in below.ideals] if wish.required else below.ideals
        neighbouring = wish.policy == "Contiguous"
        above: list[tuple[int, int, int, int]] = []
        for first, end in children:
            _, part = below.part(first, end, neighbouring=neighbouring)
            room = _reach(part.rooms) if neighbouring else sum(part.rooms)
            room = _packable(part) if wish.fewest_possible else room
            ideal = idle_ones = room  # all of them the same where nothing looks at what could be idle
            if looks:
                ideal = _reach(part.ideals) if neighbouring and wish.required else sum(part.ideals)
                idle_ones = sum(part.idles)
            above.append((sum(part.musts) if obliged else 0, room, ideal, idle_ones))
        layers.append(_Layer(*(list(column) for column in zip(*above, strict=True))))
    return layers[::-1]


def _reach(rooms: Sequence[int]) -> int:
    """The most nodes in neighbouring domains."""
    longest = run = end = 0
    for index in compress(range(len(rooms)), rooms):  # in a full cluster most racks have no room
        run = run + rooms[index] if index == end else rooms[index]
        end = index + 1
        if run > longest:  # not by max(): there are as many domains as the cluster has racks
            longest = run
    return longest


def _packable(part: _Layer) -> int:
    """The most nodes in as few domains as on an idle cluster."""
    free = [not must for must in part.musts]
    rooms, ideals = (sorted(compress(column, free), reverse=True) for column in (part.rooms, part.ideals))
    most = total = sum(part.rooms) - sum(rooms)
    without_it = sum(part.ideals) - sum(ideals)  # what one domain less could hold
    for room, ideal in zip(rooms, ideals, strict=True):
        total += room
        if total > without_it:
            most = total
        without_it += ideal
    return most


@dataclass(slots=True)
class _Search:
    """What can be taken below which domain. Answers are kept: of shares that are tried most fill the same domains."""

    tree: DomainTree
    wishes: Sequence[TopologyRequest]
    layers: Sequence[_Layer]
    _known: dict[tuple[int, int, int], Taken | None] = field(default_factory=dict, init=False)

    def take(self, depth: int, domain: int, count: int) -> Taken | None:
        """Take ``count`` nodes below ``domain`` at ``depth``."""
        if depth == len(self.wishes):
            return [(domain, count)]
        asked = depth, domain, count
        if asked not in self._known:
            self._known[asked] = self._found(depth, domain, count)
        return self._known[asked]

    def _found(self, depth: int, domain: int, count: int) -> Taken | None:
        wish, deeper, layer = self.wishes[depth], self.wishes[depth + 1 :], self.layers[depth]
        if count > layer.rooms[domain]:
            return None
        first, end = self.tree.children[depth][domain]
        indices, children = self.layers[depth + 1].part(first, end, neighbouring=wish.policy == "Contiguous")
        if layer.musts[domain] and any(must > room for must, room in zip(children.musts, children.rooms, strict=True)):
            return None
        best: Taken | None = None
        left = _SHARES_TRIED * len(indices)
        for takes in _choices(children, wish, count, exacting=any(each.fewest_possible for each in deeper)):
            taken: Taken = []
            for index, take in takes.items():
                if take:
                    below = self.take(depth + 1, indices[index], take)
                    if below is None:
                        break
                    taken += below
            else:
                if best is None or len(taken) < len(best):
                    best = taken
                if not deeper or wish.policy == "Spread":  # choices come best first; else the fewest racks decide
                    break
            left -= len(takes)
            if left <= 0:
                break
        return best


def _picked(tree: DomainTree, taken: Taken, usable: NodeSet, musts: Sequence[int]) -> NodeSet:
    picked = EMPTY
    for leaf, take in taken:
        picked |= tree.first_by_name(leaf, usable, take - musts[leaf])
    return picked


def _choices(children: _Layer, wish: TopologyRequest, count: int, *, exacting: bool) -> Iterator[dict[int, int]]:
    """Ways to share ``count`` nodes out over ``children`` (index -> nodes), best first.

    ``exacting``: children may refuse some shares up to their room, so that others are wanted, too.
    """
    rooms, musts = children.rooms, children.musts
    match wish.policy:
        case "Spread":
            yield _spread(rooms, musts, count)
            if exacting:
                yield from _shares(dict(enumerate(musts)), rooms, count, exacting)
        case "Contiguous":
            for first, last in windows(rooms, musts, count):
                span = range(first, last + 1)
                lows = {index: max(musts[index], 1) for index in span}
                if sum(lows.values()) <= count:
                    yield from _shares(lows, rooms, count, exacting)
        case "Pack":
            ideal: int | None = None
            for chosen in fewest(rooms, musts, count):
                if wish.fewest_possible:
                    ideal = _ideal_number(children, count) if ideal is None else ideal
                    if len(chosen) > ideal:
                        return
                yield from _shares({index: musts[index] for index in chosen}, rooms, count, exacting)
        case _:
            yield from _shares(dict(enumerate(musts)), rooms, count, exacting)


def _shares(lows: Mapping[int, int], rooms: Sequence[int], count: int, exacting: bool) -> Iterator[dict[int, int]]:
    """At least ``lows`` in each, then full from the first on; if ``exacting`` from each other on, too."""
    order = list(lows)
    for first in range(len(order) if exacting else 1):
        yield _filled({index: lows[index] for index in order[first:] + order[:first]}, rooms, count)


def _ideal_number(children: _Layer, count: int) -> int:
    return len(next(fewest(children.ideals, children.musts, count), ()))


def _filled(lows: Mapping[int, int], rooms: Sequence[int], count: int) -> dict[int, int]:
    """At least ``lows`` in each, then full from the first on."""
    takes = dict(lows)
    left = count - sum(lows.values())
    for index, low in lows.items():
        if not left:
            break
        more = min(left, rooms[index] - low)
        takes[index] += more
        left -= more
    return takes


def _spread(rooms: Sequence[int], musts: Sequence[int], count: int) -> dict[int, int]:
    """As even as it gets: everybody up to a water line, the roomiest domains one above it."""
    kinds = Counter(zip(rooms, musts, strict=True))

    def taken_at(line: int) -> int:
        return sum(number * min(max(line, must), room) for (room, must), number in kinds.items())

    def level(line: int) -> list[int]:
        return [min(max(line, must), room) for room, must in zip(rooms, musts, strict=True)]

    line = bisect_left(range(max(rooms) + 1), count, key=taken_at)
    low, high = level(max(line - 1, 0)), level(line)
    left = count - sum(low)
    roomiest = sorted((index for index in range(len(rooms)) if high[index] > low[index]), key=lambda i: -rooms[i])
    for index in roomiest[:left]:
        low[index] += 1
    return dict(enumerate(low))
