"""Why a run is pending or why it stopped, and what comes next, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lockstep.api.checkpoint_status import SavedCheckpoint
from lockstep.api.queue import QueueLimits
from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import QueueStatus, TrainingRunStatus
from lockstep.core.arrays.members import is_suspended_by_set
from lockstep.core.checkpoints.unknown_saves import HOW_TO_BE_KNOWN, REMEDY, named
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.quarantine import Save, diverged_saves
from lockstep.core.model.reasons import ActionWord, AttemptEnd, ConditionReason, ConditionType, Outcome, WaitReason
from lockstep.core.model.snapshot import RunView
from lockstep.core.pods.launchers import others_stand_by
from lockstep.core.pods.requirement import avoided_nodes
from lockstep.core.run.backoff import allowed_without_progress
from lockstep.core.run.report import HOW_TO_REPORT, NO_STEP_HINT
from lockstep.core.run.way_back import without_way_back
from lockstep.present import start_estimate
from lockstep.present.amounts import ago, duration, plural
from lockstep.present.going_on import after_the_end
from lockstep.present.runs import completion, current_phase, leaving_in_words, pace, queue_of, seconds_left

_HOLDERS_NAMED = 8
_NODES_NAMED = 8
_AHEAD_NAMED = 3
_PASSED_OVER = 2
_FOR_NODES = (
    WaitReason.RESOURCES,
    WaitReason.PLACEMENT,
    WaitReason.PRIORITY,
    WaitReason.PREEMPTING,
    WaitReason.QUOTA,
    WaitReason.DEVICES_NOT_OFFERED,
    WaitReason.RUNNING_RUNS_LIMIT,
    WaitReason.EARLIER_PODS,
    WaitReason.KUEUE_ASSIGNMENT,
)
"""Pending reasons with which it matters who holds nodes."""


@dataclass(frozen=True, slots=True)
class LiveAdmission:
    """What the next admission cycle would find for one run."""

    queue: QueueStatus
    """Why it would wait; empty when it would get all its nodes."""
    ahead: tuple[tuple[str, QueueStatus], ...]
    """Who waits for nodes in front of it in its queue, as namespace/name, and what they lack; first come first."""
    nodes: int
    """Nodes that were looked at."""
    holders: tuple[tuple[str, tuple[str, ...]], ...]
    """Who holds nodes, as namespace/name, with the nodes; most nodes first."""
    ended: Mapping[str, float] = field(default_factory=dict)
    """When the pods of those holders that have ended are deleted at the latest, as far as they don't leave before."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """When those of them may end sooner than others may count on, by their pace or after a save, in words."""
    limits: QueueLimits = field(default_factory=QueueLimits)
    """Those of its queue."""
    unread: str = ""
    """Why it was decided with the default settings; empty: it was with those of the operator."""


class NotLive(Exception):  # noqa: N818 (a reason, not a failure)
    """Why nothing is recomputed, in words."""


def waits_for_nodes(run: RunView) -> bool:
    """The next admission cycle decides: the run is accepted and has no nodes, or lacks some."""
    if run.spec is None or not is_true(run.status, ConditionType.ACCEPTED):
        return False
    return _is_short_of_nodes(run, current_phase(run))


def sentences(
    run: RunView, found: LiveAdmission | NotLive | None, now: float, *, everything: bool = False
) -> Iterator[str]:
    """What is to be said beyond state and reason, what matters first and each thing once. ``found``: the live admission
    cycle, or why there is none; None where it has no part. ``everything``: also what few people look for."""
    phase = current_phase(run)
    yield from _refusal(run)
    yield from _oddities(run.status)
    if _is_short_of_nodes(run, phase):
        yield from _waiting(run, found, now, everything)
    yield from _steps(run, phase)
    limits = found.limits if isinstance(found, LiveAdmission) else QueueLimits()
    before = [*_before(run.status, now), *_last_end(run, phase, now), *_resume(run, phase, everything)]
    if phase in (Phase.PENDING, Phase.LAUNCHING, Phase.RECOVERING):
        yield from before
        yield from _next(run, phase, limits, now, everything)
    else:
        yield from _next(run, phase, limits, now, everything)
        yield from before


def checkpoint_summary(candidate: SavedCheckpoint) -> str:
    """``step 300 (shared, /shared-checkpoints/…)``."""
    return f"step {candidate.step} ({', '.join(filter(None, (candidate.tier, candidate.path)))})"


def _is_short_of_nodes(run: RunView, phase: Phase) -> bool:
    """Nobody gives a node to what has ended, or stops, whatever rank of it lacks one."""
    goes = phase in (Phase.STOPPING, Phase.FINISHED)
    return phase is Phase.PENDING or (not goes and bool(slots.lacking(run.status.assignment)))


def _refusal(run: RunView) -> Iterator[str]:
    accepted = find(run.status, ConditionType.ACCEPTED)
    if accepted is None:
        yield "The operator has not looked at it yet; if this lasts, the operator is not running."
    elif accepted.status == "False":
        yield f"It is not accepted: {accepted.message}"
    elif accepted.status != "True":
        yield f"It is not accepted yet: {accepted.message}"


def _oddities(status: TrainingRunStatus) -> Iterator[str]:
    for kind in (ConditionType.STATE_REGRESSION, ConditionType.CLUSTER_DISRUPTION):
        found = find(status, kind)
        if found is not None and found.status == "True":
            yield f"{kind}: {found.message}"
    if status.checkpoint.unrecognised:
        saves = named(status.checkpoint.unrecognised)
        remedy = HOW_TO_BE_KNOWN if is_true(status, ConditionType.FINISHED) else REMEDY
        yield f"What it wrote may be saves, and none can be resumed from: {saves}; {remedy}."
    if status.resolved.unused_gpus and slots.is_held(status.assignment):
        yield f"It leaves GPUs of its nodes unused: {status.resolved.unused_gpus}."
    asks = find(status, ConditionType.SCALE_UP)
    if asks is not None:
        verb = "It cannot have" if asks.reason == ConditionReason.CANNOT_ASK_FOR_NODES else "It would have"
        yield f"{verb} nodes made: {asks.message}"
    size = find(status, ConditionType.AT_FULL_SIZE)
    if size is not None:
        yield f"It is not at its full size: {size.message}"


def _waiting(run: RunView, found: LiveAdmission | NotLive | None, now: float, everything: bool) -> Iterator[str]:
    if isinstance(found, LiveAdmission):
        if not found.queue.reason:
            words = "Computed now: nodes for the whole gang are free; the operator's next pass will give them to it"
            yield words + (f", unless a setting of its own forbids it ({found.unread})." if found.unread else ".")
            return
        yield _pending_sentence(run, found.queue)
        yield from start_estimate.sentences(found.queue, now)
        most = len(found.ahead) if everything else _AHEAD_NAMED
        for key, queue in found.ahead[:most]:
            yield f"  {key} waits in front of it, {queue.reason}: {queue.message}"
        if len(found.ahead) > most:
            yield f"  and {plural(len(found.ahead) - most, 'more run')} in front of it"
        settings = f"default settings, as {found.unread}" if found.unread else "settings of the operator"
        yield f"(computed now from {plural(found.nodes, 'node')}, with the {settings})"
        if everything or found.queue.reason in _FOR_NODES:
            yield from _holders(found, now)
        return
    queue, accepted = run.status.queue, find(run.status, ConditionType.ACCEPTED)
    if queue.reason and (accepted is None or accepted.message != queue.message):
        yield _pending_sentence(run, queue)
        yield from start_estimate.sentences(queue, now)
    if isinstance(found, NotLive):
        yield f"(as the operator last wrote it; not computed anew: {found})"


def _pending_sentence(run: RunView, queue: QueueStatus) -> str:
    place = f" at position {queue.position} of queue {queue_of(run)}" if queue.position else ""
    gloss = WAITS.get(queue.reason, "")
    return f"It waits{place}{f', {gloss}' if gloss else ''}: {queue.message}"


WAITS: Mapping[str, str] = {
    WaitReason.RESOURCES: "for nodes to become free",
    WaitReason.PLACEMENT: "for nodes that the cluster does not have, not even idle",
    WaitReason.DEVICES_NOT_OFFERED: "for nodes to offer devices that they have",
    WaitReason.PRIORITY: "for its turn",
    WaitReason.PREEMPTING: "for those that it preempts to save and give their nodes back",
    WaitReason.RUNNING_RUNS_LIMIT: "for other runs of its queue to end",
    WaitReason.NODES_PER_RUN_LIMIT: "and will not be admitted as it is",
    WaitReason.QUOTA: "for nodes within its queue's quota",
    WaitReason.QUOTA_TOO_SMALL: "and will not be admitted as it is",
    WaitReason.WINDOW: "for a maintenance window to be over",
    WaitReason.PENDING_RUNS_LIMIT: "for others of its queue to get their nodes",
    WaitReason.GPU_HOURS_LIMIT: "for GPU-hours of its queue",
    WaitReason.NOT_JUDGED: "for its edited spec to be judged",
    WaitReason.ADMISSION_REFUSED: "for the API server to take its admission",
    WaitReason.GPU_HOURS_UNKNOWN: "until the GPU-hours of its queue are known",
    WaitReason.TIME_LIMIT_TOO_LONG: "and will not be admitted as it is",
    WaitReason.DEADLINE_UNREACHABLE: "and cannot end in time",
    WaitReason.DEPENDENCY: "for other runs",
    WaitReason.DEPENDENCY_NEVER_SATISFIED: "for what cannot come any more",
    WaitReason.SINGLETON: "for its turn among those with the same word",
    WaitReason.HELD_BY_ADMINISTRATOR: "for an administrator to release it",
    WaitReason.NAMESPACE_NOT_ALLOWED: "in a queue that is not for its namespace",
    WaitReason.PRIORITY_CLASS_NOT_ALLOWED: "in a queue that does not allow its class",
    WaitReason.PRIORITY_CLASS_NOT_FOUND: "for a class that does not exist",
    WaitReason.TEST_ONLY: "for nothing",
    WaitReason.QUEUE_HELD: "for its queue to be opened",
    WaitReason.QUEUE_NOT_FOUND: "for a queue that does not exist",
    WaitReason.BEGIN_TIME: "before it tries again",
    WaitReason.NODES_REFUSE_PODS: "before it tries again, as nodes refuse its pods",
    WaitReason.EARLIER_PODS: "for its own old pods to end",
    WaitReason.PAUSED: "for the pause to be taken off",
    WaitReason.CLUSTER_DISRUPTION: "for the cluster to calm down",
    WaitReason.NO_NEW_ADMISSIONS: "for the operator to admit again",
    WaitReason.REPORT_ONLY: "for the operator to act again",
    WaitReason.MAX_RUNNING: "for other runs of its set to end",
    WaitReason.UNDECIDABLE: "until it is tried again",
    WaitReason.WAITING_FOR_KUEUE: "for Kueue to admit it",
    WaitReason.LOCAL_QUEUE_NOT_FOUND: "for a LocalQueue that does not exist",
    WaitReason.KUEUE_NOT_INSTALLED: "for Kueue, which is not installed",
    WaitReason.KUEUE_DISABLED: "for Kueue, which the operator does not look for",
    WaitReason.KUEUE_DEACTIVATED: "for its Workload to be made active",
    WaitReason.KUEUE_ASSIGNMENT: "for nodes of Kueue's that it can use",
}
"""What a run waits for, by its pending reason (``status.queue.reason``): words that follow "It waits, "."""


def _holders(found: LiveAdmission, now: float) -> Iterator[str]:
    for holder, nodes in found.holders[:_HOLDERS_NAMED]:
        named = " ".join(nodes[:_NODES_NAMED]) + (" …" if len(nodes) > _NODES_NAMED else "")
        gone = found.ended.get(holder)
        left = duration(max(0.0, gone - now)) if gone is not None else ""
        ended = f", which has ended; its pods are deleted in {left} at the latest" if left else ""
        early = f", which {found.ends[holder]}" if holder in found.ends else ""
        yield f"  {plural(len(nodes), 'node')} held by {holder}{ended or early}: {named}"
    if len(found.holders) > _HOLDERS_NAMED:
        yield f"  and by {plural(len(found.holders) - _HOLDERS_NAMED, 'more run')}"


def _steps(run: RunView, phase: Phase) -> Iterator[str]:
    ranks = len(slots.ranked_slots(run.status.assignment))
    starts_or_runs = phase in (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING)
    if starts_or_runs and ranks > 1 and run.spec is not None and others_stand_by(run.spec):
        others = "rank 1 stands" if ranks == 2 else f"ranks 1-{ranks - 1} stand"
        yield f"Its command is on rank 0, and {others} by for what that starts there: its output is in rank 0's log."


def previous_runs(status: TrainingRunStatus, now: float) -> Iterator[str]:
    """Those that it goes on from, the last one first. They may be gone: these are their records then."""
    for before in status.previous:
        ended = (
            f"ended {before.outcome} ({before.reason}) {ago(before.ended, now)}" if before.outcome else "had not ended"
        )
        saved = f"step {before.saved} saved" if before.saved is not None else "nothing saved"
        tries = plural(before.attempts, "attempt")
        yield f"{before.name} (UID {before.uid}), which {ended}, after {tries} with {saved}"


def _before(status: TrainingRunStatus, now: float) -> Iterator[str]:
    for before in list(previous_runs(status, now))[:1]:
        more = f"; {plural(len(status.previous) - 1, 'run')} before that" if len(status.previous) > 1 else ""
        yield f"It goes on from run {before}{more}."


def _last_end(run: RunView, phase: Phase, now: float) -> Iterator[str]:
    """How the attempt before ended, and what was done; of a run that has ended only what its end does not say."""
    attempts = [a for a in run.status.attempts if a.ended_at is not None and a.cause != AttemptEnd.SUCCEEDED]
    if not attempts:
        return
    ended = attempts[-1]
    told = _end_in_words(run, phase)
    if ended.message and ended.message in told:
        who = "" if ended.rank is None or f"rank {ended.rank}" in told else f" Rank {ended.rank} was first."
        yield f"Its last attempt, {ended.number}, was ended {ago(ended.ended_at, now)} by {ended.cause}.{who}"
    elif phase is Phase.FINISHED and run.status.state == Outcome.SUCCEEDED:
        causes = ", ".join(f"{each.number} {each.cause}" for each in attempts)
        yield f"On the way ended attempt {causes} (lockstep history {run.name})."
        return
    else:
        yield f"Attempt {ended.number} was ended {ago(ended.ended_at, now)} by {ended.cause}: {_culprit(ended)}"
    if ended.action and ended.action not in (ActionWord.STOP, ActionWord.FINISH):
        yield f"What was done: {ACTIONS.get(ended.action, ended.action)}."


def _end_in_words(run: RunView, phase: Phase) -> str:
    """What ``_next`` says of the end, or of the stop."""
    if phase is Phase.STOPPING and run.status.stop is not None:
        return run.status.stop.message
    succeeded = find(run.status, ConditionType.SUCCEEDED) if phase is Phase.FINISHED else None
    return succeeded.message if succeeded is not None else ""


ACTIONS: Mapping[str, str] = {
    ActionWord.RESTART_IN_PLACE: "all ranks start again in the pods they have",
    ActionWord.REPLACE: "what was lost is replaced, everybody else stays, all ranks start again",
    ActionWord.ROLL_BACK: "training goes back to an earlier checkpoint",
    ActionWord.STOP: "the run is stopped",
    ActionWord.FINISH: "the run is finished",
}
"""What recovery does, in words, by ``attempts[].action``."""


def _culprit(ended: AttemptStatus) -> str:
    message = ended.message or "no more is known"
    if ended.rank is None or f"rank {ended.rank}" in message:
        return message
    return f"first was rank {ended.rank}{f' on {ended.node}' if ended.node else ''}; {message}"


def _resume(run: RunView, phase: Phase, everything: bool) -> Iterator[str]:
    """From what it began, and what it would go on from. Paths are long, and wanted by few."""
    status, start = run.status, run.status.start
    if start is not None and (start.attempt > 1 or start.resume is not None):
        resumed = _saved(start.resume, everything) if start.resume is not None else "no checkpoint, at step 0"
        yield f"Attempt {start.attempt} began from {resumed}."
    keeps = run.spec is None or run.spec.checkpoint is not None
    if status.checkpoint.choice and (everything or (keeps and start is not None and start.resume is None)):
        yield f"Why from there: {status.checkpoint.choice}."
    rejected = status.checkpoint.rejected if everything else status.checkpoint.rejected[:_PASSED_OVER]
    for passed in rejected if everything or phase is not Phase.FINISHED else ():
        cost = f", would have cost {passed.seconds} s" if passed.seconds is not None else ""
        yield f"  passed over: {Save(passed.step, passed.attempt or 0).label} ({passed.tier}{cost}): {passed.reason}"
    for bad in status.checkpoint.quarantined:
        yield f"Not loaded again: {Save(bad.step, bad.attempt).label} ({bad.tier}): {bad.reason}"
    for since in diverged_saves(status.checkpoint):
        yield f"Not loaded again: {since.label}: training had gone wrong"
    began = start.resume if start is not None else None
    for saved in status.checkpoint.latest:
        if everything or began is None or (saved.step, saved.tier) != (began.step, began.tier):
            yield f"Newest valid checkpoint: {_saved(saved, everything)}."


def _saved(candidate: SavedCheckpoint, everything: bool) -> str:
    return checkpoint_summary(candidate) if everything else f"step {candidate.step} ({candidate.tier})"


def _next(run: RunView, phase: Phase, limits: QueueLimits, now: float, everything: bool) -> Iterator[str]:
    status = run.status
    gang = find(status, ConditionType.GANG_READY)
    match phase:
        case Phase.FINISHED:
            succeeded = find(status, ConditionType.SUCCEEDED)
            if succeeded is not None and succeeded.message:
                yield f"The end: {without_way_back(succeeded.message)}"
            if leaving := leaving_in_words(run, now):
                yield f"Its nodes: {leaving}."
            yield after_the_end(run)
        case Phase.STOPPING if status.stop is not None:
            yield f"Stopping since {ago(status.stop.time, now)}, {status.stop.reason}: {status.stop.message}"
            save = status.checkpoint.save
            if status.stop.save and save is not None and save.deadline is not None:
                where = f"at step {save.at_step}" if save.at_step else "at the next opportunity"
                left = duration(save.deadline - now)
                yield f"Next: all ranks save {where}, which is waited for {left} at most; then they are told to end."
            else:
                left = duration(status.stop.deadline - now)
                yield f"Next: the ranks end by themselves, or their pods are deleted in {left}."
        case Phase.SUSPENDED:
            verb = "release" if status.reason == ConditionReason.HELD else "resume"
            why = "held" if verb == "release" else "suspended"
            if not run.set_says:
                yield f"It is {why}. Next: it waits for lockstep {verb} {run.name} (suspend: false)."
            elif is_suspended_by_set(run):
                yield f"It is {why}, by {run.set_says}. Next: it waits for lockstep {verb} {run.set_name}."
            else:
                yield f"It is {why}, as {run.set_says}. Next: it waits for that to be corrected."
        case Phase.LAUNCHING | Phase.RECOVERING:
            if gang is not None and gang.message:
                yield f"The gang gathers: {status.nodes_ready} are ready; {gang.message}"
            yield from _backoff(status, now)
            yield f"Next: attempt {status.attempt} starts when every rank is at the barrier."
        case Phase.RUNNING:
            progressing = find(status, ConditionType.PROGRESSING)
            told = progressing.message if progressing is not None else ""
            if progressing is not None and progressing.status != "True" and told:
                yield f"It runs; {told}."
                if status.progress.time is None and NO_STEP_HINT not in told:
                    yield f"Until it reports a step hangs cannot be seen: {HOW_TO_REPORT}."
            elif status.progress.time is not None:
                speed, done = pace(status.progress), completion(run, now)
                yield f"It runs: step {status.progress.step}, {ago(status.progress.time, now)}{speed and f', {speed}'}."
                if done:
                    yield f"At this pace all steps are done {done}{_or_not(run, now)}."
                if told:
                    yield f"Not all of it: {told}."
        case _:
            yield from _backoff(status, now)
    if everything and run.status.spares and phase in (Phase.LAUNCHING, Phase.RECOVERING, Phase.RUNNING):
        yield f"Spares at the barrier: {run.status.spares}."
    wished = start_estimate.limit_of_spec(run.spec, limits) if phase is Phase.PENDING and run.spec is not None else ""
    if wished:
        yield f"Its time is to be {wished}."
    time_given = start_estimate.granted(run)
    if time_given and phase in (Phase.LAUNCHING, Phase.RECOVERING, Phase.RUNNING):
        yield f"Its time: {time_given}."
    yield from _budget(run, phase)
    for node in avoided_nodes(status.recovery.excluded_nodes, now) if phase is not Phase.FINISHED else ():
        until = f" for {duration(node.until - now)}" if node.until is not None else ""
        yield f"Kept off {node.node}{until}: {node.reason}"


def _or_not(run: RunView, now: float) -> str:
    """What is said of an end that lies behind the time limit."""
    ends, left = run.status.progress.expected_end, seconds_left(run, now)
    if ends is None or left is None or ends <= now + left:
        return ""
    return f", and its time limit is over before that, in {duration(left)}"


def _backoff(status: TrainingRunStatus, now: float) -> Iterator[str]:
    not_before = status.recovery.not_before
    if not_before is not None and not_before > now:
        yield f"It tries again in {duration(not_before - now)} at the earliest, to spare the cluster."


def _budget(run: RunView, phase: Phase) -> Iterator[str]:
    spent = run.status.recovery.consecutive_no_progress
    if not spent or run.spec is None or phase is Phase.FINISHED:
        return
    allowed = allowed_without_progress(run.spec, run.status)
    yield f"{plural(spent, 'attempt')} in a row ended without a new checkpoint; at {allowed} the run is stopped."
