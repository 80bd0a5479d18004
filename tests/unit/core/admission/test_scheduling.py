"""Who of the pending runs starts now, and what is left for those who do not."""

from collections.abc import Sequence

import pytest

from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.kueue_admission import KueueAdmission
from lockstep.core.admission.pending_order import sort_pending_runs
from lockstep.core.admission.reservations import Reservations
from lockstep.core.admission.scheduling import schedule_pending_runs, start_gangs
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, held, run, world

HALF = run("half", 2, status=held("n0", "n1") | {"last_admitted": NOW}, timeLimit="1h")


@pytest.mark.parametrize(
    ("runs", "started", "left", "lacks_nodes"),
    [
        ([], [], [], False),
        ([run("a", 2, at=-2.0), run("b", 2, at=-1.0)], ["a", "b"], [], False),
        ([run("a", 2, at=-2.0), run("b", 2, at=-1.0), run("c")], ["a", "b"], ["c"], True),
        ([run("a", 5)], [], ["a"], True),  # a whole gang or nothing
        ([HALF, run("a", 4, at=-1.0), run("b", 1)], [], ["a", "b"], True),  # b may run for ever: it would delay a
        ([HALF, run("a", 4, at=-1.0), run("b", 1, timeLimit="30m")], ["b"], ["a"], True),  # backfill
    ],
)
def test_a_gang_starts_whole_and_delays_nobody_who_comes_before_it(
    runs: Sequence[RunView], started: list[str], left: list[str], lacks_nodes: bool
) -> None:
    cycle = CycleState(world(runs), Tunables(), NOW, CycleMemory())
    waiting = sort_pending_runs(cycle, KueueAdmission(cycle)).in_order
    schedule = schedule_pending_runs(waiting, Reservations(waiting, cycle), cycle)
    still_pending = start_gangs(schedule, cycle)
    assert [row.run.name for row in cycle.started] == started
    assert [row.run.name for row in still_pending.rows] == left
    assert still_pending.lacks_nodes is lacks_nodes
