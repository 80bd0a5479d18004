"""Steps that names alone say: believed within what was reported, and else as the other names there go.

A directory may end in another number than a step, and then be the highest of all: resumed from, kept, and never passed.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints.verdicts import Candidate
from lockstep.core.model.worker_report import Verdict

STATE_THEIR_STEP = frozenset({"Manifest", "HuggingFace", "Lightning", "NVRxLocal", "RayTrain"})
"""Formats that say by themselves which step they hold; of others the name alone does."""
UNREPORTED_STEPS = 1000
"""Steps that may have been done since the last report, at least."""
_DATE = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:\d\d){0,3}")


def reached_step(status: TrainingRunStatus) -> int:
    """The highest step that status has as reported, or to be done; 0: none is known."""
    done = (entry.last_step or 0 for entry in status.attempts)
    return max((status.progress.step, status.progress.total_steps or 0, *done))


def believed_up_to(steps: Iterable[int], reached: int) -> int | None:
    """The highest step that a name alone is believed for, where valid checkpoints have these; None: any.

    ``reached``: the highest that was ever reported, or is to be done; 0: none was. Programs may count other steps in
    their reports than in their names. So a name is doubted only where it, or one below it, stands out tenfold from the
    next lower valid checkpoint, and some lower one agrees with the reports. Without any it has to read as a date as
    well: who counts tokens may save so far apart.
    """
    named = sorted({step for step in steps if step > 0})
    if not reached:
        dates = sum(1 for _ in takewhile(_reads_as_date, reversed(named)))
        highest = named[-dates - 1 :] if dates else []  # and the next lower one
        return next((higher - 1 for lower, higher in pairwise(highest) if higher > 10 * lower), None)
    bound = 2 * reached + UNREPORTED_STEPS
    if not named or named[0] > bound:
        return None
    beyond = (lower for lower, higher in pairwise(named) if higher > max(bound, 10 * lower))
    return max(bound, 10 * next(beyond, named[-1]))


def without_doubtful(candidates: Sequence[Candidate], reached: int) -> tuple[Candidate, ...]:
    """The same in their order; INVALID and ``doubted`` is what has a number that is no step. What nobody sees now is
    left as it is: its format isn't known."""
    believed = believed_up_to((each.step for each in candidates if each.verdict is Verdict.VALID), reached)
    if believed is None:
        return tuple(candidates)
    against = f"no more than step {reached} was ever reported" if reached else "reads as a date, far beyond the others"
    return tuple(
        replace(
            each,
            verdict=Verdict.INVALID,
            reason=f"is called step {each.step}, {'and ' if reached else 'which '}{against}: that number is no step",
            doubted=True,
            look_again=(),
        )
        if each.step > believed and _by_name_alone(each)
        else each
        for each in candidates
    )


def _reads_as_date(number: int) -> bool:
    return _DATE.fullmatch(str(number)) is not None


def _by_name_alone(candidate: Candidate) -> bool:
    unseen = candidate.verdict is Verdict.UNKNOWN and not candidate.format
    return candidate.verdict is not Verdict.INVALID and candidate.format not in STATE_THEIR_STEP and not unseen
