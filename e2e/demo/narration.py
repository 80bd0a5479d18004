"""What the status of a run tells, in plain words: two looks at it make the lines between them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import StartRecord, TrainingRunStatus
from lockstep.core.model.assignment import slot_of_rank
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.reasons import ConditionType

STEPS_BETWEEN_LINES = 10
RANKS_ONE_BY_ONE = 16
RACKS_SHOWN = 5


def told(before: TrainingRunStatus, now: TrainingRunStatus, racks: Mapping[str, str]) -> list[str]:
    """What has changed since ``before``, in the order in which it happened. ``racks`` is by node."""
    return [
        *_admission(before, now),
        *_progress(before, now),
        *_failures(before, now),
        *_placement(before, now, racks),
        *_barrier(before, now),
        *_start(before, now),
        *_end(before, now),
    ]


def placement_map(status: TrainingRunStatus, racks: Mapping[str, str]) -> list[str]:
    """A line for each rank, or of a large gang for each stretch of ranks in one rack."""
    slots = [slot_of_rank(status.assignment, rank) for rank in range(len(status.assignment.nodes))]
    nodes = [status.assignment.nodes[slot] for slot in slots]
    if len(nodes) > RANKS_ONE_BY_ONE:
        return _by_rack(nodes, racks)
    lines = []
    for rank, (slot, node) in enumerate(zip(slots, nodes, strict=True)):
        where = f"{node} in {racks[node]}" if node in racks else node or "waits for a node"
        lines.append(f"    rank {rank}: {where} (incarnation {status.assignment.incarnations[slot]})")
    return lines


def _by_rack(nodes: list[str], racks: Mapping[str, str]) -> list[str]:
    lines, rank = [], 0
    for rack, stretch in groupby(nodes, lambda node: racks.get(node, "no rack")):
        there = list(stretch)
        lines.append(f"    ranks {rank}-{rank + len(there) - 1}: {rack}, {there[0]} to {there[-1]}")
        rank += len(there)
    left_out = len(lines) - RACKS_SHOWN
    return lines if left_out < 2 else [*lines[: RACKS_SHOWN - 1], f"    … {left_out} more racks …", lines[-1]]


def _admission(before: TrainingRunStatus, now: TrainingRunStatus) -> Iterator[str]:
    accepted = find(now, ConditionType.ACCEPTED)
    if accepted is not None and accepted.status == "False" and accepted != find(before, ConditionType.ACCEPTED):
        yield f"not accepted: {accepted.message}"
    elif is_true(now, ConditionType.ACCEPTED) and not is_true(before, ConditionType.ACCEPTED):
        yield "accepted: the spec is valid, and the API server would take its pod"
    if now.queue != before.queue and now.queue.message:
        yield f"waits in the queue at position {now.queue.position}: {now.queue.message}"


def _placement(before: TrainingRunStatus, now: TrainingRunStatus, racks: Mapping[str, str]) -> Iterator[str]:
    old, new = before.assignment, now.assignment
    if (old.nodes, old.incarnations) == (new.nodes, new.incarnations) or not new.nodes:
        return
    if not old.nodes:
        yield "placement: whole nodes for the whole gang, decided and recorded before any pod is made"
        yield from placement_map(now, racks)
        return
    for rank in range(len(new.nodes)):
        was, slot = slot_of_rank(old, rank), slot_of_rank(new, rank)
        if old.nodes[was] and not new.nodes[slot]:
            yield f"rank {rank} gives up {old.nodes[was]} and waits for another node; all others keep theirs"
        elif new.nodes[slot] and old.nodes[was] != new.nodes[slot]:
            yield f"rank {rank} gets {new.nodes[slot]}; everybody else stays where they are"
            yield from placement_map(now, racks)
        elif new.incarnations[slot] != old.incarnations[was]:
            yield f"rank {rank} gets a new pod on {new.nodes[slot]} (incarnation {new.incarnations[slot]})"


def _barrier(before: TrainingRunStatus, now: TrainingRunStatus) -> Iterator[str]:
    if not _gathers(now) or (_gathers(before) and now.nodes_ready == before.nodes_ready):
        return
    ready = find(now, ConditionType.GANG_READY)
    yield f"barrier: {now.nodes_ready} ready" + (f" ({ready.message})" if ready and ready.message else "")


def _gathers(status: TrainingRunStatus) -> bool:
    is_started = status.start is not None and status.start.attempt == status.attempt
    return bool(status.assignment.nodes) and not is_started and status.stop is None


def _start(before: TrainingRunStatus, now: TrainingRunStatus) -> Iterator[str]:
    start = now.start
    if start is None or (before.start is not None and before.start.attempt == start.attempt):
        return
    for rejected in now.checkpoint.rejected:
        yield f"passed over: step {rejected.step} in {rejected.path}: {rejected.reason}"
    yield f"everybody is at the barrier: attempt {start.attempt} starts on all ranks {_from(start)}"
    yield f"    rendezvous at {start.master_address}:{start.master_port}; no name was looked up"


def _from(start: StartRecord) -> str:
    if start.resume is None:
        return "at step 0"
    return f"from step {start.resume.step}, read and found whole ({start.resume.tier}: {start.resume.path})"


def _progress(before: TrainingRunStatus, now: TrainingRunStatus) -> Iterator[str]:
    known = {saved.tier: saved.step for saved in before.checkpoint.latest}
    for saved in now.checkpoint.latest:
        if saved.step > known.get(saved.tier, 0):
            yield f"checkpoint of step {saved.step} is valid on all ranks"
    step, told_of = now.progress.step, before.progress.step
    if now.progress.loss and (step < told_of or step // STEPS_BETWEEN_LINES > told_of // STEPS_BETWEEN_LINES):
        total = f"/{now.progress.total_steps}" if now.progress.total_steps else ""
        yield f"step {step}{total}, loss {now.progress.loss}"


def _failures(before: TrainingRunStatus, now: TrainingRunStatus) -> Iterator[str]:
    for attempt in now.attempts:
        if attempt.ended_at is None or attempt.cause == "Succeeded":
            continue
        known = next((other for other in before.attempts if other.number == attempt.number), None)
        if known is None or known.ended_at is None:
            yield f"failure seen: {in_words(attempt)}"
        elif known.cause != attempt.cause:
            yield f"the cause is now clear: {in_words(attempt)}"


def in_words(attempt: AttemptStatus) -> str:
    """What ended an attempt, and what is done about it."""
    last = "" if attempt.last_step is None else f" after step {attempt.last_step}"
    return f"attempt {attempt.number} ended{last} by {attempt.cause}: {attempt.message} -> {attempt.action}"


def _end(before: TrainingRunStatus, now: TrainingRunStatus) -> Iterator[str]:
    if is_true(now, ConditionType.FINISHED) and not is_true(before, ConditionType.FINISHED):
        succeeded = find(now, ConditionType.SUCCEEDED)
        yield f"finished: {now.state}" + (f", {succeeded.message}" if succeeded is not None else "")
