"""A run in one admission cycle: what it takes part in, and the write that a decision about it needs."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.preemption_status import PreemptionStatus
from lockstep.api.run_status import AssignmentStatus, Condition, StopStatus, TrialStatus
from lockstep.core.admission.cache.entry import Entry, holds_nodes, is_asked, is_pending, lacks_nodes
from lockstep.core.model.admission_record import record_wait
from lockstep.core.model.assignment import INLINE_LIMIT, assigned, vacated
from lockstep.core.model.plan import Event
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.snapshot import RunView
from support.admission import ACCEPTED, FINISHED, NOW, held, run

LOST_NAME = changed(ACCEPTED, status="False", reason="QueueNotFound")
REFUSED = changed(ACCEPTED, status="False")
OF_THE_SPEC_BEFORE = changed(ACCEPTED, observed_generation=0)
REGRESSED = Condition(type="StateRegression", status="True", reason="x", last_transition_time=0)
STOPPING = StopStatus(reason="Suspended", time=NOW, deadline=NOW)
NOTICE = PreemptionStatus(by="uid-b", notice_time=NOW, deadline=NOW)
ONE_LOST = {"assignment": vacated(assigned(AssignmentStatus(), ["n0", "n1"]), [1], NOW)}


def with_status(view: RunView, **changes: Any) -> RunView:
    return replace(view, status=changed(view.status, **changes))


def asking(**status: Any) -> RunView:
    return replace(run("a", status=status), annotations={"lockstep.dev/test-only": "true"})


@pytest.mark.parametrize(
    ("view", "pending", "holds", "lacks"),
    [
        (run("a"), True, False, False),
        (run("a", status=held("n0")), False, True, False),
        (run("a", 2, status=ONE_LOST), False, True, True),
        (run("a", 2, status=ONE_LOST | {"stop": STOPPING}), False, True, False),
        (run("a", 2, status=ONE_LOST | {"preemption": NOTICE}), False, True, False),
        (run("a", 2, status=ONE_LOST, suspend=True), False, True, False),
        (run("a", 2, status=ONE_LOST, cancel=True), False, True, False),
        (replace(run("a", 2, status=ONE_LOST), deleting=True), False, True, False),
        (run("a", suspend=True), False, False, False),
        (run("a", cancel=True), False, False, False),
        (replace(run("a"), deleting=True), False, False, False),
        (replace(run("a"), spec=None), False, False, False),
        (replace(run("a"), spec_error="spec.colour: not known"), False, False, False),
        (run("a", status={"stop": STOPPING}), False, False, False),
        (run("a", status={"conditions": ()}), False, False, False),
        (run("a", status={"conditions": (REFUSED,)}), False, False, False),
        (run("a", status={"conditions": (LOST_NAME,)}), True, False, False),  # it alone sees when that is there
        (run("a", status={"conditions": (OF_THE_SPEC_BEFORE,)}), True, False, False),  # it keeps its place
        (run("a", status={"conditions": (changed(REFUSED, observed_generation=0),)}), False, False, False),
        (run("a", status={"conditions": (changed(LOST_NAME, observed_generation=0),)}), False, False, False),
        (replace(run("a", status={"conditions": (OF_THE_SPEC_BEFORE,)}), spec_error="x"), False, False, False),
        (run("a", status={"conditions": (ACCEPTED, FINISHED)}), False, False, False),
        (run("a", status={"conditions": (ACCEPTED, REGRESSED)}), False, False, False),
        (run("a", status=held("n0") | {"conditions": (ACCEPTED, FINISHED)}), False, False, False),
        (asking(), False, False, False),
    ],
)
def test_a_run_waits_for_nodes_or_has_them_or_lacks_some_of_them(
    view: RunView, pending: bool, holds: bool, lacks: bool
) -> None:
    assert (is_pending(view), holds_nodes(view), lacks_nodes(view)) == (pending, holds, lacks)


@pytest.mark.parametrize(
    ("view", "asked"),
    [
        (asking(), True),
        (run("a"), False),
        (asking(test_only=TrialStatus(at=NOW, observed_generation=0)), True),
        (asking(test_only=TrialStatus(at=NOW, observed_generation=1)), False),
        (asking(conditions=(REFUSED,)), False),
        (asking(conditions=(OF_THE_SPEC_BEFORE,)), False),
        (asking(conditions=(ACCEPTED, FINISHED)), False),
        (replace(asking(), deleting=True), False),
        (replace(asking(), spec_error="spec.colour: not known"), False),
        (asking(**held("n0")), False),
    ],
)
def test_a_run_that_only_asks_is_answered_once_for_each_spec(view: RunView, asked: bool) -> None:
    assert is_asked(view) is asked


def test_a_decision_is_noted_and_written_with_all_that_belongs_to_it() -> None:
    decided: list[Entry] = []
    entry = Entry(run("a"), run("a").status, decided)
    entry.events.append(Event("Normal", EventReason.ADMITTED, ActionWord.ADMIT, "4 nodes"))
    assert not decided
    entry.status = record_wait(entry.status, NOW)
    assert decided == [entry]
    [write] = entry.writes()
    assert (write.name, write.resource_version, write.status.admission.since) == ("a", "7", NOW)
    assert [event.note for event in write.events] == ["4 nodes"]
    assert entry.view.status is entry.status


def test_a_run_about_which_nothing_is_decided_or_the_same_again_needs_no_write() -> None:
    view = run("a")
    untouched, same = Entry(view, view.status), Entry(view, view.status)
    same.status = changed(same.status, attempt=view.status.attempt)
    assert not [*untouched.writes(), *same.writes()]
    assert untouched.view is view


@pytest.mark.parametrize(("length", "spills"), [(5, False), (INLINE_LIMIT, True)])
def test_nodes_that_are_too_long_for_status_go_into_a_config_map_with_it(length: int, spills: bool) -> None:
    entry = Entry(run("a"), run("a").status)
    node = "n" * length
    entry.status = changed(entry.status, assignment=assigned(AssignmentStatus(), [node]))
    entry.nodes = frozenset({node})
    [write] = entry.writes()
    assert write.nodes == {node}
    assert bool(write.config_maps) is spills
    assert bool(write.status.assignment.config_map) is spills
