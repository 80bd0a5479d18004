"""As many runs of an array have nodes at a time as its width allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lockstep.api.run_status import AssignmentStatus
from lockstep.core.admission.admit import admit
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from support.admission import run, world


def member(name: str, **status: Any) -> RunView:
    return replace(run(name, status=status), set_uid="uid-sweep", set_name="sweep")


def admitted(width: int | None, *runs: RunView, in_flight: frozenset[str] = frozenset()) -> tuple[list[str], list[str]]:
    """Who gets nodes, and who is told to wait for the width."""
    widths = {} if width is None else {("team", "uid-sweep"): width}
    flying = {"uid-a": in_flight} if in_flight else {}
    snapshot = replace(world(runs, 8), widths=widths, in_flight=flying)
    plan = admit(snapshot, Tunables(), 1_000.0)
    held = [write.name for write in plan.writes if write.status.queue.reason == "MaxRunning"]
    return sorted(write.name for write in plan.writes if write.nodes), sorted(held)


ON_A_NODE = AssignmentStatus(nodes=("n7",), incarnations=(1,), hash="h")


def test_no_more_runs_of_a_set_get_nodes_than_its_width_allows() -> None:
    five = [member(name) for name in "abcde"]
    assert admitted(None, *five) == (["a", "b", "c", "d", "e"], [])
    assert admitted(2, *five) == (["a", "b"], ["c", "d", "e"])
    assert admitted(0, *five) == ([], ["a", "b", "c", "d", "e"])
    assert admitted(2, member("h", assignment=ON_A_NODE), *five) == (["a"], ["b", "c", "d", "e"])
    assert admitted(2, *five, in_flight=frozenset({"n0"}))[0] == ["b"], "a may have its nodes already"


def test_the_width_of_a_set_is_nothing_to_other_runs() -> None:
    assert admitted(1, run("other"), member("a"), member("b"))[0] == ["a", "other"]
    elsewhere = replace(member("c", assignment=ON_A_NODE), namespace="other")
    assert admitted(1, elsewhere, member("a"))[0] == ["a"], "a copied UID takes no room in the set"
