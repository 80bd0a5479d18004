"""Which signs of a node's output may explain how its attempt ended. Pure."""

from collections.abc import Sequence

from lockstep.core.failures.signs import is_of_loading
from lockstep.core.model.run_state import RunState
from lockstep.core.model.worker_report import Sign
from lockstep.core.pods.launchers import others_stand_by


def own_signs(state: RunState, slot: int) -> Sequence[Sign]:
    """What was found in the output of the slot's own node, and may explain an end. What a checkpoint could not be read
    for at the start explains none once a step was made."""
    report = state.report(slot)
    if report is None or not report.signs:
        return ()
    passed = _has_stepped_since_load(state, report.attempt)
    return [s for s in report.signs if not (passed and is_of_loading(s)) and not _is_echo(state, slot, s)]


def _has_stepped_since_load(state: RunState, attempt: int) -> bool:
    entry, reports = state.attempt_entry(attempt), state.snapshot.reports.values()
    if entry is None or entry.resume_step is None:
        return False
    steps = (report.progress.step for report in reports if report.progress is not None and report.attempt == attempt)
    return max(steps, default=0) > entry.resume_step


def _is_echo(state: RunState, slot: int, sign: Sign) -> bool:
    """Rank 0 prints what its steps print elsewhere: the node where that was written has the same line."""
    if state.rank(slot) != 0 or not others_stand_by(state.spec):
        return False
    others = (report for other in state.ranked_slots() if other != slot and (report := state.report(other)) is not None)
    return any(
        own.kind == sign.kind and own.text in sign.text
        for report in others
        if report.attempt == state.status.attempt
        for own in report.signs
    )
