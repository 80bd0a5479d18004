"""Decides a long admission cycle in a thread: the event loop has the lease to keep and workers to answer."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.poison_runs import admit_isolating_failures
from lockstep.core.model.kueue.installation import Kueue
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot
from lockstep.core.model.tunables import Tunables

ASIDE_FROM = 1000
"""Runs and nodes of a cycle that is decided in a thread: one with fewer is over before a thread has begun."""

_log = logging.getLogger(__name__)
_Views = TypeVar("_Views", ClusterSnapshot, Kueue)


async def decide_cycle(snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: CycleMemory) -> ClusterPlan:
    """The plan of one cycle. Nobody else may use ``memory`` before it is there.

    What is heard in the meantime is as if it were heard a moment later: nobody else gives nodes away, what was booked
    before stays booked, and a run that has changed since is not written (its resourceVersion is another one).
    """
    known = memory.excluded_runs
    if len(snapshot.runs) + len(snapshot.nodes) < ASIDE_FROM:
        plan = admit_isolating_failures(snapshot, tunables, now, memory)
    else:
        plan = await asyncio.to_thread(admit_isolating_failures, detached(snapshot), tunables, now, memory)
    for uid in memory.excluded_runs.keys() - known.keys():
        entry = memory.excluded_runs[uid]
        _log.error(
            "no pass can be decided with %s: it is left out",
            entry.run.key,
            exc_info=entry.error,
        )
    return plan


def detached(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same, but no view into live state: nothing of it changes any more. What is in the tables never does."""
    return replace(snapshot, **_tables(snapshot), kueue=replace(snapshot.kueue, **_tables(snapshot.kueue)))


def _tables(views: _Views) -> dict[str, Any]:
    named = ((field.name, getattr(views, field.name)) for field in fields(views))
    return {name: dict(value) for name, value in named if isinstance(value, Mapping)}
