"""``--dependency``: of which jobs a job waits for what."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Sequence

CONDITIONS = ("after", "afterany", "afternotok", "afterok", "aftercorr")


class JobDependency(NamedTuple):
    """What is waited for of one job."""

    condition: str
    job: str  # its number, with ``_`` and an index of an array
    minutes: int = 0  # after its start


class Dependencies(NamedTuple):
    """All have to be met."""

    jobs: Sequence[JobDependency] = ()
    singleton: bool = False


def dependencies(text: str) -> Optional[Dependencies]:
    """None of an empty list. Raises ValueError on what cannot be waited for here."""
    if "?" in text:
        raise ValueError("all of them have to be met, not any; separate them by commas")
    jobs: List[JobDependency] = []
    singleton = False
    for part in filter(None, (part.strip() for part in text.split(","))):
        condition, *numbers = part.split(":")
        condition = condition.lower()
        if condition == "singleton" and not numbers:
            singleton = True
            continue
        if condition not in CONDITIONS or not numbers:
            raise ValueError(f"{part}: write {', '.join(CONDITIONS)} with :JOB, or singleton")
        for number in numbers:
            found = re.fullmatch(r"([0-9]{1,10}(?:_[0-9]{1,10}|_\*)?)(?:\+([0-9]{1,7}))?", number)
            if found is None or (found[2] and condition != "after"):
                raise ValueError(f"{part}: {number} is no job")
            jobs.append(JobDependency(condition, found[1], int(found[2] or 0)))
    return Dependencies(tuple(jobs), singleton) if jobs or singleton else None
