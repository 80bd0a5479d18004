"""What a run remembers of its failures: bounded, in status, and forgotten when it no longer tells anything."""

import math
from collections.abc import Sequence

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import ExcludedNode, FailureRoot, FirstFailure, RecoveryStatus, RuleUse, SlotLosses
from lockstep.core.failures.actions import ONE_DAY
from lockstep.core.failures.signs import UNHEALTHY_DEVICE
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import EndReason
from lockstep.core.model.run_state import RunState

MAX_EXCLUDED = 64
MAX_FIRST_FAILURES = 32
MAX_ROOTS = 16
FAILURES_OF_A_ROOT = 8
ONE_HOUR = 3600.0
LEAST_EXCLUDED = 2
EXCLUDED_SHARE = 0.10
"""So many nodes, or this share of those the gang could run on, may be excluded within an hour."""


def remember_root(recovery: RecoveryStatus, root: str, step: int, node: str, stamp: float) -> RecoveryStatus:
    """One more failure of this root."""
    known = next((entry for entry in recovery.roots if entry.root == root), FailureRoot(root=root, count=0))
    entry = changed(
        known,
        count=known.count + 1,
        steps=(*known.steps, step)[-FAILURES_OF_A_ROOT:],
        nodes=(*known.nodes, node)[-FAILURES_OF_A_ROOT:],
        time=stamp,
    )
    others = tuple(other for other in recovery.roots if other.root != root)
    return changed(recovery, roots=(*others, entry)[-MAX_ROOTS:])


def remember_first_failure(recovery: RecoveryStatus, node: str, cause: EndReason, stamp: float) -> RecoveryStatus:
    """The rank on ``node`` was the first to fail."""
    recent = tuple(one for one in recovery.first_failures if stamp - one.time < ONE_DAY)
    entry = FirstFailure(node=node, time=stamp, cause=cause)
    return changed(recovery, first_failures=(*recent, entry)[-MAX_FIRST_FAILURES:])


def remember_rule(recovery: RecoveryStatus, rule: str, known: Sequence[str]) -> RecoveryStatus:
    """A rule decided; those that are no longer in the spec are forgotten."""
    uses = {use.name: use.count for use in recovery.rules_used if use.name in known}
    uses[rule] = uses.get(rule, 0) + 1
    used = tuple(RuleUse(name=name, count=count) for name, count in sorted(uses.items()))
    return changed(recovery, rules_used=used)


def unblame(recovery: RecoveryStatus, node: str, stamp: float) -> RecoveryStatus:
    """Take back what was remembered at ``stamp``: something else came first."""
    roots = []
    for root in recovery.roots:
        if root.time == stamp and root.nodes and root.nodes[-1] == node:
            if root.count == 1:
                continue
            roots.append(changed(root, count=root.count - 1, steps=root.steps[:-1], nodes=root.nodes[:-1]))
        else:
            roots.append(root)
    kept = tuple(one for one in recovery.first_failures if (one.node, one.time) != (node, stamp))
    excluded = tuple(one for one in recovery.excluded_nodes if (one.node, one.since) != (node, stamp))
    return changed(recovery, roots=tuple(roots), first_failures=kept, excluded_nodes=excluded)


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


def with_lost_pod(losses: Sequence[SlotLosses], slot: int, node: str, count: int, stamp: float) -> list[SlotLosses]:
    """``losses`` with the count of one slot set; 0 forgets it."""
    others = [entry for entry in losses if entry.slot != slot]
    mine = [SlotLosses(slot=slot, node=node, count=count, time=stamp)] if count else []
    return sorted([*others, *mine], key=lambda entry: entry.slot)


def excluded_enough(state: RunState, more: int = 1) -> str:
    """Why ``more`` nodes are not to be excluded now; empty when they may be.

    A run that spoils node after node would otherwise work its way through the cluster.
    """
    since = [entry.since for entry in state.status.recovery.excluded_nodes if entry.since is not None]
    recent = sum(1 for at in since if state.now - at < ONE_HOUR)
    most = max(LEAST_EXCLUDED, int(EXCLUDED_SHARE * _pool(state)))
    if recent + more <= most:
        return ""
    these = f", and these would be {more}" if more > 1 else ""
    return f"{recent} nodes were excluded within an hour, and {most} are the most{these}"


def exclude(plan: PlanBuilder, node: str, reason: str, seconds: float, condition: str = "") -> None:
    """Keep the run off a node for so long (inf: for good), or until its condition is gone."""
    kept = [entry for entry in plan.status.recovery.excluded_nodes if entry.node != node]
    until = plan.stamp + seconds if seconds < math.inf else None
    entry = ExcludedNode(node=node, reason=reason[:256], since=plan.stamp, until=until, condition=condition)
    recovery = changed(plan.status.recovery, excluded_nodes=(*kept, entry)[-MAX_EXCLUDED:])
    plan.status = changed(plan.status, recovery=recovery)


def readmit_mended(plan: PlanBuilder) -> None:
    """Drop exclusions for a condition that the node no longer has. A node that is not there has not been mended."""
    excluded = plan.status.recovery.excluded_nodes
    kept = tuple(entry for entry in excluded if not (entry.condition and _is_mended(plan, entry)))
    if len(kept) < len(excluded):
        plan.status = changed(plan.status, recovery=changed(plan.status.recovery, excluded_nodes=kept))
        plan.admission_changed = True


def _is_mended(state: RunState, entry: ExcludedNode) -> bool:
    node = state.snapshot.nodes.get(entry.node)
    if node is None or not node.ready:
        return False
    if entry.condition == UNHEALTHY_DEVICE:
        return node.allocatable.get(names.GPU_RESOURCE, 0) >= state.status.resolved.gpus_per_node
    return entry.condition not in node.conditions


def _pool(state: RunState) -> int:
    """Nodes that are large enough for the gang."""
    gpus = state.status.resolved.gpus_per_node
    return sum(1 for node in state.snapshot.nodes.values() if node.allocatable.get(names.GPU_RESOURCE, 0) >= gpus)
