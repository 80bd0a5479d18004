"""What every list and page says of a run: state and reason, nodes, queue, ranks."""

from __future__ import annotations

from lockstep.core.model import assignment as slots
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.reasons import ShownReason
from lockstep.core.model.snapshot import RunView
from lockstep.present.amounts import NONE, duration, plural


def current_phase(run: RunView) -> Phase:
    """Where it is in its life."""
    return phase_of(run.status, suspended=run.spec is not None and run.spec.suspend)


def state_of(run: RunView) -> tuple[str, str]:
    """State and reason as shown to people."""
    if not run.status.state:
        return Phase.PENDING, ShownReason.NOT_SEEN_YET
    return run.status.state, run.status.reason


def nodes_of(run: RunView) -> str:
    """Nodes ready, of all."""
    wanted = run.spec.nodes if run.spec is not None else 0
    return run.status.nodes_ready or f"0/{wanted}"


def leaving_in_words(run: RunView, now: float) -> str:
    """That it has ended and its pods still hold nodes, and how long at most; empty: they hold none."""
    leaving = run.status.leaving
    if leaving is None:
        return ""
    left = duration(max(0.0, leaving.until - now))
    held = plural(leaving.nodes, "node")
    return f"it has ended, and its pods still hold {held}; they are deleted in {left} at the latest"


def queue_of(run: RunView) -> str:
    """The queue the run names."""
    return run.spec.queue if run.spec is not None else NONE


def ranked_nodes(run: RunView) -> list[tuple[int, str]]:
    """Rank and node of the gang, in rank order; nothing when no nodes are held."""
    assignment = run.status.assignment
    ranks = [(rank, slot) for slot, rank in enumerate(slots.slot_ranks(assignment)) if rank >= 0]
    return [(rank, assignment.nodes[slot]) for rank, slot in sorted(ranks)]
