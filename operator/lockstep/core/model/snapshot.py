"""What the core reads: frozen views of the cluster, parsed once from raw objects.

Times are Unix seconds on the operator's clock. Resource amounts are integers: ``cpu`` in
millicores, everything else in its base unit (bytes, devices).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from lockstep.api.base import names
from lockstep.api.queue import TrainingQueueSpec, TrainingQueueStatus
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.kueue.installation import Kueue
from lockstep.core.model.named_objects import LookedUp
from lockstep.core.model.worker_report import WorkerReport

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
    by_kube_scheduler: bool = True  # it asks for the cluster's default scheduler

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
    ttl_written: str | None = None  # ttlAfterFinished, where no more of the spec is known; empty: nor is that
    set_uid: str = ""  # of the TrainingRunSet that owns it
    set_name: str = ""
    set_says: str = ""  # why the set has it suspended or cancelled, where its own spec does not …
    own_spec: TrainingRunSpec | None = None  # … which then is this; ``spec`` is what counts
    deleting: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # those of Kueue alone
    unread: bool = False  # not all nodes that it holds are known: nothing is written that rests on them

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


CLOSED_QUEUE = TrainingQueueSpec(stop_policy="Hold", visibility="OwnNamespace")
"""Stands for a spec of which nothing is known: nothing new is admitted, what runs goes on, and who waits hears no name
of another namespace."""


@dataclass(frozen=True, slots=True)
class QueueView:
    """A TrainingQueue. Of a spec that does not parse ``spec_error`` says why, and ``spec`` is the last that did, or
    ``CLOSED_QUEUE``."""

    name: str
    spec: TrainingQueueSpec
    created_at: float = 0.0
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    status: TrainingQueueStatus = field(default_factory=TrainingQueueStatus)
    spec_error: str = ""

    @property
    def is_closed(self) -> bool:
        """Nothing is known of its rules."""
        return bool(self.spec_error) and self.spec == CLOSED_QUEUE


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
EDIT_GRACE = 30.0
"""Seconds from its first edit on for which a pending run keeps its place while it is yet to be judged as it is now; and
without an edit, until the next one counts as the first again."""


class JobPhase(StrEnum):
    """How far a Job is."""

    ACTIVE = "Active"
    COMPLETE = "Complete"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class JobView:
    """An archive job. ``result`` is the termination message of its last pod that ended, empty when it is gone.

    ``told``: the options of its command line, each with the word behind it.
    """

    namespace: str
    name: str
    uid: str
    run_uid: str
    phase: JobPhase
    idle_since: float = 0.0  # active, and none of its pods runs; 0: one does
    finished_at: float = 0.0
    message: str = ""  # of its Failed condition
    result: str = ""
    deleting: bool = False
    removes: bool = False  # checkpoints that it is not told to spare
    told: frozenset[tuple[str, str]] = frozenset()


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
    placing: float = 0.0  # that half of the pods waited for kube-scheduler at least, which found nothing against them

    @property
    def allowance(self) -> float:
        """By how much deadlines are later for it: for what each of them waits for takes so much longer."""
        late = self.loop + self.write
        return min(MOST_ALLOWED, TURNS * late) if late else 0.0

    @property
    def placing_allowance(self) -> float:
        """The same for what waits for kube-scheduler as well."""
        return min(MOST_ALLOWED, TURNS * (self.loop + self.write + self.placing))

    def deaf_since(self, moment: float) -> float:
        """Seconds since ``moment`` in which nobody was listened to."""
        if not self.deaf:
            return 0.0  # mostly, and asked for slot after slot
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
    preemptor: RunView | None = None  # the run that preempts it; None: nobody knows what became of that run
    recorded: bool = True  # what came of it stands where it outlives the run: in the status of its set, if it has one
    placeholders: tuple[PlaceholderView, ...] = ()  # of the run, and others in the way of its gang
    placeholder_gone_at: float = 0.0  # when the last of the run was seen to go; 0: none was
    provisioning: ProvisioningView | None = None  # None: it was not asked for
    kueue: Kueue = field(default_factory=Kueue)
    submitted: Mapping[str, RunView] = field(default_factory=dict)  # what it asks to submit, by name, as far as there
    numbers: Mapping[int, tuple[str, bool]] = field(default_factory=dict)  # then: jobs by number: name, is an array
    job_id: int = 0  # a number that was taken for it and is in no status yet; 0: none was
    namesake: bool = False  # an array was called so before it, and has not ended
    ended: Mapping[str, int] = field(default_factory=dict)  # by pod of a past incarnation, the attempt it ran last


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
    edited: Mapping[str, float] = field(default_factory=dict)  # by run uid, the first of its latest edits (EDIT_GRACE)
    kueue: Kueue = field(default_factory=Kueue)
    changes: Changes = Changes()
