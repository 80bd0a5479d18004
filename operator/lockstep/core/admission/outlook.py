"""What one pass over the queue comes to: who starts, and what everybody else waits for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lockstep.core.admission.jobs import Option
from lockstep.core.admission.quota import QuotaRefusal

WaitKind = Literal[
    "Resources",  # its nodes are not free, or there are none
    "Priority",  # its nodes are free, or may become so, but somebody before it is to have them
    "Quota",
    "RunningRunsLimit",
    "Window",  # it would overrun the beginning of a maintenance window
    "BeginTime",
    "DeadlineUnreachable",
]


@dataclass(frozen=True, slots=True)
class Start:
    """A job gets ``nodes`` now, until ``until``. ``backfilled``: somebody before it in the order has to wait."""

    uid: str
    option: Option
    nodes: int
    until: float
    backfilled: bool = False


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that nobody who comes later may delay. ``known`` False: it counts on a run that has no time limit."""

    start: float
    until: float
    option: Option
    nodes: int
    known: bool = True


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a job is to have once it may send ``victims`` (UIDs) away: from ``at`` on. At ``start`` they are gone.

    Nothing of it is written down: it follows from who holds what since when, and is found anew in every pass.
    """

    at: float
    start: float
    option: Option
    nodes: int
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
    def nodes(self) -> int:
        """The nodes that are reserved for it."""
        return self.reservation.nodes if self.reservation is not None else 0


@dataclass(frozen=True, slots=True)
class Outlook:
    """``waits``: by UID, of all that were looked at. ``cut``: there was no time for the rest of them."""

    starts: tuple[Start, ...]
    waits: Mapping[str, Wait]
    cut: bool


@dataclass(frozen=True, slots=True)
class Estimate:
    """``position``: 1 is the first of its queue. ``start`` None: nobody can know."""

    position: int
    start: float | None
