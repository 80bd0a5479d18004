"""Result of one scheduling cycle: the jobs that start, and why each of the others waits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

from lockstep.core.admission.engine.jobs import Asker, Option
from lockstep.core.admission.engine.quota import QuotaRefusal
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.reasons import WaitReason

T = TypeVar("T")
WaitKind = Literal[
    WaitReason.RESOURCES,
    WaitReason.PRIORITY,
    WaitReason.QUOTA,
    WaitReason.RUNNING_RUNS_LIMIT,
    WaitReason.WINDOW,
    WaitReason.BEGIN_TIME,
    WaitReason.DEADLINE_UNREACHABLE,
]


@dataclass(frozen=True, slots=True)
class JobStart:
    """A job gets ``nodes`` now, until ``until``. ``backfilled``: somebody before it in the order has to wait."""

    uid: str
    option: Option
    nodes: NodeSet
    until: float
    backfilled: bool = False


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that nobody who comes later may delay. ``known`` False: it counts on a run that has no time limit."""

    start: float
    until: float
    option: Option
    nodes: NodeSet
    known: bool = True


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a job is to have once it may preempt ``victims`` (UIDs): from ``at`` on. At ``start`` they are gone.

    Nothing of it is written down: it follows from who holds what since when, and is found anew in every cycle.
    """

    at: float
    start: float
    option: Option
    nodes: NodeSet
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job does not start now. ``blockers``: UIDs of those it waits for, the last of them first."""

    kind: WaitKind
    reservation: Reservation | None = None
    blockers: tuple[str, ...] = ()
    quota: QuotaRefusal | None = None
    window: str = ""
    """The owner of the claim that forbids to start."""

    @property
    def start(self) -> float | None:
        """When it starts at the latest, as far as anybody can know."""
        return self.reservation.start if self.reservation is not None and self.reservation.known else None

    @property
    def nodes(self) -> NodeSet:
        """The nodes that are reserved for it."""
        return self.reservation.nodes if self.reservation is not None else EMPTY


class Waits(Mapping[str, Wait]):
    """Of all that were tried, by UID: put together once somebody asks for one, which in most cycles nobody does."""

    def __init__(self, askers: Sequence[Asker], answers: Sequence[Wait | None]) -> None:
        """``answers`` are those of the first of ``askers``; None: it starts."""
        self._askers, self._answers = tuple(askers), answers
        self.in_order: Sequence[Wait] = [*filter(None, answers)]

    @cached_property
    def _by_uid(self) -> Mapping[str, Wait]:
        answered = zip(self._askers, self._answers, strict=False)
        return {asker.uid: wait for asker, wait in answered if wait is not None}

    def __len__(self) -> int:
        return len(self.in_order)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_uid)

    def __getitem__(self, uid: str) -> Wait:
        return self._by_uid[uid]

    def waiting(self, askers: Sequence[T]) -> Sequence[T]:
        """The pending jobs, in the order of ``in_order``. ``askers`` are those that were asked."""
        if len(self.in_order) == len(askers):
            return askers
        answered = zip(askers, self._answers, strict=False)
        return [asker for asker, wait in answered if wait is not None]


@dataclass(frozen=True, slots=True)
class CycleResult:
    """``cut``: there was no time for the rest of the line. ``reserved``, by UID: what pending jobs are to have."""

    starts: tuple[JobStart, ...]
    waits: Waits
    cut: bool
    reserved: Mapping[str, Reservation]


@dataclass(frozen=True, slots=True)
class Estimate:
    """``position``: 1 is the first of its queue. ``start`` None: nobody can know."""

    position: int
    start: float | None
