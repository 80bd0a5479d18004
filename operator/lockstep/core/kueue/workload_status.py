"""The status of a Workload: whether the pods are ready, that it is over, and the release.

Each is one merge patch with the whole list of conditions, guarded by the version that was seen: nobody's condition is
lost, and nothing is written on the strength of a stale cache.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.api.base.times import to_rfc3339, to_unix
from lockstep.core.model.kueue import api_names
from lockstep.core.model.kueue.workload import WorkloadCondition, WorkloadView
from lockstep.core.model.kueue.writes import WorkloadVerb, WorkloadWrite

_LONGEST = 1024


def pods_ready(workload: WorkloadView, ready: bool, now: float) -> WorkloadWrite | None:
    """Say whether every rank is up; None: it is said already. What was never said counts as not ready."""
    before = workload.condition(api_names.PODS_READY)
    if (before is not None and before.status == "True") == ready:
        return None
    if ready:
        again = before is not None and before.reason == api_names.WAIT_FOR_RECOVERY
        reason, message = api_names.RECOVERED if again else api_names.STARTED, "every rank is up"
    else:
        reason, message = api_names.WAIT_FOR_RECOVERY, "a rank was lost, and the gang gathers again"
    return _status_write(
        workload, [_made(workload, api_names.PODS_READY, ready, reason, message, now)], f"PodsReady {ready}"
    )


def finished(workload: WorkloadView, succeeded: bool, message: str, now: float) -> WorkloadWrite:
    """Give the quota back for good."""
    reason = "Succeeded" if succeeded else "Failed"
    return _status_write(workload, [_made(workload, api_names.FINISHED, True, reason, message, now)], "Finished")


def released(workload: WorkloadView, now: float) -> WorkloadWrite:
    """Give the reservation of an evicted Workload back, all in one write: the gang is gone by now.

    After a preemption or the failure of nodes it may be admitted again at once; after anything else Kueue says when.
    Where Kueue itself has deactivated it (``DeactivatedDueTo...``) the plain reason is told, as that is the only one
    from which Kueue takes it up again once it is active.
    """
    evicted = workload.condition(api_names.EVICTED)
    reason, message = (evicted.reason, evicted.message) if evicted is not None else ("", "")
    at_once, plain = reason in api_names.BACK_IN_THE_HEAP, reason.partition(api_names.DUE_TO)[0] or "Evicted"
    told = _made(workload, api_names.REQUEUED, at_once, plain, message, now)
    return _release(workload, told, f"released after {reason or 'an eviction'}", now)


def held_back(workload: WorkloadView, why: str, now: float) -> WorkloadWrite:
    """Give a reservation back of which no use was made. The Workload keeps its place in Kueue's line, and gets no other
    one before it is ``requeued``: what it asks for is changed first."""
    return _release(workload, _made(workload, api_names.REQUEUED, False, api_names.ASKED_ANEW, why, now), why, now)


def requeued(workload: WorkloadView, now: float) -> WorkloadWrite | None:
    """Let Kueue have the Workload again that was ``held_back``; None: it is not."""
    if not is_held_back(workload):
        return None
    words = "it asks for other nodes now"
    return _status_write(workload, [_made(workload, api_names.REQUEUED, True, api_names.ASKED_ANEW, words, now)], words)


def is_held_back(workload: WorkloadView) -> bool:
    """By us, and without a reservation."""
    found = workload.condition(api_names.REQUEUED)
    return found is not None and (found.status, found.reason) == ("False", api_names.ASKED_ANEW)


def _release(workload: WorkloadView, told: WorkloadCondition, why: str, now: float) -> WorkloadWrite:
    changed = [
        _made(workload, api_names.QUOTA_RESERVED, False, "PendingEvaluation", told.message, now),
        _made(workload, api_names.ADMITTED, False, "NoReservation", "The workload has no reservation", now),
        told,
    ]
    if workload.condition(api_names.PODS_READY) is not None:
        changed.append(_made(workload, api_names.PODS_READY, False, api_names.WAIT_FOR_START, "not admitted", now))
    past = workload.past_seconds + _admitted_seconds(workload, now)
    more = {"admission": None, "accumulatedPastExecutionTimeSeconds": past}
    return _status_write(workload, changed, why, more)


def _admitted_seconds(workload: WorkloadView, now: float) -> int:
    admitted = workload.condition(api_names.ADMITTED)
    if admitted is None or admitted.status != "True" or not admitted.since:
        return 0
    return max(0, int(now - to_unix(admitted.since)))


def _made(workload: WorkloadView, kind: str, value: bool, reason: str, message: str, now: float) -> WorkloadCondition:
    before, status = workload.condition(kind), str(value)
    since = before.since if before is not None and before.status == status else to_rfc3339(now)
    return WorkloadCondition(kind, status, reason, message[:_LONGEST], since, workload.generation)


def _status_write(
    workload: WorkloadView,
    changed: Iterable[WorkloadCondition],
    why: str,
    more: Mapping[str, Any] | None = None,
) -> WorkloadWrite:
    conditions = {condition.type: condition for condition in (*workload.conditions, *changed)}
    body = {**(more or {}), "conditions": [condition.raw for condition in conditions.values()]}
    return WorkloadWrite(
        WorkloadVerb.TELL, workload.namespace, workload.name, why, workload.uid, workload.resource_version, body
    )
