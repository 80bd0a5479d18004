"""One run: how it is in sentences, its attempts, where the time went, its loss, its checkpoints, its ranks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lockstep.api.base.changes import changed
from lockstep.api.base.times import to_rfc3339
from lockstep.controller.runtime.recent_events import RecentEvent
from lockstep.controller.web import measured, saves
from lockstep.controller.web.losses import Point
from lockstep.controller.web.timeline import timeline
from lockstep.core.checkpoints.verdicts import RankView, merge_inventories
from lockstep.core.failures import step_evidence
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import TYPES, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.worker_report import CheckpointReport, WorkerReport
from lockstep.present import explanation
from lockstep.present.amounts import zone_named
from lockstep.present.runs import completion, current_phase, nodes_of, pace, queue_of, ranked_nodes, state_of

NEWEST_SAVES = 6
"""Of each tier that every rank is asked about: a merge costs ranks times rows."""
MOST_RANKS = 16_384


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the page is made from; copies, as it is made beside the event loop."""

    run: RunView
    reports: Mapping[int, WorkerReport]
    losses: Sequence[Point]
    events: Sequence[RecentEvent]
    now: float


@zone_named()
def run(facts: RunFacts) -> dict[str, Any]:
    """Everything that somebody who may read the run is shown of it."""
    view, status = _legible(facts.run), facts.run.status
    state, reason = state_of(view)
    goodput = status.goodput.dump()
    goodput.pop("state", None)  # opaque: only the account itself reads it
    goodput |= _until_now(view, facts.now)
    order = {kind.value: index for index, kind in enumerate(TYPES)}
    return {
        "namespace": view.namespace,
        "name": view.name,
        "uid": view.uid,
        "set": view.set_name,
        "created": view.created_at,
        "before": status.previous[0].name if status.previous else "",
        "after": status.next.name if status.next is not None else "",
        "state": state,
        "reason": reason,
        "finished": is_true(status, ConditionType.FINISHED),
        "sentences": [*explanation.sentences(view, None, facts.now)],
        "queue": {"name": queue_of(view)} | status.queue.dump(),
        "nodes": nodes_of(view),
        "spares": status.spares,
        "attempt": status.attempt,
        "gpuType": status.resolved.gpu_type,
        "gpusPerNode": status.resolved.gpus_per_node,
        "progress": status.progress.dump(),
        "measured": measured.measured(view, facts.reports),
        "pace": pace(status.progress),
        "completion": completion(view, facts.now),
        "totals": status.totals.dump(),
        "goodput": goodput,
        "attempts": [*_attempts(view)],
        "stop": status.stop.dump() if status.stop is not None else None,
        "conditions": [c.dump() for c in sorted(status.conditions, key=lambda c: order.get(c.type, -1))],
        "checkpoints": _checkpoints(view, facts.reports),
        "losses": curve(facts.losses),
        "ranks": _ranks(view, facts.reports, facts.now),
        "exits": status.exits.dump(),
        "events": [asdict(event) | {"at": to_rfc3339(event.at)} for event in reversed(facts.events)],
    }


def _legible(view: RunView) -> RunView:
    """With ranks that make sense, where somebody has edited them by hand."""
    assignment = slots.bookable(view.status.assignment)
    return replace(view, status=changed(view.status, assignment=assignment))


def _attempts(view: RunView) -> Iterator[dict[str, Any]]:
    """As status has them. ``parts``: what the time went to; ``lost``: steps that do not count, and their seconds."""
    timelines = timeline(view.status, current_phase(view))
    for attempt in view.status.attempts:
        entry = attempt.dump()
        if (known := timelines.get(attempt.number)) is not None:
            entry["parts"] = [{"bucket": part.bucket, "from": part.begin, "to": part.end} for part in known.parts]
            entry["lost"] = {"steps": known.lost_steps, "seconds": known.lost_seconds}
        yield entry


def _until_now(view: RunView, now: float) -> dict[str, Any]:
    """The account is written seldom while nothing trains: whoever waits has waited until now."""
    bucket = {Phase.PENDING: "queue", Phase.SUSPENDED: "suspended"}.get(current_phase(view))
    if bucket is None:
        return {}
    goodput = view.status.goodput
    since = goodput.time if goodput.time is not None else view.created_at
    buckets = goodput.buckets.dump()
    return {"buckets": buckets | {bucket: buckets.get(bucket, 0) + max(0, int(now - since))}}


def curve(points: Sequence[Point]) -> dict[str, Any]:
    """Columns. A loss that is no number is null: JSON has no word for it, and a curve has a gap there."""
    return {
        "step": [point.step for point in points],
        "at": [round(point.at, 1) for point in points],
        "loss": [point.loss if math.isfinite(point.loss) else None for point in points],
        "attempt": [point.attempt for point in points],
    }


def _checkpoints(view: RunView, reports: Mapping[int, WorkerReport]) -> dict[str, Any]:
    status = view.status.checkpoint
    archive = status.archive
    return {
        "tiers": view.spec is not None and view.spec.checkpoint is not None,
        "found": [*_found(view, reports)],
        "latest": [saved.dump() for saved in status.latest],
        "rejected": [passed.dump() for passed in status.rejected],
        "quarantined": [bad.dump() for bad in status.quarantined],
        "archived": [saved.dump() for saved in archive.published],
        "archiveMessage": archive.message,
        "cadence": status.cadence.dump(),
        "observed": saves.observed(view, reports),
        "save": status.save.dump() if status.save is not None else None,
        "choice": status.choice,
        "resume": status.resume.dump() if status.resume is not None else None,
    }


def _found(view: RunView, reports: Mapping[int, WorkerReport]) -> Iterator[dict[str, Any]]:
    """The newest checkpoints as the whole gang sees them; nothing while no worker is heard."""
    assignment = view.status.assignment
    if not assignment.nodes or not reports:
        return
    by_rank = {
        rank: replace(report, inventory=_newest(report.inventory))
        for slot, rank in enumerate(slots.slot_ranks(assignment))
        if rank >= 0 and (report := reports.get(slot)) is not None
    }
    nodes = tuple(assignment.nodes[slot] for slot in slots.ranked_slots(assignment))
    for each in merge_inventories(RankView(nodes, by_rank), view.uid, view.status.checkpoint.latest):
        yield {
            "tier": each.tier,
            "step": each.step,
            "attempt": each.attempt,
            "verdict": each.verdict,
            "reason": each.reason,
            "format": each.format,
            "path": each.path,
            "bytes": each.load_bytes,
        }


def _newest(rows: Sequence[CheckpointReport]) -> tuple[CheckpointReport, ...]:
    kept: list[CheckpointReport] = []
    room: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: (row.step, row.attempt), reverse=True):
        room[row.tier] = room.get(row.tier, NEWEST_SAVES) - 1
        if room[row.tier] >= 0:
            kept.append(row)
    return tuple(kept)


def _ranks(view: RunView, reports: Mapping[int, WorkerReport], now: float) -> dict[str, Any]:
    """Columns, in rank order. ``silent``: seconds since the last word, in tens; -1: never heard.

    ``steps``: what of a rank's steps failed first.
    """
    nodes = ranked_nodes(view)[:MOST_RANKS]
    seats = slots.ranked_slots(view.status.assignment)
    heard = [reports.get(seats[rank]) for rank, _ in nodes]
    return {
        "node": [node for _, node in nodes],
        "phase": ["" if report is None else str(report.phase) for report in heard],
        "section": ["" if report is None else report.timing.section for report in heard],
        "step": [
            report.progress.step if report is not None and report.progress is not None else None for report in heard
        ],
        "silent": [-1 if report is None else max(0, int(now - report.received_at) // 10 * 10) for report in heard],
        "problem": {
            str(rank): report.problem
            for (rank, _), report in zip(nodes, heard, strict=True)
            if report is not None and report.problem
        },
        "steps": {
            str(rank): words
            for rank, words in step_evidence.failures(
                reports, slots.slot_ranks(view.status.assignment), view.status.attempt
            ).items()
        },
    }
