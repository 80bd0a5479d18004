"""Sets of ranks and slots as short text: ``0-2,5``. Status must not grow with the gang."""

from collections.abc import Iterable


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


def parse_ranges(text: str) -> frozenset[int]:
    """The inverse of ``format_ranges``. Raises ValueError on anything else."""
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        numbers.update(range(int(first), int(last if dash else first) + 1))
    return frozenset(numbers)
