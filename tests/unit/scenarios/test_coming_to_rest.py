"""What must come to an end: verdicts, replacements and moves that would otherwise repeat themselves for ever."""

from dataclasses import replace

import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.recovery_spec import RecoverySpec
from lockstep.api.recovery_status import FirstFailure
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.failures.actions import Case, Verb, act
from lockstep.core.failures.causes import Cause, Evidence
from lockstep.core.failures.node_memory import KEPT_OF_A_RUN, marks_with, to_remember
from lockstep.core.failures.signs import Reading
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.node_failures import MAX_FAILURES, read_failures
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import AttemptCause
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.snapshot import PodPhase, PodView, Taint
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import WorkerPhase
from support.world import Worker, World, node, spec, world_with_gang

RUN = "one"
SLOW = Cause(
    Evidence("Straggler", 1, "n1", 1_000_000.0, "slow", "Straggler"), Reading(AttemptCause.STRAGGLER, "Straggler")
)


class UnfitWorld(World):
    """Every worker finds its node unfit."""

    def _report(self, pod: PodView, worker: Worker) -> None:
        worker.phase, worker.ready_for = WorkerPhase.PREPARING, 0
        super()._report(pod, worker)
        reports = self.reports[pod.run_uid]
        reports[worker.slot] = replace(reports[worker.slot], problem="DiskFull")


def status(w: World) -> TrainingRunStatus:
    return w.status(RUN)


@pytest.mark.parametrize("code", [1, 93])
def test_a_final_verdict_does_not_wait_for_a_rank_that_ended_well_and_left(code: int) -> None:
    w = world_with_gang(2, checkpoint=None)
    w.end_child(RUN, 1, 0)
    assert status(w).exits.succeeded == "1"
    left = next(pod for pod in w.pods.values() if pod.slot == 1)
    del w.workers[left.uid]
    w.pods[left.name] = replace(left, phase=PodPhase.SUCCEEDED, exit_code=0)
    w.crash()  # and nobody knows what it said
    w.pass_time(30, step=5)
    w.exit_child(RUN, 0, code)
    w.pass_time(60, step=5)
    assert phase_of(status(w), False) is Phase.FINISHED


@pytest.mark.parametrize(("held", "enough"), [("the cluster is disrupted", ""), ("", "2 nodes were excluded")])
def test_a_slow_rank_that_cannot_leave_its_node_does_not_restart_the_gang(held: str, enough: str) -> None:
    case = Case(now=1_000_000.0, recovery=RecoverySpec(), nodes=4, step=9, held=held, excluded_enough=enough)
    assert act(SLOW, case).verb is Verb.WAIT


def test_a_node_has_no_use_for_failures_older_than_the_ones_it_can_hold() -> None:
    w = world_with_gang(1)
    known = tuple(FirstFailure(node="n0", time=w.now - 1000 + i, cause="Application") for i in range(MAX_FAILURES + 2))
    recovery = changed(status(w).recovery, first_failures=known)
    w._store(replace(w.runs[RUN], status=changed(status(w), recovery=recovery)))
    for _ in range(2):
        for wanted in to_remember(PlanBuilder(RunContext(w.snapshot(RUN), w.tunables, w.now))):
            marks = marks_with(w.nodes["n0"], wanted.failure, w.nodes.values(), False, w.now)
            text = marks.annotations[names.ANNOTATION_FIRST_FAILURES] or ""
            w.nodes["n0"] = replace(w.nodes["n0"], failures=read_failures(text))
    assert not to_remember(PlanBuilder(RunContext(w.snapshot(RUN), w.tunables, w.now)))
    assert [failure.time for failure in w.nodes["n0"].failures] == [one.time for one in known[-KEPT_OF_A_RUN:]]


@pytest.mark.slow
def test_a_run_that_finds_every_node_unfit_gives_them_back_and_tries_again_ever_later() -> None:
    w = UnfitWorld({f"n{i}": node(f"n{i}") for i in range(4)})
    w.apply(RUN, spec(2))
    for _ in range(360):
        w.now += 10.0
        w.kubelets()
        w.work()
        w.reconcile(RUN)
        w.admit()
        w.reconcile(RUN)
    assert status(w).recovery.requeues > 3
    assert status(w).totals.nodes_replaced < 20
    assert max(status(w).assignment.incarnations) < 60


def test_a_node_that_taints_say_to_leave_is_not_taken_again() -> None:
    w = world_with_gang(1)
    w.tunables = Tunables(drain_taints=("maintenance",))
    w.nodes["n0"] = replace(w.nodes["n0"], taints=(Taint("maintenance", "PreferNoSchedule"),))
    w.pass_time(60, step=10)
    assert status(w).totals.nodes_replaced == 1
    assert status(w).assignment.vacant == (0,)
    w.nodes["n0"] = replace(w.nodes["n0"], taints=())
    w.pass_time(60, step=10)
    assert status(w).state == "Running"
