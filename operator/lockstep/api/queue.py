"""TrainingQueue: what a platform team writes to share a cluster."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lockstep.api.base.core_shapes import EnvList, VolumeList
from lockstep.api.base.schema import Duration, MapList, ObjectName, Rule, SetList, SpecModel, StatusModel, Timestamp
from lockstep.api.run_status import Condition

StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
Backend = Literal["Builtin", "Kueue"]
Visibility = Literal["Full", "OwnNamespace"]
GpuHoursAction = Literal["Warn", "Block"]
WithinQueue = Literal["Never", "LowerPriority"]
WithinCohort = Literal["Never", "LowerPriority", "Any"]
ScaleUp = Literal["Disabled", "Enabled"]
QueueLauncher = Literal["Plain", "Torchrun", "JAX", "MPI", "DeepSpeed", "Ray"]
SelectorOperator = Literal["In", "NotIn", "Exists", "DoesNotExist"]
LabelValue = Annotated[str, Field(max_length=63)]
LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
Word = Annotated[str, Field(min_length=1, max_length=63)]
ClassName = Annotated[str, Field(min_length=1, max_length=253)]
Nodes = Annotated[int, Field(ge=0, le=1_000_000)]
ProvisioningClass = Annotated[
    str,
    Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"),
    Rule("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')", "write a name such as queued-provisioning.gke.io"),
]
RunKey = Annotated[
    str,
    Field(min_length=3, max_length=317, pattern="^[^/]+/[^/]+$"),
    Rule("self.matches('^[^/]+/[^/]+$')", "write a run as namespace/name"),
]
ANY_GPU_TYPE = "Any"


class Quota(SpecModel):
    """Whole nodes of one GPU type."""

    gpu_type: Word
    """A GPU type of the operator's configuration, or Any: nodes of every type that no other entry names."""
    nominal_nodes: Nodes
    """Nodes that are the queue's own."""
    borrowing_limit: Nodes | None = None
    """Most nodes it may use beyond its own, while other queues of its cohort leave theirs unused; as many as
    there are when left out."""
    lending_limit: Nodes | None = None
    """Most of its own nodes that others of its cohort may use; all of them when left out."""


class QueueLimits(SpecModel):
    """Bounds on what one queue may use. Left out: no bound."""

    max_nodes_per_run: Annotated[int, Field(ge=1, le=16_384)] | None = None
    """Most nodes of one run; a larger run is not admitted."""
    max_running_runs: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Most runs that hold nodes at the same time."""
    max_pending_runs: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Most runs that wait for nodes; those that came later are held until there is room."""
    default_time_limit: Duration | None = None
    """Time limit of a run that names none."""
    max_time_limit: Duration | None = None
    """Longest time limit; a run that names a longer one, or has none at all, is not admitted."""
    gpu_hours_per_day: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """GPU-hours that the queue's runs may use within any 24 hours."""
    on_gpu_hours: GpuHoursAction = "Block"
    """Block: once they are used up nothing new is admitted until enough of them are a day old; what runs goes on.
    Warn: an event on every run that is admitted beyond them."""


class FairSharing(SpecModel):
    """The queue's part of the cluster where queues compete."""

    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Its share, held against the sum over all queues."""


class QueuePreemption(SpecModel):
    """Which runs may be stopped, after a save, for one that waits."""

    within_queue: WithinQueue = "Never"
    """LowerPriority: runs of this queue with a lower priority class may."""
    reclaim_within_cohort: WithinCohort = "Never"
    """Runs of other queues of the cohort that use borrowed nodes may, while this queue stays within its own:
    LowerPriority those with a lower priority class, Any all of them."""
    min_runtime: Duration = "10m"
    """A run of this queue is stopped for nobody before it has had its nodes for so long."""


class SelectorExpression(SpecModel):
    """One line of a label selector, as in core/v1."""

    key: LabelKey
    """Label."""
    operator: SelectorOperator
    """How `values` are meant."""
    values: Annotated[tuple[LabelValue, ...], SetList(), Field(max_length=32)] = ()
    """For In and NotIn."""

    cross_field_rules: ClassVar = (
        Rule(
            "self.operator in ['In', 'NotIn'] == (has(self.values) && size(self.values) > 0)",
            "In and NotIn need values, Exists and DoesNotExist take none",
            field=".values",
        ),
    )


class LabelSelector(SpecModel):
    """A label selector, as in core/v1. An empty one selects everything."""

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=16)] = Field(default_factory=dict)
    """Labels that have to be there with these values."""
    match_expressions: Annotated[tuple[SelectorExpression, ...], Field(max_length=16)] = ()
    """Further rules, all of which have to hold."""


class BatchDefaults(SpecModel):
    """What batch scripts find that are submitted to the queue, so that nothing has to be added to them; and what
    `lockstep submit` makes of flags."""

    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Image of those that name none."""
    volumes: VolumeList = ()
    """Volumes of their runs, at the paths that scripts expect, e.g. /home by a claim of the run's namespace."""
    env: EnvList = ()
    """Environment of their runs; what the submission carries of the same name comes first."""
    carry: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=253)], ...], SetList(), Field(max_length=64)
    ] = ()
    """Variables of the submitter's shell that go along, e.g. HF_TOKEN or WANDB_*; none when left out, whatever
    --export=ALL says, as they are those of another host."""
    launcher: QueueLauncher | None = None
    """What `--launcher` says where `lockstep submit` is given none, and the command does not begin with a launcher of
    its own, such as torchrun or mpirun. Batch scripts start their own processes."""
    checkpoint_claim: ObjectName | None = None
    """What `--checkpoint-claim` says where `lockstep submit` is given none: a claim of the run's namespace. For batch
    scripts there is scriptCheckpointClaim."""
    script_checkpoint_claim: ObjectName | None = None
    """What batch scripts get as `checkpoint.shared.claimName`: a claim of the run's namespace. A script that fails then
    runs again from its start, unless it has --no-requeue; left out, its first failure ends the job, as in Slurm."""
    submit_from_inside: bool = False
    """Let a running batch job submit others, to this queue and for its own user (sbatch in a script)."""


class TrainingQueueSpec(SpecModel):
    """A line that runs wait in, and the nodes it may use."""

    backend: Backend = "Builtin"
    """Who admits its runs. Builtin: Lockstep. Kueue: Kueue, by a Workload in `localQueue`; quotas, cohort and
    preemption are then the ClusterQueue's."""
    local_queue: ClassName | None = None
    """With backend Kueue: the LocalQueue, in the namespace of each run; the name of this queue when left out."""
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=16)] = Field(default_factory=dict)
    """Labels a node must carry to be used by this queue; every node when left out."""
    namespace_selector: LabelSelector | None = None
    """Namespaces whose runs may use the queue; every namespace when left out."""
    cohort: Word | None = None
    """Queues of the same cohort lend each other what they don't use."""
    fair_sharing: FairSharing = FairSharing()
    """The queue's part of the cluster where queues compete."""
    quotas: Annotated[tuple[Quota, ...], MapList("gpuType"), Field(max_length=16)] = ()
    """Nodes that the queue may use, by GPU type; no bound when left out. A type that is not named it may not use."""
    limits: QueueLimits = QueueLimits()
    """Bounds on what the queue may use."""
    allowed_priority_classes: Annotated[tuple[ClassName, ...], SetList(), Field(max_length=32)] = ()
    """Priority classes that its runs may name; any but system-* when left out."""
    preemption: QueuePreemption = QueuePreemption()
    """Which runs may be stopped, after a save, for one that waits."""
    visibility: Visibility = "Full"
    """What a run is told of runs of other namespaces: Full their names, OwnNamespace how many there are. Nor are runs
    of a queue with OwnNamespace named to those of another queue."""
    held_runs: Annotated[tuple[RunKey, ...], SetList(), Field(max_length=1024)] = ()
    """Runs, as namespace/name, that the administrator holds back. What runs goes on."""
    stop_policy: StopPolicy = "None"
    """Hold admits nothing new; what runs goes on. HoldAndDrain: what runs saves, gives its nodes back and waits."""
    scale_up: ScaleUp = "Disabled"
    """Enabled: a gang that waits for nodes which do not exist asks the cluster's autoscaler for them, within the
    quotas: by a ProvisioningRequest where the operator may make those and they are served, else by placeholder pods."""
    batch: BatchDefaults | None = None
    """For batch scripts of Slurm, and for runs that `lockstep submit` makes of flags: read where they are submitted."""
    provisioning_class: ProvisioningClass | None = None
    """The class of those ProvisioningRequests; best-effort-atomic-scale-up.autoscaling.x-k8s.io when left out."""

    cross_field_rules: ClassVar = (
        Rule(
            "!has(self.localQueue) || self.backend == 'Kueue'",
            "is Kueue's: write backend: Kueue, or leave localQueue out",
            field=".localQueue",
        ),
        Rule(
            "self.backend != 'Kueue' || !has(self.quotas) || size(self.quotas) == 0",
            "with backend Kueue the ClusterQueue has the quotas; leave them out",
            field=".quotas",
        ),
        Rule(
            "self.backend != 'Kueue' || !has(self.cohort)",
            "with backend Kueue the ClusterQueue has the cohort; leave it out",
            field=".cohort",
        ),
        Rule(
            "self.backend != 'Kueue' || !has(self.preemption) || (self.preemption.withinQueue == 'Never' && "
            "self.preemption.reclaimWithinCohort == 'Never')",
            "with backend Kueue the ClusterQueue says who is preempted; leave it out",
            field=".preemption",
        ),
        Rule(
            "self.backend != 'Kueue' || !has(self.limits) || "
            "(!has(self.limits.maxRunningRuns) && !has(self.limits.maxPendingRuns))",
            "with backend Kueue the ClusterQueue bounds how many run; leave maxRunningRuns and maxPendingRuns out",
            field=".limits",
        ),
        Rule(
            "self.backend != 'Kueue' || !has(self.scaleUp) || self.scaleUp == 'Disabled'",
            "with backend Kueue a ProvisioningRequest admission check of the ClusterQueue asks for nodes; leave it out",
            field=".scaleUp",
        ),
        Rule(
            "!has(self.provisioningClass) || (has(self.scaleUp) && self.scaleUp == 'Enabled')",
            "is of scaleUp: Enabled; write that, or leave provisioningClass out",
            field=".provisioningClass",
        ),
        Rule(
            "has(self.cohort) || !has(self.quotas) || "
            "self.quotas.all(q, !has(q.borrowingLimit) && !has(q.lendingLimit))",
            "borrowingLimit and lendingLimit need a cohort; name one or leave them out",
            field=".quotas",
        ),
        Rule(
            "!has(self.cohort) || (has(self.quotas) && size(self.quotas) > 0)",
            "a queue of a cohort needs quotas: without any there is nothing to lend and no bound on borrowing",
            field=".cohort",
        ),
    )


class QuotaUsage(StatusModel):
    """What the queue uses of one GPU type."""

    gpu_type: str
    """The GPU type."""
    nodes: int = 0
    """Nodes that its runs hold."""
    borrowed: int = 0
    """Of these, beyond its own."""


class TrainingQueueStatus(StatusModel):
    """What is in the queue."""

    observed_generation: int = 0
    """The generation of the spec this status is about."""
    conditions: Annotated[tuple[Condition, ...], MapList("type"), Field(max_length=8)] = ()
    """Active: whether the queue admits. Valid: whether its spec can be read, and its quotas, cohort and priority
    classes make sense beside the others and the operator's configuration."""
    pending: int = 0
    """Runs that wait."""
    running: int = 0
    """Runs that hold nodes."""
    nodes_in_use: int = 0
    """Nodes they hold."""
    usage: Annotated[tuple[QuotaUsage, ...], MapList("gpuType"), Field(max_length=16)] = ()
    """The same by GPU type of its quotas; Other stands for nodes of no configured type."""
    gpu_hours_last_day: int | None = None
    """GPU-hours of the last 24 hours; none while not known."""
    updated: Timestamp | None = None
    """When these figures were written; at most every ten seconds."""

    def dump(self) -> dict[str, Any]:
        """Return the JSON form. A 0 is written too: people look at it."""
        return self.model_dump(mode="json", exclude_none=True)
