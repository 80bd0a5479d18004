"""How fast a run trains and when it would be done, as its workers measure it."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.worker_report import WorkerReport
from lockstep.present.runs import current_phase


def measured(view: RunView, reports: Mapping[int, WorkerReport]) -> dict[str, Any]:
    """``stepSeconds`` by the median rank, and ``left``, seconds to the last step at that pace without what else takes
    time. Nothing while it does not train, or nobody says how far it has to go."""
    if current_phase(view) is not Phase.RUNNING:
        return {}
    attempt = view.status.attempt
    told = [each.timing.step for each in reports.values() if each.attempt == attempt and each.timing.step > 0]
    if not told:
        return {}
    seconds = median(told)
    progress = view.status.progress
    found: dict[str, Any] = {"stepSeconds": round(seconds, 4)}
    if progress.total_steps is not None and progress.total_steps > progress.step:
        found["left"] = int((progress.total_steps - progress.step) * seconds)
    return found
