"""`lockstep history`: every attempt of a run, what ended it and what was done next."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from lockstep.api.base.nesting import loads
from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.cli import output, runs
from lockstep.cli.client import Cluster
from lockstep.cli.errors import CliError
from lockstep.present.amounts import ago, duration, plural
from lockstep.present.explanation import previous_runs

COLUMNS = ("ATTEMPT", "STARTED", "LASTED", "RESUMED", "LAST-STEP", "ENDED-BY", "RANK", "NODE", "EXIT", "ACTION")


def show(cluster: Cluster, name: str, form: str) -> None:
    """Print the attempts that status keeps."""
    raw = runs.fetch(cluster, name)
    if form not in ("table", "wide"):
        output.print_object(raw, form)
        return
    name, status = raw["metadata"]["name"], runs.view(raw).status
    if not status.attempts:
        output.note(f"{name} has not started yet; lockstep explain {name} says why.")
        return
    output.print_lines(listing(status, form == "wide", time.time()))
    for before in previous_runs(status, time.time()):
        output.note(f"Before it: {before}.")
    missing = status.attempts[0].number - 1
    if missing > 0:
        output.note(f"{plural(missing, 'earlier attempt')} not kept.")


def show_recorded(path: str, namespace: str, name: str, form: str) -> None:
    """Print the attempts of a run from a file of the operator's history, also of one that is gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            records = recorded(lines, namespace, name)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}", "name the file that history.path of the operator names") from error
    if not records:
        raise CliError(f"{path} tells of no run {name} in namespace {namespace}", "-n names another namespace")
    if form in ("json", "yaml"):
        output.print_object({"items": records}, form)
        return
    attempts = [AttemptStatus.load({**r, "number": r["attempt"]}) for r in records if r["kind"] == "attempt"]
    output.print_lines(listing(TrainingRunStatus(attempts=tuple(attempts)), form == "wide", time.time()))
    for record in records:
        if record["kind"] == "run":
            output.note(f"{record['outcome']} at {record['recordedAt']}: {record['message']}")


def recorded(lines: Iterable[str], namespace: str, name: str) -> list[dict[str, Any]]:
    """Records of the latest run of that name, by attempt; of those that came again the last one."""
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    uid = ""
    for line in lines:
        try:
            record = loads(line)
            key = record["uid"], record["kind"], int(record["attempt"])
            wanted = (record["namespace"], record["run"]) == (namespace, name)
        except (ValueError, KeyError, TypeError):
            continue  # a line cut short by a full disk, or of another program
        if wanted:
            uid = key[0]
            found[key] = record
    mine = [record for key, record in found.items() if key[0] == uid]
    return sorted(mine, key=lambda record: (record["kind"] == "run", record["attempt"]))


def listing(status: TrainingRunStatus, wide: bool, now: float) -> list[str]:
    """The table, oldest attempt first; ``wide`` adds what happened in words."""
    header = (*COLUMNS, *(("MESSAGE",) if wide else ()))
    rows = []
    for attempt in status.attempts:
        row = [
            str(attempt.number),
            ago(attempt.started_at, now),
            _lasted(attempt, now),
            _number(attempt.resume_step),
            _number(_last_step(attempt, status)),
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
        return f"{duration(now - attempt.started_at)} so far"
    return duration(attempt.ended_at - attempt.started_at)


def _last_step(attempt: AttemptStatus, status: TrainingRunStatus) -> int | None:
    """Of the attempt that runs: the newest step, once it has reported one."""
    at = status.progress.time
    if attempt.number != status.attempt or attempt.ended_at is not None or attempt.started_at is None or at is None:
        return attempt.last_step
    return status.progress.step if at >= attempt.started_at else attempt.last_step


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
