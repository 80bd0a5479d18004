"""Sets of ranks, slots and indices as short text: ``0-2,5``. Status must not grow with the gang."""

from collections.abc import Iterable, Iterator, Sequence

BEYOND = 1 << 17
"""No rank, slot or index has such a number: what somebody else wrote must not be unfolded into memory without end."""

MOST_SHOWN = 200
"""Characters of ranges in words for people: they are written into status, for each of the last attempts."""


def format_ranges(numbers: Iterable[int]) -> str:
    """Sorted, without duplicates, runs folded: {0, 1, 2, 5} -> "0-2,5"."""
    parts: list[str] = []
    run: list[int] = []
    for number in [*sorted(set(numbers)), None]:
        if run and number == run[-1] + 1:
            run.append(number)
            continue
        if run:
            parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
        run = [] if number is None else [number]
    return ",".join(parts)


def shown_ranges(numbers: Iterable[int]) -> str:
    """As ``format_ranges``, for people: of very many the first, and how many more."""
    every = set(numbers)
    text = format_ranges(every)
    if len(text) <= MOST_SHOWN:
        return text
    first = text[:MOST_SHOWN].rpartition(",")[0]
    return f"{first} and {len(every) - count_ranges(first)} more"


def parse_ranges(text: str) -> frozenset[int]:
    """The inverse of ``format_ranges``. Raises ValueError on anything else."""
    numbers: set[int] = set()
    for run in _runs(text):
        numbers.update(run)
    return frozenset(numbers)


def count_ranges(text: str) -> int:
    """How many numbers ``text`` unfolds to, each as often as it is there. Raises ValueError on what is no ranges."""
    return sum(map(len, _runs(text)))


def distinct_ranges(texts: Iterable[str]) -> list[range]:
    """What all texts name together, in ascending order, nothing unfolded. Raises ValueError where a number is there
    twice, and on what is no ranges."""
    whole: list[range] = []
    for run in sorted((run for text in texts for run in _runs(text)), key=lambda run: run.start):
        if whole and run.start < whole[-1].stop:
            raise ValueError(f"{run.start} is there twice")
        if whole and run.start == whole[-1].stop:
            whole[-1] = range(whole[-1].start, run.stop)
        else:
            whole.append(run)
    return whole


def format_order(numbers: Sequence[int]) -> str:
    """In the order given, ascending runs folded: [0, 1, 4, 2, 3] -> "0-1,4,2-3"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(format_ranges(run) for run in runs)


def parse_order(text: str) -> tuple[int, ...]:
    """The inverse of ``format_order``. Raises ValueError on anything else."""
    if count_ranges(text) > BEYOND:
        raise ValueError("a number is there twice")
    return tuple(number for run in _runs(text) for number in run)


def _runs(text: str) -> Iterator[range]:
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        run = range(int(first), int(last if dash else first) + 1)
        if run.start < 0 or run.stop > BEYOND:
            raise ValueError(f"{part[:32]!r} is beyond {BEYOND - 1}")
        if not run:
            raise ValueError(f"{part[:32]!r} ends before it begins")
        yield run
