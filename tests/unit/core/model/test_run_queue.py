"""Which queue a run is in: that of its nodes, whatever its spec says by now."""

from collections.abc import Callable

import pytest

from lockstep.api.queue import TrainingQueueSpec
from lockstep.api.run_status import AssignmentStatus, ResolvedStatus
from lockstep.core.admission.cache.excluded_runs import set_aside
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine_adapter import running_of, unsettled
from lockstep.core.admission.queueing.order import share_key
from lockstep.core.admission.victims import victim_of
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.run.history_records import records_of_deleted
from support.admission import FINISHED, NOW, held, run, world
from support.values import not_none

GIVEN = {"resolved": ResolvedStatus(queue="mine")}


@pytest.mark.parametrize(
    ("status", "queue"),
    [
        ({}, "theirs"),
        (GIVEN, "theirs"),
        (held("n0") | GIVEN, "mine"),
        (held("n0") | GIVEN | {"conditions": (FINISHED,)}, "mine"),
        ({"assignment": AssignmentStatus(config_map="spilled")} | GIVEN, "mine"),
        (held("n0"), "theirs"),
    ],
    ids=["pending", "gave its nodes back", "holds nodes", "ended", "nodes in a ConfigMap", "of an older operator"],
)
def test_a_run_is_in_the_queue_that_gave_it_its_nodes(status: dict[str, object], queue: str) -> None:
    assert queue_of(run("one", status=status, queue="theirs")) == queue


def cycle(view: RunView) -> CycleState:
    return CycleState(world([view], in_flight={view.uid: frozenset({"n0"})}), Tunables(), NOW, CycleMemory())


BOOKS: dict[str, Callable[[RunView], object]] = {
    "quota": lambda view: running_of(view, cycle(view), NOW).queue,
    "quota, its admission being written": lambda view: next(iter(unsettled(cycle(view), NOW))).queue,
    "limits of the queue and its status": lambda view: RunRow(view).queue,
    "quota of one that is left out": lambda view: RunRow(set_aside(view)).queue,
    "fair share and GPU-hours": lambda view: share_key(view)[0],
    "preemption": lambda view: (
        not_none(victim_of(view, running_of(view, cycle(view), NOW), TrainingQueueSpec(), {}, NOW)).queue
    ),
    "history": lambda view: next(iter(records_of_deleted(view, Tunables(), NOW)))["queue"],
}


@pytest.mark.parametrize("books", BOOKS.values(), ids=BOOKS)
def test_whatever_its_spec_says_a_run_is_booked_in_the_queue_that_gave_it_its_nodes(
    books: Callable[[RunView], object],
) -> None:
    assert books(run("one", status=held("n0") | GIVEN, queue="theirs")) == "mine"
