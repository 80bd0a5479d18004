"""Counts of nodes and GPUs, and amounts of memory, as options of Slurm have them."""

from __future__ import annotations

import re
from typing import Optional, Tuple

MOST_NODES = 65_536
_UNITS = {"": 1.0, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024.0}


def node_count(text: str) -> Tuple[int, int]:
    """(fewest, most) of ``4``, ``2-8``, ``1k``. Raises ValueError, also on steps and lists: none can be promised."""
    if re.search("[:,]", text):
        raise ValueError(f"{text}: only one size, or a range as 2-8; leave the step out, or submit the sizes by hand")
    found = re.fullmatch(r"([0-9]{1,6})([km]?)(?:-([0-9]{1,6})([km]?))?", text.strip(), re.IGNORECASE)
    least, most = (_nodes(found[1], found[2]), _nodes(found[3] or found[1], found[4] or found[2])) if found else (0, 0)
    if not 0 < least <= most <= MOST_NODES:
        raise ValueError(f'"{text}" is not a valid node count')
    return least, most


def mebibytes(text: str) -> int:
    """Of ``64G``; mebibytes without a unit. Raises ValueError."""
    found = re.fullmatch(r"([0-9]{1,12})([kmgt]?)b?", text.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError(f"{text} is no amount of memory, e.g. 64G")
    return -int(-int(found[1]) * _UNITS[found[2].lower()] // 1)


def gpus_of(text: str, option: str) -> Optional[Tuple[int, str]]:
    """(how many, their type or empty) in the value of ``option``; None: of other things. Raises ValueError."""
    total, kind, seen = 0, "", False
    for part in filter(None, text.split(",")):
        words = re.split("[:=/]", part)
        if words[0] == "gres":
            words = words[1:]
        if option in ("gres", "tres-per-task"):
            if words[:1] == ["none"] or (option == "tres-per-task" and words[0] == "cpu"):
                continue
            if words[:1] != ["gpu"]:
                raise ValueError(f"{words[0]} is nothing that nodes are asked for here; only gpu is")
            words = words[1:]
        count = words.pop() if words and re.fullmatch("[0-9]{1,6}", words[-1]) else "1"
        if len(words) > 1 or (words and not re.fullmatch(r"[A-Za-z][\w.-]*", words[0])):
            raise ValueError(f"{text} is no count of GPUs, e.g. 8 or h100:8")
        if kind and words and words[0] != kind:
            raise ValueError(f"{text}: a node has GPUs of one type here; name one")
        total, kind, seen = total + int(count), words[0] if words else kind, True
    return (total, kind) if seen else None


def cpus_of(text: str) -> Optional[int]:
    """Of a task, in the value of ``--tres-per-task``; None: it says none. Raises ValueError."""
    for part in text.split(","):
        words = re.split("[:=]", part, maxsplit=1)
        if words[0] == "cpu":
            if not re.fullmatch("[1-9][0-9]{0,5}", words[-1]):
                raise ValueError(f"{part} is no count of CPUs, e.g. cpu:4")
            return int(words[1])
    return None


def _nodes(digits: str, unit: str) -> int:
    return int(digits) * {"": 1, "k": 1024, "m": 1024 * 1024}[unit.lower()]


def plural(count: int, word: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} {word}{'' if count == 1 else 's'}"
