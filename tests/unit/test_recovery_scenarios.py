"""From a failure to the next attempt in the simulated world: what is done, and what status remembers of it."""

from dataclasses import replace

import pytest

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints.retention import RetentionPolicy, StoredCheckpoint, to_prune
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.plan import Plan
from lockstep.core.model.quarantine import quarantine_of
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.settings import Deadlines
from lockstep.core.model.snapshot import PodPhase, RefusedCreate, RunSnapshot
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import Verdict
from support.made_once import made_once
from support.values import not_none
from support.world import World, spec, world, world_with_gang

RUN = "one"
NAN = "Loss:NaN"


@made_once
def training(nodes: int = 3, spare: int = 3, *, step: int = 10, **fields: object) -> World:
    """A run that has made and saved ``step`` steps."""
    w = world_with_gang(nodes, nodes + spare, **fields)
    if step:
        train(w, step)
    return w


def train(w: World, steps: int, *, saving: bool = True) -> None:
    w.train(RUN, steps)
    if not saving:
        w.saved[w.runs[RUN].uid].pop()
    w.settle()
    w.tell_of_save(RUN, max(w.saved.get(w.runs[RUN].uid, [0])))
    w.settle()


def status(w: World) -> TrainingRunStatus:
    return w.status(RUN)


def state(w: World) -> str:
    return status(w).state


def resumed(w: World) -> tuple[int, int | None]:
    """Step and attempt of the checkpoint that the current attempt began from."""
    start = not_none(status(w).start)
    assert start.resume is not None
    return start.resume.step, start.resume.attempt


def fail(
    w: World, rank: int, code: int = 1, *, signs: tuple[str, ...] = (), stderr: str = "", after: float = 5.0
) -> None:
    """A rank fails, and the gang comes back if it can."""
    w.now += after
    w.exit_child(RUN, rank, code, signs=signs, stderr=stderr)
    w.pass_time(30, step=2)


def test_the_history_tells_evidence_action_and_price() -> None:
    w = training()
    train(w, 7, saving=False)
    fail(w, 1, stderr="RuntimeError: bad batch")
    first = status(w).attempts[0]
    assert (first.cause, first.rank, first.action, first.charged) == ("Application", 1, "RestartInPlace", True)
    assert (first.last_step, first.steps_lost) == (17, 7)
    assert "RuntimeError: bad batch" in first.message
    assert "all ranks start again where they are" in first.message
    assert status(w).attempts[1].resume_tier == "shared"


def test_the_last_words_of_the_rank_that_failed_first_outlive_its_pod() -> None:
    w = training()
    fail(w, 1, stderr="x" * 5000 + "\nRuntimeError: boom\n")
    told = status(w).attempts[0].stderr
    assert told.endswith("x\nRuntimeError: boom")
    assert len(told) == 1000
    train(w, 10)
    w.lose_node("n1")
    w.pass_time(60, step=2)
    assert (status(w).attempts[1].cause, status(w).attempts[1].stderr) == ("NodeLost", "")


def test_a_rank_heard_of_late_that_failed_earlier_is_the_cause_after_all() -> None:
    w = training()
    w.now += 5.0
    w.exit_child(RUN, 2, 1, stderr="RuntimeError: a")
    w.work()
    w.exit_child(RUN, 1, 134, late=-1.0)  # it took its time to tell
    w.reconcile(RUN)
    w.settle()
    first = status(w).attempts[0]
    assert (first.rank, first.exit_code, first.victims) == (1, 134, "2")
    assert [one.node for one in status(w).recovery.first_failures] == ["n1"]
    assert [root.root for root in status(w).recovery.roots] == ["exit 134"]
    assert status(w).recovery.consecutive_no_progress == 0, "what was saved is progress"


def test_a_rank_named_too_early_is_cleared_at_the_barrier() -> None:
    w = training()
    train(w, 5, saving=False)
    w.now += 5.0
    w.exit_child(RUN, 2, 1, stderr="RuntimeError: a")
    w.work()
    w.reconcile(RUN)
    assert status(w).attempts[0].rank == 2
    w.end_child(RUN, 1, 1, signs=("Xid:79",), late=-1.0)  # still dying when the others were told to restart
    first = status(w).attempts[0]
    assert (first.rank, first.cause) == (1, "Hardware")
    assert "at first rank 2 was named" in first.message
    assert "n1" not in status(w).assignment.nodes
    assert [entry.node for entry in status(w).recovery.excluded_nodes] == ["n1"]
    assert set(w.children(RUN).values()) == {2}


def test_a_complaint_about_a_peer_waits_a_moment_for_that_peers_word() -> None:
    w = training()
    w.now += 5.0
    w.exit_child(RUN, 0, 1, signs=("NCCL:RemoteError",))
    w.directives_reach = 0
    w.silent_nodes.add("n2")  # its report is late
    w.work()
    w.reconcile(RUN)
    assert status(w).attempt == 1
    w.exit_child(RUN, 2, 139, late=0.5)
    w.silent_nodes.clear()
    w.directives_reach = None
    w.now += 1.0
    w.settle()
    assert (status(w).attempts[0].rank, status(w).attempts[0].victims) == (2, "0")


def test_ranks_that_fail_at_the_same_time_are_said_to_be_tied_and_none_is_blamed() -> None:
    w = training()
    w.now += 5.0
    for rank in (0, 1, 2):
        w.exit_child(RUN, rank, 1, stderr="ValueError: bad batch", late=rank / 100)
    w.settle()
    first = status(w).attempts[0]
    assert "which was first cannot be told" in first.message
    assert status(w).recovery.first_failures == ()


def test_a_node_that_fails_first_twice_in_a_day_is_left_for_a_day() -> None:
    w = training()
    fail(w, 1, stderr="RuntimeError: a")
    assert "n1" in status(w).assignment.nodes
    train(w, 100)
    fail(w, 1, stderr="RuntimeError: b")
    assert "n1" not in status(w).assignment.nodes
    (excluded,) = status(w).recovery.excluded_nodes
    assert excluded.until is not None
    assert excluded.until - w.now > 80_000
    assert status(w).totals.nodes_replaced == 1


def test_a_node_that_fails_first_again_after_a_day_stays() -> None:
    w = training()
    fail(w, 1, stderr="RuntimeError: a")
    w.now += 90_000
    train(w, 100)
    fail(w, 1, stderr="RuntimeError: b")
    assert "n1" in status(w).assignment.nodes


def test_the_same_crash_at_the_same_step_on_other_nodes_ends_the_run_with_what_to_do() -> None:
    w = training(3)
    fail(w, 1, stderr="RuntimeError: token 5 out of range")
    train(w, 3, saving=False)
    fail(w, 2, stderr="RuntimeError: token 7 out of range")
    assert (state(w), status(w).reason) == ("Failed", "Deterministic")
    ended = not_none(find(status(w), "Succeeded"))
    assert "correct it" in ended.message


def test_gpu_memory_before_the_first_step_ends_the_run_at_the_second_node() -> None:
    w = training(2, step=0)
    fail(w, 0, signs=("CUDA:OutOfMemory",))
    assert state(w) == "Running"
    fail(w, 1, signs=("CUDA:OutOfMemory",))
    assert (state(w), status(w).reason) == ("Failed", "Deterministic")
    assert status(w).recovery.excluded_nodes == ()


def test_a_fault_of_the_machine_replaces_the_node_although_another_rank_complained_first() -> None:
    w = training()
    w.show(RUN, 2, "Xid:79")
    w.now += 20.0
    w.exit_child(RUN, 0, 1, signs=("NCCL:Timeout",))
    w.pass_time(20, step=2)
    first = status(w).attempts[0]
    assert (first.cause, first.rank, first.node, first.charged, first.action) == ("Hardware", 2, "n2", False, "Replace")
    assert "n2" not in status(w).assignment.nodes
    assert set(w.children(RUN).values()) == {2}


def test_a_condition_of_a_node_explains_a_failure_and_keeps_everybody_off_until_it_is_gone() -> None:
    w = training(3, 1)
    w.now += 5.0
    sick = {"conditions": {"XidCriticalError": "GPU 3"}, "conditions_changed_at": w.now}
    w.nodes["n1"] = replace(w.nodes["n1"], **sick)
    w.settle()
    assert status(w).attempt == 1, "training goes on as long as it does"
    fail(w, 0, signs=("NCCL:Timeout",))
    assert status(w).attempts[0].cause == "Hardware"
    assert set(status(w).assignment.nodes) == {"n0", "n2", "n3"}
    (excluded,) = status(w).recovery.excluded_nodes
    assert excluded.condition == "XidCriticalError"
    w.nodes["n1"] = replace(w.nodes["n1"], conditions={})
    w.settle()
    assert status(w).recovery.excluded_nodes == ()


def test_a_gpu_that_its_device_plugin_gave_up_explains_a_failure_and_keeps_everybody_off_until_it_is_back() -> None:
    w = training(3, 1)
    whole = w.nodes["n1"].allocatable
    w.nodes["n1"] = replace(w.nodes["n1"], allocatable={**whole, "nvidia.com/gpu": 7})
    w.settle()
    assert status(w).attempt == 1, "training goes on as long as it does"
    fail(w, 0, signs=("NCCL:Timeout",))
    first = status(w).attempts[0]
    assert (first.cause, first.node, first.charged) == ("Hardware", "n1", False)
    assert "7 healthy GPUs left of 8" in first.message
    assert set(status(w).assignment.nodes) == {"n0", "n2", "n3"}
    (excluded,) = status(w).recovery.excluded_nodes
    assert excluded.condition == "UnhealthyDevice"
    w.nodes["n1"] = replace(w.nodes["n1"], allocatable=whole)
    w.settle()
    assert status(w).recovery.excluded_nodes == ()


def test_a_device_plugin_that_starts_again_offers_no_gpu_for_a_while_and_is_no_evidence() -> None:
    w = training(3, 1)
    w.nodes["n1"] = replace(w.nodes["n1"], allocatable={**w.nodes["n1"].allocatable, "nvidia.com/gpu": 0})
    fail(w, 0)
    assert status(w).attempts[0].cause == "Application"


def test_a_machine_that_fails_again_within_a_day_is_not_taken_back_by_the_run() -> None:
    w = training(2, 1, recovery={"noProgressLimit": 100})
    w.nodes["n2"] = replace(w.nodes["n2"], ready=False)
    for lasts in (True, False):
        train(w, 100)
        sick = {"conditions": {"XidCriticalError": "GPU 3"}, "conditions_changed_at": w.now + 1.0}
        w.nodes["n1"] = replace(w.nodes["n1"], **sick)
        w.now += 1.0
        fail(w, status(w).assignment.nodes.index("n1"))
        (excluded,) = status(w).recovery.excluded_nodes
        assert (excluded.node, bool(excluded.condition), excluded.until is None) == ("n1", lasts, not lasts)
        w.nodes["n1"] = replace(w.nodes["n1"], conditions={})
        w.settle()
        assert ("n1" in status(w).assignment.nodes) is lasts


def test_a_program_that_asks_not_to_be_started_again_is_obeyed_whatever_was_logged_before() -> None:
    w = training()
    w.show(RUN, 2, "Xid:74")
    w.pass_time(600, step=20)
    fail(w, 1, 93)
    first = status(w).attempts[0]
    assert (first.cause, first.rank, first.action) == ("Deliberate", 1, "Stop")
    assert status(w).attempt == 1


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


def test_a_host_out_of_memory_is_tried_once_more_when_it_made_progress() -> None:
    w = training()
    for name, pod in list(w.pods.items()):
        if pod.slot == 1:
            w.pods[name] = replace(pod, phase=PodPhase.FAILED, exit_code=137, reason="OOMKilled")
            del w.workers[pod.uid]
    w.pass_time(10, step=2)
    assert status(w).attempts[0].cause == "OutOfMemory"
    assert set(w.children(RUN).values()) == {2}
    train(w, 3, saving=False)
    fail(w, 1, 247)
    assert (state(w), status(w).reason) == ("Failed", "OutOfMemory")


def test_a_checkpoint_that_cannot_be_loaded_is_passed_over_and_nobody_is_charged() -> None:
    w = training()
    train(w, 10)
    fail(w, 0, stderr="RuntimeError: a")  # begins again from 20
    fail(w, 1, signs=("Checkpoint:Corrupt",))
    second = status(w).attempts[1]
    assert (second.cause, second.action, second.charged) == ("CorruptCheckpoint", "RollBack", False)
    quarantined = status(w).checkpoint.quarantined
    assert [(entry.tier, entry.step, entry.attempt) for entry in quarantined] == [("shared", 20, 1)]
    assert resumed(w) == (10, 1)


@pytest.mark.slow
def test_a_step_in_quarantine_that_is_trained_again_is_resumed_from_and_kept() -> None:
    w = training()
    train(w, 10)
    fail(w, 0, stderr="RuntimeError: a")
    fail(w, 1, signs=("Checkpoint:Corrupt",))
    assert resumed(w) == (10, 1)
    train(w, 10)  # 20 anew, by the third attempt
    w.pass_time(w.tunables.progress_write_interval * 2)
    assert [(saved.step, saved.attempt) for saved in status(w).checkpoint.latest] == [(20, 3)]
    fail(w, 2, stderr="RuntimeError: b")
    assert resumed(w) == (20, 3)
    bad = frozenset(save for _, save in quarantine_of(status(w).checkpoint))
    held = [
        StoredCheckpoint(step, attempt, "uid", f"a{attempt}/step-{step}", Verdict.VALID)
        for attempt, step in ((1, 10), (1, 20), (3, 20))
    ]
    gone = to_prune(held, RetentionPolicy(1), run_uid="uid", now=0.0, quarantined=bad)
    assert [(each.attempt, each.step) for each in gone] == [(1, 10)]
    fail(w, 2, signs=("Checkpoint:Corrupt",))  # what was saved anew can go wrong too
    assert {(each.step, each.attempt) for each in status(w).checkpoint.quarantined} == {(20, 1), (20, 3)}
    assert resumed(w) == (10, 1)


def test_what_is_trained_again_after_nan_is_resumed_from() -> None:
    w = training()
    for _ in range(3):
        train(w, 10)  # 20, 30, 40
    w.show(RUN, 1, NAN, step=41)
    w.pass_time(30, step=2)
    assert resumed(w) == (30, 1)
    train(w, 10)  # 40 anew
    fail(w, 2, stderr="RuntimeError: b")
    assert resumed(w) == (40, 2)


def test_nan_goes_back_beyond_the_newest_checkpoint_until_training_is_past_it() -> None:
    w = training()
    for _ in range(3):
        train(w, 10)  # 20, 30, 40
    train(w, 2, saving=False)
    w.show(RUN, 1, NAN, step=41)
    w.now += 1.0
    w.settle()
    first = status(w).attempts[0]
    assert (first.cause, first.action, first.charged, first.steps_lost) == ("NaN", "RollBack", False, 12)
    assert (status(w).checkpoint.ceiling, status(w).recovery.roll_backs) == (30, 1)
    resume = not_none(status(w).start)
    assert resume.resume is not None
    assert resume.resume.step == 30
    for _ in range(2):
        train(w, 10)  # 40 again, then 50
    assert status(w).checkpoint.ceiling is None
    assert status(w).recovery.roll_backs == 0


def test_what_went_wrong_is_not_gone_back_to_although_the_roll_back_is_over() -> None:
    w = training()
    for _ in range(3):
        train(w, 10)  # 20, 30, 40
    w.show(RUN, 1, "Loss:Spike", step=42)
    for _ in range(2):
        train(w, 10)  # 50 and 60, which went wrong
    w.roll_out(RUN, spec(3, recovery={"onLossSpike": "RollBack"}))
    assert resumed(w) == (30, 1)
    for steps in (5, 10, 10, 10):
        train(w, steps)  # 35, 45, 55, 65
    assert status(w).checkpoint.ceiling is None
    w.saved[w.runs[RUN].uid] = [30, 35, 40, 45, 50, 60]  # the newest ones are lost
    fail(w, 0, stderr="RuntimeError: a")
    w.pass_time(120, step=5)
    assert resumed(w) == (45, 2)
    assert "was saved after training had gone wrong" in " ".join(e.reason for e in status(w).checkpoint.rejected)


def test_a_program_that_keeps_its_newest_save_alone_goes_back_to_that() -> None:
    w = training()
    for _ in range(3):
        train(w, 10)  # 20, 30, 40
    train(w, 2, saving=False)
    w.saved[w.runs[RUN].uid] = [40]
    w.show(RUN, 1, NAN, step=41)
    w.pass_time(30, step=2)
    assert status(w).attempts[0].action == "RollBack"
    assert resumed(w) == (40, 1)
    assert (status(w).checkpoint.ceiling, status(w).recovery.diverged_from) == (40, 41)
    train(w, 1)  # 41, and nothing else is left of what was saved before
    w.saved[w.runs[RUN].uid] = [41]
    fail(w, 0, stderr="RuntimeError: a")
    assert resumed(w) == (41, 2)
    train(w, 10)
    recovery = status(w).recovery
    assert (status(w).checkpoint.ceiling, recovery.roll_backs, recovery.diverged_from) == (None, 0, 0)


def test_a_crash_during_a_roll_back_keeps_what_was_saved_since() -> None:
    w = training()
    for _ in range(3):
        train(w, 10)
    train(w, 2, saving=False)
    w.show(RUN, 1, NAN, step=42)
    w.settle()
    train(w, 5)  # 35, by the attempt after
    fail(w, 0, stderr="RuntimeError: a")
    start = not_none(status(w).start)
    assert start.resume is not None
    assert start.resume.step == 35
    assert status(w).checkpoint.ceiling == 35


def test_a_roll_back_asked_for_long_after_the_loss_jumped_goes_back_to_before_the_jump() -> None:
    w = training()
    for _ in range(3):
        train(w, 10)  # 20, 30, 40
    w.show(RUN, 1, "Loss:Spike", step=42)
    for _ in range(6):
        train(w, 10)  # 100, each save one of what had gone wrong
    assert (status(w).attempt, is_true(status(w), "Diverging")) == (1, True)
    w.roll_out(RUN, spec(3, recovery={"onLossSpike": "RollBack"}))
    assert (status(w).attempts[0].cause, resumed(w)) == ("LossSpike", (30, 1))


def test_nan_that_comes_back_each_time_ends_the_run() -> None:
    w = training()
    for _ in range(9):
        train(w, 10)
    for _ in range(4):
        train(w, 1, saving=False)
        w.show(RUN, 1, NAN, step=95)
        w.show(RUN, 2, NAN, step=95)
        w.pass_time(30, step=2)
    assert (state(w), status(w).reason) == ("Failed", "Diverged")
    assert status(w).recovery.roll_backs == 3


@pytest.mark.parametrize("rank_1_tells_losses", [True, False])
def test_a_rank_that_alone_tells_losses_is_not_set_apart_by_a_nan(rank_1_tells_losses: bool) -> None:
    """After the all-reduce the loss is the same everywhere, and most programs print it on one rank."""
    w = training(2, 6)
    w.tells_losses = (0, 1) if rank_1_tells_losses else (0,)
    for _ in range(6):
        train(w, 10)
    before = status(w).assignment.nodes[0]
    for _ in range(2):
        train(w, 1, saving=False)
        w.show(RUN, 0, NAN, step=71)
        w.pass_time(30, step=2)
    assert [entry.action for entry in status(w).attempts[:2]] == ["RollBack", "RollBack"]
    assert (status(w).assignment.nodes[0] != before) is rank_1_tells_losses


def test_a_single_poisoned_checkpoint_is_loaded_on_another_machine_once_and_not_four_times() -> None:
    w = training(3, 6)
    fail(w, 0)
    loads = 0
    for _ in range(6):
        if state(w) == "Failed":
            break
        resume = status(w).start.resume if status(w).start is not None else None  # type: ignore[union-attr]
        loads += resume is not None
        train(w, 1, saving=False)
        w.show(RUN, 1, NAN, step=11)
        w.pass_time(30, step=2)
    assert (state(w), status(w).reason, loads) == ("Failed", "Diverged", 3)


def test_a_rule_of_the_user_decides_and_is_counted() -> None:
    rule = {"name": "flaky", "logPattern": "flaky link", "action": "ReplaceNode", "limit": 2}
    w = training(recovery={"rules": [rule]})
    fail(w, 1, signs=("Rule:flaky",))
    assert "n1" not in status(w).assignment.nodes
    assert [(use.name, use.count) for use in status(w).recovery.rules_used] == [("flaky", 1)]
    assert "rule flaky" in status(w).attempts[0].message
    fail(w, 0, signs=("Rule:flaky",))
    fail(w, 2, signs=("Rule:flaky",))
    assert (state(w), status(w).reason) == ("Failed", "RuleLimit")


def test_a_run_that_spoils_node_after_node_is_not_believed_for_ever() -> None:
    w = training(3, 6, recovery={"noProgressLimit": 100})
    for _ in range(3):
        train(w, 100)
        fail(w, 1, signs=("Xid:79",))
    assert len(status(w).recovery.excluded_nodes) == 2
    assert is_true(status(w), "ClusterDisruption")
    shown = not_none(find(status(w), "ClusterDisruption"))
    assert shown.reason == "ExclusionLimit"
    w.now += 3700
    w.settle()
    assert find(status(w), "ClusterDisruption") is None


def test_a_node_that_is_refused_once_is_kept_off_for_minutes_and_the_second_time_for_a_day() -> None:
    patient = Tunables(deadlines=Deadlines(vacant=5000.0))
    w = world(1, tunables=patient)
    w.apply(RUN, spec(1))
    for expected in (900.0, 86_400.0):
        for _ in range(2):
            w.reconcile(RUN)
            w.admit()
        w.reconcile(RUN)
        (pod,) = w.pods.values()
        w.pods[pod.name] = replace(pod, reason="Unschedulable", message="taint")
        w.now += 70
        w.reconcile(RUN)
        w.reconcile(RUN)
        (excluded,) = status(w).recovery.excluded_nodes
        assert excluded.until is not None
        assert excluded.until - w.now == pytest.approx(expected, abs=1.0)
        w.now += 1000


def test_pods_lost_a_day_apart_do_not_add_up() -> None:
    w = training()
    for _ in range(5):
        train(w, 10)
        w.fail_pod(RUN, 1)
        w.pass_time(4)
        w.now += 90_000
    assert "n1" in status(w).assignment.nodes


def test_peers_of_lost_nodes_cost_nothing_while_the_breaker_is_open() -> None:
    w = training(4, 4)
    for name in ("n1", "n2", "n3"):
        w.fail_node(name)
    w.breaker = True
    w.now += 15.0
    w.exit_child(RUN, 0, 1, stderr="RuntimeError: a")
    w.pass_time(10)
    first = status(w).attempts[0]
    assert (first.cause, first.charged) == ("NodeLost", False)
    assert status(w).assignment.vacant == ()
    assert status(w).recovery.consecutive_no_progress == 0
    w.pass_time(600, step=30)
    assert is_true(status(w), "ClusterDisruption"), "its cause lasts"
    for name in ("n1", "n2", "n3"):
        w.return_node(name)
    w.pass_time(60, step=5)
    assert set(w.children(RUN).values()) == {status(w).attempt}


def test_a_node_whose_silence_is_established_after_the_end_is_its_cause_after_all() -> None:
    w = training(step=0)
    w.lose_node("n2")
    w.now += 1.0
    w.exit_child(RUN, 0, 1, stderr="RuntimeError: a")
    w.work()
    w.reconcile(RUN)
    first = status(w).attempts[0]
    assert (first.cause, first.rank, status(w).recovery.consecutive_no_progress) == ("Application", 0, 1)
    w.node_not_ready("n2")
    w.pass_time(20, step=2)
    first = status(w).attempts[0]
    assert (first.cause, first.rank, first.node, first.action) == ("NodeLost", 2, "n2", "Replace")
    assert "; then rank 0 on n0 ended" in first.message
    assert not first.charged
    assert status(w).recovery.consecutive_no_progress == 0
    assert [(one.node, one.cause) for one in status(w).recovery.first_failures] == [("n2", "NodeLost")]
    assert status(w).recovery.roots == ()


def test_a_node_lost_while_the_gang_gathers_is_not_the_cause_of_the_end_before() -> None:
    w = training(step=0)
    w.end_child(RUN, 0, 1, stderr="RuntimeError: a")
    assert status(w).attempt == 2
    w.exit_child(RUN, 0, 1, stderr="RuntimeError: a")
    w.directives_reach = 0  # nobody hears that it is to start again
    w.settle()
    w.pass_time(20, step=2)
    w.fail_node("n2")
    w.pass_time(30, step=2)
    second = status(w).attempts[1]
    assert (second.cause, second.rank, second.charged) == ("Application", 0, True)
    assert status(w).recovery.consecutive_no_progress == 2


def test_a_number_that_is_no_step_hides_no_progress() -> None:
    w = training(recovery={"noProgressLimit": 2})
    w.format = "TorchDCP"
    w.saved[w.runs[RUN].uid].append(20251101)  # a backup, called so
    for _ in range(4):
        train(w, 10)
        fail(w, 0)
        assert state(w) == "Running"
    assert (status(w).recovery.consecutive_no_progress, resumed(w)[0]) == (0, 50)
    assert [saved.step for saved in status(w).checkpoint.latest] == [50]
    assert "20251101, and no more than step 50" in status(w).checkpoint.rejected[0].reason


def test_what_would_only_repeat_itself_is_waited_out_although_something_was_saved() -> None:
    w = training()
    w.now += 5.0
    w.exit_child(RUN, 1, 1, signs=("Storage:NoSpace",))
    w.work()
    w.reconcile(RUN)
    assert status(w).recovery.consecutive_no_progress == 0, "what was saved is progress"
    assert (status(w).recovery.not_before or 0.0) > w.now


def test_what_lasts_after_an_hour_is_taken_for_lost() -> None:
    w = training(4, 4)
    for name in ("n1", "n2", "n3"):
        w.fail_node(name)
    w.breaker = True
    w.pass_time(60, step=5)
    assert status(w).assignment.vacant == ()
    w.now += 3600
    w.pass_time(60, step=5)
    assert set(status(w).assignment.nodes) == {"n0", "n4", "n5", "n6"}
    assert phase_of(status(w), False) is Phase.RUNNING


def test_a_taken_port_costs_nothing() -> None:
    w = training(step=0)
    for _ in range(3):
        fail(w, 0, signs=("Port:InUse",))
    assert state(w) == "Running"
    assert status(w).recovery.consecutive_no_progress == 0
    for _ in range(3):
        fail(w, 0, signs=("Port:InUse",), after=400)
    assert state(w) == "Failed"


def test_a_clock_that_is_far_ahead_holds_up_no_verdict() -> None:
    w = training(checkpoint=None, step=0)
    w.now += 5.0
    w.exit_child(RUN, 1, 3, late=10_000.0)
    w.pass_time(20, step=2)
    assert (state(w), status(w).reason) == ("Failed", "ProcessFailed")
    ended = not_none(status(w).attempts[0].ended_at)
    assert ended <= w.now


def test_what_a_run_is_told_by_a_stop_is_in_its_history() -> None:
    w = training()
    fail(w, 1, 93)
    last = status(w).attempts[-1]
    assert (last.cause, last.action) == ("Deliberate", "Stop")
    assert "asked not to be started again" in last.message
    assert (state(w), status(w).reason) == ("Failed", "StoppedByProgram")


def test_a_node_lost_twice_in_a_day_is_kept_off() -> None:
    w = training(3, 1)
    lose(w, "n1")
    assert status(w).recovery.excluded_nodes == ()
    w.return_node("n1")
    lose(w, "n3")
    assert "n1" in status(w).assignment.nodes
    w.return_node("n3")
    lose(w, "n1")
    assert [entry.node for entry in status(w).recovery.excluded_nodes] == ["n1"]


def lose(w: World, name: str) -> None:
    """A node dies under the gang, which goes on with another."""
    train(w, 10)
    w.fail_node(name)
    w.pass_time(40, step=2)
    assert name not in status(w).assignment.nodes


def test_a_pod_that_died_of_its_machine_does_not_come_back_there() -> None:
    w = training()
    w.show(RUN, 1, "Xid:79")
    w.work()
    w.fail_pod(RUN, 1)
    w.pass_time(20, step=2)
    assert status(w).attempts[0].cause == "Hardware"
    assert "n1" not in status(w).assignment.nodes


def test_workers_are_told_what_to_look_for_before_they_start() -> None:
    rules = [
        {"name": "fabric", "logPattern": "link flapped", "action": "ReplaceNode"},
        {"name": "data", "exitCodes": [42], "action": "Stop"},
    ]
    w = world(1)
    w.roll_out("one", spec(1, recovery={"rules": rules}, progress={"pattern": "at (?P<step>[0-9]+)"}))
    assert w.directives["uid-one"].watch == (("fabric", "link flapped"),)
    assert w.directives["uid-one"].progress_pattern == "at (?P<step>[0-9]+)"


def over_its_limit(w: World, rank: int) -> None:
    name = next(pod.name for pod in w.pods.values() if pod.slot == rank and not pod.is_terminal)
    w.end_pod(RUN, rank, 137, reason="Evicted", message='Usage of EmptyDir volume "cache" exceeds the limit "10Gi". ')
    w.pods[name] = replace(w.pods[name], disruption="TerminationByKubelet")
    w.settle()


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
