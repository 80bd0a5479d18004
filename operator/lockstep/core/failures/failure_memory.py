"""What a run remembers of its failures: bounded, in status, and forgotten when it no longer tells anything."""

import math
from collections.abc import Sequence

from lockstep.api.recovery_status import ExcludedNode, RecoveryStatus
from lockstep.core.failures.actions import ONE_DAY
from lockstep.core.failures.recovery_record import exclude_node, forget_refusals, keep_excluded
from lockstep.core.failures.signs import UNHEALTHY_DEVICE
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.plural import plural
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import NodeView

ONE_HOUR = 3600.0
_NODES_NAMED = 4
LEAST_EXCLUDED = 2
EXCLUDED_SHARE = 0.10
"""So many nodes, or this share of those the gang could run on, may be excluded within an hour."""


def first_failures_on(recovery: RecoveryStatus, node: str, now: float) -> int:
    """How often a rank on ``node`` was first to fail within a day."""
    return sum(one.node == node and now - one.time < ONE_DAY for one in recovery.first_failures)


def lost_pods(recovery: RecoveryStatus, slot: int, node: str, now: float) -> int:
    """Pods lost in ``slot`` on ``node``, of the last day. Entries without a time are those of an older operator."""
    return next(
        (
            entry.count
            for entry in recovery.slot_losses
            if (entry.slot, entry.node) == (slot, node) and (entry.time is None or now - entry.time < ONE_DAY)
        ),
        0,
    )


def excluded_enough(state: RunState, more: int = 1) -> str:
    """Why ``more`` nodes are not to be excluded now; empty when they may be.

    A run that spoils node after node would otherwise work its way through the cluster.
    """
    since = [entry.since for entry in state.status.recovery.excluded_nodes if entry.since is not None]
    recent = sum(1 for at in since if state.now - at < ONE_HOUR)
    most = max(LEAST_EXCLUDED, int(EXCLUDED_SHARE * nodes_large_enough(state)))
    if recent + more <= most:
        return ""
    these = f", and these would be {more}" if more > 1 else ""
    were = "was" if recent == 1 else "were"
    return f"{plural(recent, 'node')} {were} excluded within an hour, and {most} are the most{these}"


def exclude(plan: PlanBuilder, node: str, reason: str, seconds: float, condition: str = "") -> None:
    """Keep the run off a node for so long (inf: for good), or until its condition is gone."""
    until = plan.stamp + seconds if seconds < math.inf else None
    entry = ExcludedNode(node=node, reason=reason[:256], since=plan.stamp, until=until, condition=condition)
    plan.status = exclude_node(plan.status, entry)


def readmit_mended(plan: PlanBuilder) -> None:
    """Drop exclusions for a condition that the node no longer has. A node that is not there has not been mended."""
    excluded = plan.status.recovery.excluded_nodes
    kept = tuple(entry for entry in excluded if not (entry.condition and _is_mended(plan, entry)))
    if len(kept) < len(excluded):
        plan.status = keep_excluded(plan.status, kept)
        plan.admission_changed = True


def forget_earlier_refusals(plan: PlanBuilder) -> None:
    """A spec that is another than kubelet after kubelet refused is tried at once, and on their nodes too."""
    refusals = plan.status.recovery.refusals
    if refusals is None or not refusals.waits or refusals.generation == plan.run.generation:
        return
    shortly, excluded = plan.tunables.excluded_shortly_seconds, plan.status.recovery.excluded_nodes
    kept = (each for each in excluded if each.node not in refusals.nodes or not _is_within(each, shortly))
    plan.status = keep_excluded(forget_refusals(plan.status), tuple(kept))


def _is_within(entry: ExcludedNode, most: float) -> bool:
    """No longer than ``most`` seconds in all: for a longer time it is kept off for something else."""
    return entry.until is not None and entry.since is not None and entry.until - entry.since <= most


def _is_mended(state: RunState, entry: ExcludedNode) -> bool:
    node = state.snapshot.nodes.get(entry.node)
    if node is None or not node.ready:
        return False
    if entry.condition == UNHEALTHY_DEVICE:
        return _gpus(state, node) >= state.status.resolved.gpus_per_node
    return entry.condition not in node.conditions


def nodes_large_enough(state: RunState) -> int:
    """Nodes that are large enough for the gang."""
    gpus = state.status.resolved.gpus_per_node
    return sum(1 for node in state.snapshot.nodes.values() if _gpus(state, node) >= gpus)


def named_nodes(nodes: Sequence[str]) -> str:
    """The latest of them, for people."""
    more = len(nodes) - _NODES_NAMED
    return ", ".join(nodes[-_NODES_NAMED:]) + (f" and {more} more" if more > 0 else "")


def _gpus(state: RunState, node: NodeView) -> int:
    return node.allocatable.get(state.status.resolved.gpu_resource, 0)
