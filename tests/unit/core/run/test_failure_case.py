"""What a failure is judged by, beside its cause."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import ExcludedNode
from lockstep.core.failures.causes import Cause, Evidence, Reading
from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.model.reasons import AttemptCause, LossReason
from lockstep.core.run.failure_case import case_of
from support.world import failed, world_with_gang


def cause(kind: AttemptCause = AttemptCause.APPLICATION) -> Cause:
    return Cause(Evidence(kind, 1, "n1", 1_000_000.0, "it failed", kind), Reading(kind, kind))


@pytest.mark.parametrize(("saved", "progressed"), [(0, False), (7, True)])
def test_what_the_attempt_came_to_is_what_was_reported_and_progress_is_what_was_saved(
    saved: int, progressed: bool
) -> None:
    w = world_with_gang(3, checkpoint={"shared": {"claimName": "lustre"}})
    w.train("one", saved)
    w.work_reports_only()
    if saved:
        w.tell_of_save("one", saved)
    lost = Loss(2, "n2", LossKind.NODE, LossReason.NODE_SILENT, "silent", w.now)
    case = case_of(w.plan("one"), cause(), [lost])
    assert (case.step or 0, case.progressed, case.lost_slots) == (saved, progressed, (2,))
    assert (case.checkpoints, case.nodes, case.restarts, case.streak) == (True, 3, 0, 0)


def test_an_end_that_is_judged_once_more_is_not_counted_twice() -> None:
    w = world_with_gang(3)
    w.train("one", 5)
    w.work_reports_only()
    failed(w).reconcile("one")
    plan = w.plan("one")
    again, next_one = case_of(plan, cause(), (), 1), case_of(plan, cause(), ())
    assert (again.restarts, next_one.restarts) == (0, 1)
    assert (again.step, next_one.step) == (5, None)


@pytest.mark.parametrize(
    ("kind", "asked"),
    [(AttemptCause.STRAGGLER, True), (AttemptCause.NAN, True), (AttemptCause.DELIBERATE, False)],
)
def test_how_many_nodes_were_excluded_is_asked_where_one_more_may_be(kind: AttemptCause, asked: bool) -> None:
    w = world_with_gang(3, 6)
    excluded = tuple(ExcludedNode(node=f"x{i}", reason="", since=w.now) for i in range(2))
    known = w.status("one")
    recovery = changed(known.recovery, excluded_nodes=excluded)
    w.runs["one"] = replace(w.runs["one"], status=changed(known, recovery=recovery))
    case = case_of(w.plan("one"), cause(kind), ())
    assert ("2 nodes were excluded" in case.excluded_enough) is asked


@pytest.mark.parametrize(
    ("kind", "step"), [(AttemptCause.LOSS_SPIKE, 20), (AttemptCause.NAN, 31), (AttemptCause.APPLICATION, 31)]
)
def test_where_training_went_wrong_is_told_by_the_signs_of_the_cause_itself(kind: AttemptCause, step: int) -> None:
    w = world_with_gang(2)
    w.train("one", 40)
    for rank, sign, at in ((0, "Loss:Spike", 24), (1, "Loss:Spike", 20), (0, "Loss:NaN", 31), (1, "Loss:NaN", 35)):
        w.show("one", rank, sign, step=at)
    w.work_reports_only()
    assert case_of(w.plan("one"), cause(kind), ()).diverged_step == step


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("options", [{"no-requeue": ""}, {}])
def test_a_script_that_must_not_run_twice_runs_once_from_its_start_on(options: dict[str, str], begun: bool) -> None:
    batch = {"script": "#!/bin/sh\n", "options": options}
    w = world_with_gang(2, launcher={"type": "Slurm", "batch": batch}, command=[])
    if not begun:
        w.amend("one", start=None)
    assert case_of(w.plan("one"), cause(), ()).runs_once is (begun and bool(options))
