"""The spec of a TrainingRun: what a user writes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from lockstep.api.base import names
from lockstep.api.base.core_shapes import EnvFromList, EnvList, PullSecretList, VolumeList
from lockstep.api.base.schema import (
    AsWritten,
    Changeable,
    Duration,
    MapList,
    ObjectName,
    Quantity,
    Rule,
    SetList,
    Size,
    SpecModel,
    Timestamp,
)
from lockstep.api.batch_spec import BatchSpec
from lockstep.api.checkpoint_spec import CheckpointSpec
from lockstep.api.recovery_spec import PreflightSpec, RecoverySpec

MAX_NODES = 16_384
MOST_GPUS = 128
"""Of one node."""
RESOURCE_PATTERN = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
"""An extended resource, as device plugins name them."""

LauncherType = Literal["Plain", "Torchrun", "JAX", "MPI", "DeepSpeed", "Slurm", "Ray"]
OnNodeLoss = Literal["Join", "Restart"]
TopologyPolicy = Literal["Any", "Pack", "Contiguous", "Spread"]
PlacementMode = Literal["Preferred", "Required"]
Network = Literal["Host", "Pod"]
WorkerUse = Literal["Enabled", "Disabled"]
TimeLimitActionWord = Literal["Fail", "Requeue"]
BudgetAction = Literal["Warn", "Stop"]
DependencyCondition = Literal["Succeeded", "Finished", "Failed", "Started"]
UnsatisfiableAction = Literal["Hold", "Fail"]

WhileSuspended = Changeable.WHILE_SUSPENDED
Never = Changeable.NEVER
Argument = Annotated[str, Field(max_length=32_768)]
Word = Annotated[str, Field(min_length=1, max_length=63)]
NodeName = Annotated[str, Field(min_length=1, max_length=253)]


class TorchrunSpec(SpecModel):
    """Settings of `launcher.type: Torchrun`."""

    nproc_per_node: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Processes per node; the GPUs per node when left out, at least 1."""


class MpiSpec(SpecModel):
    """Settings of `launcher.type: MPI`."""

    slots_per_node: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Processes that mpirun may start on a node; the GPUs per node when left out, at least 1."""


class RaySpec(SpecModel):
    """Settings of `launcher.type: Ray`."""

    on_node_loss: OnNodeLoss = "Join"
    """What the loss of a node does that is not rank 0's. Join: another one, a spare first, joins the cluster while the
    command and the attempt go on. Restart: it ends the attempt, as that of rank 0 does in any case."""
    arguments: Annotated[tuple[Argument, ...], Field(max_length=64)] = ()
    """Further arguments of `ray start` on every node, e.g. --num-cpus=64 or --object-store-memory=200000000000."""


class LauncherSpec(SpecModel):
    """How the processes of one node are started."""

    type: Annotated[LauncherType, Never] = "Plain"
    """Plain runs the command once per node, with the rendezvous in its environment, so that
    [torchrun, train.py] works as typed. Torchrun puts torchrun in front of the command. JAX runs the command
    once per node, with what jax.distributed.initialize() is to be given in JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES
    and JAX_PROCESS_ID. MPI runs the command on rank 0 alone, so that [mpirun, python, train.py] works as typed; the
    other nodes stand by, and mpirun starts its processes there without ssh. DeepSpeed runs DeepSpeed's own launcher on
    every node, so that [deepspeed, train.py, --deepspeed, ds.json] works as typed. Slurm runs the script of batch on
    rank 0, with srun, scontrol and the like on its PATH and SLURM_* in its environment; the other nodes stand by. Ray
    makes a Ray cluster of all nodes and runs the command on rank 0 as its driver, once they have joined."""
    torchrun: Annotated[TorchrunSpec, WhileSuspended] | None = None
    """Settings for Torchrun."""
    mpi: Annotated[MpiSpec, WhileSuspended] | None = None
    """Settings for MPI."""
    batch: Annotated[BatchSpec, WhileSuspended] | None = None
    """What Slurm runs; lockstep sbatch makes it of a script as it is."""
    ray: Annotated[RaySpec, WhileSuspended] | None = None
    """Settings for Ray."""
    steps: Annotated[bool, WhileSuspended] = False
    """Let programs of the gang start others on its nodes, by lockstep-step or lockstep_training.step(). With MPI,
    DeepSpeed and Slurm they may in any case."""

    cross_field_rules: ClassVar = (
        Rule(
            "!has(self.torchrun) || self.type == 'Torchrun'",
            "these settings need launcher.type: Torchrun; set it or leave torchrun out",
            field=".torchrun",
        ),
        Rule(
            "!has(self.mpi) || self.type == 'MPI'",
            "these settings need launcher.type: MPI; set it or leave mpi out",
            field=".mpi",
        ),
        Rule(
            "has(self.batch) == (self.type == 'Slurm')",
            "a batch script and launcher.type: Slurm go together; write both, or leave both out",
            field=".batch",
        ),
        Rule(
            "!has(self.ray) || self.type == 'Ray'",
            "these settings need launcher.type: Ray; set it or leave ray out",
            field=".ray",
        ),
    )


class TopologyRule(SpecModel):
    """How the gang lies on one level of the cluster's topology."""

    level: Word
    """Name of the level, e.g. rack or zone; the operator's configuration maps it to a node label."""
    policy: TopologyPolicy = "Pack"
    """Any: no wish. Pack: as few domains as possible. Contiguous: neighbouring domains, in label order.
    Spread: at most maxNodes in each domain."""
    mode: PlacementMode = "Preferred"
    """Preferred: the best there is; it is never in the way of a required rule. Required: wait rather than start
    otherwise. A required Pack waits for as few domains as on an idle cluster; where a wider level has a required rule
    too, as few in each domain of that, and not every way to share the gang out over those is tried."""
    max_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = None
    """Most nodes of the gang in one domain."""

    cross_field_rules: ClassVar = (
        Rule(
            "self.policy != 'Spread' || has(self.maxNodes)",
            "policy Spread needs maxNodes: write maxNodes: 1 for one node in each domain",
            field=".maxNodes",
        ),
    )


class PlacementSpec(SpecModel):
    """Which nodes, and in what arrangement."""

    gpu_types: Annotated[
        tuple[Word, ...],
        SetList(),
        Field(max_length=8),
        WhileSuspended,
    ] = ()
    """GPU types that will do; the whole gang gets one of them. The operator's configuration maps the names to
    node labels."""
    topology: Annotated[
        tuple[TopologyRule, ...],
        MapList("level"),
        Field(max_length=4),
        WhileSuspended,
    ] = ()
    """Arrangement, one entry per level."""
    nodes: Annotated[tuple[NodeName, ...], SetList(), Field(max_length=1024), WhileSuspended] = ()
    """The only nodes to choose from; any node when left out."""
    exclude_nodes: Annotated[tuple[NodeName, ...], SetList(), Field(max_length=1024)] = ()
    """Nodes the gang must not use (Slurm's -x). May change at any time; counts from the next placement on."""


class ProgressSpec(SpecModel):
    """How far the run will go."""

    total_steps: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """Steps of the whole training, for percentages and estimates."""
    tokens_per_step: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """Tokens of the whole gang in one step, for tokens per second and cost per token."""
    flops_per_token: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """Floating point operations of the model per token, about six times its parameters; with tokensPerStep and
    the peak of the GPU type from the operator's configuration this gives the MFU."""
    pattern: (
        Annotated[
            str,
            Field(min_length=1, max_length=256),
            Rule("self.contains('(?P<step>')", "names no group for the step; write it (?P<step>[0-9]+)"),
        ]
        | None
    ) = None
    """A regular expression (Python's) that is looked for in each line of a rank's output, in place of the forms that
    are known. Its group `step` is the step; groups `loss` and `total`, where there are such, are the loss and the
    number of steps there are to be. A progress file goes before it. It is checked as a logPattern is; a change holds
    from the next attempt on."""


class ElasticSpec(SpecModel):
    """May start with fewer nodes than `nodes`, and grow back."""

    min: Annotated[int, Field(ge=1, le=MAX_NODES)]
    """Fewest nodes to train with."""
    multiple_of: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """Only multiples of this many nodes."""
    grow_after: Duration = "30m"
    """At the earliest so long after a shrink the gang is stopped, after a save, to grow again."""


class TimeLimitAction(SpecModel):
    """What happens when the time limit is near."""

    action: TimeLimitActionWord = "Fail"
    """Fail: the run ends, after a save. Requeue: it queues again, after a save, and goes on later."""
    lead_time: Duration = "10m"
    """So long before the limit the save is asked for, half of the limit at most, where a program asks for saves."""


class BudgetSpec(SpecModel):
    """A bound on what the run may use."""

    gpu_hours: Annotated[int, Field(ge=1, le=10**9)]
    """GPU-hours held, over the whole life of the run."""
    action: BudgetAction = "Warn"
    """Warn: an event at 80 % and at 100 %. Stop: at 100 % the run ends, after a save."""


class Dependency(SpecModel):
    """A run of the same namespace that has to come first."""

    name: ObjectName
    """Its name. A run that does not exist yet is waited for."""
    condition: DependencyCondition = "Succeeded"
    """What it has to have done: Started (its ranks were released once), Finished (with any outcome), Succeeded or
    Failed. Once met it stays met."""


class TrainingRunSpec(SpecModel):
    """One training, run as one gang of whole nodes."""

    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)]
    """Whole nodes, one pod each. May change at any time: a gang that trains saves, and goes on with as many."""
    elastic: ElasticSpec | None = None
    """Let the gang shrink rather than wait when no node is left to replace a lost one. May change at any time."""
    spare_nodes: Annotated[int, Field(ge=0, le=64), WhileSuspended] = 0
    """Warm spares inside the gang: pods that wait at the barrier and take a lost rank's place at once."""
    gpus_per_node: Annotated[int, Field(ge=0, le=MOST_GPUS), WhileSuspended] | None = None
    """GPUs of every node, of any make; all of the node's when left out. 0 is legal."""
    gpu_resource: (
        Annotated[
            str,
            Field(min_length=3, max_length=317),
            WhileSuspended,
            Rule(
                f"self.matches(r'{RESOURCE_PATTERN}')",
                "write a resource that the operator counts as GPUs, e.g. nvidia.com/gpu or amd.com/gpu",
            ),
        ]
        | None
    ) = None
    """The resource that GPUs are requested as, e.g. amd.com/gpu. When left out: the one among resourcesPerNode, else
    the first of the operator's accelerators that nodes have which the run may use."""
    resources_per_node: Annotated[dict[str, Quantity], Field(max_length=12), WhileSuspended] = Field(
        default_factory=dict
    )
    """Resources of every node, request and limit alike. cpu and memory, when left out: what is free on the
    gang's smallest node, written to status first."""
    shm_size: Annotated[Size, WhileSuspended] | None = None
    """Size of /dev/shm; half of the memory when left out."""
    queue: Annotated[str, Field(min_length=1, max_length=63), WhileSuspended] = "default"
    """The TrainingQueue that admits the run; "default" exists without being created."""
    priority_class_name: (
        Annotated[
            ObjectName,
            WhileSuspended,
            Rule(
                "!self.startsWith('system-')",
                "system-* classes are for the cluster's own pods; name another PriorityClass",
            ),
        ]
        | None
    ) = None
    """A PriorityClass, for the order in the queue and for preemption. The pods carry Lockstep's own class."""
    nice: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Points of priority that the run gives up for the sake of others."""
    depends_on: Annotated[tuple[Dependency, ...], MapList("name"), Field(max_length=32)] = ()
    """Runs that have to come first. Counts until the run gets its nodes."""
    singleton: Word | None = None
    """Of the runs in this namespace with the same word only one has nodes at a time, the oldest first."""
    on_unsatisfiable: UnsatisfiableAction = "Hold"
    """When a dependency can never be met any more. Hold: the run waits, and says so. Fail: it ends."""
    not_before: Timestamp | None = None
    """It gets no nodes before this time."""
    deadline: Timestamp | None = None
    """It gets nodes only where its time limit ends before this time; when it no longer can, it ends."""
    image: Annotated[str, Field(min_length=1, max_length=1024), WhileSuspended]
    """Image of the training container, best by digest."""
    image_pull_secrets: Annotated[PullSecretList, WhileSuspended] = ()
    """Secrets to pull the image with."""
    service_account_name: Annotated[ObjectName, WhileSuspended] | None = None
    """Service account of the pods; the namespace's default when left out."""
    command: Annotated[tuple[Argument, ...], Field(max_length=512), WhileSuspended] = ()
    """The training command, run once per node without a shell. $(LOCKSTEP_...) expands at every start. Only
    launcher.type: Slurm goes without one, as its script is the command."""
    entrypoint: Annotated[tuple[Argument, ...], Field(max_length=64), WhileSuspended] = ()
    """Put in front of the command; the image's own ENTRYPOINT is not run."""
    working_dir: Annotated[str, Field(min_length=1, max_length=1024), WhileSuspended] | None = None
    """Directory the command starts in; the image's when left out."""
    env: Annotated[EnvList, WhileSuspended] = ()
    """Environment of the training processes."""
    env_from: Annotated[EnvFromList, WhileSuspended] = ()
    """Environment from ConfigMaps and Secrets."""
    volumes: Annotated[VolumeList, WhileSuspended] = ()
    """Volumes of the training container."""
    launcher: LauncherSpec = LauncherSpec()
    """How the processes of one node are started."""
    placement: PlacementSpec = PlacementSpec()
    """Which nodes, and in what arrangement."""
    checkpoint: CheckpointSpec | None = None
    """Where checkpoints are. Without it a lost node restarts the run at step 0, with a Warning."""
    recovery: RecoverySpec = RecoverySpec()
    """When to give up."""
    preflight: PreflightSpec = PreflightSpec()
    """What is checked before user code starts."""
    progress: ProgressSpec = ProgressSpec()
    """How far the run will go."""
    time_limit: Duration | None = None
    """Longest time with nodes since the run was last queued, suspended time left out; the queue's default when left
    out, and none when that has none."""
    min_time_limit: Duration | None = None
    """It may start with a time limit as short as this, where that lets it start sooner; what it got is in
    status.admission.timeLimit."""
    on_time_limit: TimeLimitAction = TimeLimitAction()
    """What happens when the time limit is near."""
    budget: BudgetSpec | None = None
    """A bound on what the run may use."""
    suspend: bool = False
    """Hold while pending, stop and release the nodes while running; false lets it go on."""
    cancel: Annotated[
        bool,
        Rule("self || !oldSelf", "cancel is one-way: this run ends; lockstep retry makes a new one that goes on"),
    ] = False
    """End the run and keep its record. One-way."""
    ttl_after_finished: Duration | None = None
    """So long after its end the run is deleted, its checkpoints are not; never when left out."""
    network: Annotated[Network, WhileSuspended] = "Host"
    """Host: the node's network, as NCCL over RDMA needs. Pod: the cluster's pod network."""
    worker: Annotated[WorkerUse, WhileSuspended] = "Enabled"
    """Disabled: plain pods without Lockstep's worker. No barrier, no restart in place, no checkpoint verdicts,
    no progress: every failure replaces the whole gang, once all of its pods are gone."""
    pod_template: Annotated[AsWritten, WhileSuspended] | None = None
    """A pod template merged by name over what Lockstep makes; the training container is called trainer.
    A value set here and elsewhere is an error."""

    after_the_end: ClassVar = ("cancel", "ttlAfterFinished", "checkpoint.archive", "checkpoint.retention")
    """Fields whose change means something to a run that has ended. That it is cancelled asks for what is the case."""
    cross_field_rules: ClassVar = (
        Rule(
            "!has(self.minTimeLimit) || has(self.timeLimit)",
            "is a lower bound of timeLimit; write that too, or leave it out",
            field=".minTimeLimit",
        ),
        Rule(
            "!has(self.deadline) || !has(self.notBefore) || self.notBefore < self.deadline",
            "is not before spec.deadline; move one of them",
            field=".notBefore",
        ),
        Rule(
            "!(has(self.gpusPerNode) && has(self.resourcesPerNode) && "
            f"(has(self.gpuResource) ? self.gpuResource : '{names.GPU_RESOURCE}') in self.resourcesPerNode)",
            "says the same thing as its GPUs in resourcesPerNode; keep one of them",
            field=".gpusPerNode",
        ),
        Rule(
            "(has(self.command) && size(self.command) > 0) != (has(self.launcher) && self.launcher.type == 'Slurm')",
            "write what is to run, e.g. [torchrun, train.py]; with launcher.type: Slurm leave it out, as the script in "
            "launcher.batch is what runs",
            field=".command",
        ),
        Rule(
            "!has(self.launcher) || self.launcher.type != 'Torchrun' || !has(self.command) || "
            "size(self.command) == 0 || "
            "!(self.command[0] == 'torchrun' || self.command[0].endsWith('/torchrun'))",
            "launcher.type Torchrun starts torchrun itself: write command: [train.py], "
            "or keep [torchrun, train.py] and leave launcher out",
            field=".command",
        ),
        Rule(
            "self.worker != 'Disabled' || !has(self.launcher) || "
            "!(self.launcher.type in ['MPI', 'DeepSpeed', 'Slurm', 'Ray'])",
            "the worker is what starts these on their nodes, which worker: Disabled does not have; "
            "leave one of them out",
            field=".launcher.type",
        ),
        Rule(
            "self.worker != 'Disabled' || !has(self.launcher) || !self.launcher.steps",
            "the worker carries steps out, which worker: Disabled does not have; leave one of them out",
            field=".launcher.steps",
        ),
        Rule(
            "!has(self.elastic) || self.elastic.min <= self.nodes",
            "is more than spec.nodes; lower it or raise spec.nodes",
            field=".elastic.min",
        ),
        Rule(
            "!has(self.elastic) || self.nodes % self.elastic.multipleOf == 0 && "
            "self.elastic.min % self.elastic.multipleOf == 0",
            "spec.nodes and elastic.min have to be multiples of it",
            field=".elastic.multipleOf",
        ),
        Rule(
            "!has(self.elastic) || self.worker != 'Disabled'",
            "a gang changes its size at the barrier, which worker: Disabled does not have; leave one of them out",
            field=".elastic",
        ),
        Rule(
            "self.spareNodes == 0 || self.worker != 'Disabled'",
            "spares wait at the barrier, which worker: Disabled does not have; leave one of them out",
            field=".spareNodes",
        ),
        Rule(
            "self.network == 'Host' || self.worker != 'Disabled'",
            "pods without a worker are told their peers' node addresses: write Host, or worker: Enabled",
            field=".network",
        ),
        Rule(
            "self.worker != 'Disabled' || !has(self.preflight) || self.preflight.warmUp == 'Disabled'",
            "the worker warms up at its barrier, which worker: Disabled does not have; leave one of them out",
            field=".preflight.warmUp",
        ),
        Rule(
            "!has(self.checkpoint) || self.worker != 'Disabled' || !(has(self.checkpoint.archive) || "
            "has(self.checkpoint.retention) || has(self.checkpoint.signal) || has(self.checkpoint.resumeBy))",
            "archive, retention, signal and resumeBy are the worker's to carry out; leave them out, "
            "or write worker: Enabled",
            field=".checkpoint",
        ),
        Rule(
            "!has(self.placement) || !has(self.placement.nodes) || size(self.placement.nodes) == 0 || "
            "size(self.placement.nodes) >= self.nodes",
            "names fewer nodes than spec.nodes asks for; name more of them or lower spec.nodes",
            field=".placement.nodes",
        ),
    )
