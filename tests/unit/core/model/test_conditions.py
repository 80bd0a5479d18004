"""Conditions: set, found and taken away; the time moves only when the value flips."""

from typing import Any

import pytest

from lockstep.api.queue import TrainingQueueStatus
from lockstep.api.run_set import TrainingRunSetStatus
from lockstep.api.run_status import Condition, TrainingRunStatus
from lockstep.core.model.conditions import TYPES, find, is_true, with_condition, without_condition
from lockstep.core.model.reasons import Recorded

NOW = 100.7


def status(*known: tuple[str, str]) -> TrainingRunStatus:
    """With conditions of these types and values, since second 10."""
    return TrainingRunStatus(
        conditions=tuple(
            Condition(type=kind, status=value, reason="Why", last_transition_time=10.0)  # type: ignore[arg-type]
            for kind, value in known
        )
    )


def made(before: TrainingRunStatus, kind: str, value: bool | None, message: str = "words") -> TrainingRunStatus:
    return with_condition(before, kind, value, Recorded("Because"), message, now=NOW, generation=4)


@pytest.mark.parametrize(
    ("before", "value", "word", "since"),
    [
        (None, True, "True", 100.0),
        (None, None, "Unknown", 100.0),
        ("True", True, "True", 10.0),
        ("True", False, "False", 100.0),
        ("Unknown", None, "Unknown", 10.0),
        ("False", None, "Unknown", 100.0),
    ],
)
def test_the_time_moves_only_when_the_value_flips(
    before: str | None, value: bool | None, word: str, since: float
) -> None:
    found = find(made(status(("Admitted", before)) if before else status(), "Admitted", value), "Admitted")
    assert found is not None
    assert (found.status, found.last_transition_time) == (word, since)
    assert (found.reason, found.message, found.observed_generation) == ("Because", "words", 4)
    assert type(found.reason) is str


def test_what_is_said_again_changes_nothing() -> None:
    once = made(status(), "Admitted", True, "x" * 2000)
    assert made(once, "Admitted", True, "x" * 2000) is once
    for value, message, generation in ((False, "x", 4), (True, "y", 4), (True, "x", 5)):
        before = made(status(), "Admitted", True, "x")
        again = with_condition(before, "Admitted", value, Recorded("Because"), message, now=NOW, generation=generation)  # type: ignore[arg-type]
        assert again != before
    assert with_condition(once, "Admitted", True, Recorded("Else"), "x" * 2000, now=NOW, generation=4) != once  # type: ignore[arg-type]


def test_a_message_is_cut_to_what_the_api_takes() -> None:
    found = find(made(status(), "Admitted", True, "x" * 2000), "Admitted")
    assert found is not None
    assert len(found.message) == 1024


@pytest.mark.parametrize("order", [TYPES, TYPES[::-1]], ids=["forwards", "backwards"])
def test_conditions_stand_in_the_order_of_a_runs_life_and_the_seldom_ones_last(order: tuple[str, ...]) -> None:
    found = made(made(status(), "StateRegression", True), "ClusterDisruption", True)
    for kind in order:
        found = made(found, kind, True)
    assert [each.type for each in found.conditions] == [*TYPES, "ClusterDisruption", "StateRegression"]


@pytest.mark.parametrize(("value", "true"), [("True", True), ("False", False), ("Unknown", False), (None, False)])
def test_a_condition_is_true_when_it_is_there_and_says_so(value: str | None, true: bool) -> None:
    assert is_true(status(("Finished", value)) if value else status(), "Finished") is true


def test_a_condition_that_does_not_matter_any_more_goes_and_others_stay() -> None:
    known = status(("Accepted", "True"), ("StateRegression", "True"))
    assert [each.type for each in without_condition(known, "StateRegression").conditions] == ["Accepted"]
    assert without_condition(known, "ClusterDisruption").conditions == known.conditions


@pytest.mark.parametrize(
    ("kind", "most"), [(TrainingRunStatus, 16), (TrainingRunSetStatus, 8), (TrainingQueueStatus, 8)]
)
def test_of_conditions_that_are_none_of_ours_only_what_has_room_beside_ours_stays(kind: Any, most: int) -> None:
    theirs = tuple(
        Condition(type=f"z{number:02}", status="True", reason="Why", last_transition_time=10.0)
        for number in range(most)
    )
    found = kind(conditions=theirs)
    for ours in TYPES:
        found = with_condition(found, ours, True, Recorded("Because"), "words", now=NOW, generation=4)
    assert [each.type for each in found.conditions] == [
        *TYPES,
        *(f"z{number:02}" for number in range(most - len(TYPES))),
    ]
