"""Status behind what lives: rebuilt where the pods and workers say unambiguously what runs, held where they do not."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from lockstep.api.base.changes import changed
from lockstep.api.run_status import ResolvedStatus
from lockstep.core.checkpoints.origin import has_begun
from lockstep.core.model.conditions import find
from lockstep.core.model.ranges import format_order, format_ranges
from lockstep.core.model.reasons import ConditionType, EventReason
from lockstep.core.model.start_record import CollectiveStart, Members
from lockstep.core.model.worker_report import WorkerPhase
from lockstep.core.run.regression import hold_or_rebuild
from support.examples import examples
from support.world import World, world_with_gang


def edited(**changes: object) -> Callable[[World], None]:
    return lambda w: w.amend("one", **changes)


def wiped(w: World) -> None:
    w.wipe_status("one")


def incarnations_set_back(w: World) -> None:
    w.amend("one", assignment=changed(w.status("one").assignment, incarnations=(0, 0)))


def nodes_swapped(w: World) -> None:
    w.amend("one", assignment=changed(w.status("one").assignment, nodes=("n1", "n0")))


def node_named_twice(w: World) -> None:
    w.amend("one", assignment=changed(w.status("one").assignment, nodes=("n0", "n0")))


@pytest.mark.parametrize(
    "damage", [wiped, incarnations_set_back, nodes_swapped, node_named_twice, edited(attempt=0), edited(start=None)]
)
def test_what_lives_is_read_off_the_pods_and_their_workers(damage: Callable[[World], None]) -> None:
    w = world_with_gang(2)
    w.train("one", 5)
    w.work_reports_only()
    before = w.status("one")
    damage(w)
    plan = w.plan("one")
    assert not hold_or_rebuild(plan)
    after = plan.status
    assert after.assignment.nodes == before.assignment.nodes
    assert after.assignment.incarnations == before.assignment.incarnations
    assert (after.attempt, after.start) == (before.attempt, before.start)
    assert [event.reason for event in plan.events] == [EventReason.STATUS_REBUILT]
    assert not plan.deletes


@pytest.mark.parametrize("damage", [wiped, edited(start=None)])
def test_an_attempt_that_is_read_off_its_workers_says_of_how_many_nodes_it_was(damage: Callable[[World], None]) -> None:
    w = world_with_gang(3)
    w.train("one", 5)
    w.work_reports_only()
    damage(w)
    plan = w.plan("one")
    assert not hold_or_rebuild(plan)
    assert plan.attempt(1).nodes == 3


def test_a_status_that_fits_is_left_alone() -> None:
    plan = world_with_gang(2).plan("one")
    assert not hold_or_rebuild(plan)
    assert plan.build().status is None
    assert not plan.events


def a_worker_is_not_heard(w: World) -> None:
    del w.reports[w.runs["one"].uid][1]


def no_spec(w: World) -> None:
    w.runs["one"] = replace(w.runs["one"], spec=None)


def a_pod_is_gone(w: World) -> None:
    del w.pods[next(key for key, pod in w.pods.items() if pod.slot == 1)]


def a_pod_too_many(w: World) -> None:
    key, pod = next(iter(w.pods.items()))
    w.pods[f"{key}-x"] = replace(pod, name=f"{key}-x", uid="x", slot=2, node="n9")


def attempts_differ(w: World) -> None:
    key, pod = next(iter(w.pods.items()))
    w.pods[key] = replace(pod, attempt=1)


def not_annotated(w: World) -> None:
    for key, pod in w.pods.items():
        w.pods[key] = replace(pod, resolved="{")


def starts_differ(w: World) -> None:
    reports = w.reports[w.runs["one"].uid]
    start = reports[1].start
    assert start is not None
    reports[1] = replace(reports[1], start=structs.replace(start, master_port=1))


@pytest.mark.parametrize(
    ("doubt", "words"),
    [
        (a_worker_is_not_heard, "waiting for the workers of slots [1]"),
        (no_spec, "the spec cannot be read"),
        (a_pod_is_gone, "slots [1] have no pod"),
        (a_pod_too_many, "pods for 3 slots, but the spec asks for 2"),
        (attempts_differ, "pods of attempts [0, 1]"),
        (not_annotated, "does not carry the annotation"),
        (starts_differ, "workers disagree on how attempt 1 was started"),
    ],
)
def test_what_is_ambiguous_waits_for_a_person_and_nothing_is_deleted(
    doubt: Callable[[World], None], words: str
) -> None:
    w = world_with_gang(2)
    wiped(w)
    doubt(w)
    plan = w.plan("one")
    assert hold_or_rebuild(plan)
    held = find(plan.status, ConditionType.STATE_REGRESSION)
    assert held is not None
    assert words in held.message
    assert [event.reason for event in plan.events] == [EventReason.STATE_REGRESSION]
    assert not plan.deletes
    assert plan.build().wake_at == plan.now + 5.0


LIES = {
    "a slot twice": {"order": "0,0"},
    "a slot that is not there": {"order": "0,7"},
    "fewer slots than members": {"order": "0"},
    "members that overlap": {"members": (Members("0-1", 1), Members("1", 2)), "order": "1,0,1"},
    "no members": {"members": (), "order": "1,1"},
    "a newer attempt, and nothing else": {},
    "an attempt beyond all others": {"attempt": 2**31 - 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("told_by", [(0,), (0, 1)], ids=str)
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_looks_come_to_rest_whatever_start_a_worker_claims(lie: dict[str, Any], told_by: tuple[int, ...]) -> None:
    w = world_with_gang(2)
    w.train("one", 5)
    w.work_reports_only()
    reports = w.reports[w.runs["one"].uid]
    for slot in told_by:
        start = reports[slot].start
        assert start is not None
        reports[slot] = replace(reports[slot], start=structs.replace(start, **{"attempt": 99, **lie}))
    before = w.version
    events = [event for _ in range(300) for event in w.reconcile("one").events]
    assert w.version - before <= 3
    assert len(events) <= 3


claims = st.builds(
    CollectiveStart,
    attempt=st.sampled_from([0, 1, 2, 99]),
    assignment_hash=st.just("abc"),
    master_address=st.just("10.0.0.1"),
    master_port=st.integers(0, 2),
    members=st.lists(
        st.builds(Members, st.frozensets(st.integers(0, 4)).map(format_ranges), st.integers(0, 3)), max_size=3
    ).map(tuple),
    order=st.lists(st.integers(0, 4), max_size=4).map(format_order),
)
lies = st.fixed_dictionaries(
    {},
    optional={
        "start": claims,
        "attempt": st.integers(0, 3),
        "ready_for": st.integers(0, 3),
        "phase": st.sampled_from(WorkerPhase),
    },
)


@pytest.mark.slow
@given(st.tuples(lies, lies), st.booleans())
@settings(max_examples=examples(60))
def test_looks_come_to_rest_whatever_workers_say(told: tuple[dict[str, Any], ...], lost: bool) -> None:
    w = world_with_gang(2)
    reports = w.reports[w.runs["one"].uid]
    for slot, lie in enumerate(told):
        reports[slot] = replace(reports[slot], **lie)
    if lost:
        wiped(w)
    written = []
    for _ in range(40):
        before = w.status("one")
        w.reconcile("one")
        written.append(w.status("one") != before)
    assert not any(written[20:]), written


def back_at_the_barrier(w: World) -> None:
    """The gang was stopped and made anew: nobody has heard of a START."""
    w.amend("one", start=None, attempt=2)
    reports = w.reports[w.runs["one"].uid]
    for slot, report in reports.items():
        reports[slot] = replace(report, phase=WorkerPhase.READY, attempt=0, ready_for=2, start=None)


def at_the_first_barrier(w: World) -> None:
    back_at_the_barrier(w)
    reports = w.reports[w.runs["one"].uid]
    for slot, report in reports.items():
        reports[slot] = replace(report, ready_for=1)


def pods_have_failed(w: World) -> None:
    for rank in (0, 1):
        w.fail_pod("one", rank)
    w.reports.clear()


@pytest.mark.parametrize(
    ("happened", "begun"),
    [
        (lambda _: None, True),
        (a_worker_is_not_heard, True),
        (back_at_the_barrier, True),
        (pods_have_failed, True),
        (at_the_first_barrier, False),
    ],
)
def test_a_run_whose_status_is_lost_has_begun_if_pods_or_workers_tell_of_an_attempt(
    happened: Callable[[World], None], begun: bool
) -> None:
    w = world_with_gang(2)
    w.work_reports_only()
    happened(w)
    wiped(w)
    plan = w.plan("one")
    hold_or_rebuild(plan)
    assert has_begun(plan.status) is begun


def test_what_would_be_behind_again_once_rebuilt_is_held_instead() -> None:
    w = world_with_gang(2)
    reports = w.reports[w.runs["one"].uid]
    start = reports[0].start
    assert start is not None
    impossible = structs.replace(start, attempt=99, order="0,0")
    for slot in (0, 1):  # one alone is not believed
        reports[slot] = replace(reports[slot], start=impossible)
    plan = w.plan("one")
    assert hold_or_rebuild(plan)
    held = find(plan.status, ConditionType.STATE_REGRESSION)
    assert held is not None
    assert "does not fit together" in held.message
    assert plan.status.assignment == w.status("one").assignment
    assert not plan.deletes


def test_a_pod_of_a_stranger_says_nothing() -> None:
    w = world_with_gang(2)
    wiped(w)
    for key, pod in w.pods.items():
        w.pods[key] = replace(pod, owner_uid="somebody else")
    assert not hold_or_rebuild(w.plan("one"))


@pytest.mark.parametrize(("readable", "held"), [(True, False), (False, True)])
def test_what_was_resolved_is_read_off_a_pod_again(readable: bool, held: bool) -> None:
    w = world_with_gang(2)
    before = w.status("one").resolved
    w.amend("one", resolved=ResolvedStatus())
    if not readable:
        not_annotated(w)
    plan = w.plan("one")
    assert hold_or_rebuild(plan) is held
    restored = plan.status.resolved
    assert ((restored.nodes, restored.cpu) == (before.nodes, before.cpu)) is readable


def test_amounts_on_a_pod_that_are_none_are_not_taken_for_what_was_resolved() -> None:
    w = world_with_gang(2)
    resolved = changed(w.status("one").resolved, resources={"a": "two"})
    w.amend("one", resolved=ResolvedStatus())
    for key, pod in w.pods.items():
        w.pods[key] = replace(pod, resolved=json.dumps(resolved.dump()))
    plan = w.plan("one")
    assert hold_or_rebuild(plan)
    assert not plan.status.resolved.resources
