"""Sets of nodes as integers: bit i stands for node i of the index that numbered them."""

from collections.abc import Iterable, Iterator

_FEW = 64  # up to here taking bits off one by one is cheaper than writing all of them down


def from_bits(bits: Iterable[int], size: int) -> int:
    """The set of ``bits``, all below ``size``."""
    octets = bytearray((size + 7) // 8)
    for bit in bits:
        octets[bit >> 3] |= 1 << (bit & 7)
    return int.from_bytes(octets, "little")


def span(first: int, end: int) -> int:
    """The bits from ``first`` to ``end`` - 1."""
    return ((1 << (end - first)) - 1) << first


def members(nodes: int) -> Iterator[int]:
    """The bits of ``nodes``, ascending."""
    if nodes.bit_count() <= _FEW:
        found = []
        while nodes:
            top = nodes.bit_length() - 1
            found.append(top)
            nodes ^= 1 << top
        yield from reversed(found)
        return
    digits = digits_of(nodes)
    at = digits.find("1")
    while at >= 0:
        yield at
        at = digits.find("1", at + 1)


def digits_of(nodes: int) -> str:
    """A character for every bit up to the highest, the lowest first."""
    return bin(nodes)[:1:-1]


def lowest(nodes: int, count: int) -> int:
    """The ``count`` lowest of ``nodes``; all of them when they are no more."""
    if nodes.bit_count() <= count:
        return nodes
    if count <= 1:
        return nodes & -nodes if count else 0
    low, high = 0, nodes.bit_length()  # the first ``high`` bits hold more than ``count``, the first ``low`` do not
    while high - low > 1:
        middle = (low + high) // 2
        if (nodes & ((1 << middle) - 1)).bit_count() > count:
            high = middle
        else:
            low = middle
    return nodes & ((1 << low) - 1)
