"""Decides a long admission pass beside the event loop, which has the lease to keep and workers to answer meanwhile."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from lockstep.core.admission.cache.memory import Memory
from lockstep.core.admission.poison_runs import admit_others
from lockstep.core.model.kueue.installation import Kueue
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot
from lockstep.core.model.tunables import Tunables

ASIDE_FROM = 1000
"""Runs and nodes of a pass that is decided in a thread: one with fewer is over before a thread has begun."""

_log = logging.getLogger(__name__)
_Views = TypeVar("_Views", ClusterSnapshot, Kueue)


async def decide_pass(snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: Memory) -> ClusterPlan:
    """The plan of one pass. Nobody else may use ``memory`` before it is there.

    What is heard in the meantime is as if it were heard a moment later: nobody else gives nodes away, what was booked
    before stays booked, and a run that has changed since is not written (its resourceVersion is another one).
    """
    known = memory.left_out
    if len(snapshot.runs) + len(snapshot.nodes) < ASIDE_FROM:
        plan = admit_others(snapshot, tunables, now, memory)
    else:
        plan = await asyncio.to_thread(admit_others, detached(snapshot), tunables, now, memory)
    for uid in memory.left_out.keys() - known.keys():
        entry = memory.left_out[uid]
        _log.error("no pass can be decided with %s: it is left out", entry.run.key, exc_info=entry.error)
    return plan


def detached(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same, but no view into live state: nothing of it changes any more. What is in the tables never does."""
    return replace(snapshot, **_tables(snapshot), kueue=replace(snapshot.kueue, **_tables(snapshot.kueue)))


def _tables(views: _Views) -> dict[str, Any]:
    named = ((field.name, getattr(views, field.name)) for field in fields(views))
    return {name: dict(value) for name, value in named if isinstance(value, Mapping)}
