"""A Plan in the making: the snapshot of one run, and what the steps of ``decide`` have changed so far."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import ArchivedCheckpoint
from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import AssignmentStatus, TrainingRunStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import with_condition
from lockstep.core.model.kueue.writes import WorkloadWrite
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.plan import (
    CreateJob,
    CreatePod,
    DeletePod,
    DeletePodGroup,
    DesiredPhase,
    Directive,
    DryRunPod,
    EnsureConfigMap,
    EnsurePodGroup,
    Event,
    Plan,
    PointRequest,
    RememberFailure,
    SaveRequest,
    VerifyRequest,
    WarmUpRequest,
)
from lockstep.core.model.reasons import ActionWord, ConditionReason, EndReason, EventReason, Recorded, StopReason
from lockstep.core.model.snapshot import PodView, RunSnapshot, RunView, WorkerReport
from lockstep.core.model.tunables import Tunables

MAX_ATTEMPTS = 10


class Draft:
    """Collects changes. Reads are of the snapshot, except ``status``, which is as changed so far."""

    def __init__(self, snapshot: RunSnapshot, tunables: Tunables, now: float) -> None:
        self.snapshot = snapshot
        self.run = snapshot.run
        self.tunables = tunables
        self.now = now
        self.stamp = float(int(now))  # status keeps whole seconds
        self.status: TrainingRunStatus = snapshot.run.status
        self.damage = slots.damage(self.status.assignment)
        """What is wrong with the assignment in status; then none is known until it has been rebuilt."""
        if self.damage:
            self.status = changed(self.status, assignment=slots.illegible(self.status.assignment))
        self.config_maps: list[EnsureConfigMap] = []
        self.deletes: list[DeletePod] = []
        self.creates: list[CreatePod] = []
        self.pod_group: EnsurePodGroup | None = None
        self.pod_group_deletes: list[DeletePodGroup] = []
        self.jobs: list[CreateJob] = []
        self.restore: ArchivedCheckpoint | None = None  # the copy that the resume choice waits for
        self.search_archive = False  # the resume choice found nothing: the archive may hold what status forgot
        self.events: list[Event] = []
        self.directive: Directive | None = None
        self.dry_run: DryRunPod | None = None
        self.verify: VerifyRequest | None = None
        self.point: PointRequest | None = None
        self.warm_up: WarmUpRequest | None = None
        self.save: SaveRequest | None = None
        self.stopping_at = 0.0
        self.leaving: frozenset[int] = frozenset()  # slots told to leave, which the gang's save is waited for with
        self.barrier_waits = ""  # what a complete gang still waits for
        self.node_failures: list[RememberFailure] = []
        self.stacks = ""  # names the request for the stacks of all ranks
        self.workload: WorkloadWrite | None = None  # what Kueue is to be told
        self.admission_changed = False
        self.delete_run = False
        self._wake_at: float | None = None
        self._ranks: tuple[AssignmentStatus, tuple[int, ...]] | None = None  # of the assignment beside them

    @property
    def spec(self) -> TrainingRunSpec:
        """The parsed spec; steps after acceptance may rely on it."""
        assert self.run.spec is not None
        return self.run.spec

    @property
    def view(self) -> RunView:
        """The run with its status as changed so far."""
        return self.run if self.status is self.run.status else replace(self.run, status=self.status)

    @property
    def phase(self) -> Phase:
        """The phase of the status as changed so far."""
        return phase_of(self.status, self.run.spec is not None and self.run.spec.suspend)

    @property
    def trains(self) -> bool:
        """The ranks run user code and have not been told to end; also while a stop waits for their save."""
        stop = self.status.stop
        return self.phase is Phase.RUNNING or (self.phase is Phase.STOPPING and stop is not None and bool(stop.save))

    @property
    def has_workers(self) -> bool:
        """Its pods run Lockstep's worker, and with it there are reports and a barrier."""
        return self.run.spec is None or self.run.spec.worker == "Enabled"

    @cached_property
    def heartbeat(self) -> float:
        """Seconds between two reports of a worker."""
        return self.tunables.heartbeat_seconds(self.snapshot.leadership.workers)

    @cached_property
    def silent_after(self) -> float:
        """Seconds without a report after which a worker is silent."""
        return self.tunables.silent_after(self.snapshot.leadership.workers)

    def condition(
        self, kind: str, value: bool | None, reason: ConditionReason | StopReason | Recorded, message: str
    ) -> None:
        """Set one condition of the status."""
        self.status = with_condition(
            self.status, kind, value, reason, message, now=self.now, generation=self.run.generation
        )

    def wake(self, at: float) -> None:
        """Look again no later than ``at``. What lies behind has been looked at just now."""
        if at <= self.now:
            return
        self._wake_at = at if self._wake_at is None else min(self._wake_at, at)

    def event(
        self,
        reason: EventReason | StopReason | Recorded,
        note: str,
        *,
        action: ActionWord,
        warning: bool = False,
        node: str = "",
    ) -> None:
        """Say something, once the status write that it tells of has succeeded."""
        self.events.append(Event("Warning" if warning else "Normal", reason, action, note[:1024], node))

    def delete(self, pod: PodView, reason: str, grace: int | None = None) -> None:
        """Delete a pod with its own grace, or with ``grace`` seconds, unless that is under way."""
        if not pod.deleting and all(pod.uid != planned.uid for planned in self.deletes):
            self.deletes.append(DeletePod(pod.namespace, pod.name, pod.uid, reason, grace))

    def delete_live_pods(self, reason: str, grace: int | None = None) -> None:
        """Delete every pod that still runs."""
        for pod in self.snapshot.pods:
            if not pod.is_terminal:
                self.delete(pod, reason, grace)

    @cached_property
    def live_pods(self) -> tuple[PodView, ...]:
        """Pods that still hold their node, Terminating included."""
        return tuple(pod for pod in self.snapshot.pods if not pod.is_terminal)

    def pod(self, slot: int) -> PodView | None:
        """The pod of the slot's current incarnation."""
        return self._pods_by_identity.get((slot, self.status.assignment.incarnations[slot]))

    def pods_of(self, slot: int) -> Sequence[PodView]:
        """All pods of a slot, of whatever incarnation."""
        return self._pods_by_slot.get(slot, ())

    def report(self, slot: int) -> WorkerReport | None:
        """The latest word of the slot's current incarnation: of the pod that is there, if there is one."""
        report = self.snapshot.reports.get(slot)
        if report is None or report.incarnation != self.status.assignment.incarnations[slot]:
            return None
        pod = self.pod(slot)
        return report if pod is None or pod.uid == report.pod_uid else None

    def slot_range(self) -> range:
        """All slots of the gang."""
        return range(len(self.status.assignment.nodes))

    @property
    def world(self) -> int:
        """The number of ranks. There are more slots than that when the gang has spares."""
        return slots.world(self.status.assignment)

    @property
    def has_spares(self) -> bool:
        """Some slots hold no rank."""
        return self.world < len(self.status.assignment.nodes)

    def ranked_slots(self) -> Sequence[int]:
        """The slots that hold a rank, in rank order."""
        return slots.ranked_slots(self.status.assignment)

    def title(self, slot: int) -> str:
        """Who sits in ``slot``, for messages."""
        rank = self.rank(slot)
        return f"rank {rank}" if rank >= 0 else f"the spare in slot {slot}"

    def rank(self, slot: int) -> int:
        """The rank in ``slot``; -1: it holds a spare."""
        assignment = self.status.assignment
        if not assignment.rank_to_slot:
            return slot
        if self._ranks is None or self._ranks[0] is not assignment:  # asked for slot after slot
            self._ranks = (assignment, slots.slot_ranks(assignment))
        return self._ranks[1][slot]

    def directed(self, phase: DesiredPhase) -> Directive:
        """A directive for the gang as it is assigned."""
        assignment = self.status.assignment
        return Directive(
            attempt=self.status.attempt,
            phase=phase,
            incarnations=assignment.incarnations[: len(assignment.nodes)],
            slot_ranks=slots.slot_ranks(assignment),
            verify=self.verify,
            point=self.point,
            warm_up=self.warm_up,
            save=self.save,
            stopping_at=self.stopping_at,
            stop_grace=self.tunables.stop_grace,
            stacks=self.stacks,
        )

    def attempt(self, number: int) -> AttemptStatus:
        """The history entry of one attempt, as it is to be changed; an empty one when it is not there."""
        return self.attempt_entry(number) or AttemptStatus(number=number)

    def put_attempt(
        self,
        entry: AttemptStatus,
        *,
        cause: EndReason | Recorded | None = None,
        action: ActionWord | Recorded | None = None,
    ) -> None:
        """Write the history entry of one attempt, in place of the one that is there."""
        if cause is not None:
            entry = changed(entry, cause=str(cause))
        if action is not None:
            entry = changed(entry, action=str(action))
        attempts = list(self.status.attempts)
        for index, before in enumerate(attempts):
            if before.number == entry.number:
                attempts[index] = entry
                break
        else:
            attempts.append(entry)
        self.status = changed(self.status, attempts=tuple(attempts[-MAX_ATTEMPTS:]))

    def attempt_entry(self, number: int) -> AttemptStatus | None:
        """The history entry of one attempt."""
        return next((entry for entry in self.status.attempts if entry.number == number), None)

    def plan(self) -> Plan:
        """What has been decided."""
        if self.damage and not slots.is_held(self.status.assignment):  # left as it is, for a person to look at
            self.status = changed(self.status, assignment=self.run.status.assignment)
        if self.status.assignment.revision != self.run.status.assignment.revision:
            self._move_out_large_assignment()
        is_new = self.status is not self.run.status and self.status.dump() != self.run.status.dump()
        return Plan(
            config_maps=tuple(self.config_maps),
            status=self.status if is_new else None,
            dry_run=self.dry_run,
            deletes=tuple(self.deletes),
            creates=tuple(self.creates),
            pod_group=self.pod_group,
            pod_group_deletes=tuple(self.pod_group_deletes),
            jobs=tuple(self.jobs),
            node_failures=tuple(self.node_failures),
            directive=self.directive,
            events=tuple(self.events),
            workload=self.workload,
            delete_run=self.delete_run,
            wake_at=self._wake_at,
            admission_changed=self.admission_changed,
        )

    def _move_out_large_assignment(self) -> None:
        run = self.run
        assignment, spill = slots.spilled(self.status.assignment, run.namespace, run.name, run.uid)
        self.status = changed(self.status, assignment=assignment)
        if spill is not None:
            self.config_maps.insert(0, spill)

    @cached_property
    def _pods_by_slot(self) -> dict[int, list[PodView]]:
        found: dict[int, list[PodView]] = {}
        for pod in self.snapshot.pods:
            found.setdefault(pod.slot, []).append(pod)
        return found

    @cached_property
    def _pods_by_identity(self) -> dict[tuple[int, int], PodView]:
        # Asked for several times per slot and decision: with hundreds of slots this lookup is what counts.
        return {(pod.slot, pod.incarnation): pod for pod in reversed(self.snapshot.pods)}
