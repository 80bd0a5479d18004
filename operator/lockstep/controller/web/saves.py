"""How often a program saves and what that takes, as it was seen: the cadence in status is a plan."""

from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Any

from lockstep.core.model.snapshot import RunView
from lockstep.core.model.worker_report import WorkerReport

LOOKED_AT = 20
"""Of the newest checkpoints of each tier."""


def observed(view: RunView, reports: Mapping[int, WorkerReport]) -> dict[str, Any]:
    """``tiers``: seconds between saves of this attempt; ``block`` and ``persist``: what the last one took, by the
    slowest rank; ``listens``: a process asks when it is to save. Nothing while no worker of this attempt is heard."""
    own = [each for _, each in sorted(reports.items()) if each.attempt == view.status.attempt]
    if not own:
        return {}
    tiers: dict[str, dict[str, Any]] = {}
    for report in own:
        for tier in {row.tier for row in report.inventory} - tiers.keys():
            times = [
                row.committed_at
                for row in report.inventory
                if row.tier == tier and row.attempt == view.status.attempt and row.committed_at > 0
            ]
            newest = sorted(set(times))[-LOOKED_AT:]
            if len(newest) > 1:
                gaps = [later - earlier for earlier, later in pairwise(newest)]
                tiers[tier] = {"tier": tier, "interval": round(median(gaps), 1), "count": len(newest)}
    return {
        "tiers": [tiers[tier] for tier in sorted(tiers)],
        "block": round(max(each.timing.save_block for each in own), 2),
        "persist": round(max(each.timing.persist for each in own), 2),
        "listens": any(each.listens for each in own),
    }
