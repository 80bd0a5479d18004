"""TrainingQueue: what a platform team writes to share a cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lockstep.api.run_status import Condition
from lockstep.api.schema import MapList, SpecModel, StatusModel

StopPolicy = Literal["None", "Hold"]
LabelValue = Annotated[str, Field(max_length=63)]


class QueueLimits(SpecModel):
    """Bounds on what one queue may use. Left out: no bound."""

    max_nodes_per_run: Annotated[int, Field(ge=1, le=16_384)] | None = None
    """Most nodes of one run; a larger run is not admitted."""
    max_running_runs: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Most runs that hold nodes at the same time."""


class TrainingQueueSpec(SpecModel):
    """A line that runs wait in, in the order they came, and the nodes it may use."""

    node_selector: Annotated[dict[str, LabelValue], Field(max_length=16)] = Field(default_factory=dict)
    """Labels a node must carry to be used by this queue; every node when left out."""
    limits: QueueLimits = QueueLimits()
    """Bounds on what the queue may use."""
    stop_policy: StopPolicy = "None"
    """Hold admits nothing new; what runs goes on."""


class TrainingQueueStatus(StatusModel):
    """What is in the queue."""

    observed_generation: int = 0
    """The generation of the spec this status is about."""
    conditions: Annotated[tuple[Condition, ...], MapList("type"), Field(max_length=8)] = ()
    """Active: whether the queue admits."""
    pending: int = 0
    """Runs that wait."""
    running: int = 0
    """Runs that hold nodes."""
    nodes_in_use: int = 0
    """Nodes they hold."""
