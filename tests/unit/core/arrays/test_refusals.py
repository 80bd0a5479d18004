"""Runs of a set that the API server will not take: which they are, and when one of them is tried again."""

from typing import Any

import pytest

from lockstep.api.run_set import SetRefusal
from lockstep.core.arrays.refusals import is_due, never_tried_now, next_to_try, refusal_after

NOW = 10_000.0


def refusal(indices: str = "3,5", *, last: int = 3, tries: int = 1, retry_at: float = NOW) -> SetRefusal:
    return SetRefusal(indices=indices, last=last, message="no", tries=tries, retry_at=retry_at)


def after(before: SetRefusal | None, *news: int, left: Any = range(10), taken: Any = (), fruitless: int = 0) -> Any:
    said = {index: f"denied {index}" for index in news}
    return refusal_after(before, said, set(left), set(taken), fruitless, NOW)


@pytest.mark.parametrize(
    ("before", "news", "more", "expected"),
    [
        (None, (), {}, None),
        (None, (4,), {}, ("4", 4, 1, 2.0)),
        (None, (4, 6), {}, ("4,6", 6, 1, 2.0)),
        (None, (40,), {}, None),  # it is none of those left
        (refusal(), (), {}, ("3,5", 3, 1, 0.0)),
        (refusal(), (), {"left": {5}}, ("5", 3, 1, 0.0)),
        (refusal(), (), {"left": {0}}, None),
        (refusal(tries=1), (5,), {}, ("3,5", 5, 2, 4.0)),
        (refusal(tries=4), (7,), {}, ("3,5,7", 7, 5, 32.0)),
        (refusal(tries=30), (5,), {}, ("3,5", 5, 31, 300.0)),
        (refusal(tries=2**63 - 1), (5,), {}, ("3,5", 5, 10**6, 300.0)),  # which somebody has written there
        # One that was refused has been taken: the others may be as well, and the waits begin anew.
        (refusal(tries=9), (7,), {"taken": {3}, "left": {5, 7}}, ("7", 7, 1, 2.0)),
        (refusal(tries=9), (), {"taken": {3}, "left": {5, 7}}, None),
        # The first refusal since a run was taken, of an index that is new.
        (refusal(tries=9), (7,), {"fruitless": 1}, ("3,5,7", 7, 1, 2.0)),
        (refusal(tries=9), (5,), {"fruitless": 1}, ("3,5", 5, 10, 300.0)),
        (refusal(tries=4), (7,), {"fruitless": 2}, ("3,5,7", 7, 5, 32.0)),
    ],
)
def test_what_is_on_record_after_news(
    before: SetRefusal | None,
    news: tuple[int, ...],
    more: dict[str, Any],
    expected: tuple[str, int, int, float] | None,
) -> None:
    found = after(before, *news, **more)
    assert (found and (found.indices, found.last, found.tries, found.retry_at - NOW)) == expected


def test_the_words_are_those_of_the_last_index_and_bounded() -> None:
    found = refusal_after(None, {1: "one", 2: "x" * 5000}, {1, 2}, set(), 0, NOW)
    assert found is not None
    assert found.message == "x" * 900


@pytest.mark.parametrize(
    ("retry_at", "due"),
    [(NOW - 1, True), (NOW, True), (NOW + 1, False), (NOW + 300, False), (NOW + 301, True)],
)
def test_a_try_is_due_at_its_time_and_one_further_away_than_any_wait_is_none_of_ours(
    retry_at: float, due: bool
) -> None:
    assert is_due(refusal(retry_at=retry_at), NOW) is due


@pytest.mark.parametrize(("tries", "most"), [(1, 1), (2, 2), (4, 8), (7, 64), (8, 64), (99, 64)])
def test_the_longer_the_wait_the_more_are_tried_for_the_first_time(tries: int, most: int) -> None:
    assert never_tried_now(refusal(tries=tries)) == most


@pytest.mark.parametrize(
    ("last", "ready", "turn"),
    [
        (3, range(10), 5),
        (5, range(10), 8),
        (8, range(10), 3),
        (3, {3}, 3),
        (5, {3, 5}, 3),
        (3, {4}, None),
        (3, (), None),
    ],
)
def test_refused_indices_take_turns(last: int, ready: Any, turn: int | None) -> None:
    assert next_to_try(refusal("3,5,8", last=last), ready) == turn
