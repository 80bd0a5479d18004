"""afterCorr: which indices may start, which never can, and what is said of the others."""

from typing import Any

import pytest

from lockstep.api.run_set import SetDependency, SetIndices, TrainingRunSetStatus
from lockstep.core.arrays.correspondence import correspond
from lockstep.core.model.array_views import RunSetSnapshot, RunSetView
from support.arrays import run_set

LEFT = {0, 1, 2, 3}


def first(indices: str = "0-9", after: str | None = None, never: str | None = None, **ended: str) -> RunSetView:
    """The set that comes first, with what has become of its indices."""
    dependency = None if never is None else SetDependency(name="zeroth", never=never)
    status = TrainingRunSetStatus(observed_generation=1, indices=SetIndices(**ended), dependency=dependency)
    return run_set("first", status, indices, **({"afterCorr": after} if after else {}))


def second(known: SetDependency | None = None) -> RunSetView:
    return run_set("second", TrainingRunSetStatus(dependency=known), afterCorr="first")


def stands(view: RunSetView, *others: RunSetView, left: set[int] = LEFT) -> Any:
    return correspond(RunSetSnapshot(view, sets={each.name: each for each in (view, *others)}), left)


def test_a_set_that_comes_after_none_waits_for_nothing() -> None:
    found = stands(run_set("second"))
    assert (found.ready, found.never, found.message, found.status) == (LEFT, frozenset(), "", None)


@pytest.mark.parametrize(
    ("other", "ready", "never"),
    [
        (None, set(), set()),
        (first(), set(), set()),
        (first(active="0-3"), set(), set()),
        (first(succeeded="0,2,7"), {0, 2}, set()),
        (first(succeeded="0", failed="1"), {0}, {1}),
        (first(cancelled="3"), set(), {3}),
        (first("0-1", succeeded="1"), {1}, {2, 3}),
        (first(never="2", succeeded="0"), {0}, {2}),
    ],
)
def test_an_index_may_start_when_the_same_one_succeeded_and_never_when_it_cannot_any_more(
    other: RunSetView | None, ready: set[int], never: set[int]
) -> None:
    found = stands(second(), *([other] if other is not None else []))
    assert (found.ready, found.never) == (ready, never)
    assert bool(never) == ("did not succeed, or does not exist" in found.message)


@pytest.mark.parametrize(
    ("known", "ready", "never"),
    [
        (SetDependency(name="first", met="0,9", never="1"), {0}, {1}),
        (SetDependency(name="another", met="0", never="1"), set(), set()),
        (SetDependency(name="first", met="nonsense"), set(), set()),
    ],
)
def test_what_was_met_or_failed_once_stays_so_when_the_other_set_is_gone(
    known: SetDependency, ready: set[int], never: set[int]
) -> None:
    found = stands(second(known))
    assert (found.ready, found.never) == (ready, never)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ([first(after="second")], "second -> first -> second"),
        ([first(after="third"), run_set("third", afterCorr="second")], "second -> first -> third -> second"),
        ([first(after="third"), run_set("third", afterCorr="first")], ""),
        ([first(after="third"), run_set("third")], ""),
    ],
    ids=["two", "three", "a circle without it", "a line"],
)
def test_sets_that_wait_for_each_other_never_start_what_has_not_been_met(others: list[RunSetView], words: str) -> None:
    found = stands(second(SetDependency(name="first", met="0")), *others)
    assert found.ready == {0}
    assert found.never == ({1, 2, 3} if words else frozenset())
    assert words in found.message
