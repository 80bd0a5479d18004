"""Jobs and claims, as the scheduling engine sees runs. Times are in seconds."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

from lockstep.core.model.node_set import NodeSet

NO_LIMIT = 365 * 86400.0
"""Seconds that a run without a time limit is taken to need, as Slurm does. It ends so long after it began."""

OVERDUE = 1.0
"""A run past its end is expected to end within so many seconds: less than any job would want to slip in for."""

Choose = Callable[[NodeSet], NodeSet | None]


@dataclass(frozen=True, slots=True)
class Option:
    """One way to hold a job: ``count`` nodes of one GPU type.

    ``choose(available)`` gives exactly the ``count`` of them that the job would take, or None when its rules cannot be
    met; it is only asked about subsets of ``eligible``. Whatever can be met with some nodes can be met with
    more of them. Jobs that wish for the same share one ``choose``, so that what was found once serves all of them.
    """

    gpu_type: str
    count: int
    eligible: NodeSet
    choose: Choose
    fallback: bool = False
    """A smaller size, taken only if it can start now."""
    strict: bool = True
    """False: any ``count`` of ``eligible`` nodes would do, and ``choose`` always finds some among so many."""


class Terms(Protocol):
    """What those who are alike ask for; see ``Job``."""

    @property
    def options(self) -> tuple[Option, ...]: ...
    @property
    def duration(self) -> float: ...
    @property
    def shortest(self) -> float: ...
    @property
    def not_before(self) -> float: ...
    @property
    def latest_end(self) -> float | None: ...
    @property
    def may_start(self) -> bool: ...


class Asker(Protocol):
    """A pending job: or what can say which job it is once that matters."""

    @property
    def uid(self) -> str:
        """Of the run."""

    @property
    def queue(self) -> str:
        """In which it waits."""

    @property
    def terms(self) -> Terms:
        """What the job asks for, without making it."""

    @property
    def group(self) -> object:
        """See ``Job``."""

    @property
    def wanted(self) -> "Job":
        """The job that it is."""


@dataclass(slots=True, unsafe_hash=True)
class Job:
    """A pending run. Its options come in the order of its liking. Nobody changes one: thousands are made at once,
    which takes four times as long for a class that forbids it."""

    uid: str
    queue: str
    options: tuple[Option, ...]
    duration: float
    """Seconds; ``NO_LIMIT`` when nobody said."""
    min_duration: float | None = None
    """It may be cut to no less, if it can start sooner so."""
    not_before: float = 0.0
    latest_end: float | None = None
    group: object = None
    """The same object for jobs that are alike but for their UID; None: nobody knows of any."""
    may_start: bool = True
    """False: what it could have now is kept for it, as what it is promised."""

    @property
    def wanted(self) -> "Job":
        """A job is what it asks for."""
        return self

    @property
    def terms(self) -> "Job":
        """A job is what it asks for."""
        return self

    @property
    def alike(self) -> Hashable:
        """Equal for jobs that can be answered alike."""
        if self.group is not None:
            return self.group
        limits = self.duration, self.min_duration, self.not_before, self.latest_end
        return self.queue, id(self.options), *limits, self.may_start

    @property
    def shortest(self) -> float:
        """It takes no less time than this."""
        return self.duration if self.min_duration is None else min(self.min_duration, self.duration)

    def lengths(self, start: float) -> tuple[float, float]:
        """(shortest, longest) that it may have if it starts at ``start``; none will do when they cross."""
        longest = self.duration if self.latest_end is None else min(self.duration, self.latest_end - start)
        return self.shortest, longest

    @property
    def latest_start(self) -> float | None:
        """After it, the deadline cannot be met."""
        return None if self.latest_end is None else self.latest_end - self.lengths(self.latest_end)[0]


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A run that holds nodes, and until when it may."""

    uid: str
    queue: str
    gpu_type: str
    nodes: NodeSet
    count: int
    ends: float
    limited: bool = True
    """False: it has no time limit, and ``ends`` is only assumed."""
    yields_to: str = ""
    """UID of the job that is promised what it uses of the quotas, as its victim."""
    left_by: str = ""
    """UID of a run that is over and has left its pods there, where it is one: it is named, and nothing else is asked of
    it."""


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """Nodes that are spoken for from ``start`` until ``end``: by maintenance, or for the job whose UID ``owner`` is."""

    start: float
    end: float
    nodes: NodeSet
    owner: str
    notice: float = 0.0
    """Seconds of it before maintenance begins, in which whoever has the nodes still is to be gone."""

    @property
    def begins(self) -> float:
        """When the maintenance does."""
        return self.start + self.notice
