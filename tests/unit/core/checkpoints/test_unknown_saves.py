"""That nothing is recognised is no evidence that nothing was saved: what may be a save speaks against step 0."""

from dataclasses import replace

import pytest
from msgspec import structs

from lockstep.api.checkpoint_status import UnrecognisedSave
from lockstep.core.checkpoints.checkpoint_record import record_unrecognised
from lockstep.core.checkpoints.unknown_saves import MANY_STEPS, MOST, named, report_unknown_saves, unknown_saves
from lockstep.core.checkpoints.verdicts import Candidate, RankView
from lockstep.core.model.conditions import find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import Plan
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.worker_report import CheckpointReport, UnrecognisedReport, Verdict, WorkerPhase, WorkerReport
from lockstep.present.explanation import sentences
from support.world import World, node, phase, spec

SHARED_TIER = {"shared": {"claimName": "lustre"}}
FOUND = UnrecognisedReport("shared", "/shared/ns/one/u/a1/ckpt_30.pt", 1, "no format that Lockstep knows")
BESIDE = UnrecognisedReport("shared", "/shared/out/model.pt", 0, "no format that Lockstep knows")
KNOWN = UnrecognisedSave(tier="shared", path=BESIDE.path)


def gang(**checkpoint: object) -> World:
    w = World({f"n{index}": node(f"n{index}") for index in range(3)})
    w.apply("one", spec(2, checkpoint=SHARED_TIER | checkpoint))
    w.settle()
    w.train("one", 35)
    w.saved.clear()
    return w


def test_the_first_save_that_no_format_knows_is_told_while_the_program_trains() -> None:
    w = gang()
    w.unrecognised = (FOUND,)
    w.work()
    plan = w.reconcile("one")
    (event,) = [event for event in plan.events if event.reason == "UnknownSaves"]
    assert event.type == "Warning"
    assert "a1/ckpt_30.pt (no format that Lockstep knows)" in event.note
    assert "checkpoint.format" in event.note
    assert "manifest.json" in event.note
    assert "start.mode: Fresh" in event.note
    assert [each.path for each in w.status("one").checkpoint.unrecognised] == [FOUND.path]
    assert any("a1/ckpt_30.pt" in words for words in sentences(w.runs["one"], None, w.now))
    assert not [event for event in w.reconcile("one").events if event.reason == "UnknownSaves"], "told once"


def test_after_a_failure_such_saves_block_step_0_with_their_names_and_the_remedies() -> None:
    w = gang()
    w.unrecognised = (FOUND,)
    w.work()
    w.exit_child("one", 0, 1)
    w.pass_time(120, step=5)
    succeeded = find(w.status("one"), "Succeeded")
    assert succeeded is not None
    assert (succeeded.status, succeeded.reason) == ("False", "UnknownSaves")
    assert "a1/ckpt_30.pt" in succeeded.message
    assert "checkpoint.format" in succeeded.message
    assert "to go on from what is there: lockstep retry one -f FILE" in succeeded.message
    assert "to begin at step 0: lockstep retry one --fresh" in succeeded.message
    assert w.status("one").totals.attempts == 1


@pytest.mark.parametrize(("steps", "told"), [(35, "the steps up to 35 are"), (0, "what was done before is")])
def test_another_attempt_at_step_0_is_no_matter_of_course(
    steps: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = World({f"n{index}": node(f"n{index}") for index in range(3)})
    plans: list[Plan] = []
    reconcile = w.reconcile
    monkeypatch.setattr(w, "reconcile", lambda name: plans.append(reconcile(name)))
    w.apply("one", spec(2, checkpoint=SHARED_TIER))
    w.settle()
    if steps:
        w.train("one", steps)
        w.saved.clear()
    w.exit_child("one", 0, 1)
    w.pass_time(120, step=5)
    assert w.status("one").totals.attempts == 2
    events = [each for plan in plans for each in plan.events]
    first, second = (each for each in events if each.reason == "Started")
    assert (first.type, second.type) == ("Normal", "Warning")
    assert second.note.endswith(f"this run has saved nothing yet, and {told} done again")


@pytest.mark.parametrize(
    ("seen", "attempts"),
    [
        (None, 2),  # a worker of the release before says nothing: as it was
        ((), 2),
        ((BESIDE,), 1),  # told while it trained: the program wrote it
    ],
)
def test_an_honest_restart_is_not_blocked(seen: tuple[UnrecognisedReport, ...] | None, attempts: int) -> None:
    w = gang()
    w.unrecognised = seen
    w.work()
    w.reconcile("one")
    w.exit_child("one", 0, 1)
    w.pass_time(120, step=5)
    assert w.status("one").totals.attempts == attempts


BASE = CheckpointReport(
    tier="shared", step=7, path="/shared-checkpoints/base/llama/step-7", verdict=Verdict.VALID, committed_at=1.0
)


def from_a_base(layout: str = "PerAttempt") -> World:
    """A gang that trains, from a checkpoint that is none of its own."""
    w = World({f"n{index}": node(f"n{index}") for index in range(3)})
    w.foreign = (BASE,)
    w.unrecognised = ()
    w.apply("one", spec(2, checkpoint=SHARED_TIER | {"start": {"path": "base/llama"}, "layout": layout}))
    w.settle()
    assert w.starts["uid-one", 1].resume_step == 7
    w.train("one", 35)
    w.saved.clear()
    return w


@pytest.mark.parametrize("layout", ["PerAttempt", "Shared"])
def test_such_saves_block_another_start_from_a_base_as_they_block_step_0(layout: str) -> None:
    w = from_a_base(layout)
    w.unrecognised = (BESIDE,)
    w.work()
    assert [event.reason for event in w.reconcile("one").events] == ["UnknownSaves"]
    w.exit_child("one", 0, 1)
    w.pass_time(240, step=5)
    succeeded = find(w.status("one"), "Succeeded")
    assert succeeded is not None
    assert (succeeded.status, succeeded.reason) == ("False", "UnknownSaves")
    assert w.status("one").totals.attempts == 1


@pytest.mark.parametrize(("newer", "kind"), [(None, "Warning"), (40, "Normal")])
def test_another_attempt_from_the_same_base_is_no_matter_of_course_either(
    newer: int | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = from_a_base()
    plans: list[Plan] = []
    reconcile = w.reconcile
    monkeypatch.setattr(w, "reconcile", lambda name: plans.append(reconcile(name)))
    if newer is not None:  # the program goes on where it began, in a format that is known
        w.foreign += (structs.replace(BASE, step=newer, path=f"/shared-checkpoints/base/llama/step-{newer}"),)
    w.exit_child("one", 0, 1)
    w.pass_time(120, step=5)
    (started,) = [each for plan in plans for each in plan.events if each.reason == "Started"]
    assert started.type == kind
    assert started.note.endswith("and the steps up to 42 are done again") is (newer is None)


def seen_at_the_end(w: World, layout: str = "PerAttempt", **change: object) -> None:
    """A gang is stopped, and then makes the first save that its workers tell of."""
    w.apply("one", spec(2, checkpoint=SHARED_TIER | {"layout": layout}, **change))
    w.reconcile("one")
    assert phase(w) is Phase.STOPPING
    w.unrecognised = (BESIDE,)
    w.settle()


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("layout", ["PerAttempt", "Shared"])
def test_a_save_that_is_made_for_a_stop_is_told_and_blocks_step_0_afterwards(layout: str, listens: bool) -> None:
    w = gang(layout=layout)
    w.listens, w.saves_succeed = listens, False
    w.work()
    seen_at_the_end(w, layout, suspend=True)
    w.pass_time(400, step=5)
    assert phase(w) is Phase.SUSPENDED
    assert [each.path for each in w.status("one").checkpoint.unrecognised] == [BESIDE.path]
    w.roll_out("one", spec(2, checkpoint=SHARED_TIER | {"layout": layout}))
    w.pass_time(120, step=5)
    succeeded = find(w.status("one"), "Succeeded")
    assert succeeded is not None
    assert (succeeded.status, succeeded.reason) == ("False", "UnknownSaves")


def test_whoever_ends_for_good_with_such_a_save_is_told_of_it_in_its_last_words() -> None:
    w = gang()
    seen_at_the_end(w, cancel=True)
    assert phase(w) is Phase.FINISHED
    assert [each.path for each in w.status("one").checkpoint.unrecognised] == [BESIDE.path]


@pytest.mark.parametrize(("change", "end"), [({"suspend": True}, Phase.SUSPENDED), ({"cancel": True}, Phase.FINISHED)])
def test_what_a_worker_says_as_its_pod_goes_still_counts(change: dict[str, bool], end: Phase) -> None:
    w = gang()
    w.roll_out("one", spec(2, checkpoint=SHARED_TIER, **change))
    assert phase(w) is end
    w.reports["uid-one"][0] = replace(w.reports["uid-one"][0], unrecognised=(BESIDE,))
    (event,) = [event for event in w.reconcile("one").events if event.reason == "UnknownSaves"]
    assert ("start.mode: Fresh" in event.note) is (end is Phase.SUSPENDED), "who has ended takes no change any more"
    assert [each.path for each in w.status("one").checkpoint.unrecognised] == [BESIDE.path]


def test_what_a_program_exports_as_it_comes_to_its_end_is_no_save_that_went_wrong() -> None:
    w = gang()
    for rank in range(2):
        w.exit_child("one", rank, 0)
    w.settle()
    assert phase(w) is Phase.FINISHED
    w.reports["uid-one"][0] = replace(w.reports["uid-one"][0], unrecognised=(BESIDE,))
    assert not w.reconcile("one").events
    assert not w.status("one").checkpoint.unrecognised


def test_with_start_mode_fresh_the_next_attempt_starts_at_step_0_all_the_same() -> None:
    w = gang(start={"mode": "Fresh"})
    w.unrecognised = (FOUND,)
    w.work()
    w.exit_child("one", 0, 1)
    w.pass_time(120, step=5)
    assert w.status("one").totals.attempts == 2


def test_once_something_valid_is_saved_the_others_are_of_no_interest() -> None:
    w = gang()
    w.unrecognised = (FOUND,)
    w.work()
    w.reconcile("one")
    assert w.status("one").checkpoint.unrecognised
    w.saved["uid-one"] = [35]
    w.tell_of_save("one", 35)
    w.pass_time(60, step=5)
    assert not w.status("one").checkpoint.unrecognised
    w.exit_child("one", 0, 1)
    w.pass_time(120, step=5)
    assert w.status("one").totals.attempts == 2


def test_status_keeps_the_first_few_however_many_there_are() -> None:
    w = gang()
    w.unrecognised = tuple(replace_path(FOUND, f"/shared/u/a1/ckpt_{step}.pt") for step in range(8))
    w.work()
    w.reconcile("one")
    kept = w.status("one").checkpoint.unrecognised
    assert len(kept) == MOST
    w.unrecognised = tuple(replace_path(FOUND, f"/shared/u/a1/other_{step}.pt") for step in range(8))
    w.work()
    w.reconcile("one")
    assert w.status("one").checkpoint.unrecognised == kept


def replace_path(row: UnrecognisedReport, path: str) -> UnrecognisedReport:
    return UnrecognisedReport(row.tier, path, row.attempt, row.reason)


def view(*told: tuple[UnrecognisedReport, ...] | None) -> RankView:
    reports = {
        rank: WorkerReport(rank, 1, f"p{rank}", f"n{rank}", WorkerPhase.READY, 0.0, unrecognised=rows)
        for rank, rows in enumerate(told)
    }
    return RankView(nodes=tuple(f"n{rank}" for rank in reports), reports=reports)


@pytest.mark.parametrize(
    ("told", "known", "paths"),
    [
        ([(FOUND,), ()], (), [FOUND.path]),
        ([(FOUND,), (FOUND,)], (), [FOUND.path]),
        ([(BESIDE,), ()], (), []),  # somebody else may have put it there
        ([(BESIDE,), ()], (KNOWN,), [BESIDE.path]),
        ([(), ()], (KNOWN,), []),  # it was removed
        ([None, ()], (KNOWN,), [BESIDE.path]),  # nobody says that it was
        ([(), ()], (UnrecognisedSave(tier="local", path="/local/a1/x.pt"),), ["/local/a1/x.pt"]),
    ],
)
def test_what_counts_is_of_an_attempt_or_was_told_while_one_ran(
    told: list[tuple[UnrecognisedReport, ...] | None], known: tuple[UnrecognisedSave, ...], paths: list[str]
) -> None:
    w = gang()
    status = record_unrecognised(w.status("one"), known)
    assert [each.path for each in unknown_saves(view(*told), status, [], 35)] == paths


def begun(step: int, attempt: int = 1, **changes: object) -> Candidate:
    lacking = "no trainer_state.json: it was never committed"
    found = Candidate(
        "shared", step, f"/shared/a{attempt}/checkpoint-{step}", Verdict.INVALID, lacking, "HuggingFace", attempt
    )
    return replace(found, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("candidates", "highest", "steps"),
    [
        ([begun(30)], 35, []),  # cut off: as any failure may do it
        ([begun(30), begun(30, 2)], 35, []),  # in each attempt
        ([begun(10), begun(20), begun(30)], 35, [20, 10]),  # the program went on after two of them
        ([begun(10)], 10 + MANY_STEPS, [10]),
        ([begun(10), begun(11)], 11, []),  # ranks that lost one another, each at its step
        ([begun(10, format=""), begun(20, format="")], 25, []),  # numbered directories of logs
        ([begun(10, committed=True), begun(20)], 25, []),  # counts as saved anyway
        ([begun(10, lacking=True), begun(20)], 25, []),
        ([begun(10, verdict=Verdict.VALID), begun(20)], 25, []),
    ],
)
def test_a_save_that_was_never_committed_counts_where_the_program_went_on(
    candidates: list[Candidate], highest: int, steps: list[int]
) -> None:
    found = unknown_saves(view((), ()), gang().status("one"), candidates, highest)
    assert [each.path.rpartition("-")[2] for each in found] == list(map(str, steps))


def test_names_are_bounded_however_long() -> None:
    many = [UnrecognisedSave(tier="shared", path="/x" * 256, reason="r" * 256) for _ in range(9)]
    assert len(named(many)) < 600
    assert named(many).endswith("and 7 more")


def fresh(*seen: UnrecognisedReport) -> World:
    """A run that starts where something lies already."""
    w = World({f"n{index}": node(f"n{index}") for index in range(3)})
    w.unrecognised = seen
    w.apply("one", spec(2, checkpoint=SHARED_TIER))
    return w


def test_weights_that_an_earlier_run_with_the_same_path_exported_do_not_block_step_0() -> None:
    w = fresh(BESIDE)
    for _ in range(8):  # ranks arrive one after the other
        w.kubelets()
        w.work()
        w.reconcile("one")
        w.admit()
        if w.status("one").start is not None:
            w.unrecognised = ()  # the program has written nothing since
    w.settle()
    assert w.status("one").totals.attempts == 1
    assert not w.status("one").checkpoint.unrecognised
    w.exit_child("one", 0, 1)
    w.pass_time(120, step=5)
    assert w.status("one").totals.attempts == 2
    assert not w.status("one").checkpoint.unrecognised


@pytest.mark.parametrize(
    ("row", "attempt", "ready_for", "counts"),
    [
        (FOUND, 0, 1, True),  # in its own attempt's directory, whoever sees it
        (BESIDE, 0, 0, False),
        (BESIDE, 0, 1, False),
        (BESIDE, 1, 0, True),  # written while attempt 1 ran
        (BESIDE, 1, 2, False),  # on the way to attempt 2
    ],
)
def test_what_lies_where_others_may_write_counts_while_the_program_runs(
    row: UnrecognisedReport, attempt: int, ready_for: int, counts: bool
) -> None:
    w = gang()
    plan = w.plan("one")
    reports = {
        slot: replace(report, attempt=attempt, ready_for=ready_for, unrecognised=(row,))
        for slot, report in plan.snapshot.reports.items()
    }
    plan = PlanBuilder(replace(plan.context, snapshot=replace(plan.snapshot, reports=reports)))
    report_unknown_saves(plan)
    assert bool(plan.status.checkpoint.unrecognised) is counts
