"""Until when a run may have its nodes."""

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.run.time_left import time_is_over
from support.world import world_with_gang


@pytest.mark.parametrize(
    ("limit", "had_nodes", "held", "over"),
    [("1h", True, 0, 3600.0), ("1h", True, 600, 3000.0), ("1h", False, 0, None), (None, True, 0, None)],
)
def test_what_it_held_before_counts(limit: str | None, had_nodes: bool, held: int, over: float | None) -> None:
    w = world_with_gang(1, **({} if limit is None else {"timeLimit": limit}))
    status = changed(w.status("one"), last_admitted=0.0 if had_nodes else None, held_seconds=held)
    assert time_is_over(w.plan("one"), status) == over
