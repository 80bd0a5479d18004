"""What `lockstep explain` and `lockstep info` print of a run, in UTC, and what is told of those who wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstep.api.run_status import QueueStatus
from lockstep.cli import runs
from lockstep.cli.views import explain, info
from lockstep.core.model.snapshot import NodeView
from lockstep.core.model.tunables import Tunables
from lockstep.present.explanation import LiveAdmission, NotLive
from support import sample_runs as sample
from support.sample_runs import NOW

GOLDEN = Path(__file__).parents[1] / "unit" / "cli" / "golden"
LEVELS = Tunables().topology_levels
FREE = LiveAdmission(queue=QueueStatus(), ahead=(), nodes=4, holders=())


def explained(raw: dict[str, Any], found: LiveAdmission | NotLive | None = None) -> list[str]:
    return list(explain.explanation(runs.view(raw), found, NOW))


def everything_of(raw: dict[str, Any], found: LiveAdmission | None = None) -> list[str]:
    return list(explain.explanation(runs.view(raw), found, NOW, everything=True))


def paged(raw: dict[str, Any], nodes: dict[str, NodeView] | None = None) -> list[str]:
    return list(info.page(runs.view(raw), nodes or {}, LEVELS, NOW))


TOLD = {
    "blockedBy": ["team/llama", "vision/resnet"],
    "estimatedStart": sample.at(-2400),
    "assumption": "every run uses its whole time limit, and nobody more urgent comes",
    "priority": 1234,
    "factors": {"class": 1000, "age": 240, "nice": -6},
    "updated": sample.at(30),
}


@contextmanager
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        yield
    finally:
        monkeypatch.undo()
        time.tzset()
