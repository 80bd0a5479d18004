"""What status says of runs that are stopped for another one: on the one that waits, and on those that go."""

from __future__ import annotations

from lockstep.api.base.schema import StatusModel, Timestamp


class ReservationStatus(StatusModel):
    """Nodes that are kept for a run while others are stopped for it; written before any of them is told."""

    time: Timestamp
    """When it was decided."""
    deadline: Timestamp
    """When its nodes are free at the latest; if they are not, others are looked for."""
    nodes: tuple[str, ...] = ()
    """The nodes that it is to get; left out when in the ConfigMap."""
    victims: tuple[str, ...] = ()
    """UIDs of the runs that are stopped for it; left out when in the ConfigMap."""
    hash: str = ""
    """Hash of nodes and victims."""
    config_map: str = ""
    """The immutable ConfigMap that holds nodes and victims where they are too large for status."""


class PreemptionStatus(StatusModel):
    """The notice of a preemption; the stop follows from it."""

    by: str
    """UID of the run that preempts it."""
    name: str = ""
    """That run as namespace/name, where the queue's visibility allows to say it."""
    reason: str = ""
    """WithinQueue: for a run of a higher class in its queue; Reclaim: for nodes that its queue has borrowed."""
    notice_time: Timestamp
    """When it was told."""
    deadline: Timestamp
    """When its nodes are to be free: its grace period for the save, and the time that a stop may take."""
    saved_at_least: int | None = None
    """Step of the newest valid checkpoint at that time; nothing before it is lost."""
