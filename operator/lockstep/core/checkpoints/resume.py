"""Where an attempt starts: the cheapest checkpoint that is really valid, or a reason why not.

Cheapest in seconds: the time to load it plus the time to repeat the steps since it was saved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from lockstep.api.checkpoint_spec import StartMode
from lockstep.api.checkpoint_status import ArchivedCheckpoint, PreviousSave, UnrecognisedSave
from lockstep.core.checkpoints.previous_saves import to_be_asked, without_theirs
from lockstep.core.checkpoints.step_names import without_doubtful
from lockstep.core.checkpoints.unknown_saves import HOW_TO_BE_KNOWN, named
from lockstep.core.checkpoints.verdicts import Candidate, Check
from lockstep.core.model.plan import VerifyRequest
from lockstep.core.model.plural import plural
from lockstep.core.model.quarantine import Quarantine, Save, SavesFrom, quarantined_as
from lockstep.core.model.reasons import ResumeReason, StopReason
from lockstep.core.model.tiers import ARCHIVE, BANDWIDTH, LOCAL, SHARED
from lockstep.core.model.worker_report import CheckpointReport, Verdict

RESHARDABLE_FORMATS = frozenset({"TorchDCP"})
COPY_GRACE = 600.0
"""Seconds for which a gang waits at the barrier for word on what looks like a copy: its marker is touched, or the run
suspended, and the copy accepted."""
MAX_REJECTIONS = 8
MOST_SECONDS = 1e12
"""Whatever steps and times are reported: the cost has to fit into status."""
# Until the run's own step time is known. Long enough that a newer step wins over a faster tier.
ASSUMED_STEP_SECONDS = 10.0
# A rank that reads and sums up its share more slowly than this is not making progress.
VERIFY_BYTES_PER_SECOND = 100e6
_TRUST = {SHARED: 0, LOCAL: 1, ARCHIVE: 3}
_TRUST_IN_COPIES = 2


class ResumeKind(StrEnum):
    """What is to be done about the resume point."""

    RESUME = "Resume"  # from ``choice``, whose bytes were read and are right
    FRESH = "Fresh"  # from step 0
    VERIFY = "Verify"  # have the ranks read ``choice`` first, until ``wait_until``
    WAIT = "Wait"  # a better one may turn out valid until ``wait_until``
    RESTORE = "Restore"  # have ``choice`` brought back from the archive first
    BLOCKED = "Blocked"  # nothing to resume from, and step 0 would lose what was saved


@dataclass(frozen=True, slots=True)
class ResumeContext:
    """What the choice depends on besides the candidates.

    ``since`` is when the ranks of this attempt were first asked (Unix seconds): all waits count from it.
    ``highest_step`` is the highest ever reported, ``step_seconds`` the usual time of one; ``reached`` is the highest
    that whoever saved them reported, or is to do (each 0: unknown).
    ``saved_before`` says that status knows of a step that was once committed.
    ``ceiling`` is the highest step that may be chosen; what is in ``quarantine`` is not. Where nothing is left up to
    there, it is what was saved before step ``diverged_from`` (0: not known), or by attempts after ``diverged_attempt``.
    ``may_see_more`` are ranks that list older ones if they are asked to look again.
    ``bandwidth`` is bytes per second: of the whole shared tier, of one node's local tier, and of the archive.
    ``unknown`` may be saves, and no format recognises them. ``previous`` are those of earlier runs of this name, in the
    directory of it, while no attempt of this one was ever started.
    ``directory`` is where the run itself saves.
    ``origin`` names what the spec says to start from; then the candidates are that one's, and step 0 is no choice.
    """

    attempt: int
    world: int
    run_uid: str
    since: float
    highest_step: int = 0
    step_seconds: float = 0.0
    saved_before: bool = False
    mode: StartMode = "Auto"
    ceiling: int | None = None
    diverged_from: int = 0
    diverged_attempt: int = 0
    may_see_more: tuple[int, ...] = ()
    quarantine: Quarantine = frozenset()
    probe_grace: float = 60.0
    bandwidth: Mapping[str, float] = field(default_factory=lambda: BANDWIDTH)
    origin: str = ""
    unknown: tuple[UnrecognisedSave, ...] = ()
    previous: tuple[PreviousSave, ...] = ()
    directory: str = ""
    reached: int = 0


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate that was passed over, and why in words."""

    candidate: Candidate
    reason: str
    seconds: float = 0.0  # what to resume from it would have cost


@dataclass(frozen=True, slots=True)
class ResumeDecision:
    """``rejected`` holds what would have been better than the choice, newest first, at most eight.

    ``reason`` is one CamelCase word, ``message`` a sentence for people. ``wait_until`` is when to ask
    again at the latest; None with RESUME, FRESH, RESTORE and BLOCKED. ``seconds``: what resuming from ``choice`` costs.
    ``restore`` is the archive's copy of ``choice``, with RESTORE; ``search``: the archive is asked what it holds.
    ``look_again`` are ranks that are to look into the shared tier once more, with WAIT.
    ``previous``: what earlier runs of this name saved, where that is why it is blocked.
    ``worlds``: with FRESH and BLOCKED, other numbers of nodes that could load something, that of the newest first.
    """

    kind: ResumeKind
    reason: ResumeReason | StopReason
    message: str
    choice: Candidate | None = None
    rejected: tuple[Rejection, ...] = ()
    verify: VerifyRequest | None = None
    look_again: tuple[int, ...] = ()
    wait_until: float | None = None
    seconds: float = 0.0
    restore: ArchivedCheckpoint | None = None
    search: bool = False
    previous: tuple[PreviousSave, ...] = ()
    worlds: tuple[int, ...] = ()


def choose_resume(
    candidates: Sequence[Candidate],
    checks: Mapping[tuple[str, str], Check],
    context: ResumeContext,
    now: float,
) -> ResumeDecision:
    """Total and deterministic: the same candidates, checks and time always give the same decision."""
    if context.mode == "Fresh" and context.attempt <= 1:
        return ResumeDecision(ResumeKind.FRESH, ResumeReason.START_MODE_FRESH, "starts at step 0, as start.mode says")

    refused: dict[Candidate, str] = {}
    usable: list[Candidate] = []
    unknown: list[Candidate] = []
    candidates = without_doubtful(candidates, context.reached)
    for candidate in sorted(candidates, key=lambda each: _preference(each, context)):
        refusal = _refusal(candidate, checks, context)
        if refusal:
            refused[candidate] = refusal
        elif candidate.verdict is Verdict.VALID:
            usable.append(candidate)
        else:
            unknown.append(candidate)

    for_a_person = bool(context.origin) and not usable and any(each.as_copied for each in unknown)
    probe_deadline = context.since + max(context.probe_grace, COPY_GRACE if for_a_person else 0.0)
    best = usable[0] if usable else None
    better_unknown = [each for each in unknown if _is_better(each, best, context)]
    nothing_seen = not candidates and bool(context.saved_before or context.origin)
    if now < probe_deadline and (better_unknown or nothing_seen):
        awaited = better_unknown[0] if better_unknown else None
        return ResumeDecision(
            ResumeKind.WAIT,
            ResumeReason.CHECKPOINT_UNKNOWN,
            f"waits to learn more of {_named(awaited)}: {awaited.reason}"
            if awaited
            else f"waits for the checkpoints of {context.origin} to be seen"
            if context.origin
            else "waits for the checkpoints to be seen: a step was saved, and no rank sees any",
            choice=best,
            rejected=_passed_over(refused, best, context),
            # Reading the best one known meanwhile costs nothing.
            verify=_request(best) if best and _check_of(best, checks).verdict is not Verdict.VALID else None,
            look_again=tuple(sorted({rank for each in better_unknown for rank in each.look_again})),
            wait_until=probe_deadline,
        )
    too_late = f"could not be judged within {context.probe_grace:g} s"
    refused |= {each: each.reason if each.as_copied else f"{too_late}: {each.reason}" for each in unknown}

    # Each candidate gets time to be read, one after the other; those that failed have used theirs.
    # What is started from may have been waited for, as above, and touched only now.
    asked = context.since + max(context.probe_grace, COPY_GRACE) if context.origin else probe_deadline
    deadline = asked + sum(_verify_seconds(each, context) for each in refused if (each.tier, each.path) in checks)
    for choice in usable:
        if choice.tier == ARCHIVE:  # its bytes are checked on the way back
            return ResumeDecision(
                ResumeKind.RESTORE,
                ResumeReason.CHECKPOINT_IN_ARCHIVE,
                f"waits for {_named(choice)} to be brought back",
                choice=choice,
                rejected=_passed_over(refused, choice, context),
            )
        check = _check_of(choice, checks)
        if check.verdict is Verdict.VALID:
            return ResumeDecision(
                ResumeKind.RESUME,
                ResumeReason.CHECKPOINT_VALID,
                f"resumes from {_named(choice)}" + (f" of {context.origin}" if context.origin else ""),
                choice=choice,
                rejected=_passed_over(refused, choice, context),
                seconds=max(0.0, resume_seconds(choice, context)),
            )
        allowed = _verify_seconds(choice, context)
        deadline += allowed
        if now < deadline:
            return ResumeDecision(
                ResumeKind.VERIFY,
                ResumeReason.CHECKPOINT_BEING_READ,
                f"reads {_named(choice)} before resuming from it",
                choice=choice,
                rejected=_passed_over(refused, choice, context),
                verify=_request(choice),
                wait_until=deadline,
            )
        refused[choice] = f"could not be read within {allowed:.0f} s: {check.reason}"
    passed_over = [each for each in candidates if each.verdict is Verdict.VALID and _is_passed_over(each, context)]
    if passed_over and context.may_see_more and now < probe_deadline:
        return ResumeDecision(
            ResumeKind.WAIT,
            ResumeReason.CHECKPOINT_UNKNOWN,
            f"waits for ranks to look for older checkpoints: {_refusal(passed_over[0], checks, context)}",
            rejected=_passed_over(refused, None, context),
            look_again=context.may_see_more,
            wait_until=probe_deadline,
        )
    # What the roll-back was to go to may have been removed: by the program, which keeps its newest alone.
    less = replace(context, ceiling=None)
    before = [e.step for e in passed_over if _is_from_before(e, context) and not _refusal(e, checks, less)]
    if before:
        left = [each for each in candidates if not _is_beyond(each, context) or _is_from_before(each, context)]
        found = choose_resume(left, checks, replace(context, ceiling=min(before)), now)
        why = f", as nothing that was saved up to step {context.ceiling} is left"
        return replace(found, message=found.message + why) if found.kind is ResumeKind.RESUME else found
    decision = _without_checkpoint(candidates, refused, context)
    own = without_theirs(candidates, context.previous, context.run_uid)
    return replace(decision, worlds=_other_worlds(own, checks, context))


def _other_worlds(
    candidates: Sequence[Candidate], checks: Mapping[tuple[str, str], Check], context: ResumeContext
) -> tuple[int, ...]:
    """Numbers of nodes that could load what ``context.world`` cannot, that of the newest first."""
    able = [
        each
        for each in candidates
        if each.verdict is Verdict.VALID
        and world_refusal(each, context.world)
        and not _refusal(each, checks, replace(context, world=each.world))
    ]
    return tuple(dict.fromkeys(each.world for each in sorted(able, key=lambda each: -each.step)))


def _without_checkpoint(
    candidates: Sequence[Candidate], refused: Mapping[Candidate, str], context: ResumeContext
) -> ResumeDecision:
    """Step 0 only where it loses nothing, or where the user said so."""
    rejected = _passed_over(refused, None, context)
    newest = f"; the newest, {_named(rejected[0].candidate)}: {rejected[0].reason}" if rejected else ""
    # One that cannot be judged may be good, so it speaks against step 0 as well.
    reason: ResumeReason | StopReason
    own = without_theirs(candidates, context.previous, context.run_uid)
    ever_saved = context.saved_before or any(each.committed or each.verdict is Verdict.UNKNOWN for each in own)
    if context.origin:
        kind, reason = ResumeKind.BLOCKED, StopReason.NO_START_CHECKPOINT
        message = f"is to start from {context.origin}, where no checkpoint is valid{newest}"
    elif not ever_saved and not context.unknown and context.previous and context.mode != "Fresh":
        kind, reason = ResumeKind.BLOCKED, StopReason.PREVIOUS_SAVES
        message = to_be_asked(context.previous, context.directory)
    elif context.mode == "Require":
        kind, reason = ResumeKind.BLOCKED, StopReason.CHECKPOINT_REQUIRED
        message = f"start.mode is Require and no checkpoint is valid{newest}"
    elif not ever_saved and not context.unknown:
        kind, reason = ResumeKind.FRESH, ResumeReason.NOTHING_SAVED
        message = f"starts at step 0: this run has {'completed no save' if newest else 'saved nothing'} yet{newest}"
    elif context.mode == "Fresh":
        kind, reason = ResumeKind.FRESH, ResumeReason.START_MODE_FRESH
        message = f"starts at step 0, as start.mode allows: no checkpoint is valid{newest}"
    elif not ever_saved:
        kind, reason = ResumeKind.BLOCKED, StopReason.UNKNOWN_SAVES
        message = (
            f"what the program wrote may be saves, none to resume from: {named(context.unknown)}; {HOW_TO_BE_KNOWN}"
        )
    elif later := [each.step for each in candidates if each.verdict is Verdict.VALID and _is_beyond(each, context)]:
        kind, reason = ResumeKind.BLOCKED, StopReason.NOTHING_TO_GO_BACK_TO
        message = (
            f"training went wrong after step {context.ceiling}, and what is valid was saved later, from step "
            f"{min(later)} on"
        )
    else:
        kind, reason = ResumeKind.BLOCKED, StopReason.NO_VALID_CHECKPOINT
        message = f"steps were saved, and no checkpoint is valid{newest}"
    previous = context.previous if reason is StopReason.PREVIOUS_SAVES else ()
    return ResumeDecision(kind, reason, message, rejected=rejected, previous=previous)


def _refusal(candidate: Candidate, checks: Mapping[tuple[str, str], Check], context: ResumeContext) -> str:
    """Why the candidate is out of the question, whatever else is there; empty when it is not."""
    check = _check_of(candidate, checks)
    if candidate.verdict is Verdict.INVALID and not candidate.look_again:
        return candidate.reason
    if candidate.run_uid and candidate.run_uid != context.run_uid and not context.origin:
        return f"belongs to another run (UID {candidate.run_uid})"
    if refusal := world_refusal(candidate, context.world):
        return refusal
    if _is_beyond(candidate, context):
        return f"is newer than step {context.ceiling}, to which the run rolls back"
    if bad := _quarantined_as(candidate, context):
        if isinstance(bad, SavesFrom):
            return f"was saved after training had gone wrong, at step {bad.step}"
        return "is quarantined: training failed soon after it was loaded"
    if check.verdict is Verdict.INVALID:
        return check.reason
    return ""


def _is_beyond(candidate: Candidate, context: ResumeContext) -> bool:
    return context.ceiling is not None and candidate.step > context.ceiling


def _is_from_before(candidate: Candidate, context: ResumeContext) -> bool:
    """Beyond the ceiling, and all the same of nothing that went wrong."""
    is_sound = is_sound_in(candidate, context.diverged_from, context.diverged_attempt)
    return _is_beyond(candidate, context) and is_sound


def is_sound_in(candidate: Candidate, diverged_from: int, diverged_attempt: int) -> bool:
    """Saved before training went wrong at that step (0: not known), or since by an attempt after the one that did."""
    return candidate.step < diverged_from or 0 < diverged_attempt < candidate.attempt


def _is_passed_over(candidate: Candidate, context: ResumeContext) -> bool:
    """It may not be chosen however valid it is."""
    return _is_beyond(candidate, context) or _quarantined_as(candidate, context) is not None


def _quarantined_as(candidate: Candidate, context: ResumeContext) -> Save | None:
    # What is in the archive was copied from the shared tier.
    tiers = (ARCHIVE, SHARED) if candidate.tier == ARCHIVE else (candidate.tier,)
    found = (quarantined_as(context.quarantine, tier, candidate.step, candidate.attempt) for tier in tiers)
    return next(filter(None, found), None)


def world_refusal(candidate: Candidate | CheckpointReport, world: int) -> str:
    """Why ``world`` nodes could not load it; empty when they can."""
    reshardable = candidate.format in RESHARDABLE_FORMATS and candidate.tier in (SHARED, ARCHIVE)
    if candidate.world and candidate.world != world and not reshardable:
        return f"was saved by {plural(candidate.world, 'node')} and cannot be loaded by {world}"
    return ""


def _check_of(candidate: Candidate, checks: Mapping[tuple[str, str], Check]) -> Check:
    return checks.get((candidate.tier, candidate.path), Check(Verdict.UNKNOWN, "no rank has read it yet"))


def resume_seconds(candidate: Candidate, context: ResumeContext) -> float:
    """Time to load it and to repeat what came after it. Negative when it is ahead of what was reported."""
    step_seconds = context.step_seconds if context.step_seconds > 0 else ASSUMED_STEP_SECONDS
    bandwidth = context.bandwidth.get(candidate.tier, context.bandwidth[SHARED])
    seconds = candidate.load_bytes / bandwidth + (context.highest_step - candidate.step) * step_seconds
    return min(max(seconds, -MOST_SECONDS), MOST_SECONDS)


def _preference(candidate: Candidate, context: ResumeContext) -> tuple[float, int, int, int, str]:
    """Ascending: fewest seconds, then the higher step, the tier trusted more, the later attempt."""
    trust = _TRUST_IN_COPIES if candidate.copies else _TRUST.get(candidate.tier, len(_TRUST))
    return resume_seconds(candidate, context), -candidate.step, trust, -candidate.attempt, candidate.path


def _is_better(candidate: Candidate, than: Candidate | None, context: ResumeContext) -> bool:
    return than is None or _preference(candidate, context) < _preference(than, context)


def _passed_over(
    refused: Mapping[Candidate, str], choice: Candidate | None, context: ResumeContext
) -> tuple[Rejection, ...]:
    better = [
        Rejection(each, why, max(0.0, resume_seconds(each, context)))
        for each, why in refused.items()
        if _is_better(each, choice, context)
    ]
    better.sort(key=lambda each: (-each.candidate.step, _preference(each.candidate, context)))
    return tuple(better[:MAX_REJECTIONS])


def _verify_seconds(candidate: Candidate, context: ResumeContext) -> float:
    """Time the ranks get to read the candidate, together."""
    sharing = 1 if candidate.tier == LOCAL else max(1, context.world)
    return context.probe_grace + candidate.load_bytes / sharing / VERIFY_BYTES_PER_SECOND


def _request(candidate: Candidate) -> VerifyRequest:
    return VerifyRequest(tier=candidate.tier, path=candidate.path, step=candidate.step)


def _named(candidate: Candidate) -> str:
    return f"{Save(candidate.step, candidate.attempt).label} ({candidate.tier})"
