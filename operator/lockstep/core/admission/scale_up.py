"""Which pending gangs ask the cluster's autoscaler for nodes that do not exist, and how.

Those that would start next if there were such nodes: who waits for nothing but nodes, within what the quotas leave and
in the order of the queue, as long as all together ask for no more than the installation allows. Status says what is
asked for before anything is made of it; ``core/run/scale_up.py`` carries it out, and forgets it.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain

from lockstep.api.base.changes import changed
from lockstep.api.queue import ANY_GPU_TYPE, TrainingQueueSpec
from lockstep.api.run_status import ScaleUpStatus
from lockstep.core.admission.cache.pending_reasons import quota_words
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.cycle_result import Wait
from lockstep.core.admission.engine.jobs import NO_LIMIT
from lockstep.core.admission.engine.quota import QuotaBook
from lockstep.core.admission.engine_adapter import ending_nodes, running_jobs, wanted_of
from lockstep.core.admission.queueing.order import waits_since
from lockstep.core.admission.reservations import Reservations
from lockstep.core.admission.scheduling import CycleSchedule, StillPending
from lockstep.core.model.accelerators import says
from lockstep.core.model.conditions import find, with_condition, without_condition
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.plural import plural
from lockstep.core.model.reasons import ConditionReason, ConditionType, WaitReason
from lockstep.core.model.scale_up_record import record_scale_up, withdraw_scale_up
from lockstep.core.placement.node_pool import CandidateNodes
from lockstep.core.pods.placeholders import DEFAULT_CLASS
from lockstep.core.pods.requirement import is_as_wished, wish_hash

PATIENCE = 10.0
"""Seconds that a run waits before it asks: what is about to end may do."""
SOON = 600.0
"""Seconds within which a promised start is waited for: nodes that are made take as long."""
_APART = (
    "enough nodes are free, and do not lie as spec.placement.topology wants them: no autoscaler can be asked for that"
)


def ask_for_nodes(
    held: Sequence[RunRow], schedule: CycleSchedule, left: StillPending, reservations: Reservations, cycle: CycleState
) -> None:
    """Write down what runs ask for from now on, or no longer, and why those cannot that would be next."""
    queues = {name: view.spec for name, view in cycle.snapshot.queues.items() if view.spec.scale_up == "Enabled"}
    if not queues or left.is_cut or not schedule.is_final:
        return  # who is in a queue that asks for nothing takes its requests back by itself
    asking = _Asking(cycle, queues)
    for row, wait in zip(left.rows, schedule.result.waits.in_order, strict=True):
        if row.queue in queues:
            asking.consider(row, None if reservations.keeps_for(row.uid) else wait)
    for row in held:
        if row.queue in queues:
            _withdraw(row)


def may_be_made(row: RunRow, wait: Wait, cycle: CycleState) -> bool:
    """Nodes that do not exist may be made for one that only asks when it would start, were it next in its queue."""
    view = cycle.snapshot.queues.get(row.queue)
    if view is None or view.spec.scale_up != "Enabled":
        return False
    asking = _Asking(cycle, {row.queue: view.spec})
    wanted = next(asking.types(row), None)  # whoever has the quota now gives it back
    return not asking.problem(row, wanted) and not asking.comes_anyway(row, wait)


class _Asking:
    """The runs that ask, in their order: whoever comes later has what they leave."""

    def __init__(self, cycle: CycleState, queues: dict[str, TrainingQueueSpec]) -> None:
        self._cycle = cycle
        self._queues = queues
        self._settings = cycle.tunables.scale_up
        self._book: QuotaBook | None = None
        self._asked = 0
        self._told: set[str] = set()
        self._closed: set[str] = set()
        """Queues with a run that waits and does not ask: nobody behind it is next."""

    def consider(self, row: RunRow, wait: Wait | None) -> None:
        """The next in line; ``wait`` None: nodes are kept for it already."""
        by_turn = wait is not None and wait.kind == WaitReason.PRIORITY and row.queue not in self._closed
        if wait is None or not (wait.kind == WaitReason.RESOURCES or by_turn):
            self._closed.add(row.queue)
            _withdraw(row)
            return
        gpu_type = self._gpu_type(row)
        problem = self.problem(row, gpu_type)
        if problem:
            self._closed.add(row.queue)
            _withdraw(row)
            self._tell(row, problem)
            return
        if row.run.status.scale_up is None:
            if row.unjudged:
                self._closed.add(row.queue)
                return
            comes_anyway = self.comes_anyway(row, wait)
            asks_at = waits_since(row.run, self._cycle.now) + PATIENCE
            if comes_anyway or asks_at > self._cycle.now:
                self._cycle.wake(wait.start if comes_anyway else asks_at)
                self._closed.add(row.queue)
                strict = any(rule.mode == "Required" for rule in row.entry.spec.placement.topology)
                self._tell(row, _APART if comes_anyway and strict and wait.reservation is None else "")
                return
        self._ask(row, gpu_type or "")

    def _ask(self, row: RunRow, gpu_type: str) -> None:
        entry, run, cycle = row.entry, row.run, self._cycle
        nodes, before = entry.spec.nodes, run.status.scale_up
        self._asked += nodes
        self._quotas.charge(row.uid, row.queue, gpu_type, nodes, cycle.now, cycle.now + NO_LIMIT)
        self._tell(row, "")
        by = before.by if before is not None else self._settings.by
        wanted = ScaleUpStatus(
            by=by,
            nodes=nodes,
            generation=run.generation,
            wish=wish_hash(entry.spec),
            gpu_type=gpu_type,
            gpu_resource=self._make(row, gpu_type),
            node_selector=dict(self._queues[row.queue].node_selector),
            provisioning_class=(self._queues[row.queue].provisioning_class or DEFAULT_CLASS)
            if by == "ProvisioningRequest"
            else "",
            since=float(int(cycle.now)),
        )
        if before is None:
            entry.status = record_scale_up(entry.status, wanted)
        elif before.nodes and not (is_as_wished(before, run) and wanted == _alike(before, wanted)):
            _withdraw(row)  # what was made of it goes first, and then it asks anew

    def _gpu_type(self, row: RunRow) -> str | None:
        """The GPU type whose nodes are asked for, "" for any; None: the quotas leave no room for any that would do."""
        spec = row.entry.spec
        found = list(self.types(row))
        return next((each for each in found if self._quotas.refusal(row.queue, each, spec.nodes) is None), None)

    def types(self, row: RunRow) -> Iterator[str]:
        """Those that would do, the most wanted first."""
        spec, known = row.entry.spec, self._cycle.tunables.gpu_types
        if spec.placement.gpu_types:
            yield from (name for name in spec.placement.gpu_types if name in known)
            return
        requirement = self._cycle.requirements(row.entry, row.terms)[-1]
        labels = dict(requirement.labels)
        said = [name for name, marks in known.items() if marks and marks.items() <= labels.items()]
        quotas = [quota.gpu_type for quota in self._queues[row.queue].quotas]
        if said or not requirement.gpus.count or not quotas:
            yield from said or [""]
            return
        yield from (name for name in quotas if name in known)
        if ANY_GPU_TYPE in quotas:
            yield ""

    def _make(self, row: RunRow, gpu_type: str) -> str:
        """What the GPUs of such nodes are requested as: those of the nodes that there are, else by the labels that are
        asked for. Where neither tells it stays as it was."""
        requirement = self._cycle.requirements(row.entry, row.terms)[-1]
        gpus, index, before = requirement.gpus, self._cycle.index, row.run.status.scale_up
        if not gpus.count:
            return ""
        nodes = (index.of_gpu_type(gpu_type) if gpu_type else index.everything) & ~index.closed_to(requirement)
        labels = {**index.gpu_types.get(gpu_type, {}), **dict(requirement.labels)}
        found = (name for name in gpus.resources if index.accelerator(name).having & nodes)
        said = (name for name in gpus.resources if says(labels, index.accelerators.get(name, ())))
        known = before.gpu_resource if before is not None and before.gpu_resource in gpus.resources else gpus.resource
        return next(chain(found, said), known)

    @property
    def _quotas(self) -> QuotaBook:
        if self._book is None:
            self._book = QuotaBook(self._cycle.quotas, self._cycle.now, running_jobs(self._cycle))
        return self._book

    def problem(self, row: RunRow, gpu_type: str | None) -> str:
        """Why the run cannot ask although it is next; empty: it can."""
        spec, settings = row.entry.spec, self._settings
        if spec.placement.nodes:
            return "spec.placement.nodes names the nodes it may have, and others would not do; leave it out"
        if self._cycle.requirements(row.entry, row.terms)[-1].gpus.count is None:
            return "how many GPUs a node has that does not exist nobody knows; write spec.gpusPerNode, 0 for none"
        if gpu_type is None:
            types = list(self.types(row))
            refusal = self._quotas.refusal(row.queue, types[0], spec.nodes) if types else None
            return (
                quota_words(refusal, spec.nodes)
                if refusal is not None
                else "it has no GPU type that the operator knows"
            )
        if self._asked + spec.nodes > settings.max_nodes:
            others = ", and others ask already" if self._asked else ""
            return (
                f"it needs {plural(spec.nodes, 'node')}{others}; scaleUp.maxNodes of the operator's configuration is "
                f"{settings.max_nodes}"
            )
        by = row.run.status.scale_up.by if row.run.status.scale_up is not None else settings.by
        value = self._cycle.snapshot.priority_classes.get(settings.priority_class)
        if by == "Placeholders" and (value is None or value >= 0):
            what = "is not there" if value is None else f"has the value {value}"
            return (
                f"placeholder pods need PriorityClass {settings.priority_class} with a negative value, which {what}; "
                "the chart makes it, or name another in scaleUp.priorityClass of the operator's configuration"
            )
        return ""

    def comes_anyway(self, row: RunRow, wait: Wait) -> bool:
        """Nodes that are there will do: they are free again in a moment, or at a time that is known."""
        cycle, entry = self._cycle, row.entry
        if wait.start is not None and wait.start - cycle.now <= SOON:
            return True
        requirement = cycle.requirements(entry, row.terms)[-1]
        nodes = CandidateNodes.for_requirement(cycle.index, requirement, wanted_of(entry, row.terms, cycle))
        soon = nodes.able & (~cycle.cluster.booked | self._ending)
        soon |= (nodes.able | nodes.passing) & cycle.all_returning
        soon |= nodes.withheld
        return soon.bit_count() >= entry.spec.nodes

    @cached_property
    def _ending(self) -> NodeSet:
        """Nodes that pods being deleted still hold, for no longer than nodes take to be made."""
        found, now = EMPTY, self._cycle.now
        for ends, nodes in ending_nodes(self._cycle, now).items():
            found |= nodes if ends - now <= SOON else EMPTY
        return found

    def _tell(self, row: RunRow, problem: str) -> None:
        """Why it cannot ask, which one of a queue is told; empty: it can, or is not to."""
        entry, kind = row.entry, ConditionType.SCALE_UP
        if problem and row.queue in self._told:
            problem = ""
        elif problem:
            self._told.add(row.queue)
        told = find(entry.status, kind)
        if problem:
            now, generation = self._cycle.now, row.run.generation
            if told is None or told.message != problem:
                reason = ConditionReason.CANNOT_ASK_FOR_NODES
                entry.status = with_condition(
                    entry.status, kind, False, reason, problem, now=now, generation=generation
                )
        elif told is not None and told.reason == ConditionReason.CANNOT_ASK_FOR_NODES:
            entry.status = without_condition(entry.status, kind)


def _alike(before: ScaleUpStatus, wanted: ScaleUpStatus) -> ScaleUpStatus:
    """``before``, in nothing but what was asked for."""
    return changed(before, generation=wanted.generation, wish=wanted.wish, attempt=1, since=wanted.since, retry_at=None)


def _withdraw(row: RunRow) -> None:
    """It asks no more. Status keeps what it asked for until nothing of that is left."""
    asked = row.entry.status.scale_up
    if asked is not None and asked.nodes:
        row.entry.status = withdraw_scale_up(row.entry.status)
