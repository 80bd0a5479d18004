"""One array: how it is in sentences, what became of its indices, and those of its runs that there are."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lockstep.api.base.times import to_rfc3339
from lockstep.controller.runtime.recent_events import RecentEvent
from lockstep.controller.web import rows
from lockstep.core.arrays.members import holds_nodes, index_of
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.conditions import is_true
from lockstep.core.model.ranges import format_ranges
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView
from lockstep.present import arrays

MOST_ROWS = 500
"""Of runs that have not ended; how many more there are is said."""
MOST_FINISHED = 50
NOT_ENDED = "not ended"


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """What the page is made from. ``runs`` are those of the set; None: the viewer may see none."""

    view: RunSetView
    runs: Sequence[RunView] | None
    events: Sequence[RecentEvent]


def array(facts: ArrayFacts) -> dict[str, Any]:
    """Everything that somebody who may read the set is shown of it."""
    view, runs = facts.view, facts.runs or ()
    going = sorted((run for run in runs if not is_true(run.status, ConditionType.FINISHED)), key=_index)
    ended = sorted((run for run in runs if is_true(run.status, ConditionType.FINISHED)), key=rows.ended, reverse=True)
    return summary(view) | {
        "uid": view.uid,
        "sentences": [*arrays.sentences(view)],
        "after": view.spec.after_corr or "" if view.spec is not None else "",
        "outcomes": [
            {"outcome": outcome, "count": len(found), "indices": format_ranges(found)}
            for outcome, found in outcomes(view, facts.runs).items()
        ],
        "runs": [rows.row(run) for run in going[:MOST_ROWS]],
        "finished": [rows.row(run) for run in ended[:MOST_FINISHED]],
        "more": {"runs": max(0, len(going) - MOST_ROWS), "finished": max(0, len(ended) - MOST_FINISHED)},
        "conditions": [condition.dump() for condition in view.status.conditions],
        "events": [asdict(event) | {"at": to_rfc3339(event.at)} for event in reversed(facts.events)],
    }


def summary(view: RunSetView) -> dict[str, Any]:
    """What a row of it says."""
    status, spec = view.status, view.spec
    counts = status.counts.model_dump()
    state, reason = arrays.set_state(view)
    return {
        "namespace": view.namespace,
        "name": view.name,
        "state": state,
        "reason": reason,
        "message": arrays.why_it_waits(view),
        "queue": spec.template.spec.queue if spec is not None else "",
        "indices": spec.indices if spec is not None else "",
        "width": spec.max_running if spec is not None else None,
        "done": status.done,
        "counts": {outcome: counts[outcome] for outcome in arrays.OUTCOMES},
        "created": view.created_at,
    }


def outcomes(view: RunSetView, runs: Sequence[RunView] | None) -> Mapping[str, frozenset[int]]:
    """Indices by what became of them; an index whose run has no nodes is pending. Without ``runs`` those two are one:
    which index has nodes its run alone tells."""
    if view.spec is None:
        return {}
    if runs is None:
        found = arrays.by_outcome(view, ())
        return {
            NOT_ENDED if outcome == "pending" else outcome: found[outcome] for outcome in found if outcome != "running"
        }
    holding = {index for run in runs if holds_nodes(run) and (index := index_of(run)) is not None}
    return arrays.by_outcome(view, holding)


def _index(run: RunView) -> int:
    return index_of(run) or 0
