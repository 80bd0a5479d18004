"""`lockstep history`: every attempt of a run, what ended it and what was done next."""

from __future__ import annotations

import time

from lockstep.api.run_status import AttemptStatus, TrainingRunStatus
from lockstep.cli import output, runs
from lockstep.cli.client import Cluster

COLUMNS = ("ATTEMPT", "STARTED", "LASTED", "RESUMED", "LAST-STEP", "ENDED-BY", "RANK", "NODE", "EXIT", "ACTION")


def show(cluster: Cluster, name: str, form: str) -> None:
    """Print the attempts that status keeps."""
    raw = runs.fetch(cluster, name)
    if form not in ("table", "wide"):
        output.print_object(raw, form)
        return
    status = runs.view(raw).status
    if not status.attempts:
        output.note(f"{name} has not started yet; lockstep explain {name} says why.")
        return
    output.print_lines(listing(status, form == "wide", time.time()))
    missing = status.attempts[0].number - 1
    if missing > 0:
        output.note(f"{output.plural(missing, 'earlier attempt')} not kept.")


def listing(status: TrainingRunStatus, wide: bool, now: float) -> list[str]:
    """The table, oldest attempt first; ``wide`` adds what happened in words."""
    header = (*COLUMNS, *(("MESSAGE",) if wide else ()))
    rows = []
    for attempt in status.attempts:
        row = [
            str(attempt.number),
            output.ago(attempt.started_at, now),
            _lasted(attempt, now),
            _number(attempt.resume_step),
            _number(attempt.last_step),
            attempt.cause,
            _number(attempt.rank),
            attempt.node,
            _number(attempt.exit_code),
            attempt.action,
        ]
        rows.append(row + ([attempt.message] if wide else []))
    return output.table(header, rows)


def _lasted(attempt: AttemptStatus, now: float) -> str:
    if attempt.started_at is None:
        return "never started"
    if attempt.ended_at is None:
        return f"{output.duration(now - attempt.started_at)} so far"
    return output.duration(attempt.ended_at - attempt.started_at)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
