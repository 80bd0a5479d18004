"""Pods that a gang left behind, and which of them the next one has to wait for."""

from collections.abc import Mapping

from lockstep.core.model.snapshot import NodeView, PodPhase, PodView


def holds_up(pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
    """The next gang of its run has to wait for this pod.

    Not for one that is being deleted where nobody is left to confirm its end: that could take for ever,
    its node stays booked as long as it is there, and each attempt saves in a directory of its own.
    """
    if pod.is_terminal or (pod.deleting and not pod.bound):  # it is never bound any more
        return False
    node = nodes.get(pod.node)
    return not pod.deleting or (node is not None and node.ready)


def never_started(pod: PodView) -> bool:
    """None of its containers has run, as its status says: there is nothing that it could still save."""
    return pod.phase is PodPhase.PENDING and pod.started_at is None and pod.exit_code is None


def holds_node(pod: PodView) -> bool:
    """Its node is nobody else's. What is being deleted and has not been bound is never bound any more."""
    return bool(pod.node) and not pod.is_terminal and (pod.bound or not pod.deleting)
