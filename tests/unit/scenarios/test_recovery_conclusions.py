"""What recovery must not conclude: from reports of another attempt, of ranks that tell nothing, or of formats that do
not say whose a checkpoint is."""

from dataclasses import replace

import pytest
from msgspec import structs

from lockstep.api.base.changes import changed
from lockstep.core.accounting.book import read
from lockstep.core.checkpoints.resume import ResumeContext, ResumeKind, choose_resume
from lockstep.core.checkpoints.verdicts import Candidate, Check
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.quarantine import Save
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.snapshot import PodPhase, PodView
from lockstep.core.model.tiers import ARCHIVE, SHARED
from lockstep.core.model.worker_report import CheckpointReport, TimingReport, Verdict, WorkerPhase
from lockstep.core.run.barrier import _avoid_attempts_used_before
from support.made_once import made_once
from support.world import Worker, World, node, spec, world_with_gang


@made_once
def training(nodes: int = 2, have: int = 6, **fields: object) -> World:
    world = world_with_gang(nodes, have, **fields)
    world.train("one", 500)
    world.tell_of_save("one", 500)
    world.pass_time(40)
    return world


def test_a_run_that_was_stopping_when_its_operator_died_has_not_succeeded() -> None:
    """Its workers leave with 143: see worker/test_trouble.py."""
    world = training()
    world.listens = True
    world.saves_succeed = False
    world.apply("one", spec(2, suspend=True))
    world.reconcile("one")
    world.crash()
    for name, pod in list(world.pods.items()):
        world.workers.pop(pod.uid)
        world.pods[name] = replace(pod, phase=PodPhase.FAILED, exit_code=143, ended_at=world.now, reason="Error")
    world.now += 700
    world.leader_since = world.now
    world.settle()
    world.pass_time(60)
    assert world.status("one").state == "Suspended"


@pytest.mark.slow
def test_saving_again_after_a_quarantine_is_progress() -> None:
    world = training()
    world.train("one", 500)
    world.tell_of_save("one", 1000)
    world.pass_time(40)
    world.exit_child("one", 0, 1, stderr="RuntimeError: a")
    world.pass_time(60)
    world.exit_child("one", 0, 1, signs=("Checkpoint:Corrupt",))
    world.pass_time(60)
    resume = world.status("one").checkpoint.resume
    assert resume is not None
    assert resume.step == 500
    for failure in ("RuntimeError: b", "OSError: c", "LookupError: d", "EOFError: e"):
        world.train("one", 100)
        worker = world.worker("one", 0)
        assert worker is not None
        world.tell_of_save("one", worker.step)
        world.pass_time(40)
        world.exit_child("one", 1, 1, stderr=failure)
        world.pass_time(400)
        assert world.status("one").recovery.consecutive_no_progress == 0
    assert world.status("one").state == "Running"


@pytest.mark.slow
def test_a_writer_last_heard_of_ready_for_the_attempt_that_began_is_waited_for() -> None:
    world = training(3, 4, spareNodes=1, checkpoint={"shared": {"claimName": "l"}, "layout": "Shared"})
    world.exit_child("one", 0, 1)
    for _ in range(60):
        world.kubelets()
        start = world.status("one").start
        if start is not None and start.attempt == 2:
            break
        world.work()
        world.reconcile("one")
        world.now += 0.05
    report, worker = world.reports[world.runs["one"].uid][1], world.worker("one", 1)
    assert worker is not None
    assert (report.phase, report.ready_for) == (WorkerPhase.READY, 2)
    # START reaches it, and it is cut off before it can say so.
    worker.phase, worker.attempt, worker.start, worker.exit = WorkerPhase.RUNNING, 2, report.start, None
    worker.steps_since = world.now
    world.cut_off_node(worker.node)
    world.node_not_ready(worker.node)
    world.pass_time(240)
    start = world.status("one").start
    assert start is not None
    assert start.attempt == 3
    assert world.overlaps == []


class DcpTraining(World):
    """Workers that measure, and a format that does not say whose a checkpoint is."""

    def work(self) -> None:
        super().work()
        timing = TimingReport(section="Step", step=2.0, longest=3.0, intervals=50, save_block=40.0, persist=200.0)
        for run in self.runs.values():
            for slot, report in self.reports.get(run.uid, {}).items():
                rows = tuple(
                    CheckpointReport(SHARED, step, f"/shared/{run.uid}/a{report.attempt}/step-{step}", Verdict.VALID,
                                     format="TorchDCP", attempt=report.attempt, committed_at=self.now)
                    for step in self.saved.get(run.uid, [])[-1:]
                )  # fmt: skip
                self.reports[run.uid][slot] = replace(
                    report,
                    timing=timing,
                    inventory=tuple(structs.replace(r, run_uid="") for r in (*report.inventory, *rows)),
                )


def test_the_cost_of_saves_is_measured_whatever_the_format_says_of_its_run() -> None:
    world = DcpTraining({f"n{index}": node(f"n{index}") for index in range(4)})
    world.listens = True
    checkpoint = {"shared": {"claimName": "l"}, "cadence": {"interval": "Adaptive"}}
    world.roll_out("one", spec(2, checkpoint=checkpoint, recovery={"hangTimeout": "Disabled"}))
    for step in range(1, 5):
        world.train("one", 100)
        world.tell_of_save("one", step * 100)
        world.pass_time(200, step=20)
    book = read(world.status("one").goodput.state)
    assert book.saved_step > 0
    assert book.shared_cost is not None
    assert world.status("one").goodput.buckets.save_block > 0


@pytest.mark.parametrize(("folder", "attempt"), [("uid-one", 6), ("another", 1)])
def test_attempts_that_saved_in_a_format_without_a_run_are_not_used_again(folder: str, attempt: int) -> None:
    world = training(1, 3)
    of_another = changed(world.status("one").resolved, start_root="/shared/another")
    world.amend("one", resolved=of_another)
    uid = world.runs["one"].uid
    path = f"/shared/{folder.replace('uid-one', uid)}/a5/step-300"
    row = CheckpointReport(SHARED, 300, path, Verdict.VALID, format="TorchDCP", attempt=5)
    snapshot = world.snapshot("one")
    reports = {slot: replace(report, inventory=(row,)) for slot, report in snapshot.reports.items()}
    builder = PlanBuilder(RunContext(replace(snapshot, reports=reports), world.tunables, world.now))
    _avoid_attempts_used_before(builder)
    assert builder.status.attempt == attempt


class OneReporter(World):
    """Frameworks whose output tells steps in one rank alone."""

    def _report(self, pod: PodView, worker: Worker) -> None:
        super()._report(pod, worker)
        report = self.reports.get(pod.run_uid, {}).get(worker.slot)
        if report is not None:
            is_reporter = worker.slot == 1
            timing = (
                TimingReport(section="Step", step=1.0, longest=2.0, intervals=50) if is_reporter else TimingReport()
            )
            progress = report.progress if is_reporter else None
            self.reports[pod.run_uid][worker.slot] = replace(report, timing=timing, progress=progress)


@pytest.mark.slow
def test_a_rank_that_never_tells_steps_is_not_behind_the_one_that_does() -> None:
    world = OneReporter({f"n{index}": node(f"n{index}") for index in range(6)})
    world.roll_out("one", spec(2))
    for round_ in (1, 2):
        world.train("one", 50)
        world.tell_of_save("one", 50 * round_)
        world.pass_time(20)
        world.train("one", 50)
        world.pass_time(130, step=2)
    assert [entry.cause for entry in world.status("one").attempts[:2]] == ["Hang", "Hang"]
    assert world.status("one").recovery.excluded_nodes == ()
    assert world.status("one").recovery.first_failures == ()


def test_the_archive_s_copy_of_a_quarantined_checkpoint_is_not_fetched() -> None:
    def saved(step: int, tier: str = SHARED) -> Candidate:
        path = f"/s/u/a2/step-{step}"
        return Candidate(tier, step, path, Verdict.VALID, attempt=2, run_uid="u", load_bytes=10**12, committed=True)

    context = ResumeContext(
        attempt=4, world=4, run_uid="u", since=0, highest_step=310, step_seconds=5.0, saved_before=True,
        quarantine=frozenset({(SHARED, Save(300, 2))}),
    )  # fmt: skip
    older = saved(100)
    read_back = {(SHARED, older.path): Check(Verdict.VALID)}
    decision = choose_resume([older, saved(300), saved(300, ARCHIVE)], read_back, context, 1000.0)
    assert (decision.kind, decision.choice) == (ResumeKind.RESUME, older)
