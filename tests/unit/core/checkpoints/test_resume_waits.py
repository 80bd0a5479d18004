"""What is waited for before a run resumes, and for how long: other ranks' looks, and the reading of bytes."""

import pytest

from lockstep.core.checkpoints.resume import COPY_GRACE, ResumeKind, choose_resume
from lockstep.core.checkpoints.verdicts import Check
from lockstep.core.model.plan import VerifyRequest
from lockstep.core.model.quarantine import Save
from lockstep.core.model.tiers import LOCAL, SHARED
from lockstep.core.model.worker_report import Verdict
from support.resume_candidates import AFTER_GRACE, CONTEXT, DURING_GRACE, all_read, checkpoint, decide


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


def test_with_everything_out_of_sight_the_ranks_get_time_to_see_it_again() -> None:
    decision = decide()
    assert (decision.kind, decision.wait_until) == (ResumeKind.WAIT, AFTER_GRACE)


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
