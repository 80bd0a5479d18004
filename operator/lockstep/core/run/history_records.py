"""What outlives a run: one record for each attempt that ended, and one for the run's own end.

Records are made of status writes whose answer came. One may come again, as with a cause that is corrected: who reads
them takes the last one of each key. Of a run that is deleted before its end nothing is written any more: its records
are made of what its status was.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from lockstep.api.base.changes import changed
from lockstep.api.base.times import to_rfc3339
from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import Condition, TrainingRunStatus
from lockstep.core.accounting.account import account_of_deleted
from lockstep.core.admission.queueing.order import share_key
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.kept_nodes import nodes_kept
from lockstep.core.model.lifecycle import Outcome
from lockstep.core.model.reasons import ConditionType, StopReason
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.test_only import is_test_only
from lockstep.core.model.tunables import Tunables

SCHEMA = "lockstep.dev/history/1"
DELETED = "Deleted"
"""Reason of a run's end, and cause of its last attempt's, where the run was deleted before its end."""


def records(run: RunView, after: TrainingRunStatus, now: float) -> Iterator[dict[str, Any]]:
    """What ``after`` says that the status of ``run`` before it did not. Keyed by ``uid``, ``kind`` and ``attempt``."""
    before = {entry.number: entry for entry in run.status.attempts}
    for entry in after.attempts:
        if entry.ended_at is not None and entry != before.get(entry.number):
            yield _attempt(run, after, entry, now)
    was_over, finished = is_true(run.status, ConditionType.FINISHED), find(after, ConditionType.FINISHED)
    if finished is None or finished.status != "True":
        return
    succeeded = find(after, ConditionType.SUCCEEDED)
    assert succeeded is not None
    end = partial(_end, run, after, _outcome(succeeded), succeeded.reason, succeeded.message)
    if not was_over:
        yield end(now)
    elif after.goodput.gpu_hours != run.status.goodput.gpu_hours:  # of nodes that were kept for debugging
        yield end(finished.last_transition_time)


def records_of_deleted(run: RunView, tunables: Tunables, now: float) -> Iterator[dict[str, Any]]:
    """Of a run that was found to be gone at ``now``: as of one that was cancelled then. None where it had ended, unless
    it kept nodes for debugging."""
    finished = is_true(run.status, ConditionType.FINISHED)
    if is_test_only(run) or (finished and not nodes_kept(run.status)):
        return
    status = changed(run.status, goodput=account_of_deleted(run, tunables, now))
    if finished:
        yield from records(run, status, now)
        return
    for entry in status.attempts:
        if entry.ended_at is None and entry.started_at is not None:
            yield _attempt(run, status, changed(entry, ended_at=float(int(now)), cause=DELETED), now)
    yield _end(run, status, Outcome.CANCELLED, DELETED, "the run was deleted before its end", now)


def _common(run: RunView, kind: str, now: float) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": kind,
        "namespace": run.namespace,
        "run": run.name,
        "uid": run.uid,
        "recordedAt": to_rfc3339(now),
    }


def _attempt(run: RunView, after: TrainingRunStatus, entry: AttemptStatus, now: float) -> dict[str, Any]:
    record = _common(run, "attempt", now) | {"attempt": entry.number} | entry.dump()
    record.pop("number", None)
    record["nodes"] = entry.nodes or after.resolved.nodes
    return record


def _outcome(succeeded: Condition) -> Outcome:
    if succeeded.status == "True":
        return Outcome.SUCCEEDED
    return Outcome.CANCELLED if succeeded.reason == StopReason.CANCELLED else Outcome.FAILED


def _end(
    run: RunView, after: TrainingRunStatus, outcome: Outcome, reason: str, message: str, now: float
) -> dict[str, Any]:
    goodput = after.goodput.dump()
    goodput.pop("state", None)  # of use to a running account only
    return _common(run, "run", now) | {
        "attempt": after.attempt,
        "outcome": outcome.value,
        "reason": reason,
        "message": message,
        "createdAt": to_rfc3339(run.created_at),
        "queue": queue_of(run),
        "user": share_key(run)[2],
        "nodes": after.resolved.nodes,
        "gpuType": after.resolved.gpu_type,
        "gpusPerNode": after.resolved.gpus_per_node,
        "step": after.progress.step,
        "loss": after.progress.loss,
        "saved": [saved.dump() for saved in after.checkpoint.latest],
        "totals": after.totals.dump(),
        "goodput": goodput,
    }
