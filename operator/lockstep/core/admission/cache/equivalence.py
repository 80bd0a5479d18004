"""Equivalence classes of pending runs: what is found out for one of a class holds for all."""

from dataclasses import dataclass, field

from lockstep.core.admission.engine.jobs import Option
from lockstep.core.admission.queueing.queue_rules import QueueRules


class NodeRequest:
    """Stands for the nodes that some runs ask for alike, wherever they queue."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True, eq=False, weakref_slot=True)
class EquivalenceClass:
    """Runs of one queue that wish for the same, for as long, and may hear the same of others.

    ``options`` hold while ``node_version`` is that of the cycle. ``shared`` False: they hold for this cycle alone,
    and the group is that of one run.
    """

    wish: NodeRequest
    rules: QueueRules
    shared: bool
    duration: float
    min_duration: float | None
    latest_end: float | None
    may_start: bool = True
    """False: they are to have their nodes, and get them once their specs are judged."""
    not_before: float = 0.0
    """Never later than now: who has to wait for a time is not asked."""
    node_version: object = None
    options: tuple[Option, ...] = ()
    shortest: float = field(init=False)
    """None of them takes less time than this."""

    def __post_init__(self) -> None:
        self.shortest = self.duration if self.min_duration is None else min(self.min_duration, self.duration)
