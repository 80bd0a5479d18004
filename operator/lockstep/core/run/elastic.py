"""Gangs that change their size: each time as a new attempt, from a checkpoint that the new size can load.

A gang shrinks when a lost node cannot be replaced for a while and ``spec.elastic`` allows it, and when
``spec.nodes`` was lowered. It grows back when nodes are free that nobody waits for. What it grows by comes up as
spares do, beside the training; only then the gang saves, and starts again where it is. Survivors keep their order,
so that ranks lie contiguously within racks as before.
"""

from collections.abc import Sequence

from lockstep.api.base.changes import changed
from lockstep.api.base.durations import parse_duration
from lockstep.api.run_status import AssignmentStatus
from lockstep.core.checkpoints.checkpoint_record import record_latest
from lockstep.core.checkpoints.inventory import candidates, is_own, latest_valid
from lockstep.core.checkpoints.resume import is_sound_in, world_refusal
from lockstep.core.checkpoints.saves import (
    ask_for_save,
    grace_period,
    has_just_settled_for,
    is_settled_for,
    last_trained,
    save_tier,
)
from lockstep.core.checkpoints.verdicts import Candidate
from lockstep.core.failures.recovery_record import record_shrink, skip_to
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import without_condition
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.plural import plural
from lockstep.core.model.quarantine import in_quarantine, quarantine_of
from lockstep.core.model.reasons import (
    ActionWord,
    AttemptEnd,
    ConditionReason,
    ConditionType,
    EventReason,
    RequestResult,
)
from lockstep.core.model.resolved_record import record_size
from lockstep.core.model.run_state import RunState
from lockstep.core.model.tiers import LOCAL
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from lockstep.core.model.world_size import world_size
from lockstep.core.run.attempt_end import next_attempt
from lockstep.core.run.launching import Stage, stages_of_ranks
from lockstep.core.run.requeueing import may_be_requeued
from lockstep.core.run.resume_point import start_candidates
from lockstep.core.run.spares import is_ready, rack_of

ASKS_AGAIN_AFTER = 600.0
"""Seconds after which a save that did not come is asked for once more."""


def follow_size(plan: PlanBuilder) -> None:
    """Bring the gang nearer to the size that the spec asks for and the nodes allow."""
    if plan.phase not in (Phase.LAUNCHING, Phase.RECOVERING, Phase.RUNNING):
        plan.status = without_condition(plan.status, ConditionType.AT_FULL_SIZE)
        return
    if plan.world == plan.spec.nodes and not plan.has_spares and not plan.status.assignment.vacant:
        _report_size(plan, "")  # as most gangs are, most of the time
        return
    if plan.world > plan.spec.nodes:
        why_not = _obey(plan)
    elif plan.phase is not Phase.RUNNING:
        why_not = _shrink(plan)
    else:
        why_not = _grow(plan) if plan.world < plan.spec.nodes else ""
    _seek_nodes(plan, growing=not why_not)
    _report_size(plan, why_not)


def _obey(plan: PlanBuilder) -> str:
    """``spec.nodes`` was lowered: the last ranks leave. Returns why that cannot be."""
    seats = list(plan.ranked_slots())[: plan.spec.nodes]
    smaller = slots.resized(plan.status.assignment, seats)
    trains = plan.phase is Phase.RUNNING
    why_not = _cannot_take_along(plan, len(seats)) if trains else _cannot_load(plan, smaller, len(seats))
    if why_not:
        return f"cannot go on with {plural(len(seats), 'node')}: {why_not}"
    if trains and not _ensure_saved(plan):
        return ""
    words = f"spec.nodes is {len(seats)} now"
    if trains:
        _end_attempt(plan, words)
    else:
        plan.status = skip_to(plan.status, plan.status.attempt + 1, plan.stamp)
    _take_size(plan, seats)
    plan.event(EventReason.SHRUNK, f"{words}: attempt {plan.status.attempt} has so many", action=ActionWord.RESTART)
    return ""


def _shrink(plan: PlanBuilder) -> str:
    """Go on with fewer ranks. Returns why that cannot be, where it should."""
    assignment, elastic = plan.status.assignment, plan.spec.elastic
    lacking = set(slots.lacking(assignment))
    if elastic is None or not lacking or assignment.vacant_since is None or plan.snapshot.leadership.disruption:
        return ""
    if not plan.reached(assignment.vacant_since + plan.tunables.deadlines.shrink + plan.lag.allowance):
        return ""
    seated = [slot for slot in plan.ranked_slots() if slot not in lacking]
    size = world_size(plan.spec, len(seated))
    if not size:
        are = "is" if len(seated) == 1 else "are"
        return f"{plural(len(seated), 'node')} {are} left, and elastic.min is {elastic.min}"
    if any(at.stage is not Stage.READY for at in stages_of_ranks(plan) if at.slot not in lacking):
        return ""  # what there is to resume from is known when they are there
    smaller = slots.resized(assignment, seated[:size])
    why_not = _cannot_load(plan, smaller, size)
    if why_not:
        return f"cannot go on with {plural(size, 'node')}: {why_not}"
    before = plan.world
    _take_size(plan, seated[:size])
    plan.status = skip_to(plan.status, plan.status.attempt + 1, plan.stamp)
    words = f"no node was found for {len(lacking)} of {before} ranks: attempt {plan.status.attempt} has {size}"
    plan.event(EventReason.SHRUNK, words, action=ActionWord.RESTART, warning=True)
    return ""


def take_saved_size(plan: PlanBuilder, sizes: Sequence[int]) -> bool:
    """Go on with the first of ``sizes``: as many ranks as saved the newest that the gang as it is cannot load. False:
    the spec does not allow it, and nobody asked for an older one. Whoever is left out goes, as it could not be taken
    up again."""
    size = sizes[0] if sizes else 0
    if not 0 < size < plan.world or world_size(plan.spec, size) != size:
        return False
    before = plan.world
    _take_size(plan, plan.ranked_slots()[:size], grows=False)
    plan.status = skip_to(plan.status, plan.status.attempt + 1, plan.stamp)
    words = f"{plural(size, 'node')} saved what there is, and {before} cannot load it"
    plan.event(
        EventReason.SHRUNK,
        f"{words}: attempt {plan.status.attempt} has {size}",
        action=ActionWord.RESTART,
        warning=True,
    )
    return True


def _grow(plan: PlanBuilder) -> str:
    """Take up spares that are ready, after a save. Returns why that cannot be."""
    why_not = _cannot_take_along(plan, plan.spec.nodes)
    if why_not:
        return f"cannot grow to {plan.spec.nodes} nodes: {why_not}"
    if not _growth_is_due(plan):
        return ""
    more = [slot for slot in plan.slot_range() if plan.rank(slot) < 0 and plan.status.assignment.nodes[slot]]
    ready = [slot for slot in more if is_ready(plan, slot)]
    size = world_size(plan.spec, plan.world + len(ready))
    if size <= plan.world or size < world_size(plan.spec, plan.world + len(more)):
        return ""  # rather once, with all of them
    if not _ensure_saved(plan):
        return ""
    before = plan.world
    _end_attempt(plan, f"{plural(len(ready), 'further node')} ready")
    _take_size(plan, _joined(plan, ready[: size - before]))
    plan.event(
        EventReason.GROWN,
        f"attempt {plan.status.attempt} has {plural(size, 'rank')} instead of {before}",
        action=ActionWord.RESTART,
    )
    return ""


def _growth_is_due(state: RunState) -> bool:
    shrunk_at, elastic = state.status.recovery.shrunk_at, state.spec.elastic
    if shrunk_at is None or elastic is None:
        return True  # spec.nodes was raised
    return state.reached(shrunk_at + parse_duration(elastic.grow_after))


def _seek_nodes(plan: PlanBuilder, *, growing: bool) -> None:
    """Which slots without a rank are to get a node: those of spares, and those that the gang is to grow by."""
    assignment, spec = plan.status.assignment, plan.spec
    filled = sum(1 for slot in plan.slot_range() if assignment.nodes[slot] and plan.rank(slot) < 0)
    grows = growing and plan.phase is Phase.RUNNING and plan.world < spec.nodes and _growth_is_due(plan)
    wanted = spec.spare_nodes + (spec.nodes - plan.world if grows else 0)
    sought = slots.sought(assignment, max(0, wanted - filled))
    if sought is not assignment:
        plan.status = slots.put(plan.status, sought)
        plan.admission_changed = True


def _take_size(plan: PlanBuilder, seats: Sequence[int], *, grows: bool = True) -> None:
    """The ranks sit in ``seats`` from now on. Of those left out as many stay as spares as the spec asks for; when
    nodes were short, all of them, if the gang ``grows`` again."""
    shrinks = len(seats) < plan.world
    resized = slots.resized(plan.status.assignment, seats)
    if shrinks and (len(seats) == plan.spec.nodes or not grows):
        left_out = [s for s, rank in enumerate(slots.slot_ranks(resized)) if rank < 0 and resized.nodes[s]]
        resized = slots.retired(resized, left_out[plan.spec.spare_nodes :])
        plan.admission_changed = True
    full = len(seats) >= plan.spec.nodes
    plan.status = record_size(slots.put(plan.status, resized), len(seats))
    plan.status = record_shrink(plan.status, None if full else plan.stamp)


def _joined(state: RunState, more: Sequence[int]) -> list[int]:
    """The slots in rank order with ``more`` among them, each behind the last one of its rack."""
    seats = list(state.ranked_slots())
    for slot in more:
        rack = rack_of(state, slot)
        near = [place for place, other in enumerate(seats) if rack and rack_of(state, other) == rack]
        seats.insert(near[-1] + 1 if near else len(seats), slot)
    return seats


def _ensure_saved(plan: PlanBuilder) -> bool:
    """The gang has saved for this just now, or nobody would; False while that is awaited."""
    save = plan.status.checkpoint.save
    if save is not None and is_settled_for(plan.status, AttemptEnd.RESIZED):
        if save.outcome == RequestResult.SAVED and has_just_settled_for(plan, AttemptEnd.RESIZED):
            return True
        if save.outcome != RequestResult.SAVED and not plan.reached((save.time or 0.0) + ASKS_AGAIN_AFTER):
            return False
    return not ask_for_save(plan, AttemptEnd.RESIZED, plan.stamp + grace_period(plan))


def _end_attempt(plan: PlanBuilder, why: str) -> None:
    latest = latest_valid(plan.snapshot, plan.status)
    plan.put_attempt(
        changed(
            plan.attempt(plan.status.attempt),
            ended_at=plan.stamp,
            message=why,  # and no rank: none failed
            last_step=last_trained(plan, latest),
            charged=False,
        ),
        cause=AttemptEnd.RESIZED,
        action=ActionWord.RESTART_IN_PLACE,
    )
    plan.status = next_attempt(record_latest(plan.status, latest), plan.stamp)


def _cannot_take_along(state: RunState, size: int) -> str:
    """Why a gang that trains would lose its work when it changes to ``size`` ranks, by what one rank sees in the tier
    that the gang saves to for it."""
    if not may_be_requeued(state.run):
        return "by --no-requeue its script does not run twice"
    if state.spec.checkpoint is None:
        return "the run names no checkpoint tier, so it would start at step 0"
    first = state.report(state.ranked_slots()[0])
    inventory = first.inventory if first is not None else ()
    tier = save_tier(state)
    rows = [row for row in inventory if row.tier == tier and row.verdict is Verdict.VALID and is_own(row, state)]
    newest = max(rows, key=lambda row: row.step, default=None)
    if newest is None:
        return "no checkpoint is valid yet"
    refusal = _refusal(newest, size)
    return f"step {newest.step} {refusal}" if refusal else ""


def _refusal(saved: Candidate | CheckpointReport, size: int) -> str:
    """Why another number of nodes than now, ``size``, could not load it; empty when they can."""
    if saved.tier == LOCAL and not saved.world:
        return "is in shards on the nodes' own disks, which do not say of how many nodes they are"
    return world_refusal(saved, size)


def _cannot_load(state: RunState, assignment: AssignmentStatus, size: int) -> str:
    """Why a gang of ``size`` ranks, assigned so, could not go on from what is saved."""
    if state.spec.checkpoint is None:
        return ""
    checkpoint, placed = state.status.checkpoint, slots.put(state.status, assignment)
    found = candidates(state.snapshot, placed)
    # One that was never complete is nothing to lose; one that cannot be judged may be good.
    ever_saved = checkpoint.latest or any(one.committed or one.verdict is Verdict.UNKNOWN for one in found)
    if not ever_saved:
        if not state.status.resolved.start_root:
            return ""
        found = start_candidates(state, placed)
    quarantine = quarantine_of(checkpoint)
    valid = [
        one
        for one in found
        if one.verdict is Verdict.VALID and not in_quarantine(quarantine, one.tier, one.step, one.attempt)
    ]
    if checkpoint.ceiling is not None:
        wrong = state.status.recovery
        sound = [one for one in valid if is_sound_in(one, wrong.diverged_from, wrong.diverged_attempt)]
        valid = [one for one in valid if one.step <= checkpoint.ceiling] or sound
    if slots.lacking(state.status.assignment):  # a shard of it was on the disk of a node that is lost
        valid = [one for one in valid if one.tier != LOCAL or not world_refusal(one, size)]
    # An older one would cost steps, or be a start, that nobody asked for.
    refusals = [_refusal(one, size) for one in valid if one.step == valid[0].step]
    if "" in refusals:
        return ""
    return f"step {valid[0].step} {refusals[0]}" if refusals else "no checkpoint is valid yet"


def _report_size(plan: PlanBuilder, why_not: str) -> None:
    if plan.world == plan.spec.nodes and not why_not:
        plan.status = without_condition(plan.status, ConditionType.AT_FULL_SIZE)
        return
    train = "trains" if plan.world == 1 else "train"
    words = f"{plan.world} of {plural(plan.spec.nodes, 'node')} {train}"
    plan.condition(
        ConditionType.AT_FULL_SIZE,
        False,
        ConditionReason.CANNOT_RESIZE if why_not else ConditionReason.RESIZED,
        why_not or words,
    )
