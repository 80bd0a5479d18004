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
from lockstep.core.failures.evidence import succeeded_ranks
from lockstep.core.failures.stack_groups import StackGroup, grouped, stacks_config_map
from lockstep.core.model.draft import Draft
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.ranges import format_ranges
from lockstep.core.model.reasons import AttemptCause
from lockstep.core.model.snapshot import WorkerPhase, WorkerReport

FACTOR = 5.0
SHORTEST, LONGEST = 60.0, 2700.0
"""Bounds of the adaptive time between two steps, in seconds."""
SHORTEST_INIT = 300.0
ASK_AT = 0.8
"""Share of the time allowed after which the ranks are asked for their stacks."""
COLLECT_SECONDS = 15.0
"""How long stacks are waited for once the time is over."""
ENOUGH_INTERVALS = 20
_STEPS_APART = 2  # ranks of one gang are never so far apart
"""From so many on, what an attempt measured replaces what earlier ones did."""


@dataclass(frozen=True, slots=True)
class Patience:
    """What the gang is in, since when, and how long it may stay there. ``limit`` None: not judged."""

    section: str
    since: float
    limit: float | None
    why: str = ""


def hung(draft: Draft) -> Evidence | None:
    """The gang is hung; or None, with the next look asked for and, in time, the stacks."""
    reports = _all_running(draft)
    if reports is None:
        return None
    patience = patience_of(draft, reports)
    if patience.limit is None:
        return None
    waited = draft.now - patience.since
    if waited < ASK_AT * patience.limit:
        draft.wake(patience.since + ASK_AT * patience.limit)
        return None
    step = max((r.progress.step for r in reports.values() if r.progress is not None), default=0)
    # Of attempt and step alone, so that every leader asks the same question.
    draft.stacks = f"a{draft.status.attempt}-{patience.section}-{step}"
    settled = draft.snapshot.leadership.since + draft.silent_after
    over = max(patience.since + patience.limit, settled)
    if draft.now < over:
        draft.wake(over)
        return None
    missing = [slot for slot, r in reports.items() if r.stacks is None or r.stacks.id != draft.stacks]
    if missing and draft.now < over + COLLECT_SECONDS:
        draft.wake(over + COLLECT_SECONDS)
        return None
    return _evidence(draft, reports, patience, step)


def remember_pace(draft: Draft) -> None:
    """Keep the longest intervals in status: an attempt that has just begun has none of its own yet."""
    timings = [r.timing for r in draft.snapshot.reports.values() if r.attempt == draft.status.attempt]
    progress = draft.status.progress
    longest = math.ceil(max((t.longest for t in timings), default=0.0))
    if all(t.intervals < ENOUGH_INTERVALS for t in timings):
        longest = max(longest, progress.longest_interval)  # until this attempt speaks for itself
    init = math.ceil(max((t.longest_init for t in timings), default=0.0)) or progress.longest_init
    if (longest, init) != (progress.longest_interval, progress.longest_init):
        draft.status = changed(draft.status, progress=changed(progress, longest_interval=longest, longest_init=init))


def patience_of(draft: Draft, reports: dict[int, WorkerReport]) -> Patience:
    """Section, its beginning and the time allowed in it. ``reports``: of all ranks that train, by slot."""
    setting = draft.spec.recovery.hang_timeout
    stated = None if setting in ("Adaptive", "Disabled") else float(parse_duration(setting))
    entry = draft.attempt_entry(draft.status.attempt)
    begun = entry.started_at if entry is not None and entry.started_at is not None else draft.now
    stepped = [r.progress for r in reports.values() if r.progress is not None]
    timings = [r.timing for r in reports.values()]
    known = draft.status.progress
    if setting == "Disabled" or not _has_stepped_twice(draft, reports):
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


def _all_running(draft: Draft) -> dict[int, WorkerReport] | None:
    """The reports of all ranks that have not ended well, by slot; None when one of them is not known to train."""
    if draft.phase is not Phase.RUNNING or draft.spec.recovery.hang_timeout == "Disabled":
        return None
    done = succeeded_ranks(draft)
    found = {}
    for slot in draft.slot_range():
        if draft.rank(slot) < 0 or draft.rank(slot) in done:
            continue
        report = draft.report(slot)
        if report is None or report.attempt != draft.status.attempt or report.phase is not WorkerPhase.RUNNING:
            return None
        if draft.now - report.received_at > draft.silent_after:
            return None  # of one that is silent nobody knows whether it steps
        found[slot] = report
    return found or None


def _has_stepped_twice(draft: Draft, reports: dict[int, WorkerReport]) -> bool:
    """Progress was seen twice, in this attempt or in one before it."""
    if any(r.timing.intervals for r in reports.values()) or draft.status.progress.longest_interval:
        return True
    if any(
        ended.last_step is not None and ended.last_step - (ended.resume_step or 0) >= 2
        for ended in draft.status.attempts
    ):
        return True
    entry = draft.attempt_entry(draft.status.attempt)
    resumed = entry.resume_step if entry is not None and entry.resume_step is not None else 0
    return any(r.progress is not None and r.progress.step - resumed >= 2 for r in reports.values())


def _evidence(draft: Draft, reports: dict[int, WorkerReport], patience: Patience, step: int) -> Evidence:
    groups = grouped(
        {
            draft.rank(slot): r.stacks.text
            for slot, r in reports.items()
            if r.stacks is not None and r.stacks.id == draft.stacks
        }
    )
    slot_of = {draft.rank(slot): slot for slot in reports}
    steps = _steps_to_compare(draft, reports)
    suspects, stands_out = suspected(steps, groups)
    if groups:
        config_map = stacks_config_map(draft.run, draft.status.attempt, draft.stacks, groups)
        draft.config_maps.append(config_map)
        draft.put_attempt(changed(draft.attempt(draft.status.attempt), stacks=config_map.name))
    assert patience.limit is not None
    after = f"after step {step}" if step else "since the start"
    message = (
        f"no step for {format_duration(draft.now - patience.since)} {after} "
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
        node=draft.status.assignment.nodes[first],
        at=patience.since,
        message=message,
        root=f"Hang:{patience.section}",
        # Where nobody stands out each may have been the first.
        tied=() if blamed else others,
        slots=others if blamed else (),
    )


def _steps_to_compare(draft: Draft, reports: dict[int, WorkerReport]) -> dict[int, int]:
    """The last step by rank, -1 for none. A rank that tells none while others are far beyond the first tells steps to
    nobody, as frameworks do of all ranks but one: it says nothing of who is behind."""
    entry = draft.attempt_entry(draft.status.attempt)
    resumed = entry.resume_step if entry is not None and entry.resume_step is not None else 0
    told = {draft.rank(slot): r.progress.step for slot, r in reports.items() if r.progress is not None}
    if max(told.values(), default=resumed) - resumed >= _STEPS_APART:
        return told
    return {draft.rank(slot): told.get(draft.rank(slot), -1) for slot in reports}


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
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranges(ranks)}"
