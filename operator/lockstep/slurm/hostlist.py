"""Lists of hosts as Slurm writes them: ``n[1-3,7],m01``. Their order is kept, as it is the order of ranks."""

from __future__ import annotations

import itertools
import re
from typing import Iterable, List, Sequence, Tuple

# What one expression may mean, as it may come from a tenant; counted before any of it is made.
MOST = 65_536  # hosts
MOST_LETTERS = MOST * 64  # of all their names
_PART = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_Span = Tuple[range, int]  # numbers, and how many digits they have at least
_NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)


def expand(text: str) -> List[str]:
    """The hosts, in order. Raises ValueError on what Slurm refuses, and on more than MOST."""
    hosts: List[str] = []
    letters = 0
    for part in _parts(text):
        texts, ranges = _pieces(part)
        spans = [_spans(inside) for inside in ranges]
        count, longest = 1, sum(map(len, texts))
        for bracket in spans:
            count *= sum(len(numbers) for numbers, _ in bracket)
            longest += max(max(width, len(str(numbers[-1]))) for numbers, width in bracket)
            if len(hosts) + count > MOST:
                break
        letters += count * longest
        if len(hosts) + count > MOST or letters > MOST_LETTERS:
            raise ValueError(f"{part} means more than {MOST} hosts, or their names are longer than {MOST_LETTERS}")
        choices = [list(_numbers(bracket)) for bracket in spans]
        hosts += ["".join(_woven(texts, chosen)) for chosen in itertools.product(*choices)]
    return hosts


def of_file(text: str) -> List[str]:
    """Those that a file lists, a line or a comma between them; ``n1*2`` is there twice, and behind ``#`` is nothing.
    Raises ValueError."""
    hosts: List[str] = []
    for word in (word for line in text.splitlines() for word in line.partition("#")[0].split()):
        repeated = re.fullmatch(r"(.+)\*([0-9]{1,5})", word)
        found = expand(repeated[1] if repeated else word)
        times = int(repeated[2]) if repeated else 1
        if len(hosts) + len(found) * times > MOST:
            raise ValueError(f"it lists more than {MOST} hosts")
        hosts += found * times
    return hosts


def compress(hosts: Iterable[str]) -> str:
    """The shortest text that expands to ``hosts`` in their order, as Slurm makes it."""
    written: List[str] = []
    split = [_split(host) for host in hosts]
    for prefix, group in itertools.groupby(split, key=lambda pair: pair[0] if pair[1] else None):
        members = list(group)
        if prefix is None:  # without a number: as it is
            written += [host for host, _ in members]
            continue
        ranges = _ranges([digits for _, digits in members])
        alone = len(ranges) == 1 and "-" not in ranges[0]
        written.append(prefix + (ranges[0] if alone else f"[{','.join(ranges)}]"))
    return ",".join(written)


def compress_counts(counts: Sequence[int]) -> str:
    """``2(x3),1`` of 2, 2, 2, 1: how SLURM_TASKS_PER_NODE and the like are written."""
    runs = [(count, len(list(same))) for count, same in itertools.groupby(counts)]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


def expand_counts(text: str) -> List[int]:
    """The other way. Raises ValueError."""
    counts: List[int] = []
    for part in filter(None, text.split(",")):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if found is None or len(counts) + int(found[2] or 1) > MOST:
            raise ValueError(f"{part} is no count of tasks")
        counts += [int(found[1])] * int(found[2] or 1)
    return counts


def _woven(texts: Sequence[str], numbers: Sequence[str]) -> Iterable[str]:
    return itertools.chain(*itertools.zip_longest(texts, numbers, fillvalue=""))


def _parts(text: str) -> List[str]:
    """What commas outside brackets separate."""
    parts = _PART.findall(text)
    if len("".join(parts)) + _commas_outside(text) != len(text):
        raise ValueError(f"{text} has a bracket without its other one")
    return [part for part in parts if part.strip()]


def _commas_outside(text: str) -> int:
    return re.sub(r"\[[^\[\]]*\]", "", text).count(",")


def _pieces(part: str) -> Tuple[List[str], List[str]]:
    """Texts around the brackets, and what is in those."""
    pieces = re.split(r"\[([^\[\]]*)\]", part.strip())
    return pieces[::2], pieces[1::2]


def _spans(inside: str) -> List[_Span]:
    """What a bracket means, without its numbers being made."""
    spans: List[_Span] = []
    for item in inside.split(","):
        found = _RANGE.fullmatch(item.strip())
        if found is None:
            raise ValueError(f"[{inside}] is no range of numbers")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last - first >= MOST:
            raise ValueError(f"[{inside}] is no range of numbers")
        spans.append((range(first, last + 1), len(found[1])))
    return spans


def _numbers(spans: Sequence[_Span]) -> Iterable[str]:
    return (str(number).zfill(width) for numbers, width in spans for number in numbers)


def _split(host: str) -> Tuple[str, str]:
    """(prefix, digits at the end, as they are written)."""
    found = _NUMBERED.fullmatch(host)
    # Numbers that no integer of Slurm's holds are text.
    return (found[1], found[2]) if found and len(found[2]) <= 18 else (host, "")


def _ranges(digits: Sequence[str]) -> List[str]:
    """``1-3`` for neighbours that the first one's width gives back as they are."""
    ranges: List[Tuple[str, str]] = []
    for text in digits:
        if ranges:
            first, last = ranges[-1]
            if text == str(int(last) + 1).zfill(len(first)):
                ranges[-1] = (first, text)
                continue
        ranges.append((text, text))
    return [first if first == last else f"{first}-{last}" for first, last in ranges]
