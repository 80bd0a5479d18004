"""`lockstep queue`: running and pending runs, as squeue shows them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from lockstep.api.base.durations import parse_duration
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import QueueStatus
from lockstep.cli import arrays, output, runs
from lockstep.cli.client import Cluster, Json
from lockstep.cli.errors import ApiServerError, CliError, may_pass
from lockstep.cli.options import Selection
from lockstep.core.model.conditions import is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.own_objects import parse_run_set
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView
from lockstep.present import start_estimate
from lockstep.present.amounts import duration, plural
from lockstep.present.arrays import Pending, folded
from lockstep.present.runs import (
    completion,
    current_phase,
    gpus_of,
    leaving_in_words,
    nodelist,
    nodes_of,
    pace,
    queue_of,
    seconds_left,
    seconds_used,
    state_of,
    user_of,
)

COLUMNS = (
    "NAME", "USER", "STATE", "REASON", "NODES", "GPUS", "STEP", "QUEUE", "POSITION", "START", "TIME", "LEFT", "AGE",
    "NODELIST",
)  # fmt: skip
WIDE_COLUMNS = ("PRIORITY", "ATTEMPT", "LOSS", "PACE", "DONE-IN", "SAVED", "BLOCKED-BY", "MESSAGE")
START_COLUMNS = ("NAME", "QUEUE", "POSITION", "PRIORITY", "START", "NODES", "REASON", "BLOCKED-BY")
_WATCH_SECONDS = 300.0
_AT_LEAST_SECONDS = 1.0  # from one watch to the next, where an API server or a proxy ends each at once
_USER, _NODELIST = 20, 32
"""Characters of them, where there is not room for more."""


def show_starts(cluster: Cluster, selection: Selection) -> None:
    """Print when pending runs are expected to start, the soonest first."""
    found = cluster.list(selection.path(cluster), **selection.query())
    pairs = [(run, raw) for raw in found["items"] if waits(run := runs.view(raw))]
    pairs.sort(key=lambda pair: soonest(pair[0]))
    if selection.output not in ("table", "wide"):
        output.print_object({**found, "items": [raw for _, raw in pairs]}, selection.output)
        return
    output.print_lines(starts([run for run, _ in pairs], selection.all_namespaces) if pairs else ())
    if not pairs:
        output.note(f"No runs wait {selection.where(cluster)}.")


def starts(views: Sequence[RunView], with_namespace: bool) -> list[str]:
    """The table, header first."""
    rows = []
    for run in views:
        queue = run.status.queue
        row = [*([run.namespace] if with_namespace else []), run.name, queue_of(run)]
        row += [str(queue.position) if queue.position else "", _priority(queue)]
        row += [start_estimate.column(queue), nodes_of(run), state_of(run)[1]]
        rows.append([*row, ",".join(queue.blocked_by)])
    return output.table((*(("NAMESPACE",) if with_namespace else ()), *START_COLUMNS), rows)


def soonest(run: RunView) -> tuple[float, int, float, str]:
    """Who starts first; those of whom nobody knows come last."""
    queue = run.status.queue
    at = queue.estimated_start
    return inf if at is None else at, queue.position or sys.maxsize, run.created_at, run.key


def waits(run: RunView) -> bool:
    """The run is pending."""
    return current_phase(run) is Phase.PENDING


def show(cluster: Cluster, selection: Selection, *, with_finished: bool, watch: bool, user: str = "") -> None:
    """Print the runs, of one user where one is named, and with ``watch`` every change of them until interrupted."""
    everywhere, form = selection.all_namespaces, selection.output
    path, query = selection.path(cluster), selection.query()
    found = cluster.list(path, **query)
    views = [(runs.view(raw), raw) for raw in found["items"] if _is_of(raw, user)]
    shown = [(run, raw) for run, raw in views if with_finished or not is_over(run)]
    shown.sort(key=lambda pair: order(pair[0]))
    listed = arrays.listed(cluster, everywhere=everywhere, selector=selection.selector, queue=selection.queue)
    sets = [raw for raw in listed if _is_of(raw, user)]
    if form in ("table", "wide"):
        single, pending = folded([run for run, _ in shown], map(parse_run_set, sets))
        lines = listing(single, everywhere, form == "wide", time.time(), pending)
        rows = len(single) + len(pending)
        output.print_lines(lines if rows or watch else ())
        if not rows:
            output.note(f"No runs{f' of {user}' if user else ''} wait or run {selection.where(cluster)}.")
        if len(shown) < len(views):
            output.note(f"{plural(len(views) - len(shown), 'finished run')} not shown; --finished shows them too.")
    elif not watch:
        output.print_object({**found, "items": [*(raw for _, raw in shown), *sets]}, form)
    if watch:
        for raw in _changes(cluster, path, query, found["metadata"]["resourceVersion"]):
            if not _is_of(raw, user):
                continue
            if form in ("table", "wide"):
                output.print_lines(listing([runs.view(raw)], everywhere, form == "wide", time.time())[1:])
            else:
                output.print_object(raw, form)


def listing(
    views: Sequence[RunView], with_namespace: bool, wide: bool, now: float, pending: Sequence[Pending] = ()
) -> list[str]:
    """The table, header first; ``pending`` in one row for each array, where the first of its runs stands."""
    header = (*(("NAMESPACE",) if with_namespace else ()), *COLUMNS, *(WIDE_COLUMNS if wide else ()))
    rows = [(order(run), _row(run, with_namespace, wide, now)) for run in views]
    if pending:
        rows += [(_place(each), _array_row(each, with_namespace, wide, now)) for each in pending]
        rows.sort()
    return output.table(header, [row for _, row in rows])


def is_over(run: RunView) -> bool:
    """It has ended, and holds no node any more."""
    return is_true(run.status, ConditionType.FINISHED) and run.status.leaving is None


def order(run: RunView) -> tuple[int, int, float, str]:
    """Those that hold nodes first, then pending ones by position, then finished ones."""
    phase = current_phase(run)
    group = (
        0 if run.status.leaving is not None else {Phase.PENDING: 1, Phase.SUSPENDED: 2, Phase.FINISHED: 3}.get(phase, 0)
    )
    return group, run.status.queue.position if group == 1 else 0, run.created_at, run.key


def _row(run: RunView, with_namespace: bool, wide: bool, now: float) -> list[str]:
    status = run.status
    state, reason = state_of(run)
    used, left = seconds_used(run, now), seconds_left(run, now)
    row = [run.namespace] if with_namespace else []
    nodes = nodes_of(run) if status.leaving is None else f"{status.leaving.nodes} held"
    row += [run.name, _user(run.annotations), state, reason, nodes, gpus_of(run), status.progress.summary]
    row += [queue_of(run), *(_prospects(status.queue, now) if waits(run) else ["", ""])]
    row += ["" if used is None else duration(used), "" if left is None else duration(left)]
    row += [duration(now - run.created_at), _cut(nodelist(run), wide)]
    if wide:
        saved = max((candidate.step for candidate in status.checkpoint.latest), default=None)
        row += [_priority(status.queue) if waits(run) else "", str(status.attempt), status.progress.loss]
        row += [pace(status.progress), completion(run, now).removeprefix("in ").partition(" ")[0]]
        row.append("" if saved is None else str(saved))
        row.append(",".join(status.queue.blocked_by) if waits(run) else "")
        row.append(leaving_in_words(run, now) or status.queue.message)
    return row


def _is_of(raw: Json, user: str) -> bool:
    return not user or user_of(raw["metadata"].get("annotations") or {}) == user


def _user(annotations: Mapping[str, str]) -> str:
    user = user_of(annotations)
    return user if len(user) <= _USER else f"{user[: _USER - 1]}…"


def _cut(nodes: str, wide: bool) -> str:
    return nodes if wide or len(nodes) <= _NODELIST else f"{nodes[: _NODELIST - 1]}…"


def _place(pending: Pending) -> tuple[int, int, float, str]:
    """Where the first of its runs stands, else behind whoever has a place."""
    if pending.waiting:
        return order(pending.waiting[0])
    return 1, sys.maxsize, pending.view.created_at, pending.view.key


def _array_row(pending: Pending, with_namespace: bool, wide: bool, now: float) -> list[str]:
    view = pending.view
    spec = view.spec.template.spec if view.spec is not None else None
    queue = pending.waiting[0].status.queue if pending.waiting else None
    row = [view.namespace] if with_namespace else []
    row += [pending.name, _user(view.annotations), *pending.state]
    row += [f"0/{spec.nodes}", _gpus(spec)] if spec is not None else ["", ""]
    row += ["", spec.queue if spec is not None else "", *(_prospects(queue, now) if queue is not None else ["", ""])]
    limit = parse_duration(spec.time_limit) if spec is not None and spec.time_limit is not None else None
    row += ["", "" if limit is None else duration(limit), duration(now - view.created_at), ""]
    if wide:
        row += [_priority(queue) if queue is not None else "", "", "", "", "", ""]
        row += [",".join(queue.blocked_by), queue.message] if queue is not None else ["", ""]
    return row


def _gpus(spec: TrainingRunSpec) -> str:
    return "" if spec.gpus_per_node is None else str(spec.gpus_per_node * spec.nodes)


def _prospects(queue: QueueStatus, now: float) -> list[str]:
    """Position and start of a pending run."""
    return [str(queue.position) if queue.position else "", start_estimate.column(queue, now)]


def _priority(queue: QueueStatus) -> str:
    return str(queue.priority) if queue.updated is not None else ""


def _changes(cluster: Cluster, path: str, query: dict[str, str], version: str) -> Iterator[Json]:
    is_too_old = complained = False
    while True:
        begun = time.monotonic()
        try:
            if is_too_old:
                found = cluster.list(path, **query)  # what changed meanwhile shows as it is now
                version, is_too_old = found["metadata"]["resourceVersion"], False
                yield from found["items"]
            for kind, raw in cluster.watch(path, seconds=_WATCH_SECONDS, resourceVersion=version, **query):
                version, complained = raw["metadata"]["resourceVersion"], False
                if kind != "BOOKMARK":
                    yield raw
        except CliError as error:
            if isinstance(error, ApiServerError) and error.status == 410 and not is_too_old:
                is_too_old = True
            elif not may_pass(error):
                raise
            elif not complained:
                output.note(f"{error}; asking again until it answers.")
                complained = True
        time.sleep(max(0.0, begun + _AT_LEAST_SECONDS - time.monotonic()))
