"""Random failures of every kind, on top of the random histories of whole gangs."""

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.decide import decide
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.quarantine import in_quarantine, quarantine_of
from lockstep.core.model.snapshot import PodPhase
from support.examples import examples, steps
from unit.scenarios.test_gang_properties import NODES, RANKS, RUNS, Gangs

SIGNS = st.sampled_from(
    [
        *("Xid:79", "Xid:13", "NCCL:Timeout", "NCCL:RemoteError", "CUDA:OutOfMemory", "Storage:NoSpace"),
        *("Checkpoint:Corrupt", "Checkpoint:Unreadable", "Loss:NaN", "Port:InUse", "Import:Error"),
    ]
)
FREE = ("NodeLost", "Disruption")


class Failures(Gangs):
    """Signs, disruptions and faults of machines join in."""

    @rule(run=RUNS, rank=RANKS, code=st.sampled_from([1, 93, 134, 201, 247]), signs=st.lists(SIGNS, max_size=2))
    def a_process_fails_for_a_reason(self, run: str, rank: int, code: int, signs: list[str]) -> None:
        self.w.exit_child(run, rank, code, signs=signs, late=-1.0 if len(signs) == 1 else 0.0)

    @rule(run=RUNS, rank=RANKS, kind=SIGNS, step=st.integers(0, 60))
    def a_log_shows_something(self, run: str, rank: int, kind: str, step: int) -> None:
        self.w.show(run, rank, kind, step=step)

    @rule(run=RUNS, rank=RANKS)
    def a_pod_is_evicted(self, run: str, rank: int) -> None:
        worker = self.w.worker(run, rank)
        for name, pod in self.w.pods.items():
            if worker is not None and pod.uid == worker.pod_uid:
                del self.w.workers[pod.uid]
                evicted = {"phase": PodPhase.FAILED, "exit_code": 137, "disruption": "EvictionByEvictionAPI"}
                self.w.pods[name] = replace(pod, **evicted)  # type: ignore[arg-type]

    @rule(name=NODES, sick=st.booleans())
    def a_machine_is_found_faulty(self, name: str, sick: bool) -> None:
        conditions = {"XidCriticalError": "GPU 3"} if sick else {}
        self.w.nodes[name] = replace(self.w.nodes[name], conditions=conditions, conditions_changed_at=self.w.now)

    @rule(run=RUNS)
    def a_start_is_looked_at(self, run: str) -> None:
        before = self.w.status(run)
        self.w.reconcile(run)
        self._phase_moved(run)
        status = self.w.status(run)
        if status.start is None or status.start == before.start or status.start.resume is None:
            return
        resume = status.start.resume
        ceiling = before.checkpoint.ceiling
        assert ceiling is None or resume.step <= max(ceiling, status.checkpoint.ceiling or 0)
        assert not in_quarantine(quarantine_of(status.checkpoint), resume.tier, resume.step, resume.attempt)

    @rule(run=RUNS)
    def a_new_leader_has_heard_nobody(self, run: str) -> None:
        self.w.crash()
        pods = [pod for pod in self.w.pods.values() if pod.run == run]
        nodes = self.w.nodes.values()
        if self._phase(run) is not Phase.RUNNING or not all(
            p.phase is PodPhase.RUNNING and not p.deleting for p in pods
        ):
            return
        assignment = self.w.status(run).assignment
        if len(pods) == len(assignment.nodes) and all(known.ready for known in nodes):
            plan = decide(self.w.snapshot(run), self.w.tunables, self.w.now)
            assert not plan.deletes
            assert plan.status is None or plan.status.attempt == self.w.status(run).attempt
            assert plan.status is None or plan.status.stop is None or self._wants_to_stop(run)

    @invariant()
    def what_nobody_is_to_blame_for_costs_nothing(self) -> None:
        for run in self.w.runs.values():
            assert not any(entry.charged for entry in run.status.attempts if entry.cause in FREE)

    @invariant()
    def memory_is_bounded(self) -> None:
        for run in self.w.runs.values():
            recovery = run.status.recovery
            assert len(recovery.first_failures) <= 32
            assert len(recovery.roots) <= 16
            assert len(recovery.excluded_nodes) <= 64
            assert len(run.status.checkpoint.quarantined) <= 16
            assert all(len(root.steps) == len(root.nodes) <= 8 for root in recovery.roots)
            assert TrainingRunStatus.load(run.status.dump()) == run.status

    def _wants_to_stop(self, run: str) -> bool:
        view = self.w.runs[run]
        return view.spec is not None and (view.spec.suspend or view.status.stop is not None)


TestFailures = Failures.TestCase
TestFailures.settings = settings(max_examples=examples(25), stateful_step_count=steps(40))
