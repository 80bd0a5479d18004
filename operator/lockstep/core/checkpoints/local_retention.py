"""Which saves on the nodes' own disks may go once a later attempt has started.

A step is recoverable only where every rank holds its part. So it is decided for the whole gang, of what all ranks have
reported at the barrier; it is in status with START, and every worker carries it out on its own disk.

What stays: what the attempt resumes from; the newest valid steps; whatever could not be judged; and as many of the
newest steps that these nodes lack a part of, or that their times alone speak against, if the shared tier has none that
is as new: with a node that is away now, or `trustTimes: false`, they may be whole again. What training failed on and
what is torn can never be resumed from, and goes.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from lockstep.api.checkpoint_status import MAX_LOCAL_SAVES, LocalRetentionStatus, LocalSave
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints.inventory import rank_view, seen_candidates
from lockstep.core.checkpoints.resume import world_refusal
from lockstep.core.checkpoints.verdicts import Candidate, Check, merge_checks
from lockstep.core.model.plan import RetentionOrder
from lockstep.core.model.quarantine import Quarantine, Save, in_quarantine, quarantine_of
from lockstep.core.model.run_state import RunState
from lockstep.core.model.tiers import LOCAL, SHARED
from lockstep.core.model.worker_report import Verdict


class _Standing(IntEnum):
    """Of several checkpoints of one save the one with the highest standing counts."""

    SPENT = 0  # nothing can make it one to resume from
    LACKING = 1  # this gang cannot resume from it now; another one, or at another time, may
    SOUND = 2
    UNKNOWN = 3


def retention_order(
    found: Iterable[Candidate],
    *,
    attempt: int,
    world: int,
    run_uid: str,
    keep_last: int,
    choice: Candidate,
    checks: Mapping[tuple[str, str], Check],
    quarantine: Quarantine,
) -> RetentionOrder:
    """What may go of what attempts before ``attempt`` saved, when it resumes from ``choice``.

    ``found``: what all ranks see. They tell of the newest alone, so what is older than all that stays goes untold, but
    only if as many valid steps as are asked for stay above it.
    """
    standings: dict[Save, _Standing] = {}
    durable = choice.step if choice.tier == SHARED else -1
    for each in found:
        standing = _standing(each, world, run_uid, checks, quarantine)
        if each.tier == SHARED and standing is _Standing.SOUND:
            durable = max(durable, each.step)
        elif each.tier == LOCAL and 0 < each.attempt < attempt:
            save = Save(each.step, each.attempt)
            standings[save] = max(standing, standings.get(save, _Standing.SPENT))
    sound = _newest(standings, _Standing.SOUND, keep_last)
    lacking = _newest(standings, _Standing.LACKING, keep_last)
    kept = {*sound, *(save for save in lacking if save.step > durable)}
    kept |= {save for save, standing in standings.items() if standing is _Standing.UNKNOWN}
    if choice.tier == LOCAL:
        kept.add(Save(choice.step, choice.attempt))
    if len(kept) > MAX_LOCAL_SAVES:
        return RetentionOrder()
    order = RetentionOrder(
        floor=sound[-1] if len(sound) == keep_last else None, kept=tuple(sorted(kept, key=_age, reverse=True))
    )
    spent = [save for save in standings if save not in kept and not order.lets_go(save)]
    spent = sorted(spent, key=_age, reverse=True)[:MAX_LOCAL_SAVES]
    return RetentionOrder(order.floor, order.kept, tuple(spent))


def local_retention(state: RunState, choice: Candidate | None) -> LocalRetentionStatus | None:
    """What is decided with the START of an attempt that resumes from ``choice``; None: everything stays, always."""
    checkpoint = state.spec.checkpoint
    local = checkpoint.local if checkpoint is not None else None
    if local is None or not isinstance(local.keep_last, int):
        return None
    attempt = state.status.attempt
    found = seen_candidates(state.snapshot, state.status)
    if not any(each.tier == LOCAL and each.attempt < attempt for each in found):
        return LocalRetentionStatus(attempt=attempt)
    why = _why_not(state, found)
    if choice is None or why:
        return LocalRetentionStatus(attempt=attempt, message=why or "the attempt begins at step 0")
    order = retention_order(
        found,
        attempt=attempt,
        world=state.world,
        run_uid=state.run.uid,
        keep_last=local.keep_last,
        choice=choice,
        checks=merge_checks(rank_view(state.snapshot, state.status)),
        quarantine=quarantine_of(state.status.checkpoint),
    )
    if not (order.kept or order.spent):
        why = "too much of what there is cannot be judged"
    return LocalRetentionStatus(
        attempt=attempt,
        floor=_to_status(order.floor) if order.floor is not None else None,
        kept=tuple(map(_to_status, order.kept)),
        spent=tuple(map(_to_status, order.spent)),
        message=why,
    )


def order_for_workers(status: TrainingRunStatus) -> RetentionOrder | None:
    """The order that the workers of the current attempt get; None: to remove nothing."""
    retention, start = status.checkpoint.local_retention, status.start
    if retention is None or start is None or retention.attempt != start.attempt:
        return None
    if retention.floor is None and not retention.spent:
        return None
    floor = _save(retention.floor) if retention.floor is not None else None
    return RetentionOrder(floor, tuple(map(_save, retention.kept)), tuple(map(_save, retention.spent)))


def _why_not(state: RunState, found: Iterable[Candidate]) -> str:
    """Why nothing is removed whatever there is; empty when that is no question."""
    checkpoint = state.status.checkpoint
    if checkpoint.ceiling is not None:
        # What is newest is not to be trusted, and what is older is what it needs.
        return f"the run goes back to step {checkpoint.ceiling}"
    # Status may be that of a backup, or rebuilt: what it has forgotten of roll-backs and quarantine shows by the next
    # attempt, which then finds everything still there.
    known = checkpoint.local_retention.attempt if checkpoint.local_retention is not None else 0
    started = [entry.number for entry in state.status.attempts if entry.started_at is not None]
    saved = [each.attempt for each in found] + [each.attempt or 0 for each in checkpoint.latest]
    if max([*started, *saved], default=0) > known:
        return "status does not know of everything before this attempt"
    return ""


def _standing(
    each: Candidate, world: int, run_uid: str, checks: Mapping[tuple[str, str], Check], quarantine: Quarantine
) -> _Standing:
    if each.verdict is Verdict.UNKNOWN or each.doubted or each.run_uid not in ("", run_uid):
        return _Standing.UNKNOWN
    if in_quarantine(quarantine, each.tier, each.step, each.attempt):
        return _Standing.SPENT
    if each.verdict is Verdict.INVALID:
        return _Standing.LACKING if each.lacking or each.as_copied else _Standing.SPENT
    check = checks.get((each.tier, each.path))
    misread = check is not None and check.verdict is Verdict.INVALID
    return _Standing.LACKING if misread or world_refusal(each, world) else _Standing.SOUND


def _newest(standings: Mapping[Save, _Standing], wanted: _Standing, count: int) -> list[Save]:
    """Of so many steps the save of the latest attempt, newest first."""
    newest: dict[int, Save] = {}
    for save in sorted((save for save, standing in standings.items() if standing is wanted), key=_age, reverse=True):
        newest.setdefault(save.step, save)
    return list(newest.values())[:count]


def _age(save: Save) -> tuple[int, int]:
    return save.step, save.attempt


def _to_status(save: Save) -> LocalSave:
    return LocalSave(step=save.step, attempt=save.attempt)


def _save(kept: LocalSave) -> Save:
    return Save(kept.step, kept.attempt)
