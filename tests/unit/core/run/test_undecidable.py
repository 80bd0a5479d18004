"""A run that nothing can be decided for: what others have a right to is done, and nothing else."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.api.base.changes import changed
from lockstep.api.kueue_status import KueueStatus
from lockstep.api.run_spec import BudgetSpec
from lockstep.api.run_status import ExitsStatus, StopStatus, TrainingRunStatus
from lockstep.core import decide as decisions
from lockstep.core.kueue.choice import workload_name
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.kueue.installation import Kueue
from lockstep.core.model.kueue.workload import WorkloadView
from lockstep.core.model.lifecycle import TRANSITIONS, Phase, phase_of
from lockstep.core.model.plan import DesiredPhase, Plan
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.snapshot import RunSnapshot
from lockstep.core.model.tunables import Mode, Tunables
from lockstep.core.run import undecidable
from lockstep.core.run.handover import Handover
from lockstep.core.run.report import TRIED_AGAIN_AFTER
from lockstep.core.run.undecidable import WITHOUT_PODS, obeying_alone, without_deciding
from support.examples import examples
from support.values import not_none
from support.world import World, node, spec

LONG = 900.0
HIGH = {"priorityClassName": "high", "checkpoint": {"shared": {"claimName": "lustre"}, "gracePeriod": "60s"}}
_MOVES = {(before, after) for before, _, after in TRANSITIONS}


class DefectError(Exception):
    """What a step raises."""


@dataclass
class FailingWorld(World):
    """Its operator takes a run for undecidable at the first failure, as one that has been told of it does."""

    dies_at: int = 0  # the write at which the operator dies; 0: it lives
    writes: int = 0
    moves: list[tuple[Phase, Phase]] = field(default_factory=list)

    def reconcile(self, name: str, *, crash_after: int | None = None) -> Plan:
        before = self.phase(name)
        try:
            return super().reconcile(name, crash_after=self._left())
        except DefectError as error:
            plan = without_deciding(self.snapshot(name), self.tunables, self.now, type(error).__name__)
            self.writes += (plan.status is not None) + len(plan.deletes)
            self._execute(name, plan, self._left())
            return plan
        finally:
            if name in self.runs:
                self.moves.append((before, self.phase(name)))

    def _left(self) -> int | None:
        if not self.dies_at or self.writes < self.dies_at:
            return None
        self.dies_at = 0
        return 0

    def phase(self, name: str) -> Phase:
        view = self.runs[name]
        return phase_of(view.status, view.spec is not None and view.spec.suspend)


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``fails(0)``: the first step raises for the run ``one`` from now on, and so on; ``fails(None)``: none does."""
    steps = decisions.STEPS

    def failing(step: decisions.Step) -> decisions.Step:
        def stepped(plan: PlanBuilder, known: Handover) -> Handover:
            if plan.run.name == "one":
                raise DefectError("a secret of the tenant")
            return step(plan, known)

        return stepped

    def fail(at: int | None) -> None:
        broken = [failing(step) if number == at else step for number, step in enumerate(steps)]
        monkeypatch.setattr(decisions, "STEPS", tuple(broken))

    return fail


GATHERING = 9
EVERY_STEP = [0, 2, 4, GATHERING]


def world(nodes: int = 4) -> FailingWorld:
    w = FailingWorld({f"n{i}": node(f"n{i}") for i in range(nodes)})
    w.classes = {"high": 1000}
    w.queue(preemption={"withinQueue": "LowerPriority", "minRuntime": "0s"})
    return w


def training(**fields: Any) -> FailingWorld:
    w = world()
    w.apply("one", spec(2, **{"timeLimit": "24h", **fields}))
    w.settle()
    w.train("one", 3)
    w.settle()
    assert w.phase("one") is Phase.RUNNING
    return w


def edit(w: World, **fields: Any) -> None:
    view = w.runs["one"]
    w.apply("one", changed(view.spec, **fields))


def cancel(w: FailingWorld) -> None:
    edit(w, cancel=True)


def suspend(w: FailingWorld) -> None:
    edit(w, suspend=True)


def reach_the_limit(w: FailingWorld) -> None:
    w.now += 86_400.0


def spend_the_budget(w: FailingWorld) -> None:
    edit(w, budget=BudgetSpec(gpu_hours=1, action="Stop"))


def drain_the_queue(w: FailingWorld) -> None:
    w.queue(stopPolicy="HoldAndDrain")


def preempt(w: FailingWorld) -> None:
    w.apply("two", spec(4, **HIGH))


def delete(w: FailingWorld) -> None:
    w.runs["one"] = replace(w.runs["one"], deleting=True)


ENDS = [
    (cancel, Phase.FINISHED, "Cancelled"),
    (suspend, Phase.SUSPENDED, "Undecidable"),
    (reach_the_limit, Phase.FINISHED, "TimeLimit"),
    (spend_the_budget, Phase.FINISHED, "BudgetSpent"),
    (drain_the_queue, Phase.PENDING, "Undecidable"),
    (preempt, Phase.PENDING, "Undecidable"),
    (delete, None, ""),
]


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


def unread(w: FailingWorld, *, pods: bool = True, stop: StopStatus | None = None) -> RunSnapshot:
    """The run of which the API server does not give the nodes, with what status says of it all the same."""
    known = w.snapshot("one")
    status = known.run.status
    named = slots.without_spilled(changed(status.assignment, config_map="one-assignment"))
    exits = ExitsStatus(attempt=status.attempt, succeeded="0")
    status = changed(status, assignment=named, exits=exits, stop=stop or status.stop)
    return replace(
        known,
        run=replace(known.run, status=status, unread=True),
        pods=known.pods if pods else (),
        reports=known.reports if pods else {},
    )


def test_a_run_whose_nodes_are_unknown_is_told_and_nothing_is_concluded_from_them() -> None:
    w = training()
    known = unread(w)
    plan = without_deciding(known, w.tunables, w.now, "it is forbidden " * 100)
    told = not_none(find(not_none(plan.status), "Undecidable"))
    assert told.reason == "NodesUnknown"
    assert len(told.message) < 1024
    assert told.message.startswith("ConfigMap one-assignment, which has its nodes, cannot be read (it is forbidden")
    assert [event.reason for event in plan.events] == ["Undecidable"]
    assert (plan.deletes, plan.directive) == ((), None), "what trains goes on"
    status = not_none(plan.status)
    assert (status.assignment, status.goodput) == (known.run.status.assignment, known.run.status.goodput)
    assert not is_true(status, "Finished"), "who else there is may not have come to its end"
    again = without_deciding(
        replace(known, run=replace(known.run, status=status)), w.tunables, w.now + LONG, "in other words"
    )
    assert (again.status, again.events) == (None, ())


@pytest.mark.parametrize("order", [cancel, suspend, reach_the_limit, drain_the_queue])
def test_a_run_whose_nodes_are_unknown_stops_with_its_pods_and_keeps_what_nobody_knows(
    order: Callable[[FailingWorld], None],
) -> None:
    w = training()
    order(w)
    stop = not_none(not_none(without_deciding(unread(w), w.tunables, w.now, "").status).stop)
    plan = without_deciding(unread(w, stop=stop), w.tunables, w.now, "")
    assert {pod.uid for pod in plan.deletes} == {pod.uid for pod in w.pods.values()}
    ended = without_deciding(unread(w, pods=False, stop=stop), w.tunables, w.now + LONG, "")
    status = not_none(ended.status)
    assert status.assignment == unread(w).run.status.assignment
    assert is_true(status, "Finished") is (order in (cancel, reach_the_limit))


def test_a_run_whose_nodes_are_unknown_gives_none_back_for_want_of_pods() -> None:
    w = training()
    known = unread(w, pods=False)
    told = not_none(without_deciding(known, w.tunables, w.now, "").status)
    later = replace(known, run=replace(known.run, status=told))
    assert without_deciding(later, w.tunables, w.now + LONG, "").status is None
