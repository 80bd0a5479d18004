"""`lockstep queue`: who holds nodes and who waits, as squeue shows it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from lockstep.cli import output, runs
from lockstep.cli.client import Cluster, Json, runs_path
from lockstep.cli.errors import ApiError
from lockstep.core.conditions import is_true
from lockstep.core.lifecycle import Phase, phase_of
from lockstep.core.snapshot import RunView

COLUMNS = ("NAME", "STATE", "REASON", "NODES", "STEP", "ATTEMPT", "QUEUE", "POSITION", "AGE")
WIDE_COLUMNS = ("LOSS", "SAVED", "RANK0", "MESSAGE")
_WATCH_SECONDS = 300.0


def show(
    cluster: Cluster, *, everywhere: bool, selector: str, with_finished: bool, queue: str, form: str, watch: bool
) -> None:
    """Print the runs, and with ``watch`` every change of them until interrupted."""
    path = runs_path(None if everywhere else cluster.namespace)
    query = {"labelSelector": selector} if selector else {}
    if queue:
        query["fieldSelector"] = f"spec.queue={queue}"
    found = cluster.list(path, **query)
    views = [(runs.view(raw), raw) for raw in found["items"]]
    shown = [(run, raw) for run, raw in views if with_finished or not is_true(run.status, "Finished")]
    shown.sort(key=lambda pair: order(pair[0]))
    if form in ("table", "wide"):
        lines = listing([run for run, _ in shown], everywhere, form == "wide", time.time())
        output.print_lines(lines if shown or watch else ())
        _note_hidden(cluster, everywhere, len(shown), len(views) - len(shown))
    elif not watch:
        output.print_object({**found, "items": [raw for _, raw in shown]}, form)
    if watch:
        for raw in _changes(cluster, path, query, found["metadata"]["resourceVersion"]):
            if form in ("table", "wide"):
                output.print_lines(listing([runs.view(raw)], everywhere, form == "wide", time.time())[1:])
            else:
                output.print_object(raw, form)


def listing(views: Sequence[RunView], with_namespace: bool, wide: bool, now: float) -> list[str]:
    """The table, header first."""
    header = (*(("NAMESPACE",) if with_namespace else ()), *COLUMNS, *(WIDE_COLUMNS if wide else ()))
    return output.table(header, [_row(run, with_namespace, wide, now) for run in views])


def order(run: RunView) -> tuple[int, int, float, str]:
    """Who holds nodes first, then who waits by position, then who has finished."""
    phase = phase_of(run.status, suspended=run.spec is not None and run.spec.suspend)
    group = {Phase.PENDING: 1, Phase.SUSPENDED: 2, Phase.FINISHED: 3}.get(phase, 0)
    return group, run.status.queue.position if group == 1 else 0, run.created_at, run.key


def _row(run: RunView, with_namespace: bool, wide: bool, now: float) -> list[str]:
    status = run.status
    state, reason = runs.state_of(run)
    row = [run.namespace] if with_namespace else []
    row += [run.name, state, reason, runs.nodes_of(run), status.progress.summary]
    waits = phase_of(status, suspended=run.spec is not None and run.spec.suspend) is Phase.PENDING
    row += [
        str(status.attempt),
        runs.queue_of(run),
        str(status.queue.position) if waits and status.queue.position else "",
    ]
    row.append(output.duration(now - run.created_at))
    if wide:
        saved = max((candidate.step for candidate in status.checkpoint.latest), default=None)
        row += [status.progress.loss, "" if saved is None else str(saved)]
        row += [next((node for _, node in runs.ranked_nodes(run)), ""), status.queue.message]
    return row


def _note_hidden(cluster: Cluster, everywhere: bool, shown: int, hidden: int) -> None:
    if not shown:
        where = "in any namespace" if everywhere else f"in namespace {cluster.namespace}"
        output.note(f"No runs wait or run {where}.")
    if hidden:
        output.note(f"{output.plural(hidden, 'finished run')} not shown; --finished shows them too.")


def _changes(cluster: Cluster, path: str, query: dict[str, str], version: str) -> Iterator[Json]:
    while True:
        try:
            for kind, raw in cluster.watch(path, seconds=_WATCH_SECONDS, resourceVersion=version, **query):
                version = raw["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    yield raw
        except ApiError as error:
            if error.status != 410:
                raise
            found = cluster.list(path, **query)  # what changed meanwhile shows as it is now
            version = found["metadata"]["resourceVersion"]
            yield from found["items"]
