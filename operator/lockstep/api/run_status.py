"""The status of a TrainingRun: what the operator writes, and what it reads back after a restart.

Counts and extremes, never a row per pod. Ranks and slots in ranges are written as in Slurm: "0-3,7".
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lockstep.api.schema import MapList, StatusModel, Timestamp

ConditionStatus = Literal["True", "False", "Unknown"]
MAX_ATTEMPTS_KEPT = 10


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


class ResolvedStatus(StatusModel):
    """What the spec left open, decided once per assignment."""

    generation: int = 0
    """Generation of the spec that the current attempt uses."""
    gpu_type: str = ""
    """GPU type of the whole gang."""
    gpus_per_node: int = 0
    """GPUs of every node."""
    cpu: str = ""
    """CPU request of every pod."""
    memory: str = ""
    """Memory request of every pod."""
    resources: dict[str, str] = Field(default_factory=dict)
    """Every other resource of every pod."""
    nodes: int = 0
    """Nodes of the gang."""
    shared_path: str = ""
    """Directory of the run inside the claim of the shared tier."""
    template_hash: str = ""
    """Hash of what the pods are made from."""


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
    """Since when the first of them waits."""
    rank_to_slot: tuple[int, ...] = ()
    """Slot of each rank; left out when every rank sits in the slot of its number."""
    config_map: str = ""
    """The immutable ConfigMap that holds an assignment too large for status."""


class Candidate(StatusModel):
    """A checkpoint: a step in a tier."""

    tier: str
    """local or shared."""
    step: int
    """The step it was saved at."""
    path: str = ""
    """Directory as the training container sees it."""
    attempt: int | None = None
    """The attempt that saved it."""
    time: Timestamp | None = None
    """When it was complete."""


class RejectedCandidate(StatusModel):
    """A newer checkpoint that was passed over."""

    tier: str
    """local or shared."""
    step: int
    """The step it claims."""
    path: str = ""
    """Directory as the training container sees it."""
    reason: str
    """Why it is not valid."""


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
    resume: Candidate | None = None
    """Checkpoint to resume from; none: from step 0."""
    members: tuple[StartMembers, ...] = ()
    """Who takes part."""


class ProgressStatus(StatusModel):
    """The last reported step."""

    step: int = 0
    """Highest step that was reported."""
    total_steps: int | None = None
    """Steps of the whole training, where known."""
    loss: str = ""
    """Loss of that step, as text."""
    time: Timestamp | None = None
    """When that step was reported."""
    summary: str = ""
    """Step and total as shown in the Step column, e.g. 120k/250k."""


class CheckpointStatus(StatusModel):
    """What could be resumed from now."""

    resume: Candidate | None = None
    """What the current attempt resumed from."""
    latest: Annotated[tuple[Candidate, ...], MapList("tier"), Field(max_length=4)] = ()
    """Newest valid checkpoint of each tier."""
    rejected: Annotated[tuple[RejectedCandidate, ...], Field(max_length=10)] = ()
    """Newer ones that were passed over, newest first."""


class AttemptStatus(StatusModel):
    """One collective start of the ranks and how it ended."""

    number: int
    """The attempt."""
    started_at: Timestamp | None = None
    """When START was written."""
    ended_at: Timestamp | None = None
    """When its end was decided."""
    cause: str = ""
    """One CamelCase word for what ended it."""
    message: str = ""
    """What happened, in a sentence."""
    rank: int | None = None
    """The rank that failed first."""
    node: str = ""
    """Its node."""
    exit_code: int | None = None
    """Its exit code; 128 plus the signal when it was killed by one."""
    action: str = ""
    """What was done next."""
    resume_step: int | None = None
    """Step it resumed from; none: from step 0."""
    last_step: int | None = None
    """Highest step it reported."""
    charged: bool = False
    """Whether its end counted against the no-progress limit."""


class Totals(StatusModel):
    """Counts over the whole life of the run."""

    attempts: int = 0
    """Collective starts."""
    restarts: int = 0
    """Attempts that a failure ended and another followed."""
    restarts_in_place: int = 0
    """Restarts that kept every pod."""
    pods_replaced: int = 0
    """Pods made anew on the same node."""
    nodes_replaced: int = 0
    """Slots that got another node."""


class ExitsStatus(StatusModel):
    """Exits of ranks in the current attempt that were seen; they outlive the pods."""

    attempt: int = 0
    """The attempt they belong to."""
    succeeded: str = ""
    """Ranks that ended with code 0, as ranges, e.g. 0-3."""


class ExcludedNode(StatusModel):
    """A node that recovery keeps the run off."""

    node: str
    """Its name."""
    reason: str
    """Why."""
    until: Timestamp | None = None
    """When it may be used again; none: not by itself."""


class SlotLosses(StatusModel):
    """Pods lost in one slot on one node; the node is given up when they repeat."""

    slot: int
    """The slot."""
    node: str
    """The node it was on."""
    count: int
    """Pods lost there."""


class RecoveryStatus(StatusModel):
    """Budgets and back-off."""

    slot_losses: Annotated[tuple[SlotLosses, ...], MapList("slot"), Field(max_length=16_384)] = ()
    """Slots that lost pods on the node they are on."""

    consecutive_no_progress: int = 0
    """Restarts in a row without a step beyond the best one."""
    best_step: int = 0
    """Highest step any attempt reached."""
    not_before: Timestamp | None = None
    """The next attempt starts no earlier."""
    excluded_nodes: Annotated[tuple[ExcludedNode, ...], MapList("node"), Field(max_length=64)] = ()
    """Nodes that recovery keeps the run off."""
    requeues: int = 0
    """Times in a row that the gang gave back its nodes and queued again, without having started in between."""


class StopStatus(StatusModel):
    """The write-ahead record of a stop under way: the ranks end first, then the nodes are given back."""

    reason: str
    """Suspended, Cancelled, Requeued, or why the run failed."""
    message: str = ""
    """What led to it, in a sentence."""
    time: Timestamp
    """When it was decided."""
    deadline: Timestamp
    """When pods are deleted even if ranks did not end by themselves."""


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
    attempt: int = 0
    """The current attempt; grows, never falls."""
    nodes_ready: str = ""
    """Nodes at the barrier or past it, of all, e.g. 62/64."""
    queue: QueueStatus = QueueStatus()
    """Why the run waits."""
    resolved: ResolvedStatus = ResolvedStatus()
    """What the spec left open."""
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
    stop: StopStatus | None = None
    """A stop under way."""
    requests: Annotated[tuple[RequestStatus, ...], MapList("name"), Field(max_length=8)] = ()
    """One-shot requests that were taken up."""
