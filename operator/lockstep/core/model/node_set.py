"""Sets of nodes: bit i of an integer stands for node i of the index that numbered them."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:

    class NodeSet:
        """An integer when the program runs. For mypy no number, so that neither is taken for the other."""

        def __init__(self, bits: int = 0, /) -> None: ...
        @classmethod
        def from_bytes(cls, octets: bytearray, order: Literal["little"], /) -> Self: ...
        def __and__(self, other: "NodeSet", /) -> "NodeSet": ...
        def __or__(self, other: "NodeSet", /) -> "NodeSet": ...
        def __xor__(self, other: "NodeSet", /) -> "NodeSet": ...
        def __invert__(self) -> "NodeSet": ...
        def __neg__(self) -> "NodeSet": ...
        def __lt__(self, other: "NodeSet", /) -> bool: ...
        def __lshift__(self, bits: int, /) -> "NodeSet": ...
        def __rshift__(self, bits: int, /) -> "NodeSet": ...
        def __bool__(self) -> bool: ...
        def __int__(self) -> int: ...
        def bit_count(self) -> int: ...
        def bit_length(self) -> int: ...

else:
    NodeSet = int

EMPTY = NodeSet()
ONE = NodeSet(1)
"""The first node alone; ``ONE << bit`` is the node of that bit."""
ALL = ~EMPTY
"""Every node there could be; ``~(ALL << count)`` are the first ``count``."""

_FEW = 64  # up to here taking bits off one by one is cheaper than writing all of them down


def from_bits(bits: Iterable[int], size: int) -> NodeSet:
    """The set of ``bits``, all below ``size``."""
    octets = bytearray((size + 7) // 8)
    for bit in bits:
        octets[bit >> 3] |= 1 << (bit & 7)
    return NodeSet.from_bytes(octets, "little")


def span(first: int, end: int) -> NodeSet:
    """The bits from ``first`` to ``end`` - 1."""
    return ~(ALL << (end - first)) << first


def members(nodes: NodeSet) -> Iterator[int]:
    """The bits of ``nodes``, ascending."""
    if nodes.bit_count() <= _FEW:
        found = []
        while nodes:
            top = nodes.bit_length() - 1
            found.append(top)
            nodes ^= ONE << top
        yield from reversed(found)
        return
    digits = digits_of(nodes)
    at = digits.find("1")
    while at >= 0:
        yield at
        at = digits.find("1", at + 1)


def digits_of(nodes: NodeSet) -> str:
    """A character for every bit up to the highest, the lowest first."""
    return bin(int(nodes))[:1:-1]


def lowest(nodes: NodeSet, count: int) -> NodeSet:
    """The ``count`` lowest of ``nodes``; all of them when they are no more."""
    if nodes.bit_count() <= count:
        return nodes
    if count <= 1:
        return nodes & -nodes if count else EMPTY
    low, high = 0, nodes.bit_length()  # the first ``high`` bits hold more than ``count``, the first ``low`` do not
    while high - low > 1:
        middle = (low + high) // 2
        if (nodes & ~(ALL << middle)).bit_count() > count:
            high = middle
        else:
            low = middle
    return nodes & ~(ALL << low)
