"""Checkpoints to resume from, and what is decided once their bytes were read."""

from dataclasses import replace

from lockstep.core.checkpoints.resume import ResumeContext, ResumeDecision, choose_resume
from lockstep.core.checkpoints.verdicts import Candidate, Check
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
