"""A replica that has just got the lease, before it acts."""

import asyncio

import pytest

from lockstep.config import OperatorConfig
from lockstep.controller.kube.errors import ApiError
from lockstep.controller.operator import Operator
from support.manual_clock import ManualClock


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
