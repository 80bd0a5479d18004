"""What workers are answered: a run's directive as one slot is to see it, encoded."""

import msgspec
from msgspec import Raw, Struct

from lockstep.controller.protocol import PROTOCOL, Epoch, Start
from lockstep.core.plan import DesiredPhase, Directive

_encoder = msgspec.json.Encoder()


class _Verify(Struct, rename="camel"):
    tier: str
    path: str
    step: int
    share: int
    of: int


class _Reply(Struct, rename="camel"):
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


HOLD = "Hold"
"""Beside the desired phases: the operator does not know yet, go on with whatever you do."""
_NULL = Raw(b"null")
_NO_NODES = Raw(b"[]")


class Orders:
    """A run's directive and its revision, with the parts that are the same for every worker encoded once."""

    __slots__ = ("_nodelist", "_start", "directive", "revision", "world_size")

    def __init__(self, directive: Directive, revision: int) -> None:
        self.directive = directive
        self.revision = revision
        self.world_size = sum(rank >= 0 for rank in directive.slot_ranks)
        self._start = _NULL if directive.start is None else Raw(_encoder.encode(Start.of(directive.start)))
        self._nodelist = Raw(_encoder.encode(directive.nodelist))

    def addresses(self, slot: int, incarnation: int) -> bool:
        """The directive was made for this incarnation of the slot, not for one before or after it."""
        known = self.directive.incarnations
        return slot < len(known) and slot < len(self.directive.slot_ranks) and known[slot] == incarnation

    def start_for(self, phase: str) -> Raw:
        """START goes with ``Run``."""
        return self._start if phase == DesiredPhase.RUN else _NULL

    def nodelist_for(self, phase: str, attempt: int) -> Raw:
        """The addresses, for those yet to start: in every heartbeat of a large gang they were a flood."""
        if phase == DesiredPhase.RUN and attempt < self.directive.attempt:
            return self._nodelist
        return _NO_NODES


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
            nodelist=orders.nodelist_for(phase, attempt) if orders else _NO_NODES,
            verify=verify,
            stop_grace_seconds=orders.directive.stop_grace if orders else 0,
        )
    )
