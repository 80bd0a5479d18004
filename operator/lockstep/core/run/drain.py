"""Nodes that are to be left: the gang saves, gives up these nodes alone, and goes on from there on others.

Said by the annotation that `lockstep nodes drain` sets, by taints that the configuration names, or, where a run
wants it so (``recovery.onCordon: Migrate``), by a cordon. A planned move is charged to nobody, and keeps no node
from being used again later.
"""

from lockstep.api.base.changes import changed
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.checkpoints.saves import ask_for_save, grace_period, is_settled_for
from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.model.draft import Draft
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ActionWord, AttemptEnd
from lockstep.core.model.snapshot import NodeView
from lockstep.core.run.replacement import replace


def leave_drained_nodes(draft: Draft) -> None:
    """Move the slots on drained nodes: at once where nothing trains, after a save where something does."""
    if draft.phase not in (Phase.LAUNCHING, Phase.RUNNING, Phase.RECOVERING):
        return
    if draft.snapshot.leadership.disruption:
        return  # while the cluster itself looks broken nobody gives up a node that works
    drained = _drained(draft)
    at_work = [loss for loss in drained if draft.phase is Phase.RUNNING and draft.rank(loss.slot) >= 0]
    idle = [loss for loss in drained if loss not in at_work]
    if at_work and not _is_saved(draft):
        at_work = []
    if at_work:
        _end_attempt(draft, at_work)
    if at_work or idle:
        replace(draft, [*at_work, *idle])


def _drained(draft: Draft) -> list[Loss]:
    found = []
    for slot, name in enumerate(draft.status.assignment.nodes):
        node = draft.snapshot.nodes.get(name)
        why = _why(draft, node) if node is not None else ""
        if why:
            found.append(
                Loss(slot, name, LossKind.DRAINED, AttemptEnd.DRAINED, f"node {name} is to be left: {why}", draft.now)
            )
    return found


def _why(draft: Draft, node: NodeView) -> str:
    """Why the node is to be left, in words; empty when it is not."""
    if node.drain:
        return node.drain
    taint = next((taint.key for taint in node.taints if taint.key in draft.tunables.drain_taints), "")
    if taint:
        return f"it bears the taint {taint}"
    if node.unschedulable and draft.spec.recovery.on_cordon == "Migrate":
        return "it was cordoned, and recovery.onCordon is Migrate"
    return ""


def _is_saved(draft: Draft) -> bool:
    """The gang has saved for this, as well as it could; False while that is awaited."""
    if is_settled_for(draft.status, AttemptEnd.DRAINED):
        return True
    return not ask_for_save(draft, AttemptEnd.DRAINED, draft.stamp + grace_period(draft))


def _end_attempt(draft: Draft, drained: list[Loss]) -> None:
    first = drained[0]
    steps = [report.progress.step for report in draft.snapshot.reports.values() if report.progress is not None]
    draft.put_attempt(
        changed(
            draft.attempt(draft.status.attempt),
            ended_at=draft.stamp,
            message=first.message[:512],
            node=first.node,  # and no rank: none failed
            last_step=max(steps, default=None),
            charged=False,
        ),
        cause=AttemptEnd.DRAINED,
        action=ActionWord.REPLACE,
    )
    latest = latest_valid(draft.snapshot, draft.status)
    draft.status = changed(
        draft.status,
        attempt=draft.status.attempt + 1,
        checkpoint=changed(draft.status.checkpoint, latest=latest),
    )
