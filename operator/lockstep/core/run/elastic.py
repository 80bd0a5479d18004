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
from lockstep.core.checkpoints.inventory import candidates, latest_valid
from lockstep.core.checkpoints.resume import world_refusal
from lockstep.core.checkpoints.saves import ask_for_save, grace_period, is_settled_for
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import without_condition
from lockstep.core.model.draft import Draft
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.quarantine import in_quarantine, quarantine_of
from lockstep.core.model.reasons import ActionWord, AttemptEnd, ConditionReason, EventReason, RequestResult
from lockstep.core.model.snapshot import Verdict
from lockstep.core.model.world_size import world_size
from lockstep.core.run.launching import Stage, stages_of_ranks
from lockstep.core.run.spares import is_ready, rack_of

AT_FULL_SIZE = "AtFullSize"
ASKS_AGAIN_AFTER = 600.0
"""Seconds after which a save that did not come is asked for once more."""


def follow_size(draft: Draft) -> None:
    """Bring the gang nearer to the size that the spec asks for and the nodes allow."""
    if draft.phase not in (Phase.LAUNCHING, Phase.RECOVERING, Phase.RUNNING):
        draft.status = without_condition(draft.status, AT_FULL_SIZE)
        return
    if draft.world == draft.spec.nodes and not draft.has_spares and not draft.status.assignment.vacant:
        _tell(draft, "")  # as most gangs are, most of the time
        return
    if draft.world > draft.spec.nodes:
        why_not = _obey(draft)
    elif draft.phase is not Phase.RUNNING:
        why_not = _shrink(draft)
    else:
        why_not = _grow(draft) if draft.world < draft.spec.nodes else ""
    _seek_nodes(draft, growing=not why_not)
    _tell(draft, why_not)


def _obey(draft: Draft) -> str:
    """``spec.nodes`` was lowered: the last ranks leave. Returns why that cannot be."""
    seats = list(draft.ranked_slots())[: draft.spec.nodes]
    smaller = slots.resized(draft.status.assignment, seats)
    trains = draft.phase is Phase.RUNNING
    why_not = _cannot_take_along(draft, len(seats)) if trains else _cannot_load(draft, smaller, len(seats))
    if why_not:
        return f"cannot go on with {len(seats)} nodes: {why_not}"
    if trains and not _is_saved(draft):
        return ""
    words = f"spec.nodes is {len(seats)} now"
    if trains:
        _end_attempt(draft, words)
    else:
        draft.status = changed(draft.status, attempt=draft.status.attempt + 1)
    _take_size(draft, seats)
    draft.event(EventReason.SHRUNK, f"{words}: attempt {draft.status.attempt} has so many", action=ActionWord.RESTART)
    return ""


def _shrink(draft: Draft) -> str:
    """Go on with fewer ranks. Returns why that cannot be, where it should."""
    assignment, elastic = draft.status.assignment, draft.spec.elastic
    lacking = set(slots.lacking(assignment))
    if elastic is None or not lacking or assignment.vacant_since is None or draft.snapshot.leadership.disruption:
        return ""
    due = assignment.vacant_since + draft.tunables.deadlines.shrink
    draft.wake(due)
    if draft.now < due:
        return ""
    seated = [slot for slot in draft.ranked_slots() if slot not in lacking]
    size = world_size(draft.spec, len(seated))
    if not size:
        return f"{len(seated)} nodes are left, and elastic.min is {elastic.min}"
    if any(at.stage is not Stage.READY for at in stages_of_ranks(draft) if at.slot not in lacking):
        return ""  # what there is to resume from is known when they are there
    smaller = slots.resized(assignment, seated[:size])
    why_not = _cannot_load(draft, smaller, size)
    if why_not:
        return f"cannot go on with {size} nodes: {why_not}"
    before = draft.world
    _take_size(draft, seated[:size])
    draft.status = changed(draft.status, attempt=draft.status.attempt + 1)
    words = f"no node was found for {len(lacking)} of {before} ranks: attempt {draft.status.attempt} has {size}"
    draft.event(EventReason.SHRUNK, words, action=ActionWord.RESTART, warning=True)
    return ""


def _grow(draft: Draft) -> str:
    """Take up spares that are ready, after a save. Returns why that cannot be."""
    why_not = _cannot_take_along(draft, draft.spec.nodes)
    if why_not:
        return f"cannot grow to {draft.spec.nodes} nodes: {why_not}"
    if not _growth_is_due(draft):
        return ""
    more = [slot for slot in draft.slot_range() if draft.rank(slot) < 0 and draft.status.assignment.nodes[slot]]
    ready = [slot for slot in more if is_ready(draft, slot)]
    size = world_size(draft.spec, draft.world + len(ready))
    if size <= draft.world or size < world_size(draft.spec, draft.world + len(more)):
        return ""  # rather once, with all of them
    if not _is_saved(draft):
        return ""
    before = draft.world
    _end_attempt(draft, f"{len(ready)} further nodes are ready")
    _take_size(draft, _joined(draft, ready[: size - before]))
    draft.event(
        EventReason.GROWN,
        f"attempt {draft.status.attempt} has {size} ranks instead of {before}",
        action=ActionWord.RESTART,
    )
    return ""


def _growth_is_due(draft: Draft) -> bool:
    shrunk_at, elastic = draft.status.recovery.shrunk_at, draft.spec.elastic
    if shrunk_at is None or elastic is None:
        return True  # spec.nodes was raised
    due = shrunk_at + parse_duration(elastic.grow_after)
    draft.wake(due)
    return draft.now >= due


def _seek_nodes(draft: Draft, *, growing: bool) -> None:
    """Which slots without a rank are to get a node: those of spares, and those that the gang is to grow by."""
    assignment, spec = draft.status.assignment, draft.spec
    filled = sum(1 for slot in draft.slot_range() if assignment.nodes[slot] and draft.rank(slot) < 0)
    grows = growing and draft.phase is Phase.RUNNING and draft.world < spec.nodes and _growth_is_due(draft)
    wanted = spec.spare_nodes + (spec.nodes - draft.world if grows else 0)
    sought = slots.sought(assignment, max(0, wanted - filled))
    if sought is not assignment:
        draft.status = changed(draft.status, assignment=sought)
        draft.admission_changed = True


def _take_size(draft: Draft, seats: Sequence[int]) -> None:
    """The ranks sit in ``seats`` from now on. Of those left out as many stay as spares as the spec asks for; when
    nodes were short, all of them: the gang is to grow again."""
    shrinks = len(seats) < draft.world
    resized = slots.resized(draft.status.assignment, seats)
    if shrinks and len(seats) == draft.spec.nodes:
        left_out = [s for s, rank in enumerate(slots.slot_ranks(resized)) if rank < 0 and resized.nodes[s]]
        resized = slots.retired(resized, left_out[draft.spec.spare_nodes :])
        draft.admission_changed = True
    full = len(seats) >= draft.spec.nodes
    draft.status = changed(
        draft.status,
        assignment=resized,
        resolved=changed(draft.status.resolved, nodes=len(seats)),
        recovery=changed(draft.status.recovery, shrunk_at=None if full else draft.stamp),
    )


def _joined(draft: Draft, more: Sequence[int]) -> list[int]:
    """The slots in rank order with ``more`` among them, each behind the last one of its rack."""
    seats = list(draft.ranked_slots())
    for slot in more:
        rack = rack_of(draft, slot)
        near = [place for place, other in enumerate(seats) if rack and rack_of(draft, other) == rack]
        seats.insert(near[-1] + 1 if near else len(seats), slot)
    return seats


def _is_saved(draft: Draft) -> bool:
    """The gang has saved for this just now, or nobody would; False while that is awaited."""
    save, grace = draft.status.checkpoint.save, grace_period(draft)
    if save is not None and is_settled_for(draft.status, AttemptEnd.RESIZED):
        since = draft.now - (save.time or 0.0)
        if save.outcome == RequestResult.SAVED and since <= 2 * grace:
            return True
        if save.outcome != RequestResult.SAVED and since < ASKS_AGAIN_AFTER:
            draft.wake((save.time or 0.0) + ASKS_AGAIN_AFTER)
            return False
    return not ask_for_save(draft, AttemptEnd.RESIZED, draft.stamp + grace)


def _end_attempt(draft: Draft, why: str) -> None:
    steps = [r.progress.step for r in draft.snapshot.reports.values() if r.progress is not None]
    draft.put_attempt(
        changed(
            draft.attempt(draft.status.attempt),
            ended_at=draft.stamp,
            message=why,  # and no rank: none failed
            last_step=max(steps, default=None),
            charged=False,
        ),
        cause=AttemptEnd.RESIZED,
        action=ActionWord.RESTART_IN_PLACE,
    )
    latest = latest_valid(draft.snapshot, draft.status)
    draft.status = changed(
        draft.status,
        attempt=draft.status.attempt + 1,
        checkpoint=changed(draft.status.checkpoint, latest=latest),
    )


def _cannot_take_along(draft: Draft, size: int) -> str:
    """Why a gang that trains would lose its work when it changes to ``size`` ranks, by what one rank sees."""
    if draft.spec.checkpoint is None:
        return "the run names no checkpoint tier, so it would start at step 0"
    first = draft.report(draft.ranked_slots()[0])
    rows = [row for row in first.inventory if row.verdict is Verdict.VALID] if first is not None else []
    newest = max(rows, key=lambda row: row.step, default=None)
    if newest is None:
        return "no checkpoint is valid yet"
    refusal = world_refusal(newest, size)
    return f"step {newest.step} {refusal}" if refusal else ""


def _cannot_load(draft: Draft, assignment: AssignmentStatus, size: int) -> str:
    """Why a gang of ``size`` ranks, assigned so, could not go on from what is saved."""
    if draft.spec.checkpoint is None:
        return ""
    checkpoint = draft.status.checkpoint
    found = candidates(draft.snapshot, changed(draft.status, assignment=assignment))
    quarantine = quarantine_of(checkpoint)
    valid = [
        one
        for one in found
        if one.verdict is Verdict.VALID
        and not in_quarantine(quarantine, one.tier, one.step, one.attempt)
        and (checkpoint.ceiling is None or one.step <= checkpoint.ceiling)
    ]
    refusals = [world_refusal(one, size) for one in valid]
    # One that was never complete is nothing to lose; one that cannot be judged may be good.
    ever_saved = checkpoint.latest or any(one.committed or one.verdict is Verdict.UNKNOWN for one in found)
    if "" in refusals or not ever_saved:
        return ""
    return f"step {valid[0].step} {refusals[0]}" if refusals else "no checkpoint is valid yet"


def _tell(draft: Draft, why_not: str) -> None:
    if draft.world == draft.spec.nodes and not why_not:
        draft.status = without_condition(draft.status, AT_FULL_SIZE)
        return
    words = f"{draft.world} of {draft.spec.nodes} nodes train"
    draft.condition(
        AT_FULL_SIZE, False, ConditionReason.CANNOT_RESIZE if why_not else ConditionReason.RESIZED, why_not or words
    )
