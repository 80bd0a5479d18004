"""The rack map: every node, where it is, who is on it, and whether it can be used.

Columns, not rows: 16,384 nodes are a few hundred kilobytes before compression. What is the same for everybody is
made once; what one viewer may see is cut out of it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.controller.web.access import Sight
from lockstep.core.failures.node_memory import suspicion
from lockstep.core.failures.node_state import NODE_STATES, state_of
from lockstep.core.model import assignment as slots
from lockstep.core.model.accelerators import ACCELERATORS, Accelerators, gpus_of, withheld_by
from lockstep.core.model.conditions import is_true
from lockstep.core.model.natural_order import natural_key
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import NodeView, PodView, Resources, RunView
from lockstep.core.placement.node_conditions import bad_conditions

NOBODY = -1
SOMEBODY = -2
"""A run that the viewer may not see."""
OTHERS = -3
"""Pods that are no gang's have its GPUs."""
SPARE = -1
NO_RANK = -2
"""It is not known which, or it is none of the viewer's business."""


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """What the map is made from. ``nodes`` and ``runs`` are copies: the map is made beside the event loop."""

    nodes: Sequence[NodeView]
    runs: Sequence[RunView]
    pods: Mapping[str, Sequence[PodView]]  # of runs whose assignment is not known, or that have ended, by UID
    foreign: Mapping[str, Resources]
    levels: Mapping[str, str]
    gpu_types: Mapping[str, Mapping[str, str]]
    now: float
    accelerators: Accelerators = field(default_factory=lambda: ACCELERATORS)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The whole map; nodes in the order of their places."""

    levels: tuple[str, ...]  # widest first
    groups: tuple[tuple[tuple[str, ...], int], ...]  # path through the levels, nodes there
    nodes: tuple[NodeView, ...]
    states: tuple[int, ...]  # places in NODE_STATES
    runs: tuple[RunView, ...]  # those that hold nodes
    holders: tuple[int, ...]  # index into ``runs``, or NOBODY or OTHERS
    ranks: tuple[int, ...]
    types: tuple[str, ...]
    type_of: tuple[int, ...]
    why: Mapping[int, str] = field(default_factory=dict)


def fleet(facts: FleetFacts) -> Fleet:
    """The map of all nodes that have GPUs or ranks on them; of all nodes where none has GPUs."""
    levels = tuple(facts.levels.items())[::-1]
    labels = [label for _, label in levels]
    runs = tuple(sorted((run for run in facts.runs if _holds(run, facts)), key=lambda run: natural_key(run.key)))
    on_node: dict[str, tuple[int, int]] = {}
    for index, run in sorted(enumerate(runs), key=lambda pair: not is_true(pair[1].status, ConditionType.FINISHED)):
        on_node.update((node, (index, rank)) for node, rank in _places(run, facts))
    chosen = [node for node in facts.nodes if node.name in on_node or _has_gpus(node, facts.accelerators)]
    placed = [(tuple(node.labels.get(label, "") for label in labels), node) for node in chosen or facts.nodes]
    placed.sort(key=lambda pair: ([(not part, natural_key(part)) for part in pair[0]], natural_key(pair[1].name)))
    nodes = tuple(node for _, node in placed)
    types = ("", *facts.gpu_types)
    at = [on_node.get(node.name) for node in nodes]
    return Fleet(
        levels=tuple(level for level, _ in levels),
        groups=tuple(Counter(path for path, _ in placed).items()),
        nodes=nodes,
        states=tuple(NODE_STATES.index(state_of(node, facts.now)) for node in nodes),
        runs=runs,
        holders=tuple(place[0] if place else _unheld(node, facts) for place, node in zip(at, nodes, strict=True)),
        ranks=tuple(place[1] if place else NO_RANK for place in at),
        types=types,
        type_of=tuple(types.index(_gpu_type(node, facts.gpu_types)) for node in nodes),
        why={index: why for index, node in enumerate(nodes) if (why := _why(node, facts))},
    )


def seen(known: Fleet, sight: Sight) -> dict[str, Any]:
    """The map as one viewer may see it.

    Runs of namespaces that they may not read are all alike. Names of nodes, and why one is not used, are for those
    who may list nodes; others get them of the nodes that their own runs are on.
    """
    theirs = (index for index, run in enumerate(known.runs) if sight.sees(run.namespace))
    number = {index: place for place, index in enumerate(theirs)}
    holders = [number.get(holder, SOMEBODY) if holder >= 0 else holder for holder in known.holders]
    sizes = Counter(holders)
    named = [sight.nodes or holder >= 0 for holder in holders]
    return {
        "levels": known.levels,
        "groups": [{"path": path, "count": count} for path, count in known.groups],
        "states": NODE_STATES,
        "types": known.types,
        "runs": [_run(known.runs[index], sizes[place]) for index, place in number.items()],
        "name": [node.name if may else "" for node, may in zip(known.nodes, named, strict=True)],
        "state": known.states,
        "run": holders,
        "rank": [rank if holder >= 0 else NO_RANK for rank, holder in zip(known.ranks, holders, strict=True)],
        "type": known.type_of,
        "why": {str(index): why for index, why in known.why.items()} if sight.nodes else {},
    }


def _run(run: RunView, nodes: int) -> dict[str, Any]:
    status = run.status
    return {
        "namespace": run.namespace,
        "name": run.name,
        "state": status.state,
        "reason": status.reason,
        "nodes": nodes,
        "step": status.progress.summary,
    }


def _holds(run: RunView, facts: FleetFacts) -> bool:
    if is_true(run.status, ConditionType.FINISHED):
        return run.status.leaving is not None and run.uid in facts.pods  # by what is left of it
    return slots.is_held(run.status.assignment) or run.uid in facts.pods


def _places(run: RunView, facts: FleetFacts) -> Iterable[tuple[str, int]]:
    """Its nodes with the rank on each. Where only its pods are known, they tell the nodes alone."""
    assignment = slots.bookable(run.status.assignment)
    if assignment.nodes and not is_true(run.status, ConditionType.FINISHED):
        return [(node, rank) for node, rank in zip(assignment.nodes, slots.slot_ranks(assignment), strict=True) if node]
    return [(pod.node, NO_RANK) for pod in facts.pods.get(run.uid, ()) if not pod.is_terminal]


def _unheld(node: NodeView, facts: FleetFacts) -> int:
    requests = facts.foreign.get(node.name, {})
    return OTHERS if any(requests.get(name) for name in facts.accelerators) else NOBODY


def _has_gpus(node: NodeView, accelerators: Accelerators) -> bool:
    return bool(gpus_of(node.allocatable, accelerators)[1] or withheld_by(node, accelerators))


def _gpu_type(node: NodeView, gpu_types: Mapping[str, Mapping[str, str]]) -> str:
    for name, labels in gpu_types.items():
        if all(node.labels.get(key) == value for key, value in labels.items()):
            return name
    return ""


def _why(node: NodeView, facts: FleetFacts) -> str:
    """What is to be said of a node that is not simply Ready."""
    reasons = [f"draining: {node.drain}"] if node.drain else []
    reasons += [f"condition {condition}" for condition in bad_conditions(node)]
    if suspect := suspicion(node, facts.now):
        reasons.append(suspect)
    if away := withheld_by(node, facts.accelerators):
        reasons.append(f"offering no {away} now")
    return "; ".join(reasons)
