"""Who may stop a run that nothing can be decided for, and how it ends or gives its nodes back."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.kueue_status import KueueStatus
from lockstep.core.kueue.choice import workload_name
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.kueue.installation import Kueue
from lockstep.core.model.kueue.workload import WorkloadView
from lockstep.core.model.lifecycle import TRANSITIONS, Phase
from lockstep.core.model.plan import DesiredPhase, Plan
from lockstep.core.model.tunables import Mode, Tunables
from lockstep.core.run import undecidable
from lockstep.core.run.undecidable import obeying_alone, without_deciding
from support.failing_world import (
    LONG,
    DefectError,
    FailingWorld,
    cancel,
    delete,
    drain_the_queue,
    edit,
    failing_steps,
    preempt,
    reach_the_limit,
    spend_the_budget,
    suspend,
    training,
    world,
)
from support.values import not_none
from support.world import spec

_MOVES = {(before, after) for before, _, after in TRANSITIONS}

ENDS = [
    (cancel, Phase.FINISHED, "Cancelled"),
    (suspend, Phase.SUSPENDED, "Undecidable"),
    (reach_the_limit, Phase.FINISHED, "TimeLimit"),
    (spend_the_budget, Phase.FINISHED, "BudgetSpent"),
    (drain_the_queue, Phase.PENDING, "Undecidable"),
    (preempt, Phase.PENDING, "Undecidable"),
    (delete, None, ""),
]


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Any:
    return failing_steps(monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("dies_at", range(5))
@pytest.mark.parametrize("worker", ["Enabled", "Disabled"])
@pytest.mark.parametrize(("wish", "phase", "reason"), ENDS, ids=lambda value: getattr(value, "__name__", ""))
def test_its_nodes_are_had_back_by_whoever_has_a_right_to_them(
    fails: Any, wish: Any, phase: Phase | None, reason: str, worker: str, dies_at: int
) -> None:
    """Also where the operator dies at any of its writes, and another begins."""
    w = training(worker=worker)
    pods = set(w.pods)
    fails(0)
    w.pass_time(20.0, step=5.0)
    assert set(w.pods) == pods, "what trains goes on"
    w.writes, w.dies_at, w.moves = 0, dies_at, []
    wish(w)
    w.pass_time(LONG, step=30.0)
    left = [pod for name, pod in w.pods.items() if name in pods and not pod.is_terminal]
    assert not left
    assert all(move in _MOVES or move[0] is move[1] for move in w.moves), w.moves
    if phase is None:
        return
    assert w.phase("one") is phase
    assert w.status("one").reason == reason
    assert is_true(w.status("one"), "Undecidable")
    assert phase is Phase.FINISHED or not slots.is_held(w.status("one").assignment)


@pytest.mark.slow
@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize(("wish", "phase", "reason"), ENDS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_run_that_rests_obeys_them_too_and_saves_first(
    wish: Any, phase: Phase | None, reason: str, saves: bool
) -> None:
    w = training()
    w.listens = saves
    w.settle()
    pods, before = set(w.pods), w.status("one")
    assert rest(w) == Plan(wake_at=rest(w).wake_at), "nobody asks for anything"
    wish(w)
    for _ in range(60):
        w.now += 5.0
        w.admit()
        for other in w.runs.keys() - {"one"}:
            w.reconcile(other)
        rest(w)
        w.kubelets()
        w.work()
    left = [pod for name, pod in w.pods.items() if name in pods and not pod.is_terminal]
    assert not left
    if phase is None:
        return
    assert w.phase("one") is phase
    assert w.status("one").reason == reason.replace("Undecidable", "Paced")
    saved = w.status("one").checkpoint.save
    is_late = phase is Phase.FINISHED and reason == "TimeLimit"
    assert (saved is not None and saved.outcome == "Saved") is (saves and not is_late)
    assert before.attempt == w.status("one").attempt


def rest(w: FailingWorld) -> Plan:
    plan = obeying_alone(w.snapshot("one"), w.tunables, w.now)
    w._execute("one", plan, None)
    return plan


def test_its_record_goes_when_it_is_due() -> None:
    w = training()
    edit(w, cancel=True)
    w.pass_time(120.0, step=30.0)
    edit(w, ttl_after_finished="1h")
    w.pods.clear()
    assert w.phase("one") is Phase.FINISHED
    ended = not_none(find(w.status("one"), "Finished")).last_transition_time
    assert not without_deciding(w.snapshot("one"), w.tunables, ended + 3599, "X").delete_run
    assert without_deciding(w.snapshot("one"), w.tunables, ended + 3600, "X").delete_run


def test_an_operator_that_only_reports_stops_none() -> None:
    w = training()
    edit(w, cancel=True)
    looks_on = Tunables(mode=Mode.REPORT_ONLY)
    assert without_deciding(w.snapshot("one"), looks_on, w.now, "X") == Plan()
    assert obeying_alone(w.snapshot("one"), looks_on, w.now) == Plan()


@pytest.mark.parametrize("nodes", [("n0", "n0"), ("n0", "n1", "n2")])
def test_a_damaged_assignment_is_kept_and_its_gang_stops_as_asked(fails: Any, nodes: tuple[str, ...]) -> None:
    w = training()
    fails(0)
    w.amend("one", assignment=changed(w.status("one").assignment, nodes=nodes))
    w.pass_time(60.0, step=10.0)
    assert len(w.children("one")) == 2
    suspend(w)
    w.pass_time(LONG, step=30.0)
    assert not w.pods
    assert w.status("one").assignment.nodes == nodes
    assert w.reconcile("one").events == (), "it comes to rest"


@pytest.mark.parametrize(
    ("wish", "reason"), [({"cancel": True}, "Cancelled"), ({"deadline": 1.0}, "DeadlineUnreachable")]
)
def test_whoever_waits_for_nodes_can_be_ended(fails: Any, wish: dict[str, Any], reason: str) -> None:
    w = world(1)
    fails(0)
    w.apply("one", spec(2, timeLimit="1h"))
    w.settle()
    assert (w.status("one").state, w.status("one").reason) == ("Pending", "Undecidable")
    edit(w, **wish)
    w.settle()
    ended = find(w.status("one"), "Finished")
    assert ended is not None
    assert (ended.status, ended.reason) == ("True", reason)


def test_a_save_that_was_asked_for_before_is_waited_for(fails: Any) -> None:
    w = world()
    w.listens, w.saves_succeed = True, False
    w.apply("one", spec(2, checkpoint={"shared": {"claimName": "lustre"}, "gracePeriod": "60s"}))
    w.settle()
    w.train("one", 3)
    suspend(w)
    w.reconcile("one")
    stop = w.status("one").stop
    assert stop is not None
    assert stop.save
    fails(0)
    w.pass_time(30.0, step=5.0)
    assert len(w.children("one")) == 2
    w.pass_time(120.0, step=5.0)
    assert w.phase("one") is Phase.SUSPENDED


@pytest.mark.parametrize(("evicted", "stops"), [(True, True), (False, False)])
def test_kueue_gets_back_what_it_wants_back(evicted: bool, stops: bool) -> None:
    w = training()
    w.amend("one", kueue=KueueStatus(queue="q", workload="w", workload_uid="uid-w"))
    seen = w.snapshot("one")
    name = workload_name(seen.run)
    workload = WorkloadView("ns", name, "uid-w", "1", active=not evicted)
    plan = without_deciding(replace(seen, kueue=Kueue(workloads={("ns", name): workload})), w.tunables, w.now, "X")
    assert plan.status is not None
    assert (plan.status.stop is not None) == stops


def test_a_question_that_fails_keeps_no_other_from_being_asked() -> None:
    """The same defect may lie in wait here."""
    w = training()
    edit(w, cancel=True)
    nonsense = changed(w.runs["one"].spec, time_limit="soon", min_time_limit=7, on_time_limit=None)
    seen = replace(w.snapshot("one"), run=replace(w.runs["one"], spec=nonsense))
    plan = without_deciding(seen, w.tunables, w.now, "X")
    assert plan.status is not None
    assert plan.status.stop is not None
    assert plan.status.stop.reason == "Cancelled"
    edited = replace(seen, run=replace(seen.run, spec=changed(nonsense, cancel=False)), queue=None)
    assert without_deciding(edited, w.tunables, w.now, "X").status is not None


@pytest.mark.parametrize("broken", ["keep_account", "directive_for", "over_budget", "limit_of", "succeeded_ranks"])
def test_what_it_asks_of_others_may_fail_as_well(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise DefectError

    w = training()
    preempt(w)
    monkeypatch.setattr(undecidable, broken, fail)
    edit(w, suspend=True)
    plan = without_deciding(w.snapshot("one"), w.tunables, w.now, "X")
    assert plan.status is not None
    assert plan.status.stop is not None
    assert plan.status.stop.reason == "Suspended"


def test_workers_of_a_gang_that_stops_are_told_to_end(fails: Any) -> None:
    w = training()
    fails(0)
    suspend(w)
    w.reconcile("one")
    assert w.directives["uid-one"].phase is DesiredPhase.STOP
