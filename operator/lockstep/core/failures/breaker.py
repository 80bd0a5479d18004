"""What comes together is the cluster's trouble, not the nodes': then no node is replaced.

Losses of nodes open the breaker for all runs. Slots of one gang that are late together, or workers that are silent
together on nodes that are Ready, are slow (``ClusterSlow``), for a time that whoever asks bounds.
"""

from collections.abc import Iterable

from lockstep.api.base import names
from lockstep.core.model.plural import plural
from lockstep.core.model.reasons import AttemptCause
from lockstep.core.model.settings import Breaker
from lockstep.core.model.snapshot import ClusterSnapshot, Lag, NodeView
from lockstep.core.model.tunables import Tunables

HANDFUL = 8
"""Slots of one gang that may be late each for itself, however large it is."""


def is_slow(late: int, of: int, limits: Breaker) -> bool:
    """So many of a gang are late at once that it is not they who are to blame."""
    return late >= limits.min_nodes and late > min(limits.node_share * of, HANDFUL)


def slow_in_words(late: int, of: int, what: str, lag: Lag) -> str:
    """What is late together, as one thing."""
    return (
        f"{late} of {plural(of, 'rank')} are late together: {what}; the operator's loop runs {lag.loop:.1f} s late, "
        f"a write takes the API server {lag.write:.1f} s, a pod kube-scheduler {lag.placing:.1f} s; nobody is replaced "
        "for it"
    )


def disruption(snapshot: ClusterSnapshot, tunables: Tunables, now: float) -> str:
    """Why no node should be replaced now; empty when losses look like single ones.

    Open while more than ``node_share`` of all nodes (at least ``min_nodes``) are NotReady that turned so within
    one window, or ``runs`` runs lost nodes within one that are not back; for ``longest`` seconds, after which
    nodes that have not come back are taken for lost. What was declared out of service is out of the count.
    """
    limits = tunables.breaker
    down = [
        node for node in snapshot.nodes.values() if _is_down(node) and now - node.ready_changed_at <= limits.longest
    ]
    together = _most_within(limits.window, (node.ready_changed_at for node in down))
    if together >= limits.min_nodes and together > limits.node_share * len(snapshot.nodes):
        return (
            f"{together} of {plural(len(snapshot.nodes), 'node')} turned NotReady within {limits.window:.0f} s and did "
            "not come back "
            f"(breaker: {limits.node_share:.0%}, at least {limits.min_nodes})"
        )
    hit = _most_within(limits.window, _losses(snapshot, tunables, now))
    if hit >= limits.runs:
        return f"{plural(hit, 'run')} lost a node within {limits.window:.0f} s (breaker: {limits.runs})"
    return ""


def _losses(snapshot: ClusterSnapshot, tunables: Tunables, now: float) -> Iterable[float]:
    """For every run, when it last lost a node that is not back, or that it lost just now.

    Not one that was Ready all the while: a worker's silence alone may be its own doing, or its namespace's.
    """
    limits = tunables.breaker
    for run in snapshot.runs:
        for entry in reversed(run.status.attempts):
            seen = entry.seen_at or entry.ended_at
            if entry.cause != AttemptCause.NODE_LOST or seen is None or now - seen > limits.longest:
                continue
            node = snapshot.nodes.get(entry.node)
            stayed = node is not None and node.ready and node.ready_changed_at < (entry.ended_at or seen)
            if (now - seen <= limits.window and not stayed) or (node is not None and _is_down(node)):
                yield seen
                break


def _is_down(node: NodeView) -> bool:
    return not node.ready and all(taint.key != names.TAINT_OUT_OF_SERVICE for taint in node.taints)


def _most_within(window: float, moments: Iterable[float]) -> int:
    """The most of ``moments`` that lie within one window."""
    times = sorted(moments)
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] > window:
            first += 1
        most = max(most, last - first + 1)
    return most
