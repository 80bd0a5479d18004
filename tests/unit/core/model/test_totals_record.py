"""Counts over the whole life of a run."""

import pytest

from lockstep.api.run_status import Totals, TrainingRunStatus
from lockstep.core.model.totals_record import count_attempt, count_replaced, count_restart


def test_counts_only_grow_and_each_by_what_it_counts() -> None:
    status = TrainingRunStatus(totals=Totals(attempts=1, pods_replaced=2, nodes_replaced=3))
    counted = count_replaced(count_attempt(status), 4, 5).totals
    assert (counted.attempts, counted.pods_replaced, counted.nodes_replaced) == (2, 6, 8)


@pytest.mark.parametrize("was_run", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_only_what_ran_is_restarted(was_run: bool, in_place: bool) -> None:
    totals = count_restart(TrainingRunStatus(), was_run=was_run, in_place=in_place).totals
    assert (totals.restarts, totals.restarts_in_place) == (was_run, in_place)
