"""Runs of an array that the API server refuses hold up no other."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.controller.kube.errors import ApiError
from support.sets_at_work import SUCCEEDED, Operator


@pytest.fixture
def operator() -> Operator:
    return Operator()


def webhook(operator: Operator, refuses: set[str]) -> list[str]:
    """An admission webhook; the names that it was asked about, in order."""
    create, asked = operator.api.create, list[str]()

    async def ask(resource: Any, body: Any, namespace: str) -> bytes:
        asked.append(body["metadata"]["name"])
        if asked[-1] in refuses:
            raise ApiError(403, "Forbidden", f"admission webhook denied the request: not {asked[-1]}")
        return await create(resource, body, namespace)

    operator.api.create = ask  # type: ignore[method-assign]
    return asked


async def test_a_webhook_that_refuses_one_index_holds_up_no_other(operator: Operator) -> None:
    operator.apply(maxRunning=2)
    refuses = {"sweep-1"}
    asked = webhook(operator, refuses)
    for _ in range(4):
        await operator.look()
    assert operator.api.created == ["sweep-0", "sweep-2"]
    assert (operator.status().refusal.indices, operator.status().reason) == ("1", "RunRefused")
    assert (asked.count("sweep-1"), operator.said) == (1, ["RunRefused"])
    for name in ("sweep-0", "sweep-2"):
        operator.change_run(name, conditions=SUCCEEDED)
    for _ in range(12):
        await operator.look()
        await operator.clock.advance(2)
    assert operator.api.created == ["sweep-0", "sweep-2", "sweep-3", "sweep-4"]
    for name in ("sweep-3", "sweep-4"):
        operator.change_run(name, conditions=SUCCEEDED)
    for _ in range(30):
        await operator.look()
        await operator.clock.advance(2)
    assert 3 <= asked.count("sweep-1") <= 7, "in 84 s with waits that double"
    refuses.clear()
    await operator.clock.advance(300)
    await operator.look()
    await operator.look()
    assert operator.api.created[-1] == "sweep-1"
    assert (operator.status().refusal, operator.status().reason) == (None, "RunsActive")


async def look_for(operator: Operator, seconds: int) -> None:
    """Look each second, and let every run that was made succeed at once."""
    for _ in range(seconds):
        await operator.look()
        for name in operator.api.created:
            if not operator.api.objects[name].get("status"):
                operator.change_run(name, conditions=SUCCEEDED)
        await operator.clock.advance(1)


@pytest.mark.slow
async def test_many_refused_in_a_row_are_left_behind_within_minutes_at_a_width_of_one(operator: Operator) -> None:
    operator.apply(indices="0-99", maxRunning=1)
    asked = webhook(operator, {f"sweep-{index}" for index in range(1, 99)})
    await look_for(operator, 300)
    assert operator.api.created == ["sweep-0", "sweep-99"]
    assert len(asked) <= 120, "and not each of them again and again"


@pytest.mark.slow
async def test_every_other_one_refused_holds_up_the_rest_for_seconds(operator: Operator) -> None:
    operator.apply(indices="0-59", maxRunning=1)
    asked = webhook(operator, {f"sweep-{index}" for index in range(0, 60, 2)})
    await look_for(operator, 240)
    assert operator.api.created == [f"sweep-{index}" for index in range(1, 60, 2)]
    assert len(asked) <= 240


@pytest.mark.slow
async def test_no_more_are_taken_than_there_is_room_for_however_many_are_tried(operator: Operator) -> None:
    operator.apply(indices="0-99", maxRunning=2)
    refuses = {f"sweep-{index}" for index in range(100)}
    webhook(operator, refuses)
    for _ in range(200):
        await operator.look()
        await operator.clock.advance(1)
    assert operator.api.created == []
    refuses.clear()
    for _ in range(320):
        await operator.look()
        await operator.clock.advance(1)
    assert len(operator.api.created) == 2


async def test_a_quota_that_refuses_every_run_is_asked_now_and_then_with_one_of_them(operator: Operator) -> None:
    operator.apply(indices="0-999")
    refuses = {f"sweep-{index}" for index in range(1000)}
    asked = webhook(operator, refuses)
    for _ in range(30):
        await operator.look()
        await operator.clock.advance(1)
    assert (operator.api.created, operator.status().reason) == ([], "RunRefused")
    assert len(asked) <= 64 + (1 + 2 + 4 + 8) + 4, "one look of all that may wait, then more the longer the wait"
    refuses.clear()
    await operator.clock.advance(300)
    for _ in range(4):
        await operator.look()
    assert len(operator.api.created) == 64
    assert operator.status().refusal is None


async def test_a_new_operator_asks_no_sooner_about_an_index_that_was_refused(operator: Operator) -> None:
    operator.apply(indices="0")
    asked = webhook(operator, {"sweep-0"})
    await operator.look()
    await operator.look()
    later = Operator()
    later.store.run_sets.apply(operator.api.objects["sweep"])
    later.api.objects = operator.api.objects
    webhook(later, {"sweep-0"})
    await later.look()
    assert (asked, later.status().refusal.tries) == (["sweep-0"], 1)
    assert later.api.created == []
