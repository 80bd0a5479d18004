"""What the program wrote and no format recognises: it may be a save, and speaks against step 0.

That nothing is recognised is no evidence that nothing was saved.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from posixpath import dirname

from lockstep.api.checkpoint_status import UnrecognisedSave
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints.checkpoint_record import record_unrecognised
from lockstep.core.checkpoints.inventory import latest_valid
from lockstep.core.checkpoints.verdicts import Candidate, RankView
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.tiers import LOCAL
from lockstep.core.model.worker_report import UnrecognisedReport, Verdict, WorkerReport

MOST = 4
"""Kept in status, and named in messages."""
MANY_STEPS = 1000
"""A program that has done so many more has not been cut off in that save."""
FEW_STEPS = 5
"""Ranks that lose one another each save what they have, so many steps apart at most: all of these were cut off."""
HOW_TO_BE_KNOWN = (
    "name their format (checkpoint.format, checkpoint.pattern), or commit each save with a manifest.json "
    "(docs/checkpoints.md)"
)
REMEDY = f"{HOW_TO_BE_KNOWN}; with checkpoint.start.mode: Fresh it is step 0 all the same"
"""While it may still be suspended and changed."""


def report_unknown_saves(plan: PlanBuilder) -> None:
    """Say so at the first save: after the first failure it is too late."""
    checkpoint = plan.status.checkpoint
    reports = plan.snapshot.reports.values()
    seen = [row for report in reports for row in report.unrecognised or () if _is_its(row, report)]
    if not seen and not checkpoint.unrecognised:
        return
    if checkpoint.latest or latest_valid(plan.snapshot, plan.status):
        if checkpoint.unrecognised:
            plan.status = record_unrecognised(plan.status, ())
        return
    known = {(each.tier, each.path) for each in checkpoint.unrecognised}
    new = tuple(_as_saved(row) for row in _distinct(seen) if (row.tier, row.path) not in known)
    # The names of the first ones stay: what comes later says no more, and each would be a write.
    if new and len(known) < MOST:
        plan.status = record_unrecognised(plan.status, (*checkpoint.unrecognised, *new)[:MOST])
    if new and not known:
        remedy = HOW_TO_BE_KNOWN if plan.phase is Phase.FINISHED else REMEDY
        words = f"no save of this run can be resumed from: {named(new)}; {remedy}"
        plan.event(EventReason.UNKNOWN_SAVES, words, action=ActionWord.REPORT, warning=True)


def _is_its(row: UnrecognisedReport, report: WorkerReport) -> bool:
    """The program wrote it. At the barrier, what lies where others may write may be of another run: the last one with
    the same path exported its weights there, and a new one has every right to step 0."""
    return bool(row.attempt) or 0 < report.attempt >= report.ready_for


def unknown_saves(
    view: RankView, status: TrainingRunStatus, candidates: Sequence[Candidate], highest_step: int
) -> tuple[UnrecognisedSave, ...]:
    """What speaks against step 0 at the barrier, where nothing is valid.

    What lies where others may have put it counts once status has it, as written by the program. What status has counts
    for as long as it may be there: on the nodes' own disks always, else until all ranks looked and none sees it.
    """
    seen = _distinct(row for report in view.reports.values() for row in report.unrecognised or ())
    paths = {(row.tier, row.path) for row in seen}
    known = {(each.tier, each.path) for each in status.checkpoint.unrecognised}
    told = not view.silent and all(report.unrecognised is not None for report in view.reports.values())
    held = {(each.tier, each.path) for each in candidates}
    beside = {(tier, dirname(path)) for tier, path in known}  # of many only the first are kept, and the newest reported
    found = [_as_saved(row) for row in seen if row.attempt or (row.tier, dirname(row.path)) in beside]
    found += [
        each
        for each in status.checkpoint.unrecognised
        if (each.tier, each.path) not in paths | held and (each.tier == LOCAL or not told)
    ]
    found += [
        UnrecognisedSave(tier=each.tier, path=each.path, attempt=each.attempt or None, reason=each.reason[:256])
        for each in _left_begun(candidates, highest_step)
    ]
    return tuple(found)


def named(saves: Sequence[UnrecognisedSave]) -> str:
    """For messages: the first few, and why each is none."""
    words = ", ".join(f"{each.path[-160:]} ({each.reason[:96] or 'not recognised'})" for each in saves[:2])
    return words + (f" and {len(saves) - 2} more" if len(saves) > 2 else "")


def _left_begun(candidates: Sequence[Candidate], highest_step: int) -> list[Candidate]:
    """Saves that were never committed although the program went on: what cut it off has cut off the last one alone."""
    begun: dict[tuple[str, int], list[Candidate]] = defaultdict(list)
    for each in candidates:
        if each.verdict is Verdict.INVALID and each.format and not each.committed and not each.lacking:
            begun[each.tier, each.attempt].append(each)
    left = []
    for saves in begun.values():
        last = max(each.step for each in saves)
        left += [each for each in saves if each.step + FEW_STEPS <= last or each.step + MANY_STEPS <= highest_step]
    return sorted(left, key=lambda each: (-each.step, each.tier, each.path))


def _distinct(rows: Iterable[UnrecognisedReport]) -> list[UnrecognisedReport]:
    """Those of attempts first, the latest of them before the others."""
    by_path = {(row.tier, row.path): row for row in rows}
    return sorted(by_path.values(), key=lambda row: (-row.attempt, row.tier, row.path))


def _as_saved(row: UnrecognisedReport) -> UnrecognisedSave:
    return UnrecognisedSave(tier=row.tier, path=row.path, attempt=row.attempt or None, reason=row.reason)
