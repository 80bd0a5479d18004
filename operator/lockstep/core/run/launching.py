"""The way of a gang to the barrier: every phase has a deadline, and what misses it is named and replaced.

Unless the gang is slow as a whole: what is late together, or while others that were late still arrive, is waited for.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lockstep.api.base.names import pod_name
from lockstep.core.failures.breaker import is_slow, slow_in_words
from lockstep.core.failures.evidence import SLOW_TIMES, Loss, LossKind
from lockstep.core.failures.late_evidence import last_end
from lockstep.core.failures.ranks import is_to_join, was_terminated
from lockstep.core.failures.silence import rejoins_within
from lockstep.core.model.plan import CreatePod
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import LossReason, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import TOLD_AFTER, PodView
from lockstep.core.pods.gang import ca_config_map, template_for, worker_config_map
from lockstep.core.pods.launchers import may_join, takes_steps
from lockstep.core.pods.pod_groups import group_for, is_held_by_group
from lockstep.core.run.attendance import stands_ready
from lockstep.core.run.changed_spec import stop_before_pods_of_another_spec
from lockstep.core.run.replacement import no_other_node_is_left, replace_before_start, replace_spares
from lockstep.core.run.stopping import begin_stop

SAYS_WHY_WITHIN = 5.0
"""Seconds after which nobody waits any longer for the kubelet to say why it ended a pod."""
SHARED_TIER_IS_FULL = "the shared checkpoint tier is full"
"""How a worker's words begin for what is no fault of its node."""
SHARED_TIER_REFUSES = "the shared checkpoint tier refuses this user"
"""How they begin for what is none either, unless another rank may write there."""
STILL_PREPARING = "still preparing: "
"""How they begin while its check of the node goes on, and stands at something that does not answer."""
NO_STEPS_PORT = f"{STILL_PREPARING}its worker does not say at which port it takes steps"
_SHARED_TIER_HANGS = f"{STILL_PREPARING}the shared checkpoint tier"


_BEING_MADE = "ContainerCreating"
"""What the kubelet says of a container as long as nothing is wrong with it."""


class Stage(StrEnum):
    """How far a slot has come."""

    VACANT = "waits for a node"
    REFUSED = "its pod is refused"
    SCHEDULING = "its pod is not scheduled"
    HELD = "its pod waits for others of its PodGroup to fit"
    STARTING = "its container has not started"
    REGISTERING = "its worker has not registered"
    PREPARING = "its worker is not ready"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class SlotStage:
    """Where a slot is, and until when it may stay there (None: for ever)."""

    slot: int
    stage: Stage
    deadline: float | None
    detail: str = ""


def end_superseded_pods(plan: PlanBuilder) -> None:
    """End the pods that the assignment no longer asks for."""
    assignment = plan.status.assignment
    for pod in plan.snapshot.pods:
        current = assignment.incarnations[pod.slot] if pod.slot < len(assignment.nodes) else pod.incarnation + 1
        if pod.incarnation >= current:
            continue
        # The last dead pod of a slot is kept for its logs.
        if _is_about_to_say_why(plan, pod):
            continue
        if not pod.is_terminal or pod.incarnation < current - 1:
            plan.delete(pod, "superseded")


def _is_about_to_say_why(state: RunState, pod: PodView) -> bool:
    """Its kubelet ends the pod of its own accord: deleted now, it could be gone before anybody heard why."""
    report, ended = state.snapshot.reports.get(pod.slot), last_end(state)
    if report is None or report.pod_uid != pod.uid or not was_terminated(report) or pod.deleting or pod.is_terminal:
        return False
    seen = ended.seen_at if ended is not None else None
    return seen is not None and not state.reached(seen + SAYS_WHY_WITHIN)


def desire_pods(plan: PlanBuilder) -> None:
    """Make the pods that the assignment asks for; end the ones it no longer does."""
    end_superseded_pods(plan)
    assignment = plan.status.assignment
    if plan.status.start is not None and plan.status.start.attempt == plan.status.attempt:
        # Past the barrier a rank's missing pod is a loss, and comes back as the next incarnation.
        wanted = idle_slots(plan)
    else:
        wanted = [*plan.slot_range()]
    missing = [slot for slot in wanted if assignment.nodes[slot] and plan.pod(slot) is None]
    if not missing or stop_before_pods_of_another_spec(plan):
        return
    template = template_for(plan.run, plan.status, plan.tunables)
    plan.config_maps.append(worker_config_map(plan.run.namespace, plan.tunables.gang))
    plan.config_maps.append(ca_config_map(plan.run.namespace, plan.tunables.gang))
    plan.pod_group = group_for(plan.run, plan.status, template.body)
    for slot in missing:
        node, incarnation = assignment.nodes[slot], assignment.incarnations[slot]
        name = pod_name(plan.run.name, plan.run.uid, slot, incarnation)
        body = template.pod_body(slot, incarnation, node)
        plan.creates.append(CreatePod(plan.run.namespace, name, slot, incarnation, node, body))


def stages_of_ranks(state: RunState) -> list[SlotStage]:
    """How far every rank has come, in rank order."""
    return [_stage(state, slot) for slot in state.ranked_slots()]


def stages_of_idle(state: RunState) -> list[SlotStage]:
    """How far everyone has come whom the attempt goes on without, in slot order."""
    return [_stage(state, slot) for slot in idle_slots(state)]


def idle_slots(state: RunState) -> list[int]:
    """Those of spares, and of ranks that are yet to join the attempt that goes on."""
    if not state.has_spares and not may_join(state.run.spec):
        return []
    return [slot for slot in state.slot_range() if state.rank(slot) < 0 or is_to_join(state, slot)]


def enforce_deadlines(plan: PlanBuilder, reached: list[SlotStage]) -> str:
    """Replace the ranks that took too long; give the nodes back when no replacement can be had.

    Not while the cluster itself looks broken: what is late may all come, and nothing could take its place. Returns in
    words what is late together, and waited for; empty: nothing.
    """
    if plan.snapshot.leadership.disruption:
        return ""
    late, slow = _judged_alone(plan, _late(plan, reached), reached)
    hopeless = _no_fault_of_a_node([at for at, _, _ in late], reached)
    if hopeless is not None:
        why = hopeless.detail or plan.status.queue.message
        words = f"rank {plan.rank(hopeless.slot)}: {hopeless.stage.value}, too long by now"
        begin_stop(plan, StopReason.NODES_LOST, words + (f" ({why})" if why else ""))
    elif late:
        replace_before_start(plan, _losses(plan, late))
    return slow


def replace_late_spares(plan: PlanBuilder, reached: list[SlotStage]) -> str:
    """The same for spares, whatever the ranks do meanwhile: nobody waits for one, and nobody is charged."""
    if plan.snapshot.leadership.disruption:
        return ""
    late = _late(plan, [at for at in reached if at.stage is not Stage.REFUSED])  # a quota may have room for it later
    late, slow = _judged_alone(plan, late, reached)
    for at in reached:
        report = plan.report(at.slot)
        if report is not None and not report.polling and all(at is not other for other, _, _ in late):
            heard = max(report.received_at, plan.snapshot.leadership.since)
            patience = plan.tunables.deadlines.registered + plan.lag.allowance
            silent_until = heard + patience + plan.lag.deaf_since(heard)
            if plan.reached(silent_until):
                late.append((at, LossReason.LAUNCH_DEADLINE, f"no heartbeat for {plan.now - report.received_at:.0f} s"))
    replace_spares(plan, [loss for loss in _losses(plan, late) if not no_other_node_is_left(plan, loss)])
    return slow


_Late = tuple[SlotStage, LossReason, str]
"""Where a slot is, the reason in one word, and in words where the stage alone does not tell."""


def _late(state: RunState, reached: list[SlotStage]) -> list[_Late]:
    late = []
    for at in reached:
        report = state.report(at.slot)
        if at.stage is Stage.PREPARING and report is not None and _has_failed(report.problem, reached):
            late.append((at, LossReason.NODE_CHECK_FAILED, f"the worker's check of the node failed: {report.problem}"))
        elif at.deadline is not None and state.reached(at.deadline):
            late.append(
                (at, LossReason.NOT_SCHEDULED if at.stage is Stage.SCHEDULING else LossReason.LAUNCH_DEADLINE, "")
            )
    return late


def _judged_alone(state: RunState, late: list[_Late], reached: Sequence[SlotStage]) -> tuple[list[_Late], str]:
    """Those of the late that are late each for itself; and the others in words.

    Waited for are those that are late together, until nobody has got further for ``SLOW_TIMES`` the limit of their
    stage; and every one while another that was late has got further within its limit, and for as long as the latest
    took. All of it has an end, which rests on when pods were made and not on who leads since when.
    """
    slow = [at for at, reason, _ in late if reason is not LossReason.NODE_CHECK_FAILED and at.deadline is not None]
    if not slow or _is_told_why(slow, reached):
        return late, ""
    (moved, behind), limits = _late_moves(state), state.tunables.breaker
    together = is_slow(len(slow), state.world, limits)
    held = set()
    for at in slow:
        limit = _limit(state, at)
        assert at.deadline is not None
        until = max(moved + limit, at.deadline + behind)
        if together:
            until = max(until, max(moved, at.deadline) + SLOW_TIMES * limit)
        if limit and not state.reached(min(until, at.deadline + limits.longest)):
            held.add(at.slot)
    words = ""
    if held:
        stages = Counter(at.stage.value for at in slow if at.slot in held)
        most, count = stages.most_common(1)[0]
        what = most if count == len(held) else f"{most} ({count})"
        words = slow_in_words(len(held), state.world, what, state.lag)
    return [each for each in late if each[0].slot not in held], words


def _is_told_why(slow: Sequence[SlotStage], reached: Sequence[SlotStage]) -> bool:
    """All of the gang stands at one point, and there is a reason for it other than slowness."""
    return len(slow) == len(reached) and len({at.stage for at in slow}) == 1 and all(map(_has_reason, slow))


def _has_reason(at: SlotStage) -> bool:
    return bool(at.detail) and at.detail.partition(":")[0] != _BEING_MADE


def _limit(state: RunState, at: SlotStage) -> float:
    """How long a slot may stay in a stage that slowness can hold it in; 0: in any other."""
    limits = state.tunables.deadlines
    return {
        Stage.SCHEDULING: limits.scheduled,  # a scheduler that says nothing has had ten times that already
        Stage.STARTING: limits.scheduled + limits.started,
        Stage.REGISTERING: limits.registered,
        Stage.PREPARING: limits.registered + limits.ready,
    }.get(at.stage, 0.0)


def _late_moves(state: RunState) -> tuple[float, float]:
    """When a rank last got further that was late by then, and how late the latest was; both 0 where none was.

    What a new leader hears first is no news.
    """
    limits, rejoined = state.tunables.deadlines, state.snapshot.leadership.since + rejoins_within(state)
    last = behind = 0.0
    since = _gathers_since(state)  # what was slow before is over
    for slot in state.ranked_slots():
        pod = state.pod(slot)
        if pod is None:
            continue
        placed = pod.created_at + limits.scheduled
        moves = [(pod.bound_at, placed), (pod.started_at, placed + limits.started)]
        report = state.report(slot)
        if report is not None and pod.started_at is not None:
            due = _prepares_since(state, pod.started_at) + limits.registered
            heard = [(report.registered_at, due)]
            if stands_ready(report, state.status.attempt, takes_steps=takes_steps(state.run.spec)):
                heard.append((report.since, due + limits.ready))
            moves += [(at, due) for at, due in heard if at > rejoined]
        for at, due in moves:
            at = min(at, state.now) if at is not None else None  # some clocks of nodes are ahead
            if at is not None and at > max(due, since):
                last, behind = max(last, at), max(behind, at - due)
    return last, behind


def _prepares_since(state: RunState, started_at: float) -> float:
    """Since when a worker prepares for the attempt: its container has run, and the attempt is the one that gathers."""
    return max(started_at, _gathers_since(state))


def _gathers_since(state: RunState) -> float:
    """Since when nothing before the attempt is waited for; 0: there was nothing."""
    ended, renumbered_at = last_end(state), state.status.recovery.renumbered_at
    over = (ended.seen_at or ended.ended_at or 0.0) if ended is not None else 0.0
    return max(over, renumbered_at or 0.0)


def _losses(state: RunState, late: list[_Late]) -> list[Loss]:
    found = []
    for at, reason, why in late:
        node = state.status.assignment.nodes[at.slot]
        words = why or f"{at.stage.value} on {node} in time" + (f": {at.detail}" if at.detail else "")
        found.append(Loss(at.slot, node, LossKind.POD, reason, words, state.now))
    return found


def _no_fault_of_a_node(late: list[SlotStage], reached: list[SlotStage]) -> SlotStage | None:
    """The first slot that another node would not help: then the gang gives its nodes back and tries again later."""
    for at in late:
        unheard = at.stage is Stage.SCHEDULING and not at.detail  # the scheduler has not even looked at it
        if unheard or at.stage in (Stage.VACANT, Stage.REFUSED, Stage.HELD) or _is_met_by_all(at.detail, reached):
            return at
    # An image that cannot be pulled, a claim that does not exist: all of the gang is stuck at the same point.
    alike = len(late) == len(reached) > 1 and {at.stage for at in late} in ({Stage.STARTING}, {Stage.SCHEDULING})
    # No worker reaches the operator: their deadlines differ, as their containers started one after the other.
    unreached = len(reached) > 1 and all(at.stage is Stage.REGISTERING for at in reached)
    # What they all mount answers none of them.
    shared_hangs = len(reached) > 1 and all(at.detail.startswith(_SHARED_TIER_HANGS) for at in reached)
    return late[0] if late and (alike or unreached or shared_hangs) else None


def _has_failed(problem: str, reached: list[SlotStage]) -> bool:
    """The worker's check of its node came to an end, and another node may do better."""
    return bool(problem) and not _is_met_by_all(problem, reached) and not problem.startswith(STILL_PREPARING)


def _is_met_by_all(problem: str, reached: list[SlotStage]) -> bool:
    """What all nodes share takes nothing: another node would meet the same, and somebody may make room, or let it."""
    if problem.startswith(SHARED_TIER_REFUSES):
        return all(at.stage is not Stage.READY for at in reached)
    return problem.startswith(SHARED_TIER_IS_FULL)


def _time_to_schedule(state: RunState, pod: PodView) -> float:
    limits = state.tunables.deadlines
    if not pod.reason:
        return limits.vacant
    # The one before it on its node may be taking its time to end, and holds what this one needs.
    waits = any(p.node == pod.node and p.uid != pod.uid and not p.is_terminal for p in state.pods_of(pod.slot))
    return limits.scheduled + (limits.stop if waits else 0.0)


def _stage(state: RunState, slot: int) -> SlotStage:
    limits, lag = state.tunables.deadlines, state.lag
    calm_since = state.snapshot.leadership.calm_since
    assignment = state.status.assignment
    if not assignment.nodes[slot]:
        if state.rank(slot) < 0 or is_to_join(state, slot):
            return SlotStage(slot, Stage.VACANT, None)
        since = assignment.vacant_since if assignment.vacant_since is not None else state.now
        return SlotStage(slot, Stage.VACANT, max(since, calm_since) + limits.vacant)
    pod = state.pod(slot)
    if pod is None:
        name = pod_name(state.run.name, state.run.uid, slot, assignment.incarnations[slot])
        refused = state.snapshot.refused_creates.get(name)
        unjudged = refused is not None and not refused.is_verdict
        if refused is None or (unjudged and not state.reached(refused.since + TOLD_AFTER)):
            return SlotStage(slot, Stage.SCHEDULING, None)  # it is made in this very reconcile
        if unjudged:
            return SlotStage(slot, Stage.REFUSED, refused.since + limits.vacant + lag.allowance, refused.message)
        return SlotStage(slot, Stage.REFUSED, refused.since + limits.scheduled, refused.message)
    if not pod.bound or pod.started_at is None:
        detail = ": ".join(filter(None, (pod.reason, pod.message)))
        made = max(pod.created_at, calm_since) + lag.placing_allowance
        if is_held_by_group(pod):
            return SlotStage(slot, Stage.HELD, made + limits.vacant)
        if not pod.bound:
            return SlotStage(slot, Stage.SCHEDULING, made + _time_to_schedule(state, pod), detail)
        return SlotStage(slot, Stage.STARTING, made + limits.scheduled + limits.started, detail)
    report = state.report(slot)
    if report is None or report.pod_uid != pod.uid:
        return SlotStage(slot, Stage.REGISTERING, _due(state, pod.started_at, limits.registered))
    problem = report.problem
    if stands_ready(report, state.status.attempt, takes_steps=takes_steps(state.run.spec)):
        return SlotStage(slot, Stage.READY, None)
    if stands_ready(report, state.status.attempt, takes_steps=False):
        problem = NO_STEPS_PORT  # of another release it has none, and a pod that is made again has one of this
    since = _prepares_since(state, pod.started_at)
    return SlotStage(slot, Stage.PREPARING, _due(state, since, limits.registered + limits.ready), problem)


def _due(state: RunState, since: float, limit: float) -> float:
    """Until when a worker has to be heard of that began then: a new leader inherits what was waited before it."""
    leadership, lag = state.snapshot.leadership, state.lag
    since = max(since, leadership.calm_since)
    return max(since + limit, leadership.since + rejoins_within(state)) + lag.allowance + lag.deaf_since(since)
