"""One run and its Workload: when the gang has to leave, and the Workload's status.

Kueue's quota is given back last: first the ranks have saved and ended, then the pods are gone, then status says
that the nodes are given back, and only then the Workload is released. Level-triggered, so that a write that was
lost is made again from what is seen.
"""

from collections.abc import Mapping, Set
from contextlib import suppress
from typing import Any

from lockstep.api.base.times import to_unix
from lockstep.core.kueue import workload_status
from lockstep.core.kueue.choice import choice_of, workload_name
from lockstep.core.kueue.kueue_record import record_choice, workload_rested_on
from lockstep.core.kueue.pod_marks import marked, updates_of
from lockstep.core.kueue.workload_request import Ask, ask_of, does_for, is_as_asked, workload_body
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, without_condition
from lockstep.core.model.kueue import api_names
from lockstep.core.model.kueue.installation import Presence
from lockstep.core.model.kueue.topology_assignment import TopologyAssignment
from lockstep.core.model.kueue.workload import ANNOTATION_AMENDED, PodSetUpdate, WorkloadView, merged
from lockstep.core.model.kueue.writes import WorkloadVerb, WorkloadWrite
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ConditionReason, ConditionType, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.test_only import is_test_only
from lockstep.core.placement.node_conditions import is_refused_by_us_alone
from lockstep.core.pods.leftover_pods import holds_up
from lockstep.core.pods.requirement import avoided_nodes
from lockstep.core.run.stopping import begin_stop, stop_after_save

LOST_AFTER = 60.0
"""Seconds for which a reservation is missing before the gang leaves: whoever removes Kueue removes Workloads first."""
ASKS_ANEW_AFTER = 60.0
"""Seconds that a Workload is kept, and a slot left vacant, for a node that Kueue names and only we refuse: some are
mended, some Kueue replaces, and a node that comes and goes does not make the run ask time and again."""
AMENDED_AGAIN_AFTER = 600.0
"""Seconds for which the Workload of a run that waits is not changed again for the nodes that it leaves out."""
_AT_WORK = (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING)


def leave_for_kueue(plan: PlanBuilder) -> bool:
    """Give the nodes back, after a save, when the reservation they rest on is wanted back or gone. True: it stops."""
    kueue, seen = plan.status.kueue, plan.snapshot.kueue
    if kueue is None or plan.phase not in _AT_WORK:
        return False
    if seen.presence is Presence.UNKNOWN:
        return False
    if seen.presence is Presence.ABSENT:
        gone = "Kueue's API is gone: nobody can want the nodes back, and the gang goes on; install Kueue again"
        plan.condition(ConditionType.KUEUE_RESERVATION, None, ConditionReason.KUEUE_NOT_INSTALLED, gone)
        return False
    if seen.presence is Presence.DISABLED:
        off = "kueue.enabled of the operator's configuration is false: nobody follows the reservation; the gang goes on"
        plan.condition(ConditionType.KUEUE_RESERVATION, None, ConditionReason.KUEUE_DISABLED, off)
        return False
    workload = _own_workload(plan)
    if workload is not None and workload.uid == kueue.workload_uid and (workload.is_evicted or not workload.active):
        stop_after_save(plan, StopReason.EVICTED_BY_KUEUE, f"Kueue: {_eviction(workload)}; it queues again")
        return True
    lost = _loss(workload, kueue.workload_uid)
    if lost:
        return _leave_in_time(plan, lost)
    plan.condition(
        ConditionType.KUEUE_RESERVATION,
        True,
        ConditionReason.ADMITTED,
        f"ClusterQueue {kueue.cluster_queue}, Workload {kueue.workload}",
    )
    assert workload is not None
    if plan.run.is_left_alone:
        return False  # nobody asks for what follows but the run itself
    return _resize(plan) or _ask_without_node(plan, workload)


def follow_kueue(plan: PlanBuilder) -> None:
    """What the Workload is to say or to be, as far as anything is to be written."""
    is_held = slots.is_held(plan.status.assignment) and plan.phase is not Phase.FINISHED
    if (
        not (is_held and plan.status.kueue is not None)
        and find(plan.status, ConditionType.KUEUE_RESERVATION) is not None
    ):
        plan.status = without_condition(plan.status, ConditionType.KUEUE_RESERVATION)
    if not plan.snapshot.kueue.is_present or plan.run.deleting or is_test_only(plan.run):
        return
    workload = plan.snapshot.kueue.workloads.get((plan.run.namespace, workload_name(plan.run)))
    if workload is None:
        if _waits(plan) and (ask := _wanted(plan)):
            body = workload_body(plan.run, ask)
            plan.workload = _write(plan, WorkloadVerb.CREATE, "asks for nodes", body=body)
        elif is_held and plan.status.kueue is not None:
            plan.workload = _write(plan, WorkloadVerb.FIND, "the gang rests on it, and it is not seen")
        return
    if workload.owner_uid != plan.run.uid or workload.deleting:
        return
    if any(holds_up(pod, plan.snapshot.nodes) for pod in plan.live_pods) and not _is_at_work(plan):
        return  # the reservation is used until they have ended
    plan.workload = _follow_workload(plan, workload)


def _follow_workload(plan: PlanBuilder, workload: WorkloadView) -> WorkloadWrite | None:
    kueue, now = plan.status.kueue, plan.now
    if plan.phase is Phase.FINISHED:
        if workload.is_finished:
            return None
        end = find(plan.status, ConditionType.SUCCEEDED)
        succeeded = end is not None and end.status == "True"
        return workload_status.finished(workload, succeeded, end.message if end is not None else "", now)
    if kueue is None and slots.is_held(plan.status.assignment) and workload.is_reserved:
        _adopt(plan, workload)
        return None
    if kueue is None or workload.uid == kueue.given_up:
        return _deleted(plan, workload, "the run does without this reservation")
    if slots.is_held(plan.status.assignment):
        return _gang_report(plan, workload)
    if workload.is_finished or not _waits(plan):
        return _deleted(plan, workload, "the run asks for nothing now")
    if workload.is_evicted and workload.is_reserved:
        return workload_status.released(workload, now)
    ask = _wanted(plan)
    if ask is None:
        return None
    if workload.is_reserved:
        if not does_for(workload, ask):
            return _deleted(plan, workload, "the run asks for something else now")
        if _names_avoided(plan, workload, ask) and plan.reached(_reserved_at(workload) + ASKS_ANEW_AFTER):
            why = "it names nodes that the run cannot have now"
            # Checks that were passed for this reservation tell nothing of the next.
            return _deleted(plan, workload, why) if workload.checks else workload_status.held_back(workload, why, now)
        return None  # a node that may be had again is no reason to give up a place
    if is_as_asked(workload, ask):
        return workload_status.requeued(workload, now)
    at = workload.amended_at if workload.amended_at <= now else 0
    held_back = workload_status.is_held_back(workload)
    if not held_back and does_for(workload, ask) and not plan.reached(at + AMENDED_AGAIN_AFTER):
        return None  # a node that comes and goes concerns every run that waits
    # A merge patch keeps what it does not name: a class that the run had, and has no more, is taken away by null.
    spec = {"priorityClassRef": None, **ask.spec}
    said = {**ask.annotations, ANNOTATION_AMENDED: str(int(plan.now))}
    body: Mapping[str, Any] = {"metadata": {"annotations": said}, "spec": spec}
    return _write(plan, WorkloadVerb.AMEND, "the run asks for something else now", workload, body)


def _adopt(plan: PlanBuilder, workload: WorkloadView) -> None:
    """A gang whose status was lost and rebuilt from its pods: it still rests on the reservation that is there, also
    where that is wanted back by now.

    One that was handed to our own admission meanwhile does not, and its Workload may go with its next wait.
    """
    snapshot = plan.snapshot
    choice = choice_of(plan.run, snapshot.queue)
    if choice is None or workload.admission is None or plan.run.spec is None:
        return
    plan.status = record_choice(plan.status, choice.queue, choice.by)
    ask = ask_of(plan.view, snapshot.queue, snapshot.kueue, snapshot.nodes, plan.tunables, plan.now)
    with suppress(ValueError):  # what cannot be made out now is not among the marks of the next pods
        plan.status = marked(plan.status, workload, ask, merged(updates_of(workload, snapshot.kueue)))
        return
    plan.status = marked(plan.status, workload, ask, PodSetUpdate(""))


def _gang_report(state: RunState, workload: WorkloadView) -> WorkloadWrite | None:
    assert state.status.kueue is not None
    if workload.uid != state.status.kueue.workload_uid or state.phase not in _AT_WORK:
        return None
    if workload.is_evicted or workload.is_finished:
        return None
    return workload_status.pods_ready(workload, state.phase is Phase.RUNNING, state.now)


def _waits(state: RunState) -> bool:
    """The run is pending for Kueue. One that was refused as it is now is not."""
    spec, accepted = state.run.spec, find(state.status, ConditionType.ACCEPTED)
    if state.phase is not Phase.PENDING or state.status.kueue is None or spec is None or spec.cancel:
        return False
    if choice_of(state.run, state.snapshot.queue) is None:
        return False  # its label was taken away, or its queue is ours now
    refused = accepted is not None and accepted.status == "False"
    return not (refused and accepted is not None and accepted.observed_generation == state.run.generation)


def _wanted(state: RunState) -> Ask | None:
    """What the run asks Kueue for; None: whether it may be as it is now is yet to be found out."""
    run, status = state.run, state.status
    accepted = find(status, ConditionType.ACCEPTED)
    if accepted is None or accepted.status != "True" or accepted.observed_generation != run.generation:
        return None
    snapshot = state.snapshot
    return ask_of(state.view, snapshot.queue, snapshot.kueue, snapshot.nodes, state.tunables, state.now)


def _is_at_work(state: RunState) -> bool:
    return state.phase in _AT_WORK


def _own_workload(state: RunState) -> WorkloadView | None:
    found = state.snapshot.kueue.workloads.get((state.run.namespace, workload_name(state.run)))
    return found if found is not None and found.owner_uid == state.run.uid else None


def _eviction(workload: WorkloadView) -> str:
    evicted = workload.condition(api_names.EVICTED)
    if evicted is None or evicted.status != "True":
        return f"Workload {workload.name} was deactivated"
    return f"{evicted.reason}: {evicted.message}" if evicted.message else evicted.reason


def _loss(workload: WorkloadView | None, uid: str) -> str:
    if workload is None or workload.deleting:
        return "its Workload was deleted, by whom is not known"
    if workload.uid != uid:
        return "its Workload was deleted and made again"
    if workload.is_finished:
        finished = workload.condition(api_names.FINISHED)
        return f"its Workload was finished by somebody else: {finished.reason if finished is not None else ''}"
    return "" if workload.is_reserved else "its Workload has no reservation any more"


def _leave_in_time(plan: PlanBuilder, lost: str) -> bool:
    """Written first, acted on a while later, if it is still so."""
    plan.condition(
        ConditionType.KUEUE_RESERVATION,
        False,
        ConditionReason.RESERVATION_LOST,
        f"{lost}; the gang saves and asks Kueue again",
    )
    shown = find(plan.run.status, ConditionType.KUEUE_RESERVATION)
    since = shown.last_transition_time if shown is not None and shown.status == "False" else plan.stamp
    if not plan.reached(since + LOST_AFTER):
        return False
    stop_after_save(plan, StopReason.RESERVATION_LOST, f"{lost}; it queues again")
    return True


def _resize(plan: PlanBuilder) -> bool:
    """``spec.nodes`` changed: a reservation cannot."""
    world = len(plan.status.assignment.nodes)
    if plan.spec.nodes == world:
        return False
    stop_after_save(
        plan, StopReason.REQUEUED, f"spec.nodes is {plan.spec.nodes} now, Kueue reserved {world}; it asks again"
    )
    return True


def _ask_without_node(plan: PlanBuilder, workload: WorkloadView) -> bool:
    """A node that only we know to be bad: Kueue replaces none that looks well to it, so it is asked without it."""
    topology = workload.admission.topology if workload.admission is not None else None
    lacking = slots.lacking(plan.status.assignment)
    if not lacking or workload.unhealthy_nodes or topology is None or not topology.names_hosts:
        return False
    left = _named(plan, topology) - set(plan.status.assignment.nodes)
    kept_off = {entry.node for entry in avoided_nodes(plan.status.recovery.excluded_nodes, plan.now)}
    if not left or not left <= kept_off | _refused_by_us_alone(plan, left):
        return False
    vacant_since = plan.status.assignment.vacant_since
    if not left <= kept_off and vacant_since is not None and not plan.reached(vacant_since + ASKS_ANEW_AFTER):
        return False  # one that is cordoned besides, as most are, Kueue replaces in a moment
    named = ", ".join(sorted(left)[:3])
    begin_stop(
        plan, StopReason.NODES_LOST, f"Kueue has nothing in place of {named}, which the run keeps off; it asks without"
    )
    return True


def _refused_by_us_alone(state: RunState, names: Set[str]) -> Set[str]:
    nodes, taints = state.snapshot.nodes, state.tunables.drain_taints
    return {name for name in names if name in nodes and is_refused_by_us_alone(nodes[name], taints)}


def swapped_out(state: RunState) -> Set[str]:
    """Nodes of the gang in whose place Kueue has put others: it gives them to somebody else from then on."""
    workload = workload_rested_on(state.run, state.status, state.snapshot.kueue)
    if workload is None or workload.unhealthy_nodes:
        return frozenset()
    held = {node for node in state.status.assignment.nodes if node}
    topology = workload.admission.topology if workload.admission is not None else None
    if topology is None or not topology.names_hosts or topology.count != len(state.status.assignment.nodes):
        return frozenset()
    named = _named(state, topology)
    return held - named if named - held else frozenset()


def _reserved_at(workload: WorkloadView) -> float:
    reserved = workload.condition(api_names.QUOTA_RESERVED)
    return to_unix(reserved.since) if reserved is not None and reserved.since else workload.created_at


def _names_avoided(state: RunState, workload: WorkloadView, ask: Ask) -> bool:
    """Kueue has named nodes that the run avoids now, and that its Workload did not leave out."""
    topology = workload.admission.topology if workload.admission is not None else None
    late = ask.avoided - workload.avoided
    return bool(late) and topology is not None and topology.names_hosts and not late.isdisjoint(_named(state, topology))


def _named(state: RunState, topology: TopologyAssignment) -> Set[str]:
    """The nodes whose host names Kueue has given; a host name that no node has stands for itself."""
    nodes = state.snapshot.nodes
    hosts = {view.labels.get(api_names.HOSTNAME_LEVEL, name): name for name, view in nodes.items()}
    return {hosts.get(host, host) for host in topology.hosts}


def _deleted(state: RunState, workload: WorkloadView, why: str) -> WorkloadWrite:
    return _write(state, WorkloadVerb.DELETE, why, workload)


def _write(
    state: RunState,
    verb: WorkloadVerb,
    why: str,
    workload: WorkloadView | None = None,
    body: Mapping[str, Any] | None = None,
) -> WorkloadWrite:
    run = state.run
    uid, version = (workload.uid, workload.resource_version) if workload is not None else ("", "")
    return WorkloadWrite(verb, run.namespace, workload_name(run), why, uid, version, body or {})
