"""Who of the pending runs starts now, and what is left for those who do not."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AdmissionStatus, LeavingStatus, StopStatus
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine_adapter import ENDING
from lockstep.core.admission.kueue_admission import KueueAdmission
from lockstep.core.admission.pending_order import sort_pending_runs
from lockstep.core.admission.reservations import Reservations
from lockstep.core.admission.scheduling import schedule_pending_runs, start_gangs
from lockstep.core.model.snapshot import Leadership, PodView, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import ACCEPTED, FINISHED, NOW, held, pod, run, world

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


LEFT = run("left", 2)
LONG_AGO = NOW - 3600
OVER = {**held("n0", "n1"), "conditions": (ACCEPTED, FINISHED)}
STUCK = {"deleting": True, "killed_at": LONG_AGO}
ON_TWO = held("n0", "n1") | {"last_admitted": NOW - 8000}
STOPS = StopStatus(reason="Cancelled", time=LONG_AGO - 30, deadline=LONG_AGO)


@pytest.mark.parametrize(
    ("runs", "pods"),
    [
        ([], [pod(LEFT, slot, f"n{slot}", **STUCK) for slot in range(2)]),
        ([run("left", 2, status=ON_TWO | {"stop": STOPS})], []),
        ([run("left", 2, status=ON_TWO | {"admission": AdmissionStatus(time_limit=60)})], []),
        (
            [run("left", 2, status=OVER | {"leaving": LeavingStatus(nodes=2, until=LONG_AGO)})],
            [pod(LEFT, slot, f"n{slot}") for slot in range(2)],
        ),
    ],
    ids=["pods being deleted", "a stop", "a time limit", "pods of one that is over"],
)
def test_nodes_that_are_long_overdue_are_promised_to_nobody(runs: list[RunView], pods: list[PodView]) -> None:
    """The first waits for the third node and the fourth: whoever would take that one for long delays it."""
    holder = run("holder", 1, status=held("n2") | {"last_admitted": NOW, "admission": AdmissionStatus(time_limit=3600)})
    waiting = [run("first", 2, at=-2.0), run("long", 1, at=-1.0, timeLimit="2h"), run("short", 1, timeLimit="30m")]
    cycle = CycleState(world([holder, *runs, *waiting], pods=pods), Tunables(), NOW, CycleMemory())
    rows = sort_pending_runs(cycle, KueueAdmission(cycle)).in_order
    schedule = schedule_pending_runs(rows, Reservations(rows, cycle), cycle)
    start_gangs(schedule, cycle)
    assert [row.run.name for row in cycle.started] == ["short"]
    promised = schedule.result.reserved["uid-first"]
    assert (cycle.index.names(promised.nodes), promised.start) == (("n2", "n3"), NOW + 3600)


@pytest.mark.parametrize(("since", "starts"), [(5, "long"), (ENDING + 1, "short")])
def test_where_nobody_led_for_a_while_those_who_are_overdue_have_a_minute_to_be_stopped(
    since: float, starts: str
) -> None:
    overdue = run("left", 2, status=ON_TWO | {"admission": AdmissionStatus(time_limit=60)})
    holder = run("holder", 1, status=held("n2") | {"last_admitted": NOW, "admission": AdmissionStatus(time_limit=3600)})
    waiting = [run("first", 2, at=-2.0), run("long", 1, at=-1.0, timeLimit="2h"), run("short", 1, timeLimit="30m")]
    snapshot = replace(world([holder, overdue, *waiting]), leadership=Leadership(NOW - since))
    cycle = CycleState(snapshot, Tunables(), NOW, CycleMemory())
    rows = sort_pending_runs(cycle, KueueAdmission(cycle)).in_order
    schedule = schedule_pending_runs(rows, Reservations(rows, cycle), cycle)
    start_gangs(schedule, cycle)
    assert [row.run.name for row in cycle.started] == [starts]


@pytest.mark.parametrize(
    ("runs", "pods"),
    [
        ([], [pod(LEFT, 0, "n0", deleting=True, killed_at=NOW + 5 - ENDING)]),
        ([run("left", 2, status=ON_TWO | {"stop": changed(STOPS, deadline=NOW + 5 - ENDING)})], []),
    ],
    ids=["pods being deleted", "a stop"],
)
def test_the_next_cycle_comes_when_somebody_is_long_overdue(runs: list[RunView], pods: list[PodView]) -> None:
    snapshot = world([*runs, run("first", 4)], pods=pods)
    assert admit(snapshot, Tunables(), NOW).wake_at == NOW + 5
    later = admit(snapshot, Tunables(), NOW + 5).wake_at
    assert later is None or later >= NOW + 30
