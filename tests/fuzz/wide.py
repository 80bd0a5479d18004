"""A gang of thousands of which others fail each time, scattered as widely as can be: status does not grow with it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random

from fuzz.judging import FoundError, Judge, Tally, with_status
from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_status import ResolvedStatus, TrainingRunStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.plan import DesiredPhase, Plan
from lockstep.core.model.snapshot import DryRunResult, Leadership, PodPhase, PodView, RunSnapshot, RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import ExitReport, ProgressReport, WorkerPhase, WorkerReport
from support.world import node, spec

FAILURES = 12
_TUNABLES = Tunables()
_LOOKS = 12


@dataclass
class _Gang:
    """Everybody does at once what is decided."""

    snapshot: RunSnapshot
    now: float
    judge: Judge

    def look(self) -> None:
        """Decide until nothing is written, and do it."""
        for _ in range(_LOOKS):
            plan = self.judge.decided(self.snapshot, _TUNABLES, self.now)
            if plan.status is not None:
                self.snapshot = with_status(self.snapshot, plan.status)
            self._do(plan)
            if plan.status is None:
                return
            self.now += 1.0

    def _do(self, plan: Plan) -> None:
        gone = {each.uid for each in plan.deletes}
        pods = {pod.name: pod for pod in self.snapshot.pods if pod.uid not in gone}
        run, reports = self.snapshot.run, dict(self.snapshot.reports)
        for each in plan.creates:
            pods[each.name] = pod = _pod(run, each.slot, each.incarnation, each.node, self.now)
            reports[each.slot] = _report(pod, self.now)
        orders = plan.directive
        for slot, report in reports.items():
            report = replace(report, received_at=self.now, polling=True)
            if orders is not None and slot < len(orders.incarnations):
                if orders.phase is DesiredPhase.PREPARE and report.ready_for < orders.attempt:
                    report = replace(report, phase=WorkerPhase.READY, ready_for=orders.attempt, since=self.now)
                elif orders.phase is DesiredPhase.RUN and report.attempt < orders.attempt:
                    steps = ProgressReport(orders.attempt * 1000, self.now)
                    report = replace(
                        report, phase=WorkerPhase.RUNNING, attempt=orders.attempt, exit=None, since=self.now
                    )
                    report = replace(report, start=orders.start, progress=steps)
            reports[slot] = report
        self.snapshot = replace(self.snapshot, pods=tuple(pods.values()), reports=reports)
        self._admit()

    def _admit(self) -> None:
        """Other nodes for vacant slots."""
        run = self.snapshot.run
        assignment = run.status.assignment
        if assignment.vacant and assignment.nodes:
            free = [name for name in self.snapshot.nodes if name not in set(assignment.nodes)]
            filled = slots.filled(assignment, dict(zip(assignment.vacant, free, strict=False)))
            filled, _ = slots.spilled(filled, run.namespace, run.name, run.uid)
            self.snapshot = with_status(self.snapshot, changed(run.status, assignment=filled))

    def fail(self, rng: Random) -> None:
        """So many ranks, scattered: their programs, or their pods."""
        count = len(self.snapshot.pods)
        share, words = rng.choice((0.01, 0.3, 0.5)), "".join(rng.sample("abcdefghijklmnop", 8))
        every_other = set(range(rng.randrange(2), count, 2))
        hit = every_other if rng.random() < 0.5 else {slot for slot in range(count) if rng.random() < share}
        hit &= self.snapshot.reports.keys()
        reports, pods, views = dict(self.snapshot.reports), list(self.snapshot.pods), dict(self.snapshot.nodes)
        match rng.randrange(4):
            case 0:
                ended = ExitReport(1, at=self.now, stderr_tail=f"{words}Error")
                reports |= {slot: _ended(reports[slot], ended, self.now) for slot in hit}
            case 1:
                reports |= {slot: _ended(reports[slot], ExitReport(0, at=self.now), self.now) for slot in hit}
                first = min(reports.keys() - hit)
                reports[first] = _ended(
                    reports[first], ExitReport(1, at=self.now, stderr_tail=f"{words}Error"), self.now
                )
            case 2:
                gone = {"phase": PodPhase.FAILED, "reason": "Evicted", "disruption": "EvictionByEvictionAPI"}
                pods = [replace(pod, **gone) if pod.slot in hit else pod for pod in pods]  # type: ignore[arg-type]
            case _:
                for pod in [pod for pod in pods if pod.slot in hit][:48]:
                    views.pop(pod.node, None)  # its slot may have been given a node that was lost before
                    pods.remove(pod)
                    fresh = f"gpu-node-{rng.randrange(90_000, 99_999)}"
                    views[fresh] = node(fresh)
        self.snapshot = replace(self.snapshot, reports=reports, pods=tuple(pods), nodes=views)


def _ended(report: WorkerReport, how: ExitReport, now: float) -> WorkerReport:
    return replace(report, phase=WorkerPhase.EXITED, exit=how, since=now)


def wide(case: str, steps: Collection[int] | None = None, tally: Tally | None = None) -> Tally:
    """Failures of one gang after the other; ``steps``: those that happen."""
    tally = tally or Tally()
    rng = Random(f"{case}/world")
    gang = _gang(rng.choice((1024, 2048, 4096)), Judge(tally))
    tally.done["wide gangs"] += 1
    try:
        gang.look()
        for number in range(FAILURES):
            if steps is None or number in steps:
                gang.fail(Random(f"{case}/{number}"))
                gang.look()
                gang.now += 400.0
                gang.look()
    except FoundError as error:
        tally.note(error, "in a gang of thousands")
    return tally


def _gang(count: int, judge: Judge) -> _Gang:
    now = 1_795_000_000.0
    views = {f"gpu-node-{index:05}": node(f"gpu-node-{index:05}") for index in range(count + 64)}
    assignment = slots.assigned(TrainingRunStatus().assignment, [*views][:count])
    assignment, _ = slots.spilled(assignment, "ns", "one", "uid-one")
    resolved = ResolvedStatus(generation=1, gpus_per_node=8, cpu="191", memory="2046Gi", nodes=count)
    status = changed(TrainingRunStatus(), assignment=assignment, last_admitted=now, attempt=1, resolved=resolved)
    run = RunView("ns", "one", "uid-one", 1, "1", now - 10, spec(count, recovery={"noProgressLimit": 1000}), status)
    pods = tuple(_pod(run, slot, 1, name, now) for slot, name in enumerate(assignment.nodes))
    snapshot = RunSnapshot(
        run=run,
        pods=pods,
        reports={pod.slot: _report(pod, now) for pod in pods},
        nodes=views,
        leadership=Leadership(now - 1000),
        dry_run=DryRunResult(1, True),
    )
    return _Gang(snapshot, now + 5, judge)


def _pod(run: RunView, slot: int, incarnation: int, on: str, now: float) -> PodView:
    name = names.pod_name(run.name, run.uid, slot, incarnation)
    return PodView(
        *(
            run.namespace,
            name,
            f"uid-{name}",
            run.name,
            run.uid,
            run.uid,
            slot,
            incarnation,
            on,
            True,
            PodPhase.RUNNING,
            now,
        ),
        started_at=now,
        resolved="{}",
    )


def _report(pod: PodView, now: float) -> WorkerReport:
    return WorkerReport(
        pod.slot,
        pod.incarnation,
        pod.uid,
        pod.node,
        WorkerPhase.PREPARING,
        now,
        since=now,
        polling=True,
        address="10.0.0.1",
        port=4000,
    )
