"""Two exact choices over domains with so much room each: the fewest of them, and neighbouring ones."""

from collections.abc import Iterator, Sequence
from itertools import compress


def fewest(rooms: Sequence[int], musts: Sequence[int], count: int) -> Iterator[list[int]]:
    """Sets of domains (indices, ascending) with room for ``count`` nodes, none with fewer members.

    Domains with ``musts`` are always among them. Best first: the first set leaves the least room
    unused, so that large empty domains stay whole. Where one more domain is enough, every domain
    that will do follows.
    """
    forced = [index for index, must in enumerate(musts) if must] if any(musts) else []
    need = count - sum(rooms[index] for index in forced)
    if need <= 0:
        yield forced
        return
    if forced:
        rooms = [0 if must else room for room, must in zip(rooms, musts, strict=True)]
    if max(rooms, default=0) >= need:
        enough = [room for room in rooms if room >= need]
        yield sorted([*forced, rooms.index(min(enough))])
        ordered = sorted((i for i, room in enumerate(rooms) if room >= need), key=rooms.__getitem__)
        for index in ordered[1:]:
            yield sorted([*forced, index])
        return
    others = sorted(compress(range(len(rooms)), rooms), key=rooms.__getitem__, reverse=True)
    total, number = 0, 0
    while total < need:
        if number == len(others):
            return
        total += rooms[others[number]]
        number += 1
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
            if best[number] - best[chosen] - (number - chosen) * size > slack:
                continue  # with none larger than this the rest cannot make up for what was passed over
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
    if not any(musts):
        return _free_windows(rooms, count)
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


def _free_windows(rooms: Sequence[int], count: int) -> list[tuple[int, int]]:
    """``windows`` where none has to be taken: most that are asked for, over all racks of the cluster."""
    found: list[tuple[int, int, int]] = []
    end, total, size = 0, 0, len(rooms)  # the window is first..end - 1
    for first in compress(range(size), rooms):  # in a full cluster most racks have no room
        if end < first:
            end, total = first, 0
        while total < count and end < size and (more := rooms[end]):
            total += more
            end += 1
        if total >= count:
            found.append((end - first, total, first))
        total -= rooms[first]
    return [(first, first + length - 1) for length, _, first in sorted(found)]
