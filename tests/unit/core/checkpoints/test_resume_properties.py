"""Choosing where to resume, whatever there is: invariants."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.checkpoints.resume import ResumeContext, ResumeKind, choose_resume, resume_seconds
from lockstep.core.checkpoints.verdicts import Candidate, Check
from lockstep.core.model.quarantine import Save
from lockstep.core.model.tiers import ARCHIVE, LOCAL, SHARED
from lockstep.core.model.worker_report import Verdict
from support.resume_candidates import UID, all_read, checkpoint

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
