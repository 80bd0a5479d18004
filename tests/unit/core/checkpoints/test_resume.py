"""Choosing where to resume: reference vectors, and refusals in words."""

from dataclasses import replace

import pytest

from lockstep.core.checkpoints.resume import ResumeKind, resume_seconds
from lockstep.core.checkpoints.verdicts import Candidate
from lockstep.core.model.quarantine import Save, SavesFrom
from lockstep.core.model.tiers import ARCHIVE, LOCAL, SHARED
from lockstep.core.model.worker_report import Verdict
from support.resume_candidates import AFTER_GRACE, CONTEXT, checkpoint, decide, lost


@pytest.mark.parametrize(
    ("candidates", "tier", "step", "seconds"),
    [
        ([checkpoint(LOCAL, 120)], LOCAL, 120, 3),
        ([lost(120), checkpoint(SHARED, 100)], SHARED, 100, 220),
        ([checkpoint(SHARED, 118), checkpoint(LOCAL, 110)], SHARED, 118, 40),
        ([checkpoint(SHARED, 118), checkpoint(LOCAL, 118)], LOCAL, 118, 23),
        ([checkpoint(SHARED, 100), checkpoint(LOCAL, 99)], LOCAL, 99, 213),
    ],
)
def test_the_checkpoint_that_costs_the_fewest_seconds_is_chosen(
    candidates: list[Candidate], tier: str, step: int, seconds: float
) -> None:
    decision = decide(*candidates)
    assert decision.kind is ResumeKind.RESUME
    assert decision.choice is not None
    assert (decision.choice.tier, decision.choice.step) == (tier, step)
    assert resume_seconds(decision.choice, CONTEXT) == seconds


@pytest.mark.parametrize("highest", [0, 2**53])
def test_whatever_steps_and_times_are_reported_their_cost_fits_into_status(highest: int) -> None:
    context = replace(CONTEXT, highest_step=highest, step_seconds=366 * 86_400.0)
    for step in (0, 2**53):
        assert abs(int(resume_seconds(checkpoint(SHARED, step), context))) < 2**63


def test_a_copy_in_the_archive_is_brought_back_only_where_nothing_nearer_is_cheaper() -> None:
    archived, nearer = checkpoint(ARCHIVE, 120), checkpoint(SHARED, 115)
    assert (resume_seconds(archived, CONTEXT), resume_seconds(nearer, CONTEXT)) == (100, 70)
    assert decide(archived, nearer).choice == nearer
    older = decide(archived, checkpoint(SHARED, 111))
    assert (older.kind, older.choice) == (ResumeKind.RESTORE, archived), "100 s against 110 s"
    assert "step 120 of attempt 1 (archive)" in older.message


def test_at_equal_cost_primaries_come_before_copies_and_the_archive_comes_last() -> None:
    level = {"load_bytes": 0}
    copies = checkpoint(LOCAL, 100, copies=True, **level)
    primaries = checkpoint(LOCAL, 100, path="/local/primaries", **level)
    archived = checkpoint(ARCHIVE, 100, **level)
    assert decide(archived, copies, primaries).choice == primaries
    assert decide(archived, copies).choice == copies
    assert decide(archived, copies, checkpoint(SHARED, 100, **level)).choice == checkpoint(SHARED, 100, **level)


def test_what_another_run_saved_counts_where_the_spec_says_to_start_from_it_and_step_0_does_not() -> None:
    theirs = checkpoint(SHARED, 500, run_uid="other")
    origin = {"origin": "run llama", "saved_before": False}
    chosen = decide(theirs, **origin)
    assert (chosen.kind, chosen.choice) == (ResumeKind.RESUME, theirs)
    assert chosen.message == "resumes from step 500 of attempt 1 (shared) of run llama"
    torn = decide(replace(theirs, verdict=Verdict.INVALID, reason="torn"), **origin)
    assert (torn.kind, torn.reason) == (ResumeKind.BLOCKED, "NoStartCheckpoint")
    assert torn.message.endswith("torn")
    assert decide(**origin).kind is ResumeKind.WAIT
    assert decide(**origin, now=AFTER_GRACE).kind is ResumeKind.BLOCKED


def test_at_equal_seconds_the_higher_step_wins_then_the_shared_tier_then_the_later_attempt() -> None:
    level = {"load_bytes": 0}
    cheap, older = checkpoint(SHARED, 100, load_bytes=500_000_000_000), checkpoint(SHARED, 99, **level)
    assert decide(cheap, older).choice == cheap, "10 s to load against 10 s to repeat a step"
    shared, local = checkpoint(SHARED, 100, **level), checkpoint(LOCAL, 100, **level)
    assert decide(local, shared).choice == shared
    again = checkpoint(SHARED, 100, attempt=2, path="/shared/a2/step-100", **level)
    assert decide(shared, again).choice == again


def test_a_quarantined_pair_and_an_unknown_one_are_passed_over_after_one_bounded_wait() -> None:
    candidates = (
        checkpoint(LOCAL, 120),
        checkpoint(SHARED, 100, Verdict.UNKNOWN, reason="Stale file handle (rank 2 on gpu-2)"),
        checkpoint(SHARED, 90),
    )
    quarantine = frozenset({(LOCAL, Save(120))})
    waiting = decide(*candidates, quarantine=quarantine)
    assert (waiting.kind, waiting.wait_until) == (ResumeKind.WAIT, AFTER_GRACE)
    assert "Stale file handle (rank 2 on gpu-2)" in waiting.message
    decision = decide(*candidates, quarantine=quarantine, now=AFTER_GRACE)
    assert decision.kind is ResumeKind.RESUME
    assert decision.choice == candidates[2]
    assert resume_seconds(candidates[2], CONTEXT) == 320
    assert [(each.candidate.step, each.reason) for each in decision.rejected] == [
        (120, "is quarantined: training failed soon after it was loaded"),
        (100, "could not be judged within 60 s: Stale file handle (rank 2 on gpu-2)"),
    ]


@pytest.mark.parametrize(
    ("bad", "resaved", "chosen"),
    [
        (Save(110, 1), 3, (110, 3)),
        (Save(110, 3), 3, (110, 1)),
        (Save(110), 3, (100, 1)),  # as statuses of older operators have it: whoever saved it
        (Save(110, 1), 0, (100, 1)),  # by whom cannot be told
        (Save(100, 1), 3, (110, 3)),
    ],
)
def test_a_quarantined_step_is_resumed_from_once_another_attempt_has_saved_it_anew(
    bad: Save, resaved: int, chosen: tuple[int, int]
) -> None:
    again = checkpoint(SHARED, 110, attempt=resaved, path=f"/shared/a{resaved}/step-110")
    decision = decide(
        checkpoint(SHARED, 100),
        checkpoint(SHARED, 110),
        again,
        quarantine=frozenset({(SHARED, bad), (LOCAL, Save(110))}),
    )
    assert decision.choice is not None
    assert (decision.choice.step, decision.choice.attempt) == chosen


@pytest.mark.parametrize(
    ("candidate", "changes", "reason"),
    [
        (checkpoint(SHARED, 110, Verdict.INVALID), {}, "manifest.json is missing"),
        (checkpoint(SHARED, 110, run_uid="other"), {}, "belongs to another run (UID other)"),
        (checkpoint(SHARED, 110, world=8), {}, "was saved by 8 nodes and cannot be loaded by 16"),
        (checkpoint(SHARED, 110), {"ceiling": 105}, "is newer than step 105, to which the run rolls back"),
        (
            checkpoint(SHARED, 110),
            {"quarantine": frozenset({(SHARED, Save(110, 1))})},
            "is quarantined: training failed soon after it was loaded",
        ),
        (
            checkpoint(ARCHIVE, 110),
            {"quarantine": frozenset({(SHARED, SavesFrom(105, 1))})},
            "was saved after training had gone wrong, at step 105",
        ),
        (lost(110), {}, "rank 3's shard was on gpu-7, which is lost"),
    ],
)
def test_what_cannot_be_resumed_is_rejected_in_words(
    candidate: Candidate, changes: dict[str, object], reason: str
) -> None:
    older = checkpoint(SHARED, 100)
    decision = decide(candidate, older, **changes)
    assert decision.choice == older
    assert [(each.candidate, each.reason) for each in decision.rejected] == [(candidate, reason)]


def test_a_checkpoint_that_can_be_resharded_may_come_from_another_number_of_nodes() -> None:
    sharded = checkpoint(SHARED, 110, world=8, format="TorchDCP")
    assert decide(sharded).choice == sharded


def test_a_shard_on_a_node_s_own_disk_is_never_resharded() -> None:
    decision = decide(checkpoint(LOCAL, 110, format="TorchDCP", world=8), checkpoint(SHARED, 100), now=AFTER_GRACE)
    assert decision.choice is not None
    assert decision.choice.step == 100
    assert "was saved by 8 nodes and cannot be loaded by 16" in decision.rejected[0].reason


def test_a_format_that_does_not_name_run_and_world_is_taken_at_its_place() -> None:
    silent = checkpoint(SHARED, 110, world=0, run_uid="", format="TorchDCP")
    assert decide(silent).choice == silent


def test_only_what_would_have_been_better_is_told_newest_first_and_at_most_eight() -> None:
    torn = [checkpoint(SHARED, step, Verdict.INVALID) for step in range(80, 120)]
    decision = decide(*torn, checkpoint(SHARED, 100))
    assert [each.candidate.step for each in decision.rejected] == [119, 118, 117, 116, 115, 114, 113, 112]
    assert decide(*torn, checkpoint(SHARED, 117)).rejected[-1].candidate.step == 118


@pytest.mark.parametrize(
    ("steps", "form", "reached", "chosen"),
    [
        ([110, 20251101], "TorchDCP", 120, 110),
        ([110, 20251101], "TorchDCP", 0, 110),
        ([110, 20251101], "HuggingFace", 120, 20251101),  # which says so itself
        ([110, 1200], "TorchDCP", 120, 1200),  # so many may have gone unreported
        ([1_000_000, 2_000_000], "TorchDCP", 120, 2_000_000),  # a program that counts samples in its names
    ],
)
@pytest.mark.parametrize("origin", ["", "base"])
def test_a_step_that_a_name_alone_says_is_believed_within_what_was_reported(
    steps: list[int], form: str, reached: int, chosen: int, origin: str
) -> None:
    found = [checkpoint(SHARED, step, format=form) for step in steps]
    decision = decide(*found, reached=reached, origin=origin)
    assert decision.choice is not None
    assert decision.choice.step == chosen
    if chosen == 110:
        (rejected,) = decision.rejected
        assert "is called step 20251101, " in rejected.reason
        assert rejected.reason.endswith("that number is no step")


def test_without_a_known_step_time_the_newer_step_wins_over_the_faster_tier() -> None:
    assert decide(checkpoint(SHARED, 110), checkpoint(LOCAL, 100), step_seconds=0.0).choice == checkpoint(SHARED, 110)


def test_a_step_that_was_saved_before_it_was_reported_costs_no_less_than_nothing() -> None:
    ahead = checkpoint(LOCAL, 130)
    decision = decide(ahead, checkpoint(SHARED, 125))
    assert decision.choice == ahead
    assert decision.seconds == 0.0
    passed_over = decide(checkpoint(LOCAL, 140, Verdict.INVALID), ahead).rejected
    assert [each.seconds for each in passed_over] == [0.0]
