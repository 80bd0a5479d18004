"""A gang on its way to the barrier."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import ArchiveJobStatus, ArchiveStatus, QuarantinedCheckpoint
from lockstep.core.model.conditions import find
from lockstep.core.model.plan import DesiredPhase, VerifyRequest
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.snapshot import JobPhase, JobView, Lag
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from lockstep.core.run import report
from lockstep.core.run.barrier import gather
from lockstep.core.run.launching import SlotStage, Stage
from support.values import not_none
from support.world import World, spec, world


def test_a_worker_that_waits_at_the_barrier_is_heard_as_long_as_its_poll_is_open() -> None:
    w = world(3)
    late = "n1"
    w.silent_nodes.add(late)
    w.roll_out("one", spec(2))
    w.now += w.tunables.silent_after(2) + 4  # no report of the first since: it waits for the second
    w.reconcile("one")
    assert w.status("one").assignment.nodes == ("n0", "n1")
    w.silent_nodes.clear()
    w.settle()
    assert w.children("one") == {0: 1, 1: 1}


def blind(w: World, rank: int) -> None:
    """The rank's node has lost sight of the shared tier."""
    worker = not_none(w.worker("one", rank))
    worker.inventory = (CheckpointReport("shared", 0, "/shared-checkpoints/ns/one", Verdict.UNKNOWN, "stale mount"),)


def at_the_barrier(w: World) -> None:
    """Up to Ready on all ranks, as long as the choice of a checkpoint waits."""
    for _ in range(8):
        w.reconcile("one")
        w.admit()
        w.kubelets()
        w.work()
        if w.worker("one", 1) is not None:
            blind(w, 1)
        w.work()


@pytest.mark.parametrize("lag", [Lag(), Lag(write=5.0)])
def test_a_node_that_cannot_look_into_the_shared_tier_is_replaced_not_the_run_ended(lag: Lag) -> None:
    w = world(3)
    w.lag = lag
    w.apply("one", spec(2))
    at_the_barrier(w)
    w.now += w.tunables.deadlines.probe + lag.allowance - 5
    w.work()
    w.reconcile("one")
    assert w.status("one").assignment.vacant == (), "it may see it yet"
    w.now += 6
    w.work()
    w.reconcile("one")
    status = w.status("one")
    assert status.stop is None
    assert status.assignment.vacant == (1,)
    assert [entry.node for entry in status.recovery.excluded_nodes] == ["n1"]
    assert "stale mount" in status.recovery.excluded_nodes[0].reason
    w.settle()
    assert w.children("one") == {0: 1, 1: 1}


@pytest.mark.parametrize(("local", "is_replaced"), [(90, True), (100, False)])
def test_nothing_older_is_resumed_from_because_one_node_cannot_look_into_the_shared_tier(
    local: int, is_replaced: bool
) -> None:
    w = trained(100)
    w.exit_child("one", 1, 1)
    for _ in range(round(w.tunables.deadlines.probe) + 30):
        w.reconcile("one")
        w.admit()
        w.kubelets()
        w.work()
        for rank in (0, 1):
            worker = w.worker("one", rank)
            if worker is None or worker.incarnation > 1:
                continue
            if rank == 1:
                blind(w, 1)
            here = f"/local/uid-one/a1/step-{local}/rank-{rank}"
            own = CheckpointReport("local", local, here, Verdict.VALID, attempt=1, world=2, run_uid="uid-one")
            worker.inventory = (*(row for row in worker.inventory if row.tier == "shared"), own)
        w.now += 1.0
        w.work_reports_only()
    start = not_none(w.status("one").start)
    assert start.resume is not None
    if is_replaced:
        assert [entry.node for entry in w.status("one").recovery.excluded_nodes] == ["n1"]
        assert (start.resume.tier, start.resume.step) == ("shared", 100)
    else:
        assert w.status("one").recovery.excluded_nodes == ()
        assert (start.attempt, start.resume.tier, start.resume.step) == (2, "local", 100)


def test_what_a_complete_gang_waits_for_is_said() -> None:
    w = world(3)
    w.apply("one", spec(2))
    at_the_barrier(w)
    w.now += 10
    w.work()
    w.reconcile("one")
    gathering = not_none(find(w.status("one"), "GangReady"))
    assert "waits to learn more" in gathering.message


def trained(steps: int) -> World:
    """A run of two ranks that has saved, which all have seen."""
    w = world(3)
    w.roll_out("one", spec(2))
    w.train("one", steps)
    w.tell_of_save("one", steps)
    return w


def test_the_newest_checkpoint_is_read_on_the_way_to_the_barrier() -> None:
    w = trained(100)
    w.exit_child("one", 1, 1)
    w.work()
    first = not_none(w.reconcile("one").directive)
    assert first.phase is DesiredPhase.PREPARE
    assert first.verify == VerifyRequest("shared", "/shared/100", 100)
    w.work()  # all stand at the barrier …
    assert w.reconcile("one").directive == first
    w.work()  # … and have read what they were asked to
    start = not_none(w.reconcile("one").directive)
    assert start.phase is DesiredPhase.RUN
    assert start.verify is None
    assert start.start is not None
    assert start.start.resume_step == 100
    w.settle()
    assert w.directives["uid-one"] == start  # nobody is woken again


def test_another_checkpoint_than_the_one_expected_is_read_before_it_is_resumed_from() -> None:
    w = trained(100)
    w.exit_child("one", 1, 1)
    w.saved["uid-one"].append(120)  # committed at the last moment, and seen by nobody yet
    w.saved_by["uid-one", 120] = 1
    w.work()
    w.reconcile("one")
    w.work()
    second = not_none(w.reconcile("one").directive)
    assert (second.phase, second.verify) == (DesiredPhase.PREPARE, VerifyRequest("shared", "/shared/120", 120))
    w.settle()
    assert w.starts["uid-one", 2].resume_step == 120


def test_what_was_quarantined_or_lies_beyond_a_ceiling_is_not_read_in_advance() -> None:
    w = trained(100)
    view = w.runs["one"]
    for change in (
        {"quarantined": (QuarantinedCheckpoint(tier="shared", step=100, reason="NaN", time=1.0),)},
        {"ceiling": 50},
    ):
        checkpoint = changed(w.status("one").checkpoint, **change)
        w.runs["one"] = replace(view, status=changed(w.status("one"), checkpoint=checkpoint))
        builder = PlanBuilder(RunContext(w.snapshot("one"), w.tunables, w.now))
        assert gather(builder, [SlotStage(0, Stage.PREPARING, None)]).verify is None


def about_to_choose(**job: object) -> World:
    """A gang that comes back while a job to remove old checkpoints is there."""
    w = trained(100)
    w.exit_child("one", 1, 1)
    there = JobView("ns", "one-tidy", "uid", "uid-one", JobPhase.ACTIVE, removes=True)
    w.jobs["one"] = (replace(there, **job),)  # type: ignore[arg-type]
    return w


WORK = ArchiveJobStatus(name="one-tidy", action="Tidy", step=100, attempt=1, path="/shared")
BAD = QuarantinedCheckpoint(tier="shared", step=120, attempt=1, reason="NaN", time=1.0)


@pytest.mark.parametrize("idle_since", [0.0, 1.0], ids=["its pod runs", "its pod waits for room"])
@pytest.mark.parametrize("quarantined", [(), (BAD,)], ids=["takes the newest", "goes back"])
@pytest.mark.parametrize("work", [WORK, changed(WORK, action="Prune"), None], ids=["Tidy", "Prune", "forgotten"])
def test_a_gang_chooses_nothing_before_a_job_that_may_remove_it_is_gone(
    idle_since: float, quarantined: tuple[QuarantinedCheckpoint, ...], work: ArchiveJobStatus | None
) -> None:
    w = about_to_choose(idle_since=idle_since)
    checkpoint = w.status("one").checkpoint
    w.amend("one", checkpoint=changed(checkpoint, archive=ArchiveStatus(job=work), quarantined=quarantined))
    w.pass_time(30)
    assert w.status("one").state == "Recovering"
    assert "the removal of old checkpoints" in not_none(find(w.status("one"), "GangReady")).message
    assert [job.deleting for job in w.jobs["one"]] == [True]
    assert not_none(w.status("one").checkpoint.archive.job).stopped is not None, "in status before it is deleted"
    w.jobs["one"] = ()
    w.pass_time(30)
    assert w.status("one").state == "Running"
    assert w.status("one").checkpoint.archive.job is None


@pytest.mark.parametrize("deleting", [True, False], ids=["its node is cut off", "the deletion is refused"])
def test_a_job_that_does_not_end_holds_up_a_gang_for_ten_minutes_and_is_told_of(deleting: bool) -> None:
    w = about_to_choose()
    w.amend("one", checkpoint=changed(w.status("one").checkpoint, archive=ArchiveStatus(job=WORK)))
    for _ in range(20):
        w.pass_time(30, step=10)
        w.jobs["one"] = (replace(w.jobs["one"][0], deleting=deleting),)
        if w.status("one").state == "Running":
            break
    assert w.status("one").state == "Recovering"
    w.pass_time(90, step=10)
    assert w.status("one").state == "Running"
    assert "Tidy of a1/step-100 failed: its job one-tidy does not end" in w.status("one").checkpoint.archive.message


@pytest.mark.slow
def test_inventories_are_merged_only_when_something_was_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    w = trained(100)
    w.pass_time(w.tunables.progress_write_interval * 2)
    merges = []
    monkeypatch.setattr(report, "latest_valid", lambda *_: merges.append(1) or ())
    w.pass_time(w.tunables.progress_write_interval * 2)
    assert not merges
    w.tell_of_save("one", 200)
    w.pass_time(w.tunables.progress_write_interval * 2)
    assert merges
