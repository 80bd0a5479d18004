"""A name is used again to go on, mostly: step 0 beside what was saved under it is asked for, never just taken."""

import pytest
from msgspec import structs

from lockstep.core.checkpoints.previous_saves import directory_of
from lockstep.core.model.conditions import find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.worker_report import CheckpointReport, PreviousSavesReport, Verdict
from support.world import World, node, phase, spec

EARLIER = "uid-earlier"
SEEN = PreviousSavesReport(EARLIER, 40, f"/shared-checkpoints/ns/one/{EARLIER}/a1/step-40")
OLDER = PreviousSavesReport("uid-older", 10, "/shared-checkpoints/ns/one/uid-older/a1/step-10")
SHARED_TIER = {"shared": {"claimName": "lustre"}}


def gang(*seen: PreviousSavesReport, **checkpoint: object) -> World:
    w = World({f"n{index}": node(f"n{index}") for index in range(3)})
    w.previous_saves = seen
    w.apply("one", spec(2, checkpoint=SHARED_TIER | checkpoint))
    w.settle()
    return w


def test_a_run_whose_name_was_saved_under_before_asks_and_gives_its_nodes_back() -> None:
    w = gang(SEEN, OLDER)
    w.pass_time(120, step=5)
    succeeded = find(w.status("one"), "Succeeded")
    assert succeeded is not None
    assert (succeeded.status, succeeded.reason) == ("False", "PreviousSaves")
    for words in (
        "saved step 40",
        "lockstep retry one",
        "checkpoint.start: {path: ns/one/uid-earlier}",
        "lockstep retry one --fresh",
        "start.mode: Fresh",
        "checkpoint.shared.path",
    ):
        assert words in succeeded.message
    assert len(succeeded.message) < 512, "it is told whole"
    assert [(each.uid, each.step) for each in w.status("one").checkpoint.previous_saves] == [
        (EARLIER, 40),
        ("uid-older", 10),
    ]
    assert w.status("one").totals.attempts == 0
    assert not w.pods or phase(w) is Phase.FINISHED


def test_in_a_path_of_the_users_own_the_command_names_the_run_and_not_the_path() -> None:
    w = gang(PreviousSavesReport(EARLIER, 40, f"/shared-checkpoints/team/llama/{EARLIER}/a1/step-40"))
    succeeded = find(w.status("one"), "Succeeded")
    assert succeeded is not None
    assert succeeded.reason == "PreviousSaves"
    assert "lockstep retry one" in succeeded.message
    assert "checkpoint.start: {path: team/llama/uid-earlier}" in succeeded.message


def lies_there(step: int, uid: str = EARLIER, verdict: Verdict = Verdict.VALID) -> CheckpointReport:
    """In the one directory of a run with ``layout: Shared``."""
    return CheckpointReport(
        tier="shared",
        step=step,
        path=f"/shared-checkpoints/ns/one/step-{step}",
        verdict=verdict,
        format="Manifest" if uid else "TorchDCP",
        run_uid=uid,
        committed_at=1.0,
    )


def in_one_directory(*rows: CheckpointReport, **checkpoint: object) -> World:
    w = World({f"n{index}": node(f"n{index}") for index in range(3)})
    w.foreign = rows
    w.apply("one", spec(2, checkpoint=SHARED_TIER | {"layout": "Shared"} | checkpoint))
    w.settle()
    return w


@pytest.mark.parametrize("uid", [EARLIER, ""], ids=["of that run", "of a format that does not say whose it is"])
@pytest.mark.parametrize("mode", ["Auto", "Require"])
def test_where_all_attempts_save_in_one_directory_it_asks_what_becomes_of_what_lies_there(uid: str, mode: str) -> None:
    rows = lies_there(400, uid), lies_there(390, uid), lies_there(20251101, uid="")
    w = in_one_directory(*rows, start={"mode": mode})
    succeeded = find(w.status("one"), "Succeeded")
    assert succeeded is not None
    assert succeeded.reason == "PreviousSaves"
    assert "an earlier run saved step 400 in this run's path" in succeeded.message
    assert "checkpoint.start: {path: ns/one}" in succeeded.message
    assert "to go on from step 400 of an earlier run: lockstep retry one" in succeeded.message
    assert [(each.uid, each.step) for each in w.status("one").checkpoint.previous_saves] == [(uid, 400)]
    assert w.status("one").totals.attempts == 0


@pytest.mark.parametrize("verdict", [Verdict.INVALID, Verdict.UNKNOWN])
def test_what_lies_there_and_is_not_whole_is_no_reason_for_step_0_either(verdict: Verdict) -> None:
    w = in_one_directory(lies_there(400, verdict=verdict))
    w.pass_time(120, step=5)
    succeeded = find(w.status("one"), "Succeeded")
    assert succeeded is not None
    assert succeeded.reason == "NoValidCheckpoint"
    assert w.status("one").totals.attempts == 0


@pytest.mark.parametrize("mode", ["Auto", "Require"])
@pytest.mark.parametrize(
    "left",
    [
        (lies_there(400, verdict=Verdict.INVALID),),
        (lies_there(400, uid="", verdict=Verdict.UNKNOWN),),
        tuple(structs.replace(lies_there(step, "", Verdict.INVALID), committed_at=0.0) for step in (310, 400)),
    ],
    ids=["damaged", "unreadable", "never committed"],
)
def test_what_an_earlier_run_left_broken_hides_nothing_that_it_left_whole(
    left: tuple[CheckpointReport, ...], mode: str
) -> None:
    w = in_one_directory(lies_there(300), *left, start={"mode": mode})
    w.pass_time(120, step=5)
    succeeded = find(w.status("one"), "Succeeded")
    assert succeeded is not None
    assert succeeded.reason == "PreviousSaves"
    assert "to go on from step 300 of an earlier run: lockstep retry one" in succeeded.message
    assert w.status("one").totals.attempts == 0


def test_however_deep_it_lies_there_the_place_to_go_on_from_is_the_runs_own() -> None:
    path = "/shared-checkpoints/ns/one/experiment/checkpoint_2026-11-27_08-00-00.0"
    w = in_one_directory(structs.replace(lies_there(300, uid=""), path=path, format="RayTrain"))
    w.pass_time(70, step=5)
    ended = find(w.status("one"), "Finished")
    assert ended is not None
    assert ended.reason == "PreviousSaves"
    succeeded = find(w.status("one"), "Succeeded")
    assert succeeded is not None
    assert "checkpoint.start: {path: ns/one}" in succeeded.message


def test_what_a_run_itself_left_broken_is_no_earlier_ones() -> None:
    w = in_one_directory(lies_there(300), lies_there(400, uid="uid-one", verdict=Verdict.INVALID))
    w.pass_time(120, step=5)
    succeeded = find(w.status("one"), "Succeeded")
    assert succeeded is not None
    assert succeeded.reason == "NoValidCheckpoint"


def test_who_began_at_step_0_beside_them_counts_none_of_them_as_its_own() -> None:
    w = in_one_directory(lies_there(400), start={"mode": "Fresh"})
    assert phase(w) is Phase.RUNNING
    w.train("one", 10)
    w.tell_of_save("one", 10)
    w.pass_time(40, step=5)
    assert [each.step for each in w.status("one").checkpoint.latest] == [10]
    w.exit_child("one", 0, 1)
    w.pass_time(60, step=5)
    start = w.starts["uid-one", 2]
    assert start.resume_step == 10


def test_a_run_of_one_directory_whose_status_was_lost_is_known_by_what_is_its_own() -> None:
    w = in_one_directory(lies_there(400), lies_there(410, uid="uid-one"))
    assert w.starts["uid-one", 1].resume_step == 410


@pytest.mark.parametrize(
    ("seen", "checkpoint"),
    [
        ((), {}),
        ((SEEN,), {"start": {"mode": "Fresh"}}),  # that is the answer
        ((PreviousSavesReport(EARLIER, 40, "/elsewhere/step-40"),), {}),  # no directory of that run
        ((PreviousSavesReport("uid-one", 40, SEEN.path),), {}),  # its own
    ],
)
def test_without_a_question_it_begins_at_step_0(
    seen: tuple[PreviousSavesReport, ...], checkpoint: dict[str, object]
) -> None:
    w = gang(*seen, **checkpoint)
    assert phase(w) is Phase.RUNNING
    start = w.status("one").start
    assert start is not None
    assert start.resume is None


def test_a_run_that_has_begun_at_step_0_is_not_asked_any_more() -> None:
    w = gang()
    w.previous_saves = (SEEN,)
    w.exit_child("one", 0, 1)
    w.pass_time(60, step=5)
    assert w.status("one").totals.attempts > 1


def test_what_step_0_is_said_to_be_denies_nobody_elses_saves() -> None:
    assert gang().status("one").checkpoint.choice == "starts at step 0: this run has saved nothing yet"


@pytest.mark.parametrize(
    ("path", "directory"),
    [
        (SEEN.path, "ns/one/uid-earlier"),
        ("/shared-checkpoints/uid-earlier/a1/step-1", ""),
        ("/shared-checkpoints/ns/../other/uid-earlier/a1", ""),
        ("/shared-checkpoints//uid-earlier", ""),
        ("/local-checkpoints/ns/one/uid-earlier/a1", ""),
        ("", ""),
    ],
)
def test_only_a_directory_inside_the_claim_is_ever_offered(path: str, directory: str) -> None:
    assert directory_of(path, EARLIER) == directory
