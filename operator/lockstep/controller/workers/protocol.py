"""What workers and operator say to each other, version 1: strict decoding of what workers send.

What identifies or steers is refused when out of bounds; prose is cut, and what a terminal would obey is taken
out. Fields not known here are passed over, so that a worker of a newer release goes on being heard after the
operator was rolled back.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from lockstep.api.base.times import LAST_MOMENT
from lockstep.core.model import sanitise
from lockstep.core.model.bounds import MAX_SLOTS, Count, Moment, Name, Path, Port, Slot, Step, Text, Tier, Word
from lockstep.core.model.ranges import count_ranges
from lockstep.core.model.snapshot import (
    CheckpointReport,
    ExitReport,
    PointReport,
    ProgressReport,
    Sign,
    StackReport,
    TimingReport,
    Verdict,
    VerifyReport,
    WarmUpReport,
    WorkerPhase,
)
from lockstep.core.model.start_record import CollectiveStart

PROTOCOL = 1
REGISTER_LIMIT = 1024 * 1024
"""Bytes of a /v1/register body."""
REPORT_LIMIT = 64 * 1024
"""Bytes of a /v1/report body."""
MAX_WAIT = 15.0
"""Seconds a worker may ask its poll to be held open."""
STDERR_TAIL = 4096
"""Characters of a child's stderr that are kept: its end, where the traceback is."""
STACKS = 2048
"""Characters kept of a rank's stacks."""
MAX_REASON = 256
MAX_SIGNS = 16
MAX_PROBLEM = 1024

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


class Checkpoint(_Wire):
    """One row of the inventory."""

    tier: Tier
    step: Step
    path: Path
    verdict: Verdict
    reason: Text = ""
    format: Word = ""
    attempt: Count = 0
    world: Count = 0
    run_uid: Annotated[str, Meta(max_length=64)] = msgspec.field(name="runUid", default="")
    bytes: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    committed_at: Moment = 0.0
    owners: Annotated[tuple[Slot, ...], Meta(max_length=1024)] = ()

    def report(self) -> CheckpointReport:
        """As the core knows it. ``committed_at`` stays on the file server's clock."""
        return CheckpointReport(
            tier=self.tier,
            step=self.step,
            path=sanitise.line(self.path),  # one that this changes is found by nobody, and so never resumed from
            verdict=self.verdict,
            reason=sanitise.line(self.reason[:MAX_REASON]),
            format=self.format,
            attempt=self.attempt,
            world=self.world,
            run_uid=self.run_uid,
            bytes=self.bytes,
            committed_at=self.committed_at,
            owners=self.owners,
        )


class Verified(_Wire):
    """The answer to a request to verify."""

    tier: Tier
    path: Path
    verdict: Verdict
    reason: Text = ""

    def report(self) -> VerifyReport:
        """As the core knows it."""
        return VerifyReport(self.tier, sanitise.line(self.path), self.verdict, sanitise.line(self.reason[:MAX_REASON]))


class Pointed(_Wire):
    """The answer to a request to rewrite pointers."""

    path: Path
    step: Step
    problem: Text = ""

    def report(self) -> PointReport:
        """As the core knows it."""
        return PointReport(sanitise.line(self.path), self.step, sanitise.line(self.problem[:MAX_REASON]))


class Timings(Struct, rename="camel", frozen=True):
    """What was measured of the child, in seconds."""

    section: Word = ""
    in_section: Moment = 0.0
    step: Moment = 0.0
    longest: Moment = 0.0
    intervals: Count = 0
    longest_init: Moment = 0.0
    longest_save: Moment = 0.0
    save_block: Moment = 0.0
    persist: Moment = 0.0

    def report(self) -> TimingReport:
        """As the core knows it."""
        return TimingReport(**{**msgspec.structs.asdict(self), "section": sanitise.line(self.section)})


class Signal(_Wire):
    """A line or a loss that tells something."""

    kind: Word
    at: Moment
    step: Step = 0
    text: Text = ""

    def report(self, clock_offset: float) -> Sign:
        """As the core knows it; ``clock_offset`` seconds turn the worker's time into the operator's."""
        return Sign(
            sanitise.line(self.kind), moment(self.at, clock_offset), self.step, sanitise.line(self.text[:MAX_REASON])
        )


class Stacks(_Wire):
    """What the processes of a rank were doing."""

    id: Word
    text: Text = ""

    def report(self) -> StackReport:
        """As the core knows it."""
        return StackReport(self.id, sanitise.lines(self.text[:STACKS]))


class Warmed(_Wire):
    """The outcome of the exchange with a peer."""

    id: Word
    seconds: Moment = 0.0
    peer: Annotated[int, Meta(ge=-1, le=65_535)] = -1
    problem: Text = ""

    def report(self) -> WarmUpReport:
        """As the core knows it."""
        return WarmUpReport(self.id, self.seconds, self.peer, sanitise.line(self.problem[:MAX_REASON]))


class State(_Wire):
    """What a worker says of itself, in a report or inside a registration."""

    phase: WorkerPhase
    wall: Moment
    mono: Annotated[float, Meta(ge=0)]
    attempt: Count = 0
    ready_for: Count = 0
    port: Port = 0
    start: CollectiveStart | None = None
    exit: Exit | None = None
    progress: Progress | None = None
    new_checkpoints: Annotated[tuple[Checkpoint, ...], Meta(max_length=1024)] = ()
    verified: Annotated[tuple[Verified, ...], Meta(max_length=64)] = ()
    problem: Text | None = None
    """None: as registered."""
    leaving_by: Moment = 0.0
    saved: Word = ""
    timing: Timings = Timings()
    signs: Annotated[tuple[Signal, ...], Meta(max_length=64)] = ()
    stacks: Stacks | None = None
    pointed: Pointed | None = None
    warmed: Warmed | None = None
    listens: bool = False
    epoch: Epoch | None = None
    seen: Annotated[int, Meta(ge=0)] = 0
    wait_seconds: Annotated[float, Meta(ge=0, le=MAX_WAIT)] = 0.0


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
    inventory: Annotated[tuple[Checkpoint, ...], Meta(max_length=1024)] = ()


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
    try:
        decoded = decoder.decode(body)
    except (ValueError, RecursionError) as error:
        # Another version may well have other fields: say that first.
        try:
            spoken = _version.decode(body).protocol
        except (ValueError, RecursionError):
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


def _require_a_gang(start: CollectiveStart) -> None:
    """A few bytes could name more slots than fit into memory, and a registration has room for very many bytes."""
    texts = [*(member.slots for member in start.members), start.order]
    if sum(map(len, texts)) > REPORT_LIMIT:
        raise MalformedError("start: longer than a report may be")
    try:
        slots = max(sum(count_ranges(member.slots) for member in start.members), count_ranges(start.order))
    except ValueError as error:
        raise MalformedError(f"start: {error}") from None
    if slots > MAX_SLOTS:
        raise MalformedError(f"start: a gang has at most {MAX_SLOTS} slots")


def _unspoken(spoken: int) -> UnspokenProtocolError:
    return UnspokenProtocolError(f"protocol {spoken} is not spoken here; this operator speaks {PROTOCOL}")
