"""What status keeps of failures and of what was done about them: ``status.recovery`` is changed here and nowhere else.

Each verb says what is put on record. All is bounded.
"""

from collections.abc import Sequence

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import (
    ExcludedNode,
    FailureRoot,
    FirstFailure,
    NodeRefusalsStatus,
    RecoveryStatus,
    RuleUse,
    SlotLosses,
    StragglerStatus,
)
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.failures.actions import ONE_DAY
from lockstep.core.model.reasons import EndReason

MAX_EXCLUDED = 64
MAX_FIRST_FAILURES = 32
MAX_ROOTS = 16
MAX_REFUSALS = 32
FAILURES_OF_A_ROOT = 8


def remember_root(status: TrainingRunStatus, root: str, step: int, node: str, stamp: float) -> TrainingRunStatus:
    """One more failure of this root."""
    roots = status.recovery.roots
    known = next((entry for entry in roots if entry.root == root), FailureRoot(root=root, count=0))
    entry = changed(
        known,
        count=known.count + 1,
        steps=(*known.steps, step)[-FAILURES_OF_A_ROOT:],
        nodes=(*known.nodes, node)[-FAILURES_OF_A_ROOT:],
        time=stamp,
    )
    others = tuple(other for other in roots if other.root != root)
    return _with(status, changed(status.recovery, roots=(*others, entry)[-MAX_ROOTS:]))


def remember_first_failure(status: TrainingRunStatus, node: str, cause: EndReason, stamp: float) -> TrainingRunStatus:
    """The rank on ``node`` was the first to fail."""
    recent = tuple(one for one in status.recovery.first_failures if stamp - one.time < ONE_DAY)
    entry = FirstFailure(node=node, time=stamp, cause=cause)
    return _with(status, changed(status.recovery, first_failures=(*recent, entry)[-MAX_FIRST_FAILURES:]))


def remember_rule(status: TrainingRunStatus, rule: str, known: Sequence[str]) -> TrainingRunStatus:
    """A rule decided; those that are no longer in the spec are forgotten."""
    uses = {use.name: use.count for use in status.recovery.rules_used if use.name in known}
    uses[rule] = uses.get(rule, 0) + 1
    used = tuple(RuleUse(name=name, count=count) for name, count in sorted(uses.items()))
    return _with(status, changed(status.recovery, rules_used=used))


def unblame(status: TrainingRunStatus, node: str, cause: str, stamp: float) -> TrainingRunStatus:
    """Take back what was remembered at ``stamp``: something else came first. Others than ``node`` may have been under
    suspicion with it, for the same ``cause``."""
    recovery, roots = status.recovery, []
    for root in recovery.roots:
        if root.time == stamp and root.nodes and root.nodes[-1] == node:
            if root.count == 1:
                continue
            roots.append(changed(root, count=root.count - 1, steps=root.steps[:-1], nodes=root.nodes[:-1]))
        else:
            roots.append(root)
    kept = tuple(
        one for one in recovery.first_failures if one.time != stamp or (one.node != node and one.cause != cause)
    )
    excluded = tuple(one for one in recovery.excluded_nodes if (one.node, one.since) != (node, stamp))
    return _with(status, changed(recovery, roots=tuple(roots), first_failures=kept, excluded_nodes=excluded))


def exclude_node(status: TrainingRunStatus, entry: ExcludedNode) -> TrainingRunStatus:
    """The run keeps off a node."""
    others = [known for known in status.recovery.excluded_nodes if known.node != entry.node]
    return keep_excluded(status, (*others, entry)[-MAX_EXCLUDED:])


def keep_excluded(status: TrainingRunStatus, kept: tuple[ExcludedNode, ...]) -> TrainingRunStatus:
    """The run keeps off these nodes and no others."""
    return _with(status, changed(status.recovery, excluded_nodes=kept))


def count_lost_pods(status: TrainingRunStatus, slot: int, node: str, count: int, stamp: float) -> TrainingRunStatus:
    """So many pods of the slot were lost on its node; 0 forgets it."""
    others = [entry for entry in status.recovery.slot_losses if entry.slot != slot]
    mine = [SlotLosses(slot=slot, node=node, count=count, time=stamp)] if count else []
    losses = sorted([*others, *mine], key=lambda entry: entry.slot)
    return _with(status, changed(status.recovery, slot_losses=tuple(losses[:MAX_EXCLUDED])))


def forget_lost_pods(status: TrainingRunStatus) -> TrainingRunStatus:
    """The nodes are given back."""
    return _with(status, changed(status.recovery, slot_losses=()))


def count_attempts_without_progress(status: TrainingRunStatus, streak: int) -> TrainingRunStatus:
    """So many attempts in a row achieved nothing."""
    return _with(status, changed(status.recovery, consecutive_no_progress=streak))


def record_progress_made(status: TrainingRunStatus, saved_step: int) -> TrainingRunStatus:
    """An attempt got further than those before it: what failures look alike is counted anew."""
    return _with(status, changed(status.recovery, roots=(), best_step=saved_step))


def lower_best_step(status: TrainingRunStatus, step: int) -> TrainingRunStatus:
    """What was saved beyond ``step`` is no measure of progress any more."""
    return _with(status, changed(status.recovery, best_step=min(status.recovery.best_step, step)))


def raise_best_step(status: TrainingRunStatus, step: int) -> TrainingRunStatus:
    """What is saved up to ``step`` counts again, and is no progress."""
    return _with(status, changed(status.recovery, best_step=max(status.recovery.best_step, step)))


def take_back_charge(status: TrainingRunStatus) -> TrainingRunStatus:
    """The last attempt's end was charged to the run, and was not its doing."""
    fewer = status.recovery.consecutive_no_progress - 1
    return _with(status, changed(status.recovery, consecutive_no_progress=fewer, not_before=None))


def restore_charges(status: TrainingRunStatus, before: RecoveryStatus) -> TrainingRunStatus:
    """What was charged to the run stands as it did, and so does the time that it waits for that."""
    streak, until = before.consecutive_no_progress, before.not_before
    return _with(status, changed(status.recovery, consecutive_no_progress=streak, not_before=until))


def hold_back_attempt(status: TrainingRunStatus, until: float | None) -> TrainingRunStatus:
    """The next attempt starts no earlier; None: as soon as it can."""
    return _with(status, changed(status.recovery, not_before=until))


def record_requeue(status: TrainingRunStatus, until: float) -> TrainingRunStatus:
    """The run queues again for what is no fault of its own, and starts no earlier than ``until``."""
    return _with(status, changed(status.recovery, requeues=status.recovery.requeues + 1, not_before=until))


def record_refusal(
    status: TrainingRunStatus, node: str, message: str, enough: int, generation: int
) -> TrainingRunStatus:
    """The kubelet of ``node`` would not take a pod. ``enough``: so many of them are not their nodes' fault any more.
    What was refused of another ``generation`` of the spec does not count."""
    known = status.recovery.refusals
    if known is None or known.generation != generation:
        known = NodeRefusalsStatus()
    nodes = (*(other for other in known.nodes if other != node), node)[-MAX_REFUSALS:]
    refusals = NodeRefusalsStatus(
        nodes=nodes, message=message[:256], waits=known.waits or len(nodes) >= enough, generation=generation
    )
    return _with(status, changed(status.recovery, refusals=refusals))


def forget_refusals(status: TrainingRunStatus) -> TrainingRunStatus:
    """What kubelets refused is waited for no longer."""
    return _with(status, changed(status.recovery, not_before=None, refusals=None))


def forget_requeues(status: TrainingRunStatus) -> TrainingRunStatus:
    """The gang is up: the next time that it queues again is the first one."""
    return _with(status, changed(status.recovery, requeues=0, refusals=None))


def record_start(status: TrainingRunStatus, resumed_step: int | None) -> TrainingRunStatus:
    """An attempt starts, from a step or (None) from the beginning: nothing that was waited for holds it any more."""
    recovery = changed(status.recovery, not_before=None, requeues=0, refusals=None, fenced_at=None)
    if resumed_step is not None and resumed_step > recovery.best_step:
        # Saved too late in the last attempt to be heard of before its end: it made progress after all.
        recovery = changed(recovery, best_step=resumed_step, consecutive_no_progress=0)
    return _with(status, recovery)


def record_fence(status: TrainingRunStatus, at: float) -> TrainingRunStatus:
    """By then whoever cannot be asked has ended its program by itself."""
    return _with(status, changed(status.recovery, fenced_at=at))


def record_warm_up(status: TrainingRunStatus, assignment_hash: str) -> TrainingRunStatus:
    """These nodes have exchanged data with one another."""
    return _with(status, changed(status.recovery, warmed=assignment_hash))


def record_straggler(status: TrainingRunStatus, straggler: StragglerStatus | None) -> TrainingRunStatus:
    """The slowest rank, as far as one stands out."""
    return _with(status, changed(status.recovery, straggler=straggler))


def record_debug_hold(status: TrainingRunStatus, until: float) -> TrainingRunStatus:
    """Pods and nodes are kept for somebody to look at."""
    return _with(status, changed(status.recovery, debug_until=until))


def record_shrink(status: TrainingRunStatus, at: float | None) -> TrainingRunStatus:
    """Since when the gang is smaller than the spec asks for; None: it is not."""
    return _with(status, changed(status.recovery, shrunk_at=at))


def skip_to(status: TrainingRunStatus, attempt: int, stamp: float) -> TrainingRunStatus:
    """A gang that gathers goes over to another attempt, before START. No entry tells of the one that it leaves out, so
    the time to get ready for the next is counted from here."""
    return _with(changed(status, attempt=attempt), changed(status.recovery, renumbered_at=stamp))


def record_roll_back(
    status: TrainingRunStatus, ceiling: int, diverged_step: int, diverged_from: int
) -> TrainingRunStatus:
    """The current attempt went wrong at ``diverged_from``, or between that and ``diverged_step``: the run goes back to
    ``ceiling``."""
    before = status.recovery.diverged_from
    recovery = changed(
        status.recovery,
        diverged_from=min(diverged_from, before) if before else diverged_from,
        roll_backs=status.recovery.roll_backs + 1,
        diverged_attempt=status.attempt,
        diverged_step=max(diverged_step, status.recovery.diverged_step),
    )
    return lower_best_step(_with(status, recovery), ceiling)


def forget_roll_backs(status: TrainingRunStatus) -> TrainingRunStatus:
    """Training is past what went wrong."""
    return _with(status, changed(status.recovery, roll_backs=0, diverged_attempt=0, diverged_step=0, diverged_from=0))


def _with(status: TrainingRunStatus, recovery: RecoveryStatus) -> TrainingRunStatus:
    return changed(status, recovery=recovery)
