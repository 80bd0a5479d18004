"""Which older checkpoints may go, of any tier. Never the last valid one, never what recovery rests on."""

from collections.abc import Iterable
from dataclasses import dataclass

from lockstep.core.checkpoints.step_names import believed_up_to
from lockstep.core.model.quarantine import Save
from lockstep.core.model.worker_report import Verdict


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint of a tier. `time` is when it was committed or published, in Unix seconds; 0: not known.

    `attempt` is the one that saved it; 0 where that is not known, as with one directory for all attempts.
    """

    step: int
    attempt: int
    run_uid: str
    path: str
    verdict: Verdict
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What stays: so many of the newest, steps that are a multiple, and what is younger than `keep_for` seconds."""

    keep_last: int
    keep_every: int | None = None
    keep_for: float | None = None


def to_prune(
    checkpoints: Iterable[StoredCheckpoint],
    policy: RetentionPolicy | None,
    *,
    run_uid: str,
    now: float,
    pinned: frozenset[str] = frozenset(),
    quarantined: frozenset[Save] = frozenset(),
    reached: int = 0,
) -> tuple[StoredCheckpoint, ...]:
    """The VALID checkpoints of this run that the policy lets go, oldest first.

    `pinned` holds paths that stay whatever the policy says: the resume point of the current attempt and what would
    be resumed from if that one were quarantined; a word like step-300 holds that step of every attempt. What is in
    `quarantined` doesn't count as kept: training failed on it. What is INVALID or UNKNOWN stays too: it may be a save
    under way, and it is evidence; and what its name calls a step that is none, by what was ``reached`` (0: unknown).
    """
    if policy is None:
        return ()
    ours = [each for each in checkpoints if each.run_uid == run_uid and each.verdict is Verdict.VALID]
    believed = believed_up_to((each.step for each in ours), reached)
    ours = [each for each in ours if believed is None or each.step <= believed]
    sound = sorted(
        (each for each in ours if not any(bad.may_be(Save(each.step, each.attempt)) for bad in quarantined)),
        key=_age_order,
        reverse=True,
    )
    if not sound:
        return ()
    newest = list(dict.fromkeys((each.attempt, each.step) for each in sound))[: max(1, policy.keep_last)]
    last = set(newest)
    # After a roll-back the newest is not the highest: both are somebody's last valid one.
    highest = max(each.step for each in sound)

    def stays(each: StoredCheckpoint) -> bool:
        return (
            each.path in pinned
            or f"step-{each.step}" in pinned
            or (each.attempt, each.step) in last
            or each.step == highest
            or (policy.keep_every is not None and each.step % policy.keep_every == 0)
            or (policy.keep_for is not None and now - each.time < policy.keep_for)
        )

    return tuple(sorted((each for each in ours if not stays(each)), key=_age_order))


def _age_order(each: StoredCheckpoint) -> tuple[int, int, str]:
    return each.attempt, each.step, each.path
