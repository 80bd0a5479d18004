"""What workers and operator say to each other, version 1: strict decoding of what workers send.

What identifies or steers is refused when out of bounds; prose is cut, and what a terminal would obey is taken
out. Fields not known here are passed over, so that a worker of a newer release goes on being heard after the
operator was rolled back.
"""

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from lockstep.api.base.times import LAST_MOMENT
from lockstep.core.model import sanitise
from lockstep.core.model.ranges import count_ranges
from lockstep.core.model.snapshot import (
    CheckpointReport,
    CollectiveStart,
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
MAX_SLOTS = 65_536

Epoch = tuple[int, int]
"""Of a leader: its Lease's creation in unix seconds, then its transitions. Compared in that order."""

_Name = Annotated[str, Meta(min_length=1, max_length=253)]
_Uid = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9-]+$")]
_Word = Annotated[str, Meta(max_length=64)]
_Text = Annotated[str, Meta(max_length=65_536)]
_Path = Annotated[str, Meta(max_length=4096)]
_Slot = Annotated[int, Meta(ge=0, lt=MAX_SLOTS)]
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Step = Annotated[int, Meta(ge=0, le=2**53)]
_Port = Annotated[int, Meta(ge=0, le=65_535)]
_Moment = Annotated[float, Meta(ge=0, le=2**40)]
_Tier = Literal["local", "shared"]


class MalformedError(ValueError):
    """The body is not what the protocol says; the message names the field."""


class UnspokenProtocolError(ValueError):
    """The sender speaks a version of the protocol that this operator does not."""


class _Wire(Struct, rename="camel"):
    pass


class Resume(_Wire):
    """A checkpoint to resume from."""

    tier: _Word
    step: _Step
    path: _Path


class Members(_Wire):
    """Slots that start at the same incarnation."""

    slots: Annotated[str, Meta(max_length=REPORT_LIMIT)]
    incarnation: _Count


class Start(_Wire):
    """The START record."""

    attempt: _Count
    assignment_hash: _Word
    master_address: _Name
    master_port: _Port
    resume: Resume | None = None
    members: Annotated[tuple[Members, ...], Meta(max_length=4096)] = ()
    order: _Text = ""

    @classmethod
    def from_record(cls, record: CollectiveStart) -> "Start":
        """The record as it goes over the wire."""
        resume = None
        if record.resume_tier:
            resume = Resume(record.resume_tier, record.resume_step, record.resume_path)
        return cls(
            attempt=record.attempt,
            assignment_hash=record.assignment_hash,
            master_address=record.master_address,
            master_port=record.master_port,
            resume=resume,
            members=tuple(Members(slots, incarnation) for slots, incarnation in record.members),
            order=record.order,
        )

    def record(self) -> CollectiveStart:
        """The record as the core knows it."""
        return CollectiveStart(
            attempt=self.attempt,
            assignment_hash=self.assignment_hash,
            master_address=self.master_address,
            master_port=self.master_port,
            resume_tier=self.resume.tier if self.resume else "",
            resume_step=self.resume.step if self.resume else 0,
            resume_path=self.resume.path if self.resume else "",
            members=tuple((m.slots, m.incarnation) for m in self.members),
            order=self.order,
        )


class Exit(_Wire):
    """How the child ended."""

    code: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    signal: Annotated[int, Meta(ge=0, le=255)] | None = None
    at: _Moment = 0.0
    reason: _Word = ""
    stderr_tail: _Text = ""

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

    step: _Step
    at: _Moment = 0.0
    loss: _Text | float | None = None
    total_steps: _Step | None = None

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

    tier: _Tier
    step: _Step
    path: _Path
    verdict: Verdict
    reason: _Text = ""
    format: _Word = ""
    attempt: _Count = 0
    world: _Count = 0
    run_uid: Annotated[str, Meta(max_length=64)] = msgspec.field(name="runUid", default="")
    bytes: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    committed_at: _Moment = 0.0
    owners: Annotated[tuple[_Slot, ...], Meta(max_length=1024)] = ()

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

    tier: _Tier
    path: _Path
    verdict: Verdict
    reason: _Text = ""

    def report(self) -> VerifyReport:
        """As the core knows it."""
        return VerifyReport(self.tier, sanitise.line(self.path), self.verdict, sanitise.line(self.reason[:MAX_REASON]))


class Pointed(_Wire):
    """The answer to a request to rewrite pointers."""

    path: _Path
    step: _Step
    problem: _Text = ""

    def report(self) -> PointReport:
        """As the core knows it."""
        return PointReport(sanitise.line(self.path), self.step, sanitise.line(self.problem[:MAX_REASON]))


class Timings(Struct, rename="camel", frozen=True):
    """What was measured of the child, in seconds."""

    section: _Word = ""
    in_section: _Moment = 0.0
    step: _Moment = 0.0
    longest: _Moment = 0.0
    intervals: _Count = 0
    longest_init: _Moment = 0.0
    longest_save: _Moment = 0.0
    save_block: _Moment = 0.0
    persist: _Moment = 0.0

    def report(self) -> TimingReport:
        """As the core knows it."""
        return TimingReport(**{**msgspec.structs.asdict(self), "section": sanitise.line(self.section)})


class Signal(_Wire):
    """A line or a loss that tells something."""

    kind: _Word
    at: _Moment
    step: _Step = 0
    text: _Text = ""

    def report(self, clock_offset: float) -> Sign:
        """As the core knows it; ``clock_offset`` seconds turn the worker's time into the operator's."""
        return Sign(
            sanitise.line(self.kind), moment(self.at, clock_offset), self.step, sanitise.line(self.text[:MAX_REASON])
        )


class Stacks(_Wire):
    """What the processes of a rank were doing."""

    id: _Word
    text: _Text = ""

    def report(self) -> StackReport:
        """As the core knows it."""
        return StackReport(self.id, sanitise.lines(self.text[:STACKS]))


class Warmed(_Wire):
    """The outcome of the exchange with a peer."""

    id: _Word
    seconds: _Moment = 0.0
    peer: Annotated[int, Meta(ge=-1, le=65_535)] = -1
    problem: _Text = ""

    def report(self) -> WarmUpReport:
        """As the core knows it."""
        return WarmUpReport(self.id, self.seconds, self.peer, sanitise.line(self.problem[:MAX_REASON]))


class State(_Wire):
    """What a worker says of itself, in a report or inside a registration."""

    phase: WorkerPhase
    wall: _Moment
    mono: Annotated[float, Meta(ge=0)]
    attempt: _Count = 0
    ready_for: _Count = 0
    port: _Port = 0
    start: Start | None = None
    exit: Exit | None = None
    progress: Progress | None = None
    new_checkpoints: Annotated[tuple[Checkpoint, ...], Meta(max_length=1024)] = ()
    verified: Annotated[tuple[Verified, ...], Meta(max_length=64)] = ()
    problem: _Text | None = None
    """None: as registered."""
    leaving_by: _Moment = 0.0
    saved: _Word = ""
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
    slot: _Slot
    incarnation: _Count
    pod_uid: _Uid


class Registration(_Wire, kw_only=True):
    """The body of /v1/register."""

    protocol: int
    run_uid: _Uid
    slot: _Slot
    incarnation: _Count
    pod_uid: _Uid
    namespace: _Name
    run: _Name
    address: Annotated[str, Meta(min_length=1, max_length=64)]
    report: State
    node: Annotated[str, Meta(max_length=253)] = ""
    hostname: Annotated[str, Meta(max_length=253)] = ""
    worker_version: _Word = ""
    problem: _Text = ""
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


def _require_a_gang(start: Start) -> None:
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
