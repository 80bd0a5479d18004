"""What workers say, decoded into structs within the bounds that they name. Times are Unix seconds on the operator's
clock."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Raw, Struct

from lockstep.core.model.bounds import Count, Moment, Path, Slot, Span, Step, Text, Tier, Word
from lockstep.core.model.reasons import ExitReason
from lockstep.core.model.start_record import CollectiveStart


class WorkerPhase(StrEnum):
    """What a worker says of itself."""

    PREPARING = "Preparing"  # ending older processes, taking inventory
    READY = "Ready"  # at the barrier for ``ready_for``
    RUNNING = "Running"
    STOPPING = "Stopping"
    EXITED = "Exited"  # the child of ``attempt`` is gone; the pod stays


@dataclass(frozen=True, slots=True)
class ExitReport:
    """How a rank's process ended. Exactly one of ``code`` and ``signal`` is meaningful."""

    code: int
    signal: int = 0
    at: float = 0.0  # on the operator's clock (worker time plus measured offset)
    reason: str = ""  # Completed, Error, Signal, CommandNotFound, StoppedOnRequest, …
    stderr_tail: str = ""

    @property
    def succeeded(self) -> bool:
        """The process ended by itself, with code 0. One that was told to end often ends with 0 as well."""
        return self.code == 0 and self.signal == 0 and self.reason in ("", ExitReason.COMPLETED)


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """The newest line of the progress file: steps are those of the trainer."""

    step: int
    at: float
    loss: str = ""
    total_steps: int | None = None


class Verdict(StrEnum):
    """Three-valued on purpose: what could not be read is not thereby bad."""

    VALID = "Valid"
    INVALID = "Invalid"
    UNKNOWN = "Unknown"


class CheckpointReport(Struct, frozen=True, rename="camel"):
    """One checkpoint directory as one worker sees it."""

    tier: Tier
    step: Step
    path: Path
    verdict: Verdict
    reason: Text = ""
    format: Word = ""
    attempt: Count = 0
    world: Count = 0
    run_uid: Word = ""
    bytes: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    committed_at: Moment = 0.0  # on the file server's clock
    as_copied: bool = False  # UNKNOWN for the order of its times alone, which a copy may not have kept
    # Ranks whose shards it holds, where that is more than the rank in its path.
    owners: Annotated[tuple[Slot, ...], Meta(max_length=1024)] = ()


class UnrecognisedReport(Struct, frozen=True, rename="camel"):
    """What may be a save, and is none that a format knows and calls committed."""

    tier: Tier
    path: Path
    attempt: Count = 0  # that wrote it; 0: it lies where others may have put it as well
    reason: Text = ""


class PreviousSavesReport(Struct, frozen=True, rename="camel"):
    """The newest valid save of an earlier run of this name, in the shared tier."""

    run_uid: Word
    step: Step
    path: Path


class VerifyReport(Struct, frozen=True, rename="camel"):
    """The answer to a request to read the candidate's bytes: this worker's share of them."""

    tier: Tier
    path: Path
    verdict: Verdict
    reason: Text = ""


class PointReport(Struct, frozen=True, rename="camel"):
    """The answer to a request to rewrite the pointers of a directory."""

    path: Path
    step: Step
    problem: Text = ""


class TimingReport(Struct, frozen=True, rename="camel"):
    """What a worker measured of its child. Seconds; 0 where nothing was measured yet.

    ``section`` is what the child is in: Init (before its first step), Step or Save.
    ``longest`` is the longest of the last hundred intervals between reported steps, without the first five of an
    attempt, ``intervals`` how many they are, ``step`` the median of the time that one step took.
    ``save_block`` and ``persist``: the training stopped for the last save, and until it was committed.
    """

    section: Word = ""
    step: Span = 0.0
    longest: Span = 0.0
    intervals: Count = 0
    longest_init: Span = 0.0
    longest_save: Span = 0.0
    save_block: Span = 0.0
    persist: Span = 0.0


class Sign(Struct, frozen=True, rename="camel"):
    """A line of a rank's stderr, or a loss, that tells something: Xid:79, NCCL:Timeout, CUDA:OutOfMemory,
    Loss:NaN, Rule:<name>, …"""

    kind: Word
    at: Moment
    step: Step = 0
    text: Text = ""


class StepEnd(Struct, frozen=True, rename="camel"):
    """A process of a step that failed on the node of the worker that says so. ``code`` None: ``signal`` ended it.

    ``asked``: somebody wanted it to end. ``program`` is the last part of its first word. ``node_rank``: the node was
    that of this rank, by what mpirun says; None: it was the worker's own. ``reason``: OOMKilled; or NodeUnreachable, of
    a node that could not be asked for the process, or was lost while it ran.
    """

    at: Moment
    step: Text = ""
    task: Count = 0
    program: Text = ""
    code: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    signal: Annotated[int, Meta(ge=0, le=255)] | None = None
    stderr_tail: Text = ""
    asked: bool = False
    node_rank: Count | None = None
    reason: Word = ""


class PartlyEndedStep(Struct, frozen=True, rename="camel"):
    """``done`` tasks of a step ended with code 0 while ``left`` go on: of all its nodes, or, of a step named MPI, those
    on the worker's own, the first of which began at ``since``. ``at``, ``task`` and ``node_rank`` tell of the first to
    end; None: the node is the worker's own.
    """

    step: Text = ""
    task: Count = 0
    node_rank: Count | None = None
    at: Moment = 0.0
    done: Count = 0
    left: Count = 0
    since: Moment = 0.0


class StackReport(Struct, frozen=True, rename="camel"):
    """What the processes of a rank were doing, in a few lines; the full dump is in the pod's log."""

    id: Word
    text: Text = ""


class JobAsk(Struct, frozen=True, rename="camel"):
    """What a program of a batch job asks for. Repeated until it is answered."""

    id: Annotated[str, Meta(min_length=1, max_length=36, pattern=r"^[A-Za-z0-9-]+$")]
    kind: Word
    body: Raw = Raw(b"{}")  # JSON


class WarmUpReport(Struct, frozen=True, rename="camel"):
    """The exchange with a peer: how long it took, or whom it failed with."""

    id: Word
    seconds: Span = 0.0
    peer: Annotated[int, Meta(ge=-1, le=65_535)] = -1  # rank of the peer that it failed with
    problem: Text = ""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The latest word of one worker. Soft state: rebuilt within a heartbeat."""

    slot: int
    incarnation: int
    pod_uid: str
    node: str
    phase: WorkerPhase
    received_at: float
    since: float = 0.0  # when phase, attempt or ready_for last changed; ``registered_at`` as long as none has
    polling: bool = False  # a long poll of it is open right now
    address: str = ""
    port: int = 0
    dashboard_port: int = 0  # that Ray's dashboard may have, should this be rank 0; 0: it has no Ray
    steps_port: int = 0  # of its step server, for the attempt it stands ready for or is in; 0: it has none
    attempt: int = 0  # of the child it runs or last ran; 0: none yet
    ready_for: int = 0  # barrier attempt; 0: none
    looked_again: int = 0  # attempt at whose barrier it took inventory once more, as it was asked; 0: none
    start: CollectiveStart | None = None  # the record it was last released with
    exit: ExitReport | None = None
    progress: ProgressReport | None = None
    inventory: tuple[CheckpointReport, ...] = ()
    unrecognised: tuple[UnrecognisedReport, ...] | None = None  # None: not said
    previous_saves: tuple[PreviousSavesReport, ...] = ()  # while the run has saved nothing; newest first
    verified: tuple[VerifyReport, ...] = ()
    problem: str = ""  # the node check failed: reason in words
    leaving_by: float = 0.0  # it was told to end (SIGTERM) and will be killed then; 0: it was not
    saved: str = ""  # id of the last collective save that the child took up
    timing: TimingReport = field(default_factory=TimingReport)
    signs: tuple[Sign, ...] = ()  # of the current attempt, earliest first
    step_ends: tuple[StepEnd, ...] = ()  # of the current attempt the first and the last
    partly_ended: tuple[PartlyEndedStep, ...] = ()  # steps of the current attempt
    stacks: StackReport | None = None
    pointed: PointReport | None = None
    warmed: WarmUpReport | None = None
    asks: tuple[JobAsk, ...] = ()  # of programs of the current attempt
    listens: bool = False  # the child asks for saves (control file) or catches the save signal
    registered_at: float = 0.0  # when this operator heard it first
    clock_skew: float = 0.0  # seconds its wall clock is ahead of the operator's
