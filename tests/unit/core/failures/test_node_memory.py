"""What nodes remember of failures, across runs."""

from dataclasses import replace

import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import AttemptStatus, FirstFailure
from lockstep.api.run_status import Condition, StopStatus
from lockstep.core.failures.node_memory import (
    FORGIVEN_AGAIN,
    forgiven_at,
    marks_now,
    marks_with,
    marks_without,
    suspicion,
    to_forgive,
    to_remember,
)
from lockstep.core.model.node_failures import read_failures
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.snapshot import NodeFailure, NodeView
from support.world import World, node, spec

DAY = 86_400.0
NOW = 1_000_000.0


def failure(hours_ago: float, run: str = "ns/a") -> NodeFailure:
    return NodeFailure(run, NOW - 3600.0 * hours_ago, "Application")


def failed(*hours_ago: float, **changes: object) -> NodeView:
    """A node on which a rank failed first so long ago, each of another run."""
    told = tuple(failure(hours, f"ns/{number}") for number, hours in enumerate(hours_ago))
    return node("n1", failures=told, **changes)


@pytest.mark.parametrize(
    ("hours_ago", "is_suspect"),
    [((), False), ((1.0,), False), ((5.0, 1.0), True), ((30.0, 1.0), False), ((30.0, 5.0, 1.0), True)],
)
def test_a_node_is_suspect_when_ranks_of_two_runs_failed_first_on_it_within_a_day(
    hours_ago: tuple[float, ...], is_suspect: bool
) -> None:
    assert bool(suspicion(failed(*hours_ago, suspect="yes"), NOW)) is is_suspect


def test_one_run_makes_no_node_suspect_however_often_it_fails_there() -> None:
    bad = node("n1", failures=tuple(failure(0.1 * each) for each in range(8, 0, -1)), suspect="yes")
    assert suspicion(bad, NOW) == ""
    assert marks_with(bad, failure(0.01), [bad], True, NOW).annotations[names.ANNOTATION_SUSPECT] is None
    also = marks_with(bad, failure(0.01, "ns/other"), [bad], True, NOW)
    assert "first failures of 2 runs" in (also.annotations[names.ANNOTATION_SUSPECT] or "")


def test_one_run_leaves_room_for_the_failures_of_others() -> None:
    bad = node("n1", failures=(failure(9.0, "ns/other"), *(failure(0.1 * each) for each in range(7, 0, -1))))
    written = marks_with(bad, failure(0.01), [bad], True, NOW).annotations[names.ANNOTATION_FIRST_FAILURES]
    kept = read_failures(written or "")
    assert [(each.run, each.time) for each in kept] == [
        ("ns/other", failure(9.0).time),
        ("ns/a", float(int(failure(0.1).time))),
        ("ns/a", float(int(failure(0.01).time))),
    ]


def test_nodes_that_were_not_marked_for_the_bound_on_marks_are_as_good_as_any() -> None:
    assert suspicion(failed(5.0, 1.0), NOW) == ""


def test_nodes_that_failed_before_are_taken_last_but_no_run_waits_for_others() -> None:
    w = World({"n0": node("n0"), "n1": failed(2.0, 1.0, suspect="yes"), "n2": node("n2")}, now=NOW)
    w.roll_out("two", spec(2))
    assert set(w.status("two").assignment.nodes) == {"n0", "n2"}
    w.roll_out("one", spec(1))
    assert w.status("one").assignment.nodes == ("n1",)


def builder_with(first_failures: tuple[FirstFailure, ...], **changes: object) -> PlanBuilder:
    w = World({"n1": replace(node("n1", failures=(failure(2.0),)), **changes)}, now=NOW)
    w.apply("a", spec(1))
    view = w.runs["a"]
    recovery = changed(view.status.recovery, first_failures=first_failures)
    w._store(replace(view, status=changed(view.status, recovery=recovery)))
    return PlanBuilder(RunContext(w.snapshot("a"), w.tunables, NOW))


def test_a_first_failure_is_carried_to_its_node_until_the_node_has_it() -> None:
    told = FirstFailure(node="n1", time=failure(2.0).time, cause="Application")
    new = FirstFailure(node="n1", time=failure(1.0).time, cause="Hang")
    gone = FirstFailure(node="n9", time=failure(1.0).time, cause="Hang")
    old = FirstFailure(node="n1", time=failure(30.0).time, cause="Hang")
    wanted = to_remember(builder_with((told, new, gone, old)))
    assert [(each.node, each.failure) for each in wanted] == [("n1", NodeFailure("ns/a", new.time, "Hang"))]


@pytest.mark.parametrize(("later", "is_remembered"), [(3600.0, False), (0.0, False), (-1.0, True)])
def test_what_a_person_forgave_is_not_remembered_again(later: float, is_remembered: bool) -> None:
    new = FirstFailure(node="n1", time=failure(1.0).time, cause="Hang")
    assert bool(to_remember(builder_with((new,), failures_cleared_at=new.time + later))) is is_remembered


def test_a_failure_that_newer_ones_leave_no_room_for_is_not_carried_again_and_again() -> None:
    old = FirstFailure(node="n1", time=failure(3.0).time, cause="Hang")
    others = tuple(failure(0.1 * each, f"ns/{each}") for each in range(9, 0, -1))
    assert to_remember(builder_with((old,), failures=others[:7]))
    assert to_remember(builder_with((old,), failures=others[:8])) == []
    own = (failure(2.0), failure(1.0))
    assert to_remember(builder_with((old,), failures=own[:1]))
    assert to_remember(builder_with((old,), failures=own)) == []


def test_the_failure_of_a_second_run_within_a_day_marks_the_node_and_the_first_does_not() -> None:
    first = marks_with(failed(), failure(1.0), [failed()], True, NOW)
    assert first.annotations[names.ANNOTATION_SUSPECT] is None
    assert not first.tainted
    second = marks_with(failed(2.0), failure(1.0), [failed()], True, NOW)
    assert "first failures of 2 runs within a day" in (second.annotations[names.ANNOTATION_SUSPECT] or "")
    assert second.tainted
    assert not marks_with(failed(2.0), failure(1.0), [failed()], False, NOW).tainted


def test_a_failure_that_the_node_has_already_is_not_counted_twice() -> None:
    again = marks_with(failed(1.0), failure(1.0, "ns/0"), [failed()], True, NOW)
    assert again.annotations[names.ANNOTATION_SUSPECT] is None
    assert read_failures(again.annotations[names.ANNOTATION_FIRST_FAILURES] or "") == (failure(1.0, "ns/0"),)


def test_what_is_written_is_what_is_read() -> None:
    marks = marks_with(failed(2.0), failure(1.0), [], False, NOW)
    assert read_failures(marks.annotations[names.ANNOTATION_FIRST_FAILURES] or "") == (
        failure(2.0, "ns/0"),
        failure(1.0),
    )


def test_no_more_nodes_become_suspect_within_an_hour_than_the_breaker_lets() -> None:
    marked = [failed(0.5, 0.4, suspect="yes") for _ in range(2)]
    assert marks_with(failed(2.0), failure(0.1), marked, True, NOW).annotations[names.ANNOTATION_SUSPECT] is None
    earlier = [failed(9.0, 8.0, suspect="yes") for _ in range(2)]
    assert marks_with(failed(2.0), failure(0.1), earlier, True, NOW).annotations[names.ANNOTATION_SUSPECT]


def test_a_node_that_is_suspect_already_stays_so_however_many_others_are() -> None:
    marked = [failed(0.5, 0.4, suspect="yes") for _ in range(2)]
    marks = marks_with(failed(2.0, 1.0, suspect="yes"), failure(0.1), marked, True, NOW)
    assert marks.annotations[names.ANNOTATION_SUSPECT]
    assert marks.tainted


def test_a_mark_is_taken_off_when_the_day_is_over() -> None:
    suspect = failed(20.0, 10.0, suspect="yes")
    assert marks_now(suspect, NOW) is None
    moment = forgiven_at([suspect, failed()])
    assert moment == NOW - 20 * 3600.0 + DAY
    marks = marks_now(suspect, moment)
    assert marks is not None
    assert marks.annotations[names.ANNOTATION_SUSPECT] is None
    assert not marks.tainted
    assert marks_now(failed(20.0, 10.0), NOW + DAY) is None


def judged(ending: str, reason: str, cause: str = "Application", ended: float = 60.0, **changes: object) -> PlanBuilder:
    """The run ns/a, which stops or has ended for ``reason``, having failed by ``cause`` the last time."""
    plan = builder_with((FirstFailure(node="n1", time=failure(1.0).time, cause="Application"),), **changes)
    attempts = (AttemptStatus(number=1, ended_at=NOW - ended, cause=cause),)
    status = changed(plan.status, attempts=attempts)
    if ending == "stops":
        status = changed(status, stop=StopStatus(reason=reason, time=NOW - ended, deadline=NOW))
    else:
        over = Condition(type="Finished", status="True", reason=reason, last_transition_time=NOW - ended)
        status = changed(status, conditions=(over,))
    view = replace(plan.run, status=status, created_at=NOW - 4 * 3600)
    return PlanBuilder(RunContext(replace(plan.snapshot, run=view), plan.tunables, NOW))


@pytest.mark.parametrize(
    ("plan", "forgiven"),
    [
        (judged("stops", "Deterministic"), True),
        (judged("has ended", "Deterministic"), True),
        (judged("has ended", "Deterministic", ended=DAY), False),
        (judged("has ended", "NoProgress"), False),  # that may be the nodes
        (judged("stops", "Cancelled"), False),
        (judged("has ended", "Deterministic", failures=(failure(5.0),)), False),  # of an earlier run of that name
        (judged("has ended", "Deterministic", failures=(failure(2.0, "ns/b"),)), False),
        (judged("has ended", "Deterministic", failures=(replace(failure(2.0), cause="Hardware"),)), False),
        (judged("has ended", "Deterministic", failures=(replace(failure(2.0), cause="NodeLost"),)), False),
        (judged("has ended", "Deterministic", "Hardware", failures=(replace(failure(2.0), cause="Hardware"),)), False),
        (judged("has ended", "Deterministic", failures=(replace(failure(2.0), cause="Hang"),)), False),
        (judged("has ended", "Deterministic", "Hang", failures=(replace(failure(2.0), cause="Hang"),)), True),
    ],
)
def test_once_the_program_is_to_blame_its_failures_are_forgiven_on_every_node(
    plan: PlanBuilder, forgiven: bool
) -> None:
    found = to_forgive(plan)
    assert [(each.node, each.failures) for each in found] == (
        [("n1", plan.snapshot.nodes["n1"].failures)] if forgiven else []
    )
    assert (plan.build().wake_at == NOW + FORGIVEN_AGAIN) is forgiven


def test_what_is_forgiven_is_not_remembered_again() -> None:
    assert to_remember(judged("stops", "NoProgress", failures=()))
    assert not to_remember(judged("stops", "Deterministic", failures=()))


def test_a_node_whose_failures_are_forgiven_loses_mark_and_taint_with_them() -> None:
    mine, theirs = failure(2.0), failure(1.0, "ns/b")
    bad = node("n1", failures=(mine, theirs), suspect="yes")
    left = marks_without(bad, (mine,), [bad], True, NOW)
    assert left is not None
    assert not left.tainted
    assert left.annotations[names.ANNOTATION_SUSPECT] is None
    assert read_failures(left.annotations[names.ANNOTATION_FIRST_FAILURES] or "") == (theirs,)
    assert marks_without(bad, (failure(3.0),), [bad], True, NOW) is None
    third = replace(bad, failures=(mine, theirs, failure(0.5, "ns/c")))
    still = marks_without(third, (mine,), [third], True, NOW)
    assert still is not None
    assert still.tainted
