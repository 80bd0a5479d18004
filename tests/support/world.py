"""A small cluster in memory: an API server, a scheduler, kubelets and workers, moved by hand.

It stands in for the real ones only where a property test needs thousands of histories; the same
scenarios run against real parts in tests/cluster and tests/nodes. The core it drives is the real one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.plan import CreatePod, Plan, StatusWrite
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.snapshot import (
    ClusterSnapshot,
    DryRunResult,
    Leadership,
    PodPhase,
    PodView,
    QueueView,
    RunSnapshot,
    RunView,
)
from lockstep.core.model.worker_report import ExitReport, WorkerPhase
from lockstep.core.run.recovery import SYMPTOMS_WAIT
from support.made_once import made_once
from support.world_state import GPU as GPU
from support.world_state import Worker as Worker
from support.world_state import node as node
from support.world_state import spec as spec
from support.world_workers import WorldOfWorkers


def group_named_by(pod: Mapping[str, Any]) -> str:
    """The PodGroup that a pod names, as each kind of scheduler reads it; empty: none."""
    native = pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")
    return str(native or pod["metadata"]["annotations"].get("scheduling.k8s.io/group-name", ""))


def quorum(spec: Mapping[str, Any]) -> int:
    """Of a PodGroup of either kind."""
    return int(spec["minMember"] if "minMember" in spec else spec["schedulingPolicy"]["gang"]["minCount"])


@dataclass
class World(WorldOfWorkers):
    """With an operator, kubelets, and whoever types commands."""

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
        self.ended.clear()
        self.directives.clear()
        self.dry_runs.clear()
        self.job_ids.clear()
        self.leader_since = self.now

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
            ended=self.ended.get(run.uid, {}),
            nodes=self.nodes,
            leadership=self._leadership(),
            dry_run=self.dry_runs.get(run.uid),
            job_id=self.job_ids.get(run.uid, 0),
            jobs=self.jobs.get(name, ()),
            origin=self._origin(run),
            successors=tuple(each for each in self.runs.values() if _goes_on_from(each, run)),
            queue=self.queues.get(queue_of(run)),
            preemptor=self._preemptor(run),
        )

    def _origin(self, run: RunView) -> RunView | None:
        return self.runs.get(_begins_from(run))

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
            known = self._known()
            for name in list(self.runs):
                self.reconcile(name)
            self.admit()
            if self._known() != known:  # else all would be decided as it was just now
                for name in list(self.runs):
                    self.reconcile(name)
            self.kubelets()
            self.work()
            if before == (self.version, self.pods, self.workers):
                return
            self.now += 0.01

    def _known(self) -> tuple[object, ...]:
        """What decisions hang on, and their writes change."""
        return self.version, set(self.runs), dict(self.pods), dict(self.dry_runs), dict(self.job_ids)

    def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Time goes by, with everybody acting each ``step`` seconds."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step)
            self.settle()

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

    def end_child(self, run: str, rank: int, code: int, **shown: Any) -> None:
        """It ends as with ``exit_child``, and everybody acts until nothing changes."""
        self.exit_child(run, rank, code, **shown)
        self.settle()

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

    def _execute(self, name: str, plan: Plan, crash_after: int | None) -> None:
        run = self.runs[name]
        if plan.take_job_id and run.uid not in self.job_ids:
            self.last_job_id += 1
            self.job_ids[run.uid] = self.last_job_id
        writes = 0

        def dies() -> bool:
            nonlocal writes
            writes += 1
            return crash_after is not None and writes > crash_after

        if plan.pod_group_deletes and plan.status is not None:  # is written after what else is planned
            assert plan.status.dump() == changed(run.status, ended_pod_groups=()).dump(), "nothing else may rest on it"
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
        for ending in plan.ended_jobs:
            if dies():
                return self.crash()
            known = self.jobs.get(name, ())
            self.jobs[name] = tuple(replace(j, deleting=True) if j.uid == ending.uid else j for j in known)
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


def _goes_on_from(run: RunView, origin: RunView) -> bool:
    return _begins_from(run) == origin.name or origin.uid in [before.uid for before in run.status.previous[:1]]


def _begins_from(run: RunView) -> str:
    checkpoint = run.spec.checkpoint if run.spec is not None else None
    return (checkpoint.start.run or "") if checkpoint is not None else ""


def world(nodes: int = 4, *, racks_of: int = 0, **fields: Any) -> World:
    """Nodes n0, n1, …: all in one rack, or ``racks_of`` in each."""
    racks = {f"n{i}": f"rack-{i // racks_of if racks_of else 0}" for i in range(nodes)}
    return World({name: node(name, rack=rack) for name, rack in racks.items()}, **fields)


@made_once
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


@made_once
def training(ranks: int = 2, spare: int = 1, **fields: object) -> World:
    """A gang five steps in, whose programs ask for saves."""
    made = world(ranks + spare, listens=True)
    made.roll_out("one", spec(ranks, **fields))
    made.train("one", 5)
    made.work()
    assert phase(made) is Phase.RUNNING
    return made


def failed(w: World, rank: int = 1, code: int = 1, stderr: str = "") -> World:
    """The process of a rank of ``one`` has ended, and everybody else was heard after that."""
    w.exit_child("one", rank, code, stderr=stderr)
    w.now += 1.0
    w.work_reports_only()
    w.now += SYMPTOMS_WAIT
    return w


def phase(of: World, run: str = "one") -> Phase:
    """Of a run."""
    view = of.runs[run]
    return phase_of(view.status, view.spec is not None and view.spec.suspend)
