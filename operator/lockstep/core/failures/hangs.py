"""Hangs: a gang whose workers are all heard, whose processes all live, and whose steps no longer come.

Nothing is concluded before two steps were seen in the run, from a worker that is not heard, or by an operator
that has only just begun to lead. The time allowed follows the run's own pace: five times the longest of the
last hundred intervals between steps, within bounds; starting up and saving have times of their own. Shortly
before it is over all ranks are asked for their stacks, so that the ranks that stand out can be named.
"""

import math
from dataclasses import dataclass

from lockstep.api.base.changes import changed
from lockstep.api.base.durations import format_duration, parse_duration
from lockstep.core.failures.causes import Evidence
from lockstep.core.failures.ranks import half_finished, succeeded_ranks
from lockstep.core.failures.stack_groups import StackGroup, grouped, stacks_config_map
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.ranges import shown_ranges
from lockstep.core.model.reasons import AttemptCause
from lockstep.core.model.run_state import RunState
from lockstep.core.model.worker_report import WorkerPhase, WorkerReport

FACTOR = 5.0
SHORTEST, LONGEST = 60.0, 2700.0
"""Bounds of the adaptive time between two steps, in seconds."""
SHORTEST_INIT = 300.0
ASK_AT = 0.8
"""Share of the time allowed after which the ranks are asked for their stacks."""
COLLECT_SECONDS = 15.0
"""How long stacks are waited for once the time is over."""
ENOUGH_INTERVALS = 20
"""From so many on, what an attempt measured replaces what earlier ones did."""
_STEPS_APART = 2  # ranks of one gang are never so far apart


@dataclass(frozen=True, slots=True)
class Patience:
    """What the gang is in, since when, and how long it may stay there. ``limit`` None: not judged."""

    section: str
    since: float
    limit: float | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Hang:
    """What is made of a gang whose steps do not come. ``stacks`` names the request for the stacks of all ranks, which
    goes out before there is evidence; both are empty while nothing is wrong."""

    stacks: str = ""
    evidence: Evidence | None = None


def judge_hang(plan: PlanBuilder) -> Hang:
    """Whether the gang is hung; if so its stacks are kept."""
    reports = _all_running(plan)
    if reports is None:
        return Hang()
    patience = patience_of(plan, reports)
    if patience.limit is None:
        return Hang()
    if not plan.reached(patience.since + ASK_AT * patience.limit):
        return Hang()
    step = max((r.progress.step for r in reports.values() if r.progress is not None), default=0)
    # Of attempt and step alone, so that every leader asks the same question.
    stacks = f"a{plan.status.attempt}-{patience.section}-{step}"
    settled = plan.snapshot.leadership.since + plan.silent_after
    over = max(patience.since + patience.limit + plan.lag.deaf_since(patience.since), settled)
    if not plan.reached(over):
        return Hang(stacks)
    missing = [slot for slot, r in reports.items() if r.stacks is None or r.stacks.id != stacks]
    if missing and not plan.reached(over + COLLECT_SECONDS):
        return Hang(stacks)
    return Hang(stacks, _conclude(plan, reports, patience, step, stacks))


def longest_known(state: RunState) -> tuple[int, int]:
    """(longest interval between steps, time from start to first step) in seconds, for status to keep: an attempt that
    has just begun has none of its own yet."""
    timings = [r.timing for r in state.snapshot.reports.values() if r.attempt == state.status.attempt]
    progress = state.status.progress
    longest = math.ceil(max((t.longest for t in timings), default=0.0))
    if all(t.intervals < ENOUGH_INTERVALS for t in timings):
        longest = max(longest, progress.longest_interval)  # until this attempt speaks for itself
    init = math.ceil(max((t.longest_init for t in timings), default=0.0)) or progress.longest_init
    return longest, init


def patience_of(state: RunState, reports: dict[int, WorkerReport]) -> Patience:
    """Section, its beginning and the time allowed in it. ``reports``: of all ranks that train, by slot."""
    setting = state.spec.recovery.hang_timeout
    stated = None if setting in ("Adaptive", "Disabled") else float(parse_duration(setting))
    entry = state.attempt_entry(state.status.attempt)
    begun = entry.started_at if entry is not None and entry.started_at is not None else state.now
    stepped = [r.progress for r in reports.values() if r.progress is not None]
    timings = [r.timing for r in reports.values()]
    known = state.status.progress
    if setting == "Disabled" or not _has_stepped_twice(state, reports):
        return Patience("", begun, None)
    if not stepped:
        init = known.longest_init
        limit = min(LONGEST, max(SHORTEST_INIT, FACTOR * init)) if init else LONGEST
        why = f"5 x the {format_duration(init)} it took before" if init else "nothing is known of earlier starts"
        return Patience("Init", max(begun, *(r.since for r in reports.values())), max(limit, stated or 0.0), why)
    since = max(begun, max(progress.at for progress in stepped))
    if stated is not None:
        return Patience("Step", since, stated, "recovery.hangTimeout")
    longest = max([float(known.longest_interval), *(t.longest for t in timings)])
    if any(t.section == "Save" for t in timings):
        longest = max([longest, *(t.longest_save for t in timings)])
        section = "Save"
        if not any(t.longest_save for t in timings):
            return Patience(section, since, LONGEST, "no save was measured yet")
    else:
        section = "Step"
    if not longest:
        return Patience(section, since, LONGEST, "too few steps were measured yet")
    limit = min(LONGEST, max(SHORTEST, FACTOR * longest))
    return Patience(section, since, limit, f"5 x the longest of {longest:.0f} s, at least {SHORTEST:.0f} s")


def _all_running(state: RunState) -> dict[int, WorkerReport] | None:
    """The reports of all ranks that have not ended well, by slot; None when one of them is not known to train."""
    if state.phase is not Phase.RUNNING or state.spec.recovery.hang_timeout == "Disabled":
        return None
    done = succeeded_ranks(state)
    found = {}
    for slot in state.slot_range():
        if state.rank(slot) < 0 or state.rank(slot) in done:
            continue
        report = state.report(slot)
        if report is None or report.attempt != state.status.attempt or report.phase is not WorkerPhase.RUNNING:
            return None
        if state.now - report.received_at > state.silent_after:
            return None  # of one that is silent nobody knows whether it steps
        found[slot] = report
    return found or None


def _has_stepped_twice(state: RunState, reports: dict[int, WorkerReport]) -> bool:
    """Progress was seen twice, in this attempt or in one before it."""
    if any(r.timing.intervals for r in reports.values()) or state.status.progress.longest_interval:
        return True
    if any(
        ended.last_step is not None and ended.last_step - (ended.resume_step or 0) >= 2
        for ended in state.status.attempts
    ):
        return True
    entry = state.attempt_entry(state.status.attempt)
    resumed = entry.resume_step if entry is not None and entry.resume_step is not None else 0
    return any(r.progress is not None and r.progress.step - resumed >= 2 for r in reports.values())


def _conclude(
    plan: PlanBuilder, reports: dict[int, WorkerReport], patience: Patience, step: int, stacks: str
) -> Evidence:
    groups = grouped(
        {
            plan.rank(slot): r.stacks.text
            for slot, r in reports.items()
            if r.stacks is not None and r.stacks.id == stacks
        }
    )
    slot_of = {plan.rank(slot): slot for slot in reports}
    steps = _steps_to_compare(plan, reports)
    ended = half_finished(plan)
    # Where somebody has ended, the others wait for them, each at some other place maybe: none of them is the reason.
    suspects, stands_out = ((), ended) if ended else suspected(steps, groups)
    if groups:
        config_map = stacks_config_map(plan.run, plan.status.attempt, stacks, groups)
        plan.config_maps.append(config_map)
        plan.put_attempt(changed(plan.attempt(plan.status.attempt), stacks=config_map.name))
    assert patience.limit is not None
    after = f"after step {step}" if step else "since the start"
    message = (
        f"no step for {format_duration(plan.now - patience.since)} {after} "
        f"(limit {format_duration(patience.limit)}: {patience.why})"
    )
    if stands_out:
        message += f"; {stands_out}"
    elif groups:
        message += f"; no rank stands out, all {len(reports)} are in {groups[0].innermost}"
    blamed = sorted(slot_of[rank] for rank in suspects)
    first = blamed[0] if blamed else min(reports)
    others = tuple(blamed[1:]) if blamed else tuple(slot for slot in sorted(reports) if slot != first)
    return Evidence(
        kind=AttemptCause.HANG,
        slot=first,
        node=plan.status.assignment.nodes[first],
        at=patience.since,
        message=message,
        root=f"Hang:{patience.section}",
        # Where nobody stands out each may have been the first.
        tied=() if blamed else others,
        slots=others if blamed else (),
    )


def _steps_to_compare(state: RunState, reports: dict[int, WorkerReport]) -> dict[int, int]:
    """The last step by rank, -1 for none. A rank that tells none while others are far beyond the first tells steps to
    nobody, as frameworks do of all ranks but one: it says nothing of who is behind."""
    entry = state.attempt_entry(state.status.attempt)
    resumed = entry.resume_step if entry is not None and entry.resume_step is not None else 0
    steps = {state.rank(slot): r.progress.step for slot, r in reports.items() if r.progress is not None}
    if max(steps.values(), default=resumed) - resumed >= _STEPS_APART:
        return steps
    return {state.rank(slot): steps.get(state.rank(slot), -1) for slot in reports}


def suspected(steps: dict[int, int], groups: list[StackGroup]) -> tuple[tuple[int, ...], str]:
    """The ranks that stand out, and in which way. ``steps``: the last one of each rank, -1 when there was none.

    A rank that is stopped; else those that stand elsewhere than all others; else those that are behind. Outliers
    are at most a quarter of the ranks: a larger part is no outlier. ByteRobust groups by stacks likewise.
    """
    few = max(1, len(steps) // 4)
    stopped = [group for group in groups if group.is_stopped]
    if stopped and len(stopped[0].ranks) <= few:
        return stopped[0].ranks, _named(stopped[0].ranks, stopped[0].innermost)
    if len(groups) > 1 and len(groups[-1].ranks) <= few and len(groups[-1].ranks) < len(groups[0].ranks):
        odd, most = groups[-1], groups[0]
        return odd.ranks, f"{_named(odd.ranks, odd.innermost)}, {_named(most.ranks, most.innermost)}"
    behind = tuple(sorted(rank for rank, step in steps.items() if step < max(steps.values())))
    if behind and len(behind) <= few:
        return behind, f"{_label(behind)} reached only step {max(0, min(steps[rank] for rank in behind))}"
    return (), ""


def _named(ranks: tuple[int, ...], where: str) -> str:
    return f"{_label(ranks)} {'is' if len(ranks) == 1 else 'are'} in {where}"


def _label(ranks: tuple[int, ...]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {shown_ranges(ranks)}"
