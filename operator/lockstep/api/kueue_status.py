"""What a run that Kueue admits has to remember of its reservation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lockstep.api.base.schema import StatusModel

ChosenBy = Literal["Label", "TrainingQueue"]


class KueueToleration(StatusModel):
    """A toleration, as in core/v1."""

    key: str = ""
    """Key of the taint; empty: every key."""
    operator: str = "Equal"
    """Equal or Exists."""
    value: str = ""
    """Value of the taint, with Equal."""
    effect: str = ""
    """Effect of the taint; empty: every effect."""


class KueueStatus(StatusModel):
    """The run is admitted by Kueue: which LocalQueue it asks, and what its pods owe to the reservation."""

    queue: str
    """LocalQueue in the namespace of the run."""
    chosen_by: ChosenBy = "TrainingQueue"
    """Label: the run carries kueue.x-k8s.io/queue-name, which wins. TrainingQueue: its queue has backend Kueue."""
    workload: str = ""
    """Name of its Workload."""
    workload_uid: str = ""
    """UID of the Workload on whose reservation the gang got its nodes."""
    given_up: str = ""
    """UID of a Workload whose reservation is not used any more; it is deleted."""
    cluster_queue: str = ""
    """ClusterQueue that admitted it."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Node labels of its flavors and admission checks, for the pods."""
    tolerations: Annotated[tuple[KueueToleration, ...], Field(max_length=128)] = ()
    """Tolerations of its flavors and admission checks, for the pods."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels by which Kueue knows the pods, and those of admission checks."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """The same of annotations."""
