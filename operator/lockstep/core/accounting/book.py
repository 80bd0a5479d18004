"""The account as the compact text that status carries, so that any operator can go on counting."""

import json
from dataclasses import astuple, dataclass
from typing import Any

from lockstep.api.base import nesting
from lockstep.core.accounting.goodput import Bucket, GoodputAccount, GoodputStage, Mark, opened
from lockstep.core.accounting.usage import BudgetUse, GpuUsage
from lockstep.core.checkpoints.cadence import SaveCost
from lockstep.core.failures.failure_rate import Exposure

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Book:
    """Everything that counting goes on from. ``attempt``: the last whose START is counted; 0: none."""

    account: GoodputAccount
    usage: GpuUsage
    exposure: Exposure
    attempt: int = 0
    saved_step: int = 0  # saves up to this step of the attempt are counted
    best_step_ms: int = 0  # the least usual time of a step so far; 0: not known
    warned: BudgetUse = BudgetUse.WITHIN
    nodes: int = 0  # held since exposure.at
    counted_failures: int = 0  # of the account, in exposure
    measured_step: int = 0  # of the attempt: the save whose cost was measured last
    local_cost: SaveCost | None = None
    shared_cost: SaveCost | None = None


def new_book(created_at: float) -> Book:
    """Of a run that was just made."""
    return Book(opened(created_at), GpuUsage(since=round(created_at * 1000)), Exposure(created_at))


def write(book: Book) -> str:
    """As text, at most some 2 KiB."""
    account, usage = book.account, book.usage
    fields = {
        "v": _VERSION,
        "attempt": book.attempt,
        "saved": book.saved_step,
        "best": book.best_step_ms,
        "warned": book.warned.value,
        "submitted": account.submitted,
        "since": account.since,
        "stage": account.stage.value,
        "closed": account.closed,
        "marks": [[mark.step, mark.productive] for mark in account.marks],
        "first": account.first_step,
        "broken": account.broken_at,
        "unrepaired": account.unrepaired,
        "failures": account.failures,
        "lost": account.steps_lost,
        "recoveries": account.recoveries,
        "held": usage.held,
        "gpus": [usage.gpus, usage.gpu_type, usage.since],
        "exposure": astuple(book.exposure),
        "nodes": book.nodes,
        "counted": book.counted_failures,
        "measured": book.measured_step,
        "local": book.local_cost and astuple(book.local_cost),
        "shared": book.shared_cost and astuple(book.shared_cost),
    }
    return json.dumps(fields, separators=(",", ":"))


def read(text: str) -> Book | None:
    """What ``write`` wrote; None for anything else, such as the text of another version."""
    try:
        fields: dict[str, Any] = nesting.loads(text)
        if fields["v"] != _VERSION or len(fields["closed"]) != len(Bucket):
            return None
        account = GoodputAccount(
            submitted=int(fields["submitted"]),
            since=int(fields["since"]),
            stage=GoodputStage(fields["stage"]),
            closed=tuple(int(amount) for amount in fields["closed"]),
            marks=tuple(Mark(int(step), int(productive)) for step, productive in fields["marks"]),
            first_step=fields["first"],
            broken_at=fields["broken"],
            unrepaired=bool(fields["unrepaired"]),
            failures=int(fields["failures"]),
            steps_lost=int(fields["lost"]),
            recoveries=tuple(int(took) for took in fields["recoveries"]),
        )
        gpus, gpu_type, since = fields["gpus"]
        held = tuple((str(name), int(amount)) for name, amount in fields["held"])
        if not account.marks:
            return None
        return Book(
            account,
            GpuUsage(int(since), int(gpus), str(gpu_type), held),
            Exposure(*map(float, fields["exposure"])),
            int(fields["attempt"]),
            int(fields["saved"]),
            int(fields["best"]),
            BudgetUse(fields["warned"]),
            int(fields["nodes"]),
            int(fields["counted"]),
            int(fields["measured"]),
            _cost(fields["local"]),
            _cost(fields["shared"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _cost(fields: Any) -> SaveCost | None:
    return SaveCost(float(fields[0]), float(fields[1]), int(fields[2])) if fields else None
