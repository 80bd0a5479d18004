"""How far the ranks have trained, by what they have saved."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import SavedCheckpoint, SaveStatus
from lockstep.core.checkpoints.saves import last_trained
from lockstep.core.model.worker_report import ProgressReport, TimingReport
from support.asked_saves import save_of
from support.world import World, spec, training


def saved_at(w: World, step: int) -> list[str]:
    """The awaited save is answered by a checkpoint of that step, while the last report is an older one."""
    w.tell_of_save("one", step)
    plan = w.reconcile("one")
    return [event.note for event in plan.events if event.reason == "SaveCompleted"]


@pytest.mark.parametrize(
    ("before", "words", "trained"),
    [
        (0, "checkpoint-request: step {step} is saved on all ranks", "asked"),
        (
            2,
            (
                "checkpoint-request: step {step} is saved on all ranks; the program's own save came before step "
                "{asked}, which was asked for, and will do"
            ),
            "saved",
        ),
    ],
)
def test_a_save_before_the_step_asked_for_is_explained_and_what_is_saved_has_been_trained(
    before: int, words: str, trained: str
) -> None:
    w = training()
    w.saves_succeed = False
    w.annotate("one", checkpoint_request="a")
    w.reconcile("one")
    asked = save_of(w).at_step
    step = asked - before
    (note,) = saved_at(w, step)
    assert note.endswith(words.format(step=step, asked=asked).partition(": ")[2])
    assert last_trained(w.plan("one")) == step
    w.pass_time(w.tunables.progress_write_interval + 1)
    assert w.status("one").progress.step >= step
    assert w.status("one").progress.summary == str(w.status("one").progress.step)


def test_a_stop_tells_no_fewer_steps_than_its_save_has() -> None:
    w = training()
    w.saves_succeed = False
    w.roll_out("one", spec(2, suspend=True))
    step = save_of(w).at_step
    w.tell_of_save("one", step)
    w.settle()
    status = w.status("one")
    assert (save_of(w).outcome, save_of(w).step) == ("Saved", step)
    assert (status.progress.step, status.attempts[-1].last_step) == (step, step)


@pytest.mark.parametrize(
    ("saved", "attempt", "since", "trained"),
    [
        (11, 1, 0.0, 5),  # nothing says that there was time for it
        (11, 1, 10.0, 11),
        (11, None, 10.0, 11),  # its format does not say whose it is
        (11, 2, 10.0, 5),
        (4, 1, 10.0, 5),
        (400, 1, 10.0, 5),  # counted in other steps
        (400, 1, 1e308, 400),  # a clock that cannot be is a day behind at most
        (10**6, 1, 1e308, 5),
    ],
)
def test_a_save_of_the_program_s_own_has_been_trained_where_there_was_time_for_it(
    saved: int, attempt: int | None, since: float, trained: int
) -> None:
    w = training()
    w.now += 20.0
    for slot, report in w.reports["uid-one"].items():
        progress = ProgressReport(5, w.now - since)
        timing = TimingReport(step=1.0)
        w.reports["uid-one"][slot] = replace(report, progress=progress, timing=timing, received_at=w.now)
    latest = (SavedCheckpoint(tier="shared", step=saved, path="/shared/x", attempt=attempt),)
    assert last_trained(w.plan("one"), latest) == trained
    w.amend("one", checkpoint=changed(w.status("one").checkpoint, latest=latest))
    assert last_trained(w.plan("one")) == trained


@pytest.mark.parametrize(("attempt", "trained"), [(1, 11), (None, None), (2, None)])
def test_where_nothing_was_reported_a_save_of_the_attempt_is_what_is_known(
    attempt: int | None, trained: int | None
) -> None:
    w = training()
    for slot, report in w.reports["uid-one"].items():
        w.reports["uid-one"][slot] = replace(report, progress=None)
    latest = (SavedCheckpoint(tier="shared", step=11, path="/shared/x", attempt=attempt),)
    assert last_trained(w.plan("one"), latest) == trained


def test_progress_shows_no_fewer_steps_than_are_saved() -> None:
    w = training()
    w.now += w.tunables.progress_write_interval + 1
    for worker in w.workers.values():
        worker.step, worker.steps_since = 20, w.now - 5
    w.tell_of_save("one", 23)
    w.reconcile("one")
    status = w.status("one")
    assert [saved.step for saved in status.checkpoint.latest] == [23]
    assert (status.progress.step, status.progress.summary) == (23, "23")


def test_a_checkpoint_that_counts_other_steps_than_the_reports_says_nothing_of_what_was_trained() -> None:
    w = training()
    w.amend(
        "one",
        checkpoint=changed(
            w.status("one").checkpoint,
            save=SaveStatus(
                id="save-1", at_step=10, attempt=1, needs_step=6, reason="x", time=1.0, outcome="Saved", step=10_000
            ),
        ),
    )
    assert last_trained(w.plan("one")) == 5
