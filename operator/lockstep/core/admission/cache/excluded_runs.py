"""Runs excluded from admission cycles because a cycle fails with them; see ``poison_runs``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lockstep.api.base.changes import changed
from lockstep.api.run_status import QueueStatus
from lockstep.core.model.conditions import cannot_decide
from lockstep.core.model.plan import Event, StatusWrite
from lockstep.core.model.reasons import ActionWord, EventReason, WaitReason
from lockstep.core.model.snapshot import Changes, ClusterSnapshot, RunView


@dataclass(frozen=True, slots=True)
class ExcludedRun:
    """A run, as it was when it was left out, what a cycle with it raised, and until when (Unix seconds) that counts."""

    run: RunView
    error: Exception
    until: float

    def is_still(self, run: RunView, now: float) -> bool:
        """Nothing has changed that could make a difference."""
        known = self.run
        alike = (run.spec, run.labels, run.annotations) == (known.spec, known.labels, known.annotations)
        return alike and now < self.until


def without(snapshot: ClusterSnapshot, uids: Iterable[str]) -> ClusterSnapshot:
    """The same, with these as runs whose spec cannot be read: a run that depends on them does not find them gone."""
    absent = frozenset(uids)
    if not absent:
        return snapshot
    runs = tuple(replace(run, spec=None) if run.uid in absent else run for run in snapshot.runs)
    return replace(snapshot, runs=runs, changes=Changes())


def exclusion_writes(
    runs: Iterable[RunView], excluded_runs: Mapping[str, ExcludedRun], now: float
) -> Iterable[StatusWrite]:
    """Pending reasons still to be written of those of ``runs`` that are left out."""
    for run in runs:
        if run.uid not in excluded_runs:
            continue
        kind = type(excluded_runs[run.uid].error).__name__
        message = (
            f"{cannot_decide(kind)}; other runs are admitted without it, and it is tried again when it is edited, or "
            "in ten minutes"
        )
        if (run.status.queue.reason, run.status.queue.message) == (WaitReason.UNDECIDABLE, message):
            continue
        queue = QueueStatus(reason=WaitReason.UNDECIDABLE, message=message, updated=float(int(now)))
        yield StatusWrite(
            namespace=run.namespace,
            name=run.name,
            uid=run.uid,
            resource_version=run.resource_version,
            status=changed(run.status, queue=queue),
            nodes=frozenset(),
            events=(Event("Warning", EventReason.UNDECIDABLE, ActionWord.ADMIT, message),),
        )
