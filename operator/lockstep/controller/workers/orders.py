"""What workers are answered: a run's directive as one slot is to see it, encoded."""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from lockstep.controller.workers.protocol import PROTOCOL, Epoch, Start
from lockstep.core.model.plan import DesiredPhase, Directive, RetentionOrder
from lockstep.core.model.quarantine import Save

_encoder = msgspec.json.Encoder()


class _Verify(Struct, rename="camel"):
    tier: str
    path: str
    step: int
    share: int
    of: int


class _Point(Struct, rename="camel"):
    path: str
    step: int
    format: str


class _Save(Struct, rename="camel"):
    id: str
    at_step: int
    deadline: float
    reason: str


class _Cadence(Struct, rename="camel"):
    seconds: float
    steps: int
    shared_steps: int
    from_step: int


class _WarmUp(Struct, rename="camel"):
    id: str
    kind: str
    addresses: tuple[str, ...]
    ports: tuple[int, ...]


class _Retention(Struct, rename="camel"):
    # Saves as (step, attempt).
    floor: tuple[int, int] | None
    kept: tuple[tuple[int, int], ...]
    spent: tuple[tuple[int, int], ...]


class _Reply(Struct, rename="camel", omit_defaults=True):
    # What has a default is left out of most replies, which are many.
    protocol: int
    epoch: Epoch
    revision: int
    server_time: float
    heartbeat_seconds: float
    fence_seconds: float
    phase: str
    attempt: int
    rank: int
    world_size: int
    start: Raw
    nodelist: Raw
    verify: _Verify | None
    stop_grace_seconds: int
    save: Raw | UnsetType = UNSET
    stopping_at: float | UnsetType = UNSET
    cadence: Raw | UnsetType = UNSET
    watch: Raw | UnsetType = UNSET
    stacks: str = ""
    point: _Point | None = None
    warm_up: Raw | UnsetType = UNSET
    jitter_seconds: float | UnsetType = UNSET
    start_in: float | UnsetType = UNSET
    retention: Raw | UnsetType = UNSET


HOLD = "Hold"
"""Beside the desired phases: the operator does not know yet, go on with whatever you do."""
_NULL = Raw(b"null")
_NOTHING = Raw(b"[]")


class Orders:
    """A run's directive and its revision, with the parts that are the same for every worker encoded once.

    ``start_at``: Unix seconds before which no program of its START is to begin.
    """

    __slots__ = (
        "_cadence",
        "_nodelist",
        "_retention",
        "_save",
        "_start",
        "_warm_up",
        "_watch",
        "directive",
        "revision",
        "start_at",
        "world_size",
    )

    def __init__(self, directive: Directive, revision: int, start_at: float = 0.0) -> None:
        self.directive = directive
        self.revision = revision
        self.start_at = start_at
        self.world_size = sum(rank >= 0 for rank in directive.slot_ranks)
        self._start = _NULL if directive.start is None else Raw(_encoder.encode(Start.from_record(directive.start)))
        self._nodelist = Raw(_encoder.encode(directive.nodelist))
        save, cadence, warm_up = directive.save, directive.cadence, directive.warm_up
        self._save = _raw(save and _Save(save.id, save.at_step, save.deadline, save.reason))
        self._cadence = _raw(
            cadence and _Cadence(cadence.seconds, cadence.steps, cadence.shared_steps, cadence.from_step)
        )
        self._warm_up = _raw(warm_up and _WarmUp(warm_up.id, warm_up.kind, warm_up.addresses, warm_up.ports))
        self._retention = _raw(directive.retention and _as_told(directive.retention))
        self._watch = _raw([{"name": name, "pattern": pattern} for name, pattern in directive.watch])

    def addresses(self, slot: int, incarnation: int) -> bool:
        """The directive was made for this incarnation of the slot, not for one before or after it."""
        known = self.directive.incarnations
        return slot < len(known) and slot < len(self.directive.slot_ranks) and known[slot] == incarnation

    def has_superseded(self, slot: int, incarnation: int) -> bool:
        """The slot has moved on to a later incarnation."""
        known = self.directive.incarnations
        return slot < len(known) and known[slot] > incarnation

    def save_for(self, phase: str) -> Raw | UnsetType:
        """A save is asked of those that run."""
        return self._save if phase == DesiredPhase.RUN else UNSET

    def cadence_for(self, phase: str) -> Raw | UnsetType:
        """Whoever runs is told how often to save, with every heartbeat."""
        return self._cadence if phase == DesiredPhase.RUN else UNSET

    def watch_for(self, phase: str, attempt: int) -> Raw | UnsetType:
        """What to look for in stderr, for those yet to start."""
        return self._watch if phase == DesiredPhase.RUN and attempt < self.directive.attempt else UNSET

    def retention_for(self, phase: str, attempt: int) -> Raw | UnsetType:
        """What may be removed of earlier attempts' saves, for those yet to start."""
        return self._retention if phase == DesiredPhase.RUN and attempt < self.directive.attempt else UNSET

    def start_in_for(self, phase: str, attempt: int, now: float) -> float | UnsetType:
        """Seconds for those yet to start, so that all start together, whoever was told first."""
        if phase == DesiredPhase.RUN and attempt < self.directive.attempt and self.start_at > now:
            return round(self.start_at - now, 4)
        return UNSET

    def point_for(self, phase: str, slot: int) -> _Point | None:
        """Pointers are rewritten by one elected worker."""
        point = self.directive.point
        if point is None or phase != DesiredPhase.PREPARE or point.slot != slot:
            return None
        return _Point(point.path, point.step, point.format)

    def warm_up_for(self, phase: str) -> Raw | UnsetType:
        """An exchange between the nodes happens at the barrier."""
        return self._warm_up if phase == DesiredPhase.PREPARE else UNSET

    def start_for(self, phase: str) -> Raw:
        """START goes with ``Run``."""
        return self._start if phase == DesiredPhase.RUN else _NULL

    def nodelist_for(self, phase: str, attempt: int) -> Raw:
        """The addresses, for those yet to start: in every heartbeat of a large gang they were a flood."""
        if phase == DesiredPhase.RUN and attempt < self.directive.attempt:
            return self._nodelist
        return _NOTHING


def encode_reply(
    orders: Orders | None,
    *,
    slot: int,
    incarnation: int,
    attempt: int,
    epoch: Epoch,
    now: float,
    heartbeat_seconds: float,
    fence_seconds: float,
) -> bytes:
    """The reply to one worker: ``Hold`` when there is no order for it.

    ``attempt`` is that of the child it runs or last ran.
    """
    phase, rank, verify = HOLD, -1, None
    if orders is not None and orders.has_superseded(slot, incarnation):
        phase = DesiredPhase.STOP.value  # it should be gone already, and writes where its successor does
    if orders is not None and orders.addresses(slot, incarnation):
        directive = orders.directive
        rank, phase = directive.slot_ranks[slot], directive.phase.value
        if rank < 0 and phase == DesiredPhase.RUN:
            phase = DesiredPhase.PREPARE.value  # a spare stays at the barrier while the others run
        if directive.verify is not None and phase == DesiredPhase.PREPARE and rank >= 0:
            wanted = directive.verify
            verify = _Verify(wanted.tier, wanted.path, wanted.step, rank, orders.world_size)
    return _encoder.encode(
        _Reply(
            protocol=PROTOCOL,
            epoch=epoch,
            revision=orders.revision if orders else 0,
            server_time=now,
            heartbeat_seconds=heartbeat_seconds,
            fence_seconds=fence_seconds,
            phase=phase,
            attempt=orders.directive.attempt if orders and phase != HOLD else 0,
            rank=rank,
            world_size=orders.world_size if orders else 0,
            start=orders.start_for(phase) if orders else _NULL,
            nodelist=orders.nodelist_for(phase, attempt) if orders else _NOTHING,
            verify=verify,
            stop_grace_seconds=orders.directive.stop_grace if orders else 0,
            save=orders.save_for(phase) if orders else UNSET,
            stopping_at=(orders.directive.stopping_at if orders and phase == DesiredPhase.RUN else 0.0) or UNSET,
            cadence=orders.cadence_for(phase) if orders else UNSET,
            watch=orders.watch_for(phase, attempt) if orders else UNSET,
            stacks=orders.directive.stacks if orders and phase == DesiredPhase.RUN else "",
            point=orders.point_for(phase, slot) if orders else None,
            warm_up=orders.warm_up_for(phase) if orders and rank >= 0 else UNSET,
            jitter_seconds=(orders.directive.jitter if orders else 0.0) or UNSET,
            start_in=orders.start_in_for(phase, attempt, now) if orders else UNSET,
            retention=orders.retention_for(phase, attempt) if orders else UNSET,
        )
    )


def _as_told(retention: RetentionOrder) -> _Retention:
    def pairs(saves: Iterable[Save]) -> tuple[tuple[int, int], ...]:
        return tuple((save.step, save.attempt) for save in saves)

    floor = retention.floor
    return _Retention((floor.step, floor.attempt) if floor else None, pairs(retention.kept), pairs(retention.spent))


def _raw(value: object) -> Raw | UnsetType:
    return Raw(_encoder.encode(value)) if value else UNSET
