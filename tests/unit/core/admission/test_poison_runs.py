"""A run that no pass can be decided with holds up nobody but itself."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.admission import poison_runs
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.poison_runs import AGAIN, admit_isolating_failures
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.snapshot import Changes, ClusterSnapshot, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, after, held, run, statuses, world


def broken(view: RunView) -> RunView:
    """The same with a spec such as no validation lets pass, so that a pass stumbles over it."""
    assert view.spec is not None
    return replace(view, spec=changed(view.spec, nodes="three"))


def test_everybody_else_is_admitted_and_the_run_is_told() -> None:
    snapshot = world([run("a", 1), broken(run("b", 1)), run("c", 2), broken(run("d", 1)), run("e", 1)])
    with pytest.raises(TypeError):
        admit(snapshot, Tunables(), NOW)
    memory = CycleMemory()
    plan = admit_isolating_failures(snapshot, Tunables(), NOW, memory)
    told = statuses(plan)
    assert {name: len(status.assignment.nodes) for name, status in told.items()} == {
        "a": 1,
        "c": 2,
        "e": 1,
        "b": 0,
        "d": 0,
    }
    for name in ("b", "d"):
        assert told[name].queue.reason == WaitReason.UNDECIDABLE
        assert "TypeError" in told[name].queue.message
    assert plan.wake_at is not None
    assert plan.wake_at <= NOW + AGAIN
    assert admit_isolating_failures(after(snapshot, plan), Tunables(), NOW + 1, memory).writes == ()


def test_a_run_that_is_mended_is_admitted() -> None:
    memory, good = CycleMemory(), run("a", 1)
    admit_isolating_failures(world([broken(good)]), Tunables(), NOW, memory)
    plan = admit_isolating_failures(world([good]), Tunables(), NOW + 1, memory)
    assert statuses(plan)["a"].assignment.nodes
    assert memory.excluded_runs == {}


@pytest.mark.parametrize("changes", [Changes(), Changes({}, {}, ())])
def test_it_is_tried_again_as_what_a_pass_fails_by_may_be_of_the_moment(
    monkeypatch: pytest.MonkeyPatch, changes: Changes
) -> None:
    """Although nothing of it has changed."""
    tried = []

    def fail_at_first(snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: CycleMemory) -> ClusterPlan:
        if now < NOW + AGAIN and any(view.name == "a" and view.spec for view in snapshot.runs):
            tried.append(now)
            raise ArithmeticError
        return admit(snapshot, tunables, now, memory)

    monkeypatch.setattr(poison_runs, "admit", fail_at_first)
    memory, snapshot = CycleMemory(), replace(world([run("a", 1), run("b", 9)]), changes=changes)
    for now in (NOW, NOW + 1, NOW + AGAIN - 1):
        assert (
            statuses(admit_isolating_failures(snapshot, Tunables(), now, memory))["a"].queue.reason
            == WaitReason.UNDECIDABLE
        )
    assert set(tried) == {NOW}
    assert statuses(admit_isolating_failures(snapshot, Tunables(), NOW + AGAIN, memory))["a"].assignment.nodes


def test_passes_that_fail_altogether_lose_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """One does as a run is left out, another as it is tried again; nothing of it changes all the while."""
    memory, snapshot = CycleMemory(), replace(world([run("a", 1), run("b", 9)]), changes=Changes({}, {}, ()))

    def fail(those: ClusterSnapshot, tunables: Tunables, now: float, used: CycleMemory) -> ClusterPlan:
        if now > NOW or any(view.name == "a" and view.spec for view in those.runs):
            raise ArithmeticError
        plan = admit(those, tunables, now, used)
        if used is memory:
            raise ArithmeticError
        return plan

    monkeypatch.setattr(poison_runs, "admit", fail)
    for now in (NOW, NOW + AGAIN):
        with pytest.raises(ArithmeticError):
            admit_isolating_failures(snapshot, Tunables(), now, memory)
    monkeypatch.setattr(poison_runs, "admit", admit)
    plan = admit_isolating_failures(snapshot, Tunables(), NOW + AGAIN, memory)
    assert statuses(plan)["a"].assignment.nodes


def test_who_depends_on_it_is_not_told_that_it_is_gone() -> None:
    waits: dict[str, Any] = {"dependsOn": [{"name": "a"}], "onUnsatisfiable": "Fail"}
    snapshot = world([broken(run("a", 1)), run("b", 1, **waits)])
    told = statuses(admit_isolating_failures(snapshot, Tunables(), NOW, CycleMemory()))["b"]
    assert told.queue.reason == "Dependency"
    assert "a" in told.queue.message
    assert not told.assignment.nodes


def test_who_holds_nodes_is_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes would be free, and its quota."""

    def fail(snapshot: ClusterSnapshot, *_: object) -> ClusterPlan:
        if any(view.name == "a" and view.spec for view in snapshot.runs):
            raise ArithmeticError
        return ClusterPlan()

    monkeypatch.setattr(poison_runs, "admit", fail)
    memory = CycleMemory()
    with pytest.raises(ArithmeticError):
        admit_isolating_failures(world([run("a", 1, status=held("n0")), run("b", 1)]), Tunables(), NOW, memory)
    assert memory.excluded_runs == {}
