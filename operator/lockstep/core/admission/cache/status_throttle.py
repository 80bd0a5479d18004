"""Rate-limits status updates of pending runs.

Every start and every arrival changes the pending reason of all runs behind it: position, blockers, what lacks. Runs
near the head of their queue get theirs written at once or within a minute; the others now and then, and all of them
together no more than a number of status updates a second.
"""

from collections.abc import Sequence
from enum import IntEnum
from math import inf
from typing import NamedTuple, TypeVar

from lockstep.core.admission.cache.entry import Entry, PendingReason
from lockstep.core.admission.cache.pending_reasons import LONGEST_MESSAGE, whole
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.snapshot import SHED

T = TypeVar("T")

NEAR = 50
"""Positions of a queue up to which every change is reported."""
HEAD = 8
"""Positions of a queue up to which a change is reported within ``HEAD_EVERY`` seconds: what is said there is compared,
run by run."""
HEAD_EVERY = 10.0
TOGETHER_EVERY = 1.0
"""And within so many while others of that queue are told something: amounts in two messages are of one moment."""
COUNTED = 10.0
"""Seconds over which updates are counted."""
_MOVED_BY, _MOVED_BY_PART = 60.0, 0.1  # an estimate that moves by less seconds, or less of what is left, is no change
_KUEUE_EVERY = 2.0
"""Seconds between two updates of what Kueue says of one run."""
_PASSED_PART = 10  # nor, further back, a position that moves by less than this part of it
_LATER_PART = 4  # of the updates allowed, so many at least is for those further back
_TURNS = (WaitReason.RESOURCES, WaitReason.PRIORITY, WaitReason.QUOTA, WaitReason.RUNNING_RUNS_LIMIT, WaitReason.WINDOW)
"""Reasons that change with every start for those who are far from theirs."""
_COUNTED_IN = (WaitReason.RESOURCES, WaitReason.QUOTA, WaitReason.RUNNING_RUNS_LIMIT)
"""Reasons whose words have amounts of others too."""


class UpdateRank(IntEnum):
    """Which pending runs are updated first."""

    AT_ONCE = 0
    """However many other updates are due."""
    SOON = 1
    """Near the head."""
    LATER = 2


class DueUpdate(NamedTuple):
    """From ``at`` on the status is to be updated."""

    at: float
    rank: UpdateRank


def due_update(
    entry: Entry, reason: PendingReason, blocked_by: tuple[str, ...], settings: AdmissionSettings
) -> DueUpdate | None:
    """When ``reason`` is to be reported; None: it is what status has. ``blocked_by``: who is in its way, by name."""
    before = entry.status.queue
    if before.updated is None:
        return DueUpdate(0.0, UpdateRank.AT_ONCE)
    near = min(before.position, entry.position) <= NEAR
    often = before.updated + settings.told_every
    if before.reason != reason.word:
        is_turn = before.reason in _TURNS and reason.word in _TURNS
        return DueUpdate(often, UpdateRank.LATER) if is_turn and not near else DueUpdate(0.0, UpdateRank.AT_ONCE)
    if reason.word is WaitReason.WAITING_FOR_KUEUE and before.message != reason.message[:LONGEST_MESSAGE]:
        # What lies behind this word is anything from "being made" to a refusal, and moves with no start of ours.
        return DueUpdate(before.updated + _KUEUE_EVERY, UpdateRank.SOON)
    if (before.estimated_start is None) is not (reason.start is None):
        # Whether anybody can know is news, however often estimates move.
        return DueUpdate(0.0, UpdateRank.AT_ONCE) if near else DueUpdate(often, UpdateRank.LATER)
    passed = abs(before.position - entry.position)
    moved = (
        passed * (1 if near else _PASSED_PART) > (0 if near else before.position)
        or before.message != reason.message[:LONGEST_MESSAGE]
        or before.blocked_by != blocked_by
        or before.assumption != reason.assumption
    )
    since = -inf if moved else _moved_at(before.estimated_start, whole(reason.start))
    times = []
    if since is not None:
        every, rank = (settings.told_every, UpdateRank.SOON) if near else (settings.told_far_every, UpdateRank.LATER)
        if entry.position <= HEAD:
            every = min(every, HEAD_EVERY)
        times.append(DueUpdate(max(before.updated + every, since), rank))
    if entry.points.have_moved(before.factors, settings.weights):
        times.append(DueUpdate(before.updated + settings.told_points_every, UpdateRank.LATER))
    return min(times, default=None)


def is_due(update: DueUpdate, entry: Entry, now: float) -> bool:
    """``update`` is to be made. Where a clock that was ahead of this one has told something, its time is no measure."""
    updated = entry.status.queue.updated
    return update.at <= now or (updated is not None and updated > now)


def contradicts(entry: Entry, reason: PendingReason, position: int, now: float) -> bool:
    """What status counts for a run at the head is not what others of its queue are told now."""
    before = entry.status.queue
    if not 0 < position <= HEAD or before.updated is None or now < before.updated + TOGETHER_EVERY:
        return False
    return (
        before.reason == reason.word
        and reason.word in _COUNTED_IN
        and before.message != reason.message[:LONGEST_MESSAGE]
    )


def chosen(
    due: Sequence[tuple[DueUpdate, T]], reported: int, settings: AdmissionSettings, *, overloaded: bool = False
) -> list[T]:
    """Those of ``due`` that are updated now, in order, after ``reported`` updates within ``COUNTED`` seconds.

    While all is ``overloaded`` so much fewer.
    """
    part = SHED if overloaded else 1.0
    per_second, per_pass = settings.told_per_second / part, max(1, int(settings.told_per_pass / part))
    in_turn: dict[UpdateRank, list[T]] = {rank: [] for rank in UpdateRank}
    for (_, rank), each in due:
        in_turn[rank].append(each)
    at_once = in_turn[UpdateRank.AT_ONCE][:per_pass]
    room = int(per_second * COUNTED) - reported - len(at_once)
    room = max(0, min(room, per_pass - len(at_once)))
    soon, later = in_turn[UpdateRank.SOON], in_turn[UpdateRank.LATER]
    for_later = min(len(later), max(room - len(soon), room // _LATER_PART))
    return [*at_once, *soon[: room - for_later], *later[:for_later]]


def same_estimate(told: float | None, now: float | None) -> bool:
    """An estimate that has moved by so little is shown as it was told."""
    return told is not None and now is not None and abs(now - told) <= _MOVED_BY


def _moved_at(before: float | None, after: float | None) -> float | None:
    """From when on an estimate is worth another update; None: never."""
    if before is None or after is None:
        return None if before is after else -inf
    by = abs(after - before)
    return before - by / _MOVED_BY_PART if by > _MOVED_BY else None
