"""Status that is behind what lives: restored from a backup, wiped, edited by hand.

Nothing is deleted and nothing is made until the status has been rebuilt from the pods and from what
their workers say. Attempt and incarnations stay as they run. What is ambiguous waits for a person, but not for ever:
who owns the gang could make it so, and others wait for its nodes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from lockstep.api.base import names, nesting
from lockstep.api.base.changes import changed
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import AssignmentStatus, ResolvedStatus
from lockstep.core.checkpoints.checkpoint_record import record_latest
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.failures.silence import rejoins_within
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_true, without_condition
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.plural import plural
from lockstep.core.model.quantities import are_quantities
from lockstep.core.model.ranges import parse_order, parse_ranges
from lockstep.core.model.reasons import ActionWord, ConditionReason, ConditionType, EventReason, StopReason
from lockstep.core.model.resolved_record import record_size, restore_resolved
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import PodPhase, PodView
from lockstep.core.model.start_record import CollectiveStart, restore_start, to_record
from lockstep.core.model.totals_record import count_as_begun
from lockstep.core.model.worker_report import WorkerReport
from lockstep.core.pods.leftover_pods import holds_up
from lockstep.core.pods.plain_pods import plain_reports
from lockstep.core.run.requeueing import or_end
from lockstep.core.run.stopping import stop_after_save

LONGEST_HOLD = 600.0
"""Seconds for which what is ambiguous waits for a person."""


def hold_or_rebuild(plan: PlanBuilder) -> bool:
    """True when the status is behind; the other steps then have nothing to stand on."""
    why = plan.damage or _regression(plan)
    if why is None and slots.is_held(plan.status.assignment) and not _is_whole(plan.status.resolved):
        return _resolve_again(plan)
    if why is None:
        if is_true(plan.status, ConditionType.STATE_REGRESSION):
            plan.status = without_condition(plan.status, ConditionType.STATE_REGRESSION)
        return False
    if _had_begun(plan):
        plan.status = count_as_begun(plan.status)
    newest = _newest_pods(plan)
    doubt = _ambiguity(plan, newest) or _rebuild(plan, newest)
    if not doubt:
        plan.event(
            EventReason.STATUS_REBUILT,
            f"{why}; status was rebuilt from {plural(len(newest), 'pod')} and what runs there, "
            f"attempt {plan.status.attempt}",
            action=ActionWord.REBUILD_STATUS,
            warning=True,
        )
        return False
    return _hold(plan, why, doubt)


def anything_to_stop(state: RunState) -> bool:
    """Some pod lives that is not on its way already."""
    return any(holds_up(pod, state.snapshot.nodes) for pod in state.live_pods)


def end_long_hold(plan: PlanBuilder) -> bool:
    """Stop a gang that nobody has helped in time; its nodes stay booked until its pods are gone. One of which only pods
    are left that have failed queues again; any other without pods or nodes is in nobody's way. True when it stops."""
    held = find(plan.status, ConditionType.STATE_REGRESSION)
    is_in_the_way = anything_to_stop(plan) or slots.is_held(plan.run.status.assignment)
    if held is None or not (is_in_the_way or _has_failed(plan)):
        return False
    # A new leader has yet to hear of the workers that would settle it.
    heard = plan.snapshot.leadership.since + rejoins_within(plan)
    if not plan.reached(max(held.last_transition_time + LONGEST_HOLD, heard)):
        return False
    words = f"status was behind for {LONGEST_HOLD / 60:.0f} minutes ({held.message}); it queues again"
    reason, message = or_end(plan, StopReason.REQUEUED, words, unasked=True)
    if not is_in_the_way and reason is StopReason.REQUEUED:
        _count_as_past(plan)
        plan.event(EventReason.STATUS_REBUILT, words, action=ActionWord.REBUILD_STATUS, warning=True)
        return False
    stop_after_save(plan, reason, message)
    return True


def _has_failed(state: RunState) -> bool:
    """Its pods have ended, and not all of them well: it was not over."""
    return any(pod.phase is PodPhase.FAILED for pod in _own_pods(state)) and not state.damage


def _count_as_past(plan: PlanBuilder) -> None:
    """What its pods were is behind it: the next ones are called otherwise, and the next attempt is another one."""
    known, pods = plan.status.assignment, _own_pods(plan)
    used = [*known.incarnations, *[0] * (plan.spec.nodes + plan.spec.spare_nodes - len(known.incarnations))]
    for pod in pods:
        if pod.slot < len(used):
            used[pod.slot] = max(used[pod.slot], pod.incarnation)
    past = slots.released(slots.counted(known, used))
    attempt = max([plan.status.attempt, 1, *(pod.attempt for pod in pods)])
    plan.status = changed(slots.put(plan.status, past), attempt=attempt)
    plan.status = without_condition(plan.status, ConditionType.STATE_REGRESSION)
    plan.admission_changed = True


def _own_pods(state: RunState) -> list[PodView]:
    return [pod for pod in state.snapshot.pods if pod.owner_uid == state.run.uid and _proves_something(state, pod)]


def _had_begun(state: RunState) -> bool:
    """Some attempt was started before this one, as far as pods and workers tell: what was saved may be its own."""
    own = _own_pods(state)
    ran = any(pod.is_terminal and pod.started_at is not None for pod in own)
    uids = {pod.uid for pod in own}
    heard = (report for report in state.snapshot.reports.values() if report.pod_uid in uids)
    return ran or any(report.attempt or report.start or report.ready_for > 1 for report in heard)


def _hold(plan: PlanBuilder, why: str, doubt: str) -> bool:
    if find(plan.status, ConditionType.STATE_REGRESSION) is None:
        plan.event(
            EventReason.STATE_REGRESSION, f"{why}; nothing is deleted ({doubt})", action=ActionWord.HOLD, warning=True
        )
    plan.condition(
        ConditionType.STATE_REGRESSION,
        True,
        ConditionReason.STATUS_BEHIND_PODS,
        f"{why}; held, nothing is deleted: {doubt}",
    )
    plan.wake(plan.now + 5.0)
    return True


def _resolve_again(plan: PlanBuilder) -> bool:
    """What the spec left open, as the pods carry it. True when none does."""
    why = "status.resolved was emptied"
    found = next((pod.resolved for pod in plan.live_pods if _is_readable(pod.resolved)), "")
    if not found:
        return _hold(plan, why, f"no pod has it in the annotation {names.ANNOTATION_RESOLVED}; restore the status")
    left = {name: value for name, value in plan.status.resolved if value}
    restored = ResolvedStatus.model_validate({**dict(ResolvedStatus.load(nesting.loads(found))), **left})
    plan.status = record_size(restore_resolved(plan.status, restored), slots.world(plan.status.assignment))
    plan.status = without_condition(plan.status, ConditionType.STATE_REGRESSION)
    plan.event(
        EventReason.STATUS_REBUILT, f"{why}; it was read off a pod", action=ActionWord.REBUILD_STATUS, warning=True
    )
    return False


def _is_whole(resolved: ResolvedStatus) -> bool:
    is_readable = are_quantities((resolved.cpu, resolved.memory, *resolved.resources.values()))
    return bool(resolved.nodes and resolved.cpu and resolved.memory) and is_readable


def _regression(state: RunState) -> str | None:
    """How the status is behind, in words; None when it is not."""
    status = state.status
    assignment = status.assignment
    own = _own_pods(state)
    if own and not status.attempt:
        return f"pod {own[0].name} exists, but status knows of no attempt"
    live = {pod.uid: pod for pod in own if not pod.is_terminal}
    for pod in live.values():
        if not slots.is_held(assignment) and not holds_up(pod, state.snapshot.nodes):
            continue  # what is left of a gang that was stopped
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
    return _newer_than_status(state, live)


def _newer_than_status(state: RunState, live: Mapping[str, PodView]) -> str | None:
    """As most ranks have it: one alone may say what it likes."""
    status, assignment = state.status, state.status.assignment
    most = slots.world(assignment) // 2 + 1
    known = status.start.attempt if status.start is not None else 0
    started: Counter[CollectiveStart] = Counter()
    ahead = 0
    for slot in set(state.ranked_slots()) & state.snapshot.reports.keys():
        report = state.snapshot.reports[slot]
        spoken = live.get(report.pod_uid)
        if spoken is None:
            continue
        given_up = spoken.deleting or spoken.incarnation < assignment.incarnations[spoken.slot]
        if report.start is not None and report.start.attempt > known and not given_up:
            started[report.start] += 1
        ahead += max(report.attempt, report.ready_for) > status.attempt
    for record, count in started.most_common(1):
        if count >= most:
            were = "was" if count == 1 else "were"
            return f"{plural(count, 'worker')} {were} started with attempt {record.attempt}, but status knows {known}"
    are = "is" if ahead == 1 else "are"
    words = f"{plural(ahead, 'worker')} {are} at a later attempt than {status.attempt}, as status has it"
    return words if ahead >= most else None


def _proves_something(state: RunState, pod: PodView) -> bool:
    """Nothing runs, or ever ran, in a pod that was bound to no node; one that was made for this run may yet run."""
    report = state.snapshot.reports.get(pod.slot)
    reported = report is not None and report.pod_uid == pod.uid
    return pod.bound or reported or _is_readable(pod.resolved)


def _newest_pods(state: RunState) -> dict[int, PodView]:
    newest: dict[int, PodView] = {}
    for pod in state.live_pods:
        if not _proves_something(state, pod):
            continue
        if pod.slot not in newest or pod.incarnation > newest[pod.slot].incarnation:
            newest[pod.slot] = pod
    return newest


def _ambiguity(state: RunState, newest: dict[int, PodView]) -> str | None:
    """Why the pods and reports do not say unambiguously what runs."""
    if state.run.spec is None:
        return "the spec cannot be read"
    if not newest and state.damage:
        return "no pod lives to rebuild it from; restore status.assignment, or delete the run"
    if not newest:
        return "its pods have ended, and whether the run had is not known; delete the run, or restore its status"
    heard = _reports_of(state, newest)
    reports = _believed(state, heard)
    missing = [slot for slot in _ranked_slots(state.run.spec, reports) if slot not in newest]
    if missing:
        return f"slots {missing[:5]} have no pod; delete the run, or restore its status"
    slots_wanted = state.run.spec.nodes + state.run.spec.spare_nodes
    if len(newest) > slots_wanted:
        return f"there are pods for {len(newest)} slots, but the spec asks for {slots_wanted}"
    if not state.status.resolved.nodes and not _is_readable(newest[min(newest)].resolved):
        return f"pod {newest[min(newest)].name} does not carry the annotation {names.ANNOTATION_RESOLVED}"
    attempts = {pod.attempt for pod in newest.values()}
    if len(attempts) > 1:
        return f"there are pods of attempts {sorted(attempts)}"
    unheard = sorted(set(newest) - set(heard))
    if unheard:
        return f"waiting for the workers of slots {unheard[:5]}"
    records = {report.start for report in reports.values() if report.start is not None}
    last = max(map(_age, records), default=(0, 0))
    if len([record for record in records if _age(record) == last]) > 1:
        return f"workers disagree on how attempt {last[0]} was started"
    return None


def _rebuild(plan: PlanBuilder, newest: dict[int, PodView]) -> str | None:
    """Why it is left as it was: what would be behind again at the next look would be rebuilt again, for ever."""
    before, reports = plan.status, list(_believed(plan, _reports_of(plan, newest)).values())
    assignment = _assignment_of(plan, newest)
    still = slots.damage(assignment)
    if not still:
        attempts = [*map(_shown_attempt, reports), *(pod.attempt for pod in newest.values())]
        plan.status = changed(slots.put(before, assignment), attempt=max([before.attempt, 1, *attempts]))
        record = _newest_record(reports)
        if not before.resolved.nodes:
            found = ResolvedStatus.load(nesting.loads(newest[min(newest)].resolved))
            plan.status = restore_resolved(plan.status, found)
        known = _age(to_record(before.start)) if before.start is not None else (0, 0)
        if record is not None and known < _age(record):
            plan.status = restore_start(plan.status, record)
        if record is not None and known[0] < record.attempt:
            plan.put_attempt(
                changed(
                    plan.attempt(record.attempt),
                    started_at=plan.stamp,
                    nodes=plan.world,
                    resume_step=record.resume_step or None,
                )
            )
        _remember_saves(plan)
        plan.status = without_condition(plan.status, ConditionType.STATE_REGRESSION)
        still = _regression(plan) or ""
    if still:
        plan.status = before
        return f"what its pods and workers say does not fit together: {still}; delete the run, or restore its status"
    return None


def _assignment_of(state: RunState, newest: dict[int, PodView]) -> AssignmentStatus:
    spec = state.spec
    ranks = _ranked_slots(spec, _believed(state, _reports_of(state, newest)))
    count = max(*newest, spec.nodes + spec.spare_nodes - 1) + 1
    seen = state.status.assignment
    known = seen.incarnations
    used = {slot: max(newest[slot].incarnation if slot in newest else 0, _known(known, slot)) for slot in range(count)}
    if state.damage:  # what lives is to go on, whatever number was written beside it
        used |= {slot: pod.incarnation for slot, pod in newest.items()}
    before = [number - 1 if slot in newest else number for slot, number in used.items()]
    base = changed(seen, nodes=(), incarnations=(*before, *known[count:]), rank_to_slot=())
    nodes = [newest[slot].node if slot in newest else "" for slot in range(count)]
    return slots.rebuilt(slots.assigned(base, nodes, rank_to_slot=ranks))


def _ranked_slots(spec: TrainingRunSpec, reports: Mapping[int, WorkerReport]) -> tuple[int, ...]:
    """The slot of every rank, as the last START that anybody took part in has it."""
    record = _newest_record(list(reports.values()))
    if record is None:
        return tuple(range(spec.nodes))
    world = sum(len(parse_ranges(member.slots)) for member in record.members)
    return parse_order(record.order) or tuple(range(world or spec.nodes))


def _known(incarnations: Sequence[int], slot: int) -> int:
    return incarnations[slot] if slot < len(incarnations) else 0


def _remember_saves(plan: PlanBuilder) -> None:
    """That something was saved must not be forgotten with the status: the next attempt would start at step 0."""
    saved = latest_valid(plan.snapshot, plan.status)
    resumed = plan.status.start.resume if plan.status.start is not None else None
    if not saved and resumed is not None:
        saved = (resumed,)
    plan.status = record_latest(plan.status, saved)


def _reports_of(state: RunState, newest: dict[int, PodView]) -> dict[int, WorkerReport]:
    if not state.has_workers:
        return plain_reports(state.run, state.snapshot.nodes, newest)
    reports = state.snapshot.reports
    return {slot: reports[slot] for slot, pod in newest.items() if slot in reports and reports[slot].pod_uid == pod.uid}


def _believed(state: RunState, reports: Mapping[int, WorkerReport]) -> Mapping[int, WorkerReport]:
    """Without those of an attempt that neither status has known nor most of them have reached."""
    if not state.status.attempt or not reports:
        return reports
    shown = sorted(map(_shown_attempt, reports.values()), reverse=True)
    reached = max(state.status.attempt, shown[len(shown) // 2])
    return {slot: report for slot, report in reports.items() if _shown_attempt(report) <= reached}


def _newest_record(reports: Sequence[WorkerReport]) -> CollectiveStart | None:
    records = [report.start for report in reports if report.start is not None]
    return max(records, key=_age, default=None)


def _age(record: CollectiveStart) -> tuple[int, int]:
    """By which of two records is the later one: nodes may have joined the attempt since it began."""
    return record.attempt, record.joins


def _shown_attempt(report: WorkerReport) -> int:
    record = report.start.attempt if report.start is not None else 0
    return max(report.attempt, report.ready_for, record)


@lru_cache(maxsize=64)  # all pods of a gang carry the same text, and each is asked about in every look at a launch
def _is_readable(resolved: str) -> bool:
    try:
        return _is_whole(ResolvedStatus.load(nesting.loads(resolved)))
    except ValueError:
        return False
