"""A Plan in the making: what the steps of ``decide`` have decided so far."""

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import with_condition
from lockstep.core.model.kueue.writes import WorkloadWrite
from lockstep.core.model.plan import (
    CreateJob,
    CreatePlaceholder,
    CreatePod,
    DeleteJob,
    DeletePod,
    DeletePodGroup,
    DeleteProvisioning,
    Directive,
    DryRunPod,
    EnsureConfigMap,
    EnsurePodGroup,
    EnsureProvisioning,
    Event,
    ForgiveFailures,
    Plan,
    RefuseRun,
    RememberFailure,
    SubmitRun,
)
from lockstep.core.model.reasons import (
    ActionWord,
    ConditionReason,
    ConditionType,
    EndReason,
    EventReason,
    Recorded,
    StopReason,
)
from lockstep.core.model.run_state import RunContext, RunState
from lockstep.core.model.snapshot import PlaceholderView, PodView
from lockstep.core.model.tunables import Tunables

MAX_ATTEMPTS = 10


def ends_later(pod: PodView, moment: float, tunables: Tunables) -> bool:
    """The grace with which the pod is being deleted is not over then, on whichever clock."""
    return pod.killed_at > moment + tunables.max_clock_skew


class PlanBuilder(RunState):
    """Takes down what is decided: the status to be written, and what is to be done once it is.

    A function that takes a ``PlanBuilder`` decides something; one that only asks takes a ``RunState``.
    """

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self.config_maps: list[EnsureConfigMap] = []
        self.deletes: list[DeletePod] = []
        self._deleted: set[str] = set()  # their UIDs
        self.creates: list[CreatePod] = []
        self.pod_group: EnsurePodGroup | None = None
        self.pod_group_deletes: list[DeletePodGroup] = []
        self.jobs: list[CreateJob] = []
        self.ended_jobs: list[DeleteJob] = []
        self.runs: list[SubmitRun] = []
        self.refused_runs: list[RefuseRun] = []
        self.placeholders: list[CreatePlaceholder] = []
        self.provisioning: EnsureProvisioning | DeleteProvisioning | None = None
        self.events: list[Event] = []
        self.directive: Directive | None = None
        self.dry_run: DryRunPod | None = None
        self.take_job_id = False
        self.node_failures: list[RememberFailure | ForgiveFailures] = []
        self.workload: WorkloadWrite | None = None  # the Workload's next write
        self.admission_changed = False
        self.delete_run = False

    @property
    def status(self) -> TrainingRunStatus:
        """The status as decided so far."""
        return self._status

    @status.setter
    def status(self, status: TrainingRunStatus) -> None:
        self._status = status

    def condition(
        self, kind: ConditionType, value: bool | None, reason: ConditionReason | StopReason | Recorded, message: str
    ) -> None:
        """Set one condition of the status."""
        self.status = with_condition(
            self.status, kind, value, reason, message, now=self.now, generation=self.run.generation
        )

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

    def delete(self, pod: PodView | PlaceholderView, reason: str, grace: int | None = None) -> None:
        """Delete a pod with its own grace, or with ``grace`` seconds. One that is being deleted, and for longer than
        that, or than any pod may take, is deleted again with as much."""
        if pod.uid in self._deleted:
            return
        if pod.deleting:
            grace = self.tunables.longest_grace if grace is None else grace
            if isinstance(pod, PlaceholderView) or not ends_later(pod, self.now + grace, self.tunables):
                return
        self._deleted.add(pod.uid)
        self.deletes.append(DeletePod(pod.namespace, pod.name, pod.uid, reason, grace))

    def delete_live_pods(self, reason: str, grace: int | None = None) -> None:
        """Delete every pod that still runs."""
        for pod in self.snapshot.pods:
            if not pod.is_terminal:
                self.delete(pod, reason, grace)

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

    def build(self) -> Plan:
        """What has been decided."""
        if self.damage and self.status.assignment == slots.illegible(self.run.status.assignment):
            # Left as it is, for a person to look at.
            self.status = slots.put(self.status, self.run.status.assignment)
        if self.status.assignment.revision != self.run.status.assignment.revision:
            self._move_out_large_assignment()
        is_new = self.status != self.run.status  # dumping both takes far longer
        is_new = is_new and self.status.dump() != self.run.status.dump()
        return Plan(
            wake_at=self._wake_at,
            config_maps=tuple(self.config_maps),
            status=self.status if is_new else None,
            directive=self.directive,
            events=tuple(self.events),
            dry_run=self.dry_run,
            take_job_id=self.take_job_id,
            deletes=tuple(self.deletes),
            pod_group=self.pod_group,
            creates=tuple(self.creates),
            jobs=tuple(self.jobs),
            ended_jobs=tuple(self.ended_jobs),
            runs=tuple(self.runs),
            refused_runs=tuple(self.refused_runs),
            placeholders=tuple(self.placeholders),
            provisioning=self.provisioning,
            node_failures=tuple(self.node_failures),
            pod_group_deletes=tuple(self.pod_group_deletes),
            delete_run=self.delete_run,
            workload=self.workload,
            admission_changed=self.admission_changed,
        )

    def _move_out_large_assignment(self) -> None:
        run = self.run
        assignment, spill = slots.spilled(self.status.assignment, run.namespace, run.name, run.uid)
        self.status = slots.put(self.status, assignment)
        if spill is not None:
            self.config_maps.insert(0, spill)
