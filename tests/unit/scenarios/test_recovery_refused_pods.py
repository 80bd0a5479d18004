"""Pods that a kubelet refuses, evicts or ends, and those that nobody lets be made: what they cost the run."""

from dataclasses import replace

import pytest

from lockstep.core.model.conditions import find
from lockstep.core.model.plan import Plan
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import PodPhase, RefusedCreate, RunSnapshot
from support.recovering import RUN, state, status, training
from support.world import World, spec, world


def test_evictions_before_the_start_cost_nothing_with_or_without_their_condition() -> None:
    w = world(6)
    w.apply(RUN, spec(2))
    for _ in range(8):
        w.kubelets()
        w.admit()
        w.reconcile(RUN)
        for key, pod in list(w.pods.items()):
            if pod.slot == 1 and pod.bound and not pod.is_terminal:
                w.workers.pop(pod.uid, None)
                w.pods[key] = replace(pod, phase=PodPhase.FAILED, reason="Evicted", exit_code=None)
        w.reconcile(RUN)
        w.now += 5
    assert status(w).assignment.incarnations[1] > 3, "else nothing was evicted"
    assert (status(w).recovery.consecutive_no_progress, status(w).recovery.excluded_nodes) == (0, ())
    assert status(w).recovery.slot_losses == ()


@pytest.mark.parametrize("reason", ["EvictionByEvictionAPI", "PreemptionByKubeScheduler", "DeletionByTaintManager"])
def test_a_disrupted_pod_goes_elsewhere_and_costs_nothing(reason: str) -> None:
    w = training()
    for name, pod in list(w.pods.items()):
        if pod.slot == 1:
            w.nodes["n1"] = replace(w.nodes["n1"], unschedulable=True)
            w.pods[name] = replace(pod, phase=PodPhase.FAILED, exit_code=137, reason="Error", disruption=reason)
            del w.workers[pod.uid]
    w.exit_child(RUN, 0, 1, signs=("NCCL:RemoteError",))
    w.pass_time(20, step=2)
    first = status(w).attempts[0]
    assert (first.cause, first.rank, first.charged, first.victims) == ("Disruption", 1, False, "0")
    assert reason in first.message
    assert "n1" not in status(w).assignment.nodes
    assert status(w).recovery.excluded_nodes == ()


def over_its_limit(w: World, rank: int) -> None:
    name = next(pod.name for pod in w.pods.values() if pod.slot == rank and not pod.is_terminal)
    w.end_pod(RUN, rank, 137, reason="Evicted", message='Usage of EmptyDir volume "cache" exceeds the limit "10Gi". ')
    w.pods[name] = replace(w.pods[name], disruption="TerminationByKubelet")
    w.settle()


@pytest.mark.slow
def test_a_pod_that_exceeds_its_own_limit_twice_without_progress_ends_the_run_and_names_limit_and_remedy() -> None:
    w = training()
    over_its_limit(w, 0)
    first = status(w).attempts[0]
    assert (first.cause, first.charged) == ("LimitExceeded", True)
    assert not status(w).recovery.excluded_nodes
    w.pass_time(120)
    assert w.status(RUN).state == "Running"
    over_its_limit(w, 0)
    w.pass_time(120)
    assert (state(w), status(w).reason) == ("Failed", "LimitExceeded")
    told = find(status(w), ConditionType.SUCCEEDED)
    assert told is not None
    for word in ('"cache"', '"10Gi"', "sizeLimit"):
        assert word in told.message


@pytest.mark.slow
def test_kubelets_that_refuse_pods_for_a_while_cost_the_run_nothing_and_never_end_it() -> None:
    w = training(nodes=2, spare=4)
    for _ in range(12):
        for name, pod in list(w.pods.items()):
            if pod.slot == 0 and not pod.is_terminal and not pod.deleting:
                w.workers.pop(pod.uid, None)
                w.pods[name] = replace(
                    pod, phase=PodPhase.FAILED, reason="UnexpectedAdmissionError", started_at=None, exit_code=None
                )
        w.settle()
        w.pass_time(5)
    assert status(w).recovery.consecutive_no_progress == 0
    assert not any(attempt.charged for attempt in status(w).attempts)
    w.pass_time(3600, step=30.0)
    assert state(w) == "Running"


def test_a_limit_that_the_kubelet_names_only_after_the_worker_told_of_its_end_is_the_cause_after_all() -> None:
    w = training()
    for attempt in (1, 2):
        assert (state(w), status(w).attempt) == ("Running", attempt)
        old = next(pod.name for pod in w.pods.values() if pod.slot == 0 and not pod.is_terminal)
        w.tell_to_end(RUN, 0)
        w.work()
        w.reconcile(RUN)
        assert status(w).attempts[-1].cause == "Disruption", "else nothing is late"
        w.now += 1
        w.workers.pop(w.pods[old].uid)
        over = 'Container trainer exceeded its local ephemeral storage limit "5Gi". '
        w.pods[old] = replace(w.pods[old], phase=PodPhase.FAILED, reason="Evicted", message=over, exit_code=137)
        w.settle()
        w.pass_time(60)
        ended = status(w).attempts[attempt - 1]
        assert (ended.cause, ended.charged) == ("LimitExceeded", True)
        assert "5Gi" in ended.message
    assert (state(w), status(w).reason) == ("Failed", "LimitExceeded")


def test_a_pod_that_was_told_to_end_and_does_not_is_deleted_soon() -> None:
    w = training()
    old = next(pod.name for pod in w.pods.values() if pod.slot == 0)
    w.tell_to_end(RUN, 0)
    w.pass_time(20)
    assert old not in w.pods
    assert (state(w), status(w).attempt) == ("Running", 2)
    assert status(w).attempts[0].cause == "Disruption"


class RefusingWorld(World):
    """Its kubelets take no pod that is made from now on."""

    refuses = True

    def kubelets(self) -> None:
        for name, pod in list(self.pods.items()):
            if self.refuses and not (pod.bound or pod.is_terminal or pod.deleting):
                words = "Node didn't have enough resource: cpu"
                self.pods[name] = replace(pod, bound=True, phase=PodPhase.FAILED, reason="OutOfcpu", message=words)
        super().kubelets()


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["Enabled", "Disabled"])
@pytest.mark.parametrize("nodes", [3, 12])
def test_a_run_that_every_kubelet_refuses_waits_with_their_words_makes_few_pods_and_starts_once_they_take_it(
    worker: str, nodes: int
) -> None:
    w = RefusingWorld(world(nodes).nodes)
    w.apply(RUN, spec(2, worker=worker, recovery={"maxRestarts": 0}))
    made, waits = set[str](), 0
    for _ in range(6 * 60):
        w.pass_time(60, step=20)
        made |= w.pods.keys()
        waits += status(w).queue.reason == "NodesRefusePods"
        assert state(w) in ("Pending", "Launching", "Recovering")
    told = status(w).queue
    assert told.reason == "NodesRefusePods"
    assert "OutOfcpu: Node didn't have enough resource: cpu" in told.message
    assert waits > 300
    assert 4 <= len(made) < 50
    assert not status(w).assignment.nodes
    assert status(w).totals.restarts == 0
    assert status(w).recovery.consecutive_no_progress == 0
    w.refuses = False
    w.pass_time(4_500, step=30)
    assert state(w) == "Running"
    assert status(w).recovery.refusals is None


@pytest.mark.slow
def test_a_run_that_waits_as_kubelets_refuse_its_pods_tries_at_once_when_its_spec_is_another() -> None:
    w = RefusingWorld(world(3).nodes)
    w.apply(RUN, spec(2))
    w.pass_time(300, step=5)
    assert status(w).queue.reason == "NodesRefusePods"
    made = set(w.pods)
    w.apply(RUN, spec(2, progress={"totalSteps": 5}))
    w.pass_time(120, step=5)
    assert w.pods.keys() - made, "it has tried"
    w.pass_time(300, step=5)
    assert status(w).queue.reason == "NodesRefusePods", "and waits again"
    w.refuses = False
    w.apply(RUN, spec(2, progress={"totalSteps": 6}))
    w.pass_time(60, step=5)
    assert state(w) == "Running"


def test_a_pod_without_a_verdict_gives_the_nodes_back_after_the_time_that_a_launch_has() -> None:
    class Unjudged(World):
        since: dict[str, float]

        def _execute(self, name: str, plan: Plan, crash_after: int | None) -> None:
            for pod in plan.creates:
                self.since.setdefault(pod.name, self.now)
            super()._execute(name, replace(plan, creates=()), crash_after)

        def snapshot(self, name: str) -> RunSnapshot:
            words = "failed calling webhook: context deadline exceeded"
            refused = {pod: RefusedCreate(at, words, is_verdict=False) for pod, at in self.since.items()}
            return replace(super().snapshot(name), refused_creates=refused)

    w = Unjudged(world(4).nodes)
    w.since = {}
    w.apply(RUN, spec(2))
    w.pass_time(w.tunables.deadlines.vacant - 10, step=10)
    assert (state(w), len(w.since)) == ("Launching", 2)
    w.pass_time(30, step=5)
    assert state(w) == "Pending"
    assert status(w).queue.reason == "BeginTime"
    assert not status(w).assignment.nodes
    assert status(w).recovery.requeues == 1
