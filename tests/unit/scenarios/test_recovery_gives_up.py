"""What ends a run instead of starting it again: repetition, its own wish, a rule; and what is waited out."""

from dataclasses import replace

from lockstep.core.model.conditions import find
from lockstep.core.model.snapshot import PodPhase
from support.recovering import RUN, fail, state, status, train, training
from support.values import not_none


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


def test_a_program_that_asks_not_to_be_started_again_is_obeyed_whatever_was_logged_before() -> None:
    w = training()
    w.show(RUN, 2, "Xid:74")
    w.pass_time(600, step=20)
    fail(w, 1, 93)
    first = status(w).attempts[0]
    assert (first.cause, first.rank, first.action) == ("Deliberate", 1, "Stop")
    assert status(w).attempt == 1


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


def test_what_would_only_repeat_itself_is_waited_out_although_something_was_saved() -> None:
    w = training()
    w.now += 5.0
    w.exit_child(RUN, 1, 1, signs=("Storage:NoSpace",))
    w.work()
    w.reconcile(RUN)
    assert status(w).recovery.consecutive_no_progress == 0, "what was saved is progress"
    assert (status(w).recovery.not_before or 0.0) > w.now


def test_a_taken_port_costs_nothing() -> None:
    w = training(step=0)
    for _ in range(3):
        fail(w, 0, signs=("Port:InUse",))
    assert state(w) == "Running"
    assert status(w).recovery.consecutive_no_progress == 0
    for _ in range(3):
        fail(w, 0, signs=("Port:InUse",), after=400)
    assert state(w) == "Failed"


def test_what_a_run_is_told_by_a_stop_is_in_its_history() -> None:
    w = training()
    fail(w, 1, 93)
    last = status(w).attempts[-1]
    assert (last.cause, last.action) == ("Deliberate", "Stop")
    assert "asked not to be started again" in last.message
    assert (state(w), status(w).reason) == ("Failed", "StoppedByProgram")
