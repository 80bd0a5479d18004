"""Nodes that are kept for debugging after the end of a run."""

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import LeavingStatus, TrainingRunStatus
from lockstep.core.model.conditions import with_condition
from lockstep.core.model.kept_nodes import is_kept, nodes_kept


@pytest.mark.parametrize(
    ("until", "leaving", "finished", "kept", "nodes"),
    [
        (9.0, LeavingStatus(nodes=2, until=9.0), True, True, 2),
        (9.0, None, True, True, 0),
        (None, LeavingStatus(nodes=2, until=9.0), True, False, 0),
        (9.0, LeavingStatus(nodes=2, until=9.0), False, False, 0),
    ],
)
def test_nodes_are_kept_after_the_end_of_a_run_that_is_held_until_its_pods_are_gone(
    until: float | None, leaving: LeavingStatus | None, finished: bool, kept: bool, nodes: int
) -> None:
    status = changed(TrainingRunStatus(), leaving=leaving)
    status = changed(status, recovery=changed(status.recovery, debug_until=until))
    status = with_condition(status, "Finished", finished, "Deterministic", "", now=1.0, generation=1)
    assert (is_kept(status), nodes_kept(status)) == (kept, nodes)
