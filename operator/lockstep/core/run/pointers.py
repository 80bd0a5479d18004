"""``resumeBy: Pointer``: one rank has the framework's own loader find the chosen step, before any process starts."""

from dataclasses import dataclass
from enum import StrEnum

from lockstep.api.checkpoint_spec import CheckpointSpec
from lockstep.api.checkpoint_status import PointingStatus
from lockstep.core.checkpoints.checkpoint_record import record_pointing
from lockstep.core.checkpoints.inventory import is_foreign
from lockstep.core.checkpoints.one_directory import starts_in_place
from lockstep.core.checkpoints.verdicts import Candidate
from lockstep.core.model.plan import PointRequest
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, EventReason, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.tiers import SHARED
from lockstep.core.run.stopping import begin_stop

FOLLOW_POINTERS = frozenset({"Megatron", "DeepSpeed", "HuggingFace", "NeMo"})
"""Formats whose loaders look for themselves."""
MAX_ASKED = 3
"""Ranks that are asked, one after the other, before it is given up."""


class PointingState(StrEnum):
    """What has become of the pointers."""

    DONE = "Done"  # the loader finds the choice, or needs no pointer for it
    WAITING = "Waiting"  # for the rank that is asked
    FAILED = "Failed"  # no rank could, and the run stops


@dataclass(frozen=True, slots=True)
class Pointing:
    """How far it is. ``request`` is what a rank is asked, ``waiting_for`` tells of it in words."""

    state: PointingState
    request: PointRequest | None = None
    waiting_for: str = ""


def ensure_pointers(plan: PlanBuilder, choice: Candidate | None) -> Pointing:
    """Have the loader find ``choice``. If it does not yet, a rank is asked to see to it; that it is asked is in status
    first, so that every leader asks the same one."""
    checkpoint = plan.spec.checkpoint
    if choice is None or checkpoint is None or not _is_by_pointer(plan, checkpoint, choice):
        return _DONE
    directory = choice.path.rpartition("/")[0]
    asked = plan.status.checkpoint.pointing
    now = plan.status.attempt, directory, choice.step
    if asked is None or (asked.attempt, asked.path, asked.step) != now or plan.rank(asked.slot) < 0:
        asked = _ask(plan, directory, choice.step, 0, 1)
    report = plan.report(asked.slot)
    answer = report.pointed if report is not None else None
    limit = plan.tunables.deadlines.probe + plan.lag.allowance
    until = asked.time + limit
    if answer is not None and (answer.path, answer.step) == (directory, choice.step):
        if not answer.problem:
            return _DONE
        problem = answer.problem
    elif not plan.reached(until):
        words = f"{plan.title(asked.slot)} points the loader to step {choice.step} in {directory}"
        request = PointRequest(directory, choice.step, checkpoint.named_format, asked.slot)
        return Pointing(PointingState.WAITING, request, words)
    else:
        problem = f"no answer within {limit:.0f} s"
    node = plan.status.assignment.nodes[asked.slot]
    words = f"{plan.title(asked.slot)} on {node} could not point the loader to step {choice.step}: {problem}"
    if asked.asked >= min(MAX_ASKED, plan.world):
        begin_stop(plan, StopReason.POINTER_FAILED, f"{words}; correct {directory}")
        return Pointing(PointingState.FAILED)
    plan.event(EventReason.POINTER_FAILED, words, action=ActionWord.POINT, warning=True)
    asked = _ask(plan, directory, choice.step, plan.rank(asked.slot) + 1, asked.asked + 1, problem)
    plan.wake(plan.now + limit)
    return Pointing(PointingState.WAITING, PointRequest(directory, choice.step, checkpoint.named_format, asked.slot))


_DONE = Pointing(PointingState.DONE)


def _is_by_pointer(state: RunState, checkpoint: CheckpointSpec, choice: Candidate) -> bool:
    elsewhere = is_foreign(choice.path, state.status.resolved.start_root, state.run)
    if choice.tier != SHARED or (elsewhere and not starts_in_place(state.run, state.status)):
        return False  # what belongs to another run is not changed; on nodes' own disks each has its own
    if checkpoint.resume_by is not None:
        return checkpoint.resume_by == "Pointer"
    restored = state.status.checkpoint.archive.restored
    if not choice.format and checkpoint.format == "Auto":
        return restored is not None and restored.path == choice.path  # the worker will see which format it is
    return (choice.format or checkpoint.format) in FOLLOW_POINTERS


def _ask(plan: PlanBuilder, path: str, step: int, rank: int, asked: int, problem: str = "") -> PointingStatus:
    slot = plan.ranked_slots()[rank % plan.world]
    request = PointingStatus(
        attempt=plan.status.attempt,
        path=path,
        step=step,
        slot=slot,
        time=plan.stamp,
        asked=asked,
        problem=problem[:512],
    )
    plan.status = record_pointing(plan.status, request)
    return request
