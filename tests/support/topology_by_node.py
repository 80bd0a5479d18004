"""Topology rules as they were met before that was done on sets of nodes (see placement_by_node)."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockstep.api.run_spec import TopologyRule
from lockstep.core.model.natural_order import NaturalKey, natural_key

Labels = Mapping[str, str]
Part = tuple[int, NaturalKey]


@dataclass(slots=True)
class Domain:
    """A zone, a rack, or the whole cluster (the root)."""

    children: dict[Part, "Domain"] = field(default_factory=dict)
    usable: list[str] = field(default_factory=list)  # of a leaf: nodes that may be taken now
    obliged: list[str] = field(default_factory=list)  # of a leaf: nodes that must be, not in ``usable``
    must: int = 0  # nodes below that must be taken
    room: int = 0  # nodes below that can be taken under the rules
    ideal: int = 0  # the same, were every node idle, under the required rules alone
    idle: int = 0  # of a leaf: usable, obliged, and those that only wait for something to pass

    def ordered(self) -> list["Domain"]:
        """Children in natural order of their names."""
        return [self.children[part] for part in sorted(self.children)]


@dataclass(frozen=True, slots=True)
class Wish:
    """A topology rule as one attempt at an arrangement takes it."""

    label: str
    policy: str
    most: int | None  # nodes in one domain
    required: bool

    @property
    def fewest_possible(self) -> bool:
        """As few domains as on an idle cluster, or nothing."""
        return self.required and self.policy == "Pack"


Taken = list[tuple[Domain, int]]


def arrange(
    usable: Mapping[str, Labels],
    waiting: Mapping[str, Labels],
    obliged: Mapping[str, Labels],
    count: int,
    rules: Sequence[TopologyRule],
    levels: Mapping[str, str],
) -> tuple[str, ...] | None:
    """Choose ``count`` nodes, all ``obliged`` ones among them, in rank order; None when the rules forbid it.

    The three maps are disjoint, from node name to labels: nodes that can be taken, nodes that could be
    were they idle (they only tell how few racks are possible), and nodes that must be taken. ``levels``
    maps level names to labels, narrowest first. Without rules the gang is packed on the narrowest level.
    """
    if count < len(obliged) or count > len(usable) + len(obliged):
        return None
    for wishes in _attempts(rules, levels):
        root = _tree(usable, waiting, obliged, [wish.label for wish in wishes], levels)
        _measure(root, wishes)
        taken = _solve(root, wishes, count)
        if taken is not None:
            chosen = [name for leaf, take in taken for name in _pick(leaf, take)]
            return _in_rank_order(chosen, {**usable, **obliged}, levels)
    return None


def fullest_domains(nodes: Mapping[str, Labels], label: str, shown: int = 4) -> str:
    """The values of ``label`` with the most ``nodes``, for people: ``r2 8, r1 6 and 3 more``."""
    counts: dict[str, int] = {}
    for labels in nodes.values():
        if label in labels:
            counts[labels[label]] = counts.get(labels[label], 0) + 1
    ordered = sorted(counts, key=lambda value: (-counts[value], natural_key(value)))
    words = ", ".join(f"{value} {counts[value]}" for value in ordered[:shown])
    return f"{words} and {len(ordered) - shown} more" if len(ordered) > shown else words


def _attempts(rules: Sequence[TopologyRule], levels: Mapping[str, str]) -> Iterator[list[Wish]]:
    """The rules as wished for, then with one preferred rule after the other relaxed, the last listed first."""
    narrowness = {level: index for index, level in enumerate(levels)}
    strict = {
        rule.level: Wish(levels[rule.level], rule.policy, rule.max_nodes, rule.mode == "Required") for rule in rules
    }
    if not strict and levels:
        narrowest = next(iter(levels))
        strict[narrowest] = Wish(levels[narrowest], "Pack", None, False)
    widest_first = sorted(strict, key=lambda level: -narrowness[level])
    yield _that_count([strict[level] for level in widest_first])
    for rule in reversed(rules):
        wish = strict[rule.level]
        if rule.mode == "Preferred" and (wish.policy == "Contiguous" or wish.most is not None):
            policy = "Pack" if wish.policy == "Contiguous" else wish.policy
            strict[rule.level] = replace(wish, policy=policy, most=None)
            yield _that_count([strict[level] for level in widest_first])
    for rule in reversed(rules):
        narrower = [other for other in rules if narrowness[other.level] < narrowness[rule.level]]
        if (
            rule.mode == "Preferred"
            and strict[rule.level].policy != "Any"
            and any(other.mode == "Required" and other.policy in ("Pack", "Contiguous") for other in narrower)
        ):
            strict[rule.level] = replace(strict[rule.level], policy="Any", most=None)
            yield _that_count([strict[level] for level in widest_first])


def _that_count(wishes: list[Wish]) -> list[Wish]:
    return [wish for wish in wishes[:-1] if wish.policy != "Any" or wish.most is not None] + wishes[-1:]


def _tree(
    usable: Mapping[str, Labels],
    waiting: Mapping[str, Labels],
    obliged: Mapping[str, Labels],
    used: Sequence[str],
    levels: Mapping[str, str],
) -> Domain:
    root = Domain()
    leaves: dict[tuple[str | None, ...], Domain] = {}
    labels_of_levels = list(levels.values())[::-1]

    def leaf_of(name: str, labels: Labels) -> Domain:
        values = tuple(labels.get(label) for label in labels_of_levels)
        known = leaves.get(values)
        if known is not None:
            return known
        domain, complete = root, True
        for label in used:
            # The same rack name in two zones is two racks: wider levels are part of a domain's name.
            depth = labels_of_levels.index(label)
            complete = complete and values[depth] is not None
            part = _part(name, values[: depth + 1])
            domain = domain.children.setdefault(part, Domain())
        if complete:
            leaves[values] = domain  # a node without the label is a domain of its own
        return domain

    for name, labels in usable.items():
        leaf = leaf_of(name, labels)
        leaf.usable.append(name)
        leaf.idle += 1
    for name, labels in obliged.items():
        leaf = leaf_of(name, labels)
        leaf.obliged.append(name)
        leaf.idle += 1
    for name, labels in waiting.items():
        leaf_of(name, labels).idle += 1
    return root


def _part(name: str, values: tuple[str | None, ...]) -> Part:
    if values[-1] is None:
        return (1, natural_key(name))
    return (0, tuple(item for value in values for item in natural_key(value or "")))


def _in_rank_order(chosen: Sequence[str], labels: Mapping[str, Labels], levels: Mapping[str, str]) -> tuple[str, ...]:
    """Zone by zone, rack by rack, all in natural order; nodes without a label come last."""
    widest_first = list(levels.values())[::-1]
    by_place: dict[tuple[str | None, ...], list[str]] = {}
    for name in chosen:
        by_place.setdefault(tuple(labels[name].get(label) for label in widest_first), []).append(name)
    places = sorted(by_place, key=lambda place: [(part is None, natural_key(part or "")) for part in place])
    return tuple(name for place in places for name in sorted(by_place[place], key=natural_key))


def _pick(leaf: Domain, take: int) -> list[str]:
    spare = take - len(leaf.obliged)
    names = leaf.usable if spare == len(leaf.usable) else sorted(leaf.usable, key=natural_key)[:spare]
    return leaf.obliged + names


def _measure(domain: Domain, wishes: Sequence[Wish]) -> None:
    """Fill in what can be taken below ``domain`` when the rest of ``wishes`` holds there."""
    if not wishes:
        domain.must = len(domain.obliged)
        domain.room = len(domain.usable) + domain.must
        domain.ideal = domain.idle
        return
    wish = wishes[0]
    for child in domain.children.values():
        _measure(child, wishes[1:])
        if wish.most is not None:
            child.room = min(child.room, wish.most)
            child.ideal = min(child.ideal, wish.most) if wish.required else child.ideal
    children = domain.ordered() if wish.policy == "Contiguous" else list(domain.children.values())
    domain.must = sum(child.must for child in children)
    neighbouring = wish.policy == "Contiguous"
    domain.room = _reach([child.room for child in children], neighbouring)
    domain.ideal = _reach([child.ideal for child in children], neighbouring and wish.required)
    if wish.fewest_possible:
        domain.room = _packable(children)


def _packable(children: Sequence[Domain]) -> int:
    """The most nodes in as few domains as on an idle cluster."""
    forced = [child for child in children if child.must]
    rooms = sorted((child.room for child in children if not child.must), reverse=True)
    ideals = sorted((child.ideal for child in children if not child.must), reverse=True)
    room, ideal = sum(child.room for child in forced), sum(child.ideal for child in forced)
    possible = [room + sum(rooms[:number]) for number in range(len(rooms) + 1)]
    enough = [-1] + [ideal + sum(ideals[:number]) for number in range(len(ideals))]
    return max(most for most, less in zip(possible, enough, strict=True) if most > less)


def _reach(rooms: Iterable[int], neighbouring: bool) -> int:
    if not neighbouring:
        return sum(rooms)
    longest = run = 0
    for room in rooms:
        run = run + room if room else 0
        longest = max(longest, run)
    return longest


def _solve(domain: Domain, wishes: Sequence[Wish], count: int) -> Taken | None:
    """Take ``count`` nodes below ``domain``: leaves in order, with the number of nodes in each."""
    if not wishes:
        return [(domain, count)]
    if count > domain.room:
        return None
    children = domain.ordered()
    if any(child.must > child.room for child in children):
        return None
    best: Taken | None = None
    looks = 16 * len(children)
    for takes in _choices(children, wishes[0], count, any(wish.fewest_possible for wish in wishes[1:])):
        if looks <= 0:
            break
        looks -= len(takes)
        taken: Taken | None = []
        for index, take in takes.items():
            if not take:
                continue
            below = _solve(children[index], wishes[1:], take)
            if below is None:
                taken = None
                break
            taken = [*(taken or []), *below]
        if taken is None or (best is not None and len(taken) >= len(best)):
            continue
        best = taken
        if (
            len(wishes) == 1 or wishes[0].policy == "Spread"
        ):  # choices come best first; below further levels the fewest racks decide
            break
    return best


def _choices(children: Sequence[Domain], wish: Wish, count: int, exacting: bool) -> Iterator[dict[int, int]]:
    """Ways to share ``count`` nodes out over ``children`` (index -> nodes), best first."""
    rooms = [child.room for child in children]
    musts = [child.must for child in children]
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
            for chosen in fewest(rooms, musts, count):
                if wish.fewest_possible and len(chosen) > _ideal_number(children, musts, count):
                    return
                yield from _shares({index: musts[index] for index in chosen}, rooms, count, exacting)
        case _:
            yield from _shares(dict(enumerate(musts)), rooms, count, exacting)


def _shares(lows: Mapping[int, int], rooms: Sequence[int], count: int, exacting: bool) -> Iterator[dict[int, int]]:
    order = list(lows)
    for first in range(len(order) if exacting else 1):
        yield _fill({index: lows[index] for index in order[first:] + order[:first]}, rooms, count)


def _ideal_number(children: Sequence[Domain], musts: Sequence[int], count: int) -> int:
    return len(next(fewest([child.ideal for child in children], musts, count), ()))


def _fill(lows: Mapping[int, int], rooms: Sequence[int], count: int) -> dict[int, int]:
    """At least ``lows`` in each, then full from the first on."""
    takes = dict(lows)
    left = count - sum(lows.values())
    for index, low in lows.items():
        more = min(left, rooms[index] - low)
        takes[index] += more
        left -= more
    return takes


def _spread(rooms: Sequence[int], musts: Sequence[int], count: int) -> dict[int, int]:
    """As even as it gets: everybody up to a water line, the roomiest domains one above it."""

    def level(line: int) -> list[int]:
        return [min(max(line, must), room) for room, must in zip(rooms, musts, strict=True)]

    line = bisect_left(range(max(rooms) + 1), count, key=lambda at: sum(level(at)))
    low, high = level(max(line - 1, 0)), level(line)
    left = count - sum(low)
    roomiest = sorted((index for index in range(len(rooms)) if high[index] > low[index]), key=lambda i: -rooms[i])
    for index in roomiest[:left]:
        low[index] += 1
    return dict(enumerate(low))


def fewest(rooms: Sequence[int], musts: Sequence[int], count: int) -> Iterator[list[int]]:
    """Sets of domains (indices, ascending) with room for ``count`` nodes, none with fewer members.

    Domains with ``musts`` are always among them. Best first: the first set leaves the least room
    unused, so that large empty domains stay whole. Where one more domain is enough, every domain
    that will do follows.
    """
    forced = [index for index, must in enumerate(musts) if must]
    need = count - sum(rooms[index] for index in forced)
    if need <= 0:
        yield forced
        return
    others = sorted((i for i, room in enumerate(rooms) if room and not musts[i]), key=lambda i: (-rooms[i], i))
    total, number = 0, 0
    while total < need:
        if number == len(others):
            return
        total += rooms[others[number]]
        number += 1
    if number == 1:
        enough = sorted((i for i in others if rooms[i] >= need), key=lambda i: (rooms[i], i))
        for index in enough:
            yield sorted([*forced, index])
        return
    yield sorted([*forced, *_least_unused(rooms, others, number, need)])


def _least_unused(rooms: Sequence[int], largest_first: Sequence[int], number: int, need: int) -> list[int]:
    """Exactly ``number`` domains with room for ``need`` and the least left over.

    Walks the sizes from the largest, keeping for every number of domains chosen so far by how much
    their room can fall short of that of the largest ones: bit d of ``short[j]`` says that j domains
    can be d short. ``number`` is the least possible, so no more than one domain's room can be given up
    and the bit sets stay small.
    """
    best = [0]
    for index in largest_first[:number]:
        best.append(best[-1] + rooms[index])
    slack = best[number] - need
    mask = (1 << (slack + 1)) - 1
    sizes: list[tuple[int, list[int]]] = []
    for index in largest_first:
        if not sizes or sizes[-1][0] != rooms[index]:
            sizes.append((rooms[index], []))
        sizes[-1][1].append(index)
    steps = [{0: 1}]
    for size, members in sizes:
        short: dict[int, int] = {}
        for chosen, bits in steps[-1].items():
            for more in range(min(len(members), number - chosen) + 1):
                lost = best[chosen + more] - best[chosen] - more * size
                if lost > slack:
                    break
                short[chosen + more] = short.get(chosen + more, 0) | (bits << lost & mask)
        steps.append(short)
    result: list[int] = []
    chosen, lost = number, steps[-1][number].bit_length() - 1
    for (size, members), before in zip(reversed(sizes), reversed(steps[:-1]), strict=True):
        for more in range(min(len(members), chosen) + 1):
            given_up = best[chosen] - best[chosen - more] - more * size
            if 0 <= given_up <= lost and before.get(chosen - more, 0) >> (lost - given_up) & 1:
                result += members[:more]
                chosen, lost = chosen - more, lost - given_up
                break
    return result


def windows(rooms: Sequence[int], musts: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Runs of neighbouring domains (first and last index) with room for ``count``, none of them full.

    Every domain with ``musts`` lies inside. The shortest first, then those that leave the least unused.
    """
    forced = [index for index, must in enumerate(musts) if must]
    found: list[tuple[int, int, int]] = []
    last, total = -1, 0  # the window is first..last
    for first, room in enumerate(rooms):
        if last < first:
            last, total = first - 1, 0
        if forced and first > forced[0]:
            break
        while last + 1 < len(rooms) and rooms[last + 1] and (total < count or (forced and last < forced[-1])):
            last += 1
            total += rooms[last]
        if last >= first and total >= count and not (forced and last < forced[-1]):
            found.append((last - first, total, first))
        total -= room if last >= first else 0
    return [(first, first + length) for length, _, first in sorted(found)]
