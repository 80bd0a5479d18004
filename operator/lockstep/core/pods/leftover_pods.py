"""Pods that a gang left behind, and which of them the next one has to wait for."""

from collections.abc import Mapping

from lockstep.core.model.snapshot import NodeView, PodView


def holds_up(pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
    """The next gang of its run has to wait for this pod.

    Not for one that is being deleted where nobody is left to confirm its end: that could take for ever,
    its node stays booked as long as it is there, and each attempt saves in a directory of its own.
    """
    if pod.is_terminal or (pod.deleting and not pod.bound):  # it is never bound any more
        return False
    node = nodes.get(pod.node)
    return not pod.deleting or (node is not None and node.ready)
