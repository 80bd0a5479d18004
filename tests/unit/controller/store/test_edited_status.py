"""A status that somebody has edited: what lives goes on, and what cannot be told is held with words."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import ResolvedStatus
from lockstep.core.decide import decide
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find
from support.world import World, world_with_gang


def training() -> World:
    w = world_with_gang(2, 6)
    w.train("one", 3)
    w.settle()
    return w


def edit(w: World, part: str, **changes: Any) -> None:
    view = w.runs["one"]
    edited = changed(getattr(view.status, part), **changes)
    w._store(replace(view, status=changed(view.status, **{part: edited})))


EDITS = [
    ("assignment", {"nodes": ()}),
    ("assignment", {"nodes": (), "incarnations": ()}),
    ("assignment", {"nodes": (), "incarnations": (9, 9)}),
    ("assignment", {"incarnations": ()}),
    ("assignment", {"nodes": ("n0", "n0")}),
    ("assignment", {"vacant": (1, 7)}),
    ("assignment", {"vacant": (1,)}),
    ("assignment", {"rank_to_slot": (0, 5)}),
    ("assignment", {"rank_to_slot": (1, 1)}),
    ("resolved", dict(ResolvedStatus())),
    ("resolved", {"cpu": "", "memory": ""}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("part", "changes"), EDITS)
def test_what_was_emptied_by_hand_is_restored_from_what_lives_and_training_goes_on(
    part: str, changes: dict[str, Any]
) -> None:
    w = training()
    before = w.status("one")
    pods = set(w.pods)
    edit(w, part, **changes)
    w.pass_time(30.0)
    after = w.status("one")
    assert (after.attempt, after.assignment.nodes) == (before.attempt, before.assignment.nodes)
    assert after.assignment.incarnations == before.assignment.incarnations
    assert changed(after.resolved, template_hash=before.resolved.template_hash) == before.resolved
    assert find(after, "StateRegression") is None
    assert set(w.pods) == pods


@pytest.mark.slow
@pytest.mark.parametrize(("part", "changes"), EDITS)
def test_an_edited_run_still_recovers(part: str, changes: dict[str, Any]) -> None:
    w = training()
    edit(w, part, **changes)
    w.pass_time(5.0)
    w.lose_node(w.status("one").assignment.nodes[1])
    w.pass_time(60.0)
    assert w.status("one").attempt == 2
    assert w.status("one").state == "Running"


@pytest.mark.parametrize(("part", "changes"), EDITS[:-2])
def test_where_no_pod_lives_to_restore_it_from_the_run_is_held_and_says_what_to_do(
    part: str, changes: dict[str, Any]
) -> None:
    w = training()
    edit(w, part, **changes)
    edited = w.status("one").assignment
    plan = decide(replace(w.snapshot("one"), pods=(), reports={}), w.tunables, w.now)
    assert plan.status is not None
    held = find(plan.status, "StateRegression")
    assert held is not None
    assert "restore status.assignment, or delete the run" in held.message
    assert not plan.deletes
    assert not plan.creates
    assert plan.status.assignment == edited  # as it is, for whoever looks at it


def test_a_damaged_assignment_keeps_its_nodes_and_gets_no_others() -> None:
    whole = training().status("one").assignment
    assert slots.bookable(whole) is whole
    assert slots.damage(slots.released(whole)) == ""
    damaged = changed(whole, vacant=(0, 9), rank_to_slot=(7, 7))
    assert slots.bookable(damaged) == whole
