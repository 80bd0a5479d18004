"""One directory for all attempts: the next one starts only when nobody else can write there any more."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.core.model.conditions import find
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.snapshot import Taint
from lockstep.core.model.worker_report import WorkerPhase
from lockstep.core.run.fencing import FENCE_MARGIN, hold_for_writers, keep_fence
from support.made_once import made_once
from support.values import not_none
from support.world import World, world_with_gang

ONE_DIRECTORY = {"shared": {"claimName": "lustre"}, "layout": "Shared"}


@made_once
def training(nodes: int = 3, *, layout: str = "Shared") -> World:
    """A gang that has saved step 100, and two nodes more than it needs."""
    w = world_with_gang(nodes, nodes + 2, checkpoint={**ONE_DIRECTORY, "layout": layout})
    w.train("one", 100)
    w.tell_of_save("one", 100)
    return w


def cut_off(w: World, name: str = "n1") -> float:
    """The node is unreachable, which the operator has found out; when that began."""
    began = w.now
    w.cut_off_node(name)
    w.node_not_ready(name)
    w.pass_time(30, step=3)
    return began


def held(w: World) -> str:
    condition = not_none(find(w.status("one"), "GangReady"))
    return condition.message


def test_a_gang_waits_until_the_fence_of_a_lost_writer_must_have_fallen() -> None:
    w = training()
    began = cut_off(w)
    assert w.status("one").attempt == 2
    assert w.status("one").nodes_ready == "3/3"
    assert "waits for the fence of" in held(w)
    assert "on n1" in held(w)
    fenced_at = not_none(w.status("one").recovery.fenced_at)
    grace = w.tunables.stop_grace  # of a worker that is heard again just before its fence falls
    assert fenced_at >= began + w.tunables.fence_seconds + grace + FENCE_MARGIN
    w.pass_time(fenced_at - w.now - 1, step=5)
    assert w.status("one").totals.attempts == 1
    w.pass_time(3)
    assert set(w.children("one").values()) >= {2}
    assert w.status("one").totals.attempts == 2
    assert w.status("one").recovery.fenced_at is None
    assert w.overlaps == []


def test_the_fence_outlives_the_operator() -> None:
    w = training()
    cut_off(w)
    fenced_at = w.status("one").recovery.fenced_at
    w.crash()
    w.pass_time(20, step=4)
    assert w.status("one").recovery.fenced_at == fenced_at
    assert w.status("one").totals.attempts == 1


def test_where_each_attempt_has_its_own_directory_nobody_waits() -> None:
    w = training(layout="PerAttempt")
    cut_off(w)
    assert w.status("one").totals.attempts == 2


def test_a_writer_whose_end_is_confirmed_is_not_waited_for() -> None:
    w = training()
    w.fail_pod("one", 1)
    w.pass_time(5)
    assert w.status("one").totals.attempts == 2
    w.exit_child("one", 2, 1)
    w.pass_time(5)
    assert w.status("one").totals.attempts == 3


def test_a_node_declared_out_of_service_or_deleted_ends_the_wait() -> None:
    for declare in (True, False):
        w = training()
        cut_off(w)
        assert w.status("one").totals.attempts == 1
        if declare:
            taint = Taint(names.TAINT_OUT_OF_SERVICE, "NoExecute")
            w.nodes["n1"] = replace(w.nodes["n1"], taints=(taint,))
        else:
            del w.nodes["n1"]
        w.pass_time(2)
        assert w.status("one").totals.attempts == 2


def test_a_gang_of_one_is_never_fenced_by_time() -> None:
    w = training(1)
    cut_off(w, "n0")
    w.pass_time(900, step=30)
    assert w.status("one").totals.attempts == 1
    assert w.status("one").recovery.fenced_at is None
    assert "no peer is known to have stopped it" in held(w)
    assert names.TAINT_OUT_OF_SERVICE in held(w)
    w.return_node("n0")  # its kubelet ends the pod, and says so
    w.pass_time(5)
    assert w.status("one").totals.attempts == 2


def test_a_gang_that_was_lost_whole_is_not_fenced_by_time_either() -> None:
    w = training(2)
    for name in ("n0", "n1"):
        w.cut_off_node(name)
        w.node_not_ready(name)
    w.pass_time(900, step=30)
    assert w.status("one").totals.attempts == 1


def test_a_worker_that_came_back_and_was_told_to_stop_is_not_waited_for() -> None:
    w = training()
    cut_off(w)
    w.silent_nodes.discard("n1")  # the network is back; the pod was to be deleted
    w.cut_off.clear()
    w.pass_time(3)
    assert w.status("one").totals.attempts == 2
    assert w.overlaps == []


def test_a_requeue_does_not_forget_the_lost_writer() -> None:
    w = training()
    w.cut_off_node("n1")
    w.node_not_ready("n1")
    view = w.runs["one"]
    assert view.spec is not None
    w.apply("one", changed(view.spec, suspend=True))
    w.pass_time(20, step=2)
    assert not w.status("one").assignment.nodes
    fenced_at = not_none(w.status("one").recovery.fenced_at)
    w.apply("one", view.spec)
    w.pass_time(10, step=2)
    assert w.status("one").totals.attempts == 1
    w.pass_time(fenced_at - w.now + 2, step=5)
    assert w.status("one").totals.attempts == 2


# --- what is known of whom, at the moment at which the time would begin to run

RUNNING, READY, EXITED = WorkerPhase.RUNNING, WorkerPhase.READY, WorkerPhase.EXITED


def losing(
    by_slot: Mapping[int, Mapping[str, Any]], *, members: str = "", ended: int = 0, **tunables: float
) -> PlanBuilder:
    """Attempt 2 gathers, slot 1 of attempt 1 was cut off, and the others wait for attempt 2 but for what is said."""
    w = training()
    cut_off(w)
    w.tunables = replace(w.tunables, **tunables)  # type: ignore[arg-type]
    status = w.status("one")
    start = not_none(status.start)
    if members:
        start = changed(start, members=(changed(start.members[0], slots=members),))
    recovery = changed(status.recovery, fenced_at=None)
    w._store(replace(w.runs["one"], status=changed(status, recovery=recovery, start=start)))
    snapshot = w.snapshot("one")
    gathered = snapshot.reports.items()
    reports = {slot: replace(report, phase=READY, ready_for=2) for slot, report in gathered if slot != 1}
    for slot, changes in by_slot.items():
        reports[slot] = replace(reports.get(slot, reports[0]), slot=slot, **changes)
    lost = next(pod for pod in snapshot.pods if (pod.slot, pod.incarnation) == (1, 1))
    snapshot = replace(snapshot, reports=reports, ended={lost.uid: ended})
    return PlanBuilder(RunContext(snapshot, w.tunables, w.now))


@pytest.mark.parametrize(
    ("peer", "has_stopped"),
    [
        ({"phase": READY, "ready_for": 2}, True),
        ({"phase": READY, "ready_for": 1, "attempt": 0}, False),  # START is written, and it may begin at any moment
        ({"phase": EXITED, "attempt": 1}, True),
        ({"phase": EXITED, "attempt": 0}, False),  # that was another attempt's process
        ({"phase": RUNNING, "attempt": 1}, False),
    ],
)
def test_the_time_runs_once_every_peer_is_known_to_have_stopped(peer: dict[str, Any], has_stopped: bool) -> None:
    builder = losing({2: peer})
    keep_fence(builder)
    assert (builder.status.recovery.fenced_at is not None) is has_stopped


@pytest.mark.parametrize(("ended", "is_waited_for"), [(0, True), (1, False)])
def test_a_lost_writer_is_believed_that_its_program_has_ended_though_its_successor_has_spoken(
    ended: int, is_waited_for: bool
) -> None:
    builder = losing({1: {"incarnation": 2}}, ended=ended)
    assert bool(hold_for_writers(builder)) is is_waited_for


def test_one_that_is_slow_to_stop_has_its_grace_before_its_fence_counts_as_fallen() -> None:
    builder = losing({}, stop_grace=600)
    keep_fence(builder)
    fenced_at = not_none(builder.status.recovery.fenced_at)
    assert fenced_at >= builder.now + 600 + FENCE_MARGIN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "its_own_word", "is_held"),
    [(RUNNING, True, True), (EXITED, True, False), (READY, True, False), (READY, False, True)],
)
def test_the_lost_worker_s_own_word_ends_the_wait_and_its_successor_s_does_not(
    phase: WorkerPhase, its_own_word: bool, is_held: bool
) -> None:
    lost = next(pod for pod in losing({}).snapshot.pods if pod.node == "n1")
    builder = losing({1: {"phase": phase, "pod_uid": lost.uid if its_own_word else "uid-next"}})
    assert bool(hold_for_writers(builder)) is is_held


def test_a_pod_that_never_left_the_barrier_is_no_writer() -> None:
    assert hold_for_writers(losing({}))
    assert not hold_for_writers(losing({}, members="0,2"))
