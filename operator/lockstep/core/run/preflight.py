"""Checks of a complete gang at the barrier, of what no worker sees by itself: clocks, and the network between nodes."""

from collections import defaultdict
from statistics import median_low

from lockstep.api.base.changes import changed
from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.model.draft import Draft
from lockstep.core.model.plan import WarmUpRequest
from lockstep.core.model.reasons import ActionWord, EventReason, LossReason
from lockstep.core.model.snapshot import WarmUpReport
from lockstep.core.run.replacement import replace_before_start

ACCUSERS = 2
"""So many peers that fail with the same rank make it the one at fault; a single one may be so itself."""


def passes_preflight(draft: Draft) -> bool:
    """Whether the gang may start as far as this goes. What is at fault is replaced, what is not done is waited for."""
    return _clocks_agree(draft) and _is_warmed_up(draft)


def _clocks_agree(draft: Draft) -> bool:
    """No node's clock is far from the others'. Most of the gang are right: the operator's own clock may be wrong.

    Where no majority agrees, as in a gang of two, the operator's decides.
    """
    skews = {slot: report.clock_skew for slot in draft.ranked_slots() if (report := draft.report(slot)) is not None}
    middle = median_low(skews.values())
    limit = draft.tunables.max_clock_skew
    most_agree = 2 * sum(abs(skew - middle) <= limit for skew in skews.values()) > len(skews)
    if not most_agree:
        middle = 0.0
    whose = "those of the gang" if most_agree else "the operator's"
    losses = []
    for slot, skew in skews.items():
        off = skew - middle
        if abs(off) > limit:
            node = draft.status.assignment.nodes[slot]
            words = f"the clock of {node} is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} {whose}"
            losses.append(Loss(slot, node, LossKind.POD, LossReason.NODE_CHECK_FAILED, words, draft.now))
    if losses:
        replace_before_start(draft, losses)
    return not losses


def _is_warmed_up(draft: Draft) -> bool:
    """Every node has exchanged something with its peers, once for each set of nodes; bounded."""
    kind, assignment = draft.spec.preflight.warm_up, draft.status.assignment
    recovery = draft.status.recovery
    if kind == "Disabled" or draft.world < 2 or recovery.warmed == assignment.hash:
        return True
    reports = [report for slot in draft.ranked_slots() if (report := draft.report(slot)) is not None]
    identity = f"{draft.status.attempt}-{assignment.hash}"
    addresses, ports = tuple(report.address for report in reports), tuple(report.port for report in reports)
    draft.warm_up = WarmUpRequest(identity, kind, addresses, ports)
    answers = {
        rank: report.warmed
        for rank, report in enumerate(reports)
        if report.warmed is not None and report.warmed.id == identity
    }
    until = max(report.since for report in reports) + draft.tunables.deadlines.warm_up
    if len(answers) < draft.world and draft.now < until:
        draft.wake(until)
        draft.barrier_waits = "the nodes exchange data with one another before the first start"
        return False
    draft.warm_up = None
    at_fault = _at_fault(answers, draft.world)
    if at_fault:
        replace_before_start(draft, [_loss(draft, rank, answers[accuser]) for rank, accuser in at_fault.items()])
        return False
    _tell_of_doubts(draft, answers)
    draft.status = changed(draft.status, recovery=changed(draft.status.recovery, warmed=assignment.hash))
    return True


def _at_fault(answers: dict[int, WarmUpReport], world: int) -> dict[int, int]:
    """The ranks that several peers fail with, each with one of those; none where it is half of the gang or more."""
    accusers = defaultdict(list)
    for rank, answer in answers.items():
        if answer.problem and 0 <= answer.peer < world and answer.peer != rank:
            accusers[answer.peer].append(rank)
    found = {rank: by[0] for rank, by in sorted(accusers.items()) if len(by) >= ACCUSERS}
    return found if 2 * len(found) < world else {}


def _loss(draft: Draft, rank: int, answer: WarmUpReport) -> Loss:
    slot = draft.ranked_slots()[rank]
    node = draft.status.assignment.nodes[slot]
    words = f"the exchange of the other nodes with {node} failed: {answer.problem}"
    return Loss(slot, node, LossKind.POD, LossReason.NODE_CHECK_FAILED, words, draft.now)


def _tell_of_doubts(draft: Draft, answers: dict[int, WarmUpReport]) -> None:
    """The gang starts all the same: who is at fault cannot be told, or it took too long."""
    silent = [rank for rank in range(draft.world) if rank not in answers]
    failed = [rank for rank, answer in sorted(answers.items()) if answer.problem]
    if not silent and not failed:
        return
    nodes = draft.status.assignment.nodes
    rank = failed[0] if failed else silent[0]
    where = nodes[draft.ranked_slots()[rank]]
    words = answers[rank].problem if failed else "it did not end in time"
    more = len(silent) + len(failed) - 1
    note = f"the warm-up of rank {rank} on {where} failed: {words}" + (f" (and of {more} more)" if more else "")
    draft.event(
        EventReason.WARM_UP_FAILED,
        f"{note}; no single node is to blame, so the gang starts",
        action=ActionWord.WARM_UP,
        warning=True,
    )
