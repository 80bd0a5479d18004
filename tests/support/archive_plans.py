"""A run with an archive, what is planned for it, and the jobs that came of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import ArchivedCheckpoint, ArchiveStatus, SavedCheckpoint
from lockstep.api.run_status import Condition
from lockstep.core.checkpoints.archive_job import RESULT_FORMAT, is_removal, options_told
from lockstep.core.checkpoints.archiving import ArchivePlan
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.settings import ArchiveSettings, PodPolicy
from lockstep.core.model.snapshot import JobPhase, JobView, Leadership, RunSnapshot, RunView
from lockstep.core.model.tunables import Tunables
from support import sample_runs

NOW = sample_runs.NOW
SETTINGS = ArchiveSettings(image="registry.example/lockstep:1")
TIER = {"uri": "s3://golden/llama", "interval": "6h", "credentialsSecretRef": {"name": "s3"}}
PATH = f"/shared-checkpoints/team/llama/{sample_runs.UID}"
OVER = (Condition(type="Finished", status="True", reason="Succeeded", last_transition_time=NOW),)


def run_of(
    archive: ArchiveStatus | None = None, *, saved: tuple[int, int] | None = (2, 300), tier: dict[str, Any] = TIER
) -> RunView:
    checkpoint = {"shared": {"claimName": "lustre"}, "archive": tier}
    run = parse_run(sample_runs.run(checkpoint=checkpoint))
    assert run.spec_error == ""
    latest: tuple[SavedCheckpoint, ...] = ()
    if saved is not None:
        attempt, step = saved
        latest = (SavedCheckpoint(tier="shared", step=step, path=f"{PATH}/a{attempt}/step-{step}", attempt=attempt),)
    known = archive if archive is not None else ArchiveStatus(uri="s3://golden/llama")
    status = changed(run.status.checkpoint, latest=latest, archive=known)
    return replace(run, status=changed(run.status, checkpoint=status))


def after(run: RunView, plan: ArchivePlan, **checkpoint: Any) -> RunView:
    """The run once the plan's status was written."""
    status = changed(run.status.checkpoint, **({"archive": plan.status} | checkpoint))
    return replace(run, status=changed(run.status, checkpoint=status))


def job(plan: ArchivePlan, phase: JobPhase = JobPhase.COMPLETE, **result: Any) -> JobView:
    assert plan.status.job is not None
    body = json.dumps({"format": RESULT_FORMAT, "outcome": "Done"} | result) if result else ""
    name = plan.status.job.name
    words = plan.create.body["spec"]["template"]["spec"]["containers"][0]["args"] if plan.create is not None else []
    return JobView(
        "team",
        name,
        "uid",
        sample_runs.UID,
        phase,
        finished_at=0.0 if phase is JobPhase.ACTIVE else NOW + 100,
        result=body,
        removes=is_removal(words),
        told=options_told(words),
    )


def copied(attempt: int = 2, step: int = 300) -> ArchiveStatus:
    """What is known after the first copy was published."""
    published = (ArchivedCheckpoint(step=step, attempt=attempt, bytes=7, time=NOW),)
    return ArchiveStatus(uri="s3://golden/llama", published=published, time=NOW)


def tidying(archive: ArchiveStatus | None = None, *, retention: int = 1, tier: dict[str, Any] | None = None) -> RunView:
    checkpoint = {"shared": {"claimName": "lustre"}, "retention": {"keepLast": retention}}
    raw = sample_runs.run(checkpoint=checkpoint | ({"archive": tier} if tier else {}))
    run = parse_run(raw)
    assert run.spec_error == ""
    return replace(run, status=run_of(archive or ArchiveStatus()).status)


def rolled_back(run: RunView, ceiling: int) -> RunView:
    checkpoint = changed(run.status.checkpoint, ceiling=ceiling)
    return replace(run, status=changed(run.status, checkpoint=checkpoint))


def builder_of(run: RunView, *jobs: JobView, policy: PodPolicy | None = None) -> PlanBuilder:
    snapshot = RunSnapshot(run=run, pods=(), reports={}, nodes={}, leadership=Leadership(NOW), jobs=jobs)
    return PlanBuilder(RunContext(snapshot, Tunables(archive=SETTINGS, pod_policy=policy or PodPolicy()), NOW))
