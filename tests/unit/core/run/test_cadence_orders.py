"""The cadence that workers are told: measured, written, steady."""

from dataclasses import replace

import pytest

from lockstep.api.checkpoint_status import CadenceStatus
from lockstep.core.accounting.book import read
from lockstep.core.accounting.measures import pool_records
from lockstep.core.failures.failure_rate import PRIOR, pool_prior
from lockstep.core.model.plan import CadenceOrder
from lockstep.core.model.worker_report import TimingReport
from lockstep.core.run import resume_point
from lockstep.core.run.cadence_orders import DISABLED, NOT_ASKED
from support.measuring import Training, started
from support.values import not_none
from support.world import spec


def test_from_the_start_there_is_a_cadence_in_seconds() -> None:
    w = started()
    assert w.cadence.interval == 7200, "two nodes seldom fail: the longest that is allowed"
    assert (w.cadence.steps, w.cadence.shared_steps) == (0, 0)
    assert w.cadence.mttf > 86_400
    assert w.cadence.changed_at is not None
    directive = not_none(w.decide().directive)
    assert directive.cadence == CadenceOrder(7200.0, 0, 0)


def test_once_steps_are_timed_the_cadence_is_in_steps_at_once() -> None:
    w = started()
    w.timing = TimingReport(step=10.0)
    w.pass_time(2)
    assert (w.cadence.interval, w.cadence.steps, w.cadence.shared_steps) == (7200, 720, 0)


def test_a_new_cadence_holds_from_a_step_that_no_rank_has_begun() -> None:
    w = started()
    w.train("llama", 120)
    w.timing = TimingReport(step=10.0)
    w.pass_time(2)
    assert w.cadence.from_step > 120
    directive = not_none(w.decide().directive)
    assert directive.cadence is not None
    assert directive.cadence.from_step == w.cadence.from_step
    before = w.cadence.from_step
    w.pass_time(60)
    assert w.cadence.from_step == before


def test_ranks_that_begin_anew_save_by_the_cadence_from_where_they_begin() -> None:
    w = started(step=10.0)
    w.train("llama", 900)
    w.tell_of_save("llama", 900)
    w.train("llama", 2000)
    w.timing = TimingReport(step=10.0, save_block=0.01, persist=20.0)
    w.tell_of_save("llama", 2900)
    w.pass_time(700, step=20)
    assert w.cadence.from_step > 2900, "else this shows nothing"
    steps = w.cadence.steps
    for rank in (0, 1):
        w.show("llama", rank, "Loss:NaN", step=2900)
    w.settle()
    assert w.status("llama").attempt == 2
    directive = not_none(w.decide().directive)
    assert directive.cadence is not None
    assert (directive.cadence.steps, directive.cadence.from_step) == (steps, 0), "no step before it goes unsaved"


def test_the_shared_tier_gets_every_nth_save() -> None:
    w = started(local=True, step=10.0)
    assert w.cadence.shared_steps % w.cadence.steps == 0
    assert w.cadence.steps > 0


def test_how_many_shared_saves_come_to_one_copy_in_the_archive_is_said() -> None:
    w = started(step=10.0)
    assert w.cadence.archive_every == 0
    w = started(step=10.0, archive={"uri": "s3://golden/llama", "interval": "7h"})
    assert (w.cadence.steps, w.cadence.archive_every) == (720, 4), "one in two hours: the fourth is past seven"
    assert "one shared save in 4 is archived" in w.cadence.why


def test_a_new_leader_that_has_heard_nothing_changes_nothing() -> None:
    w = started(step=10.0)
    before = w.cadence
    w.pass_time(700, step=50)
    w.crash()
    w.reconcile("llama")
    w.timing, w.listens = TimingReport(), False
    w.pass_time(700, step=50)
    assert w.cadence == before


def test_a_measured_save_replaces_the_guess_but_the_ranks_are_told_at_most_every_ten_minutes() -> None:
    w = started(step=10.0)
    w.timing = TimingReport(step=10.0, save_block=1.0, persist=12_000.0)
    w.train("llama", 1)
    w.pass_time(100, step=5)
    book = not_none(read(w.status("llama").goodput.state))
    assert book.shared_cost is not None
    assert (book.shared_cost.blocking, book.shared_cost.durable, book.shared_cost.saves) == (1.0, 12_000.0, 1)
    w.pass_time(490, step=10)
    assert w.cadence.steps == 720
    w.pass_time(30, step=10)
    assert w.cadence.steps == 1200
    assert "a shared save blocks 1 s" in w.cadence.why
    assert "one save must be durable before the next begins" in w.cadence.why


def test_disabled_means_the_program_alone_decides() -> None:
    w = started("Disabled")
    assert w.cadence.why == DISABLED
    assert w.cadence.interval == 0
    directive = not_none(w.decide().directive)
    assert directive.cadence is None
    version = w.version
    w.settle()
    assert w.version == version


def test_an_interval_that_was_asked_for_is_kept() -> None:
    w = started("30m", step=10.0)
    assert (w.cadence.interval, w.cadence.steps) == (1800, 180)
    assert "the interval asked for" in w.cadence.why


def test_a_program_that_does_not_ask_is_said_to_decide_by_itself_until_it_does() -> None:
    w = Training()
    w.listens = False
    w.roll_out("llama", spec(2))
    assert w.cadence.why.endswith(NOT_ASKED)
    w.listens = True
    w.pass_time(2)
    assert not w.cadence.why.endswith(NOT_ASKED)


def test_without_checkpoints_there_is_no_cadence() -> None:
    w = Training()
    w.roll_out("llama", spec(2, checkpoint=None))
    assert w.cadence == CadenceStatus()


def test_all_runs_of_a_gpu_type_are_its_record() -> None:
    w = started(step=10.0)
    w.train("llama", 1)
    w.pass_time(300, step=10)
    w.end_child("llama", 1, 1)
    w.train("llama", 1)
    w.pass_time(60, step=10)
    record = pool_records([run.status for run in w.runs.values()])[""]
    assert record.failures == 1
    assert record.node_days == pytest.approx(2 * 360 / 86_400, rel=0.15)
    assert pool_prior(record).mean > PRIOR.mean


def test_a_program_that_always_crashes_says_nothing_about_nodes() -> None:
    w = started(step=10.0)
    for _ in range(2):
        w.end_child("llama", 1, 1)
        w.pass_time(30, step=5)
    book = not_none(read(w.status("llama").goodput.state))
    assert (book.account.failures, book.exposure.failures) == (2, 0.0)
    w.train("llama", 1)
    w.tell_of_save("llama", 1)
    w.end_child("llama", 1, 1)
    w.pass_time(40, step=5)
    book = not_none(read(w.status("llama").goodput.state))
    assert book.exposure.failures == pytest.approx(3.0, abs=1e-3)


def test_steps_that_take_longer_than_they_did_at_best_lower_the_efficiency() -> None:
    w = started(step=5.0)
    for _ in range(10):
        w.pass_time(10, step=5)
        w.train("llama", 1)
        w.settle()
    w.pass_time(60, step=10)
    assert float(w.status("llama").goodput.step_efficiency) == pytest.approx(0.5, abs=0.06)


def test_the_resume_choice_knows_how_long_steps_take_and_how_fast_tiers_load(monkeypatch: pytest.MonkeyPatch) -> None:
    w = started(step=4.0)
    slow = {"local": 1e9, "shared": 2e9, "archive": 3e9}
    w.tunables = replace(w.tunables, bandwidth=slow)
    w.train("llama", 1)
    w.pass_time(70, step=5)
    asked: list[float] = []
    speeds: list[object] = []
    real = resume_point.choose_resume

    def choose(*arguments: object) -> object:
        asked.append(arguments[2].step_seconds)  # type: ignore[attr-defined]
        speeds.append(arguments[2].bandwidth)  # type: ignore[attr-defined]
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(resume_point, "choose_resume", choose)
    w.end_child("llama", 1, 1)
    assert set(asked) == {4.0}
    assert all(speed is slow for speed in speeds)
