"""What the core reads: frozen views of the cluster, parsed once from raw objects.

Times are Unix seconds on the operator's clock. Resource amounts are integers: ``cpu`` in
millicores, everything else in its base unit (bytes, devices). What workers send as it is kept is
decoded into msgspec structs, within the bounds that they name.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, TypeVar

from msgspec import Meta, Raw, Struct

from lockstep.api.base import names
from lockstep.api.queue import TrainingQueueSpec, TrainingQueueStatus
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.bounds import Count, Moment, Path, Slot, Span, Step, Text, Tier, Word
from lockstep.core.model.kueue.installation import Kueue
from lockstep.core.model.named_objects import LookedUp
from lockstep.core.model.reasons import ExitReason
from lockstep.core.model.start_record import CollectiveStart

Resources = Mapping[str, int]
_View = TypeVar("_View", "RunView", "PodView")


class PodPhase(StrEnum):
    """``status.phase`` of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """Failures and node-days of all runs of a pool."""

    failures: int = 0
    node_days: float = 0.0


@dataclass(frozen=True, slots=True)
class PodView:
    """A gang pod. ``node`` is the node it is pinned to, ``bound`` says the scheduler agreed."""

    namespace: str
    name: str
    uid: str
    run: str
    run_uid: str
    owner_uid: str
    slot: int
    incarnation: int
    node: str
    bound: bool
    phase: PodPhase
    created_at: float
    deleting: bool = False
    killed_at: float = 0.0  # when its grace is over, once it is being deleted
    bound_at: float | None = None  # when the scheduler placed it
    started_at: float | None = None  # when the trainer container began to run
    ended_at: float | None = None  # when it ended, on its node's clock and in whole seconds
    pod_ip: str = ""
    exit_code: int | None = None
    reason: str = ""  # of the pod, the failed container or the reason it waits (ImagePullBackOff, Unschedulable, …)
    message: str = ""
    resolved: str = ""  # JSON of status.resolved as it was when the pod was made
    disruption: str = ""  # reason of its DisruptionTarget condition: EvictionByEvictionAPI, DeletionByTaintManager, …
    attempt: int = 0  # that it was made for, where it has no worker; 0: its worker is told at START
    requests: Resources = field(default_factory=dict, hash=False)  # with the pod itself counted

    @property
    def is_terminal(self) -> bool:
        """Nothing of this pod runs any more."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


@dataclass(frozen=True, slots=True)
class PlaceholderView:
    """A pod that holds a place for a gang which waits for nodes, below everybody else. Where the run vouches for it
    (``is_placeholder_of``) it takes nothing from its node: it leaves for whichever gang gets that."""

    namespace: str
    name: str
    uid: str
    run_uid: str
    node: str = ""  # empty: kube-scheduler has found none
    deleting: bool = False
    terminal: bool = False
    why: str = ""  # it waits, or has ended, in a line
    requests: Resources = field(default_factory=dict, hash=False)  # with the pod itself counted


class ProvisioningState(StrEnum):
    """Conditions of ProvisioningRequests that count when they are True, the first before those after it."""

    CAPACITY_REVOKED = "CapacityRevoked"
    FAILED = "Failed"
    BOOKING_EXPIRED = "BookingExpired"
    PROVISIONED = "Provisioned"
    ACCEPTED = "Accepted"


@dataclass(frozen=True, slots=True)
class ProvisioningView:
    """The ProvisioningRequest of a run, as the API server has just said.

    ``uid`` empty: there is none. ``state``: what it has come to; None: nobody has said anything of it.
    """

    uid: str = ""
    is_own: bool = False  # of this run; else somebody else's is in the way
    attempt: int = 0
    state: ProvisioningState | None = None
    message: str = ""
    problem: str = ""  # it could not be read, in words; nothing else is known then


@dataclass(frozen=True, slots=True)
class Taint:
    """A node taint."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A rank of ``run`` (namespace/name) that was the first to fail, on the node that remembers it."""

    run: str
    time: float
    cause: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as placement and failure detection see it."""

    name: str
    uid: str
    labels: Mapping[str, str]
    allocatable: Resources
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    ready_changed_at: float = 0.0
    internal_ip: str = ""
    deleting: bool = False
    drain: str = ""  # why gangs are to leave it; empty: they are not
    conditions: Mapping[str, str] = field(default_factory=dict)  # those that are True but Ready, with their reasons
    conditions_changed_at: float = 0.0  # when the latest of them became True
    failures: tuple[NodeFailure, ...] = ()  # of any run, earliest first
    suspect: str = ""  # why it bears the mark; judged together with ``failures``
    failures_cleared_at: float = 0.0  # what lies before was forgiven by a person
    withheld: Resources = field(default_factory=dict)  # devices it has or had, and offers none of; 0: unknown how many


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

    ``section`` is what the child is in: Init (before its first step), Step or Save; ``in_section`` for how long, in
    Step since the last one.
    ``longest`` is the longest of the last hundred intervals between reported steps, without the first five of an
    attempt, ``intervals`` how many they are, ``step`` the median of the time that one step took.
    ``save_block`` and ``persist``: the training stopped for the last save, and until it was committed.
    """

    section: Word = ""
    in_section: Span = 0.0
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
    that of this rank, by what mpirun says; None: it was the worker's own.
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
    start: CollectiveStart | None = None  # the record it was last released with
    exit: ExitReport | None = None
    progress: ProgressReport | None = None
    inventory: tuple[CheckpointReport, ...] = ()
    unrecognised: tuple[UnrecognisedReport, ...] | None = None  # None: its release does not say
    previous_saves: tuple[PreviousSavesReport, ...] = ()  # while the run has saved nothing; newest first
    verified: tuple[VerifyReport, ...] = ()
    problem: str = ""  # the node check failed: reason in words
    leaving_by: float = 0.0  # it was told to end (SIGTERM) and will be killed then; 0: it was not
    saved: str = ""  # id of the last collective save that the child took up
    timing: TimingReport = field(default_factory=TimingReport)
    signs: tuple[Sign, ...] = ()  # of the current attempt, earliest first
    step_ends: tuple[StepEnd, ...] = ()  # the first of the current attempt
    stacks: StackReport | None = None
    pointed: PointReport | None = None
    warmed: WarmUpReport | None = None
    asks: tuple[JobAsk, ...] = ()  # of programs of the current attempt
    listens: bool = False  # the child asks for saves (control file) or catches the save signal
    registered_at: float = 0.0  # when this operator heard it first
    clock_skew: float = 0.0  # seconds its wall clock is ahead of the operator's


@dataclass(frozen=True, slots=True)
class RunView:
    """A TrainingRun. Of a spec that does not parse ``spec_error`` says why, and ``spec`` is what of it does, if that is
    any: nothing is done by it but what others may ask of the run."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    created_at: float
    spec: TrainingRunSpec | None
    status: TrainingRunStatus
    spec_error: str = ""
    set_uid: str = ""  # of the TrainingRunSet that owns it
    set_name: str = ""
    set_says: str = ""  # why the set has it suspended or cancelled, where its own spec does not …
    own_spec: TrainingRunSpec | None = None  # … which then is this; ``spec`` is what counts
    deleting: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # those of Kueue alone
    unread: bool = False  # not all nodes that it holds are known: it is not written, so nobody waits for its answer

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_paused(self) -> bool:
        """Its user has the operator do nothing for it but stop it."""
        return self.annotations.get(names.ANNOTATION_PAUSED) == "true"

    @property
    def is_left_alone(self) -> bool:
        """It is asked for nothing but to stop, and gets nothing."""
        return self.is_paused or self.spec is None or bool(self.spec_error)


@dataclass(frozen=True, slots=True)
class QueueView:
    """A TrainingQueue."""

    name: str
    spec: TrainingQueueSpec
    created_at: float = 0.0
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    status: TrainingQueueStatus = field(default_factory=TrainingQueueStatus)


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """What the API server said of the resolved pod of one generation, and what is there of the objects that it names.

    ``accepted`` None: it has not judged the pod, for the reason in ``message``, and not since ``at``.
    """

    generation: int
    accepted: bool | None
    message: str = ""
    at: float = 0.0
    looked_up: LookedUp = field(default_factory=LookedUp)


TOLD_AFTER = 5.0
"""Seconds after which it is told that the API server does not judge something: before, it mostly passes unseen."""


class JobPhase(StrEnum):
    """How far a Job is."""

    ACTIVE = "Active"
    COMPLETE = "Complete"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class JobView:
    """An archive job. ``result`` is the termination message of its last pod that ended, empty when it is gone."""

    namespace: str
    name: str
    uid: str
    run_uid: str
    phase: JobPhase
    idle_since: float = 0.0  # active, and none of its pods runs; 0: one does
    finished_at: float = 0.0
    message: str = ""  # of its Failed condition
    result: str = ""


@dataclass(frozen=True, slots=True)
class RefusedCreate:
    """A pod that the API server has not taken, since when, in its words.

    ``is_verdict``: it has judged the pod, and will judge it the same a moment later; else it was overwhelmed, or a
    webhook did not answer.
    """

    since: float
    message: str
    is_verdict: bool = True


@dataclass(frozen=True, slots=True)
class RefusedAdmission:
    """The API server would not take an admission, in its words; ``until`` (Unix seconds) it is not tried again."""

    message: str
    until: float


TURNS = 10
"""Turns of the operator's loop and writes of its API server in one part of a launch, at most."""
MOST_ALLOWED = 300.0
"""Seconds by which a deadline is put off for both, at most."""
SHED = 4.0
"""Times its usual interval after which what can wait is written while the operator or the API server is overloaded."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How slow the operator and its API server are of late, in seconds; nothing is told of what is usual."""

    loop: float = 0.0  # by which the operator's loop was late, where it often was
    write: float = 0.0  # that half of the writes took the API server at least
    deaf: tuple[tuple[float, float], ...] = ()  # when nobody was listened to: until when, and for how long; in order

    @property
    def allowance(self) -> float:
        """By how much deadlines are later for it: for what each of them waits for takes so much longer."""
        return min(MOST_ALLOWED, TURNS * (self.loop + self.write))

    def deaf_since(self, moment: float) -> float:
        """Seconds since ``moment`` in which nobody was listened to."""
        return sum(min(seconds, until - moment) for until, seconds in self.deaf if until > moment)

    def caught_up_at(self, most: float) -> float:
        """When what was said while nobody listened is read: in as much time again as that was, or in ``most``."""
        until, seconds = self.deaf[-1] if self.deaf else (0.0, 0.0)
        return until + min(seconds, most)


@dataclass(frozen=True, slots=True)
class Leadership:
    """Since when this process leads, whether the breaker forbids replacing nodes, and how slow everything is."""

    since: float
    disruption: str = ""  # empty, or why no node is replaced now
    calm_since: float = 0.0  # when the last disruption that this leader saw was over
    workers: int = 0  # of all runs together: what their heartbeat interval rests on
    lag: Lag = Lag()
    pools: Mapping[str, PoolRecord] = field(default_factory=dict)  # by GPU type: what its nodes did in all runs


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """Snapshot of one run: everything ``decide`` reads."""

    run: RunView
    pods: tuple[PodView, ...]
    reports: Mapping[int, WorkerReport]  # by slot, of the highest incarnation heard
    nodes: Mapping[str, NodeView]
    leadership: Leadership
    dry_run: DryRunResult | None = None
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    refused_creates: Mapping[str, RefusedCreate] = field(default_factory=dict)  # by pod name
    jobs: tuple[JobView, ...] = ()  # archive jobs of the run
    origin: RunView | None = None  # the run that the spec says to start from, if there is one of that name
    successors: tuple[RunView, ...] = ()  # the runs that say to start from this one
    queue: QueueView | None = None  # the run's queue; None: it has no object
    preemptor: RunView | None = None  # the preemptor it makes room for; None: nobody knows what became of that run
    recorded: bool = True  # what came of it stands where it outlives the run: in the status of its set, if it has one
    placeholders: tuple[PlaceholderView, ...] = ()  # of the run, and others in the way of its gang
    placeholder_gone_at: float = 0.0  # when the last of the run was seen to go; 0: none was
    provisioning: ProvisioningView | None = None  # None: it was not asked for
    kueue: Kueue = field(default_factory=Kueue)
    submitted: Mapping[str, RunView] = field(default_factory=dict)  # what it asks to submit, by name, as far as there
    numbers: Mapping[int, tuple[str, bool]] = field(default_factory=dict)  # then: jobs by number: name, is an array
    job_id: int = 0  # a number that was taken for it and is in no status yet; 0: none was
    namesake: bool = False  # an array was called so before it, and has not ended


@dataclass(frozen=True, slots=True)
class Changes:
    """All that has changed since the last admission cycle that finished, and maybe more; None: all may have.

    Runs and gang pods by UID, as they are now; None: it is gone. ``nodes``: names of those that came, changed or went,
    or on which others request something else.
    """

    runs: Mapping[str, RunView | None] | None = None
    pods: Mapping[str, PodView | None] | None = None
    nodes: Collection[str] | None = None


def maybe_changed(
    changed: Mapping[str, _View | None] | None, views: Iterable[_View], known: Collection[str]
) -> Mapping[str, _View | None]:
    """By UID, as in ``Changes``, what may be another of the ``views`` than is ``known``: who knows nothing yet, or is
    not told what has ``changed``, looks at everything."""
    if changed is not None and known:
        return changed
    return {**dict.fromkeys(known), **{view.uid: view for view in views}}


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Snapshot of the cluster: everything one admission cycle reads."""

    runs: tuple[RunView, ...]
    queues: Mapping[str, QueueView]
    nodes: Mapping[str, NodeView]
    gang_pods: tuple[PodView, ...]  # of every run, also of runs already deleted; of strangers none
    doubtful_pods: tuple[PodView, ...] = field(default=(), kw_only=True)  # of runs whose status has never had them
    foreign_requests: Mapping[str, Resources]  # by node: what all other pods there request in total
    in_flight: Mapping[str, frozenset[str]]  # by run uid: nodes of writes whose result is not known yet
    leadership: Leadership
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    priority_classes: Mapping[str, int] = field(default_factory=dict)  # values by name
    fair_shares: Mapping[tuple[str, str, str], float] = field(default_factory=dict)  # by queue, namespace and user
    widths: Mapping[tuple[str, str], int] = field(default_factory=dict)  # maxRunning of sets, by namespace and UID
    gpu_hours: Mapping[str, int] = field(default_factory=dict)  # of the last 24 hours, by queue; as far as known
    refused: Mapping[str, RefusedAdmission] = field(default_factory=dict)  # by run uid
    kueue: Kueue = field(default_factory=Kueue)
    changes: Changes = Changes()
