"""A heterogeneous batch job as one gang: what its components have in common, and what each has for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from lockstep.slurm.handling import IGNORED, REFUSED
from lockstep.slurm.submission.batch import Batch, BatchRequest, OptionOutcome


class Component(NamedTuple):
    """Of a heterogeneous job. ``ntasks`` None: not said."""

    nodes: int
    ntasks: int | None


def gang_of(components: Sequence[Batch]) -> tuple[BatchRequest, list[OptionOutcome], tuple[Component, ...]]:
    """One request of all components, the rows of all, and the size of each; none of a job that has but one.

    Alike ones are one gang. Others are refused: a gang is the same on each of its nodes.
    """
    first = components[0].request
    rows = list(dict.fromkeys(row for component in components for row in component.rows))
    if len(components) == 1:
        return first, rows, ()
    requests = [component.request for component in components]
    alike = {repr(_but_size(request)) for request in requests}
    if len(alike) > 1 or any(request.most_nodes > request.nodes for request in requests):
        words = "its components differ; a gang is alike on all nodes: submit them as jobs of their own"
        rows.append(OptionOutcome("hetjob", "", REFUSED, words))
    sizes = tuple(Component(request.nodes, request.ntasks) for request in requests)
    nodes, tasks = sum(size.nodes for size in sizes), [size.ntasks for size in sizes]
    total = sum(count or 0 for count in tasks) if all(tasks) else None
    named, told = _nodes_named(requests, nodes)
    return replace(first, nodes=nodes, most_nodes=nodes, ntasks=total, nodelist=named), [*rows, *told], sizes


def _nodes_named(components: Sequence[BatchRequest], total: int) -> tuple[tuple[str, ...], list[OptionOutcome]]:
    """The nodes that -w of all components means, and what is to be said of them. Which rank has which of them is not
    chosen by names, and so neither is which component."""
    lists = [tuple(dict.fromkeys(component.nodelist)) for component in components]
    named = tuple(dict.fromkeys(node for each in lists for node in each))
    alike = len({frozenset(each) for each in lists}) == 1
    if not named or (alike and len(named) >= total):
        return named, []
    if len(named) == total and all(len(own) == each.nodes for own, each in zip(lists, components, strict=True)):
        words = (
            "which component has which of its nodes, racks and names decide; where it matters, submit jobs of their own"
        )
        return named, [OptionOutcome("hetjob", "", IGNORED, words)]
    words = f"components name {len(named)} of {total} nodes"
    remedy = "have each name as many as its -N, and none twice, or none any"
    return (), [OptionOutcome("--nodelist", "", REFUSED, f"{words}; {remedy}")]


def _but_size(request: BatchRequest) -> BatchRequest:
    """Without what a component may have for itself: its size, the names of its nodes, and what is said of the script,
    which the first one has."""
    request = replace(request, chdir="", output="", error="", input="", append=None)
    return replace(request, nodes=0, most_nodes=0, nodes_said=False, ntasks=None, job_name="", said=(), nodelist=())
