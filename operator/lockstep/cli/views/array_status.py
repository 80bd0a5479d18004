"""`lockstep status`: what became of each index of an array, and its runs that have not ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lockstep.cli import arrays, output
from lockstep.cli.client import Cluster, Json
from lockstep.core.arrays.members import holds_nodes, index_of
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.conditions import is_true
from lockstep.core.model.own_objects import parse_run_set
from lockstep.core.model.ranges import format_ranges
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView
from lockstep.present.arrays import OUTCOMES, by_outcome, sentences, set_state
from lockstep.present.runs import nodes_of, state_of


def show(cluster: Cluster, raw: Json, form: str) -> None:
    """Print one page about a set."""
    if form != "text":
        output.print_object(raw, form)
        return
    view = parse_run_set(raw)
    output.print_lines(page(view, arrays.members(cluster, view)))


def page(view: RunSetView, own: Sequence[RunView]) -> Iterator[str]:
    """One page: how many and which, why it does not go on, and the runs that have not ended."""
    state, reason = set_state(view)
    yield f"{view.name} is {output.state_word(state)} ({reason})."
    yield from sentences(view)
    if view.spec is not None:
        which = by_outcome(view, {index_of(run) for run in own if holds_nodes(run)})
        yield ""
        rows = [[word, str(len(which[word])), format_ranges(which[word])] for word in OUTCOMES]
        yield from output.table(("OUTCOME", "COUNT", "INDICES"), rows)
    active = sorted(
        (run for run in own if not is_true(run.status, ConditionType.FINISHED)), key=lambda run: index_of(run) or 0
    )
    if active:
        yield ""
        rows = [[run.name, *state_of(run), nodes_of(run), run.status.progress.summary] for run in active]
        yield from output.table(("RUN", "STATE", "REASON", "NODES", "STEP"), rows)
