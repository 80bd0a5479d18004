"""A run that nothing can be decided for: what others have a right to is done, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.run.report import TRIED_AGAIN_AFTER
from lockstep.core.run.undecidable import WITHOUT_PODS, without_deciding
from support.examples import examples
from support.failing_world import (
    GATHERING,
    FailingWorld,
    drain_the_queue,
    edit,
    failing_steps,
    suspend,
    training,
    world,
)
from support.world import spec

EVERY_STEP = [0, 2, 4, GATHERING]


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Any:
    return failing_steps(monkeypatch)


@pytest.mark.parametrize("step", EVERY_STEP)
def test_what_trains_goes_on_whichever_step_fails_and_everything_goes_on_once_none_does(fails: Any, step: int) -> None:
    w = training()
    before, pods = w.status("one"), set(w.pods)
    fails(step)
    w.pass_time(120.0, step=5.0)
    told = w.status("one")
    assert set(w.pods) == pods
    assert changed(told, conditions=(), reason=before.reason, progress=before.progress) == changed(
        before, conditions=()
    )
    assert (told.state, told.reason) == ("Running", "Undecidable")
    fails(None)
    w.pass_time(60.0, step=5.0)
    after = w.status("one")
    assert find(after, "Undecidable") is None
    assert (after.reason, after.attempt) == ("StepsReported", before.attempt)
    assert set(w.pods) == pods
    assert w.children("one") == {0: 1, 1: 1}


def test_it_is_told_what_is_wrong_and_what_to_do_and_no_more(fails: Any) -> None:
    w = training()
    fails(0)
    plan = w.reconcile("one")
    told = find(w.status("one"), "Undecidable")
    assert told is not None
    assert (told.status, told.reason) == ("True", "DecisionFails")
    for words in ("DefectError", "defect of the operator", "goes on trying", "or cancel it"):
        assert words in told.message
    assert "secret" not in told.message
    assert len(told.message) < 600
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "Undecidable")]
    w.now += 5.0
    again = w.reconcile("one")
    assert (again.status, again.events, again.deletes) == (None, (), ()), "it comes to rest"
    error = "E" * 5_000
    plan = without_deciding(w.snapshot("one"), w.tunables, w.now, error)
    assert plan.status is not None
    assert error not in str(plan.status)


def wedged(fails: Any) -> FailingWorld:
    """A gang has its nodes, and its pods cannot be made."""
    w = world(2)
    fails(GATHERING)
    w.apply("one", spec(2, timeLimit="24h"))
    w.settle()
    return w


@pytest.mark.slow
def test_a_launch_that_makes_no_pod_gives_its_nodes_back_and_gets_none_until_it_is_edited(fails: Any) -> None:
    w = wedged(fails)
    w.apply("two", spec(2, timeLimit="24h"))
    assert w.phase("one") is Phase.LAUNCHING
    w.pass_time(WITHOUT_PODS + 1)
    assert w.phase("one") is Phase.PENDING
    assert find(w.status("one"), "Undecidable") is not None, "that is said for as long as it holds"
    fails(None)
    w.pass_time(120.0, step=5.0)
    assert w.phase("two") is Phase.RUNNING, "others have the nodes"
    w.apply("two", changed(w.runs["two"].spec, cancel=True))
    w.pass_time(60.0, step=5.0)
    assert w.phase("one") is Phase.PENDING
    assert w.status("one").queue.reason == "Undecidable"
    edit(w, env=())
    w.pass_time(60.0, step=5.0)
    assert w.phase("one") is Phase.RUNNING
    assert find(w.status("one"), "Undecidable") is None


def test_it_is_admitted_again_after_ten_minutes_without_an_edit(fails: Any) -> None:
    w = wedged(fails)
    w.pass_time(WITHOUT_PODS + 1)
    assert w.phase("one") is Phase.PENDING
    fails(None)
    w.pass_time(TRIED_AGAIN_AFTER + 60.0, step=20.0)
    assert w.phase("one") is Phase.RUNNING


def test_a_launch_with_pods_keeps_its_nodes_for_as_long_as_any_launch_may_take(fails: Any) -> None:
    w = world(2)
    w.apply("one", spec(2, timeLimit="24h"))
    for _ in range(3):
        w.reconcile("one")
        w.admit()
    w.reconcile("one")
    assert len(w.pods) == 2
    fails(GATHERING)
    w.pass_time(600.0, step=20.0)
    assert w.phase("one") is Phase.LAUNCHING
    w.pass_time(1_200.0, step=20.0)
    assert w.phase("one") is Phase.PENDING
    assert not w.pods


def test_which_rank_ended_first_is_known_after_a_look_without_deciding(fails: Any) -> None:
    w = training()
    for rank in (0, 1):  # the second is seen while nothing can be decided
        w.exit_child("one", rank, 0)
        w.work_reports_only()
        w.reconcile("one")
        if rank == 0:
            told = w.status("one").exits.first
            fails(0)
    assert told.startswith("rank 0 ended with code 0")
    assert w.status("one").exits.first == told


@pytest.mark.parametrize("worker", ["Enabled", "Disabled"])
@pytest.mark.parametrize("wish", [None, drain_the_queue, suspend])
def test_a_gang_that_comes_to_its_end_has_succeeded_whoever_wants_its_nodes(fails: Any, worker: str, wish: Any) -> None:
    w = training(worker=worker)
    fails(0)
    w.pass_time(5.0)
    for rank in (0, 1):
        if worker == "Enabled":
            w.exit_child("one", rank, 0)
        else:
            w.end_pod("one", rank, 0)
    w.work()
    if wish is not None:
        wish(w)
    w.pass_time(60.0, step=5.0)
    status = w.status("one")
    assert (status.state, status.exits.succeeded) == ("Succeeded", "0-1")
    assert is_true(status, "Succeeded")
    assert all(pod.is_terminal for pod in w.pods.values())


@pytest.mark.parametrize("killed", [True, False])
def test_a_command_of_mpi_is_taken_at_its_word_no_sooner_than_when_all_is_well(fails: Any, killed: bool) -> None:
    w = training(launcher={"type": "MPI"}, command=["mpirun", "python", "train.py"])
    fails(0)
    w.pass_time(5.0)
    if killed:
        w.end_step("one", 1, signal=9)
    w.exit_child("one", 0, 0)
    w.pass_time(60.0, step=5.0)
    assert is_true(w.status("one"), "Succeeded") is not killed
    assert w.phase("one") is (Phase.RUNNING if killed else Phase.FINISHED)


def test_a_gang_without_workers_that_has_no_pod_left_queues_again_but_not_one_whose_pods_have_ended(fails: Any) -> None:
    for code, phase in ((1, Phase.RUNNING), (None, Phase.PENDING)):
        w = training(worker="Disabled")
        fails(0)
        w.pass_time(5.0)
        if code is None:
            w.pods.clear()
        else:
            w.end_pod("one", 0, code)
            w.end_pod("one", 1, code)
        w.pass_time(60.0, step=5.0)
        assert w.phase("one") is phase
        fails(None)


def test_a_gang_that_status_has_lost_is_not_deleted(fails: Any) -> None:
    w = training()
    fails(0)
    w.now += 1.0
    w.wipe_status("one")
    pods = set(w.pods)
    w.pass_time(120.0, step=10.0)
    assert set(w.pods) == pods
    assert w.children("one") == {0: 1, 1: 1}


ANY = st.fixed_dictionaries(
    {},
    optional={
        "assignment": st.fixed_dictionaries(
            {
                "nodes": st.lists(st.sampled_from(["", "n0", "n1", "n9"]), max_size=3),
                "incarnations": st.lists(st.integers(0, 3), max_size=4),
            },
            optional={
                "vacant": st.lists(st.integers(0, 4), max_size=3),
                "rankToSlot": st.lists(st.integers(0, 4), max_size=3),
                "configMap": st.just("lost"),
            },
        ),
        "attempt": st.integers(0, 3),
        "stop": st.fixed_dictionaries(
            {
                "reason": st.sampled_from(["Suspended", "Cancelled", "TimeLimit", "Requeued", "Unheard"]),
                "message": st.text(max_size=5),
                "time": st.just("2026-01-01T00:00:00Z"),
                "deadline": st.sampled_from(["1970-01-10T00:00:00Z", "2026-01-01T00:00:00Z"]),
            },
            optional={"save": st.just("save-1")},
        ),
        "conditions": st.lists(
            st.fixed_dictionaries(
                {
                    "type": st.sampled_from(["Finished", "Undecidable", "Suspended"]),
                    "status": st.sampled_from(["True", "False", "Unknown"]),
                    "reason": st.just("X"),
                    "message": st.text(max_size=3),
                    "lastTransitionTime": st.just("1970-01-05T00:00:00Z"),
                }
            ),
            max_size=3,
        ),
    },
)


@settings(max_examples=examples(200))
@given(ANY, st.sampled_from([{}, {"cancel": True}, {"suspend": True}]), st.sampled_from([0.0, 20.0, 1e6]))
def test_it_can_do_with_any_status_and_comes_to_rest(
    status: dict[str, Any], wish: dict[str, Any], seconds: float
) -> None:
    w = TRAINED
    view = replace(w.runs["one"], spec=changed(w.runs["one"].spec, **wish), status=TrainingRunStatus.load(status))
    seen = replace(w.snapshot("one"), run=view)
    for _ in range(6):
        plan = without_deciding(seen, w.tunables, w.now + seconds, "X")
        assert plan.creates == ()
        if plan.status is None:
            return
        seen = replace(seen, run=replace(view, status=TrainingRunStatus.load(plan.status.dump())))
    raise AssertionError(f"it does not come to rest: {plan}")


TRAINED = training()
