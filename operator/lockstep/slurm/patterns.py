"""File name patterns of ``-o``, ``-e`` and ``-i``."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

_OF_TASK = "Nntu"  # srun leaves them to the node of the task
NO_VAL = 0xFFFFFFFE
"""What Slurm has for the index of a job that is in no array."""
_NUMBER = re.compile("%([0-9]*)(.)", re.DOTALL)


class Names(NamedTuple):
    """What the letters stand for. None: srun's own name of a file, which is completed on the node of the task."""

    job: int
    array_job: int = 0
    array_index: int = NO_VAL
    step: Optional[int] = None  # None: the batch script
    job_name: str = ""
    restarts: int = 0
    user: Optional[str] = None
    node: Optional[str] = None
    node_index: Optional[int] = None
    task: Optional[int] = None


def is_per_task(pattern: str) -> bool:
    """Whether each task (or node) has a file of its own, written on its node."""
    return "\\" not in pattern and any(found[1] in _OF_TASK for found in _NUMBER.findall(pattern.replace("%%", "")))


def file_name(pattern: str, names: Names) -> str:
    """``pattern`` with what is known filled in; a backslash anywhere has it taken as it is, without that."""
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def replacement(found: "re.Match[str]") -> str:
        padding, letter = found[1], found[2]
        if letter == "%" and not padding:
            return "%"
        value = _value(letter, names)
        if value is None:
            return found[0]
        return value.zfill(min(int(padding), 10)) if padding and (value.isdigit() or letter == "J") else value

    return _NUMBER.sub(replacement, pattern)


def _value(letter: str, names: Names) -> Optional[str]:
    numbers = {
        "A": names.array_job or names.job, "a": names.array_index, "b": names.array_index % 10, "j": names.job,
        "r": names.restarts, "n": names.node_index, "t": names.task,
    }  # fmt: skip
    if letter in numbers:
        number = numbers[letter]
        return None if number is None else str(number)
    if letter == "J":
        return str(names.job) + ("" if names.step is None else f".{names.step}")
    if letter == "s":
        return "batch" if names.step is None else str(names.step)
    if letter == "N":
        return None if names.node is None else names.node
    return {"u": names.user, "x": names.job_name}.get(letter)
