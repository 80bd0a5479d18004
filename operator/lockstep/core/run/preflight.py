"""Checks of a complete gang at the barrier, of what no worker sees by itself: clocks, and the network between nodes."""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median_low

from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.failures.recovery_record import record_warm_up
from lockstep.core.model.plan import WarmUpRequest
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, EventReason, LossReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.worker_report import WarmUpReport
from lockstep.core.run.replacement import replace_before_start

ACCUSERS = 2
"""So many peers that fail with the same rank make it the one at fault; a single one may be so itself."""


@dataclass(frozen=True, slots=True)
class Preflight:
    """``passed``: the gang may start as far as this goes. If not, ``warm_up`` is what it is asked for, and
    ``waiting_for`` tells of it in words."""

    passed: bool
    warm_up: WarmUpRequest | None = None
    waiting_for: str = ""


def check_gang(plan: PlanBuilder) -> Preflight:
    """What is at fault is replaced, what is not done is waited for."""
    return Preflight(False) if _replace_wrong_clocks(plan) else _warm_up(plan)


def _replace_wrong_clocks(plan: PlanBuilder) -> bool:
    """True when a node's clock is far from the others'. Most of the gang are right: the operator's own may be wrong.

    Where no majority agrees, as in a gang of two, the operator's decides.
    """
    skews = {slot: report.clock_skew for slot in plan.ranked_slots() if (report := plan.report(slot)) is not None}
    middle = median_low(skews.values())
    limit = plan.tunables.max_clock_skew
    most_agree = 2 * sum(abs(skew - middle) <= limit for skew in skews.values()) > len(skews)
    if not most_agree:
        middle = 0.0
    whose = "those of the gang" if most_agree else "the operator's"
    losses = []
    for slot, skew in skews.items():
        off = skew - middle
        # What was long on its way looks like a clock that is behind.
        if off > limit or -off > limit + plan.lag.allowance:
            node = plan.status.assignment.nodes[slot]
            words = f"the clock of {node} is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} {whose}"
            losses.append(Loss(slot, node, LossKind.POD, LossReason.NODE_CHECK_FAILED, words, plan.now))
    if losses:
        replace_before_start(plan, losses)
    return bool(losses)


def _warm_up(plan: PlanBuilder) -> Preflight:
    """Every node exchanges something with its peers, once for each set of nodes; bounded."""
    kind, assignment = plan.spec.preflight.warm_up, plan.status.assignment
    recovery = plan.status.recovery
    if kind == "Disabled" or plan.world < 2 or recovery.warmed == assignment.hash:
        return Preflight(True)
    reports = [report for slot in plan.ranked_slots() if (report := plan.report(slot)) is not None]
    identity = f"{plan.status.attempt}-{assignment.hash}"
    answers = {
        rank: report.warmed
        for rank, report in enumerate(reports)
        if report.warmed is not None and report.warmed.id == identity
    }
    until = max(report.since for report in reports) + plan.tunables.deadlines.warm_up
    if len(answers) < plan.world and not plan.reached(until):
        words = "the nodes exchange data with one another before the first start"
        addresses, ports = tuple(report.address for report in reports), tuple(report.port for report in reports)
        return Preflight(False, WarmUpRequest(identity, kind, addresses, ports), words)
    at_fault = _at_fault(answers, plan.world)
    if at_fault:
        replace_before_start(plan, [_loss(plan, rank, answers[accuser]) for rank, accuser in at_fault.items()])
        return Preflight(False)
    _report_doubts(plan, answers)
    plan.status = record_warm_up(plan.status, assignment.hash)
    return Preflight(True)


def _at_fault(answers: dict[int, WarmUpReport], world: int) -> dict[int, int]:
    """The ranks that several peers fail with, each with one of those; none where it is half of the gang or more."""
    accusers = defaultdict(list)
    for rank, answer in answers.items():
        if answer.problem and 0 <= answer.peer < world and answer.peer != rank:
            accusers[answer.peer].append(rank)
    found = {rank: by[0] for rank, by in sorted(accusers.items()) if len(by) >= ACCUSERS}
    return found if 2 * len(found) < world else {}


def _loss(state: RunState, rank: int, answer: WarmUpReport) -> Loss:
    slot = state.ranked_slots()[rank]
    node = state.status.assignment.nodes[slot]
    words = f"the exchange of the other nodes with {node} failed: {answer.problem}"
    return Loss(slot, node, LossKind.POD, LossReason.NODE_CHECK_FAILED, words, state.now)


def _report_doubts(plan: PlanBuilder, answers: dict[int, WarmUpReport]) -> None:
    """The gang starts all the same: who is at fault cannot be told, or it took too long."""
    silent = [rank for rank in range(plan.world) if rank not in answers]
    failed = [rank for rank, answer in sorted(answers.items()) if answer.problem]
    if not silent and not failed:
        return
    nodes = plan.status.assignment.nodes
    rank = failed[0] if failed else silent[0]
    where = nodes[plan.ranked_slots()[rank]]
    words = answers[rank].problem if failed else "it did not end in time"
    more = len(silent) + len(failed) - 1
    note = f"the warm-up of rank {rank} on {where} failed: {words}" + (f" (and of {more} more)" if more else "")
    plan.event(
        EventReason.WARM_UP_FAILED,
        f"{note}; no single node is to blame, so the gang starts",
        action=ActionWord.WARM_UP,
        warning=True,
    )
