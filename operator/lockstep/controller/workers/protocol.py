"""What workers and operator say to each other, version 1: strict decoding of what workers send.

What identifies or steers is refused when out of bounds; prose is cut, and what a terminal would obey is taken
out before anybody reads it. Fields not known here are passed over, so that a worker of a newer release goes on being
heard after the operator was rolled back.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from lockstep.api.base import nesting
from lockstep.api.base.times import LAST_MOMENT
from lockstep.core.model import sanitise
from lockstep.core.model.bounds import MAX_SLOTS, Count, Moment, Name, Port, Slot, Step, Text, Word
from lockstep.core.model.ranges import distinct_ranges
from lockstep.core.model.start_record import CollectiveStart
from lockstep.core.model.worker_report import (
    CheckpointReport,
    ExitReport,
    JobAsk,
    PartlyEndedStep,
    PointReport,
    PreviousSavesReport,
    ProgressReport,
    Sign,
    StackReport,
    StepEnd,
    TimingReport,
    UnrecognisedReport,
    VerifyReport,
    WarmUpReport,
    WorkerPhase,
)

PROTOCOL = 1
REGISTER_LIMIT = 1024 * 1024
"""Bytes of a /v1/register body."""
REPORT_LIMIT = 64 * 1024
"""Bytes of a /v1/report body."""
MAX_DEPTH = 32
"""Levels of a body, which has a handful."""
MAX_WAIT = 15.0
"""Seconds a worker may ask its poll to be held open."""
STDERR_TAIL = 4096
"""Characters of a child's stderr that are kept: its end, where the traceback is."""
STACKS = 2048
"""Characters kept of a rank's stacks."""
MAX_REASON = 256
MAX_SIGNS = 16
MAX_STEP_ENDS = 16
MAX_PARTLY = 4
MAX_ASKS = 4
MAX_ASKED = 24 * 1024
"""Bytes of all that a report asks for; no worker tells more at a time."""
STEP_STDERR = 1024
"""Characters that are kept of what a process of a step wrote last."""
MAX_PROBLEM = 1024
MAX_VERIFIED = 16
MAX_UNRECOGNISED = 8
MAX_PREVIOUS_SAVES = 4

Epoch = tuple[int, int]
"""Of a leader: its Lease's creation in unix seconds, then its transitions. Compared in that order."""

_Uid = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9-]+$")]


class MalformedError(ValueError):
    """The body is not what the protocol says; the message names the field."""


class UnspokenProtocolError(ValueError):
    """The sender speaks a version of the protocol that this operator does not."""


class _Wire(Struct, rename="camel"):
    pass


class Exit(_Wire):
    """How the child ended."""

    code: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    signal: Annotated[int, Meta(ge=0, le=255)] | None = None
    at: Moment = 0.0
    reason: Word = ""
    stderr_tail: Text = ""

    def report(self, clock_offset: float) -> ExitReport:
        """As the core knows it; ``clock_offset`` seconds turn the worker's time into the operator's."""
        return ExitReport(
            code=self.code or 0,
            signal=self.signal or 0,
            at=moment(self.at, clock_offset),
            reason=sanitise.line(self.reason),
            stderr_tail=sanitise.lines(self.stderr_tail[-STDERR_TAIL:]),
        )


class Progress(_Wire):
    """The newest progress line. A trainer that writes the loss as a number is understood too."""

    step: Step
    at: Moment = 0.0
    loss: Text | float | None = None
    total_steps: Step | None = None

    def report(self, clock_offset: float) -> ProgressReport:
        """As the core knows it; ``clock_offset`` seconds turn the worker's time into the operator's."""
        return ProgressReport(
            step=self.step,
            at=moment(self.at, clock_offset),
            loss="" if self.loss is None else sanitise.line(str(self.loss)[:32]),
            total_steps=self.total_steps,
        )


class State(_Wire):
    """What a worker says of itself, in a report or inside a registration."""

    phase: WorkerPhase
    wall: Moment
    mono: Annotated[float, Meta(ge=0)]
    attempt: Count = 0
    ready_for: Count = 0
    looked_again: Count = 0
    port: Port = 0
    steps_port: Port = 0
    dashboard_port: Port = 0
    start: CollectiveStart | None = None
    exit: Exit | None = None
    progress: Progress | None = None
    new_checkpoints: Annotated[tuple[CheckpointReport, ...], Meta(max_length=1024)] = ()
    unrecognised: Annotated[tuple[UnrecognisedReport, ...], Meta(max_length=64)] | None = None
    """None: the worker is of a release that does not say, or could not look at all."""
    previous_saves: Annotated[tuple[PreviousSavesReport, ...], Meta(max_length=64)] = ()
    verified: Annotated[tuple[VerifyReport, ...], Meta(max_length=64)] = ()
    problem: Text | None = None
    """None: as registered."""
    leaving_by: Moment = 0.0
    saved: Word = ""
    timing: TimingReport = TimingReport()
    signs: Annotated[tuple[Sign, ...], Meta(max_length=64)] = ()
    step_ends: Annotated[tuple[StepEnd, ...], Meta(max_length=64)] = ()
    partly_ended: Annotated[tuple[PartlyEndedStep, ...], Meta(max_length=64)] = ()
    stacks: StackReport | None = None
    pointed: PointReport | None = None
    warmed: WarmUpReport | None = None
    asks: Annotated[tuple[JobAsk, ...], Meta(max_length=16)] = ()
    listens: bool = False
    epoch: Epoch | None = None
    seen: Annotated[int, Meta(ge=0)] = 0
    wait_seconds: Annotated[float, Meta(ge=0, le=MAX_WAIT)] = 0.0

    def __post_init__(self) -> None:
        if self.new_checkpoints:
            self.new_checkpoints = _shown_rows(self.new_checkpoints)
        if self.unrecognised is not None:
            self.unrecognised = tuple(
                replace(each, path=_cut(each.path, 512), reason=_cut(each.reason))
                for each in self.unrecognised[:MAX_UNRECOGNISED]
            )
        if self.previous_saves:  # as all that follows: mostly there is none of it, in thousands of reports
            self.previous_saves = tuple(
                replace(each, run_uid=sanitise.line(each.run_uid), path=_cut(each.path, 512))
                for each in self.previous_saves[:MAX_PREVIOUS_SAVES]
            )
        if self.verified:
            self.verified = tuple(
                replace(answer, path=sanitise.line(answer.path), reason=_cut(answer.reason))
                for answer in self.verified[-MAX_VERIFIED:]
            )
        if self.signs:
            self.signs = tuple(
                replace(sign, kind=sanitise.line(sign.kind), text=_cut(sign.text)) for sign in self.signs[-MAX_SIGNS:]
            )
        if self.step_ends:
            self.step_ends = tuple(
                replace(
                    end,
                    step=_cut(end.step, 64),
                    program=_cut(end.program, 64),
                    reason=sanitise.line(end.reason),
                    stderr_tail=sanitise.lines(end.stderr_tail[-STEP_STDERR:]),
                )
                for end in _first_and_last(self.step_ends)
            )
        if self.partly_ended:
            partly = self.partly_ended[:MAX_PARTLY]
            self.partly_ended = tuple(replace(each, step=_cut(each.step, 64)) for each in partly)
        if self.asks:  # copied, as else each would hold the whole body
            asks = self.asks[:MAX_ASKS]
            if sum(len(bytes(ask.body)) for ask in asks) > MAX_ASKED:
                raise ValueError(f"asks: their bodies have more than {MAX_ASKED} bytes")
            self.asks = tuple(replace(ask, kind=sanitise.line(ask.kind), body=ask.body.copy()) for ask in asks)
        if self.timing.section:
            self.timing = replace(self.timing, section=sanitise.line(self.timing.section))
        if self.problem is not None:
            self.problem = _cut(self.problem, MAX_PROBLEM)
        if self.stacks is not None:
            self.stacks = replace(self.stacks, text=sanitise.lines(self.stacks.text[:STACKS]))
        if self.pointed is not None:
            self.pointed = replace(
                self.pointed, path=sanitise.line(self.pointed.path), problem=_cut(self.pointed.problem)
            )
        if self.warmed is not None:
            self.warmed = replace(self.warmed, problem=_cut(self.warmed.problem))


class Report(State, kw_only=True):
    """The body of /v1/report."""

    protocol: int
    run_uid: _Uid
    slot: Slot
    incarnation: Count
    pod_uid: _Uid


class Registration(_Wire, kw_only=True):
    """The body of /v1/register."""

    protocol: int
    run_uid: _Uid
    slot: Slot
    incarnation: Count
    pod_uid: _Uid
    namespace: Name
    run: Name
    address: Annotated[str, Meta(min_length=1, max_length=64)]
    report: State
    node: Annotated[str, Meta(max_length=253)] = ""
    hostname: Annotated[str, Meta(max_length=253)] = ""
    worker_version: Word = ""
    problem: Text = ""
    inventory: Annotated[tuple[CheckpointReport, ...], Meta(max_length=1024)] = ()

    def __post_init__(self) -> None:
        self.inventory = _shown_rows(self.inventory)
        self.problem = _cut(self.problem, MAX_PROBLEM)


class _Version(Struct):
    protocol: int


_registration = msgspec.json.Decoder(Registration)
_report = msgspec.json.Decoder(Report)
_version = msgspec.json.Decoder(_Version)
_Body = TypeVar("_Body", Registration, Report)


def decode_registration(body: bytes) -> Registration:
    """Raises ``MalformedError`` or ``UnspokenProtocolError``."""
    return _decode(_registration, body)


def decode_report(body: bytes) -> Report:
    """Raises ``MalformedError`` or ``UnspokenProtocolError``."""
    return _decode(_report, body)


def _decode(decoder: msgspec.json.Decoder[_Body], body: bytes) -> _Body:
    if nesting.is_deep(body, MAX_DEPTH):
        raise MalformedError(f"the body is nested deeper than {MAX_DEPTH} levels")
    try:
        decoded = nesting.decode(decoder, body)
    except ValueError as error:
        # Another version may well have other fields: say that first.
        try:
            spoken = nesting.decode(_version, body).protocol
        except ValueError:
            spoken = PROTOCOL
        if spoken != PROTOCOL:
            raise _unspoken(spoken) from None
        raise MalformedError(str(error)) from None
    if decoded.protocol != PROTOCOL:
        raise _unspoken(decoded.protocol)
    start = decoded.report.start if isinstance(decoded, Registration) else decoded.start
    if start is not None:
        _require_a_gang(start)
    return decoded


def moment(at: float, clock_offset: float) -> float:
    """A worker's time on the operator's clock, one that can be written into status whatever the worker's shows."""
    return min(max(0.0, at + clock_offset), LAST_MOMENT)


def _shown_rows(rows: tuple[CheckpointReport, ...]) -> tuple[CheckpointReport, ...]:
    # A path that this changes is found by nobody, and so never resumed from.
    return tuple(replace(row, path=sanitise.line(row.path), reason=_cut(row.reason)) for row in rows)


def _first_and_last(ends: tuple[StepEnd, ...]) -> tuple[StepEnd, ...]:
    """As the worker itself leaves out what there is no room for."""
    half = MAX_STEP_ENDS // 2
    return ends if len(ends) <= MAX_STEP_ENDS else ends[:half] + ends[-half:]


def _cut(prose: str, characters: int = MAX_REASON) -> str:
    return sanitise.line(prose[:characters])


def _require_a_gang(start: CollectiveStart) -> None:
    """One that an operator can have written: its members are told apart, its order is one of theirs. Nothing is
    unfolded: a few bytes could name more slots than fit into memory, and a registration has room for very many."""
    texts = [*(member.slots for member in start.members), start.order]
    if sum(map(len, texts)) > REPORT_LIMIT:
        raise MalformedError("start: longer than a report may be")
    try:
        members, order = distinct_ranges(texts[:-1]), distinct_ranges(texts[-1:])
    except ValueError as error:
        raise MalformedError(f"start: {error}") from None
    if members and members[-1].stop > MAX_SLOTS:
        raise MalformedError(f"start: a gang has at most {MAX_SLOTS} slots")
    usual = order or [range(sum(map(len, members)))] * bool(members)  # the slot of its number
    if usual != members:
        raise MalformedError("start: the order is not that of its members")


def _unspoken(spoken: int) -> UnspokenProtocolError:
    return UnspokenProtocolError(f"protocol {spoken} is not spoken here; this operator speaks {PROTOCOL}")
