"""The queues: pending runs with reason and estimated start, running ones, and those that ended of late."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from lockstep.api.queue import TrainingQueueSpec
from lockstep.controller.web import array
from lockstep.controller.web.access import Sight
from lockstep.controller.web.rows import ended, row
from lockstep.core.admission.queue_status import counted
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.conditions import is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.natural_order import natural_key
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import QueueView, RunView
from lockstep.core.model.test_only import is_test_only
from lockstep.present import arrays
from lockstep.present.arrays import Pending
from lockstep.present.runs import current_phase, queue_of

MOST_ROWS = 500
"""Of each kind; how many more there are is said."""
MOST_FINISHED = 50
DEFAULT = QueueView("default", TrainingQueueSpec())
"""Exists without being created."""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What the page is made from; copies, as it is made beside the event loop."""

    runs: Sequence[RunView]
    queues: Sequence[QueueView]
    sets: Sequence[RunSetView] = ()


def queues(facts: QueueFacts, sight: Sight) -> dict[str, Any]:
    """What one viewer may see of every queue.

    Runs of namespaces that they may read are shown in full; those of an array that wait are one row together. Of
    others that wait they hear what a run of theirs that waits in the same queue is told: with visibility Full the
    names, else how many there are.
    """
    phases = {run.uid: current_phase(run) for run in facts.runs if not is_test_only(run)}
    waiting = sorted((run for run in facts.runs if phases.get(run.uid) is Phase.PENDING), key=_place)
    known = {view.name: view for view in facts.queues}
    if DEFAULT.name not in known:  # nobody writes what its runs come to
        known[DEFAULT.name] = replace(DEFAULT, status=counted(DEFAULT.name, facts.runs))
    own = [run for run in facts.runs if run.uid in phases and sight.sees(run.namespace)]
    at_rest = (Phase.PENDING, Phase.SUSPENDED, Phase.FINISHED)
    holding = [run for run in own if phases[run.uid] not in at_rest or run.status.leaving is not None]
    finished = sorted((run for run in own if phases[run.uid] is Phase.FINISHED), key=ended, reverse=True)
    suspended = [run for run in own if phases[run.uid] is Phase.SUSPENDED]
    sets = [each for each in facts.sets if sight.sees_arrays(each.namespace)]
    going = [each for each in sets if not is_true(each.status, ConditionType.FINISHED)]
    _, folded = arrays.folded([run for run in own if phases[run.uid] is not Phase.FINISHED], going)
    line: defaultdict[str, list[RunView]] = defaultdict(list)
    for run in waiting:
        line[queue_of(run)].append(run)
    in_arrays: defaultdict[str, list[Pending]] = defaultdict(list)
    for each in folded:
        in_arrays[array.summary(each.view)["queue"]].append(each)
    # What names a queue and has ended keeps no card of one that there is not.
    found = {queue_of(run) for run in own if phases[run.uid] is not Phase.FINISHED} | in_arrays.keys()
    found |= {"default"} if own else set()
    shown = sorted(name for name in known.keys() | found if sight.queues or name in found)
    return {
        "queues": [_queue(known.get(name), name, line[name], in_arrays[name], sight) for name in shown],
        "arrays": [array.summary(each) for each in sorted(going, key=lambda each: natural_key(each.key))[:MOST_ROWS]],
        "holding": _rows(sorted(holding, key=lambda run: (run.created_at, run.key))),
        "suspended": _rows(sorted(suspended, key=lambda run: run.key)),
        "finished": [row(run) for run in finished[:MOST_FINISHED]],
        "more": {
            "arrays": max(0, len(going) - MOST_ROWS),
            "holding": max(0, len(holding) - MOST_ROWS),
            "suspended": max(0, len(suspended) - MOST_ROWS),
            "finished": max(0, len(finished) - MOST_FINISHED),
        },
    }


def _queue(
    view: QueueView | None, name: str, here: Sequence[RunView], folded: Sequence[Pending], sight: Sight
) -> dict[str, Any]:
    spec = view.spec if view is not None else TrainingQueueSpec()
    heard = _names_heard(here, spec, sight)
    rows: list[dict[str, Any]] = []
    hidden = 0
    together = {run.uid for each in folded for run in each.waiting}
    for run in here:
        if run.uid in together:
            continue
        if sight.sees(run.namespace):
            rows.append(row(run))
        elif run.uid in heard:
            rows.append({"foreign": heard[run.uid], "position": run.status.queue.position})
        else:
            hidden += 1
    rows += map(_array_row, folded)
    rows.sort(key=lambda each: each.get("position") or inf)
    body: dict[str, Any] = {
        "name": name,
        "exists": view is not None,
        "backend": spec.backend,
        "waiting": rows[:MOST_ROWS],
        "more": max(0, len(rows) - MOST_ROWS),
        "hidden": hidden,
    }
    if sight.queues and view is not None:
        body |= {"quotas": [quota.dump() for quota in spec.quotas], "status": view.status.dump()}
        body["cohort"] = spec.cohort or ""
    return body


def _array_row(pending: Pending) -> dict[str, Any]:
    """What waits of an array: as the run that is first in line, else as the array itself."""
    state, reason = pending.state
    of_set = array.summary(pending.view)
    cells = row(pending.waiting[0]) if pending.waiting else {"nodes": "", "message": of_set["message"]}
    name = {"array": pending.name, "name": pending.view.name, "namespace": pending.view.namespace}
    return cells | name | {"queue": of_set["queue"], "state": state, "reason": reason, "indices": len(pending.indices)}


def _names_heard(waiting: Sequence[RunView], spec: TrainingQueueSpec, sight: Sight) -> Mapping[str, str]:
    """What the viewer's own pending runs may hear of the others, by UID."""
    listens = any(sight.sees(run.namespace) for run in waiting)
    if not listens or spec.visibility != "Full":
        return {}
    return {run.uid: run.key for run in waiting if not sight.sees(run.namespace)}


def _rows(runs: Sequence[RunView]) -> list[dict[str, Any]]:
    return [row(run) for run in runs[:MOST_ROWS]]


def _place(run: RunView) -> tuple[bool, int, float, str]:
    """By position; who has none comes last."""
    position = run.status.queue.position
    return not position, position, run.created_at, run.key
