"""How training goes on after the end of a run: the command that makes a new one, and with what that begins."""

import re
from collections.abc import Iterator, Mapping

from lockstep.api.base import names
from lockstep.api.checkpoint_status import SavedCheckpoint
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints.inventory import is_foreign
from lockstep.core.model.conditions import find
from lockstep.core.model.quarantine import is_trusted
from lockstep.core.model.reasons import ConditionType, StopReason
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tiers import LOCAL, SHARED

STEP_0 = "begin at step 0"
NEWEST_THERE = "start from the newest there"
_CORRECTED = "[-f FILE]"
_FLAGS: Mapping[str, str] = {
    StopReason.TIME_LIMIT: "-t LIMIT",
    StopReason.BUDGET_SPENT: "-f FILE",
    StopReason.DEADLINE_UNREACHABLE: "--deadline TIME",
    StopReason.DEPENDENCY_NEVER_SATISFIED: "-d LIST",
    StopReason.COMMAND_NOT_FOUND: "-- COMMAND",
    StopReason.COMMAND_NOT_EXECUTABLE: "-- COMMAND",
    StopReason.PYTHON_NOT_FOUND: "--image IMAGE",
    StopReason.NOT_REQUEUED: "",
    StopReason.UNKNOWN_SAVES: "-f FILE",
    StopReason.PREVIOUS_SAVES: "",
    StopReason.NO_VALID_CHECKPOINT: "",
    StopReason.NOTHING_TO_GO_BACK_TO: "",
    StopReason.CHECKPOINT_REQUIRED: "",
    StopReason.POINTER_FAILED: "",
}
"""What has to be another way in the new run; of all other ends the manifest may have to be, or nothing."""
_STEP_0_IS_A_CHOICE = (
    StopReason.UNKNOWN_SAVES,
    StopReason.PREVIOUS_SAVES,
    StopReason.NO_VALID_CHECKPOINT,
    StopReason.NOTHING_TO_GO_BACK_TO,
    StopReason.CHECKPOINT_REQUIRED,
    StopReason.NO_START_CHECKPOINT,
)
"""Ends for fear that step 0 loses something."""

_WAYS = re.compile(r"(?:; to [^;:]+: lockstep retry [^;]+)+$")


def retry_of(run: RunView) -> str:
    """The command. A run of an array cannot be replaced: the array would make it anew."""
    return f"lockstep retry {run.name}{' --name NAME' if run.set_uid else ''}"


def newest_saved(status: TrainingRunStatus) -> int | None:
    """The newest step that a run has saved where every node sees it."""
    return max((each.step for each in status.checkpoint.latest if each.tier == SHARED), default=None)


def passed_over(status: TrainingRunStatus, *tiers: str) -> SavedCheckpoint | None:
    """The newest save in these tiers (by default: where every node sees it), if training may not go on from it."""
    saves = [each for each in status.checkpoint.latest if each.tier in (tiers or (SHARED,))]
    newest = max(saves, key=lambda each: each.step, default=None)
    return newest if newest is not None and not _may_go_on_from(newest, status) else None


def newest_trusted(run: RunView, *tiers: str) -> int | None:
    """The newest step of its own in these tiers that training may go on from, as far as status tells: of a tier it has
    the newest save alone, and where that is passed over what the last attempt began from."""
    checkpoint, root = run.status.checkpoint, run.status.resolved.start_root
    began = checkpoint.resume
    known = [*checkpoint.latest]
    if began is not None and passed_over(run.status, began.tier) is not None and not is_foreign(began.path, root, run):
        known.append(began)
    own = (each.step for each in known if each.tier in tiers and _may_go_on_from(each, run.status))
    return max(own, default=None)


def _may_go_on_from(saved: SavedCheckpoint, status: TrainingRunStatus) -> bool:
    return is_trusted(status, saved.tier, saved.step, saved.attempt)


def on_disks_alone(run: RunView) -> int | None:
    """The newest step that a run may go on from, where only its nodes have that."""
    local = newest_trusted(run, LOCAL)
    return local if local is not None and local > (newest_trusted(run, SHARED) or 0) else None


def begun_at(run: RunView) -> int | None:
    """The step of another run's checkpoint that one went on from which has saved nothing where every node sees it."""
    resume, root = run.status.checkpoint.resume, run.status.resolved.start_root
    if resume is not None and is_foreign(resume.path, root, run):
        return resume.step
    theirs = (each.resume_step for each in run.status.attempts if root and each.resume_tier == SHARED)
    return max(filter(None, theirs), default=None)


def has_unknown(status: TrainingRunStatus, tier: str) -> bool:
    """Something in the tier may be a save of the run, although no format recognises it."""
    return any(each.tier == tier for each in status.checkpoint.unrecognised)


def missed_its_step(run: RunView, status: TrainingRunStatus, reason: str = "") -> bool:
    """The run ended as the step that it was to start from was not to be had: to name it again leads to the same."""
    end = find(status, ConditionType.FINISHED)
    named = run.spec is not None and run.spec.checkpoint is not None and run.spec.checkpoint.start.step is not None
    return named and (reason or (end.reason if end is not None else "")) == StopReason.NO_START_CHECKPOINT


def way_back(run: RunView, status: TrainingRunStatus, reason: str) -> str:
    """``to go on from step 40: lockstep retry llama -t LIMIT``, of a run that has ended, or ends, for ``reason``."""
    return "; ".join(_ways(run, status, reason))


def without_way_back(message: str) -> str:
    """The words of an end before those: what is saved may be more by now, as workers tell of their last saves."""
    return _WAYS.sub("", message)


def _ways(run: RunView, status: TrainingRunStatus, reason: str) -> Iterator[str]:
    onward, flag = begins(run, status, reason)
    asks = reason in _STEP_0_IS_A_CHOICE
    if onward == NEWEST_THERE:
        yield f"to start from another step there: {retry_of(run)} --step STEP"
    if not asks or onward != STEP_0:
        words = (retry_of(run), flag, _FLAGS.get(reason, _CORRECTED))
        yield f"to {onward}: {' '.join(filter(None, words))}"
    if asks:
        yield f"to {STEP_0}: {retry_of(run)} --fresh"


def begins(run: RunView, status: TrainingRunStatus, reason: str = "") -> tuple[str, str]:
    """What the new run does first, as a verb; and the flag for it where the command alone would be refused.
    ``reason``: why the run ends, where status does not say so yet."""
    checkpoint, saved = status.checkpoint, newest_saved(status)
    if run.spec is not None and run.spec.checkpoint is None:
        return STEP_0, ""
    if saved is not None:
        if passed_over(status) is not None:  # which a new run knows nothing of
            return "go on from a step that you choose", "--step STEP"
        return f"go on from step {saved}", ""
    if has_unknown(status, SHARED):
        return "go on from what is there", ""
    if checkpoint.previous_saves:
        return f"go on from step {checkpoint.previous_saves[0].step} of an earlier run", ""
    if status.resolved.start_root.startswith(f"{names.SHARED_CHECKPOINTS_MOUNT}/"):
        return NEWEST_THERE if missed_its_step(run, status, reason) else "start once more from where it was to", ""
    if has_unknown(status, LOCAL) or any(each.tier == LOCAL for each in checkpoint.latest):
        return STEP_0, "--fresh"
    return STEP_0, ""
