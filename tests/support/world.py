"""A small cluster in memory: an API server, a scheduler, kubelets and workers, moved by hand.

It stands in for the real ones only where a property test needs thousands of histories; the same
scenarios run against real parts in tests/cluster and tests/nodes. The core it drives is the real one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.queue import TrainingQueueSpec
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.admission.admit import admit
from lockstep.core.decide import decide
from lockstep.core.failures.breaker import disruption
from lockstep.core.model import assignment as slots
from lockstep.core.model.bounds import Tier
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.plan import CreatePod, DesiredPhase, Directive, Plan, StatusWrite
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.snapshot import (
    CheckpointReport,
    ClusterSnapshot,
    DryRunResult,
    ExitReport,
    JobView,
    Lag,
    Leadership,
    NodeView,
    PodPhase,
    PodView,
    PointReport,
    ProgressReport,
    QueueView,
    RunSnapshot,
    RunView,
    Sign,
    UnrecognisedReport,
    Verdict,
    VerifyReport,
    WarmUpReport,
    WorkerPhase,
    WorkerReport,
)
from lockstep.core.model.start_record import CollectiveStart
from lockstep.core.model.tunables import Tunables

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


def group_named_by(pod: Mapping[str, Any]) -> str:
    """The PodGroup that a pod names, as each kind of scheduler reads it; empty: none."""
    native = pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")
    return str(native or pod["metadata"]["annotations"].get("scheduling.k8s.io/group-name", ""))


def quorum(spec: Mapping[str, Any]) -> int:
    """Of a PodGroup of either kind."""
    return int(spec["minMember"] if "minMember" in spec else spec["schedulingPolicy"]["gang"]["minCount"])


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
    step: int = 0
    steps_since: float = 0.0
    since: float = 0.0
    verified: tuple[VerifyReport, ...] = ()
    inventory: tuple[CheckpointReport, ...] = ()
    saved: str = ""  # id of the save that it took up last
    leaving_by: float = 0.0
    pointed: PointReport | None = None
    warmed: WarmUpReport | None = None
    clock_skew: float = 0.0


@dataclass
class World:
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
    on_disks: dict[tuple[str, str], dict[int, int]] = field(
        default_factory=dict
    )  # by run uid and node: the rank that saved there, by step, where the run has a local tier
    clock_skews: dict[str, float] = field(default_factory=dict)  # by node
    pointer_problems: dict[str, str] = field(default_factory=dict)  # by node: what rewriting pointers ends with there
    hung_at_pointers: set[str] = field(default_factory=set)  # nodes that do not answer a request to rewrite them
    pointed_at: list[tuple[int, str, int]] = field(default_factory=list)  # by whom, where, to which step
    deaf_to: dict[str, str] = field(default_factory=dict)  # by node: another one that it cannot exchange data with
    cut_off: dict[str, float] = field(default_factory=dict)  # nodes whose processes run on unseen, and since when
    overlaps: list[tuple[str, int, str]] = field(
        default_factory=list
    )  # started beside a lost writer: uid, attempt, node
    hung_at_warm_up: set[str] = field(default_factory=set)
    unrecognised: tuple[UnrecognisedReport, ...] | None = None  # what rank 0 sees; None: an older worker
    foreign: tuple[CheckpointReport, ...] = ()  # what every rank sees in the directory to start from
    groups_stay: bool = False  # a webhook fails whenever a PodGroup is to be deleted
    pod_groups: dict[str, tuple[str, int]] = field(default_factory=dict)  # by name: run UID and quorum
    members: dict[str, str] = field(default_factory=dict)  # by pod: the PodGroup that it names
    jobs: dict[str, tuple[JobView, ...]] = field(default_factory=dict)  # of the archive, by run
    queues: dict[str, QueueView] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)  # values of PriorityClasses
    # soft state of the operator
    reports: dict[str, dict[int, WorkerReport]] = field(default_factory=dict)
    directives: dict[str, Directive] = field(default_factory=dict)
    dry_runs: dict[str, DryRunResult] = field(default_factory=dict)
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

    def apply(self, name: str, run_spec: TrainingRunSpec) -> RunView:
        """`kubectl apply`."""
        known = self.runs.get(name)
        if known is not None:
            view = replace(known, spec=run_spec, generation=known.generation + 1)
        else:
            status = TrainingRunStatus()
            view = RunView("ns", name, f"uid-{name}", 1, "1", self.now, run_spec, status)
        return self._store(view)

    def roll_out(self, name: str, run_spec: TrainingRunSpec) -> None:
        """`kubectl apply`, and everybody acts until nothing changes."""
        self.apply(name, run_spec)
        self.settle()

    def queue(self, name: str = "default", **fields: object) -> None:
        """`kubectl apply` of a TrainingQueue."""
        self.queues[name] = QueueView(name, TrainingQueueSpec.model_validate(fields))

    def crash(self) -> None:
        """The operator process dies; another one begins with nothing but what the API server has."""
        self.reports.clear()
        self.directives.clear()
        self.dry_runs.clear()
        self.leader_since = self.now

    # --- the operator

    def snapshot(self, name: str) -> RunSnapshot:
        """What the operator sees of a run."""
        run = self.runs[name]
        return RunSnapshot(
            run=run,
            pods=tuple(pod for pod in self.pods.values() if pod.run_uid == run.uid),
            reports={
                # A dead worker's poll lapses soon after its last word.
                slot: replace(report, polling=self.now - report.received_at <= 2.0)
                for slot, report in self.reports.get(run.uid, {}).items()
            },
            nodes=self.nodes,
            leadership=self._leadership(),
            dry_run=self.dry_runs.get(run.uid),
            jobs=self.jobs.get(name, ()),
            origin=self._origin(run),
            queue=self.queues.get(run.spec.queue) if run.spec is not None else None,
            preemptor=self._preemptor(run),
        )

    def _origin(self, run: RunView) -> RunView | None:
        checkpoint = run.spec.checkpoint if run.spec is not None else None
        return self.runs.get(checkpoint.start.run or "") if checkpoint is not None else None

    def _preemptor(self, run: RunView) -> RunView | None:
        notice = run.status.preemption
        return next((other for other in self.runs.values() if notice and other.uid == notice.by), None)

    def cluster_snapshot(self) -> ClusterSnapshot:
        """What the admission cycle sees."""
        return ClusterSnapshot(
            runs=tuple(self.runs.values()),
            queues=self.queues,
            nodes=self.nodes,
            gang_pods=tuple(self.pods.values()),
            foreign_requests={},
            in_flight={},
            leadership=Leadership(self.leader_since),
            priority_classes=self.classes,
        )

    def _leadership(self) -> Leadership:
        trouble = disruption(self.cluster_snapshot(), self.tunables, self.now) if self.breaker else ""
        return Leadership(self.leader_since, trouble, lag=self.lag)

    def admission(self, run: str, **changes: Any) -> None:
        """Change what admission remembers of a run."""
        self.amend(run, admission=changed(self.status(run).admission, **changes))

    def amend(self, run: str, **changes: Any) -> None:
        """Change a run's status by hand."""
        self._store(replace(self.runs[run], status=changed(self.status(run), **changes)))

    def grant(self, run: str, seconds: int, asked: str) -> None:
        """The run was admitted with this time limit."""
        self.admission(run, time_limit=seconds, asked_limit=asked)

    def wipe_status(self, name: str) -> None:
        """Somebody restores a backup without status, or edits it away."""
        self._store(replace(self.runs[name], status=TrainingRunStatus()))

    def plan(self, name: str) -> PlanBuilder:
        """What a step of ``decide`` is given now."""
        return PlanBuilder(RunContext(self.snapshot(name), self.tunables, self.now))

    def reconcile(self, name: str, *, crash_after: int | None = None) -> Plan:
        """Decide and act for one run; ``crash_after`` writes the operator dies (None: it lives)."""
        plan = decide(self.snapshot(name), self.tunables, self.now)
        self._execute(name, plan, crash_after)
        return plan

    def admit(self, *, crash_after: int | None = None) -> tuple[StatusWrite, ...]:
        """One admission cycle, its writes in order."""
        plan = admit(self.cluster_snapshot(), self.tunables, self.now)
        for count, write in enumerate(plan.writes):
            if crash_after is not None and count >= crash_after:
                self.crash()
                break
            self._write_status(write.name, write.status)
        return plan.writes

    def settle(self, rounds: int = 30) -> None:
        """Let everybody act until nothing changes; time stands still but for a blink per round."""
        for _ in range(rounds):
            self.kubelets()
            self.work()
            before = (self.version, dict(self.pods), {k: replace(w) for k, w in self.workers.items()})
            for name in list(self.runs):
                self.reconcile(name)
            self.admit()
            for name in list(self.runs):
                self.reconcile(name)
            self.kubelets()
            self.work()
            if before == (self.version, self.pods, self.workers):
                return
            self.now += 0.01

    def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Time goes by, with everybody acting each ``step`` seconds."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step)
            self.settle()

    # --- the rest of the cluster

    def kubelets(self) -> None:
        """The scheduler binds, kubelets start what is bound to live nodes and end what is deleted."""
        for name, pod in list(self.pods.items()):
            if pod.node in self.silent_nodes or pod.node not in self.nodes:
                continue
            if pod.deleting:
                del self.pods[name]
                self.workers.pop(pod.uid, None)
            elif self.delays is not None:
                self._come_slowly(pod, self.delays(pod.slot))
            elif not pod.bound and not self._mutex_held(pod) and not self._held_by_group(name):
                self.pods[name] = replace(pod, bound=True, phase=PodPhase.RUNNING, started_at=self.now)
                if not pod.attempt:
                    self.workers[pod.uid] = Worker(pod.uid, pod.slot, pod.incarnation, pod.node, since=self.now)

    def _come_slowly(self, pod: PodView, delays: tuple[float, float, float, float]) -> None:
        placing, starting, registering, _ = delays
        if not pod.bound:
            if self.now >= pod.created_at + placing and not self._mutex_held(pod):
                self.pods[pod.name] = replace(pod, bound=True, bound_at=self.now)
        elif pod.started_at is None:
            assert pod.bound_at is not None
            if self.now >= pod.bound_at + starting:
                self.pods[pod.name] = replace(pod, phase=PodPhase.RUNNING, started_at=self.now)
        elif pod.uid not in self.workers and self.now >= pod.started_at + registering:
            self.workers[pod.uid] = Worker(pod.uid, pod.slot, pod.incarnation, pod.node, since=self.now)

    def _held_by_group(self, name: str) -> bool:
        """Fewer pods of its group than its quorum are bound or would be, could all that fit be at once."""
        group = self.members.get(name)
        if group is None:
            return False
        if group not in self.pod_groups:
            return True
        of_group = [pod for pod in self.pods.values() if self.members.get(pod.name) == group]
        fit = [pod for pod in of_group if pod.bound or not (pod.deleting or self._mutex_held(pod))]
        return len(fit) < self.pod_groups[group][1]

    def work(self) -> None:
        """Every worker hears its orders, acts, and reports, unless its node is silent."""
        heard = 0
        for pod in list(self.pods.values()):
            worker = self.workers.get(pod.uid)
            if worker is None or pod.is_terminal or pod.node in self.silent_nodes:
                continue
            before = (worker.phase, worker.attempt, worker.ready_for)
            heard += 1
            if self.delays is not None and not worker.ready_for and self.now < worker.since + self.delays(pod.slot)[3]:
                self._report(pod, worker)
                continue
            if self.directives_reach is None or heard <= self.directives_reach:
                self._obey(pod, worker)
            if before != (worker.phase, worker.attempt, worker.ready_for):
                worker.since = self.now
            self._report(pod, worker)
        self._commit_saves()

    def work_reports_only(self) -> None:
        """Every worker reports, and has not yet heard new orders."""
        self.directives_reach = 0
        self.work()
        self.directives_reach = None

    def tell_of_save(self, run: str, step: int) -> None:
        """All workers see a checkpoint and say so."""
        uid = self.runs[run].uid
        steps = [*self.saved.get(uid, []), step]
        for worker in self._workers_of(uid):
            worker.inventory = self._rows(uid, steps, slots.world(self.runs[run].status.assignment), worker.node)
        self.work_reports_only()

    def tell_to_end(self, run: str, rank: int, grace: float = 60.0) -> None:
        """The pod of a rank gets SIGTERM from somebody else, as with an eviction."""
        worker = self.worker(run, rank)
        if worker is not None:
            worker.leaving_by = self.now + grace

    def cordon(self, name: str, unschedulable: bool = True) -> None:
        """`kubectl cordon`, `kubectl uncordon`."""
        self.nodes[name] = replace(self.nodes[name], unschedulable=unschedulable)

    def drain(self, name: str, reason: str = "new firmware") -> None:
        """`lockstep nodes drain`; without a reason it is over."""
        self.nodes[name] = replace(self.nodes[name], drain=reason)

    def annotate(self, run: str, **annotations: str) -> None:
        """`kubectl annotate`, of our own annotations."""
        named = {f"{names.GROUP}/{name.replace('_', '-')}": value for name, value in annotations.items()}
        view = self.runs[run]
        self._store(replace(view, annotations={**view.annotations, **named}))

    def request(self, run: str, **annotations: str) -> None:
        """Change our own annotations, and everybody acts until nothing changes."""
        self.annotate(run, **annotations)
        self.settle()

    def lose_node(self, name: str) -> None:
        """Power failure: nothing on it runs any more, and nobody says so."""
        self.silent_nodes.add(name)
        for pod in self.pods.values():
            if pod.node == name:
                self.workers.pop(pod.uid, None)

    def cut_off_node(self, name: str) -> None:
        """Its network fails: nothing is heard of it any more, and what runs there runs on."""
        if name not in self.silent_nodes:
            self.silent_nodes.add(name)
            self.cut_off[name] = self.now

    def _may_write(self, worker: Worker) -> bool:
        """A process that nobody can reach, before its own fence falls."""
        since = self.cut_off.get(worker.node)
        if since is None or worker.phase is not WorkerPhase.RUNNING:
            return False
        return self.now < max(since, worker.steps_since) + self.tunables.fence_seconds

    def node_not_ready(self, name: str, ready: bool = False) -> None:
        """The node controller's view changes."""
        self.nodes[name] = replace(self.nodes[name], ready=ready, ready_changed_at=self.now)

    def fail_node(self, name: str) -> None:
        """Power failure, which the node controller has noticed."""
        self.lose_node(name)
        self.node_not_ready(name)

    def lose_ranks(self, run: str, *ranks: int) -> list[str]:
        """Power failure of the ranks' nodes, seen at once; those nodes."""
        assignment = self.status(run).assignment
        lost = [assignment.nodes[slots.ranked_slots(assignment)[rank]] for rank in ranks]
        for name in lost:
            self.lose_node(name)
            del self.nodes[name]
        return lost

    def return_node(self, name: str) -> None:
        """A lost machine boots: its old pods are Failed, or gone when they were deleted."""
        for worker in self.workers.values():
            if worker.node == name and worker.phase is WorkerPhase.RUNNING and not self._may_write(worker):
                worker.phase, worker.exit = WorkerPhase.EXITED, ExitReport(0, 9, self.now, "Fenced")
        self.silent_nodes.discard(name)
        self.cut_off.pop(name, None)
        self.node_not_ready(name, True)
        for key, pod in list(self.pods.items()):
            if pod.node == name and pod.bound and pod.uid not in self.workers:
                if pod.deleting:
                    del self.pods[key]
                else:
                    self.pods[key] = replace(pod, phase=PodPhase.FAILED, reason="NodeShutdown")

    def exit_child(
        self, run: str, rank: int, code: int, *, signs: Sequence[str] = (), stderr: str = "", late: float = 0.0
    ) -> None:
        """The training process of a rank ends, ``late`` seconds after now, having shown ``signs`` before."""
        worker = self.worker(run, rank)
        if worker is not None and worker.phase is WorkerPhase.RUNNING:
            worker.phase = WorkerPhase.EXITED
            worker.since = self.now
            reason = "Error" if code else "Completed"
            worker.exit = ExitReport(code=code, at=self.now + late, reason=reason, stderr_tail=stderr)
            self.show(run, rank, *signs)

    def end_child(self, run: str, rank: int, code: int, **shown: Any) -> None:
        """It ends as with ``exit_child``, and everybody acts until nothing changes."""
        self.exit_child(run, rank, code, **shown)
        self.settle()

    def show(self, run: str, rank: int, *signs: str, step: int = 0) -> None:
        """A rank's log shows something."""
        worker = self.worker(run, rank)
        if worker is not None:
            worker.signs += tuple(Sign(kind, self.now, step, f"a line about {kind}") for kind in signs)

    def fail_pod(self, run: str, rank: int) -> None:
        """The pod's container dies, worker and all."""
        worker = self.worker(run, rank)
        if worker is not None:
            del self.workers[worker.pod_uid]
            for key, pod in self.pods.items():
                if pod.uid == worker.pod_uid:
                    self.pods[key] = replace(pod, phase=PodPhase.FAILED, exit_code=137, reason="Error")

    def end_pod(self, run: str, rank: int, code: int, *, reason: str = "Error", message: str = "") -> None:
        """The program of a pod without a worker ends."""
        status = self.runs[run].status
        slot = slots.ranked_slots(status.assignment)[rank]
        for key, pod in self.pods.items():
            if (pod.slot, pod.incarnation) == (slot, status.assignment.incarnations[slot]):
                phase = PodPhase.FAILED if code else PodPhase.SUCCEEDED
                reason = reason if code else "Completed"
                self.pods[key] = replace(
                    pod, phase=phase, exit_code=code, reason=reason, message=message, ended_at=self.now
                )

    def train(self, run: str, steps: int) -> None:
        """Every running rank advances and the gang saves on the shared tier."""
        uid = self.runs[run].uid
        children = [w for w in self._workers_of(uid) if w.phase is WorkerPhase.RUNNING]
        newest = max((w.attempt for w in children), default=0)
        running = [w for w in children if w.attempt == newest and w.node not in self.cut_off]
        if len(running) == slots.world(self.runs[run].status.assignment) and running:
            for worker in running:
                worker.step += steps
                worker.steps_since = self.now
            step = max(worker.step for worker in running)
            self._keep_save(self.runs[run], step, running)

    def worker(self, run: str, rank: int) -> Worker | None:
        """The worker of a rank's newest pod, if its process lives."""
        seats = slots.ranked_slots(self.runs[run].status.assignment)
        found = [w for w in self._workers_of(self.runs[run].uid) if rank < len(seats) and w.slot == seats[rank]]
        return max(found, key=lambda w: w.incarnation, default=None)

    def status(self, run: str) -> TrainingRunStatus:
        """The run's status as the API server has it."""
        return self.runs[run].status

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

    def _keep_save(self, run: RunView, step: int, gang: Sequence[Worker]) -> None:
        self.saved.setdefault(run.uid, []).append(step)
        self.saved_by[run.uid, step] = gang[0].attempt
        checkpoint = run.spec.checkpoint if run.spec is not None else None
        if checkpoint is not None and checkpoint.local is not None:
            ranks = slots.slot_ranks(run.status.assignment)
            for worker in gang:
                self.on_disks.setdefault((run.uid, worker.node), {})[step] = ranks[worker.slot]

    def _rows(self, uid: str, steps: list[int], world: int, node: str) -> tuple[CheckpointReport, ...]:
        def row(tier: Tier, step: int, path: str) -> CheckpointReport:
            return CheckpointReport(
                tier=tier,
                step=step,
                path=path,
                verdict=Verdict.VALID,
                attempt=self.saved_by.get((uid, step), 1),
                world=world,
                run_uid=uid,
                committed_at=1.0,
                format=self.format,
            )

        own = tuple(row("shared", step, f"/shared/{step}") for step in sorted(set(steps)))
        disk = sorted(self.on_disks.get((uid, node), {}).items())
        own += tuple(row("local", step, f"/local/{step}/rank-{rank}") for step, rank in disk)
        return (
            own + self.foreign
            if any(r.uid == uid and r.status.resolved.start_root for r in self.runs.values())
            else own
        )

    def _mutex_held(self, pod: PodView) -> bool:
        return any(
            p.node == pod.node and p.bound and not p.is_terminal and p.uid != pod.uid for p in self.pods.values()
        )

    def _obey(self, pod: PodView, worker: Worker) -> None:
        orders = self.directives.get(pod.run_uid)
        if orders is None or worker.slot >= len(orders.incarnations):
            return
        if orders.incarnations[worker.slot] != worker.incarnation:
            if orders.incarnations[worker.slot] > worker.incarnation and worker.phase is WorkerPhase.RUNNING:
                worker.phase, worker.exit = WorkerPhase.EXITED, ExitReport(143, at=self.now, reason="StoppedOnRequest")
            return
        phase, rank = orders.phase, orders.slot_ranks[worker.slot]
        if rank < 0 and phase is DesiredPhase.RUN:
            phase = DesiredPhase.PREPARE  # as the operator answers spares
        if phase is DesiredPhase.PREPARE and worker.ready_for < orders.attempt:
            worker.phase, worker.ready_for = (
                WorkerPhase.READY,
                orders.attempt,
            )  # its exit is told of until it runs again
            worker.verified, worker.step = (), 0
            worker.pointed = worker.warmed = None
            worker.clock_skew = self.clock_skews.get(worker.node, 0.0)
            world = sum(rank >= 0 for rank in orders.slot_ranks)
            worker.inventory = self._rows(pod.run_uid, self.saved.get(pod.run_uid, []), world, worker.node)
        elif phase is DesiredPhase.PREPARE and rank >= 0:
            if orders.verify is not None:
                tier: Tier = "local" if orders.verify.tier == "local" else "shared"
                worker.verified = (VerifyReport(tier, orders.verify.path, Verdict.VALID),)
            point = orders.point
            asked = point is not None and point.slot == worker.slot and worker.pointed is None
            if point is not None and asked and worker.node not in self.hung_at_pointers:
                worker.pointed = PointReport(point.path, point.step, self.pointer_problems.get(worker.node, ""))
                self.pointed_at.append((worker.slot, point.path, point.step))
            if orders.warm_up is not None and worker.node not in self.hung_at_warm_up:
                deaf_to = self.deaf_to.get(worker.node)
                nodes = {w.node: orders.slot_ranks[w.slot] for w in self._workers_of(pod.run_uid)}
                bad = nodes.get(deaf_to, -1) if deaf_to is not None else -1
                problem = f"rank {bad} does not answer" if bad >= 0 else ""
                worker.warmed = WarmUpReport(orders.warm_up.id, 0.1, bad, problem)
        elif phase is DesiredPhase.RUN and worker.ready_for == orders.attempt > worker.attempt:
            assert orders.start is not None
            worker.phase, worker.attempt, worker.start = WorkerPhase.RUNNING, orders.attempt, orders.start
            worker.exit, worker.signs = None, ()
            worker.step, worker.steps_since = orders.start.resume_step, self.now
            self.launched.setdefault((pod.run_uid, orders.attempt), set()).add(worker.slot)
            others = [w for w in self._workers_of(pod.run_uid) if w.attempt < orders.attempt and self._may_write(w)]
            self.overlaps += [(pod.run_uid, orders.attempt, w.node) for w in others]
            first = self.starts.setdefault((pod.run_uid, orders.attempt), orders.start)
            assert first == orders.start, "two START records for one attempt"
        elif phase is DesiredPhase.RUN and worker.phase is WorkerPhase.RUNNING and orders.save is not None:
            save_step = self.save_steps.setdefault((pod.run_uid, orders.save.id), orders.save.at_step)
            assert save_step == orders.save.at_step, "one id for two saves"
            if self.listens and worker.saved != orders.save.id:
                worker.saved = orders.save.id
                worker.step, worker.steps_since = max(worker.step + 1, orders.save.at_step), self.now
        elif orders.phase is DesiredPhase.STOP and worker.phase is not WorkerPhase.EXITED:
            worker.phase = WorkerPhase.EXITED
            worker.exit = ExitReport(code=143, at=self.now, reason="StoppedOnRequest")
        elif orders.phase is DesiredPhase.COMPLETE:
            code = worker.exit.code if worker.exit is not None else 0
            ended = PodPhase.FAILED if code else PodPhase.SUCCEEDED
            self.pods[pod.name] = replace(pod, phase=ended, exit_code=code)
            del self.workers[pod.uid]

    def _commit_saves(self) -> None:
        """A save that every rank of a gang has taken up is complete."""
        for run in self.runs.values():
            gang = [w for w in self._workers_of(run.uid) if w.phase is WorkerPhase.RUNNING]
            orders = self.directives.get(run.uid)
            world = sum(rank >= 0 for rank in orders.slot_ranks) if orders is not None else 0
            if orders is None or orders.save is None or len(gang) < world or not self.saves_succeed:
                continue
            if all(w.saved == orders.save.id for w in gang):
                steps = self.saved.setdefault(run.uid, [])
                step = max(w.step for w in gang)
                self._keep_save(run, step, gang)
                for pod in self.pods.values():
                    if pod.run_uid == run.uid and pod.uid in self.workers and pod.node not in self.silent_nodes:
                        worker = self.workers[pod.uid]
                        worker.inventory = self._rows(run.uid, steps, len(gang), worker.node)
                        self._report(pod, worker)

    def _report(self, pod: PodView, worker: Worker) -> None:
        if pod.uid not in self.workers:
            return
        progress = None
        if worker.attempt and worker.step:
            silent = self.tells_losses is not None and worker.slot not in self.tells_losses
            progress = ProgressReport(worker.step, worker.steps_since, "" if silent else "1.0")
        known = self.reports.setdefault(pod.run_uid, {}).get(worker.slot)
        self.reports[pod.run_uid][worker.slot] = WorkerReport(
            slot=worker.slot,
            incarnation=worker.incarnation,
            pod_uid=pod.uid,
            node=pod.node,
            phase=worker.phase,
            received_at=self.now,
            since=worker.since,
            registered_at=known.registered_at if known is not None and known.pod_uid == pod.uid else self.now,
            polling=True,
            address=f"10.0.0.{worker.slot + 1}",
            port=40_000 + worker.slot,
            attempt=worker.attempt,
            ready_for=worker.ready_for,
            start=worker.start,
            exit=worker.exit,
            progress=progress,
            inventory=worker.inventory,
            unrecognised=self.unrecognised if self.unrecognised is None or not worker.slot else (),
            verified=worker.verified,
            signs=worker.signs,
            saved=worker.saved,
            listens=self.listens and worker.phase is WorkerPhase.RUNNING,
            leaving_by=worker.leaving_by,
            pointed=worker.pointed,
            warmed=worker.warmed,
            clock_skew=worker.clock_skew,
        )

    def _execute(self, name: str, plan: Plan, crash_after: int | None) -> None:
        run = self.runs[name]
        writes = 0

        def dies() -> bool:
            nonlocal writes
            writes += 1
            return crash_after is not None and writes > crash_after

        if plan.pod_group_deletes and self.groups_stay:
            plan = replace(plan, status=None, pod_group_deletes=())
        for ended in plan.pod_group_deletes:
            if dies():
                return self.crash()
            self.pod_groups.pop(ended.name, None)
        if plan.status is not None:
            if dies():
                return self.crash()
            self._write_status(name, plan.status)
        if plan.directive is not None:
            self.directives[run.uid] = plan.directive
        if plan.dry_run is not None:
            self.dry_runs[run.uid] = DryRunResult(plan.dry_run.generation, True, "", self.now)
        for gone in plan.deletes:
            if dies():
                return self.crash()
            pod = self.pods.get(gone.name)
            if pod is not None and pod.uid == gone.uid:
                self._delete(pod)
        if plan.pod_group is not None:
            if dies():
                return self.crash()
            self.pod_groups[plan.pod_group.name] = (run.uid, quorum(plan.pod_group.body["spec"]))
        for new in plan.creates:
            if dies():
                return self.crash()
            if new.name not in self.pods:
                self._create(run, new)
        if plan.delete_run and not dies():
            del self.runs[name]
        return None

    def _create(self, run: RunView, new: CreatePod) -> None:
        self.version += 1
        group = group_named_by(new.body)
        if group:
            assert group in self.pod_groups, f"{new.name} is made before its PodGroup {group}"
            self.members[new.name] = group
        self.pods[new.name] = PodView(
            namespace="ns",
            name=new.name,
            uid=f"pod-{self.version}",
            run=run.name,
            run_uid=run.uid,
            owner_uid=run.uid,
            slot=new.slot,
            incarnation=new.incarnation,
            node=new.node,
            bound=False,
            phase=PodPhase.PENDING,
            created_at=self.now,
            resolved=new.body["metadata"]["annotations"][names.ANNOTATION_RESOLVED],
            attempt=int(new.body["metadata"]["annotations"].get(names.ANNOTATION_ATTEMPT, 0)),
        )

    def _delete(self, pod: PodView) -> None:
        if pod.is_terminal or not pod.bound:
            del self.pods[pod.name]
        else:
            self.pods[pod.name] = replace(pod, deleting=True)

    def _write_status(self, name: str, status: TrainingRunStatus) -> None:
        before = self.runs[name].status
        if slots.is_held(before.assignment) and not slots.is_held(status.assignment):
            assert before.stop is not None, "nodes were given back before status said that the run stops"
        # Through JSON, as over the wire: what does not survive that must not be relied on.
        self._store(replace(self.runs[name], status=TrainingRunStatus.load(status.dump())))

    def _store(self, view: RunView) -> RunView:
        self.version += 1
        self.runs[view.name] = replace(view, resource_version=str(self.version))
        return self.runs[view.name]


def world(nodes: int = 4, *, racks_of: int = 0, **fields: Any) -> World:
    """Nodes n0, n1, …: all in one rack, or ``racks_of`` in each."""
    racks = {f"n{i}": f"rack-{i // racks_of if racks_of else 0}" for i in range(nodes)}
    return World({name: node(name, rack=rack) for name, rack in racks.items()}, **fields)


def world_with_gang(ranks: int = 2, nodes: int | None = None, **fields: object) -> World:
    """The run ``one`` trains on ``ranks`` of the nodes."""
    made = world(nodes or ranks)
    made.roll_out("one", spec(ranks, **fields))
    return made


def running(ranks: int = 2, spare: int = 0, **fields: object) -> World:
    """A gang that trains, and ``spare`` free nodes."""
    made = world_with_gang(ranks, ranks + spare, **fields)
    assert phase(made) is Phase.RUNNING
    assert made.children("one") == dict.fromkeys(range(ranks), 1)
    return made


def training(ranks: int = 2, spare: int = 1, **fields: object) -> World:
    """A gang five steps in, whose programs ask for saves."""
    made = world(ranks + spare, listens=True)
    made.roll_out("one", spec(ranks, **fields))
    made.train("one", 5)
    made.work()
    assert phase(made) is Phase.RUNNING
    return made


def phase(of: World, run: str = "one") -> Phase:
    """Of a run."""
    view = of.runs[run]
    return phase_of(view.status, view.spec is not None and view.spec.suspend)
