"""What is known of each index of a set."""

from collections.abc import Mapping
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_set import SetCounts, SetIndices, TrainingRunSetStatus
from lockstep.api.run_status import QueueStatus, TrainingRunStatus
from lockstep.core.arrays.tally import outcome_of, tally
from lockstep.core.model.array_views import RunSetSnapshot
from support.arrays import HOLDING, ended, member, run_set, set_spec

WITH_NODES = TrainingRunStatus(assignment=HOLDING)
HELD = changed(set_spec().template.spec, suspend=True)


def counted(
    runs: Mapping[int, TrainingRunStatus] | None = None,
    departed: Mapping[int, TrainingRunStatus] | None = None,
    *,
    generation: int = 1,
    **known: str,
) -> Any:
    """The tally of a set of five with these runs, those that were seen to go, and what status says."""
    view = run_set("sweep", TrainingRunSetStatus(observed_generation=generation, indices=SetIndices(**known)), "0-4")

    def views(statuses: Mapping[int, TrainingRunStatus] | None) -> dict[int, Any]:
        return {index: member(view, index, status) for index, status in (statuses or {}).items()}

    return tally(RunSetSnapshot(view, views(runs), views(departed)))


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [("Succeeded", "succeeded"), ("Cancelled", "cancelled"), ("BackoffLimit", "failed")],
)
def test_a_run_that_has_ended_has_an_outcome(reason: str, outcome: str) -> None:
    assert outcome_of(member(run_set(), 0, ended(reason))) == outcome
    assert outcome_of(member(run_set(), 0)) == ""


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, {}),
        ({"runs": {0: TrainingRunStatus(), 1: WITH_NODES}}, {"active": "0-1"}),
        ({"runs": {0: ended("Succeeded"), 1: ended("Failed")}}, {"succeeded": "0", "failed": "1"}),
        ({"runs": {9: WITH_NODES}}, {}),
        # A run that is there is active, whatever was written; an outcome stays when its run is gone.
        ({"runs": {0: WITH_NODES}, "succeeded": "0"}, {"active": "0"}),
        ({"succeeded": "0", "failed": "1", "cancelled": "2"}, {"succeeded": "0", "failed": "1", "cancelled": "2"}),
        ({"succeeded": "0-9"}, {"succeeded": "0-4"}),
        # A run that is gone counts as it was seen last, and as cancelled when it had not ended.
        ({"active": "0", "departed": {0: ended("Succeeded")}}, {"succeeded": "0"}),
        ({"active": "0", "departed": {0: WITH_NODES}}, {"cancelled": "0"}),
        ({"active": "0"}, {"cancelled": "0"}),
        ({"departed": {3: ended("Failed")}}, {"failed": "3"}),
        ({"failed": "3", "departed": {3: ended("Succeeded")}}, {"failed": "3"}),
        # Status was lost: every index below the highest that has a run may have had one.
        ({"runs": {3: WITH_NODES}, "generation": 0}, {"active": "3", "cancelled": "0-2"}),
        ({"runs": {3: WITH_NODES}}, {"active": "3"}),
    ],
)
def test_every_index_counts_once(facts: dict[str, Any], expected: dict[str, str]) -> None:
    assert counted(**facts).ranges() == SetIndices(**expected)


@pytest.mark.parametrize(
    ("facts", "warnings"),
    [
        ({"runs": {0: WITH_NODES}, "active": "0"}, []),
        ({"active": "0-1"}, ["RunDeleted", "RunDeleted"]),
        ({"active": "0", "departed": {0: ended("Succeeded")}}, []),
        ({"runs": {3: WITH_NODES}, "generation": 0}, ["StateRegression"]),
        ({"runs": {0: WITH_NODES}, "generation": 0}, []),
    ],
)
def test_what_nobody_wrote_down_is_warned_of(facts: dict[str, Any], warnings: list[str]) -> None:
    assert [event.reason for event in counted(**facts).events] == warnings


def test_who_has_nodes_runs_and_who_waits_without_being_held_waits() -> None:
    view = run_set("sweep", TrainingRunSetStatus(observed_generation=1), "0-4")
    runs = {0: member(view, 0, WITH_NODES), 1: member(view, 1), 2: member(view, 2, spec=HELD), 3: member(view, 3)}
    found = tally(RunSetSnapshot(view, {**runs, 3: member(view, 3, ended("Succeeded"))}))
    assert (found.holding, found.waiting, found.left) == ({0}, {1}, {4})
    assert found.counts() == SetCounts(total=5, pending=3, running=1, succeeded=1)


@pytest.mark.parametrize(
    "held",
    [
        {"annotations": {"lockstep.dev/paused": "true"}},
        {"status": TrainingRunStatus(queue=QueueStatus(reason="HeldByAdministrator"))},
    ],
)
def test_who_is_held_by_name_takes_up_no_width(held: dict[str, Any]) -> None:
    view = run_set("sweep", TrainingRunSetStatus(observed_generation=1), "0-4")
    assert tally(RunSetSnapshot(view, {0: member(view, 0, **held), 1: member(view, 1)})).waiting == {1}


def test_counts_add_up_to_the_indices_of_the_set() -> None:
    found = counted({0: WITH_NODES}, succeeded="1", failed="2", cancelled="3")
    assert found.counts() == SetCounts(total=5, pending=1, running=1, succeeded=1, failed=1, cancelled=1)


def test_a_status_that_is_no_ranges_is_not_counted_on() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        counted(succeeded="all")
