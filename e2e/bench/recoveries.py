"""What the operator tells of its recoveries, and what they cost it."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.operator import OperatorProcess
from harness.waiting import wait_for

LOGGER = "lockstep.recoveries"
_WRITES = ("create", "patch", "update", "replace", "delete")
_NOT_COUNTED = ("leases", "tokenreviews")  # kept by the election, asked for each new pod: no part of a recovery
_LOOK_EVERY = 0.05


@dataclass(frozen=True)
class Recovery:
    """One line of the operator's log. Moments in Unix seconds."""

    uid: str
    attempt: int
    cause: str
    action: str
    reported_at: float
    written_at: float
    seconds: float
    phases: dict[str, float]


@dataclass(frozen=True)
class Cost:
    """What the operator has spent since it started."""

    cpu: float  # seconds
    writes: dict[str, float]  # to the API server, by verb and resource
    starts: int

    def since(self, before: Cost) -> Cost:
        """What was spent from ``before`` until now. Raises RuntimeError when the operator did not live through it."""
        if self.starts != before.starts:
            raise RuntimeError("the operator was started anew meanwhile")
        writes = {name: count - before.writes.get(name, 0) for name, count in self.writes.items()}
        return Cost(self.cpu - before.cpu, {name: count for name, count in writes.items() if count}, self.starts)


class RecoveryLog:
    """Follows the log of one operator."""

    def __init__(self, operator: OperatorProcess) -> None:
        self._operator = operator
        self._offset = 0
        self._found: list[Recovery] = []

    def wait(self, uid: str, attempt: int, seconds: float) -> Recovery:
        """The recovery that began this attempt of a run. Raises WaitedInVain."""
        return wait_for(
            f"all ranks run attempt {attempt}",
            lambda: self._look(uid, attempt),
            seconds=seconds,
            every=_LOOK_EVERY,
            last_seen=self._operator.log_tail,
        )

    def _look(self, uid: str, attempt: int) -> Recovery | None:
        with self._operator.log.open("rb") as stream:
            stream.seek(self._offset)
            lines = stream.read().split(b"\n")
        self._offset += sum(len(line) + 1 for line in lines[:-1])
        for line in lines[:-1]:
            with contextlib.suppress(ValueError):
                self._take(json.loads(line))
        return next((r for r in self._found if (r.uid, r.attempt) == (uid, attempt)), None)

    def _take(self, entry: Any) -> None:
        if isinstance(entry, dict) and entry.get("logger") == LOGGER:
            self._found.append(
                Recovery(
                    uid=entry["uid"],
                    attempt=entry["attempt"],
                    cause=entry["cause"],
                    action=entry["action"],
                    reported_at=entry["failure_reported_at"],
                    written_at=entry["start_written_at"],
                    seconds=entry["seconds"],
                    phases=entry["phases"],
                )
            )


def cost_so_far(operator: OperatorProcess) -> Cost:
    """Read off its metrics."""
    metrics = operator.metrics()
    writes: dict[str, float] = {}
    for labels, count in metrics.get("lockstep_api_requests_total", {}).items():
        named = dict(labels)
        if named["verb"] in _WRITES and named["resource"] not in _NOT_COUNTED:
            name = f"{named['verb']} {named['resource']}"
            writes[name] = writes.get(name, 0) + count
    return Cost(sum(metrics["process_cpu_seconds_total"].values()), writes, operator.starts)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of ``values`` that at least ``share`` of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
