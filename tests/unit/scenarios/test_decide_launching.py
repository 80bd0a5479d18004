"""From admission to START: what fails on the way, whose fault it is, and when trying again is pointless."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.decide import decide
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.snapshot import PodPhase
from lockstep.core.model.worker_report import CheckpointReport, Verdict, WorkerPhase
from lockstep.core.run.launching import SHARED_TIER_IS_FULL, SHARED_TIER_REFUSES, STILL_PREPARING
from lockstep.worker.node import barrier as worker_barrier
from lockstep.worker.node import preflight
from support.world import World, node, phase, spec, world

NO_PYTHON = 'exec: "python3": executable file not found in $PATH'


def admitted(nodes: int = 2, spare: int = 2) -> World:
    """A run ``one`` whose pods exist and are not bound yet."""
    w = world(nodes + spare)
    w.apply("one", spec(nodes))
    for _ in range(2):
        w.reconcile("one")
        w.admit()
    w.reconcile("one")
    assert len(w.pods) == nodes
    return w


def change_pods(w: World, **changes: object) -> None:
    for name, pod in w.pods.items():
        if not pod.is_terminal and not pod.deleting:
            w.pods[name] = replace(pod, **changes)  # type: ignore[arg-type]


def beat(w: World, seconds: float = 0.0) -> None:
    w.now += seconds
    for _ in range(3):
        w.reconcile("one")
        w.admit()


def test_an_image_without_python_ends_the_run_with_the_remedy() -> None:
    w = admitted()
    change_pods(w, phase=PodPhase.FAILED, bound=True, exit_code=128, reason="StartError", message=NO_PYTHON)
    beat(w)
    assert phase(w) is Phase.FINISHED
    assert w.status("one").reason == "PythonNotFound"
    assert w.status("one").recovery.excluded_nodes == ()


def test_a_pod_that_fails_on_node_after_node_ends_the_run_before_it_has_spoilt_the_cluster() -> None:
    w = admitted(nodes=1, spare=9)
    for _ in range(20):
        change_pods(w, phase=PodPhase.FAILED, bound=True, exit_code=1, reason="Error")
        beat(w, 1.0)
    assert phase(w) is Phase.FINISHED
    assert w.status("one").reason == "LaunchFailed"
    assert len(w.status("one").recovery.excluded_nodes) <= 3


@pytest.mark.parametrize(
    "stuck",
    [
        {"bound": True, "reason": "ImagePullBackOff", "message": "not found"},
        {"bound": False, "reason": "Unschedulable", "message": 'persistentvolumeclaim "lustre" not found'},
    ],
)
def test_what_no_pod_of_the_gang_gets_over_gives_the_nodes_back_and_blames_none_of_them(stuck: dict[str, bool]) -> None:
    w = admitted()
    change_pods(w, **stuck)
    beat(w, 2000)
    assert phase(w) in (Phase.STOPPING, Phase.PENDING)
    beat(w, 1)
    status = w.status("one")
    assert status.recovery.excluded_nodes == ()
    assert status.assignment.vacant == ()


def test_a_scheduler_that_says_nothing_is_no_fault_of_the_nodes() -> None:
    w = admitted()
    beat(w, 200)
    assert w.status("one").recovery.excluded_nodes == ()
    assert w.status("one").assignment.incarnations == (1, 1)
    beat(w, 500)
    assert w.status("one").recovery.excluded_nodes == ()
    assert phase(w) in (Phase.STOPPING, Phase.PENDING)


def test_a_node_that_the_scheduler_refuses_is_given_up() -> None:
    w = admitted()
    refused = next(iter(w.pods.values()))
    w.pods[refused.name] = replace(refused, reason="Unschedulable", message="0/4 nodes are available")
    beat(w, 70)
    assert [entry.node for entry in w.status("one").recovery.excluded_nodes] == [refused.node]


def test_a_pod_waits_for_the_one_before_it_on_its_node_to_end() -> None:
    w = admitted()
    w.settle()
    assert phase(w) is Phase.RUNNING
    leaving = next(pod for pod in w.pods.values() if pod.slot == 1)
    w.silent_nodes.add(leaving.node)  # its kubelet takes its time
    w.pods[leaving.name] = replace(leaving, deleting=True)
    beat(w)
    (successor,) = [pod for pod in w.pods.values() if pod.slot == 1 and pod.incarnation == 2]
    w.pods[successor.name] = replace(successor, reason="Unschedulable", message="host port in use")
    beat(w, 70)
    assert w.status("one").recovery.excluded_nodes == ()
    assert w.status("one").assignment.nodes[1] == leaving.node


def test_an_attempt_number_under_which_something_was_saved_is_never_used_again() -> None:
    """Status was lost while the run held no nodes: only the shared tier remembers."""
    w = admitted()
    w.saved["uid-one"] = [40]
    row = CheckpointReport(
        "shared", 40, "/shared/40", Verdict.VALID, attempt=7, world=2, run_uid="uid-one", committed_at=1.0
    )
    for _ in range(8):
        w.kubelets()
        w.work()
        for worker in w.workers.values():
            worker.inventory = (row,)
        w.work()
        w.reconcile("one")
    status = w.status("one")
    assert status.start is not None
    assert status.start.attempt == status.attempt == 8


def test_nothing_more_is_decided_of_a_launch_once_its_plan_was_carried_out() -> None:
    w = admitted()
    change_pods(w, bound=True, reason="ImagePullBackOff", message="not found")
    beat(w, 2000)
    again = decide(w.snapshot("one"), w.tunables, w.now)
    assert again.status is None
    assert again.events == ()


@pytest.mark.parametrize("nodes", [2, 800])
def test_an_assignment_too_large_for_status_is_moved_out_of_it_by_every_write(nodes: int) -> None:
    w = world(1)
    w.nodes = {f"node-with-a-long-name-{i}": node(f"node-with-a-long-name-{i}") for i in range(nodes)}
    w.apply("one", spec(nodes))
    for _ in range(2):
        w.reconcile("one")
        w.admit()
    w.reconcile("one")
    some = next(iter(w.pods.values()))
    w.pods[some.name] = replace(some, phase=PodPhase.FAILED, bound=True, exit_code=1)
    plan = decide(w.snapshot("one"), w.tunables, w.now)
    assert plan.status is not None
    assert sum(plan.status.assignment.incarnations) == nodes + 1
    named = plan.status.assignment.config_map
    assert bool(named) is (nodes == 800)
    if named:
        assert plan.config_maps[0].name == named
        # One of the same revision may be left of a status that was never written, with other nodes.
        content = plan.config_maps[0].body["data"]["assignment.json"].encode()
        assert named.endswith(hashlib.sha256(content).hexdigest()[:16])


@pytest.mark.slow
def test_a_gang_of_which_no_worker_reaches_the_operator_gives_its_nodes_back_and_blames_none_of_them() -> None:
    w = admitted(nodes=3)
    for number, (name, pod) in enumerate(w.pods.items()):
        started = w.now + number  # images come at different moments, and so do the deadlines
        w.pods[name] = replace(pod, bound=True, phase=PodPhase.RUNNING, started_at=started)
    for _ in range(150):
        beat(w, 1.0)
    status = w.status("one")
    assert phase(w) in (Phase.STOPPING, Phase.PENDING)
    assert status.recovery.excluded_nodes == ()
    assert status.recovery.consecutive_no_progress == 0


@pytest.mark.slow
@pytest.mark.parametrize("full_everywhere", [True, False])
def test_a_full_shared_tier_is_no_nodes_fault_and_waited_for(full_everywhere: bool) -> None:
    w = admitted(nodes=3)
    w.kubelets()
    w.work_reports_only()
    full = f"{SHARED_TIER_IS_FULL}: No space left on device"
    for _ in range(200):
        reports = w.reports[w.runs["one"].uid]
        for slot, report in reports.items():
            problem = full if full_everywhere or slot == 1 else ""
            reports[slot] = replace(report, phase=WorkerPhase.PREPARING, problem=problem, received_at=w.now)
        beat(w, 1.0)
    status = w.status("one")
    assert (status.recovery.excluded_nodes, status.assignment.incarnations) == ((), (1, 1, 1))
    said = next(c for c in status.conditions if c.type == "GangReady").message
    assert not full_everywhere or SHARED_TIER_IS_FULL in said


@pytest.mark.slow
@pytest.mark.parametrize("refused_everywhere", [True, False])
def test_a_shared_tier_that_refuses_the_user_is_a_nodes_fault_only_where_others_may_write(
    refused_everywhere: bool,
) -> None:
    w = admitted(nodes=3, spare=3)
    w.kubelets()
    w.work_reports_only()
    refuses = f"{SHARED_TIER_REFUSES}: Permission denied: /shared-checkpoints/team"
    for _ in range(200):
        reports = w.reports[w.runs["one"].uid]
        for slot, report in reports.items():
            at, ready, problem = (WorkerPhase.PREPARING, 0, refuses)
            if slot != 1 and not refused_everywhere:
                at, ready, problem = (WorkerPhase.READY, 1, "")
            reports[slot] = replace(report, phase=at, ready_for=ready, problem=problem, received_at=w.now)
        beat(w, 1.0)
        if not refused_everywhere:
            break
    status = w.status("one")
    said = next(c for c in status.conditions if c.type == "GangReady").message
    if refused_everywhere:
        assert (status.recovery.excluded_nodes, status.assignment.incarnations) == ((), (1, 1, 1))
        assert SHARED_TIER_REFUSES in said
    else:
        assert [each.node for each in status.recovery.excluded_nodes] == ["n1"]


@pytest.mark.slow
def test_a_mount_that_hangs_is_named_with_its_rank_and_costs_the_node_nothing_before_the_deadline() -> None:
    w = admitted(nodes=3)
    w.kubelets()
    w.work_reports_only()
    hangs = f"{STILL_PREPARING}the shared checkpoint tier /mnt/lustre has not answered for 30 s"
    said: list[str] = []
    while w.status("one").assignment.incarnations == (1, 1, 1) and len(said) < 600:
        reports = w.reports[w.runs["one"].uid]
        for slot, report in reports.items():
            at, ready, problem = (WorkerPhase.READY, 1, "") if slot != 1 else (WorkerPhase.PREPARING, 0, hangs)
            reports[slot] = replace(report, phase=at, ready_for=ready, problem=problem, received_at=w.now)
        beat(w, 1.0)
        said.append(next(c for c in w.status("one").conditions if c.type == "GangReady").message)
    assert w.tunables.deadlines.ready <= len(said) < 600
    assert any("rank 1 on n1" in words and "/mnt/lustre has not answered" in words for words in said)
    assert w.status("one").assignment.incarnations == (1, 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("tier", "is_blamed"), [("shared", False), ("local", True)])
def test_a_mount_that_hangs_on_all_nodes_is_no_nodes_fault_where_they_share_it(tier: str, is_blamed: bool) -> None:
    w = admitted(nodes=3, spare=3)
    w.kubelets()
    w.work_reports_only()
    hangs = f"{STILL_PREPARING}the {tier} checkpoint tier /mnt/ckpt has not answered for 30 s"
    for _ in range(500):
        reports = w.reports[w.runs["one"].uid]
        for slot, report in reports.items():
            reports[slot] = replace(report, phase=WorkerPhase.PREPARING, problem=hangs, received_at=w.now)
        beat(w, 1.0)
        if phase(w) is not Phase.LAUNCHING or w.status("one").assignment.incarnations != (1, 1, 1):
            break
    status = w.status("one")
    assert (phase(w) is Phase.LAUNCHING) is is_blamed
    assert bool(status.recovery.slot_losses) is is_blamed
    assert is_blamed or status.recovery.consecutive_no_progress == 0


def test_the_worker_says_it_in_the_words_that_are_known() -> None:
    assert preflight.SHARED_TIER_IS_FULL == SHARED_TIER_IS_FULL
    assert preflight.SHARED_TIER_REFUSES == SHARED_TIER_REFUSES
    assert worker_barrier.STILL_PREPARING == STILL_PREPARING


def test_no_deadline_of_a_launch_runs_while_the_cluster_itself_looks_broken() -> None:
    w = admitted()
    change_pods(w, bound=False, started_at=None, reason="Unschedulable", message="node(s) had taints")
    limits = w.tunables.deadlines
    late = w.now + limits.scheduled + limits.started + 1.0
    seen = w.snapshot("one")

    def decided(at: float, **changes: Any) -> TrainingRunStatus:
        snapshot = replace(seen, leadership=replace(seen.leadership, **changes))
        return decide(snapshot, w.tunables, at).status or seen.run.status

    assert decided(late).stop is not None
    assert decided(late, disruption="12 of 100 nodes turned NotReady").assignment == seen.run.status.assignment
    assert decided(late, disruption="12 of 100 nodes turned NotReady").stop is None
    assert decided(late, calm_since=late - 1.0).stop is None
    assert decided(late + limits.scheduled + limits.stop, calm_since=late - 1.0).stop is not None
