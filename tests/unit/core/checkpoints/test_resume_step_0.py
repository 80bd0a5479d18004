"""Where nothing can be resumed from: which runs begin at step 0, and which are blocked."""

import pytest

from lockstep.core.checkpoints.resume import ResumeKind
from lockstep.core.checkpoints.verdicts import Candidate
from lockstep.core.model.quarantine import Save
from lockstep.core.model.tiers import ARCHIVE, SHARED
from lockstep.core.model.worker_report import Verdict
from support.resume_candidates import AFTER_GRACE, checkpoint, decide, lost


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
