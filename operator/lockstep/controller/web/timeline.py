"""What the time of each attempt went to, as far as status tells: the buckets of ``core.accounting``, by attempt.

The account keeps sums alone. What its own rules say of the moments in ``status.attempts`` is said again here; what
these moments leave open is in no part, and is drawn as not known.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.conditions import is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ConditionType


@dataclass(frozen=True, slots=True)
class Part:
    """From ``begin`` to ``end``, in unix seconds, the time was of ``bucket``; end None: it goes on.

    ``bucket`` is called as in ``status.goodput.buckets``.
    """

    bucket: str
    begin: float
    end: float | None


@dataclass(frozen=True, slots=True)
class Told:
    """Of one attempt, with how it was launched and what followed its end. None: not known.

    ``lost_steps``: its own that the training does not consist of. ``lost_seconds``: what they took, about.
    """

    parts: tuple[Part, ...]
    lost_steps: int | None
    lost_seconds: int | None


def timeline(status: TrainingRunStatus, phase: Phase) -> dict[int, Told]:
    """By the attempt's number, for all that were started."""
    started = [attempt for attempt in status.attempts if attempt.started_at is not None]
    told = {}
    for index, attempt in enumerate(started):
        later = started[index + 1 :]
        kept = _kept_step(status, phase, attempt, later)
        before = _launch(status, attempt, started[index - 1] if index else None, len(started))
        steps = [*_steps(status, attempt, kept)]
        after = _aftermath(status, phase, attempt, is_last=not later)
        parts = (*before, *_start_up(status, attempt), *steps, *after)
        told[attempt.number] = Told(
            tuple(part for part in parts if part.end is None or part.end > part.begin),
            _lost_steps(status, attempt, kept),
            _lost_seconds(steps),
        )
    return told


def _launch(
    status: TrainingRunStatus, attempt: AttemptStatus, earlier: AttemptStatus | None, kept_starts: int
) -> Iterator[Part]:
    """Between the end of the one before and this START. On nodes of its own it was launched, on the same restarted."""
    start, admitted = attempt.started_at, attempt.admitted_at
    assert start is not None
    if admitted is None:
        return
    if earlier is None:
        if status.totals.attempts <= kept_starts:  # else one that status forgot may have had the nodes before
            yield Part("provision", admitted, start)
    elif earlier.ended_at is not None:
        if admitted == earlier.admitted_at:
            yield Part("restart", _seen(earlier), start)
        elif admitted >= earlier.ended_at:
            yield Part("provision", admitted, start)


def _start_up(status: TrainingRunStatus, attempt: AttemptStatus) -> Iterator[Part]:
    """From START to the first step; up to the end where no step was heard of."""
    assert attempt.started_at is not None
    bucket = "init" if attempt.resume_step is None else "loading"
    if attempt.first_step_at is not None:
        yield Part(bucket, attempt.started_at, _within(attempt, attempt.first_step_at))
    elif _took_no_step(status, attempt):
        yield Part(bucket, attempt.started_at, attempt.ended_at)


def _steps(status: TrainingRunStatus, attempt: AttemptStatus, kept: float | None) -> Iterator[Part]:
    """From the first step to the end: productive up to the step that is kept, lost from there on.

    Saves in between are not told apart.
    """
    if attempt.first_step_at is None:
        return
    begin, end = _within(attempt, attempt.first_step_at), attempt.ended_at
    if end is None:
        yield Part("productive", begin, None)
        return
    if kept is None:  # what is saved counts in any case, beyond that it is open
        saved = _moment_of(attempt, _saved_step(status))
        if saved is not None:
            yield Part("productive", begin, saved)
        return
    until = _moment_of(attempt, kept)
    if until is not None:
        yield Part("productive", begin, until)
        yield Part("lostWork", until, end)


def _aftermath(status: TrainingRunStatus, phase: Phase, attempt: AttemptStatus, is_last: bool) -> Iterator[Part]:
    """What followed the end: until it was seen, and, where no other attempt has begun, what goes on now."""
    if attempt.ended_at is None:
        return
    seen = _seen(attempt)
    yield Part("detect", attempt.ended_at, seen)
    admitted = status.last_admitted
    if not is_last or admitted is None:
        return
    if phase is Phase.RECOVERING and admitted == attempt.admitted_at:
        yield Part("restart", seen, None)
    elif phase is Phase.LAUNCHING and admitted >= attempt.ended_at:
        yield Part("provision", admitted, None)


def _kept_step(
    status: TrainingRunStatus, phase: Phase, attempt: AttemptStatus, later: Sequence[AttemptStatus]
) -> float | None:
    """Up to which step its work is part of the training; None: not known yet.

    The one after the next may have gone back further than the next did.
    """
    if later:
        return min(_base(each) for each in later)
    if attempt.ended_at is None or is_true(status, ConditionType.SUCCEEDED):
        return math.inf
    if attempt.last_step is not None and attempt.steps_lost is not None:
        return attempt.last_step - attempt.steps_lost
    return _saved_step(status) if phase is Phase.FINISHED else None


def _saved_step(status: TrainingRunStatus) -> int:
    return max((saved.step for saved in status.checkpoint.latest), default=0)


def _took_no_step(status: TrainingRunStatus, attempt: AttemptStatus) -> bool:
    """None was heard of. The last attempt's progress may be known where its entry says nothing."""
    assert attempt.started_at is not None
    if attempt.first_step_at is not None or (attempt.last_step or 0) > _base(attempt):
        return False
    heard = status.progress.time
    return attempt is not status.attempts[-1] or heard is None or heard <= attempt.started_at


def _lost_steps(status: TrainingRunStatus, attempt: AttemptStatus, kept: float | None) -> int | None:
    if attempt.ended_at is None:
        return None
    if _took_no_step(status, attempt):
        return 0 if status.progress.time is not None else None  # a program may tell no steps at all
    if attempt.last_step is None or kept is None:
        return None
    return max(0, attempt.last_step - int(min(attempt.last_step, max(kept, _base(attempt)))))


def _lost_seconds(steps: Sequence[Part]) -> int | None:
    lost = [part.end - part.begin for part in steps if part.bucket == "lostWork" and part.end is not None]
    return int(sum(lost)) if lost else None


def _moment_of(attempt: AttemptStatus, step: float) -> float | None:
    """When it had done ``step``, as if all of its steps were equally long; None: not known."""
    assert attempt.first_step_at is not None
    assert attempt.ended_at is not None
    begin, base, last = _within(attempt, attempt.first_step_at), _base(attempt), attempt.last_step
    if step <= base:
        return begin
    if step == math.inf:
        return attempt.ended_at
    if last is None:
        return None
    share = min(1.0, (step - base) / (last - base)) if last > base else 1.0
    return begin + float(int(share * (attempt.ended_at - begin)))


def _base(attempt: AttemptStatus) -> int:
    return attempt.resume_step or 0


def _seen(attempt: AttemptStatus) -> float:
    """When its end was seen; one that no rank caused was decided."""
    assert attempt.ended_at is not None
    if attempt.rank is None or attempt.seen_at is None:
        return attempt.ended_at
    return max(attempt.ended_at, attempt.seen_at)


def _within(attempt: AttemptStatus, moment: float) -> float:
    """A hang is dated back to its last step, which may be before the first was heard of."""
    return moment if attempt.ended_at is None else min(moment, attempt.ended_at)
