"""How far a slot has come, how long it may stay there, and what becomes of one that is late."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.model.conditions import find
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ConditionType, StopReason
from lockstep.core.model.snapshot import TOLD_AFTER, Lag, PodPhase, RefusedCreate
from lockstep.core.model.worker_report import WorkerPhase
from lockstep.core.run.launching import (
    NO_STEPS_PORT,
    SHARED_TIER_IS_FULL,
    SHARED_TIER_REFUSES,
    STILL_PREPARING,
    SlotStage,
    Stage,
    desire_pods,
    end_superseded_pods,
    enforce_deadlines,
    stages_of_idle,
    stages_of_ranks,
)
from support.values import not_none
from support.world import World, spec, world


def admitted(ranks: int = 2, **fields: object) -> World:
    """Its gang has nodes and pods, and its workers have not been heard."""
    w = world(ranks + 1)
    w.apply("one", spec(ranks, **fields))
    w.reconcile("one")
    w.reconcile("one")
    w.admit()
    w.reconcile("one")
    return w


def pods(w: World, **changes: object) -> None:
    for key, pod in w.pods.items():
        w.pods[key] = replace(pod, **changes)  # type: ignore[arg-type]


def scheduling(w: World) -> None:
    pods(w, reason="Unschedulable")


def unheard(w: World) -> None:
    pods(w, reason="")


def starting(w: World) -> None:
    pods(w, bound=True, reason="ImagePullBackOff")


def registering(w: World) -> None:
    pods(w, bound=True, phase=PodPhase.RUNNING, started_at=w.now)


def preparing(w: World) -> None:
    w.kubelets()
    w.work_reports_only()


def ready(w: World) -> None:
    w.kubelets()
    w.reconcile("one")
    w.work()


SCHEDULED, STARTED, REGISTERED, READY, VACANT = range(5)


@pytest.mark.parametrize(
    ("come_to", "stage", "within"),
    [
        (scheduling, Stage.SCHEDULING, (SCHEDULED,)),
        (unheard, Stage.SCHEDULING, (VACANT,)),
        (starting, Stage.STARTING, (SCHEDULED, STARTED)),
        (registering, Stage.REGISTERING, (REGISTERED,)),
        (preparing, Stage.PREPARING, (REGISTERED, READY)),
        (ready, Stage.READY, ()),
    ],
)
def test_every_stage_but_the_last_has_a_deadline(
    come_to: Callable[[World], None], stage: Stage, within: tuple[int, ...]
) -> None:
    w = admitted()
    come_to(w)
    plan = w.plan("one")
    limits = w.tunables.deadlines
    times = (limits.scheduled, limits.started, limits.registered, limits.ready, limits.vacant)
    found = stages_of_ranks(plan)
    assert [at.stage for at in found] == [stage] * 2
    until = w.now + sum(times[index] for index in within)
    assert [at.deadline for at in found] == [pytest.approx(until) if within else None] * 2


def test_a_refused_pod_is_told_apart_from_one_that_is_made_in_this_pass() -> None:
    w = admitted()
    names = sorted(w.pods)
    w.pods.clear()
    plan = w.plan("one")
    refused = {names[1]: RefusedCreate(w.now - 5, "exceeded quota")}
    plan = PlanBuilder(replace(plan.context, snapshot=replace(plan.snapshot, refused_creates=refused)))
    made, not_made = stages_of_ranks(plan)
    assert (made.stage, made.deadline) == (Stage.SCHEDULING, None)
    assert (not_made.stage, not_made.detail) == (Stage.REFUSED, "exceeded quota")
    assert not_made.deadline == w.now - 5 + w.tunables.deadlines.scheduled


@pytest.mark.parametrize(
    ("seconds", "stage"), [(1.0, Stage.SCHEDULING), (TOLD_AFTER, Stage.REFUSED), (1e6, Stage.REFUSED)]
)
def test_a_pod_that_cannot_be_made_without_a_verdict_is_told_and_waited_for_as_long_as_for_a_node(
    seconds: float, stage: Stage
) -> None:
    w = admitted()
    names = sorted(w.pods)
    w.pods.clear()
    plan = w.plan("one")
    refused = {names[1]: RefusedCreate(w.now - seconds, "failed calling webhook", is_verdict=False)}
    plan = PlanBuilder(replace(plan.context, snapshot=replace(plan.snapshot, refused_creates=refused)))
    at = stages_of_ranks(plan)[1]
    deadline = w.now - seconds + w.tunables.deadlines.vacant if stage is Stage.REFUSED else None
    assert (at.stage, at.deadline) == (stage, deadline)
    assert at.detail == ("failed calling webhook" if stage is Stage.REFUSED else "")


def test_a_spare_without_a_node_waits_for_ever() -> None:
    w = admitted(2, spareNodes=1)
    nodes = w.status("one").assignment.nodes
    w.amend("one", assignment=changed(w.status("one").assignment, nodes=(*nodes[:2], "")))
    assert [(at.stage, at.deadline) for at in stages_of_idle(w.plan("one"))] == [(Stage.VACANT, None)]


def at(slot: int, stage: Stage, detail: str = "", *, late: bool = False) -> SlotStage:
    return SlotStage(slot, stage, 0.0 if late else None, detail)


IN_TIME = at(0, Stage.READY)


@pytest.mark.parametrize(
    ("reached", "outcome"),
    [
        ((IN_TIME, at(1, Stage.SCHEDULING, "Unschedulable")), "waits"),
        ((IN_TIME, at(1, Stage.SCHEDULING, "Unschedulable", late=True)), "replaced"),
        ((IN_TIME, at(1, Stage.SCHEDULING, late=True)), "gives back"),
        ((IN_TIME, at(1, Stage.VACANT, late=True)), "gives back"),
        ((IN_TIME, at(1, Stage.REFUSED, "quota", late=True)), "gives back"),
        ((IN_TIME, at(1, Stage.HELD, late=True)), "gives back"),
        ((IN_TIME, at(1, Stage.STARTING, "ImagePullBackOff", late=True)), "replaced"),
        ((at(0, Stage.STARTING, late=True), at(1, Stage.STARTING, late=True)), "gives back"),
        ((at(0, Stage.SCHEDULING, "x", late=True), at(1, Stage.STARTING, "x", late=True)), "replaced"),
        ((at(0, Stage.REGISTERING), at(1, Stage.REGISTERING, late=True)), "gives back"),
        ((IN_TIME, at(1, Stage.REGISTERING, late=True)), "replaced"),
        ((IN_TIME, at(1, Stage.PREPARING, SHARED_TIER_IS_FULL, late=True)), "gives back"),
        ((IN_TIME, at(1, Stage.PREPARING, SHARED_TIER_REFUSES, late=True)), "replaced"),
        ((at(0, Stage.PREPARING), at(1, Stage.PREPARING, SHARED_TIER_REFUSES, late=True)), "gives back"),
        ((IN_TIME, at(1, Stage.PREPARING, f"{STILL_PREPARING}the local disk", late=True)), "replaced"),
    ],
)
def test_who_is_late_is_replaced_unless_another_node_would_not_help(
    reached: tuple[SlotStage, ...], outcome: str
) -> None:
    plan = admitted().plan("one")
    before = plan.status.assignment
    enforce_deadlines(plan, list(reached))
    stop = plan.status.stop
    assert (stop is not None and stop.reason == StopReason.NODES_LOST) is (outcome == "gives back")
    assert (plan.status.assignment != before) is (outcome == "replaced")


@pytest.mark.parametrize(
    ("late", "ranks", "waits"), [(1, 3, False), (2, 10, False), (3, 10, True), (3, 40, False), (9, 40, True)]
)
@pytest.mark.parametrize("stage", [Stage.STARTING, Stage.REGISTERING, Stage.PREPARING])
def test_many_that_are_late_at_once_are_waited_for_and_told_as_one_thing(
    late: int, ranks: int, waits: bool, stage: Stage
) -> None:
    plan = admitted(ranks).plan("one")
    reached = [SlotStage(slot, stage if slot < late else Stage.READY, plan.now - 1.0) for slot in range(ranks)]
    reached = [at if at.stage is not Stage.READY else replace(at, deadline=None) for at in reached]
    before = plan.status.assignment
    slow = enforce_deadlines(plan, reached)
    assert plan.status.stop is None
    assert (plan.status.assignment == before) is waits
    assert slow.startswith(f"{late} of {ranks} ranks are late together: {stage.value}; ") is waits


@pytest.mark.parametrize(("overdue", "waits"), [(1.0, True), (599.0, True), (601.0, False)])
def test_what_is_late_together_is_waited_for_five_times_its_limit_when_nobody_gets_further(
    overdue: float, waits: bool
) -> None:
    plan = admitted(10).plan("one")
    before = plan.status.assignment
    late = [SlotStage(slot, Stage.REGISTERING, plan.now - overdue) for slot in range(4)]
    enforce_deadlines(plan, [*late, *(at(slot, Stage.READY) for slot in range(4, 10))])
    assert (plan.status.assignment == before) is waits


@pytest.mark.parametrize(
    ("ago", "overdue", "waits"), [(10.0, 1.0, True), (119.0, 3000.0, True), (121.0, 1e3, False), (10.0, 3601.0, False)]
)
def test_a_single_one_is_waited_for_while_another_that_was_late_has_just_come(
    ago: float, overdue: float, waits: bool
) -> None:
    w = admitted(2)
    registering(w)
    first = min(w.pods)
    # The first was placed long after it should have been, though no later than so long before it started.
    made = w.now - ago - w.tunables.deadlines.scheduled - 1.0
    w.pods[first] = replace(w.pods[first], created_at=made, bound_at=w.now - ago, started_at=w.now - ago)
    plan = w.plan("one")
    before = plan.status.assignment
    enforce_deadlines(plan, [at(0, Stage.READY), SlotStage(1, Stage.REGISTERING, plan.now - overdue)])
    assert (plan.status.assignment == before) is waits


@pytest.mark.parametrize(
    ("lag", "later"),
    [
        (Lag(), 0.0),
        (Lag(loop=1.0, write=2.0), 30.0),
        (Lag(deaf=((1_000_100.0, 7.0),)), 7.0),
        (Lag(deaf=((999_000.0, 7.0),)), 0.0),  # before it began
    ],
)
def test_a_worker_has_as_much_longer_as_everything_takes_and_as_nobody_listened(lag: Lag, later: float) -> None:
    w = admitted()
    registering(w)
    due = [at.deadline for at in stages_of_ranks(w.plan("one"))]
    w.lag = lag
    w.now += 200.0
    assert [at.deadline for at in stages_of_ranks(w.plan("one"))] == [(moment or 0.0) + later for moment in due]


@pytest.mark.parametrize(("led", "left"), [(500.0, 0.0), (100.0, 20.0), (0.0, 60.0)])
def test_a_new_leader_goes_on_counting_and_hears_first_who_is_there(led: float, left: float) -> None:
    w = admitted()
    registering(w)
    w.now += 100.0 if led < 500.0 else 130.0
    w.leader_since = w.now - led
    deadline = stages_of_ranks(w.plan("one"))[0].deadline
    assert max(0.0, (deadline or 0.0) - w.now) == pytest.approx(left, abs=0.1)


def test_while_the_cluster_looks_broken_nobody_is_late() -> None:
    plan = admitted().plan("one")
    leadership = replace(plan.snapshot.leadership, disruption="most nodes are NotReady")
    plan = PlanBuilder(replace(plan.context, snapshot=replace(plan.snapshot, leadership=leadership)))
    enforce_deadlines(plan, [at(1, Stage.VACANT, late=True)])
    assert plan.build().status is None


def test_a_missing_pod_is_made_while_the_gang_gathers_and_not_past_the_barrier() -> None:
    w = admitted()
    w.pods.pop(sorted(w.pods)[1])
    plan = w.plan("one")
    desire_pods(plan)
    assert [(new.slot, new.node) for new in plan.creates] == [(1, plan.status.assignment.nodes[1])]
    w.settle()
    w.pods.pop(sorted(w.pods)[1])
    plan = w.plan("one")
    desire_pods(plan)
    assert not plan.creates


@pytest.mark.parametrize(
    ("behind", "is_terminal", "ended"), [(0, False, False), (1, False, True), (1, True, False), (2, True, True)]
)
def test_a_pod_that_was_superseded_is_ended_and_the_last_dead_one_is_kept_for_its_logs(
    behind: int, is_terminal: bool, ended: bool
) -> None:
    w = admitted()
    assignment = w.status("one").assignment
    newer = tuple(n + behind for n in assignment.incarnations)
    w.amend("one", assignment=changed(assignment, incarnations=newer))
    pods(w, phase=PodPhase.FAILED if is_terminal else PodPhase.RUNNING)
    plan = w.plan("one")
    end_superseded_pods(plan)
    assert len(plan.deletes) == (2 if ended else 0)


def test_a_worker_is_ready_for_the_attempt_that_status_tells_of() -> None:
    w = admitted()
    ready(w)
    uid = w.runs["one"].uid
    assert all(report.phase is WorkerPhase.READY for report in w.reports[uid].values())
    w.amend("one", attempt=w.status("one").attempt + 1)
    assert [at.stage for at in stages_of_ranks(w.plan("one"))] == [Stage.PREPARING] * 2


def replaced_after(w: World, most: float) -> float:
    """Seconds until the first attempt's slot 0 is made again, by a step of 20; ``most`` if it is not by then."""
    begun, incarnation = w.now, w.status("one").assignment.incarnations[0]
    while w.now - begun < most and w.status("one").assignment.incarnations[0] == incarnation:
        w.pass_time(20, step=20)
    return w.now - begun


@pytest.mark.slow
def test_how_slow_the_launch_was_says_nothing_of_a_pod_that_is_made_again_a_day_later() -> None:
    w = world(7)
    pace = {"start": 2700.0, "register": 1.0}
    w.delays = lambda slot: (1.0, pace["start"], pace["register"] if slot == 0 else 1.0, 1.0)
    w.roll_out("one", spec(4))
    w.pass_time(2800, step=20)
    w.train("one", 5)
    w.work()
    for _ in range(10):
        w.now += 1800
        w.train("one", 5)
        w.work()
        w.reconcile("one")
    pace.update(start=5.0, register=1e9)
    w.fail_pod("one", 0)
    w.pass_time(20, step=20)
    assert replaced_after(w, 1200) <= 200


def test_a_node_whose_clock_is_ahead_holds_back_no_verdict_on_others() -> None:
    w = world(7)
    w.delays = lambda slot: (1.0, 5.0, 1e9 if slot == 0 else 1.0, 1.0)
    kubelets = w.kubelets

    def with_a_clock_ahead() -> None:
        before = {name: pod.started_at for name, pod in w.pods.items()}
        kubelets()
        for name, pod in [*w.pods.items()]:
            if pod.node == "n3" and pod.started_at is not None and before.get(name) is None:
                w.pods[name] = replace(pod, started_at=pod.started_at + 1800)

    w.kubelets = with_a_clock_ahead  # type: ignore[method-assign]
    w.roll_out("one", spec(4))
    assert replaced_after(w, 1200) <= 240


MPI: dict[str, object] = {"launcher": {"type": "MPI"}, "command": ["mpirun", "python", "train.py"]}


@pytest.mark.parametrize(("fields", "waits"), [({}, False), (MPI, True), ({"launcher": {"steps": True}}, True)])
def test_a_gang_with_steps_starts_once_every_rank_says_where_it_takes_them(
    fields: dict[str, object], waits: bool
) -> None:
    w = admitted(2, **fields)
    w.without_steps_port.add("n1")
    w.pass_time(10.0)
    assert (w.status("one").start is None) is waits
    if waits:
        assert [at.stage for at in stages_of_ranks(w.plan("one"))] == [Stage.READY, Stage.PREPARING]
        gathering = not_none(find(w.status("one"), ConditionType.GANG_READY))
        assert "rank 1 on n1" in gathering.message
        assert NO_STEPS_PORT in gathering.message
        w.without_steps_port.clear()
        w.settle(rounds=8)
    assert w.status("one").start is not None


def test_a_worker_that_never_says_so_is_replaced_after_its_deadline() -> None:
    """One of an earlier release takes none; the pod that follows has this one's."""
    w = admitted(2, **MPI)
    w.without_steps_port.add("n1")
    deadlines = w.tunables.deadlines
    w.pass_time(deadlines.registered + deadlines.ready + 10.0, step=10.0)
    assert w.status("one").assignment.incarnations == (1, 2)
    w.without_steps_port.clear()
    w.settle()
    assert w.status("one").start is not None
