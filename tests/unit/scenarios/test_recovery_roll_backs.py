"""Which checkpoint a run goes back to: not to one that is damaged, nor to one of after training went wrong."""

import pytest

from lockstep.core.checkpoints.retention import RetentionPolicy, StoredCheckpoint, to_prune
from lockstep.core.model.conditions import is_true
from lockstep.core.model.quarantine import quarantine_of
from lockstep.core.model.worker_report import Verdict
from support.recovering import NAN, RUN, fail, resumed, state, status, train, training
from support.values import not_none
from support.world import spec


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


def test_checkpoints_that_cannot_be_read_one_after_another_are_all_loaded_again_and_the_failures_count() -> None:
    w = training()
    train(w, 10)
    train(w, 10)
    fail(w, 0, stderr="RuntimeError: a")  # begins again from 30
    best = status(w).recovery.best_step
    fail(w, 1, signs=("Checkpoint:Unreadable",))
    assert (resumed(w), [entry.step for entry in status(w).checkpoint.quarantined]) == ((20, 1), [30])
    fail(w, 1, signs=("Checkpoint:Unreadable",))
    assert (resumed(w), status(w).checkpoint.quarantined) == ((30, 1), ())
    third = status(w).attempts[2]
    assert (third.cause, third.action, third.charged) == ("CorruptCheckpoint", "Replace", True)
    assert (status(w).recovery.best_step, status(w).recovery.consecutive_no_progress) == (best, 1)


def test_a_checkpoint_that_cannot_be_read_stays_out_once_another_one_was_trained_on() -> None:
    w = training()
    train(w, 10)
    train(w, 10)
    fail(w, 0, stderr="RuntimeError: a")
    fail(w, 1, signs=("Checkpoint:Unreadable",))
    train(w, 2, saving=False)
    fail(w, 1, stderr="RuntimeError: b")
    fail(w, 2, signs=("Checkpoint:Unreadable",))
    assert [entry.step for entry in status(w).checkpoint.quarantined] == [30, 20]
    assert resumed(w) == (10, 1)


@pytest.mark.parametrize("kind", ["Checkpoint:Unreadable", "Checkpoint:Corrupt"])
def test_what_could_not_be_read_at_the_start_explains_no_end_once_a_step_was_made(kind: str) -> None:
    w = training()
    fail(w, 0, stderr="RuntimeError: a")
    for rank in range(3):  # a file that it can do without
        w.show(RUN, rank, kind)
    train(w, 10)
    node = not_none(w.worker(RUN, 1)).node
    w.exit_child(RUN, 2, 1, signs=("NCCL:RemoteError",))
    fail(w, 1, signs=("CUDA:Error",), after=0.0)
    second = status(w).attempts[1]
    assert (second.cause, second.rank, second.node) == ("Application", 1, node)
    assert status(w).checkpoint.quarantined == ()


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
