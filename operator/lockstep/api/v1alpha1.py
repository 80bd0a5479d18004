"""The kinds of lockstep.dev/v1alpha1, defined by these models and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from lockstep.api.base.names import MAX_RUN_NAME, MAX_RUN_SET_NAME
from lockstep.api.base.schema import ApiModel, Rule, SpecModel, StatusModel
from lockstep.api.queue import TrainingQueueSpec, TrainingQueueStatus
from lockstep.api.run_set import TrainingRunSetSpec, TrainingRunSetStatus
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus


@dataclass(frozen=True)
class Column:
    """A printer column of `kubectl get`. `wide` columns need `-o wide`."""

    name: str
    path: str
    type: Literal["string", "integer", "date"] = "string"
    wide: bool = False
    description: str = ""


@dataclass(frozen=True)
class Kind:
    """What a CRD says beside its schema."""

    kind: str
    spec: type[SpecModel]
    status: type[StatusModel]
    plural: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    scope: Literal["Namespaced", "Cluster"]
    columns: tuple[Column, ...]
    selectable: tuple[str, ...]


class ObjectMeta(ApiModel):
    """The metadata that Lockstep reads. The rest stays in the raw object."""

    model_config = ConfigDict(extra="ignore")

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class TrainingRun(ApiModel):
    """A training that runs as one gang: starts together, stops together, and comes back from the newest valid
    checkpoint."""

    model_config = ConfigDict(extra="ignore")

    api_version: Literal["lockstep.dev/v1alpha1"] = "lockstep.dev/v1alpha1"
    kind: Literal["TrainingRun"] = "TrainingRun"
    metadata: ObjectMeta
    spec: TrainingRunSpec
    """What to run."""
    status: TrainingRunStatus = TrainingRunStatus()
    """What is the case."""

    cross_field_rules: ClassVar = (
        Rule(
            f"oldSelf.hasValue() || size(self.metadata.name) <= {MAX_RUN_NAME} && "
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            f"metadata.name must be at most {MAX_RUN_NAME} lower case letters, digits and '-', "
            "as pods are named after it; shorten it, and write '-' in place of dots and others",
            from_creation=True,
        ),
    )
    crd: ClassVar = Kind(
        kind="TrainingRun",
        spec=TrainingRunSpec,
        status=TrainingRunStatus,
        plural="trainingruns",
        short_names=("trun", "truns"),
        categories=("all", "lockstep"),
        scope="Namespaced",
        columns=(
            Column("State", ".status.state"),
            Column("Reason", ".status.reason"),
            Column("Nodes", ".status.nodesReady", description="Nodes ready, of all"),
            Column("Step", ".status.progress.summary", description="Step, of all where known"),
            Column("Step-Age", ".status.progress.time", "date", description="Time since the last reported step"),
            Column("Attempt", ".status.attempt", "integer"),
            Column("Queue", ".spec.queue"),
            Column(
                "User",
                r".metadata.annotations.lockstep\.dev/user",
                description="Who submitted it, as lockstep submit or sbatch wrote it down",
            ),
            Column("Age", ".metadata.creationTimestamp", "date"),
            Column("Loss", ".status.progress.loss", wide=True),
            Column(
                "Saved",
                ".status.checkpoint.latest[0].step",
                "integer",
                wide=True,
                description="Newest valid checkpoint",
            ),
            Column("Resumed", ".status.start.resume.step", "integer", wide=True, description="Step resumed from"),
            Column("Rank0", ".status.assignment.nodes[0]", wide=True, description="Node of rank 0"),
        ),
        selectable=(".spec.queue", ".status.state"),
    )


class TrainingQueue(ApiModel):
    """A line that runs wait in, and the nodes it may use. "default" exists without being created."""

    model_config = ConfigDict(extra="ignore")

    api_version: Literal["lockstep.dev/v1alpha1"] = "lockstep.dev/v1alpha1"
    kind: Literal["TrainingQueue"] = "TrainingQueue"
    metadata: ObjectMeta
    spec: TrainingQueueSpec = TrainingQueueSpec()
    """What it may use."""
    status: TrainingQueueStatus = TrainingQueueStatus()
    """What is in it."""

    crd: ClassVar = Kind(
        kind="TrainingQueue",
        spec=TrainingQueueSpec,
        status=TrainingQueueStatus,
        plural="trainingqueues",
        short_names=("tqueue", "tqueues"),
        categories=("lockstep",),
        scope="Cluster",
        columns=(
            Column("Active", ".status.conditions[?(@.type=='Active')].status", description="Whether it admits"),
            Column("Valid", ".status.conditions[?(@.type=='Valid')].status", description="Whether it makes sense"),
            Column("Pending", ".status.pending", "integer"),
            Column("Running", ".status.running", "integer"),
            Column("Nodes", ".status.nodesInUse", "integer"),
            Column("Age", ".metadata.creationTimestamp", "date"),
            Column("Stop", ".spec.stopPolicy", wide=True),
            Column("Cohort", ".spec.cohort", wide=True),
            Column("GPU-hours", ".status.gpuHoursLastDay", "integer", wide=True, description="Of the last 24 hours"),
        ),
        selectable=(".spec.stopPolicy",),
    )


class TrainingRunSet(ApiModel):
    """Many like runs that differ in an index: a job array. Its runs are TrainingRuns named after it and the index."""

    model_config = ConfigDict(extra="ignore")

    api_version: Literal["lockstep.dev/v1alpha1"] = "lockstep.dev/v1alpha1"
    kind: Literal["TrainingRunSet"] = "TrainingRunSet"
    metadata: ObjectMeta
    spec: TrainingRunSetSpec
    """What to run, and how often."""
    status: TrainingRunSetStatus = TrainingRunSetStatus()
    """What has come of it."""

    cross_field_rules: ClassVar = (
        Rule(
            f"oldSelf.hasValue() || size(self.metadata.name) <= {MAX_RUN_SET_NAME} && "
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            f"metadata.name must be at most {MAX_RUN_SET_NAME} lower case letters, digits and '-', "
            "as runs are named after it and their index; shorten it, and write '-' in place of dots and others",
            from_creation=True,
        ),
        Rule(
            "!has(self.spec.afterCorr) || self.spec.afterCorr != self.metadata.name",
            "a set cannot come after itself; name another one in spec.afterCorr",
        ),
    )
    crd: ClassVar = Kind(
        kind="TrainingRunSet",
        spec=TrainingRunSetSpec,
        status=TrainingRunSetStatus,
        plural="trainingrunsets",
        short_names=("trunset", "trunsets"),
        categories=("all", "lockstep"),
        scope="Namespaced",
        columns=(
            Column("State", ".status.state"),
            Column("Reason", ".status.reason"),
            Column("Done", ".status.done", description="Indices that have ended, of all"),
            Column("Running", ".status.counts.running", "integer"),
            Column("Pending", ".status.counts.pending", "integer"),
            Column("Failed", ".status.counts.failed", "integer"),
            Column(
                "User",
                r".metadata.annotations.lockstep\.dev/user",
                description="Who submitted it, as lockstep submit or sbatch wrote it down",
            ),
            Column("Age", ".metadata.creationTimestamp", "date"),
            Column("Indices", ".spec.indices", wide=True),
            Column("Width", ".spec.maxRunning", "integer", wide=True, description="Most that run at once"),
            Column("Succeeded", ".status.counts.succeeded", "integer", wide=True),
            Column("Cancelled", ".status.counts.cancelled", "integer", wide=True),
            Column("After", ".spec.afterCorr", wide=True),
        ),
        selectable=(".spec.afterCorr", ".status.state"),
    )


AnyKind = type[TrainingRun] | type[TrainingQueue] | type[TrainingRunSet]
KINDS: tuple[AnyKind, ...] = (TrainingRun, TrainingQueue, TrainingRunSet)
