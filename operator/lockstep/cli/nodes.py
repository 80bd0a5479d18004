"""`lockstep nodes`: what is on every node, what failed there, and the ways to empty or forgive one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import typer

from lockstep.api.base import names
from lockstep.api.base.times import to_rfc3339
from lockstep.cli import output
from lockstep.cli.client import Cluster, Json, core_path, runs_path
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.live import node_views
from lockstep.cli.runs import view, whole
from lockstep.core.failures.actions import ONE_DAY
from lockstep.core.failures.node_memory import suspicion
from lockstep.core.failures.node_state import state_of
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import is_true
from lockstep.core.model.natural_order import natural_key
from lockstep.core.model.snapshot import NodeView, RunView
from lockstep.core.placement.node_conditions import bad_conditions

ADMINISTRATORS = "nodes belong to the whole cluster; ask an administrator, or see your run's with lockstep info RUN"


@dataclass(frozen=True, slots=True)
class RunSlot:
    """A slot of a run."""

    run: str
    slot: int
    rank: int


def listing(nodes: Iterable[NodeView], runs: Sequence[RunView], *, wide: bool, every: bool, now: float) -> list[str]:
    """One line per node, in natural order; without ``every`` only those with something to say."""
    places = {node: place for run in runs for node, place in _places(run)}
    avoided = _avoided(runs, now)
    rows = []
    for node in sorted(nodes, key=lambda each: natural_key(each.name)):
        place, why = places.get(node.name), "; ".join(_remarks(node, avoided.get(node.name, ()), now))
        failures = [failure for failure in node.failures if now - failure.time < ONE_DAY]
        if not (every or place or why or failures):
            continue
        rank = "" if place is None else str(place.rank) if place.rank >= 0 else "spare"
        row = [node.name, state_of(node, now), place.run if place else "", rank]
        row += [str(node.allocatable.get(names.GPU_RESOURCE, 0)), str(len(failures) or ""), why]
        if wide and failures:
            row[-1] = "; ".join(
                [*filter(None, (why,)), *(f"{f.cause} of {f.run} at {to_rfc3339(f.time)}" for f in failures)]
            )
        rows.append(row)
    return output.table(["NODE", "STATE", "RUN", "RANK", "GPUS", "FAILURES", "WHY"], rows)


def show(cluster: Cluster, form: str, *, every: bool, now: float) -> None:
    """Print the nodes of the cluster."""
    with _administrators_work():
        raw = cluster.list(core_path(None, "nodes"))
    if form in ("json", "yaml", "name"):
        output.print_object({"apiVersion": "v1", "kind": "NodeList", **raw}, form)
        return
    nodes = node_views(raw["items"]).values()
    lines = listing(nodes, _all_runs(cluster), wide=form == "wide", every=every, now=now)
    if len(lines) == 1 and nodes:
        output.note(f"nothing runs or failed on the {output.plural(len(nodes), 'node')}; --all lists them")
    else:
        output.print_lines(lines)


def drain(cluster: Cluster, chosen: Sequence[str], reason: str) -> None:
    """Ask the gangs to leave nodes after a save, and keep new ones away."""
    for node in chosen:
        patch = {"metadata": {"annotations": {names.ANNOTATION_DRAIN: reason}}, "spec": {"unschedulable": True}}
        _change(cluster, node, patch, "is being drained: its runs save, then move their ranks; watch lockstep nodes")


def undrain(cluster: Cluster, chosen: Sequence[str]) -> None:
    """Let runs on again."""
    for node in chosen:
        patch = {"metadata": {"annotations": {names.ANNOTATION_DRAIN: None}}, "spec": {"unschedulable": False}}
        _change(cluster, node, patch, "takes runs again")


def clear(cluster: Cluster, chosen: Sequence[str], now: float) -> None:
    """Forgive what failed on nodes so far."""
    for node in chosen:
        with _administrators_work():
            raw = cluster.get(core_path(None, "nodes", node))
        annotations = {
            names.ANNOTATION_FIRST_FAILURES: None,
            names.ANNOTATION_SUSPECT: None,
            names.ANNOTATION_FAILURES_CLEARED: to_rfc3339(now),
        }
        before = raw["spec"].get("taints", [])
        kept = [taint for taint in before if taint["key"] != names.TAINT_SUSPECT]
        patch: Json = {"metadata": {"annotations": annotations, "resourceVersion": raw["metadata"]["resourceVersion"]}}
        if len(kept) < len(before):
            patch["spec"] = {"taints": kept}
        _change(cluster, node, patch, "has a clean record")


def _change(cluster: Cluster, node: str, patch: Json, done: str) -> None:
    with _administrators_work():
        cluster.merge_patch(core_path(None, "nodes", node), patch)
    typer.echo(f"node/{node} {done}")


@contextmanager
def _administrators_work() -> Iterator[None]:
    try:
        yield
    except ApiServerError as error:
        if error.status == 403:
            raise CliError(str(error), ADMINISTRATORS) from error
        raise


def _all_runs(cluster: Cluster) -> list[RunView]:
    try:
        found = [view(raw) for raw in cluster.list(runs_path(None))["items"]]
        return [whole(cluster, run) for run in found]
    except ApiServerError as error:
        if error.status != 403:
            raise
        output.note("which runs are on the nodes is not shown: runs of all namespaces may not be listed")
        return []


def _places(run: RunView) -> Iterator[tuple[str, RunSlot]]:
    assignment = run.status.assignment
    if is_true(run.status, "Finished"):
        return
    ranks = slots.slot_ranks(assignment)
    for slot, node in enumerate(assignment.nodes):
        if node:
            yield node, RunSlot(run.key, slot, ranks[slot])


def _avoided(runs: Iterable[RunView], now: float) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for run in runs:
        for entry in run.status.recovery.excluded_nodes:
            if not is_true(run.status, "Finished") and (entry.until is None or entry.until > now):
                found.setdefault(entry.node, []).append(f"avoided by {run.key}: {entry.reason}")
    return found


def _remarks(node: NodeView, avoided: Iterable[str], now: float) -> Iterator[str]:
    if node.drain:
        yield f"draining: {node.drain}"
    for condition in bad_conditions(node):
        yield f"condition {condition}"
    if why := suspicion(node, now):
        yield why
    yield from avoided
