"""Who was first after all, heard after the attempt was ended."""

import pytest

from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.model.reasons import AttemptCause, EventReason, LossReason
from lockstep.core.model.worker_report import ExitReport, WorkerPhase
from lockstep.core.run.root_cause import blame_earlier_loss, recheck_root_cause
from support.world import failed, world_with_gang


@pytest.mark.parametrize(
    ("silent_before_end", "kind", "blamed"),
    [
        (5.0, LossKind.NODE, True),
        (-600.0, LossKind.NODE, False),
        (5.0, LossKind.POD, False),
    ],
)
def test_a_node_that_was_silent_before_the_end_was_its_cause(
    silent_before_end: float, kind: LossKind, blamed: bool
) -> None:
    w = failed(world_with_gang(3))
    w.reconcile("one")
    assert w.status("one").attempt == 2
    plan = w.plan("one")
    ended = plan.attempt(1).ended_at
    assert ended is not None
    blame_earlier_loss(plan, [Loss(2, "n2", kind, LossReason.NODE_SILENT, "silent", ended - silent_before_end)])
    entry = plan.attempt(1)
    assert (entry.cause == AttemptCause.NODE_LOST, entry.rank) == ((True, 2) if blamed else (False, 1))
    assert plan.status.recovery.consecutive_no_progress == (0 if blamed else 1)


@pytest.mark.parametrize(
    ("later", "rank", "victims"),
    [(None, 1, ""), (-30.0, 2, "1"), (0.0, 1, "2"), (30.0, 1, "2")],
    ids=["nobody", "long-before", "at-the-same-time", "long-after"],
)
def test_once_everybody_was_heard_the_first_that_ended_is_named(later: float | None, rank: int, victims: str) -> None:
    w = failed(world_with_gang(3))
    w.reconcile("one")
    ended, other = w.status("one").attempts[0], w.worker("one", 2)
    assert ended.rank == 1
    assert ended.ended_at is not None
    assert other is not None
    if later is not None:
        other.phase = WorkerPhase.EXITED
        other.exit = ExitReport(code=1, at=ended.ended_at + later, reason="Error", stderr_tail="")
    w.work_reports_only()
    plan = w.plan("one")
    recheck_root_cause(plan)
    entry = plan.attempt(1)
    assert (entry.rank, entry.victims) == (rank, victims)
    said = [event.reason for event in plan.build().events]
    assert said.count(EventReason.CAUSE_CORRECTED) == (rank == 2)
