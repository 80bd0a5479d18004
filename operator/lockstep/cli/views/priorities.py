"""`lockstep prio`: the priority of pending runs by factor, as sprio shows it."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.cli import output, runs
from lockstep.cli.client import Cluster
from lockstep.cli.options import Selection
from lockstep.cli.views.queue import waits
from lockstep.core.model.snapshot import RunView
from lockstep.present.runs import queue_of, state_of

COLUMNS = ("NAME", "QUEUE", "POSITION", "PRIORITY", "CLASS", "AGE", "FAIRSHARE", "SIZE", "NICE")
_FACTORS = ("class", "age", "fairShare", "size", "nice")


def show(cluster: Cluster, run_names: Sequence[str] | None, selection: Selection) -> None:
    """Print the points that the operator last gave to pending runs, in the order of their queue: positions are newer
    than points, which are told now and then."""
    if run_names:
        found = [runs.fetch(cluster, name) for name in run_names]
    else:
        found = cluster.list(selection.path(cluster), **selection.query())["items"]
    pairs = [(runs.view(raw), raw) for raw in found]
    judged = [(run, raw) for run, raw in pairs if waits(run) and run.status.queue.updated is not None]
    judged.sort(key=lambda pair: _place(pair[0]))
    for run, _ in pairs:
        if run_names and all(run is not other for other, _ in judged):
            output.note(f"{run.name} does not wait for nodes; it is {state_of(run)[0]}.")
    if selection.output not in ("table", "wide"):
        output.print_object({"items": [raw for _, raw in judged]}, selection.output)
        return
    output.print_lines(listing([run for run, _ in judged], selection.all_namespaces) if judged else ())
    if not judged and not run_names:
        output.note(f"No runs wait {selection.where(cluster)}.")


def _place(run: RunView) -> tuple[str, bool, int, int, float, str]:
    """By queue and position; who has none comes last, by points."""
    queue = run.status.queue
    return queue_of(run), not queue.position, queue.position, -queue.priority, run.created_at, run.key


def listing(views: Sequence[RunView], with_namespace: bool) -> list[str]:
    """The table, header first."""
    header = (*(("NAMESPACE",) if with_namespace else ()), *COLUMNS)
    return output.table(header, [_row(run, with_namespace) for run in views])


def _row(run: RunView, with_namespace: bool) -> list[str]:
    queue = run.status.queue
    place = str(queue.position) if queue.position else ""
    row = [*([run.namespace] if with_namespace else []), run.name, queue_of(run), place, str(queue.priority)]
    return row + [str(queue.factors.get(name, 0)) for name in _FACTORS]
