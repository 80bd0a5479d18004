"""A gang without workers (worker: Disabled), from admission to its end: one branch of ``decide``.

There is no barrier: START is written first, then the pods are made, and they start as they come. There is nothing
that could be started again in a pod either: whatever ends an attempt, the next one has new pods for all ranks, and
its START is written only when every pod of earlier attempts is gone. Requests, stops, the end and the accounts are
those of every gang.
"""

from dataclasses import replace

from lockstep.api.base.changes import changed
from lockstep.api.base.names import pod_name
from lockstep.api.run_status import StartRecord
from lockstep.core.failures.evidence import why_closed
from lockstep.core.failures.ranks import succeeded_ranks
from lockstep.core.failures.recovery_record import forget_requeues, hold_back_attempt
from lockstep.core.model import assignment as slots
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import CreatePod
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.plural import plural
from lockstep.core.model.ranges import parse_ranges
from lockstep.core.model.reasons import ActionWord, EventReason, LossReason, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import PodView
from lockstep.core.model.start_record import put_start
from lockstep.core.model.totals_record import count_replaced
from lockstep.core.pods.plain_pods import PlainAttempt, PlainTemplate, master_port, nodelist
from lockstep.core.pods.pod_groups import group_for
from lockstep.core.run.attempt_end import next_attempt
from lockstep.core.run.changed_spec import stop_before_pods_of_another_spec
from lockstep.core.run.drain import leave_drained_nodes
from lockstep.core.run.handover import Gathering, Handover
from lockstep.core.run.launching import SlotStage, Stage, end_superseded_pods, enforce_deadlines, stages_of_ranks
from lockstep.core.run.plain.evidence import all_pods_were_seen, is_given_up
from lockstep.core.run.plain.recovery import answer_failures, mend_before_start
from lockstep.core.run.stopping import begin_stop

UNSEEN_PODS_WAIT = 60.0
"""Seconds in which pods may still appear whose creation nobody saw the answer of."""
_NOT_UP = frozenset({Stage.REFUSED, Stage.SCHEDULING, Stage.HELD, Stage.STARTING})
_NAMED = 3


def follow_plain_gang(plan: PlanBuilder, known: Handover) -> Handover:
    """Everything between admission and the end. Adds what the gang waits for before its next attempt, and what is late
    together."""
    if plan.world != plan.spec.nodes:
        words = f"spec.nodes is {plan.spec.nodes} now; without workers the gang queues again to change its size"
        begin_stop(plan, StopReason.REQUEUED, words)
        return known
    leave_drained_nodes(plan)
    if plan.phase is Phase.RUNNING:
        answer_failures(plan)
    else:
        mend_before_start(plan)
    if plan.phase is Phase.RUNNING:
        known = replace(known, slow=_follow_launch(plan))
    if plan.phase in (Phase.LAUNCHING, Phase.RECOVERING):
        _renew(plan)
        known = _gather(plan, known)
    if plan.status.stop is None:
        end_superseded_pods(plan)
        _make_pods(plan)
    return known


def ranks_not_up(state: RunState) -> list[SlotStage]:
    """Ranks of the attempt whose program has not begun, in rank order."""
    done = succeeded_ranks(state)
    return [at for at in stages_of_ranks(state) if at.stage in _NOT_UP and state.rank(at.slot) not in done]


def _follow_launch(plan: PlanBuilder) -> str:
    """Pods that do not come up end the attempt: the others wait for them in vain. Returns what is late together."""
    if not all_pods_were_seen(plan) and all(plan.pod(slot) is not None for slot in plan.slot_range()):
        plan.put_attempt(changed(plan.attempt(plan.status.attempt), started_at=plan.stamp))
    late = ranks_not_up(plan)
    if not late:
        if plan.status.recovery.requeues or plan.status.recovery.refusals is not None:
            plan.status = forget_requeues(plan.status)
        return ""
    number, before = plan.status.attempt, plan.status.assignment
    waits = {at.slot for at in late}  # whose program has begun has come as far as it can
    reached = [at if at.slot in waits else SlotStage(at.slot, Stage.READY, None) for at in stages_of_ranks(plan)]
    slow = enforce_deadlines(plan, reached)
    if plan.status.stop is not None or plan.status.assignment is before:
        return slow
    replaced = [at for at in late if plan.status.assignment.incarnations[at.slot] != before.incarnations[at.slot]]
    words = f"{plan.title(replaced[0].slot)} on {before.nodes[replaced[0].slot]}: {replaced[0].stage.value} in time"
    plan.put_attempt(
        changed(
            plan.attempt(number),
            ended_at=plan.stamp,
            seen_at=plan.stamp,
            message=words[:512],
            rank=plan.rank(replaced[0].slot),
            node=before.nodes[replaced[0].slot],
        ),
        cause=LossReason.LAUNCH_DEADLINE,
        action=ActionWord.REPLACE_GANG,
    )
    plan.status = next_attempt(plan.status, plan.stamp)
    return slow


def _renew(plan: PlanBuilder) -> None:
    """No slot takes part in two attempts with the same pod: an attempt's number stands in its environment."""
    start = plan.status.start
    if start is None:
        return  # admission has raised all incarnations
    assignment = plan.status.assignment
    took_part = {slot: member.incarnation for member in start.members for slot in parse_ranges(member.slots)}
    used = [slot for slot in plan.slot_range() if took_part.get(slot) == assignment.incarnations[slot]]
    if not used:
        return
    # New pods are not to be made where they would only wait.
    closed = [slot for slot in used if why_closed(plan, plan.snapshot.nodes.get(assignment.nodes[slot]))]
    stay = [slot for slot in used if slot not in closed]
    assignment = slots.advanced(assignment, stay) if stay else assignment
    if closed:
        assignment = slots.vacated(assignment, closed, plan.stamp)
        plan.admission_changed = True
    plan.status = count_replaced(slots.put(plan.status, assignment), len(stay), len(closed))


def _gather(plan: PlanBuilder, known: Handover) -> Handover:
    """Write START once there is a node for every rank and nothing of earlier attempts is left; else say what lacks."""
    vacant = [at for at in stages_of_ranks(plan) if at.stage is Stage.VACANT]
    if vacant:
        slow = enforce_deadlines(plan, vacant) or known.slow
        wait = "waits" if len(vacant) == 1 else "wait"
        waiting_for = f"{len(vacant)} of {plural(plan.world, 'rank')} {wait} for a node"
        return replace(known, slow=slow, gathering=Gathering(waiting_for=waiting_for))
    waiting_for = _waits_for(plan)
    if not waiting_for:
        _write_start(plan)
    return replace(known, gathering=Gathering(waiting_for=waiting_for))


def _waits_for(state: RunState) -> str:
    """What keeps the next attempt from being started, in words; empty: nothing."""
    left = [pod for pod in state.live_pods if _is_of_earlier_attempt(state, pod)]
    if left:
        named = ", ".join(f"{pod.name} on {pod.node}" for pod in left[:_NAMED])
        named += f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        unheard = [pod.node for pod in left if not state.snapshot.nodes[pod.node].ready]
        if unheard:
            named += (
                f"; {unheard[0]} is NotReady and cannot confirm it: once it is surely off, delete the node "
                "or taint it node.kubernetes.io/out-of-service"
            )
        return f"waits for pods of earlier attempts to end: {named}"
    earlier = next((entry for entry in reversed(state.status.attempts) if entry.number < state.status.attempt), None)
    if earlier is not None and earlier.ended_at is not None and earlier.started_at is None:
        until = (earlier.seen_at or earlier.ended_at) + UNSEEN_PODS_WAIT
        if not state.reached(until):
            return f"waits for pods of attempt {earlier.number} that may yet appear"
    not_before = state.status.recovery.not_before
    if not_before is not None and not state.reached(not_before):
        return "waits before the next attempt, as the last ones made no progress"
    nameless = [name for name in state.status.assignment.nodes if not _address(state, name)]
    if nameless:
        return f"node {nameless[0]} has no InternalIP, which its peers need"
    return ""


def _is_of_earlier_attempt(state: RunState, pod: PodView) -> bool:
    assignment = state.status.assignment
    current = assignment.incarnations[pod.slot] if pod.slot < len(assignment.nodes) else pod.incarnation + 1
    return pod.incarnation < current and not is_given_up(state.snapshot.nodes.get(pod.node))


def _address(state: RunState, name: str) -> str:
    node = state.snapshot.nodes.get(name)
    return node.internal_ip if node is not None else ""


def _write_start(plan: PlanBuilder) -> None:
    status = plan.status
    assignment, attempt = status.assignment, status.attempt
    addresses = [_address(plan, assignment.nodes[slot]) for slot in plan.ranked_slots()]
    start = StartRecord(
        attempt=attempt,
        assignment_hash=assignment.hash,
        master_address=addresses[0],
        master_port=master_port(plan.run.uid, attempt),
        members=slots.members(assignment),
    )
    plan.status = put_start(hold_back_attempt(plan.status, None), start)
    plan.put_attempt(plan.attempt(attempt))  # it counts as started when all of its pods were seen
    words = f"attempt {attempt} starts on {plural(plan.world, 'node')}; its pods start as they come (worker: Disabled)"
    if nodelist(addresses) is None:
        words += "; their addresses are too many for LOCKSTEP_NODELIST, which is left out"
    plan.event(EventReason.STARTED, words, action=ActionWord.START)


def _make_pods(plan: PlanBuilder) -> None:
    """The pods of the attempt that status tells of, until all of them were seen."""
    status, start = plan.status, plan.status.start
    if start is None or start.attempt != status.attempt or all_pods_were_seen(plan):
        return
    missing = [slot for slot in plan.slot_range() if plan.pod(slot) is None]
    if not missing or stop_before_pods_of_another_spec(plan):
        return
    nodes = status.assignment.nodes
    attempt = PlainAttempt(
        number=start.attempt,
        world=plan.world,
        master_address=start.master_address,
        master_port=start.master_port,
        addresses=tuple(_address(plan, nodes[slot]) for slot in plan.ranked_slots()),
    )
    template = PlainTemplate(plan.run, status, plan.tunables, attempt)
    plan.pod_group = group_for(plan.run, status, template.body)
    for slot in missing:
        incarnation = status.assignment.incarnations[slot]
        body = template.pod_body(slot, incarnation, nodes[slot], rank=plan.rank(slot))
        name = pod_name(plan.run.name, plan.run.uid, slot, incarnation)
        plan.creates.append(CreatePod(plan.run.namespace, name, slot, incarnation, nodes[slot], body))
