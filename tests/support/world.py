"""A small cluster in memory: an API server, a scheduler, kubelets and workers, moved by hand.

It stands in for the real ones only where a property test needs thousands of histories; the same
scenarios run against real parts in tests/cluster and tests/nodes. The core it drives is the real one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lockstep.api import names
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.admission.fifo import admit
from lockstep.core.breaker import disruption
from lockstep.core.decide import decide
from lockstep.core.plan import CreatePod, DesiredPhase, Directive, Plan, StatusWrite
from lockstep.core.snapshot import (
    CheckpointReport,
    ClusterSnapshot,
    DryRunResult,
    ExitReport,
    Leadership,
    NodeView,
    PodPhase,
    PodView,
    ProgressReport,
    RunSnapshot,
    RunView,
    StartRecord,
    Verdict,
    VerifyReport,
    WorkerPhase,
    WorkerReport,
)
from lockstep.core.tunables import Tunables

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
    start: StartRecord | None = None
    exit: ExitReport | None = None
    step: int = 0
    steps_since: float = 0.0
    since: float = 0.0
    verified: tuple[VerifyReport, ...] = ()
    inventory: tuple[CheckpointReport, ...] = ()


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
    # soft state of the operator
    reports: dict[str, dict[int, WorkerReport]] = field(default_factory=dict)
    directives: dict[str, Directive] = field(default_factory=dict)
    dry_runs: dict[str, DryRunResult] = field(default_factory=dict)
    leader_since: float = 0.0
    breaker: bool = False  # whether the cluster pass computes the breaker
    directives_reach: int | None = None  # how many workers hear a change of orders per round; None: all
    version: int = 1
    starts: dict[tuple[str, int], StartRecord] = field(default_factory=dict)  # what children were started with
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
        )

    def cluster_snapshot(self) -> ClusterSnapshot:
        """What the admission pass sees."""
        return ClusterSnapshot(
            runs=tuple(self.runs.values()),
            queues={},
            nodes=self.nodes,
            gang_pods=tuple(self.pods.values()),
            foreign_requests={},
            in_flight={},
            leadership=Leadership(self.leader_since),
        )

    def _leadership(self) -> Leadership:
        trouble = disruption(self.cluster_snapshot(), self.tunables, self.now) if self.breaker else ""
        return Leadership(self.leader_since, trouble)

    def wipe_status(self, name: str) -> None:
        """Somebody restores a backup without status, or edits it away."""
        self._store(replace(self.runs[name], status=TrainingRunStatus()))

    def reconcile(self, name: str, *, crash_after: int | None = None) -> Plan:
        """Decide and act for one run; ``crash_after`` writes the operator dies (None: it lives)."""
        plan = decide(self.snapshot(name), self.tunables, self.now)
        self._execute(name, plan, crash_after)
        return plan

    def admit(self, *, crash_after: int | None = None) -> tuple[StatusWrite, ...]:
        """One admission pass, its writes in order."""
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
            elif not pod.bound and not self._mutex_held(pod):
                self.pods[name] = replace(pod, bound=True, phase=PodPhase.RUNNING, started_at=self.now)
                self.workers[pod.uid] = Worker(pod.uid, pod.slot, pod.incarnation, pod.node, since=self.now)

    def work(self) -> None:
        """Every worker hears its orders, acts, and reports, unless its node is silent."""
        heard = 0
        for pod in list(self.pods.values()):
            worker = self.workers.get(pod.uid)
            if worker is None or pod.is_terminal or pod.node in self.silent_nodes:
                continue
            before = (worker.phase, worker.attempt, worker.ready_for)
            heard += 1
            if self.directives_reach is None or heard <= self.directives_reach:
                self._obey(pod, worker)
            if before != (worker.phase, worker.attempt, worker.ready_for):
                worker.since = self.now
            self._report(pod, worker)

    def work_reports_only(self) -> None:
        """Every worker reports, and has not yet heard new orders."""
        self.directives_reach = 0
        self.work()
        self.directives_reach = None

    def tell_of_save(self, run: str, step: int) -> None:
        """All workers see a checkpoint and say so."""
        uid = self.runs[run].uid
        for worker in self._workers_of(uid):
            worker.inventory = self._rows(uid, [step], len(self.runs[run].status.assignment.nodes))
        self.work_reports_only()

    def lose_node(self, name: str) -> None:
        """Power failure: nothing on it runs any more, and nobody says so."""
        self.silent_nodes.add(name)
        for pod in self.pods.values():
            if pod.node == name:
                self.workers.pop(pod.uid, None)

    def node_not_ready(self, name: str, ready: bool = False) -> None:
        """The node controller's view changes."""
        self.nodes[name] = replace(self.nodes[name], ready=ready, ready_changed_at=self.now)

    def return_node(self, name: str) -> None:
        """A lost machine boots: its old pods are Failed, or gone when they were deleted."""
        self.silent_nodes.discard(name)
        self.node_not_ready(name, True)
        for key, pod in list(self.pods.items()):
            if pod.node == name and pod.bound and pod.uid not in self.workers:
                if pod.deleting:
                    del self.pods[key]
                else:
                    self.pods[key] = replace(pod, phase=PodPhase.FAILED, reason="NodeShutdown")

    def exit_child(self, run: str, rank: int, code: int) -> None:
        """The training process of a rank ends."""
        worker = self.worker(run, rank)
        if worker is not None and worker.phase is WorkerPhase.RUNNING:
            worker.phase = WorkerPhase.EXITED
            worker.since = self.now
            worker.exit = ExitReport(code=code, at=self.now, reason="Error" if code else "Completed")

    def fail_pod(self, run: str, rank: int) -> None:
        """The pod's container dies, worker and all."""
        worker = self.worker(run, rank)
        if worker is not None:
            del self.workers[worker.pod_uid]
            for key, pod in self.pods.items():
                if pod.uid == worker.pod_uid:
                    self.pods[key] = replace(pod, phase=PodPhase.FAILED, exit_code=137, reason="OOMKilled")

    def train(self, run: str, steps: int) -> None:
        """Every running rank advances and the gang saves on the shared tier."""
        uid = self.runs[run].uid
        running = [w for w in self._workers_of(uid) if w.phase is WorkerPhase.RUNNING]
        if len(running) == len(self.runs[run].status.assignment.nodes) and running:
            for worker in running:
                worker.step += steps
                worker.steps_since = self.now
            self.saved.setdefault(uid, []).append(max(worker.step for worker in running))

    def worker(self, run: str, rank: int) -> Worker | None:
        """The worker of a rank's newest pod, if its process lives."""
        found = [w for w in self._workers_of(self.runs[run].uid) if w.slot == rank]
        return max(found, key=lambda w: w.incarnation, default=None)

    def status(self, run: str) -> TrainingRunStatus:
        """The run's status as the API server has it."""
        return self.runs[run].status

    def children(self, run: str) -> Mapping[int, int]:
        """Attempt of the child that runs in each slot."""
        return {w.slot: w.attempt for w in self._workers_of(self.runs[run].uid) if w.phase is WorkerPhase.RUNNING}

    def _workers_of(self, uid: str) -> list[Worker]:
        return [self.workers[p.uid] for p in self.pods.values() if p.run_uid == uid and p.uid in self.workers]

    @staticmethod
    def _rows(uid: str, steps: list[int], world: int) -> tuple[CheckpointReport, ...]:
        return tuple(
            CheckpointReport(
                tier="shared",
                step=step,
                path=f"/shared/{step}",
                verdict=Verdict.VALID,
                attempt=1,
                world=world,
                run_uid=uid,
                committed_at=1.0,
            )
            for step in sorted(set(steps))
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
            return
        if orders.phase is DesiredPhase.PREPARE and worker.ready_for < orders.attempt:
            worker.phase, worker.ready_for, worker.exit = WorkerPhase.READY, orders.attempt, None
            worker.verified, worker.step = (), 0
            worker.inventory = self._rows(pod.run_uid, self.saved.get(pod.run_uid, []), len(orders.slot_ranks))
        elif orders.phase is DesiredPhase.PREPARE and orders.verify is not None:
            worker.verified = (VerifyReport(orders.verify.tier, orders.verify.path, Verdict.VALID),)
        elif orders.phase is DesiredPhase.RUN and worker.ready_for == orders.attempt > worker.attempt:
            assert orders.start is not None
            worker.phase, worker.attempt, worker.start = WorkerPhase.RUNNING, orders.attempt, orders.start
            worker.step, worker.steps_since = orders.start.resume_step, self.now
            self.launched.setdefault((pod.run_uid, orders.attempt), set()).add(worker.slot)
            first = self.starts.setdefault((pod.run_uid, orders.attempt), orders.start)
            assert first == orders.start, "two START records for one attempt"
        elif orders.phase is DesiredPhase.STOP and worker.phase is not WorkerPhase.EXITED:
            worker.phase = WorkerPhase.EXITED
            worker.exit = ExitReport(code=143, at=self.now, reason="StoppedOnRequest")
        elif orders.phase is DesiredPhase.COMPLETE:
            code = worker.exit.code if worker.exit is not None else 0
            phase = PodPhase.FAILED if code else PodPhase.SUCCEEDED
            self.pods[pod.name] = replace(pod, phase=phase, exit_code=code)
            del self.workers[pod.uid]

    def _report(self, pod: PodView, worker: Worker) -> None:
        if pod.uid not in self.workers:
            return
        progress = None
        if worker.attempt and worker.step:
            progress = ProgressReport(worker.step, worker.steps_since, "1.0")
        self.reports.setdefault(pod.run_uid, {})[worker.slot] = WorkerReport(
            slot=worker.slot,
            incarnation=worker.incarnation,
            pod_uid=pod.uid,
            node=pod.node,
            phase=worker.phase,
            received_at=self.now,
            since=worker.since,
            polling=True,
            address=f"10.0.0.{worker.slot + 1}",
            port=40_000 + worker.slot,
            attempt=worker.attempt,
            ready_for=worker.ready_for,
            start=worker.start,
            exit=worker.exit,
            progress=progress,
            inventory=worker.inventory,
            verified=worker.verified,
        )

    def _execute(self, name: str, plan: Plan, crash_after: int | None) -> None:
        run = self.runs[name]
        writes = 0

        def dies() -> bool:
            nonlocal writes
            writes += 1
            return crash_after is not None and writes > crash_after

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
        for new in plan.creates:
            if dies():
                return self.crash()
            if new.name not in self.pods:
                self._create(run, new)
        return None

    def _create(self, run: RunView, new: CreatePod) -> None:
        self.version += 1
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
        )

    def _delete(self, pod: PodView) -> None:
        if pod.is_terminal or not pod.bound:
            del self.pods[pod.name]
        else:
            self.pods[pod.name] = replace(pod, deleting=True)

    def _write_status(self, name: str, status: TrainingRunStatus) -> None:
        # Through JSON, as over the wire: what does not survive that must not be relied on.
        self._store(replace(self.runs[name], status=TrainingRunStatus.load(status.dump())))

    def _store(self, view: RunView) -> RunView:
        self.version += 1
        self.runs[view.name] = replace(view, resource_version=str(self.version))
        return self.runs[view.name]
