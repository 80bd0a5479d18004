"""Status that is behind what lives: restored from a backup, wiped, edited by hand.

Nothing is deleted and nothing is made until the status has been rebuilt from the pods and from what
their workers say. Attempt and incarnations stay as they run. What is ambiguous waits for a person.
"""

import json
from collections.abc import Mapping, Sequence

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import ResolvedStatus
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_true, without_condition
from lockstep.core.model.draft import Draft
from lockstep.core.model.ranges import parse_order, parse_ranges
from lockstep.core.model.reasons import ActionWord, ConditionReason, EventReason
from lockstep.core.model.snapshot import CollectiveStart, PodView, WorkerReport
from lockstep.core.model.start_record import to_status
from lockstep.core.pods.plain_pods import plain_reports

CONDITION = "StateRegression"


def hold_or_rebuild(draft: Draft) -> bool:
    """True when the status is behind; the other steps then have nothing to stand on."""
    why = _regression(draft)
    if why is None and slots.is_held(draft.status.assignment) and not _is_whole(draft.status.resolved):
        return _resolve_again(draft)
    if why is None:
        if is_true(draft.status, CONDITION):
            draft.status = without_condition(draft.status, CONDITION)
        return False
    newest = _newest_pods(draft)
    doubt = _ambiguity(draft, newest)
    if doubt is None:
        _rebuild(draft, newest)
        draft.event(
            EventReason.STATUS_REBUILT,
            f"{why}; status was rebuilt from {len(newest)} pods and their workers, attempt {draft.status.attempt}",
            action=ActionWord.REBUILD_STATUS,
            warning=True,
        )
        return False
    return _hold(draft, why, doubt)


def _hold(draft: Draft, why: str, doubt: str) -> bool:
    if find(draft.status, CONDITION) is None:
        draft.event(
            EventReason.STATE_REGRESSION, f"{why}; nothing is deleted ({doubt})", action=ActionWord.HOLD, warning=True
        )
    draft.condition(CONDITION, True, ConditionReason.STATUS_BEHIND_PODS, f"{why}; held, nothing is deleted: {doubt}")
    draft.wake(draft.now + 5.0)
    return True


def _resolve_again(draft: Draft) -> bool:
    """What the spec left open, as the pods carry it. True when none does."""
    why = "status.resolved was emptied"
    found = next((pod.resolved for pod in draft.live_pods if _is_readable(pod.resolved)), "")
    if not found:
        return _hold(draft, why, f"no pod has it in the annotation {names.ANNOTATION_RESOLVED}; restore the status")
    left = {name: value for name, value in draft.status.resolved if value}
    restored = ResolvedStatus.model_validate({**dict(ResolvedStatus.load(json.loads(found))), **left})
    draft.status = changed(draft.status, resolved=changed(restored, nodes=slots.world(draft.status.assignment)))
    draft.status = without_condition(draft.status, CONDITION)
    draft.event(
        EventReason.STATUS_REBUILT, f"{why}; it was read off a pod", action=ActionWord.REBUILD_STATUS, warning=True
    )
    return False


def _is_whole(resolved: ResolvedStatus) -> bool:
    return bool(resolved.nodes and resolved.cpu and resolved.memory)


def _regression(draft: Draft) -> str | None:
    """How the status is behind, in words; None when it is not."""
    status = draft.status
    assignment = status.assignment
    if draft.damage:
        return draft.damage
    own = [pod for pod in draft.snapshot.pods if pod.owner_uid == draft.run.uid]
    if own and not status.attempt:
        return f"pod {own[0].name} exists, but status knows of no attempt"
    live = {pod.uid: pod for pod in own if not pod.is_terminal}
    for pod in live.values():
        # The incarnations that were used outlive the nodes: pods of a gang that was given up are no riddle.
        if pod.slot >= len(assignment.incarnations):
            return f"pod {pod.name} runs in a slot that status does not know"
        if pod.incarnation > assignment.incarnations[pod.slot]:
            return f"pod {pod.name} is newer than incarnation {assignment.incarnations[pod.slot]} in status"
        if pod.incarnation < assignment.incarnations[pod.slot] or pod.slot >= len(assignment.nodes):
            continue
        if pod.node != assignment.nodes[pod.slot]:
            return f"pod {pod.name} is on {pod.node}, but status has slot {pod.slot} elsewhere"
        if pod.attempt > status.attempt:
            return f"pod {pod.name} is of attempt {pod.attempt}, but status at {status.attempt}"
    known = status.start.attempt if status.start is not None else 0
    for slot, report in draft.snapshot.reports.items():
        spoken = live.get(report.pod_uid)
        if spoken is None:
            continue
        given_up = spoken.deleting or spoken.incarnation < assignment.incarnations[spoken.slot]
        started = report.start.attempt if report.start is not None else 0
        if started > known and not given_up:
            return f"the worker of slot {slot} was started with attempt {started}, but status knows {known}"
        if _shown_attempt(report) > status.attempt:
            return f"the worker of slot {slot} is at attempt {_shown_attempt(report)}, but status at {status.attempt}"
    return None


def _newest_pods(draft: Draft) -> dict[int, PodView]:
    newest: dict[int, PodView] = {}
    for pod in draft.live_pods:
        if pod.slot not in newest or pod.incarnation > newest[pod.slot].incarnation:
            newest[pod.slot] = pod
    return newest


def _ambiguity(draft: Draft, newest: dict[int, PodView]) -> str | None:
    """Why the pods and reports do not say unambiguously what runs."""
    if draft.run.spec is None:
        return "the spec cannot be read"
    if not newest and draft.damage:
        return "no pod lives to rebuild it from; restore status.assignment, or delete the run"
    if not newest:
        return "its pods have ended, and whether the run had is not known; delete the run, or restore its status"
    reports = _reports_of(draft, newest)
    missing = [slot for slot in _ranked_slots(draft.run.spec, reports) if slot not in newest]
    if missing:
        return f"slots {missing[:5]} have no pod; delete the run, or restore its status"
    slots_wanted = draft.run.spec.nodes + draft.run.spec.spare_nodes
    if len(newest) > slots_wanted:
        return f"there are pods for {len(newest)} slots, but the spec asks for {slots_wanted}"
    if not draft.status.resolved.nodes and not _is_readable(newest[min(newest)].resolved):
        return f"pod {newest[min(newest)].name} does not carry the annotation {names.ANNOTATION_RESOLVED}"
    attempts = {pod.attempt for pod in newest.values()}
    if len(attempts) > 1:
        return f"there are pods of attempts {sorted(attempts)}"
    unheard = sorted(set(newest) - set(reports))
    if unheard:
        return f"waiting for the workers of slots {unheard[:5]}"
    records = {report.start for report in reports.values() if report.start is not None}
    newest_attempt = max((record.attempt for record in records), default=0)
    if len([record for record in records if record.attempt == newest_attempt]) > 1:
        return f"workers disagree on how attempt {newest_attempt} was started"
    return None


def _rebuild(draft: Draft, newest: dict[int, PodView]) -> None:
    reports = _reports_of(draft, newest)
    ranks = _ranked_slots(draft.spec, reports)
    count = max(*newest, draft.spec.nodes + draft.spec.spare_nodes - 1) + 1
    order = sorted(newest)
    seen = draft.status.assignment
    known = seen.incarnations
    used = {slot: max(newest[slot].incarnation if slot in newest else 0, _known(known, slot)) for slot in range(count)}
    if draft.damage:  # what lives is to go on, whatever number was written beside it
        used |= {slot: pod.incarnation for slot, pod in newest.items()}
    before = [number - 1 if slot in newest else number for slot, number in used.items()]
    base = changed(seen, nodes=(), incarnations=(*before, *known[count:]), rank_to_slot=())
    nodes = [newest[slot].node if slot in newest else "" for slot in range(count)]
    assignment = slots.rebuilt(slots.assigned(base, nodes, rank_to_slot=ranks))
    attempt = max([draft.status.attempt, 1, *(_shown_attempt(report) for report in reports.values())])
    record = _newest_record(list(reports.values()))
    draft.status = changed(draft.status, assignment=assignment, attempt=attempt)
    if not draft.status.resolved.nodes:
        draft.status = changed(draft.status, resolved=ResolvedStatus.load(json.loads(newest[order[0]].resolved)))
    if record is not None and (draft.status.start is None or draft.status.start.attempt < record.attempt):
        draft.status = changed(draft.status, start=to_status(record))
        draft.put_attempt(
            changed(draft.attempt(record.attempt), started_at=draft.stamp, resume_step=record.resume_step or None)
        )
    _remember_saves(draft)
    draft.status = without_condition(draft.status, CONDITION)


def _ranked_slots(spec: TrainingRunSpec, reports: Mapping[int, WorkerReport]) -> tuple[int, ...]:
    """The slot of every rank, as the last START that anybody took part in has it."""
    record = _newest_record(list(reports.values()))
    if record is None:
        return tuple(range(spec.nodes))
    world = sum(len(parse_ranges(ranges)) for ranges, _ in record.members)
    return parse_order(record.order) or tuple(range(world or spec.nodes))


def _known(incarnations: Sequence[int], slot: int) -> int:
    return incarnations[slot] if slot < len(incarnations) else 0


def _remember_saves(draft: Draft) -> None:
    """That something was saved must not be forgotten with the status: the next attempt would start at step 0."""
    saved = latest_valid(draft.snapshot, draft.status)
    resumed = draft.status.start.resume if draft.status.start is not None else None
    if not saved and resumed is not None:
        saved = (resumed,)
    draft.status = changed(draft.status, checkpoint=changed(draft.status.checkpoint, latest=saved))


def _reports_of(draft: Draft, newest: dict[int, PodView]) -> dict[int, WorkerReport]:
    if not draft.has_workers:
        return plain_reports(draft.run, draft.snapshot.nodes, newest)
    reports = draft.snapshot.reports
    return {slot: reports[slot] for slot, pod in newest.items() if slot in reports and reports[slot].pod_uid == pod.uid}


def _newest_record(reports: Sequence[WorkerReport]) -> CollectiveStart | None:
    records = [report.start for report in reports if report.start is not None]
    return max(records, key=lambda record: record.attempt, default=None)


def _shown_attempt(report: WorkerReport) -> int:
    record = report.start.attempt if report.start is not None else 0
    return max(report.attempt, report.ready_for, record)


def _is_readable(resolved: str) -> bool:
    try:
        return _is_whole(ResolvedStatus.load(json.loads(resolved)))
    except ValueError:
        return False
