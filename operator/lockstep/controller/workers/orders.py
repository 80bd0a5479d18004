"""What workers are answered: a run's directive as one slot is to see it, encoded."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from lockstep.controller.workers.protocol import PROTOCOL, Epoch
from lockstep.controller.workers.step_certificates import StepIdentity
from lockstep.core.model.plan import AskAnswer, BatchOrder, DesiredPhase, Directive, VerifyRequest
from lockstep.core.run.batch_job import fields_of

HOLD = "Hold"
"""Beside the desired phases: the operator does not know yet, go on with whatever you do."""
_NULL = Raw(b"null")
_encoder = msgspec.json.Encoder()


class _Steps(Struct):
    ca: Raw
    certificate: str
    key: str
    ports: Raw
    names: Raw | UnsetType = UNSET


class _Batch(NamedTuple):
    """Encoded once. The script and its arguments, which may be long, are for rank 0 alone."""

    of_first: Raw
    of_others: Raw


class _Reply(Struct, rename="camel", kw_only=True):
    # What may be UNSET is left out of most replies, which are many.
    protocol: int = PROTOCOL
    epoch: Epoch
    revision: int = 0
    server_time: float
    heartbeat_seconds: float
    fence_seconds: float
    phase: str = HOLD
    attempt: int = 0
    rank: int = -1
    world_size: int = 0
    start: Raw = _NULL
    nodelist: Raw = Raw(b"[]")
    verify: VerifyRequest | None = None
    look_again: bool | UnsetType = UNSET
    pass_over: Raw | UnsetType = UNSET
    stop_grace_seconds: int | UnsetType = 0
    save: Raw | UnsetType = UNSET
    stopping_at: float | UnsetType = UNSET
    cadence: Raw | UnsetType = UNSET
    watch: Raw | UnsetType = UNSET
    progress_pattern: str | UnsetType = UNSET
    stacks: str | UnsetType = UNSET
    point: dict[str, str | int] | UnsetType = UNSET
    warm_up: Raw | UnsetType = UNSET
    jitter_seconds: float | UnsetType = UNSET
    start_in: float | UnsetType = UNSET
    retention: Raw | UnsetType = UNSET
    steps: _Steps | UnsetType = UNSET
    batch: Raw | UnsetType = UNSET
    asked: list[AskAnswer] | UnsetType = UNSET
    token: str | UnsetType = UNSET
    superseded: bool | UnsetType = UNSET


class Orders:
    """A run's directive and its revision, with the parts that are the same for every worker encoded once.

    ``start_at``: Unix seconds before which no program of its START is to begin.
    """

    __slots__ = (
        "_batch",
        "_cadence",
        "_nodelist",
        "_pass_over",
        "_retention",
        "_save",
        "_start",
        "_step_names",
        "_step_ports",
        "_warm_up",
        "_watch",
        "_world_size",
        "directive",
        "revision",
        "start_at",
    )

    def __init__(self, directive: Directive, revision: int, start_at: float = 0.0) -> None:
        self.directive = directive
        self.revision = revision
        self.start_at = start_at
        self._world_size = sum(rank >= 0 for rank in directive.slot_ranks)
        self._start = _encoded(directive.start)
        self._nodelist = _encoded(directive.nodelist)
        self._step_ports = _encoded(directive.step_ports)
        self._step_names = _encoded(_shared(directive.step_nodes)) if directive.step_nodes else UNSET
        self._batch = _batch(directive.batch) if directive.batch is not None else None
        self._save = _raw(directive.save)
        self._cadence = _raw(directive.cadence)
        self._warm_up = _raw(directive.warm_up)
        self._pass_over = _raw(directive.pass_over)
        self._retention = _raw(directive.retention)
        self._watch = _raw([{"name": name, "pattern": pattern} for name, pattern in directive.watch])

    def is_to_get_steps(self, slot: int, incarnation: int, attempt: int) -> bool:
        """This worker is to start the attempt, which has steps: it needs to be known to its peers. No other is."""
        return bool(self.directive.step_ports) and self._is_to_start(slot, incarnation, attempt)

    def is_to_get_token(self, slot: int, incarnation: int, attempt: int) -> bool:
        """This worker is to start the attempt, whose workers share a secret. No other gets it."""
        return self.directive.has_token and self._is_to_start(slot, incarnation, attempt)

    def _is_to_start(self, slot: int, incarnation: int, attempt: int) -> bool:
        directive = self.directive
        return (
            directive.phase is DesiredPhase.RUN
            and attempt < directive.attempt
            and slot < len(directive.slot_ranks)
            and directive.slot_ranks[slot] >= 0
            and slot not in directive.joining
            and directive.incarnations[slot] == incarnation
        )

    def tell(
        self,
        reply: _Reply,
        slot: int,
        incarnation: int,
        attempt: int,
        identity: StepIdentity | None = None,
        token: str = "",
    ) -> None:
        """Say what one worker is to do; ``Hold`` stays where the directive does not know of its incarnation yet."""
        directive = self.directive
        reply.revision, reply.world_size = self.revision, self._world_size
        reply.stop_grace_seconds, reply.jitter_seconds = directive.stop_grace, directive.jitter or UNSET
        made_for = directive.incarnations[slot] if slot < len(directive.incarnations) else -1
        if made_for > incarnation or reply.superseded is True:
            _tell_to_stop(reply, directive.attempt)
            return
        if made_for != incarnation or slot >= len(directive.slot_ranks):
            return
        reply.phase, reply.attempt, reply.rank = directive.phase, directive.attempt, directive.slot_ranks[slot]
        if directive.phase is DesiredPhase.RUN and (reply.rank < 0 or slot in directive.joining):
            reply.phase = DesiredPhase.PREPARE  # it stays at the barrier while the others run
        if reply.phase == DesiredPhase.PREPARE:
            self._tell_of_barrier(reply, slot)
        elif reply.phase == DesiredPhase.RUN:
            self._tell_of_start(reply, attempt)
            if identity is not None and self.is_to_get_steps(slot, incarnation, attempt):
                reply.steps = _Steps(
                    identity.ca, identity.certificate, identity.key, self._step_ports, self._step_names
                )
            if token and self.is_to_get_token(slot, incarnation, attempt):
                reply.token = token

    def _tell_of_barrier(self, reply: _Reply, slot: int) -> None:
        verify, point = self.directive.verify, self.directive.point
        if reply.rank >= 0:
            reply.warm_up = self._warm_up
            if verify is not None:
                reply.verify = msgspec.structs.replace(verify, share=reply.rank, of=self._world_size)
            reply.look_again = slot in self.directive.look_again or UNSET
            reply.pass_over = self._pass_over
        if point is not None and point.slot == slot:  # pointers are rewritten by one elected worker
            reply.point = {"path": point.path, "step": point.step, "format": point.format}

    def _tell_of_start(self, reply: _Reply, attempt: int) -> None:
        directive = self.directive
        reply.start, reply.save, reply.cadence = self._start, self._save, self._cadence
        reply.stopping_at, reply.stacks = directive.stopping_at or UNSET, directive.stacks or UNSET
        if attempt >= directive.attempt:
            return
        # For those yet to start: in every heartbeat of a large gang the addresses were a flood.
        reply.nodelist, reply.watch, reply.retention = self._nodelist, self._watch, self._retention
        reply.progress_pattern = directive.progress_pattern or UNSET
        if self._batch is not None:
            reply.batch = self._batch.of_first if reply.rank == 0 else self._batch.of_others
        if self.start_at > reply.server_time:  # seconds, so that all start together, whoever was told first
            reply.start_in = round(self.start_at - reply.server_time, 4)


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
    identity: StepIdentity | None = None,
    asks: Collection[str] = (),
    token: str = "",
    is_past: bool = False,
) -> bytes:
    """The reply to one worker: ``Hold`` when there is no order for it.

    ``attempt`` is that of the child it runs or last ran; ``identity`` that of this very worker in the next one, and
    ``token`` that attempt's; ``asks`` are the ids of what it asks for. ``is_past``: its slot has a newer incarnation,
    whether or not the order says so yet.
    """
    reply = _Reply(epoch=epoch, server_time=now, heartbeat_seconds=heartbeat_seconds, fence_seconds=fence_seconds)
    if is_past:
        reply.stop_grace_seconds = UNSET  # where no order says, the worker's own
        _tell_to_stop(reply, attempt)
    if orders is not None:
        orders.tell(reply, slot, incarnation, attempt, identity, token)
        if asks:
            reply.asked = [answer for answer in orders.directive.asked if answer.id in asks] or UNSET
    return _encoder.encode(reply)


def _tell_to_stop(reply: _Reply, attempt: int) -> None:
    """A newer incarnation has the slot: whatever runs there of that attempt, or an earlier one, is to end."""
    reply.phase, reply.attempt, reply.superseded = DesiredPhase.STOP, max(reply.attempt, attempt), True


def _batch(order: BatchOrder) -> _Batch:
    told = {field: getattr(order, field) for field in BatchOrder.__slots__}
    told["job"] = fields_of(order.job)
    others = {field: value for field, value in told.items() if field not in ("script", "arguments")}
    return _Batch(_encoded(told), _encoded(others))


def _shared(nodes: Sequence[str]) -> dict[str, str]:
    """Their names, with the beginning and the end that all of them have once: each worker is told the names of all."""
    head = _common(nodes)
    inner = [name[len(head) :] for name in nodes]
    tail = _common([name[::-1] for name in inner])[::-1]
    return {"head": head, "tail": tail, "rest": ",".join(name[: len(name) - len(tail)] for name in inner)}


def _common(texts: Sequence[str]) -> str:
    """How all of them begin."""
    first, last = min(texts), max(texts)
    return first[: next((at for at, character in enumerate(first) if last[at : at + 1] != character), len(first))]


def _encoded(value: object) -> Raw:
    return Raw(_encoder.encode(value))


def _raw(value: object) -> Raw | UnsetType:
    return _encoded(value) if value else UNSET
