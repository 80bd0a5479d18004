"""Pods that a gang left behind, and which of them the next one has to wait for."""

from collections.abc import Iterable, Iterator, Mapping

from lockstep.core.model.plan import DeletePod
from lockstep.core.model.plan_builder import ends_later
from lockstep.core.model.snapshot import NodeView, PodPhase, PodView
from lockstep.core.model.tunables import Tunables


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


def orphan_deletes(orphans: Iterable[PodView], tunables: Tunables, now: float) -> Iterator[DeletePod]:
    """Pods whose run is gone go with their own grace, and take no longer than any pod may: nobody has their nodes."""
    longest = tunables.longest_grace
    for pod in orphans:
        if not pod.deleting or ends_later(pod, now + longest, tunables):
            grace = longest if pod.deleting else None
            yield DeletePod(pod.namespace, pod.name, pod.uid, "its run is gone", grace)
