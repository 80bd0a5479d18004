"""Preemption from end to end: the reservation, the notice, the save, and who gets which nodes."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.decide import decide
from lockstep.core.model.conditions import is_true
from lockstep.core.model.plan import Plan
from lockstep.core.model.snapshot import PodView
from support.dying_world import DiedError, DyingWorld
from support.made_once import made_once
from support.values import not_none
from support.world import World, node, spec

LOW, HIGH = "low", "high"
CHECKPOINT = {"shared": {"claimName": "lustre"}, "gracePeriod": "60s"}
AT_ONCE = {"withinQueue": "LowerPriority", "minRuntime": "0s"}


@dataclass
class Mortal(DyingWorld):
    """Its operator dies instead of one write, counted over all of them; the next one goes on."""

    dies_at: int = 0
    writes: int = 0

    def _write_status(self, name: str, status: Any) -> None:
        self._live_on()
        super()._write_status(name, status)

    def _create(self, run: Any, new: Any) -> None:
        self._live_on()
        super()._create(run, new)

    def _delete(self, pod: PodView) -> None:
        self._live_on()
        super()._delete(pod)

    def _live_on(self) -> None:
        self.writes += 1
        if self.writes == self.dies_at:
            raise DiedError


def world(nodes: int = 2, **queue: Any) -> Mortal:
    """Programs that ask for saves, and a queue in which the higher class may send the lower away at once."""
    w = Mortal({f"n{i}": node(f"n{i}") for i in range(nodes)}, listens=True)
    w.classes = {LOW: 10, HIGH: 1000}
    w.queue(**{"preemption": AT_ONCE, **queue})
    return w


def asked(nodes: int = 2, of_class: str = LOW, **fields: Any) -> TrainingRunSpec:
    return spec(nodes, **{"priorityClassName": of_class, "checkpoint": CHECKPOINT, **fields})


@made_once
def training(name: str = "old", nodes: int = 2, **queue: Any) -> Mortal:
    """One run of the lower class has all nodes and trains."""
    w = world(nodes, **queue)
    w.roll_out(name, asked(nodes))
    w.train(name, 5)
    w.tell_of_save(name, 5)
    w.pass_time(40, step=20)
    return w


def nodes_of(w: World, name: str) -> set[str]:
    return {each for each in w.status(name).assignment.nodes if each}


def until_reserved(w: World, name: str = "urgent") -> None:
    """To the pass that writes the reservation, and not beyond."""
    w.reconcile(name)
    w.reconcile(name)
    w.admit()
    assert w.status(name).reservation is not None


def reserved() -> Mortal:
    """The old run trains, and its nodes are reserved for the urgent one."""
    w = training()
    w.apply("urgent", asked(2, HIGH))
    until_reserved(w)
    return w


def noticed() -> Mortal:
    """The old run has the notice, too."""
    w = reserved()
    w.admit()
    assert w.status("old").preemption is not None
    return w


def test_a_lower_class_saves_gives_its_nodes_to_a_higher_one_and_waits_at_the_head_of_its_class() -> None:
    w = training()
    w.roll_out("later", asked())
    w.apply("urgent", asked(2, HIGH))
    w.pass_time(20, step=2)
    assert nodes_of(w, "urgent") == {"n0", "n1"}
    assert w.status("urgent").start is not None
    old = w.status("old")
    assert (old.attempts[-1].cause, old.attempts[-1].message) == (
        "Preempted",
        "preempted for ns/urgent; it queues again",
    )
    assert (old.admission.requeued_for, old.admission.preemptions) == ("Preempted", 1)
    assert (old.preemption, old.stop, w.status("urgent").reservation) == (None, None, None)
    assert (old.queue.position, w.status("later").queue.position) == (1, 2)


def test_who_was_sent_away_resumes_from_the_save_that_was_made_for_it() -> None:
    w = training()
    w.apply("urgent", asked(2, HIGH))
    w.pass_time(20, step=2)
    save = not_none(w.status("old").checkpoint.save)
    assert (save.outcome, save.reason) == ("Saved", "Preempted")
    w.apply("urgent", asked(2, HIGH, cancel=True))
    w.pass_time(30, step=2)
    start = not_none(w.status("old").start)
    assert start.resume is not None
    assert start.resume.step == save.step
    assert w.status("old").admission.preemptions == 1


def test_nobody_is_told_before_the_reservation_is_in_status_nor_stopped_before_the_notice_is() -> None:
    w = reserved()
    reservation = not_none(w.status("urgent").reservation)
    assert (reservation.nodes, reservation.victims) == (("n0", "n1"), ("uid-old",))
    w.reconcile("old")
    assert (w.status("old").preemption, w.status("old").stop) == (None, None)
    w.admit()
    notice = not_none(w.status("old").preemption)
    assert (notice.by, notice.name, notice.saved_at_least) == ("uid-urgent", "ns/urgent", 5)
    assert notice.deadline == notice.notice_time + 60 + w.tunables.deadlines.stop
    assert w.status("old").stop is None
    assert w.status("urgent").queue.reason == "Preempting"
    assert w.status("urgent").queue.blocked_by == ("ns/old",)
    w.reconcile("old")
    stop = not_none(w.status("old").stop)
    assert stop.reason == "Preempted"


def test_nodes_that_are_kept_go_to_nobody_else() -> None:
    """Four nodes, of which the run in the way has two: the free ones are kept as well."""
    w = training(nodes=2)
    w.nodes |= {name: node(name) for name in ("n2", "n3")}
    w.apply("urgent", asked(4, HIGH))
    until_reserved(w)
    w.apply("small", asked(1))
    w.saves_succeed = False
    w.settle()
    assert nodes_of(w, "small") == set()
    w.saves_succeed = True
    w.pass_time(20, step=2)
    assert nodes_of(w, "urgent") == {"n0", "n1", "n2", "n3"}


def test_a_run_that_is_given_up_before_anybody_stops_is_made_no_room_for() -> None:
    for change in ({"cancel": True}, {"suspend": True}):
        w = noticed()
        w.apply("urgent", asked(2, HIGH, **change))
        w.admit()
        assert w.status("old").preemption is None
        w.pass_time(20, step=2)
        assert (w.status("old").state, w.status("old").attempt) == ("Running", 1)
        assert w.status("urgent").reservation is None


def test_a_run_that_is_deleted_is_made_no_room_for() -> None:
    w = noticed()
    del w.runs["urgent"]
    w.admit()
    assert (w.status("old").preemption, w.status("old").stop) == (None, None)


def test_a_stop_that_has_begun_goes_on_without_the_one_it_was_for_and_the_run_comes_back() -> None:
    w = noticed()
    w.reconcile("old")
    w.apply("urgent", asked(2, HIGH, cancel=True))
    w.pass_time(30, step=2)
    old = w.status("old")
    assert (old.state, old.attempt, old.admission.preemptions, old.preemption) == ("Running", 2, 1, None)


def test_nodes_that_come_free_elsewhere_spare_the_victims() -> None:
    w = reserved()
    w.nodes |= {name: node(name) for name in ("n2", "n3")}
    w.pass_time(20, step=2)
    assert nodes_of(w, "urgent") == {"n2", "n3"}
    assert w.status("urgent").reservation is None
    assert (w.status("old").attempt, w.status("old").preemption) == (1, None)


def test_a_victim_that_ends_by_itself_counts_as_gone() -> None:
    w = reserved()
    for rank in range(2):
        w.exit_child("old", rank, 0)
    w.work()
    w.pass_time(10, step=1)
    assert is_true(w.status("old"), "Succeeded")
    assert w.status("old").preemption is None
    assert nodes_of(w, "urgent") == {"n0", "n1"}


def test_a_run_that_ended_well_as_it_was_told_has_ended_well() -> None:
    w = noticed()
    for rank in range(2):
        w.exit_child("old", rank, 0)
    w.work()
    w.pass_time(10, step=1)
    assert is_true(w.status("old"), "Succeeded")


def test_the_notice_is_gone_with_the_nodes() -> None:
    w = noticed()
    while nodes_of(w, "old"):
        assert w.status("old").preemption is not None
        w.reconcile("old")
        w.kubelets()
        w.work()
        w.now += 1
    assert w.status("old").preemption is None


def test_a_run_without_workers_makes_room_too() -> None:
    w = world()
    w.apply("old", asked(2, worker="Disabled", checkpoint=None))
    w.pass_time(20, step=5)
    w.apply("urgent", asked(2, HIGH))
    w.pass_time(40, step=4)
    assert nodes_of(w, "urgent") == {"n0", "n1"}
    assert w.status("old").admission.requeued_for == "Preempted"


def test_a_gang_that_lost_a_node_may_take_one_that_is_kept_and_others_are_then_looked_for() -> None:
    w = training(nodes=2)
    w.nodes |= {name: node(name) for name in ("n2", "n3")}
    w.roll_out("other", asked(1, HIGH))
    w.apply("urgent", asked(3, HIGH))
    until_reserved(w)
    assert nodes_of(w, "other") == {"n2"}
    del w.nodes["n2"]
    w.reconcile("other")
    w.admit()
    assert nodes_of(w, "other") == {"n3"}
    w.saves_succeed = False
    w.admit()
    assert w.status("urgent").reservation is None
    w.nodes["n4"] = node("n4")
    w.saves_succeed = True
    w.pass_time(30, step=2)
    assert nodes_of(w, "urgent") == {"n0", "n1", "n4"}


def test_nodes_that_do_not_come_free_in_time_are_given_up_for_others() -> None:
    w = reserved()
    reservation = not_none(w.status("urgent").reservation)
    usual = w.reconcile  # it is told, and nothing is decided for it, nor is it told again
    w.runs["old"] = replace(w.runs["old"], unread=True)
    w.reconcile = lambda name, **how: Plan() if name == "old" else usual(name, **how)  # type: ignore[method-assign]
    w.pass_time(reservation.deadline - w.now + 2, step=60)
    assert w.status("urgent").reservation is None
    assert w.status("old").preemption is None
    assert w.status("urgent").queue.reason == "Resources"
    w.reconcile = usual  # type: ignore[method-assign]
    w.runs["old"] = replace(w.runs["old"], unread=False)
    w.pass_time(20, step=2)
    assert nodes_of(w, "urgent") == {"n0", "n1"}


@pytest.mark.parametrize("away", [30.0, 3600.0])
def test_an_operator_that_comes_back_goes_on_where_its_predecessor_left_off(away: float) -> None:
    w = noticed()
    w.now += away
    w.crash()
    w.pass_time(60, step=5)
    assert nodes_of(w, "urgent") == {"n0", "n1"}
    assert w.status("old").admission.preemptions == 1


@pytest.mark.slow
def test_wherever_the_operator_dies_the_story_ends_the_same() -> None:
    def story(dies_at: int) -> Mortal:
        w = training(nodes=1)
        w.writes, w.dies_at = 0, dies_at
        w.apply("urgent", asked(1, HIGH))
        w.pass_time(24, step=2)
        return w

    whole = story(0)
    assert whole.writes > 10
    for dies_at in range(1, whole.writes + 1):
        w = story(dies_at)
        assert nodes_of(w, "urgent") == {"n0"}, dies_at
        assert w.status("urgent").start is not None, dies_at
        old = w.status("old")
        assert (old.state, old.admission.preemptions, old.preemption) == ("Pending", 1, None), dies_at
        assert old.checkpoint.save is not None
        assert old.checkpoint.save.outcome == "Saved", dies_at


@pytest.mark.parametrize("kept_from", [(), ("uid-another",), None])
def test_who_is_told_to_go_for_a_run_for_which_its_nodes_are_not_kept_stays_until_a_pass_has_looked(
    kept_from: tuple[str, ...] | None,
) -> None:
    """Another reservation than that of the notice, or none."""
    w = noticed()
    told = w.snapshot("old")
    assert told.preemptor is not None
    kept = not_none(told.preemptor.status.reservation)
    left = changed(kept, victims=kept_from) if kept_from is not None else None
    status = changed(told.preemptor.status, reservation=left)
    late = replace(told, preemptor=replace(told.preemptor, status=status))
    plan = decide(late, w.tunables, w.now)
    assert plan.status is None or plan.status.stop is None
    assert plan.admission_changed
    assert plan.wake_at is not None
    assert plan.wake_at <= w.now + 2
    begun = not_none(decide(told, w.tunables, w.now).status)
    assert begun.stop is not None
