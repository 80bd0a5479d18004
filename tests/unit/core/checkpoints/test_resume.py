"""Choosing where to resume: reference vectors, refusals in words, bounded waits, and invariants."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.checkpoints.resume import (
    COPY_GRACE,
    ResumeContext,
    ResumeDecision,
    ResumeKind,
    choose_resume,
    resume_seconds,
)
from lockstep.core.checkpoints.verdicts import Candidate, Check
from lockstep.core.model.plan import VerifyRequest
from lockstep.core.model.quarantine import Save, SavesFrom
from lockstep.core.model.tiers import ARCHIVE, LOCAL, SHARED
from lockstep.core.model.worker_report import Verdict

UID = "uid-of-run"
# Loads take 3 s from the local tier, 20 s from the shared one and 100 s from the archive, steps 10 s, and step 120 was
# reached.
LOAD_BYTES = {LOCAL: 15_000_000_000, SHARED: 1_000_000_000_000, ARCHIVE: 1_000_000_000_000}
CONTEXT = ResumeContext(
    attempt=2,
    world=16,
    run_uid=UID,
    since=1_000.0,
    highest_step=120,
    reached=120,
    step_seconds=10.0,
    saved_before=True,
)
DURING_GRACE = 1_030.0
AFTER_GRACE = 1_060.0


def checkpoint(tier: str, step: int, verdict: Verdict = Verdict.VALID, **changes: object) -> Candidate:
    candidate = Candidate(
        tier=tier,
        step=step,
        path=f"/{tier}/a1/step-{step}",
        verdict=verdict,
        reason="" if verdict is Verdict.VALID else "manifest.json is missing",
        format="Manifest",
        attempt=1,
        world=16,
        run_uid=UID,
        load_bytes=LOAD_BYTES[tier],
        committed=verdict is Verdict.VALID,
    )
    return replace(candidate, **changes)  # type: ignore[arg-type]


def all_read(*candidates: Candidate) -> dict[tuple[str, str], Check]:
    return {(each.tier, each.path): Check(Verdict.VALID) for each in candidates}


def decide(*candidates: Candidate, now: float = DURING_GRACE, **changes: object) -> ResumeDecision:
    """The decision once every candidate's bytes were read and are right."""
    context = replace(CONTEXT, **changes)  # type: ignore[arg-type]
    return choose_resume(candidates, all_read(*candidates), context, now)


def lost(step: int) -> Candidate:
    return checkpoint(LOCAL, step, Verdict.INVALID, reason="rank 3's shard was on gpu-7, which is lost")


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


def test_an_unknown_checkpoint_that_would_not_be_chosen_is_not_waited_for() -> None:
    decision = decide(checkpoint(SHARED, 100), checkpoint(SHARED, 90, Verdict.UNKNOWN))
    assert (decision.kind, decision.rejected) == (ResumeKind.RESUME, ())


@pytest.mark.parametrize("verdict", [Verdict.UNKNOWN, Verdict.INVALID])
def test_ranks_that_looked_before_the_newest_save_was_whole_look_again_and_are_waited_for(verdict: Verdict) -> None:
    newest = checkpoint(SHARED, 100, verdict, reason="not seen by rank 3 on gpu-3", look_again=(3,))
    waiting = decide(newest, checkpoint(SHARED, 90))
    assert (waiting.kind, waiting.look_again, waiting.wait_until) == (ResumeKind.WAIT, (3,), AFTER_GRACE)
    assert decide(checkpoint(SHARED, 100), checkpoint(SHARED, 90)).choice == checkpoint(SHARED, 100), "it was whole"
    in_vain = decide(newest, checkpoint(SHARED, 90), now=AFTER_GRACE)
    assert (in_vain.choice, in_vain.look_again) == (checkpoint(SHARED, 90), ())
    assert decide(checkpoint(SHARED, 110), newest).kind is ResumeKind.RESUME, "it would not be chosen"


def test_while_waiting_the_best_known_one_is_read_already() -> None:
    best = checkpoint(SHARED, 90)
    waiting = choose_resume([best, checkpoint(SHARED, 100, Verdict.UNKNOWN)], {}, CONTEXT, DURING_GRACE)
    assert waiting.kind is ResumeKind.WAIT
    assert waiting.verify == VerifyRequest(SHARED, best.path, 90)


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


def test_where_everything_was_saved_after_training_went_wrong_it_is_said_so() -> None:
    decision = decide(checkpoint(SHARED, 120), checkpoint(SHARED, 110), ceiling=99)
    assert (decision.kind, decision.reason) == (ResumeKind.BLOCKED, "NothingToGoBackTo")
    assert "went wrong after step 99" in decision.message
    assert "from step 110 on" in decision.message
    torn = decide(checkpoint(SHARED, 90, Verdict.INVALID), ceiling=99)
    assert torn.reason == "NoValidCheckpoint"


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({}, 108),
        ({"mode": "Fresh"}, 108),
        ({"mode": "Require"}, 108),
        ({"diverged_from": 108}, None),
        ({"diverged_from": 0}, None),
        ({"diverged_from": 0, "diverged_attempt": 1}, 115),
        ({"quarantine": frozenset({(SHARED, Save(108, 1))})}, 109),
        ({"quarantine": frozenset({(SHARED, Save(108, 1)), (SHARED, Save(109, 1))})}, None),
    ],
)
def test_where_nothing_is_left_up_to_the_ceiling_the_oldest_of_before_it_went_wrong_is_gone_back_to(
    changes: dict[str, object], step: int | None
) -> None:
    found = [checkpoint(SHARED, each) for each in (120, 110, 109, 108)]
    found += [checkpoint(SHARED, 115, attempt=2), checkpoint(SHARED, 90, Verdict.INVALID)]
    decision = decide(*found, **{"ceiling": 99, "diverged_from": 110} | changes)
    assert (decision.choice and decision.choice.step) == step
    if step is None:
        assert decision.reason == "NothingToGoBackTo"
    else:
        assert decision.kind is ResumeKind.RESUME
        assert decision.message.endswith(", as nothing that was saved up to step 99 is left")


def test_what_is_gone_back_to_instead_is_read_first_and_passed_over_where_that_fails() -> None:
    older, newer = checkpoint(SHARED, 108), checkpoint(SHARED, 109)
    context = replace(CONTEXT, ceiling=99, diverged_from=110)
    first = choose_resume([older, newer], {}, context, DURING_GRACE)
    assert (first.kind, first.choice) == (ResumeKind.VERIFY, older)
    checks = {(SHARED, older.path): Check(Verdict.INVALID, "torn")}
    second = choose_resume([older, newer], checks, context, DURING_GRACE)
    assert (second.kind, second.choice) == (ResumeKind.VERIFY, newer)


def test_what_went_wrong_is_not_gone_back_to_for_one_that_was_saved_since_and_cannot_be_read() -> None:
    wrong, since = checkpoint(SHARED, 110), checkpoint(SHARED, 115, attempt=2)
    context = replace(CONTEXT, ceiling=99, diverged_from=100, diverged_attempt=1)
    checks = {(SHARED, wrong.path): Check(Verdict.VALID, "")}
    assert choose_resume([wrong, since], checks, context, 1e9).kind is ResumeKind.BLOCKED


@pytest.mark.parametrize(
    "changes", [{"ceiling": 99}, {"quarantine": frozenset({(SHARED, Save(120, 1)), (SHARED, Save(110, 1))})}]
)
def test_before_a_run_ends_as_what_is_seen_may_not_be_chosen_ranks_look_for_older_ones(
    changes: dict[str, object],
) -> None:
    found = [checkpoint(SHARED, 120), checkpoint(SHARED, 110)]
    decision = decide(*found, may_see_more=(0, 3), **changes)
    assert (decision.kind, decision.look_again) == (ResumeKind.WAIT, (0, 3))
    assert decide(*found, may_see_more=(0, 3), now=AFTER_GRACE, **changes).kind is ResumeKind.BLOCKED
    assert decide(*found, **changes).kind is ResumeKind.BLOCKED, "they have looked"
    assert decide(*found, checkpoint(SHARED, 95), may_see_more=(0, 3), **changes).kind is ResumeKind.RESUME


@pytest.mark.parametrize(("ceiling", "step"), [(110, 110), (109, 100)])
def test_the_step_that_a_run_rolls_back_to_may_itself_be_resumed_from(ceiling: int, step: int) -> None:
    decision = decide(checkpoint(SHARED, 110), checkpoint(SHARED, 100), ceiling=ceiling)
    assert decision.choice is not None
    assert decision.choice.step == step


@pytest.mark.parametrize(
    ("candidates", "changes", "worlds"),
    [
        ([checkpoint(SHARED, 100, world=8), checkpoint(SHARED, 110, world=4)], {}, (4, 8)),
        ([checkpoint(SHARED, 100, world=8), checkpoint(SHARED, 110, world=8)], {}, (8,)),
        ([checkpoint(ARCHIVE, 100, world=8)], {}, (8,)),
        ([checkpoint(SHARED, 100, world=8, run_uid="uid-one")], {"origin": "run one"}, (8,)),
        ([checkpoint(SHARED, 100, world=8, run_uid="uid-one")], {}, ()),
        ([checkpoint(SHARED, 100, world=8), checkpoint(SHARED, 110, world=4)], {"ceiling": 105}, (8,)),
        ([checkpoint(SHARED, 100, world=8)], {"quarantine": frozenset({(SHARED, Save(100, 1))})}, ()),
        ([checkpoint(SHARED, 100, Verdict.INVALID, world=8)], {}, ()),
        ([checkpoint(SHARED, 100, Verdict.UNKNOWN, world=8)], {}, ()),
        ([checkpoint(SHARED, 100, world=8)], {"mode": "Fresh"}, (8,)),
        ([checkpoint(SHARED, 100, world=8)], {"mode": "Fresh", "attempt": 1}, ()),
        ([checkpoint(SHARED, 110, world=8), checkpoint(SHARED, 100)], {}, ()),  # there is one that it can load
    ],
)
def test_where_nothing_can_be_loaded_it_is_told_how_many_nodes_could_load_something(
    candidates: list[Candidate], changes: dict[str, object], worlds: tuple[int, ...]
) -> None:
    assert decide(*candidates, now=AFTER_GRACE, **changes).worlds == worlds


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


def test_a_copy_without_its_times_is_waited_for_until_somebody_says_what_it_is() -> None:
    words = "changed after its commit; all else is right, as of a copy: touch .metadata, or accept it"
    copy = checkpoint(SHARED, 110, Verdict.UNKNOWN, reason=words, as_copied=True)
    begins = {"origin": "base", "saved_before": False}
    waiting = decide(copy, now=CONTEXT.since + COPY_GRACE - 1.0, **begins)
    assert (waiting.kind, waiting.wait_until) == (ResumeKind.WAIT, CONTEXT.since + COPY_GRACE)
    assert words in waiting.message
    ended = decide(copy, now=CONTEXT.since + COPY_GRACE, **begins)
    assert (ended.kind, ended.reason) == (ResumeKind.BLOCKED, "NoStartCheckpoint")
    assert words in ended.message
    whole = checkpoint(SHARED, 100)
    assert decide(copy, whole, now=AFTER_GRACE, **begins).choice == whole, "the others wait for nobody"


def test_where_only_times_speak_against_its_own_saves_the_end_says_what_to_do() -> None:
    words = "changed after its commit; all else is right: touch .metadata, or accept it (checkpoint.trustTimes: false)"
    copy = checkpoint(SHARED, 110, Verdict.INVALID, reason=words, as_copied=True, committed=True)
    ended = decide(copy, saved_before=False)
    assert (ended.kind, ended.reason) == (ResumeKind.BLOCKED, "NoValidCheckpoint")
    assert words in ended.message


def test_with_nothing_ever_saved_the_run_starts_fresh() -> None:
    decision = decide(saved_before=False)
    assert (decision.kind, decision.reason) == (ResumeKind.FRESH, "NothingSaved")


def test_a_torn_first_checkpoint_does_not_keep_the_run_from_starting_fresh_and_is_told() -> None:
    torn = checkpoint(SHARED, 10, Verdict.INVALID)
    decision = decide(torn, saved_before=False)
    assert decision.kind is ResumeKind.FRESH
    assert [each.candidate for each in decision.rejected] == [torn]
    assert "step 10 of attempt 1 (shared): manifest.json is missing" in decision.message


@pytest.mark.parametrize(
    ("candidates", "saved_before"),
    [
        ([], True),
        ([lost(110)], True),
        ([checkpoint(SHARED, 110, Verdict.INVALID, committed=True)], False),
        ([checkpoint(SHARED, 110, Verdict.UNKNOWN)], False),
        ([checkpoint(SHARED, 110, world=8)], False),
    ],
)
def test_what_was_once_saved_is_never_silently_given_up_for_step_0(
    candidates: list[Candidate], saved_before: bool
) -> None:
    decision = decide(*candidates, saved_before=saved_before, now=AFTER_GRACE)
    assert (decision.kind, decision.reason) == (ResumeKind.BLOCKED, "NoValidCheckpoint")
    assert "start.mode" not in decision.message, "the run ends by it, and takes no such change any more"


def test_with_everything_out_of_sight_the_ranks_get_time_to_see_it_again() -> None:
    decision = decide()
    assert (decision.kind, decision.wait_until) == (ResumeKind.WAIT, AFTER_GRACE)


def test_start_mode_fresh_starts_the_first_attempt_at_step_0_and_later_ones_where_the_run_was() -> None:
    saved = checkpoint(SHARED, 100)
    assert decide(saved, mode="Fresh", attempt=1).kind is ResumeKind.FRESH
    assert decide(saved, mode="Fresh", attempt=2).choice == saved


def test_start_mode_fresh_is_the_consent_to_step_0_when_no_checkpoint_is_valid() -> None:
    decision = decide(lost(110), mode="Fresh")
    assert (decision.kind, decision.reason) == (ResumeKind.FRESH, "StartModeFresh")
    assert "rank 3's shard was on gpu-7" in decision.message


def test_start_mode_require_never_starts_at_step_0() -> None:
    decision = decide(mode="Require", saved_before=False)
    assert (decision.kind, decision.reason) == (ResumeKind.BLOCKED, "CheckpointRequired")
    assert decide(checkpoint(SHARED, 100), mode="Require").kind is ResumeKind.RESUME


def test_a_choice_is_read_before_it_is_resumed_and_large_ones_get_more_time() -> None:
    best = checkpoint(SHARED, 110, load_bytes=16_000_000_000)
    decision = choose_resume([best], {}, CONTEXT, DURING_GRACE)
    assert decision.kind is ResumeKind.VERIFY
    assert decision.verify == VerifyRequest(SHARED, best.path, 110)
    assert decision.wait_until == 1_000 + 60 + (60 + 10), "10 s are what 1 GB per rank takes at 100 MB/s"


def test_what_a_node_reads_from_its_own_disk_is_shared_with_nobody() -> None:
    decision = choose_resume([checkpoint(LOCAL, 110, load_bytes=16_000_000_000)], {}, CONTEXT, DURING_GRACE)
    assert decision.wait_until == 1_000 + 60 + (60 + 160)


def test_what_nobody_had_to_read_takes_no_time_from_what_is_read() -> None:
    torn = checkpoint(SHARED, 118, Verdict.INVALID)
    decision = choose_resume([torn, checkpoint(SHARED, 110, load_bytes=0)], {}, CONTEXT, DURING_GRACE)
    assert decision.wait_until == 1_000 + 60 + 60


def test_wrong_bytes_reject_the_choice_and_the_next_is_read() -> None:
    newest, older = checkpoint(SHARED, 110), checkpoint(SHARED, 100)
    checks = {(SHARED, newest.path): Check(Verdict.INVALID, "rank-1.bin: crc32 differs (rank 1 on gpu-1)")}
    decision = choose_resume([newest, older], checks, CONTEXT, DURING_GRACE)
    assert (decision.kind, decision.choice) == (ResumeKind.VERIFY, older)
    assert [each.reason for each in decision.rejected] == ["rank-1.bin: crc32 differs (rank 1 on gpu-1)"]
    checks |= all_read(older)
    assert choose_resume([newest, older], checks, CONTEXT, DURING_GRACE).kind is ResumeKind.RESUME


def test_bytes_that_cannot_be_read_in_time_reject_the_choice_for_this_attempt() -> None:
    newest, older = checkpoint(SHARED, 110, load_bytes=0), checkpoint(SHARED, 100, load_bytes=0)
    checks = {(SHARED, newest.path): Check(Verdict.UNKNOWN, "Input/output error (rank 1 on gpu-1)")}
    first = choose_resume([newest, older], checks, CONTEXT, 1_119.9)
    assert (first.choice, first.wait_until) == (newest, 1_120.0)
    second = choose_resume([newest, older], checks, CONTEXT, 1_120.0)
    assert (second.kind, second.choice, second.wait_until) == (ResumeKind.VERIFY, older, 1_180.0)
    assert [each.reason for each in second.rejected] == [
        "could not be read within 60 s: Input/output error (rank 1 on gpu-1)"
    ]
    assert choose_resume([newest, older], checks, CONTEXT, 1_180.0).kind is ResumeKind.BLOCKED


def test_without_a_known_step_time_the_newer_step_wins_over_the_faster_tier() -> None:
    assert decide(checkpoint(SHARED, 110), checkpoint(LOCAL, 100), step_seconds=0.0).choice == checkpoint(SHARED, 110)


any_candidate = st.builds(
    checkpoint,
    tier=st.sampled_from([LOCAL, SHARED, ARCHIVE]),
    step=st.integers(0, 200),
    verdict=st.sampled_from(Verdict),
    world=st.sampled_from([0, 8, 16]),
    run_uid=st.sampled_from([UID, "", "other"]),
    attempt=st.integers(1, 3),
    load_bytes=st.integers(0, 10**13),
    look_again=st.sampled_from([(), (3,)]),
)
any_candidates = st.lists(any_candidate, max_size=6, unique_by=lambda each: (each.tier, each.path))
any_context = st.builds(
    ResumeContext,
    attempt=st.integers(1, 5),
    world=st.just(16),
    run_uid=st.just(UID),
    since=st.just(1_000.0),
    highest_step=st.integers(0, 200),
    step_seconds=st.floats(0, 100),
    saved_before=st.booleans(),
    mode=st.sampled_from(["Auto", "Fresh", "Require"]),
    ceiling=st.none() | st.integers(0, 200),
    diverged_from=st.integers(0, 200),
    diverged_attempt=st.integers(0, 2),
    may_see_more=st.sampled_from([(), (3,)]),
    quarantine=st.frozensets(
        st.tuples(st.sampled_from([LOCAL, SHARED]), st.builds(Save, st.integers(0, 200), st.integers(0, 3))), max_size=3
    ),
)
any_now = st.floats(1_000, 1_000_000)


@st.composite
def situations(
    draw: st.DrawFn,
) -> tuple[list[Candidate], dict[tuple[str, str], Check], ResumeContext, float]:
    candidates = draw(any_candidates)
    checks = {
        (each.tier, each.path): Check(draw(st.sampled_from(Verdict)), "said so")
        for each in candidates
        if draw(st.booleans())
    }
    return candidates, checks, draw(any_context), draw(any_now)


@given(situations())
def test_only_a_valid_checkpoint_read_to_the_end_is_ever_resumed(
    situation: tuple[list[Candidate], dict[tuple[str, str], Check], ResumeContext, float],
) -> None:
    candidates, checks, context, now = situation
    decision = choose_resume(candidates, checks, context, now)
    if decision.kind is ResumeKind.RESUME:
        choice = decision.choice
        assert choice is not None
        assert choice.verdict is Verdict.VALID
        assert checks[choice.tier, choice.path].verdict is Verdict.VALID
        bad = {save.attempt for tier, save in context.quarantine if (tier, save.step) == (choice.tier, choice.step)}
        assert not bad & {0, choice.attempt}
        assert choice.attempt or not bad
        later = 0 < context.diverged_attempt < choice.attempt
        before = context.ceiling is None or choice.step <= max(context.ceiling, context.diverged_from - 1)
        assert before or later
        assert choice.run_uid in ("", UID)
        assert choice.world in (0, context.world)
        assert choice.step <= max(each.step for each in candidates if each.verdict is Verdict.VALID)


@given(situations())
def test_the_decision_does_not_depend_on_order_and_explains_itself(
    situation: tuple[list[Candidate], dict[tuple[str, str], Check], ResumeContext, float],
) -> None:
    candidates, checks, context, now = situation
    decision = choose_resume(candidates, checks, context, now)
    assert decision == choose_resume(list(reversed(candidates)), checks, context, now)
    assert decision.message
    assert all(each.reason for each in decision.rejected)
    assert decision.choice not in [each.candidate for each in decision.rejected]
    waits = decision.kind in (ResumeKind.WAIT, ResumeKind.VERIFY)
    assert (decision.wait_until is not None) == waits
    assert decision.wait_until is None or decision.wait_until > now
    assert decision.kind is not ResumeKind.VERIFY or decision.verify is not None


@given(situations())
def test_every_wait_ends(
    situation: tuple[list[Candidate], dict[tuple[str, str], Check], ResumeContext, float],
) -> None:
    candidates, checks, context, now = situation
    for _ in range(2 + len(candidates)):
        decision = choose_resume(candidates, checks, context, now)
        if decision.wait_until is None:
            return
        now = decision.wait_until
    raise AssertionError("still waiting")


@given(any_candidates, any_candidate, any_context)
def test_another_valid_checkpoint_never_makes_the_resume_dearer(
    candidates: list[Candidate], added: Candidate, context: ResumeContext
) -> None:
    added = replace(added, path="/another", verdict=Verdict.VALID)
    late = 1e9

    def seconds(choice: Candidate | None) -> float:
        return float("inf") if choice is None else resume_seconds(choice, context)

    checks = all_read(*candidates, added)
    before = choose_resume(candidates, checks, context, late)
    after = choose_resume([*candidates, added], checks, context, late)
    assert seconds(after.choice) <= seconds(before.choice)


@given(situations())
def test_step_0_is_never_chosen_silently_over_something_saved(
    situation: tuple[list[Candidate], dict[tuple[str, str], Check], ResumeContext, float],
) -> None:
    candidates, checks, context, now = situation
    decision = choose_resume(candidates, checks, context, now)
    if decision.kind is ResumeKind.FRESH and context.mode == "Auto":
        assert not context.saved_before
        assert all(each.verdict is Verdict.INVALID and not each.committed for each in candidates)


def test_a_step_that_was_saved_before_it_was_reported_costs_no_less_than_nothing() -> None:
    ahead = checkpoint(LOCAL, 130)
    decision = decide(ahead, checkpoint(SHARED, 125))
    assert decision.choice == ahead
    assert decision.seconds == 0.0
    passed_over = decide(checkpoint(LOCAL, 140, Verdict.INVALID), ahead).rejected
    assert [each.seconds for each in passed_over] == [0.0]
