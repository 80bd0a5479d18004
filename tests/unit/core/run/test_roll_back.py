"""When what was saved before a roll-back counts again."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import DivergedSaves, SavedCheckpoint
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from lockstep.core.run.roll_back import lift_ceiling, roll_back, saved_step, trusted_steps
from support.world import spec, world


def rolled_back(tier: str, *beside: int) -> PlanBuilder:
    """Rolled back to step 10 for what went wrong at step 30; the next attempt has saved step 40 in ``tier``."""
    w = world(1, tunables=Tunables(gang=GangSettings(local_storages={"nvme": "/nvme"})))
    tiers = {"shared": {"claimName": "lustre"}, "local": {"storage": "nvme"}}
    w.roll_out("one", spec(1, checkpoint=tiers))
    view = w.runs["one"]
    status = changed(
        view.status,
        attempt=2,
        checkpoint=changed(view.status.checkpoint, ceiling=10),
        recovery=changed(view.status.recovery, diverged_attempt=1, diverged_step=30),
    )
    w._store(replace(view, status=status))

    def row(place: str, step: int, attempt: int) -> CheckpointReport:
        path = f"/{place}/a{attempt}/step-{step}" + ("/rank-0" if place == "local" else "")
        facts = {"attempt": attempt, "world": 1, "run_uid": view.uid, "committed_at": 1.0}
        return CheckpointReport(place, step, path, Verdict.VALID, **facts)  # type: ignore[arg-type]

    snapshot = w.snapshot("one")
    inventory = (row("shared", 10, 1), row("shared", 20, 1), row(tier, 40, 2))
    inventory += tuple(row(tier, step, 1) for step in beside)
    reports = {0: replace(snapshot.reports[0], inventory=inventory)}
    return PlanBuilder(RunContext(replace(snapshot, reports=reports), w.tunables, w.now))


@pytest.mark.parametrize(("tier", "ceiling"), [("shared", None), ("local", 10)])
def test_the_ceiling_is_lifted_by_what_outlasts_the_loss_of_a_node(tier: str, ceiling: int | None) -> None:
    builder = rolled_back(tier)
    lift_ceiling(builder)
    assert builder.status.checkpoint.ceiling == ceiling


def test_what_went_wrong_stays_passed_over_once_the_roll_back_is_over() -> None:
    builder = rolled_back("shared", 50)
    recovery = changed(builder.status.recovery, diverged_from=15)
    builder.status = changed(builder.status, recovery=recovery)
    lift_ceiling(builder)
    assert (builder.status.checkpoint.ceiling, builder.status.recovery.diverged_from) == (None, 0)
    assert builder.status.checkpoint.diverged == (DivergedSaves(step=15, attempt=1),)
    assert (trusted_steps(builder), saved_step(builder)) == ((40, 10), 40)


def test_what_was_saved_soundly_between_two_roll_backs_is_gone_on_from() -> None:
    """The first was noticed late, at step 2000; the next attempt went wrong again before it was past that."""
    builder = rolled_back("shared")
    late = changed(builder.status.recovery, diverged_attempt=1, diverged_step=2000, diverged_from=15)
    diverged = changed(builder.status.checkpoint, diverged=(DivergedSaves(step=15, attempt=1),))
    builder.status = changed(builder.status, recovery=late, checkpoint=diverged)
    roll_back(builder, 40, 50)
    assert builder.status.checkpoint.diverged == (DivergedSaves(step=15, attempt=1), DivergedSaves(step=50, attempt=2))
    assert trusted_steps(builder) == (40, 10)


@pytest.mark.parametrize("kept", [(), (DivergedSaves(step=5, attempt=0),)])
def test_a_roll_back_of_an_earlier_release_is_kept_whatever_is_on_record(kept: tuple[DivergedSaves, ...]) -> None:
    for act in (lift_ceiling, lambda builder: roll_back(builder, 40, 50)):
        builder = rolled_back("shared")
        recovery = changed(builder.status.recovery, diverged_from=15)
        checkpoint = changed(builder.status.checkpoint, diverged=kept)
        builder.status = changed(builder.status, recovery=recovery, checkpoint=checkpoint)
        act(builder)
        assert DivergedSaves(step=15, attempt=1) in builder.status.checkpoint.diverged


def test_what_status_knows_to_be_saved_and_sound_counts_before_any_rank_was_heard() -> None:
    builder = rolled_back("shared")
    known = tuple(SavedCheckpoint(tier="shared", step=step, attempt=at) for step, at in ((20, 1), (40, 2)))
    diverged = (DivergedSaves(step=15, attempt=1),)
    for latest, step in ((known[:1], 0), (known, 40)):
        checkpoint = changed(builder.status.checkpoint, ceiling=None, latest=latest, diverged=diverged)
        status = changed(builder.status, checkpoint=checkpoint)
        unheard = replace(builder.snapshot, reports={}, run=replace(builder.snapshot.run, status=status))
        assert saved_step(PlanBuilder(RunContext(unheard, builder.tunables, builder.now))) == step


def test_a_number_that_is_no_step_is_nothing_that_a_run_has_to_get_past() -> None:
    builder = rolled_back("shared", 20251101)
    roll_back(builder, 10, None)
    recovery = builder.status.recovery
    assert (recovery.diverged_step, recovery.diverged_from) == (40, 41)
