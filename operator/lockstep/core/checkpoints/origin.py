"""What a run is to start from besides its own checkpoints: those of another run, or a directory of the shared claim.

Resolved before the run gets nodes, and in status from then on: the other run may be deleted, what it saved stays.
"""

import re

from lockstep.api.base import names
from lockstep.api.checkpoint_spec import CheckpointSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.problems import Problem
from lockstep.core.model.resolved_record import record_origin
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import RunView
from lockstep.core.pods.gang import shared_path

ASK_AGAIN_AFTER = 60.0
"""Seconds after which a run that was not there is looked for again."""
_RUN = "spec.checkpoint.start.run"
_STEP = "spec.checkpoint.start.step"
_PATH = "spec.checkpoint.shared.path"
_ATTEMPT = re.compile(r"a\d{1,9}")  # the worker's name of it


def resolve_origin(plan: PlanBuilder) -> Problem | None:
    """Write the directory to start from into status; what is wrong with it, if that cannot be done."""
    checkpoint = plan.spec.checkpoint
    resolved = plan.status.resolved
    root = name = uid = ""
    if checkpoint is not None and (checkpoint.start.run or checkpoint.start.path):
        if checkpoint.shared is None:
            return Problem("spec.checkpoint.start", "is below the shared tier; name one: shared: {claimName: my-claim}")
        if checkpoint.start.path:
            root = f"{names.SHARED_CHECKPOINTS_MOUNT}/{checkpoint.start.path}"
        elif resolved.start_run == checkpoint.start.run:
            return None
        else:
            problem = _unusable(plan, checkpoint, plan.snapshot.origin)
            if problem is not None:
                plan.wake(plan.now + ASK_AGAIN_AFTER)
                return problem
            assert plan.snapshot.origin is not None
            root, name, uid = directory_of(plan.snapshot.origin), plan.snapshot.origin.name, plan.snapshot.origin.uid
        in_place = root == directory_of(plan.run) and not has_begun(plan.status)
        if checkpoint.start.step is not None and in_place:
            words = "would be gone back to by each attempt, as all save in the directory where it lies (layout: Shared)"
            return Problem(_STEP, f"{words}; leave it out, or save in another checkpoint.shared.path")
        own = directory_of(plan.run)
        if _is_of_an_attempt(own, root) and checkpoint.layout == "Shared" and not has_begun(plan.status):
            # What lies there is neither the run's own nor elsewhere: an older save would be the newest to start from.
            own = own.removeprefix(f"{names.SHARED_CHECKPOINTS_MOUNT}/")
            words = f"is the directory of an attempt of what it starts from; to go on there: start: {{path: {own}}}"
            return Problem(_PATH, f"{words}; else save in another path")
    if (root, name, uid) != (resolved.start_root, resolved.start_run, resolved.start_run_uid):
        plan.status = record_origin(plan.status, root, name, uid)
    return None


def _unusable(state: RunState, checkpoint: CheckpointSpec, origin: RunView | None) -> Problem | None:
    name = checkpoint.start.run
    assert checkpoint.shared is not None
    if origin is None:
        where = f"{state.run.namespace}/{name}/<its UID>"
        return Problem(
            _RUN,
            f"there is no run {name} in namespace {state.run.namespace}; of one that was deleted, name the directory: "
            f"start: {{path: {where}}}",
        )
    if origin.uid == state.run.uid:
        return Problem(_RUN, "is this run itself, which resumes from its own checkpoints anyway; leave it out")
    theirs = origin.spec.checkpoint.shared if origin.spec is not None and origin.spec.checkpoint is not None else None
    if theirs is None:
        return Problem(_RUN, f"run {name} has no shared tier that could be started from; leave it out")
    if theirs.claim_name != checkpoint.shared.claim_name:
        return Problem(
            _RUN,
            f"run {name} saves on claim {theirs.claim_name}, this one on {checkpoint.shared.claim_name}; "
            f"write shared: {{claimName: {theirs.claim_name}}}",
        )
    return None


def directory_of(origin: RunView) -> str:
    """Where it has its checkpoints, or a directory for each attempt."""
    root = f"{names.SHARED_CHECKPOINTS_MOUNT}/{origin.status.resolved.shared_path or shared_path(origin)}"
    checkpoint = origin.spec.checkpoint if origin.spec is not None else None
    return root if checkpoint is not None and checkpoint.layout == "Shared" else f"{root}/{origin.uid}"


def _is_of_an_attempt(directory: str, root: str) -> bool:
    """Workers look there for what a run may start from whose ``root`` it is in."""
    above, _, name = directory.rpartition("/")
    return above == root and _ATTEMPT.fullmatch(name) is not None


def has_begun(status: TrainingRunStatus) -> bool:
    """Some attempt was started, so that what lies in its directory may be its own; after status was lost it is as pods
    and workers told."""
    if status.totals.attempts or status.start is not None or status.checkpoint.resume is not None:
        return True
    return any(entry.started_at is not None for entry in status.attempts)
