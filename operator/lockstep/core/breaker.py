"""Losses that come together are the cluster's trouble, not the nodes': then no node is replaced."""

from lockstep.core.snapshot import ClusterSnapshot
from lockstep.core.tunables import Tunables


def disruption(snapshot: ClusterSnapshot, tunables: Tunables, now: float) -> str:
    """Why no node should be replaced now; empty when losses look like single ones.

    Open while more than ``node_share`` of all nodes (at least ``min_nodes``) turned NotReady, or
    ``runs`` runs lost a node, within the window.
    """
    limits = tunables.breaker
    recent = [
        node for node in snapshot.nodes.values() if not node.ready and now - node.ready_changed_at <= limits.window
    ]
    if len(recent) >= limits.min_nodes and len(recent) > limits.node_share * len(snapshot.nodes):
        return (
            f"{len(recent)} of {len(snapshot.nodes)} nodes turned NotReady within {limits.window:.0f} s "
            f"(breaker: {limits.node_share:.0%}, at least {limits.min_nodes})"
        )
    hit = [
        run
        for run in snapshot.runs
        if any(
            entry.cause == "NodeLost" and entry.ended_at is not None and now - entry.ended_at <= limits.window
            for entry in run.status.attempts
        )
    ]
    if len(hit) >= limits.runs:
        return f"{len(hit)} runs lost a node within {limits.window:.0f} s (breaker: {limits.runs})"
    return ""
