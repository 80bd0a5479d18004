"""Pods and nodes kept for a look inside, after a failure that ended the run."""

from dataclasses import replace

import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.core.model.lifecycle import Phase, phase_of
from support.world import World, spec, world


def failed(**recovery: object) -> World:
    """A run whose program failed for good; without checkpoints the first failure is the last."""
    w = world(2)
    w.roll_out("one", spec(2, checkpoint=None, recovery=recovery))
    w.end_child("one", 1, 1)
    w.pass_time(60, step=10)
    assert phase_of(w.status("one"), False) is Phase.FINISHED
    return w


def test_a_failed_runs_pods_stay_and_nobody_gets_its_nodes_until_the_hold_is_over() -> None:
    w = failed(debugHold="30m")
    w.apply("next", spec(2))
    w.pass_time(1500, step=100)
    assert len([pod for pod in w.pods.values() if pod.run == "one"]) == 2
    assert w.status("next").assignment.nodes == ()
    w.pass_time(900, step=50)
    assert not [pod for pod in w.pods.values() if pod.run == "one" and not pod.is_terminal]
    assert set(w.status("next").assignment.nodes) == {"n0", "n1"}


def test_an_annotation_ends_the_hold() -> None:
    w = failed(debugHold="30m")
    view = w.runs["one"]
    w._store(replace(view, annotations={names.ANNOTATION_DEBUG_RELEASE: "now"}))
    w.pass_time(180, step=10)
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]


def test_without_the_setting_nothing_is_held() -> None:
    w = failed()
    assert w.status("one").recovery.debug_until is None
    w.pass_time(180, step=10)
    assert not [pod for pod in w.pods.values() if not pod.is_terminal]


def test_a_run_whose_time_is_up_holds_its_nodes_no_longer() -> None:
    w = world(1)
    w.apply("one", spec(1, timeLimit="1m", recovery={"debugHold": "30m"}))
    w.pass_time(120, step=10)
    assert phase_of(w.status("one"), False) is Phase.FINISHED
    assert w.status("one").recovery.debug_until is None


@pytest.mark.parametrize("change", [{"cancel": True}])
def test_a_cancelled_run_is_not_held(change: dict[str, bool]) -> None:
    w = world(1)
    run_spec = spec(1, recovery={"debugHold": "30m"})
    w.roll_out("one", run_spec)
    w.apply("one", changed(run_spec, **change))
    w.pass_time(600, step=10)
    assert w.status("one").recovery.debug_until is None
