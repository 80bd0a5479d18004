"""Runs of a set that the API server will not take: which they are, and when one of them is tried again.

One that is refused holds up no other: an admission webhook may mean that index alone. While nothing at all is taken,
as with a quota of objects, a few runs now and then are enough to learn whether that is so still; the longer the wait,
the more of those that were never tried, so that a webhook that refuses many in a row hides none of the rest for long.
"""

from collections.abc import Iterable, Mapping, Set

from lockstep.api.base.changes import changed
from lockstep.api.run_set import SetRefusal
from lockstep.core.arrays.members import read_ranges
from lockstep.core.model.ranges import format_ranges

_FIRST, _LONGEST = 2.0, 300.0  # seconds until the next try: doubled each time
_MOST = 64  # tried for the first time after one wait
_MOST_TRIES = 10**6  # counted; what is beyond the CRD's numbers would never be written
_WORDS = 900


def refusal_after(
    before: SetRefusal | None,
    news: Mapping[int, str],
    left: Set[int],
    with_runs: Set[int],
    fruitless: int,
    now: float,
) -> SetRefusal | None:
    """What is to be on record of refused runs; None: none is refused.

    ``news``: words of the API server by index, as heard since ``before`` was written. ``left``: indices that have had
    no run. When one that was refused is among ``with_runs``, the others may be taken as well, and at once. With the
    first ``fruitless`` request since a run was taken the waits begin anew: those before say nothing of it.
    """
    known, tries = (read_ranges(before.indices), before.tries) if before is not None else (frozenset[int](), 0)
    if known & with_runs:
        known, tries = frozenset(), 0
    heard = sorted(news.keys() & left)
    refused = (known & left).union(heard)
    if not heard or not refused:
        return changed(before, indices=format_ranges(refused)) if before and refused else None
    if fruitless == 1 and not known.issuperset(heard):
        tries = 0
    wait = min(_LONGEST, _FIRST * 2.0 ** min(tries, 16))
    return SetRefusal(
        indices=format_ranges(refused),
        last=heard[-1],
        message=news[heard[-1]][:_WORDS],
        tries=min(tries + 1, _MOST_TRIES),
        retry_at=float(int(now + wait)),
    )


def is_due(refusal: SetRefusal, now: float) -> bool:
    """Another try may be made. A time further away than any wait is none of ours."""
    return not now < refusal.retry_at <= now + _LONGEST


def never_tried_now(refusal: SetRefusal) -> int:
    """How many indices may be tried for the first time when a try is due and none was taken of late."""
    return int(min(_MOST, 2.0 ** min(refusal.tries - 1, 16)))


def next_to_try(refusal: SetRefusal, ready: Iterable[int]) -> int | None:
    """The refused index whose turn it is, of those that are ``ready``: each of them once before any comes again."""
    turn = sorted(read_ranges(refusal.indices).intersection(ready))
    return next((index for index in turn if index > refusal.last), turn[0] if turn else None)
