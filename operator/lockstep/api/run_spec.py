"""The spec of a TrainingRun: what a user writes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lockstep.api import names
from lockstep.api.core_shapes import EnvFromList, EnvList, PullSecretList, VolumeList
from lockstep.api.schema import (
    Changeable,
    IntOrString,
    MapList,
    ObjectName,
    Opaque,
    Quantity,
    Rule,
    SetList,
    Size,
    SpecModel,
)

MAX_NODES = 16_384

LauncherType = Literal["Plain", "Torchrun", "JAX"]
TopologyPolicy = Literal["Any", "Pack", "Contiguous", "Spread"]
PlacementMode = Literal["Preferred", "Required"]
CheckpointFormat = Literal["Auto", "Manifest", "TorchDCP"]
StartMode = Literal["Auto", "Fresh", "Require"]
Network = Literal["Host", "Pod"]

WhileSuspended = Changeable.WHILE_SUSPENDED
Never = Changeable.NEVER
Argument = Annotated[str, Field(max_length=32_768)]
Word = Annotated[str, Field(min_length=1, max_length=63)]
NodeName = Annotated[str, Field(min_length=1, max_length=253)]


class TorchrunSpec(SpecModel):
    """Settings of `launcher.type: Torchrun`."""

    nproc_per_node: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Processes per node; the GPUs per node when left out, at least 1."""


class LauncherSpec(SpecModel):
    """How the processes of one node are started."""

    type: Annotated[LauncherType, Never] = "Plain"
    """Plain runs the command once per node, with the rendezvous in its environment, so that
    [torchrun, train.py] works as typed. Torchrun puts torchrun in front of the command. JAX runs the command
    once per node with the variables that jax.distributed.initialize() reads."""
    torchrun: Annotated[TorchrunSpec, WhileSuspended] | None = None
    """Settings for Torchrun."""

    rules: ClassVar = (
        Rule(
            "!has(self.torchrun) || self.type == 'Torchrun'",
            "these settings need launcher.type: Torchrun; set it or leave torchrun out",
            field=".torchrun",
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
    """Preferred: the best there is. Required: wait rather than start otherwise."""
    max_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = None
    """Most nodes of the gang in one domain."""

    rules: ClassVar = (
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


class LocalTier(SpecModel):
    """Checkpoints on the nodes' own disks."""

    storage: Word
    """A storage that the administrator named in the operator's configuration."""


class SharedTier(SpecModel):
    """Checkpoints on storage that every node sees."""

    claim_name: ObjectName
    """A PersistentVolumeClaim of the run's namespace that every node can mount."""
    path: (
        Annotated[
            str,
            Field(min_length=1, max_length=512),
            Rule(
                "!self.split('/').exists(part, part in ['', '.', '..'])",
                "write a path relative to the claim, without '.' or '..', e.g. team/llama-70b",
            ),
        ]
        | None
    ) = None
    """Directory inside the claim; <namespace>/<name> when left out."""


class StartSpec(SpecModel):
    """Where the first attempt starts."""

    mode: StartMode = "Auto"
    """Auto: from the newest valid checkpoint, else from step 0. Fresh: from step 0.
    Require: from a checkpoint or not at all."""


class CheckpointSpec(SpecModel):
    """Where checkpoints are and how to tell a valid one."""

    format: Annotated[CheckpointFormat, Never] = "Auto"
    """How a checkpoint is recognised as complete. Auto tells Manifest and TorchDCP apart by their files."""
    local: Annotated[LocalTier, Never] | None = None
    """The fast tier, mounted at /local-checkpoints."""
    shared: Annotated[SharedTier, Never] | None = None
    """The tier that survives the loss of a node, mounted at /shared-checkpoints."""
    start: Annotated[StartSpec, WhileSuspended] = StartSpec()
    """Where the first attempt starts."""

    rules: ClassVar = (
        Rule(
            "has(self.local) || has(self.shared)",
            "name a tier, e.g. shared: {claimName: my-claim}; without one there is nothing to resume from",
        ),
    )


class RecoverySpec(SpecModel):
    """When to give up."""

    no_progress_limit: Annotated[
        int | str,
        IntOrString(),
        Rule(
            "type(self) == int ? self >= 1 : self == 'Adaptive'",
            "write Adaptive, or a number of restarts without progress, e.g. 3",
        ),
    ] = "Adaptive"
    """Restarts in a row without a step beyond the best one, after which the run fails. Lost nodes don't
    count."""
    max_restarts: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Absolute cap on restarts of any cause; none when left out."""


class ProgressSpec(SpecModel):
    """How far the run will go."""

    total_steps: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """Steps of the whole training, for percentages and estimates."""


class TrainingRunSpec(SpecModel):
    """One training, run as one gang of whole nodes."""

    nodes: Annotated[int, Field(ge=1, le=MAX_NODES), WhileSuspended]
    """Whole nodes, one pod each."""
    gpus_per_node: Annotated[int, Field(ge=0, le=128), WhileSuspended] | None = None
    """GPUs of every node, short for resourcesPerNode["nvidia.com/gpu"]; all of the node's when left out. 0 is
    legal."""
    resources_per_node: Annotated[dict[str, Quantity], Field(max_length=12), WhileSuspended] = Field(
        default_factory=dict
    )
    """Resources of every node, request and limit alike. cpu and memory, when left out: what is free on the
    gang's smallest node, written to status first."""
    shm_size: Annotated[Size, WhileSuspended] | None = None
    """Size of /dev/shm; half of the memory when left out."""
    queue: Annotated[str, Field(min_length=1, max_length=63), WhileSuspended] = "default"
    """The TrainingQueue that admits the run; "default" exists without being created."""
    image: Annotated[str, Field(min_length=1, max_length=1024), WhileSuspended]
    """Image of the training container, best by digest."""
    image_pull_secrets: Annotated[PullSecretList, WhileSuspended] = ()
    """Secrets to pull the image with."""
    service_account_name: Annotated[ObjectName, WhileSuspended] | None = None
    """Service account of the pods; the namespace's default when left out."""
    command: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=512), WhileSuspended]
    """The training command, run once per node without a shell. $(LOCKSTEP_...) expands at every start."""
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
    progress: ProgressSpec = ProgressSpec()
    """How far the run will go."""
    suspend: bool = False
    """Hold while pending, stop and release the nodes while running; false lets it go on."""
    cancel: Annotated[
        bool,
        Rule("self || !oldSelf", "cancel is one-way: this run ends; create a new one to train on"),
    ] = False
    """End the run and keep its record. One-way."""
    network: Annotated[Network, WhileSuspended] = "Host"
    """Host: the node's network, as NCCL over RDMA needs. Pod: the cluster's pod network."""
    pod_template: Annotated[dict[str, Any], Opaque(), WhileSuspended] | None = None
    """A pod template merged by name over what Lockstep makes; the training container is called trainer.
    A value set here and elsewhere is an error."""

    rules: ClassVar = (
        Rule(
            f"!(has(self.gpusPerNode) && has(self.resourcesPerNode) && '{names.GPU_RESOURCE}' in "
            "self.resourcesPerNode)",
            'gpusPerNode and resourcesPerNode["nvidia.com/gpu"] say the same thing; keep one of them',
            field=".gpusPerNode",
        ),
        Rule(
            "self.launcher.type != 'Torchrun' || "
            "!(self.command[0] == 'torchrun' || self.command[0].endsWith('/torchrun'))",
            "launcher.type Torchrun starts torchrun itself: write command: [train.py], "
            "or keep [torchrun, train.py] and leave launcher out",
            field=".command",
        ),
        Rule(
            "!has(self.placement) || !has(self.placement.nodes) || size(self.placement.nodes) == 0 || "
            "size(self.placement.nodes) >= self.nodes",
            "names fewer nodes than spec.nodes asks for; name more of them or lower spec.nodes",
            field=".placement.nodes",
        ),
    )

    @property
    def gpus_asked(self) -> int | None:
        """GPUs of every node as the spec asks for them; None: all that the node has."""
        if self.gpus_per_node is not None:
            return self.gpus_per_node
        asked = self.resources_per_node.get(names.GPU_RESOURCE)
        return None if asked is None else int(asked)
