"""What a node is to runs, in one word."""

from lockstep.core.failures.node_memory import suspicion
from lockstep.core.model.snapshot import NodeView
from lockstep.core.placement.node_conditions import bad_conditions

NODE_STATES = ("Ready", "NotReady", "Draining", "Cordoned", "Unhealthy", "Suspect")


def state_of(node: NodeView, now: float) -> str:
    """One of ``NODE_STATES``: whether runs can have it, and if not, the first reason why."""
    if node.deleting or not node.ready:
        return "NotReady"
    if node.drain:
        return "Draining"
    if node.unschedulable:
        return "Cordoned"
    if node.conditions and bad_conditions(node):  # asked of every node at every scrape
        return "Unhealthy"
    return "Suspect" if node.failures and suspicion(node, now) else "Ready"
