"""The status of a TrainingRun: what the operator writes, and what it reads back after a restart.

Counts and extremes, never a row per pod. Ranks and slots in ranges are written as in Slurm: "0-3,7".
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lockstep.api.base import names
from lockstep.api.base.schema import MapList, StatusModel, Timestamp
from lockstep.api.checkpoint_status import CheckpointStatus, SavedCheckpoint
from lockstep.api.goodput_status import GoodputStatus
from lockstep.api.kueue_status import KueueStatus
from lockstep.api.lineage_status import MAX_PREVIOUS, LinkedName, LinkedRun, LinkedUid, PreviousRun
from lockstep.api.preemption_status import PreemptionStatus, ReservationStatus
from lockstep.api.recovery_status import AttemptStatus, RecoveryStatus, Totals
from lockstep.slurm.environment import MOST_JOB_ID

ConditionStatus = Literal["True", "False", "Unknown"]
MAX_ATTEMPTS_KEPT = 10
MAX_PACE = 16


class Condition(StatusModel):
    """metav1.Condition."""

    type: str
    """Kind of condition."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: str
    """One CamelCase word for programs."""
    message: str = ""
    """One sentence for people."""
    last_transition_time: Timestamp
    """When `status` last flipped."""
    observed_generation: int = 0
    """The generation of the spec this was judged on."""


class QueueStatus(StatusModel):
    """Why the run waits."""

    position: int = 0
    """Place in the queue, from 1; 0 when not queued."""
    reason: str = ""
    """One CamelCase word."""
    message: str = ""
    """What lacks, in a sentence."""

    blocked_by: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """Runs that hold, or are to get, what it waits for; those of other namespaces only where the queue's
    visibility allows it."""
    estimated_start: Timestamp | None = None
    """When it is expected to get its nodes; none: not known."""
    assumption: str = ""
    """What the estimate rests on."""
    priority: int = 0
    """Its points; the highest come first."""
    factors: dict[str, int] = Field(default_factory=dict)
    """The points by where they come from: class, age, fairShare, size, nice."""
    updated: Timestamp | None = None
    """When this was written."""


class AdmissionStatus(StatusModel):
    """What admission has to remember of the run."""

    since: Timestamp | None = None
    """Since when it waits, or waited, for nodes; its age counts from there."""
    requeued_for: str = ""
    """Why it goes to the head of its class: Preempted, or NodesLost; empty: it does not."""
    time_limit: int | None = None
    """Seconds of its time limit as granted, which minTimeLimit and the queue have a say in; none: it has no limit. A
    longer spec.timeLimit is granted to a run that has nodes as far as that breaks no promise; a shorter one holds."""
    asked_limit: str = ""
    """spec.timeLimit as it was then."""
    limited_by: Annotated[str, Field(max_length=512)] = ""
    """Why it has not been granted all of spec.timeLimit as it was changed since it has nodes."""
    backfilled: bool = False
    """It got its nodes ahead of runs before it in the order, which it does not delay."""
    first_estimate: Timestamp | None = None
    """The first estimate it was given since it waits."""
    met: Annotated[tuple[str, ...], Field(max_length=32)] = ()
    """Dependencies that were met once, with their condition: "pretrain Succeeded"."""
    failed: Annotated[tuple[str, ...], Field(max_length=32)] = ()
    """Dependencies that can never be met any more, with their condition."""
    preemptions: int = 0
    """How often it was stopped for another run."""


class TimeLimitStatus(StatusModel):
    """When the time of a run that has nodes is over, and what comes before."""

    seconds: Annotated[int, Field(ge=0)] = 0
    """The limit in force."""
    save_at: Timestamp | None = None
    """When all ranks are asked to save, and stopped once they have: onTimeLimit.leadTime before the limit, and never
    more than half of it. None: no program has asked for saves so far, or none can be asked."""
    end_at: Timestamp
    """When the ranks are told to end, saved or not: before the limit by the grace of their pods, of which the
    usual one is a tenth of the limit at most."""
    over_at: Timestamp
    """When the limit is over, which the expected starts of other runs rest on."""


class TrialStatus(StatusModel):
    """When a run with the annotation lockstep.dev/test-only would start, were it submitted without."""

    at: Timestamp
    """When this was worked out. Ten minutes later the run is deleted."""
    observed_generation: int = 0
    """The generation of the spec that was looked at."""
    start: Timestamp | None = None
    """When it would get its nodes; none: not known, or never."""
    nodes: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """The nodes it would get, in rank order; at most the first 64."""
    reason: str = ""
    """Why not at once, in one CamelCase word; empty: at once."""
    message: str = ""
    """What lacks, in a sentence."""
    assumption: str = ""
    """What the start rests on."""
    priority: int = 0
    """The points it would have; the highest come first."""
    time_limit: Annotated[int, Field(ge=0)] | None = None
    """Seconds for which it would have its nodes at most; none: without a limit."""
    save_after: Annotated[int, Field(ge=0)] | None = None
    """Seconds with nodes after which all ranks would be asked to save, if a program asks for saves; none: none can."""
    end_after: Annotated[int, Field(ge=0)] | None = None
    """Seconds with nodes after which the ranks would be told to end."""


class ScaleUpStatus(StatusModel):
    """What the run asks the cluster's autoscaler for while it waits; written before anything is made."""

    by: Literal["ProvisioningRequest", "Placeholders"]
    """How it asks: never both."""
    nodes: int = 0
    """Nodes of the gang; 0: it asks no more, and what was made for it is being removed."""
    generation: int = 0
    """The generation of the spec that it asks for."""
    wish: str = ""
    """Hash of what that says of nodes: an edit of anything else withdraws nothing."""
    gpu_type: str = ""
    """The GPU type that is asked for, where one is."""
    gpu_resource: str = ""
    """What its GPUs are requested as; empty: it asks for none."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that the queue wants of its nodes."""
    provisioning_class: str = ""
    """Of the ProvisioningRequest."""
    attempt: int = 1
    """Which ProvisioningRequest this is: one follows another that failed."""
    since: Timestamp | None = None
    """Since when it asks."""
    retry_at: Timestamp | None = None
    """When the next ProvisioningRequest is made, after one that failed."""


MAX_ENDED_POD_GROUPS = 4


class PodGroupStatus(StatusModel):
    """The PodGroup of a launch, as another scheduler knows the gang; written before it is made."""

    api_version: str
    """API group and version of the PodGroup."""
    name: str
    """Name of the PodGroup of the pods that are launched together."""
    min_count: int
    """Pods that are bound together or not at all."""
    queue: str = ""
    """Volcano's queue; empty for its default."""
    scheduler_name: str = ""
    """The scheduler that pods name; empty for that of their template."""


class ResolvedStatus(StatusModel):
    """What the spec left open, decided once per assignment."""

    generation: int = 0
    """Generation of the spec that the current attempt uses."""
    spec_hash: str = ""
    """Of the fields of that spec that change only while the run is suspended: the generation in which they were last
    found to be the same, and their hash. With other ones the gang is stopped, and queues again."""
    queue: str = ""
    """The TrainingQueue that gave it its nodes."""
    gpu_type: str = ""
    """GPU type of the whole gang."""
    gpus_per_node: int = 0
    """GPUs of every node."""
    gpu_resource: str = names.GPU_RESOURCE
    """What they are requested as; nvidia.com/gpu when left out."""
    cpu: str = ""
    """CPU request of every pod."""
    memory: str = ""
    """Memory request of every pod."""
    resources: dict[str, str] = Field(default_factory=dict)
    """Every other resource of every pod."""
    unused_gpus: str = ""
    """GPUs that its nodes had free beyond those when it got them: how many, of which, and where."""
    nodes: int = 0
    """Nodes of the gang."""
    shared_path: str = ""
    """Directory of the run inside the claim of the shared tier."""
    template_hash: str = ""
    """Hash of what the pods are made from."""
    start_root: str = ""
    """Directory of the checkpoints that the spec says to start from, as the training container sees it."""
    start_run: LinkedName = ""
    """The run whose directory that is."""
    start_run_uid: LinkedUid = ""
    """Its UID."""
    pod_group: PodGroupStatus | None = None
    """The PodGroup of the launch; left out where gangs get none."""
    provisioning_request: str = ""
    """The ProvisioningRequest that its nodes were asked for by; empty: none."""
    provisioning_class: str = ""
    """Its class."""


class AssignmentStatus(StatusModel):
    """Node and incarnation of every slot, written before any pod of it is made."""

    revision: int = 0
    """Grows with every change."""
    hash: str = ""
    """Hash of nodes, incarnations, vacant slots and ranks."""
    nodes: tuple[str, ...] = ()
    """Node of each slot; left out when in the ConfigMap."""
    incarnations: tuple[int, ...] = ()
    """Incarnation of each slot; left out when in the ConfigMap."""
    vacant: tuple[int, ...] = ()
    """Slots that wait for a node."""
    vacant_since: Timestamp | None = None
    """Since when a rank's slot waits; spares may be waited for without end."""
    rank_to_slot: tuple[int, ...] = ()
    """Slot of each rank, the other slots being spares; left out when every slot holds the rank of its number, and
    when in the ConfigMap."""
    config_map: str = ""
    """The immutable ConfigMap that holds an assignment too large for status."""


class StartMembers(StatusModel):
    """Slots that start at the same incarnation."""

    slots: str
    """Slot ranges, e.g. 0-3,7."""
    incarnation: int
    """Their incarnation."""


class StartRecord(StatusModel):
    """What every worker of an attempt is released with; in status before the first release."""

    attempt: int
    """The attempt."""
    assignment_hash: str
    """The assignment it was made for."""
    master_address: str
    """Address of rank 0."""
    master_port: int
    """Port that rank 0's worker reported as free."""
    dashboard: str = ""
    """Where Ray's dashboard is, with `launcher.type: Ray`: host and port. It asks for the attempt's token."""
    joins: int = 0
    """How often nodes have joined the attempt since it began; each time members and order are written anew."""
    joined_at: Timestamp | None = None
    """When they last did."""
    resume: SavedCheckpoint | None = None
    """Checkpoint to resume from; none: from step 0."""
    members: tuple[StartMembers, ...] = ()
    """Who takes part."""
    order: str = ""
    """Their slots in rank order, e.g. 0-1,4,3; empty when every rank sits in the slot of its number."""
    runs_once: bool = False
    """Its batch script has --no-requeue; this counts where the spec cannot be read any more."""


class ProgressStatus(StatusModel):
    """The last reported step."""

    step: int = 0
    """Highest step that was reported."""
    total_steps: int | None = None
    """Steps of the whole training, where known."""
    loss: str = ""
    """Loss of that step, as text, to four digits."""
    time: Timestamp | None = None
    """When that step was reported."""
    summary: str = ""
    """Step and total as shown in the Step column, e.g. 120k/250k."""
    longest_interval: int = 0
    """Longest of the last hundred intervals between steps, in seconds."""
    longest_init: int = 0
    """Seconds from the last start to its first step."""
    pace: Annotated[tuple[int, ...], Field(max_length=MAX_PACE)] = ()
    """Microseconds that a step took between the last writes of this status in the current attempt, saves included;
    oldest first."""
    step_microseconds: int | None = None
    """Their median; none: too little was seen yet."""
    expected_end: Timestamp | None = None
    """When the last step is done at this pace; none: the total is not known, or the pace is not."""
    earliest_end: Timestamp | None = None
    """The same by the faster quarter of `pace`; none before there are four."""
    latest_end: Timestamp | None = None
    """The same by the slower quarter of `pace`."""


class ExitsStatus(StatusModel):
    """Exits of ranks in the current attempt that were seen; they outlive the pods."""

    attempt: int = 0
    """The attempt they belong to."""
    succeeded: str = ""
    """Ranks that ended with code 0, as ranges, e.g. 0-3."""
    first: str = ""
    """The first of them, when it ended and after which step, in words."""


class StopStatus(StatusModel):
    """The write-ahead record of a stop under way: the ranks end first, then the nodes are given back."""

    reason: str
    """Suspended, Cancelled, Requeued, Preempted, NodesLost, QueueDrained, or why the run failed."""
    message: str = ""
    """What led to it, in a sentence."""
    time: Timestamp
    """When it was decided."""
    deadline: Timestamp
    """When pods are deleted even if ranks did not end by themselves."""
    save: str = ""
    """Id of the collective save that is awaited before the ranks are stopped."""


class LeavingStatus(StatusModel):
    """Pods of a run that has ended, which are still on nodes."""

    nodes: Annotated[int, Field(ge=0)] = 0
    """Nodes that they held when that was first seen."""
    until: Timestamp
    """When those that have not left by themselves are deleted."""


class RequestStatus(StatusModel):
    """A one-shot request by annotation that was seen."""

    name: str
    """The annotation's name without its prefix."""
    token: str
    """The token it carried."""
    time: Timestamp | None = None
    """When it was taken up."""
    result: str = ""
    """What came of it."""


class AskStatus(StatusModel):
    """What a batch job asked for from inside, and the answer; written before anybody hears of it."""

    id: str
    """Which request this is."""
    kind: Annotated[str, Field(max_length=64)] = ""
    """requeue, cancel, hold or submit."""
    attempt: int = 0
    """The attempt in which it was asked for."""
    ok: bool = False
    """It is done."""
    words: Annotated[str, Field(max_length=512)] = ""
    """Why not; of a job that was submitted, what has no effect, a line for each."""
    job_id: int | None = None
    """Of submit: the number of the job that was made."""
    time: Timestamp | None = None
    """When it was taken up."""


class TrainingRunStatus(StatusModel):
    """What is the case, as the operator last saw it."""

    observed_generation: int = 0
    """The generation of the spec this status is about."""
    conditions: Annotated[tuple[Condition, ...], MapList("type"), Field(max_length=16)] = ()
    """Accepted, Admitted, GangReady, Progressing, Suspended, Finished (any outcome) and Succeeded."""
    state: str = ""
    """One word for people, made from the conditions; programs read the conditions."""
    reason: str = ""
    """The reason behind `state`."""
    job_id: Annotated[int, Field(ge=1, le=MOST_JOB_ID)] | None = None
    """Its number among the cluster's batch jobs, SLURM_JOB_ID; only with launcher.type: Slurm."""
    attempt: int = 0
    """The current attempt; grows, never falls."""
    nodes_ready: str = ""
    """Nodes at the barrier or past it, of all, e.g. 62/64."""
    queue: QueueStatus = QueueStatus()
    """Why the run waits."""
    admission: AdmissionStatus = AdmissionStatus()
    """What admission has to remember of the run."""
    kueue: KueueStatus | None = None
    """The run is admitted by Kueue; none: by Lockstep."""
    test_only: TrialStatus | None = None
    """When it would start; only for a run that asks for nothing else."""
    resolved: ResolvedStatus = ResolvedStatus()
    """What the spec left open."""
    ended_pod_groups: Annotated[tuple[PodGroupStatus, ...], Field(max_length=MAX_ENDED_POD_GROUPS)] = ()
    """PodGroups of launches that are over, which are yet to be deleted. Older ones go with the run."""
    previous: Annotated[tuple[PreviousRun, ...], Field(max_length=MAX_PREVIOUS)] = ()
    """The runs that this one goes on from, the last one first. One that was deleted for it is as its user told."""
    next: LinkedRun | None = None
    """The latest run that goes on from this one."""
    assignment: AssignmentStatus = AssignmentStatus()
    """Node and incarnation of every slot."""
    start: StartRecord | None = None
    """The START record of the current attempt."""
    progress: ProgressStatus = ProgressStatus()
    """The last reported step."""
    checkpoint: CheckpointStatus = CheckpointStatus()
    """What could be resumed from."""
    attempts: Annotated[tuple[AttemptStatus, ...], MapList("number"), Field(max_length=MAX_ATTEMPTS_KEPT)] = ()
    """The last ten attempts, oldest first."""
    totals: Totals = Totals()
    """Counts over the whole life of the run."""
    exits: ExitsStatus = ExitsStatus()
    """Exits seen in the current attempt."""
    recovery: RecoveryStatus = RecoveryStatus()
    """Budgets and back-off."""
    scale_up: ScaleUpStatus | None = None
    """What it asks the autoscaler for; none: nothing."""
    reservation: ReservationStatus | None = None
    """Nodes that are kept for it while other runs are stopped."""
    preemption: PreemptionStatus | None = None
    """It is being preempted by another run."""
    stop: StopStatus | None = None
    """A stop under way."""
    goodput: GoodputStatus = GoodputStatus()
    """Where the time went."""
    spares: str = ""
    """Spares ready at the barrier, of all, e.g. 2/2."""
    last_admitted: Timestamp | None = None
    """When the gang last got its nodes; the time limit counts from there."""
    held_seconds: int = 0
    """Seconds with nodes since last queued, before `lastAdmitted`; counts towards the time limit."""
    leaving: LeavingStatus | None = None
    """It has ended, and its pods still hold nodes, which no other run gets yet; none: it holds none."""
    time_limit: TimeLimitStatus | None = None
    """When its time is over; none: it has no nodes, or no limit."""
    requests: Annotated[tuple[RequestStatus, ...], MapList("name"), Field(max_length=8)] = ()
    """One-shot requests that were taken up."""
    asks: Annotated[tuple[AskStatus, ...], MapList("id"), Field(max_length=8)] = ()
    """What a batch job asked for from inside (scontrol requeue, scancel, sbatch) of late."""
