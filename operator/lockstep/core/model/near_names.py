"""Which of the names there are was probably meant.

Names are anybody's to write and to make: a comparison costs one pass over the two, and only so many are compared.
"""

from collections.abc import Iterable
from itertools import islice

MOST_COMPARED = 500
_LIKE = 0.5
"""Share of the longer name that stands at the beginning or the end of both: one slip of the hand leaves more."""
_TOLD = 3


def nearest(wanted: str, names: Iterable[str]) -> tuple[str, ...]:
    """Up to three of ``names`` that are like ``wanted``, the likest first; what differs in case alone alone."""
    scored = [(-_likeness(wanted, name), name) for name in islice(names, MOST_COMPARED)]
    like = sorted(each for each in scored if each[0] <= -_LIKE)
    same = [each for each in like if each[0] == -1.0]
    return tuple(name for _, name in (same or like)[:_TOLD])


def suggestion(wanted: str, names: Iterable[str]) -> str:
    """A question to put before the rest of a sentence; empty where none is like it."""
    near = nearest(wanted, names)
    return f"did you mean {' or '.join(near)}? Else " if near else ""


def _likeness(one: str, other: str) -> float:
    one, other = one.lower(), other.lower()
    if one == other:
        return 1.0
    if sorted(one) == sorted(other):
        return 0.9  # letters that changed places
    most = min(len(one), len(other))
    before = _common(one, other, most)
    behind = _common(one[::-1], other[::-1], most - before)
    return (before + behind) / max(len(one), len(other))


def _common(one: str, other: str, most: int) -> int:
    return next((at for at in range(most) if one[at] != other[at]), most)
