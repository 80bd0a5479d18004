"""A replica that has just got the lease, before it acts, and what only the one that acts writes down."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.config import OperatorConfig
from lockstep.controller.kube.errors import ApiError
from lockstep.controller.operator import Operator
from support.manual_clock import ManualClock
from support.stored_runs import run


async def test_a_list_that_fails_at_a_takeover_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator(OperatorConfig(), None)
    clock = operator.clock = ManualClock()  # type: ignore[assignment]
    failures = [ApiError(429, "TooManyRequests", "the server is busy"), ApiError(410, "Expired", "the list is too old")]
    asked = 0

    async def read() -> None:
        nonlocal asked
        asked += 1
        if failures:
            raise failures.pop(0)

    reading = asyncio.ensure_future(operator._once_answered(read))
    await clock.advance(10)
    await reading
    assert asked == 3
    assert "the server is busy" in caplog.text


@pytest.mark.parametrize(("leads", "acts", "kinds"), [(True, True, ["run"]), (True, False, []), (False, True, [])])
def test_the_one_that_leads_writes_down_that_a_run_was_deleted(
    leads: bool, acts: bool, kinds: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator(OperatorConfig(), None)
    operator.acts = acts
    monkeypatch.setattr(operator.election, "is_leading", lambda: leads)
    operator.store.runs.apply(run(10))
    with caplog.at_level("INFO", "lockstep.history"):
        operator.store.runs.hear_gone("u1", 11)
        operator.store.runs.hear_gone("u1", 12)
    assert [record.history["kind"] for record in caplog.records if record.name == "lockstep.history"] == kinds  # type: ignore[attr-defined]


async def test_silence_counts_from_when_a_replica_acts_not_from_when_it_stood_by() -> None:
    operator = Operator(OperatorConfig(), None)
    clock = operator.clock = ManualClock(now=1000.0)  # type: ignore[assignment]
    operator.reconciler._clock = clock
    nothing: Any = SimpleNamespace(answered={}, outcomes={})
    sources = operator._sources(nothing, nothing)
    await clock.advance(1000)
    assert sources.leads_since() == 2000.0
    operator.reconciler.lead()
    operator.acts = True
    await clock.advance(100)
    assert sources.leads_since() == 2000.0
