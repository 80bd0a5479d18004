"""Checkpoints of another run, as the workers see them."""

from msgspec import structs

from lockstep.core.model.worker_report import CheckpointReport, Verdict


def theirs(step: int, verdict: Verdict = Verdict.VALID, **changes: object) -> CheckpointReport:
    row = CheckpointReport(
        tier="shared",
        step=step,
        path=f"/shared-checkpoints/ns/one/uid-one/a3/step-{step}",
        verdict=verdict,
        reason="" if verdict is Verdict.VALID else "torn",
        format="Megatron",
        attempt=3,
        run_uid="uid-one",
        committed_at=1.0,
    )
    return structs.replace(row, **changes)
