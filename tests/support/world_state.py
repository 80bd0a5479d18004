"""What there is in the cluster in memory, and what one operator process knows of it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from lockstep.api.base import names
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.plan import Directive
from lockstep.core.model.snapshot import DryRunResult, JobView, Lag, NodeView, PodView, QueueView, RunView
from lockstep.core.model.start_record import CollectiveStart
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import (
    CheckpointReport,
    ExitReport,
    PartlyEndedStep,
    PointReport,
    PreviousSavesReport,
    Sign,
    StepEnd,
    UnrecognisedReport,
    VerifyReport,
    WarmUpReport,
    WorkerPhase,
    WorkerReport,
)

GPU = {"nvidia.com/gpu": 8, "cpu": 192_000, "memory": 2**41, "pods": 110}


def node(name: str, rack: str = "rack-0", **changes: object) -> NodeView:
    """An eight-GPU node."""
    labels = {names.LABEL_HOSTNAME: name, "topology.kubernetes.io/rack": rack}
    view = NodeView(name=name, uid=f"uid-{name}", labels=labels, allocatable=GPU, internal_ip=f"10.0.0.{name[1:]}")
    return replace(view, **changes)  # type: ignore[arg-type]


def spec(nodes: int = 2, **fields: object) -> TrainingRunSpec:
    """A run with a shared checkpoint tier."""
    return TrainingRunSpec.model_validate(
        {
            "nodes": nodes,
            "image": "trainer",
            "command": ["python", "train.py"],
            "checkpoint": {"shared": {"claimName": "lustre"}},
            **fields,
        }
    )


@dataclass
class Worker:
    """The worker in a running pod, and its child."""

    pod_uid: str
    slot: int
    incarnation: int
    node: str
    phase: WorkerPhase = WorkerPhase.PREPARING
    attempt: int = 0
    ready_for: int = 0
    start: CollectiveStart | None = None
    exit: ExitReport | None = None
    signs: tuple[Sign, ...] = ()
    step_ends: tuple[StepEnd, ...] = ()
    partly_ended: tuple[PartlyEndedStep, ...] = ()
    step: int = 0
    steps_since: float = 0.0
    since: float = 0.0
    verified: tuple[VerifyReport, ...] = ()
    looked_again: int = 0
    inventory: tuple[CheckpointReport, ...] = ()
    saved: str = ""  # id of the save that it took up last
    leaving_by: float = 0.0
    pointed: PointReport | None = None
    warmed: WarmUpReport | None = None
    clock_skew: float = 0.0


@dataclass
class WorldState:
    """Everything that is, and what one operator process knows of it."""

    nodes: dict[str, NodeView]
    tunables: Tunables = field(default_factory=Tunables)
    now: float = 1_000_000.0
    runs: dict[str, RunView] = field(default_factory=dict)
    pods: dict[str, PodView] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)  # by pod uid
    silent_nodes: set[str] = field(default_factory=set)  # dead or cut off: no reports, no kubelet
    saved: dict[str, list[int]] = field(default_factory=dict)  # steps on the shared tier, by run uid
    saved_by: dict[tuple[str, int], int] = field(default_factory=dict)  # attempt, by run uid and step
    saved_at: dict[tuple[str, int], float] = field(default_factory=dict)  # likewise, where it is of any account
    saved_with: dict[tuple[str, int], int] = field(default_factory=dict)  # number of nodes, by run uid and step
    on_disks: dict[tuple[str, str], dict[int, int]] = field(
        default_factory=dict
    )  # by run uid and node: the rank that saved there, by step, where the run has a local tier
    clock_skews: dict[str, float] = field(default_factory=dict)  # by node
    pointer_problems: dict[str, str] = field(default_factory=dict)  # by node: what rewriting pointers ends with there
    without_steps_port: set[str] = field(default_factory=set)  # nodes whose worker takes no steps
    hung_at_pointers: set[str] = field(default_factory=set)  # nodes that do not answer a request to rewrite them
    pointed_at: list[tuple[int, str, int]] = field(default_factory=list)  # by whom, where, to which step
    deaf_to: dict[str, str] = field(default_factory=dict)  # by node: another one that it cannot exchange data with
    cut_off: dict[str, float] = field(default_factory=dict)  # nodes whose processes run on unseen, and since when
    overlaps: list[tuple[str, int, str]] = field(
        default_factory=list
    )  # started beside a lost writer: uid, attempt, node
    hung_at_warm_up: set[str] = field(default_factory=set)
    unrecognised: tuple[UnrecognisedReport, ...] | None = None  # what rank 0 sees; None: an older worker
    previous_saves: tuple[PreviousSavesReport, ...] = ()  # what rank 0 sees of earlier runs of a name
    foreign: tuple[CheckpointReport, ...] = ()  # of others: where the run is to start from, or all attempts save
    groups_stay: bool = False  # a webhook fails whenever a PodGroup is to be deleted
    pod_groups: dict[str, tuple[str, int]] = field(default_factory=dict)  # by name: run UID and quorum
    members: dict[str, str] = field(default_factory=dict)  # by pod: the PodGroup that it names
    jobs: dict[str, tuple[JobView, ...]] = field(default_factory=dict)  # of the archive, by run
    queues: dict[str, QueueView] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)  # values of PriorityClasses
    # soft state of the operator
    reports: dict[str, dict[int, WorkerReport]] = field(default_factory=dict)
    ended: dict[str, dict[str, int]] = field(default_factory=dict)  # of past incarnations: by run uid and pod uid
    directives: dict[str, Directive] = field(default_factory=dict)
    dry_runs: dict[str, DryRunResult] = field(default_factory=dict)
    job_ids: dict[str, int] = field(default_factory=dict)  # by run UID: numbers taken, and in no status yet
    last_job_id: int = 0
    leader_since: float = 0.0
    lag: Lag = field(default_factory=Lag)  # as the operator measures it
    delays: Callable[[int], tuple[float, float, float, float]] | None = None
    """By slot: seconds until its pod is placed, then starts, its worker then registers, and then is ready."""
    breaker: bool = False  # whether the cluster pass computes the breaker
    directives_reach: int | None = None  # how many workers hear a change of orders per round; None: all
    version: int = 1
    listens: bool = False  # whether programs ask for saves
    tells_losses: Collection[int] | None = None  # the slots whose programs print the loss; None: all
    format: str = ""  # of what programs save
    saves_succeed: bool = True  # whether what they save becomes valid
    save_steps: dict[tuple[str, str], int] = field(default_factory=dict)  # by run uid and id: the step asked for
    starts: dict[tuple[str, int], CollectiveStart] = field(default_factory=dict)  # what children were started with
    launched: dict[tuple[str, int], set[int]] = field(default_factory=dict)  # slots that ran user code

    def status(self, run: str) -> TrainingRunStatus:
        """The run's status as the API server has it."""
        return self.runs[run].status

    def worker(self, run: str, rank: int) -> Worker | None:
        """The worker of a rank's newest pod, if its process lives."""
        seats = slots.ranked_slots(self.runs[run].status.assignment)
        found = [w for w in self._workers_of(self.runs[run].uid) if rank < len(seats) and w.slot == seats[rank]]
        return max(found, key=lambda w: w.incarnation, default=None)

    def children(self, run: str) -> Mapping[int, int]:
        """Attempt of the child that runs in each slot."""
        return {w.slot: w.attempt for w in self._workers_of(self.runs[run].uid) if w.phase is WorkerPhase.RUNNING}

    def warm(self, run: str) -> set[int]:
        """Slots without a rank whose workers are at the barrier."""
        seats = slots.ranked_slots(self.runs[run].status.assignment)
        ready = [w for w in self._workers_of(self.runs[run].uid) if w.phase is WorkerPhase.READY]
        return {w.slot for w in ready if w.slot not in seats}

    def _workers_of(self, uid: str) -> list[Worker]:
        return [self.workers[p.uid] for p in self.pods.values() if p.run_uid == uid and p.uid in self.workers]

    def _mutex_held(self, pod: PodView) -> bool:
        return any(
            p.node == pod.node and p.bound and not p.is_terminal and p.uid != pod.uid for p in self.pods.values()
        )
