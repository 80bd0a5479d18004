"""`lockstep info`: everything about one run on a page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from lockstep.api.base import names
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.cli import live, output, runs
from lockstep.cli.client import Cluster
from lockstep.cli.views import history
from lockstep.core.model.conditions import TYPES
from lockstep.core.model.natural_order import natural_key
from lockstep.core.model.quarantine import Save
from lockstep.core.model.ranges import format_ranges
from lockstep.core.model.snapshot import NodeView, RunView
from lockstep.core.model.tunables import Tunables
from lockstep.present import start_estimate
from lockstep.present.amounts import ago, duration, plural
from lockstep.present.explanation import checkpoint_summary
from lockstep.present.runs import (
    completion,
    nodes_of,
    pace,
    ranked_nodes,
    seconds_left,
    seconds_used,
    state_of,
    user_of,
)

_NODES_NAMED = 64
_NO_PLACE = "elsewhere"


def show(cluster: Cluster, name: str, form: str) -> None:
    """Print the page, or the object."""
    raw = runs.fetch(cluster, name)
    if form != "text":
        output.print_object(raw, form)
        return
    run = runs.whole(cluster, runs.view(raw))
    nodes = live.readable_nodes(cluster) if run.status.assignment.nodes else {}
    output.print_lines(page(run, nodes, Tunables().topology_levels, time.time()))


def page(run: RunView, nodes: Mapping[str, NodeView], levels: Mapping[str, str], now: float) -> Iterator[str]:
    """The page. ``nodes`` may be empty; ``levels`` are the topology's, narrowest first."""
    status = run.status
    yield from _facts(_head(run, now))
    if run.spec_error:
        yield f"Spec:       {run.spec_error}"
    elif run.spec is not None:
        yield ""
        yield from _facts(_wishes(run, run.spec))
    if status.conditions:
        yield ""
        yield from _conditions(status, now)
    ranks = ranked_nodes(run)
    if ranks:
        yield ""
        yield from rank_map(ranks, nodes, levels)
    if status.checkpoint.rejected:
        yield ""
        yield "Passed over at the last start:"
        yield from (
            f"  {Save(c.step, c.attempt or 0).label} ({c.tier}): {c.reason}" for c in status.checkpoint.rejected
        )
    if status.attempts:
        yield ""
        yield "Attempts:"
        yield from (f"  {line}" for line in history.listing(status, wide=False, now=now))


def rank_map(ranks: list[tuple[int, str]], nodes: Mapping[str, NodeView], levels: Mapping[str, str]) -> Iterator[str]:
    """Which rank is where, by the narrowest level of the topology that the nodes have."""
    label = next((label for label in levels.values() if any(label in node.labels for node in nodes.values())), "")
    places: dict[str, list[tuple[int, str]]] = {}
    for rank, name in ranks:
        view = nodes.get(name)
        places.setdefault(view.labels.get(label, "") if view is not None else "", []).append((rank, name))
    level = next((level for level, key in levels.items() if key == label), "")
    width = max(len(place or _NO_PLACE) for place in places)
    yield f"Ranks by {level}:" if level else "Ranks:"
    for place in sorted(places, key=lambda place: (not place, natural_key(place))):
        members = places[place]
        named = [name or "(waits for a node)" for _, name in members[:_NODES_NAMED]]
        more = f" and {len(members) - _NODES_NAMED} more" if len(members) > _NODES_NAMED else ""
        where = f"{(place or _NO_PLACE).ljust(width)}  " if level else ""
        yield f"  {where}{format_ranges(rank for rank, _ in members)}: {' '.join(named)}{more}"


def _head(run: RunView, now: float) -> Iterator[tuple[str, str]]:
    status = run.status
    state, reason = state_of(run)
    user = user_of(run.annotations)
    whose = f", of {user}" if user else ""
    yield "Name", f"{run.name} (namespace {run.namespace}{whose}, made {ago(run.created_at, now)})"
    if status.job_id is not None:
        yield "Job", str(status.job_id)
    yield "State", f"{output.state_word(state)}{f': {reason}' if reason else ''}"
    if status.queue.message or status.queue.position:
        place = f"position {status.queue.position}: " if status.queue.position else ""
        yield "Waits", f"{place}{status.queue.message}"
        yield from start_estimate.facts(run, now)
    time_given = start_estimate.granted(run)
    if time_given:
        yield "Time", time_given
    used, left = seconds_used(run, now), seconds_left(run, now)
    if used is not None:
        yield "Used", f"{duration(used)}{f', {duration(left)} left' if left is not None else ''}"
    yield "Nodes", f"{nodes_of(run)} ready"
    totals = status.totals
    replaced = ", ".join(
        words
        for count, words in (
            (totals.restarts_in_place, f"restarted in place {plural(totals.restarts_in_place, 'time')}"),
            (totals.nodes_replaced, f"{plural(totals.nodes_replaced, 'node')} replaced"),
            (totals.pods_replaced, f"{plural(totals.pods_replaced, 'pod')} replaced"),
        )
        if count
    )
    yield "Attempt", f"{status.attempt}{f' ({replaced})' if replaced else ''}"
    if status.progress.time is not None:
        loss = f", loss {status.progress.loss}" if status.progress.loss else ""
        yield "Progress", f"step {_steps(status)}{loss}, {ago(status.progress.time, now)}"
        if speed := pace(status.progress):
            done = completion(run, now)
            yield "Pace", f"{speed}{f'; all steps are done {done}' if done else ''}"
    if status.start is not None:
        resumed = status.start.resume
        yield "Resumed", checkpoint_summary(resumed) if resumed is not None else "no: attempt began at step 0"
        if status.start.dashboard:
            yield "Dashboard", f"http://{status.start.dashboard}"
    for saved in status.checkpoint.latest:
        yield "Saved", f"{checkpoint_summary(saved)}{f', {ago(saved.time, now)}' if saved.time else ''}"
    if status.stop is not None:
        yield "Stopping", f"{status.stop.reason}: {status.stop.message}"


def _steps(status: TrainingRunStatus) -> str:
    total = status.progress.total_steps
    return f"{status.progress.step} of {total}" if total else str(status.progress.step)


def _wishes(run: RunView, spec: TrainingRunSpec) -> Iterator[tuple[str, str]]:
    yield "Queue", spec.queue
    yield "Image", spec.image
    batch = spec.launcher.batch
    command = (batch.name or "a batch script", *batch.arguments) if batch is not None else spec.command
    yield "Command", " ".join((*spec.entrypoint, *command))
    yield "Launcher", spec.launcher.type
    resolved = run.status.resolved
    if resolved.generation:
        make = "GPUs" if resolved.gpu_resource == names.GPU_RESOURCE else resolved.gpu_resource
        gpus = f"{resolved.gpus_per_node} {resolved.gpu_type or make}"
        others = "".join(f", {amount} {name}" for name, amount in sorted(resolved.resources.items()))
        yield "Each node", f"{gpus}, {resolved.cpu} CPU, {resolved.memory} memory{others}"
        if resolved.unused_gpus:
            yield "Unused", resolved.unused_gpus
    if spec.checkpoint is None:
        yield "Tiers", "none: a restart begins at step 0"
    else:
        shared, local = spec.checkpoint.shared, spec.checkpoint.local
        tiers = [f"local {local.storage}"] if local is not None else []
        tiers += (
            [f"shared {shared.claim_name}:{shared.path or resolved.shared_path or run.key}"]
            if shared is not None
            else []
        )
        yield "Tiers", f"{', '.join(tiers)} (format {spec.checkpoint.format})"


def _facts(facts: Iterator[tuple[str, str]]) -> Iterator[str]:
    yield from (f"{f'{name}:':<12}{words}" for name, words in facts)


def _conditions(status: TrainingRunStatus, now: float) -> Iterator[str]:
    order = {kind.value: index for index, kind in enumerate(TYPES)}
    rows = [
        [c.type, c.status, c.reason, duration(now - c.last_transition_time), c.message]
        for c in sorted(status.conditions, key=lambda c: order.get(c.type, -1))
    ]
    yield "Conditions:"
    yield from (f"  {line}" for line in output.table(("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"), rows))
