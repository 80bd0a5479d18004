"""A gang that is behind its status, or that is left alone, obeys whoever may stop it; no owner can help that."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from lockstep.core.decide import decide
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.snapshot import PodPhase, PodView
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from lockstep.core.run.regression import LONGEST_HOLD
from support.made_once import made_once
from support.world import World, node, spec
from support.world import training as gang_that_saves

AT_ONCE = {"withinQueue": "LowerPriority", "minRuntime": "0s"}
CLASS = {"priorityClassName": "low"}


@made_once
def training() -> World:
    w = World({f"n{i}": node(f"n{i}") for i in range(2)})
    w.classes = {"low": 10, "high": 1000}
    w.queue(preemption=AT_ONCE)
    w.apply("one", spec(2, **CLASS))
    w.settle()
    w.train("one", 5)
    w.tell_of_save("one", 5)
    w.pass_time(20, step=10)
    assert phase(w) is Phase.RUNNING
    return w


def phase(w: World) -> Phase:
    view = w.runs["one"]
    return phase_of(view.status, view.spec is not None and view.spec.suspend)


def is_held(w: World) -> bool:
    return is_true(w.status("one"), "StateRegression")


def forged(w: World, **changes: object) -> PodView:
    """A pod in the name of the gang, which kube-scheduler has bound to a node that is none of ours."""
    first = next(iter(w.pods.values()))
    fields = {
        "name": "one-uid-o-0-99",
        "uid": "forged",
        "incarnation": 99,
        "node": "elsewhere",
        "bound": True,
        "phase": PodPhase.PENDING,
        "started_at": None,
    }
    return replace(first, **{**fields, **changes})


def a_bound_pod_that_never_reports(w: World) -> None:
    pod = forged(w)
    w.pods[pod.name] = pod


def a_pod_with_a_copied_annotation(w: World) -> None:
    pod = forged(w, bound=False)
    w.pods[pod.name] = pod


def a_status_that_is_gone_with_a_pod(w: World) -> None:
    w.wipe_status("one")
    gone = next(pod for pod in w.pods.values() if pod.slot == 1)
    del w.pods[gone.name], w.workers[gone.uid]


DOUBTS = [a_bound_pod_that_never_reports, a_pod_with_a_copied_annotation, a_status_that_is_gone_with_a_pod]


def suspend(w: World) -> None:
    w.apply("one", spec(2, suspend=True, **CLASS))


def cancel(w: World) -> None:
    w.apply("one", spec(2, cancel=True, **CLASS))


def drain(w: World) -> None:
    w.queue(stopPolicy="HoldAndDrain")


def ask_to_queue_again(w: World) -> None:
    w.annotate("one", requeue_request="now")


def limit(w: World) -> None:
    w.apply("one", spec(2, timeLimit="10s", **CLASS))


def spend(w: World) -> None:
    w.apply("one", spec(2, budget={"gpuHours": 1, "action": "Stop"}, **CLASS))  # of sixteen GPUs: four minutes


def preempt(w: World) -> None:
    w.apply("urgent", spec(2, priorityClassName="high"))


ORDERS = [suspend, cancel, drain, ask_to_queue_again, limit, spend, preempt]
# What a run used, and which nodes it has, went with its status: there the hold itself ends.
NEED_STATUS = (limit, spend, preempt)
CASES = [(o, d) for o in ORDERS for d in DOUBTS if o not in NEED_STATUS or d is not a_status_that_is_gone_with_a_pod]


def let_forged_pods_end(w: World) -> None:
    """As the kubelet of a node that is not in this world does."""
    for name in [name for name, pod in w.pods.items() if pod.uid == "forged" and pod.deleting]:
        del w.pods[name]


def stopped(w: World, seconds: float) -> bool:
    """Its pods of before are gone, and its nodes given back."""
    before = {pod.uid for pod in w.pods.values() if pod.run == "one"}
    for _ in range(int(seconds / 10)):
        w.pass_time(10, step=5)
        let_forged_pods_end(w)
        if not before & {pod.uid for pod in w.pods.values() if not pod.is_terminal}:
            return True
    return False


@pytest.mark.parametrize(("order", "doubt"), CASES)
def test_a_gang_on_hold_obeys(order: Callable[[World], None], doubt: Callable[[World], None]) -> None:
    w = training()
    doubt(w)
    w.reconcile("one")
    assert is_held(w)
    order(w)
    assert stopped(w, 450)
    w.pass_time(20, step=10)
    assert not is_held(w) or phase(w) is Phase.FINISHED
    if order is preempt:
        assert w.status("urgent").start is not None


@pytest.mark.parametrize("doubt", DOUBTS)
def test_nothing_is_deleted_on_hold_and_the_hold_ends(doubt: Callable[[World], None]) -> None:
    w = training()
    doubt(w)
    before = {pod.uid for pod in w.pods.values()}
    w.pass_time(LONGEST_HOLD - 30, step=10)
    assert is_held(w)
    assert {pod.uid for pod in w.pods.values() if not pod.deleting} == before
    for _ in range(20):
        w.pass_time(10, step=5)
        let_forged_pods_end(w)
    assert not before & {pod.uid for pod in w.pods.values()}
    assert phase(w) is Phase.RUNNING, "it queued again, and there is room"


def test_nodes_stay_booked_until_the_pods_of_a_gang_that_was_on_hold_are_gone() -> None:
    w = training()
    a_bound_pod_that_never_reports(w)
    w.reconcile("one")
    suspend(w)
    w.nodes["elsewhere"] = node("elsewhere")
    w.silent_nodes.add("elsewhere")  # whose kubelet is slow to end what is deleted
    w.pass_time(200, step=10)
    assert [(pod.uid, pod.deleting) for pod in w.pods.values()] == [("forged", True)]
    assert phase(w) is Phase.STOPPING
    assert w.status("one").assignment.nodes
    w.pods.clear()
    w.pass_time(10, step=5)
    assert phase(w) is Phase.SUSPENDED
    assert not w.status("one").assignment.nodes


def test_a_run_that_was_stopped_on_hold_comes_to_rest_although_a_pod_of_it_never_goes() -> None:
    w = training()
    a_bound_pod_that_never_reports(w)  # on a node that is gone
    w.reconcile("one")
    suspend(w)
    w.pass_time(200, step=10)
    assert (phase(w), is_held(w)) == (Phase.SUSPENDED, False)
    version = w.version
    w.pass_time(60, step=10)
    assert w.version == version


def a_pod_that_nobody_bound(w: World) -> None:
    pod = forged(w, bound=False, node="", resolved="")
    w.pods[pod.name] = pod


def one_worker_that_lies(w: World) -> None:
    lie(w, {0: 1})


def workers_that_lie_each_in_its_own_way(w: World) -> None:
    lie(w, {0: 1, 1: 2})


def lie(w: World, ports: dict[int, int]) -> None:
    reports = w.reports[w.runs["one"].uid]
    for slot, port in ports.items():
        start = reports[slot].start
        assert start is not None
        reports[slot] = replace(reports[slot], start=structs.replace(start, attempt=99, master_port=port))


@pytest.mark.parametrize("claim", [a_pod_that_nobody_bound, one_worker_that_lies, workers_that_lie_each_in_its_own_way])
def test_what_only_its_owner_says_puts_no_gang_on_hold(claim: Callable[[World], None]) -> None:
    w = training()
    claim(w)
    plan = decide(w.snapshot("one"), w.tunables, w.now)
    status = plan.status or w.status("one")
    assert not is_true(status, "StateRegression")
    assert status.attempt == 1
    w.apply("one", spec(2, suspend=True, **CLASS))
    assert stopped(w, 450)


def test_one_worker_that_lies_does_not_keep_the_status_from_being_rebuilt_as_the_others_have_it() -> None:
    w = World({f"n{i}": node(f"n{i}") for i in range(3)})
    w.apply("one", spec(3))
    w.settle()
    before = w.status("one")
    w.amend("one", start=None)
    lie(w, {2: 1})
    plan = decide(w.snapshot("one"), w.tunables, w.now)
    assert plan.status is not None
    assert (plan.status.attempt, plan.status.start) == (before.attempt, before.start)
    assert not is_true(plan.status, "StateRegression")


def test_what_most_ranks_were_started_with_is_believed_over_status() -> None:
    w = World({f"n{i}": node(f"n{i}") for i in range(3)})
    w.apply("one", spec(3))
    w.settle()
    lie(w, {0: 1, 1: 1})
    plan = decide(w.snapshot("one"), w.tunables, w.now)
    assert plan.status is not None
    assert plan.status.start is not None
    assert plan.status.start.attempt == 99


def on_hold_with_ranks_that_listen() -> World:
    """Everybody trains, and somebody's pod in the gang's name is bound in a slot that it does not have."""
    w = gang_that_saves(2, 1)
    w.saves_succeed = False
    first = next(iter(w.pods.values()))
    w.pods["stray"] = replace(first, name="stray", uid="stray", slot=5, node="n2")
    w.settle()
    assert is_held(w)
    return w


@pytest.mark.parametrize("wish", [{"cancel": True}, {"suspend": True}])
def test_a_stop_on_hold_waits_for_its_save_no_longer_than_any_other(wish: dict[str, bool]) -> None:
    w = on_hold_with_ranks_that_listen()
    w.apply("one", spec(2, **wish))
    w.pass_time(900, step=20)
    save = w.status("one").checkpoint.save
    assert save is not None
    assert save.outcome
    assert phase(w) in (Phase.FINISHED, Phase.SUSPENDED)


def test_the_end_of_a_hold_lets_the_ranks_save_first() -> None:
    w = on_hold_with_ranks_that_listen()
    w.saves_succeed = True
    w.pass_time(LONGEST_HOLD + 120, step=20)
    save = w.status("one").checkpoint.save
    assert save is not None
    assert save.outcome == "Saved"


def test_a_new_leader_hears_the_workers_before_it_ends_a_hold() -> None:
    w = gang_that_saves(2, 1)
    w.work_reports_only()
    w.wipe_status("one")
    w.crash()
    w.reconcile("one")
    w.now += LONGEST_HOLD + 60
    w.crash()
    w.reconcile("one")
    assert w.status("one").stop is None
    w.work()
    w.reconcile("one")
    assert not is_held(w)


def paused() -> World:
    w = training()
    w.annotate("one", paused="true")
    w.settle()
    assert w.status("one").reason == "Paused"
    return w


@pytest.mark.parametrize("order", ORDERS)
def test_a_paused_gang_obeys(order: Callable[[World], None]) -> None:
    w = paused()
    order(w)
    assert stopped(w, 450)
    w.pass_time(60, step=10)
    if order is preempt:
        assert w.status("urgent").start is not None
    if phase(w) is not Phase.FINISHED:
        assert not w.pods or order is preempt, "it gets no nodes again while it is paused"
        assert not w.status("one").assignment.nodes


def test_a_paused_gang_saves_before_it_stops() -> None:
    w = gang_that_saves(2, 1)
    w.annotate("one", paused="true")
    w.settle()
    w.apply("one", spec(2, suspend=True))
    w.pass_time(30)
    save = w.status("one").checkpoint.save
    assert save is not None
    assert save.outcome == "Saved"
    assert phase(w) is Phase.SUSPENDED


def test_a_paused_run_that_is_deleted_gives_its_nodes_back() -> None:
    w = paused()
    w.runs["one"] = replace(w.runs["one"], deleting=True)
    assert stopped(w, 60)


def test_nothing_is_done_for_a_paused_gang_until_the_pause_is_over() -> None:
    w = paused()
    w.nodes["n2"] = node("n2")
    names, before = set(w.pods), w.status("one")
    w.exit_child("one", 0, 1)
    w.lose_node("n1")
    del w.nodes["n1"]
    w.pass_time(300, step=10)
    after = w.status("one")
    assert set(w.pods) == names
    assert (after.attempt, after.assignment, after.start) == (before.attempt, before.assignment, before.start)
    assert not w.reconcile("one").events
    w.annotate("one", paused="false")
    w.pass_time(120, step=5)
    assert phase(w) is Phase.RUNNING
    assert w.status("one").attempt > before.attempt
    assert w.status("one").assignment.nodes == ("n0", "n2")


def test_a_paused_gang_is_charged_for_its_nodes() -> None:
    w = paused()
    w.pass_time(3_600, step=60)
    assert float(w.status("one").goodput.gpu_hours) > 14


def test_a_paused_gang_that_comes_to_its_end_has_succeeded_and_is_kept() -> None:
    w = paused()
    w.apply("one", spec(2, ttlAfterFinished="10s", **CLASS))
    for rank in (0, 1):
        w.exit_child("one", rank, 0)
    w.pass_time(600, step=10)
    assert w.status("one").state == "Succeeded"
    assert all(pod.is_terminal for pod in w.pods.values())
    assert "one" in w.runs
    w.annotate("one", paused="false")
    w.pass_time(10)
    assert "one" not in w.runs


def test_a_paused_run_that_waits_gets_no_nodes_and_can_be_cancelled() -> None:
    w = World({"n0": node("n0")})
    w.apply("one", spec(1))
    w.annotate("one", paused="true")
    w.pass_time(60, step=10)
    assert not w.pods
    w.apply("one", spec(1, cancel=True))
    w.pass_time(10)
    assert phase(w) is Phase.FINISHED


def test_a_vacant_slot_of_a_paused_gang_is_not_filled() -> None:
    w = training()
    w.lose_node("n1")
    del w.nodes["n1"]
    w.pass_time(60, step=5)
    assert slots.lacking(w.status("one").assignment)
    w.annotate("one", paused="true")
    w.nodes["n2"] = node("n2")
    w.pass_time(60, step=5)
    assert slots.lacking(w.status("one").assignment)
    w.annotate("one", paused="false")
    w.pass_time(60, step=5)
    assert not slots.lacking(w.status("one").assignment)


def unreadable(w: World) -> World:
    """Its user has put something into the template that nobody can read."""
    view = w.runs["one"]
    w.runs["one"] = replace(view, spec_error="spec.podTemplate: is nested too deeply", generation=view.generation + 1)
    w.settle()
    told = find(w.status("one"), "Accepted")
    assert told is not None
    assert (told.status, told.message) == ("False", "spec.podTemplate: is nested too deeply")
    assert phase(w) is Phase.RUNNING
    return w


@pytest.mark.parametrize("order", ORDERS)
def test_a_gang_of_whose_spec_a_part_cannot_be_read_obeys(order: Callable[[World], None]) -> None:
    w = unreadable(training())
    order(w)
    assert stopped(w, 450)
    w.pass_time(60, step=10)
    assert not w.status("one").assignment.nodes or phase(w) is Phase.FINISHED, "it is admitted no more"
    if order is preempt:
        assert w.status("urgent").start is not None


@pytest.mark.parametrize(("order", "doubt"), [(suspend, DOUBTS[0]), (drain, DOUBTS[1]), (cancel, DOUBTS[2])])
def test_so_it_does_on_hold(order: Callable[[World], None], doubt: Callable[[World], None]) -> None:
    w = unreadable(training())
    doubt(w)
    w.reconcile("one")
    order(w)
    assert stopped(w, 450)


def test_a_gang_goes_on_while_its_spec_cannot_be_read_and_is_mended_once_it_can() -> None:
    w = unreadable(training())
    names, before = set(w.pods), w.status("one").assignment
    w.pass_time(1_800, step=30)
    assert (set(w.pods), w.status("one").assignment) == (names, before)
    w.exit_child("one", 0, 1)
    w.pass_time(60, step=5)
    assert w.status("one").attempt == 1
    w.runs["one"] = replace(w.runs["one"], spec_error="")
    w.pass_time(60, step=5)
    assert (w.status("one").attempt, phase(w)) == (2, Phase.RUNNING)


def test_a_launch_that_cannot_go_on_as_its_spec_cannot_be_read_gives_its_nodes_back_after_a_while() -> None:
    w = World({f"n{i}": node(f"n{i}") for i in range(2)}, silent_nodes={"n1"})
    w.apply("one", spec(2))
    w.settle()
    assert phase(w) is Phase.LAUNCHING
    view = w.runs["one"]
    w.runs["one"] = replace(view, spec_error="spec.podTemplate: is nested too deeply", generation=view.generation + 1)
    w.pass_time(LONGEST_HOLD - 30, step=30)
    assert w.status("one").assignment.nodes
    w.silent_nodes.clear()
    w.pass_time(120, step=10)
    assert not w.status("one").assignment.nodes
    assert not w.pods
    version = w.version
    w.pass_time(600, step=60)
    assert w.version == version, "it waits for its spec"
    w.runs["one"] = replace(w.runs["one"], spec_error="", generation=view.generation + 2)
    w.pass_time(120, step=10)
    assert phase(w) is Phase.RUNNING


@pytest.mark.parametrize("doubt", [None, *DOUBTS])
def test_a_gang_of_whose_spec_nothing_can_be_read_gives_its_nodes_back_after_a_while(
    doubt: Callable[[World], None] | None,
) -> None:
    w = training()
    w.runs["one"] = replace(w.runs["one"], spec=None, spec_error="spec: is no text")
    if doubt is not None:
        doubt(w)
    w.settle()
    names = set(w.pods)
    w.pass_time(LONGEST_HOLD - 30, step=10)
    assert set(w.pods) == names
    assert stopped(w, 450)
    w.pass_time(20, step=10)
    let_forged_pods_end(w)
    w.pass_time(20, step=10)
    assert not w.status("one").assignment.nodes


def test_a_paused_gang_has_its_time_again_once_its_spec_could_be_read() -> None:
    w = training()
    w.annotate("one", paused="true")
    readable = w.runs["one"]
    w.runs["one"] = replace(readable, spec=None, spec_error="spec: is no text", generation=2)
    w.pass_time(LONGEST_HOLD - 60, step=30)
    w.runs["one"] = replace(w.runs["one"], spec=readable.spec, spec_error="", generation=3)
    w.pass_time(120, step=30)
    w.runs["one"] = replace(w.runs["one"], spec=None, spec_error="spec: is no text", generation=4)
    w.pass_time(LONGEST_HOLD - 60, step=30)
    assert w.status("one").assignment.nodes
    assert stopped(w, 450)


def test_one_that_is_told_to_make_room_does_so_at_once() -> None:
    w = training()
    w.apply("urgent", spec(2, priorityClassName="high"))
    for _ in range(3):
        w.reconcile("urgent")
        w.admit()
    assert w.status("one").preemption is not None
    w.runs["one"] = replace(w.runs["one"], spec=None, spec_error="spec: is no text")
    assert stopped(w, 450)


def test_a_run_whose_status_is_gone_and_of_which_a_failed_pod_is_left_queues_again_and_starts() -> None:
    w = training()
    for rank in (0, 1):
        w.fail_pod("one", rank)
    w.reports.clear()
    w.workers.clear()
    w.wipe_status("one")
    w.reconcile("one")
    assert is_held(w)
    left = set(w.pods)
    w.pass_time(LONGEST_HOLD - 30, step=10)
    assert is_held(w)
    assert set(w.pods) == left
    w.pass_time(120, step=10)
    assert not is_held(w)
    assert phase(w) is Phase.RUNNING
    assert all(pod.incarnation == 2 for pod in w.pods.values() if not pod.is_terminal)


@pytest.mark.parametrize("mode", ["Auto", "Fresh"])
@pytest.mark.parametrize("alive", [True, False], ids=["one pod is left", "its pods have failed"])
def test_a_run_whose_status_is_gone_takes_what_it_saved_in_the_one_directory_for_its_own(
    mode: str, alive: bool
) -> None:
    w = World({f"n{i}": node(f"n{i}") for i in range(2)})
    start = {"mode": mode}
    w.apply("one", spec(2, checkpoint={"shared": {"claimName": "lustre"}, "layout": "Shared", "start": start}))
    w.settle()
    w.foreign = (
        CheckpointReport("shared", 50, "/shared-checkpoints/ns/one/step-50", Verdict.VALID, "", format="TorchDCP"),
    )
    if alive:  # and stopped in the end, as a pod is gone; with the status the number of the attempt is lost
        w.starts.clear()
        del w.pods[next(name for name, pod in w.pods.items() if pod.slot == 1)]
    else:
        for rank in (0, 1):
            w.fail_pod("one", rank)
        w.reports.clear()
        w.workers.clear()
    w.wipe_status("one")
    w.pass_time(2 * LONGEST_HOLD, step=10)
    begun = w.status("one").start
    assert begun is not None
    assert begun.resume is not None
    assert begun.resume.step == 50


def test_one_whose_pods_have_all_ended_well_waits_for_a_person() -> None:
    w = training()
    for rank in (0, 1):
        w.end_pod("one", rank, 0)
    w.reports.clear()
    w.workers.clear()
    w.wipe_status("one")
    w.pass_time(2 * LONGEST_HOLD, step=30)
    assert is_held(w)
