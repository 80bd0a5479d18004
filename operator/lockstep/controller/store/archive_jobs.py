"""The archive jobs there are, by run, and what their pods said at their end."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from lockstep.api.base import names, nesting
from lockstep.controller.kube.cache import ObjectCache
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.core.checkpoints.archive_job import CONTAINER, is_removal, options_told
from lockstep.core.model import wire
from lockstep.core.model.cluster_objects import Versioned
from lockstep.core.model.snapshot import JobPhase, JobView

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
_jobs = msgspec.json.Decoder(wire.BatchJob)
_PHASES = {"Complete": JobPhase.COMPLETE, "Failed": JobPhase.FAILED}


def parse_job(text: bytes | msgspec.Raw) -> Versioned[JobView]:
    """A Job. One that only copied the label of an archive job is of no run. Raises msgspec.DecodeError."""
    job = nesting.decode(_jobs, text)
    meta = job.metadata
    run_uid = meta.labels.get(names.LABEL_ARCHIVE_OF, "")
    ended = next((each for each in job.status.conditions if each.status == "True" and each.type in _PHASES), None)
    begun = job.status.start_time
    idle = ended is None and begun is not None and not job.status.ready
    at = ended.last_transition_time if ended is not None else None
    containers = job.spec.template.spec.containers  # a policy of the cluster may have put another one first
    arguments = next((each.args for each in containers if each.name == CONTAINER), [])
    view = JobView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        run_uid=run_uid if any(owner.uid == run_uid for owner in meta.owner_references) else "",
        phase=_PHASES[ended.type] if ended is not None else JobPhase.ACTIVE,
        idle_since=begun.timestamp() if idle and begun is not None else 0.0,
        finished_at=at.timestamp() if at is not None else 0.0,
        message=ended.message if ended is not None else "",
        deleting=meta.deletion_timestamp is not None,
        removes=is_removal(arguments),
        told=options_told(arguments),
    )
    return Versioned(meta.uid, int(meta.resource_version or 0), view)


def last_words(pods: Iterable[Mapping[str, Any]], job_uid: str) -> str:
    """The termination message of the job's pod that ended last; empty when none left one.

    Labels are anybody's to copy, and a job of the same name may have been there before: the owner decides.
    """
    found: list[tuple[str, str]] = []
    for pod in pods:
        owners = pod.get("metadata", {}).get("ownerReferences") or ()
        if all(owner.get("uid") != job_uid for owner in owners):
            continue
        for container in pod.get("status", {}).get("containerStatuses", ()):
            ended = container.get("state", {}).get("terminated")
            if container.get("name") == CONTAINER and ended and ended.get("message"):
                found.append((ended.get("finishedAt") or "", ended["message"]))
    return max(found, default=("", ""))[1]


class ArchiveJobs:
    """`cache` is fed by an informer and by the answers to our own writes; `changed` hears the run's UID."""

    def __init__(self, changed: Callable[[str], None], left_out: LeftOut | None = None) -> None:
        self.cache: ObjectCache[JobView] = ObjectCache(self._job_changed, "jobs", left_out)
        self._changed = changed
        self._by_run: dict[str, dict[str, JobView]] = {}
        self._results: dict[str, str] = {}  # job UID -> last words, once they were asked for

    def for_run(self, run_uid: str) -> tuple[JobView, ...]:
        """The jobs of a run. One that ended counts as active until it was asked for its last words."""
        return tuple(
            replace(job, result=self._results[job.uid])
            if job.uid in self._results
            else replace(job, phase=JobPhase.ACTIVE)
            for job in self._by_run.get(run_uid, {}).values()
        )

    def unread(self, run_uid: str, name: str) -> JobView | None:
        """The run's job of that name if it has ended and its last words were not asked for yet."""
        jobs = self._by_run.get(run_uid, {}).values()
        ended = (job for job in jobs if job.name == name and job.phase is not JobPhase.ACTIVE)
        return next((job for job in ended if job.uid not in self._results), None)

    def keep_words(self, job: JobView, words: str) -> None:
        """What a job that ended has said."""
        if self.cache.get(job.uid) is not None:
            self._results[job.uid] = words

    def _job_changed(self, old: JobView | None, new: JobView | None) -> None:
        job = new or old
        assert job is not None
        jobs = self._by_run.setdefault(job.run_uid, {})
        if new is not None:
            jobs[job.uid] = new
        else:
            jobs.pop(job.uid, None)
            self._results.pop(job.uid, None)
        if not jobs:
            del self._by_run[job.run_uid]
        self._changed(job.run_uid)
