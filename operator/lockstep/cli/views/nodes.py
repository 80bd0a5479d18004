"""`lockstep nodes`: what is on every node, and what failed there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from lockstep.api.base.times import to_rfc3339
from lockstep.cli import output
from lockstep.cli.client import Cluster, core_path, runs_path
from lockstep.cli.errors import NODES_ARE_THE_CLUSTERS, ApiServerError, if_forbidden
from lockstep.cli.live import node_views
from lockstep.cli.operator_settings import read_settings
from lockstep.cli.runs import view, whole
from lockstep.core.failures.actions import ONE_DAY
from lockstep.core.failures.node_memory import suspicion
from lockstep.core.failures.node_state import state_of
from lockstep.core.model import assignment as slots
from lockstep.core.model.accelerators import ACCELERATORS, Accelerators, gpus_of, withheld_by
from lockstep.core.model.conditions import is_true
from lockstep.core.model.natural_order import natural_key
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import NodeView, RunView
from lockstep.core.placement.node_conditions import bad_conditions
from lockstep.present.amounts import plural
from lockstep.present.runs import leaving_in_words

ENDED = "ended"
"""Stands for the rank where pods of a run that has ended are left."""


def listing(
    nodes: Iterable[NodeView],
    runs: Sequence[RunView],
    *,
    wide: bool,
    every: bool,
    now: float,
    accelerators: Accelerators = ACCELERATORS,
) -> list[str]:
    """One line per node, in natural order; without ``every`` only those with something to say.

    ``accelerators`` count as GPUs.
    """
    places = {node: place for run in runs for node, place in _left_behind(run)}
    leaving = {run.key: leaving_in_words(run, now) for run in runs if run.status.leaving is not None}
    places |= dict(chain.from_iterable(map(_places, runs)))
    avoided = _avoided(runs, now)
    rows = []
    for node in sorted(nodes, key=lambda each: natural_key(each.name)):
        run, rank = places.get(node.name, ("", ""))
        remarks = [*_remarks(node, avoided.get(node.name, ()), accelerators, now)]
        if rank == ENDED:
            remarks.append(leaving[run])
        why = "; ".join(remarks)
        failures = [failure for failure in node.failures if now - failure.time < ONE_DAY]
        if not (every or run or why or failures):
            continue
        row = [node.name, state_of(node, now), run, rank]
        row += [str(gpus_of(node.allocatable, accelerators)[1]), str(len(failures) or ""), why]
        if wide and failures:
            row[-1] = "; ".join(
                [*filter(None, (why,)), *(f"{f.cause} of {f.run} at {to_rfc3339(f.time)}" for f in failures)]
            )
        rows.append(row)
    return output.table(["NODE", "STATE", "RUN", "RANK", "GPUS", "FAILURES", "WHY"], rows)


def show(cluster: Cluster, form: str, operator_namespace: str, *, every: bool, now: float) -> None:
    """Print the nodes of the cluster."""
    with if_forbidden(NODES_ARE_THE_CLUSTERS):
        raw = cluster.list(core_path(None, "nodes"))
    if form in ("json", "yaml", "name"):
        output.print_object({"apiVersion": "v1", "kind": "NodeList", **raw}, form)
        return
    nodes = node_views(raw["items"]).values()
    known = read_settings(cluster, operator_namespace).tunables.accelerators
    lines = listing(nodes, _all_runs(cluster), wide=form == "wide", every=every, now=now, accelerators=known)
    if len(lines) == 1 and nodes:
        output.note(f"nothing runs or failed on the {plural(len(nodes), 'node')}; --all lists them")
    else:
        output.print_lines(lines)


def _all_runs(cluster: Cluster) -> list[RunView]:
    try:
        found = [view(raw) for raw in cluster.list(runs_path(None))["items"]]
        return [whole(cluster, run) for run in found]
    except ApiServerError as error:
        if error.status != 403:
            raise
        output.note("which runs are on the nodes is not shown: runs of all namespaces may not be listed")
        return []


def _places(run: RunView) -> Iterator[tuple[str, tuple[str, str]]]:
    """Nodes of a run that has not finished, with its name and the rank there."""
    assignment = run.status.assignment
    if not is_true(run.status, ConditionType.FINISHED):
        for node, rank in zip(assignment.nodes, slots.slot_ranks(assignment), strict=True):
            if node:
                yield node, (run.key, str(rank) if rank >= 0 else "spare")


def _left_behind(run: RunView) -> Iterator[tuple[str, tuple[str, str]]]:
    """Nodes of a run that has ended, as long as its pods hold any of them."""
    if run.status.leaving is not None:
        yield from ((node, (run.key, ENDED)) for node in run.status.assignment.nodes if node)


def _avoided(runs: Iterable[RunView], now: float) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for run in runs:
        for entry in run.status.recovery.excluded_nodes:
            if not is_true(run.status, ConditionType.FINISHED) and (entry.until is None or entry.until > now):
                found.setdefault(entry.node, []).append(f"avoided by {run.key}: {entry.reason}")
    return found


def _remarks(node: NodeView, avoided: Iterable[str], accelerators: Accelerators, now: float) -> Iterator[str]:
    if node.drain:
        yield f"draining: {node.drain}"
    for condition in bad_conditions(node):
        yield f"condition {condition}"
    if away := withheld_by(node, accelerators):
        yield f"offering no {away} now"
    if why := suspicion(node, now):
        yield why
    yield from avoided
