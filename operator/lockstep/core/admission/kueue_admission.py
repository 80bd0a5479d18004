"""Runs that Kueue admits: requested, explained, and placed on the nodes that Kueue reserved.

Who goes first, and within which quota, is for Kueue to say. Which nodes are free stays ours to know: no node is ever
used twice, and where Kueue names one that is taken, the run waits and says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from lockstep.api.base.times import to_rfc3339
from lockstep.core.admission.cache.entry import Entry, PendingReason, is_unjudged
from lockstep.core.admission.cache.maintenance_windows import OWNER, clear_from, nodes_of, overrun
from lockstep.core.admission.cache.pending_reasons import overrun_words
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.jobs import NO_LIMIT, NodeClaim
from lockstep.core.admission.engine_adapter import lengths_of
from lockstep.core.admission.queueing.holds import queue_spec
from lockstep.core.admission.refill import closing_for, fill, may_not_replace
from lockstep.core.kueue.choice import Choice, choice_of, workload_name
from lockstep.core.kueue.kueue_record import forget_kueue, record_choice, workload_rested_on
from lockstep.core.kueue.pod_marks import marked, updates_of
from lockstep.core.kueue.reserved_nodes import Given, NotGivenError, NotNamedYetError, given
from lockstep.core.kueue.workload_request import Ask, ask_of, does_for
from lockstep.core.kueue.workload_status import is_held_back
from lockstep.core.model import assignment as slots
from lockstep.core.model.kueue import api_names
from lockstep.core.model.kueue.installation import Presence
from lockstep.core.model.kueue.workload import WorkloadView
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.tunables import Mode
from lockstep.core.pods.requirement import requirement_of

KUEUES = (
    WaitReason.WAITING_FOR_KUEUE,
    WaitReason.KUEUE_DISABLED,
    WaitReason.KUEUE_NOT_INSTALLED,
    WaitReason.LOCAL_QUEUE_NOT_FOUND,
    WaitReason.KUEUE_DEACTIVATED,
    WaitReason.KUEUE_ASSIGNMENT,
)
"""Reasons to wait that only runs have which Kueue admits."""
_MISSING = {
    Presence.ABSENT: (WaitReason.KUEUE_NOT_INSTALLED, f"{api_names.API_VERSION} is not served", "install it"),
    Presence.DISABLED: (
        WaitReason.KUEUE_DISABLED,
        "kueue.enabled of the operator's configuration is false",
        f"upgrade the release, which sets it where {api_names.API_VERSION} is served, or set it",
    ),
}
"""Reason, what lacks, remedy."""
_PASSING = (
    WaitReason.ADMISSION_REFUSED,
    WaitReason.EARLIER_PODS,
    WaitReason.GPU_HOURS_UNKNOWN,
    Mode.NO_NEW_ADMISSIONS.value,
    Mode.REPORT_ONLY.value,
)
"""Reasons to wait for which a run keeps its place with Kueue."""


@dataclass(frozen=True, slots=True)
class NodeGrant:
    """A whole gang's nodes, in rank order."""

    entry: Entry
    nodes: tuple[str, ...]
    gpu_type: str
    limit: float = NO_LIMIT
    """Seconds after which a maintenance window begins, for a run that may be cut; else ``NO_LIMIT``."""


class _WindowError(Exception):
    """A maintenance window is in the way."""

    def __init__(self, reason: PendingReason) -> None:
        super().__init__(reason.message)
        self.reason = reason


class KueueAdmission:
    """One cycle's part for the runs that Kueue admits."""

    def __init__(self, cycle: CycleState) -> None:
        self._cycle = cycle
        self._kueue = cycle.snapshot.kueue
        self._admitted: list[tuple[Entry, WorkloadView, Ask]] = []
        self.wake_at = inf
        """When the first of the windows is over that keep runs from their nodes."""
        self._queues = {name for name, view in cycle.snapshot.queues.items() if view.spec.backend == "Kueue"}

    def owns(self, entry: Entry) -> bool:
        """Whether the pending run is Kueue's; it is then requested there and gets its pending reason."""
        if entry.status.kueue is None and not entry.run.labels and entry.spec.queue not in self._queues:
            return False  # as almost everybody's, where there are thousands
        choice = choice_of(entry.run, self._cycle.snapshot.queues.get(entry.spec.queue))
        before = entry.status.kueue
        if is_unjudged(entry.run):  # what it asks for, and whom, is seen to once it is judged
            return choice is not None or before is not None
        if choice is None:
            if before is not None and self._holds_quota(entry):  # until it is deleted, as the run asks for nothing now
                going = PendingReason(
                    WaitReason.WAITING_FOR_KUEUE, "it is Kueue's no more, and its reservation is being given back"
                )
                entry.reason = entry.reason or going
                return True
            if before is not None:
                entry.status = forget_kueue(entry.status)
            return False
        if entry.reason is not None and entry.reason.word not in _PASSING:
            if before is not None:
                entry.status = forget_kueue(entry.status)
            return True
        why_not = self._cannot_ask(entry, choice)
        if why_not is not None:
            # What it cannot ask for now, it does not keep reserved under an older wish either.
            asks_otherwise = before is not None and (
                before.queue != choice.queue or why_not.word == WaitReason.PRIORITY_CLASS_NOT_FOUND
            )
            if asks_otherwise and self._kueue.is_present:
                entry.status = forget_kueue(entry.status)
            entry.reason = entry.reason or why_not
            return True
        if before is None or (before.queue, before.chosen_by) != (choice.queue, choice.by):
            given_up = before.given_up if before is not None else ""
            entry.status = record_choice(entry.status, choice.queue, choice.by, given_up)
        if entry.reason is None:
            entry.reason = self._reason(entry)
        return True

    def grants(self, windows: Sequence[NodeClaim]) -> Iterator[NodeGrant]:
        """Nodes for those whose reservation is there; a pending reason for the others.

        ``windows``: maintenance, which binds what Kueue admits as everybody else.
        """
        for entry, workload, ask in self._admitted:
            try:
                found = self._given(entry, workload)
                grant = self._grant(entry, found, windows)
            except _WindowError as window:
                entry.reason = window.reason
                continue
            except NotGivenError as problem:
                blockers = self._holders(problem.taken) if problem.taken else ()
                entry.reason = PendingReason(
                    WaitReason.KUEUE_ASSIGNMENT,
                    f"ClusterQueue {_cluster_queue(workload)} admitted it, but {problem}",
                    blockers,
                )
                continue
            entry.status = marked(entry.status, workload, ask, found.update)
            yield grant

    def replace_lost_nodes(self, entry: Entry) -> None:
        """Fill vacant slots with what Kueue put in place of lost nodes, or within what it reserved."""
        why_not = may_not_replace(self._cycle)
        if why_not is not None:
            entry.reason = why_not
            return
        workload = workload_rested_on(entry.run, entry.status, self._kueue)
        if not self._kueue.is_present or workload is None or not workload.is_admitted:
            entry.reason = PendingReason(
                WaitReason.WAITING_FOR_KUEUE, "the reservation that a lost node is to be replaced in is not there"
            )
            return
        vacant = slots.lacking(entry.status.assignment)
        try:
            nodes = self._replacements(entry, self._given(entry, workload), len(vacant), workload.unhealthy_nodes)
        except _WindowError as window:
            entry.reason = window.reason
            return
        except NotGivenError as problem:
            unhealthy = ", ".join(workload.unhealthy_nodes)
            if unhealthy and isinstance(problem, NotNamedYetError):
                entry.reason = PendingReason(
                    WaitReason.WAITING_FOR_KUEUE, f"Kueue seeks a node in place of {unhealthy}"
                )
            else:
                entry.reason = PendingReason(WaitReason.KUEUE_ASSIGNMENT, f"for {len(vacant)} lost nodes {problem}")
            return
        fill(entry, self._cycle, vacant, nodes)

    def _replacements(self, entry: Entry, found: Given, count: int, unhealthy: Sequence[str]) -> Sequence[str]:
        """Raises NotGivenError, also where no window is to blame; and _WindowError."""
        cycle, closed = self._cycle, closing_for(entry, self._cycle)
        kept = [node for node in entry.status.assignment.nodes if node]
        try:
            open_now = replace(cycle.cluster, booked=cycle.cluster.booked | closed.nodes)
            return found.replacements(open_now, kept, count, unhealthy)
        except NotGivenError:
            if not closed.nodes:
                raise
        nodes = cycle.index.mask(found.replacements(cycle.cluster, kept, count, unhealthy))
        raise _WindowError(closed.reason(nodes & closed.nodes))

    def _cannot_ask(self, entry: Entry, choice: Choice) -> PendingReason | None:
        kueue, namespace = self._kueue, entry.run.namespace
        if kueue.presence is Presence.UNKNOWN:
            return PendingReason(
                WaitReason.WAITING_FOR_KUEUE,
                "what Kueue has is being read; should that take long, the operator's log says why",
            )
        if kueue.presence in _MISSING:
            source = (
                f"the label {api_names.LABEL_QUEUE}" if choice.by == "Label" else f"TrainingQueue {entry.spec.queue}"
            )
            reason, why, remedy = _MISSING[kueue.presence]
            return PendingReason(
                reason, f"{source} says that Kueue admits it, and {why}; {remedy}, or take {source} away from the run"
            )
        if (namespace, choice.queue) not in kueue.local_queues:
            known = ", ".join(sorted(name for space, name in kueue.local_queues if space == namespace)) or "none"
            return PendingReason(
                WaitReason.LOCAL_QUEUE_NOT_FOUND,
                f"there is no LocalQueue {choice.queue} in namespace {namespace}; there are: {known}",
            )
        wanted = entry.run.labels.get(api_names.LABEL_PRIORITY_CLASS, "")
        if wanted and wanted not in kueue.classes:
            return PendingReason(
                WaitReason.PRIORITY_CLASS_NOT_FOUND,
                f"there is no WorkloadPriorityClass {wanted}; create it, or label the run otherwise",
            )
        return None

    def _reason(self, entry: Entry) -> PendingReason:
        """What it waits for. One whose nodes may be used is put aside for ``grants``."""
        kueue = entry.status.kueue
        assert kueue is not None
        key = entry.run.namespace, workload_name(entry.run)
        workload = self._kueue.workloads.get(key)
        if workload is None and key in self._kueue.refused:
            return PendingReason(
                WaitReason.WAITING_FOR_KUEUE, f"its Workload is refused: {self._kueue.refused[key]}; it is tried again"
            )
        if workload is None or workload.deleting or workload.uid == kueue.given_up:
            return PendingReason(
                WaitReason.WAITING_FOR_KUEUE, f"its Workload for LocalQueue {kueue.queue} is being made"
            )
        if workload.owner_uid != entry.run.uid:
            return PendingReason(
                WaitReason.KUEUE_ASSIGNMENT,
                f"a Workload {workload.name} that is not of this run is in the way; delete it",
            )
        if not workload.active:
            return PendingReason(WaitReason.KUEUE_DEACTIVATED, _deactivated(workload))
        if not workload.is_admitted:
            return PendingReason(WaitReason.WAITING_FOR_KUEUE, _pending(workload, kueue.queue))
        snapshot = self._cycle.snapshot
        queue = snapshot.queues.get(entry.spec.queue)
        ask = ask_of(entry.view, queue, self._kueue, snapshot.nodes, self._cycle.tunables, self._cycle.now)
        if not does_for(workload, ask):
            return PendingReason(
                WaitReason.WAITING_FOR_KUEUE,
                "the run, or its Workload, has changed since it was admitted; Kueue is asked again",
            )
        self._admitted.append((entry, workload, ask))
        return PendingReason(WaitReason.WAITING_FOR_KUEUE, "it is admitted and is about to get its nodes")

    def _given(self, entry: Entry, workload: WorkloadView) -> Given:
        assert workload.admission is not None
        cycle, queue = self._cycle, self._cycle.snapshot.queues.get(entry.spec.queue)
        try:
            updates = updates_of(workload, self._kueue)
        except ValueError as error:
            raise NotGivenError(str(error)) from error
        labels: Mapping[str, str] = queue.spec.node_selector if queue is not None else {}
        held = slots.is_held(entry.status.assignment)
        requirement = requirement_of(entry.view, labels, cycle.tunables, cycle.now, held=held)
        reserved = replace(requirement.gpus, resources=requirement.gpus.resources[:1])  # as the Workload names them
        requirement = replace(requirement, gpus=reserved)
        return given(
            workload.admission, entry.spec.nodes, updates, requirement, entry.spec.placement, cycle.snapshot.nodes
        )

    def _grant(self, entry: Entry, found: Given, windows: Sequence[NodeClaim]) -> NodeGrant:
        """Nodes that no window takes while the run has them, for its whole time or else for what is left of it.

        Raises NotGivenError, also where no window is to blame; and _WindowError.
        """
        cycle, now = self._cycle, self._cycle.now
        shortest, longest = lengths_of(entry, queue_spec(cycle.snapshot, entry.spec.queue))
        for length in dict.fromkeys((longest, shortest)):
            closing = nodes_of(overrun(windows, now, now + length))
            try:
                nodes, gpu_type = found.place(cycle.cluster, cycle.reserved | closing)
            except NotGivenError:
                if not closing:
                    raise
                continue
            mask = cycle.index.mask(nodes)
            if not mask & closing:
                next_one = min((claim.start for claim in windows if claim.nodes & mask), default=now + longest)
                return NodeGrant(entry, nodes, gpu_type, next_one - now if next_one < now + longest else NO_LIMIT)
        mask = cycle.index.mask(found.place(cycle.cluster, cycle.reserved)[0])
        ahead = overrun(windows, now, now + shortest)
        first = min((claim for claim in ahead if claim.nodes & mask), key=lambda claim: claim.start, default=ahead[0])
        self.wake_at = min(*(claim.end for claim in ahead), self.wake_at)
        message = overrun_words(shortest, first)
        if first.begins <= now:
            name, over = first.owner.removeprefix(OWNER), to_rfc3339(first.end)
            message = f"its nodes are in the maintenance window {name}, which is over at {over}"
        raise _WindowError(PendingReason(WaitReason.WINDOW, message, start=clear_from(windows, mask, now, shortest)))

    def _holds_quota(self, entry: Entry) -> bool:
        """A Workload of the run's is reserved: with nodes of ours beside it, the run would be counted twice."""
        found = self._kueue.workloads.get((entry.run.namespace, workload_name(entry.run)))
        if found is None or found.owner_uid != entry.run.uid or not self._kueue.is_present:
            return False
        return found.is_reserved and not (found.is_finished or found.deleting)

    def _holders(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """UIDs of the runs that hold any of ``nodes``."""
        return tuple(dict.fromkeys(uid for node in nodes for uid in self._by_node.get(node, ())))

    @cached_property
    def _by_node(self) -> Mapping[str, Sequence[str]]:
        """UIDs of the runs that hold each node."""
        found: dict[str, list[str]] = {}
        for run in self._cycle.snapshot.runs:
            for node in run.status.assignment.nodes:
                found.setdefault(node, []).append(run.uid)
        return found


def _cluster_queue(workload: WorkloadView) -> str:
    return workload.admission.cluster_queue if workload.admission is not None else ""


def _deactivated(workload: WorkloadView) -> str:
    evicted = workload.condition(api_names.EVICTED)
    why = f" ({evicted.reason}: {evicted.message})" if evicted is not None and evicted.status == "True" else ""
    return (
        f"Workload {workload.name} is deactivated{why}; set its spec.active to true, "
        "or suspend the run and let it go on, to be asked for anew"
    )


def _pending(workload: WorkloadView, queue: str) -> str:
    """Kueue's own words, where it has any."""
    if workload.is_evicted and workload.is_reserved:
        return "its reservation is being given back"
    waits = [check for check in workload.checks if check.state != "Ready"]
    if workload.is_true(api_names.QUOTA_RESERVED) and waits:
        named = "; ".join(
            f"{check.name} is {check.state}" + (f" ({check.message})" if check.message else "") for check in waits
        )
        return f"Kueue has the quota; admission checks are not through: {named}"
    requeued, reserved = workload.condition(api_names.REQUEUED), workload.condition(api_names.QUOTA_RESERVED)
    later = f"; Kueue tries again at {to_rfc3339(workload.requeue_at)}" if workload.requeue_at is not None else ""
    if requeued is not None and is_held_back(workload):
        return f"its reservation was given back, to ask anew: {requeued.message}"
    if requeued is not None and requeued.status == "False":
        return f"Kueue holds it back after {requeued.reason}: {requeued.message}{later}"
    if reserved is not None and reserved.status == "False":
        return f"Kueue: {reserved.reason}: {reserved.message}{later}"
    if workload.is_true(api_names.QUOTA_RESERVED):
        return "Kueue has the quota, and is to say where"
    return (
        f"LocalQueue {queue} has its Workload {workload.name}, of which Kueue has said nothing yet{later}; "
        "should that take long, see whether Kueue's manager runs"
    )
