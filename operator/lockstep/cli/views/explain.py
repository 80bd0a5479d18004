"""`lockstep explain`: why a run is pending or why it stopped, and what comes next, in sentences."""

from __future__ import annotations

import time
from collections.abc import Iterator

from lockstep.cli import live, output, runs
from lockstep.cli.client import Cluster
from lockstep.core.model.snapshot import RunView
from lockstep.present.explanation import LiveAdmission, NotLive, sentences, waits_for_nodes
from lockstep.present.runs import state_of


def show(cluster: Cluster, name: str, form: str, operator_namespace: str, *, everything: bool = False) -> None:
    """Print the explanation, or the object it rests on."""
    raw = runs.fetch(cluster, name)
    if form != "text":
        output.print_object(raw, form)
        return
    run, now = runs.governed_view(cluster, raw), time.time()
    found: LiveAdmission | NotLive | None = None
    if waits_for_nodes(run):
        try:
            found = live.admission(cluster, run, now, operator_namespace)
        except NotLive as reason:
            found = reason
    output.print_lines(explanation(run, found, now, everything=everything))


def explanation(
    run: RunView, found: LiveAdmission | NotLive | None, now: float, *, everything: bool = False
) -> Iterator[str]:
    """State and reason, and the explanation."""
    state, reason = state_of(run)
    yield f"{run.name} is {output.state_word(state)}{f' ({reason})' if reason else ''}."
    yield from sentences(run, found, now, everything=everything)
