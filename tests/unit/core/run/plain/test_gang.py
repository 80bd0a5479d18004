"""Gangs without workers: START before the first pod, attempts one after the other, whole or not at all."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.api.base import names
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import CreatePod
from lockstep.core.model.snapshot import PodPhase, PodView, Taint
from lockstep.core.run.plain.recovery import PEERS_TELL
from support.examples import examples
from support.world import World, node, phase, spec


def world(nodes: int = 4) -> World:
    return World({name: node(name) for name in (f"n{index}" for index in range(1, nodes + 1))})


def plain(nodes: int = 2, **fields: object) -> TrainingRunSpec:
    return spec(nodes, worker="Disabled", **fields)


def running(nodes: int = 2, of: int = 4, **fields: object) -> World:
    w = world(of)
    w.roll_out("one", plain(nodes, **fields))
    assert phase(w) is Phase.RUNNING
    return w


def live(w: World) -> list[PodView]:
    return [pod for pod in w.pods.values() if not pod.is_terminal]


def attempts_alive(w: World) -> set[int]:
    return {pod.attempt for pod in live(w)}


def condition(w: World, kind: str) -> tuple[str, str, str]:
    found = next(c for c in w.status("one").conditions if c.type == kind)
    return found.status, found.reason, found.message


def environment(pod: CreatePod) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in pod.body["spec"]["containers"][0]["env"]}


def test_start_is_written_with_the_pods_and_never_after_them() -> None:
    w = world()
    w.apply("one", plain())
    for _ in range(10):
        before = w.status("one")
        plan = w.reconcile("one", crash_after=1)  # the first write, and nothing that comes after it
        start = (plan.status or before).start
        assert not plan.creates or (start is not None and start.attempt == 1)
        assert not w.pods or before.start is not None, "a pod was made in the write that START was to be in"
        w.admit()
    assert w.status("one").start is not None
    w.settle()
    assert {pod.attempt for pod in w.pods.values()} == {1}
    assert w.status("one").totals.attempts == 1


def test_every_pod_is_told_the_same_rendezvous_and_its_own_rank() -> None:
    w = world()
    w.apply("one", plain())
    created: list[CreatePod] = []
    for _ in range(8):
        created += w.reconcile("one").creates
        w.admit()
    start = w.status("one").start
    assert start is not None
    first, second = (environment(pod) for pod in created)
    assert (first["LOCKSTEP_NODE_RANK"], second["LOCKSTEP_NODE_RANK"]) == ("0", "1")
    for told in (first, second):
        assert told["LOCKSTEP_MASTER_ADDR"] == told["MASTER_ADDR"] == start.master_address == "10.0.0.1"
        assert int(told["LOCKSTEP_MASTER_PORT"]) == start.master_port
        assert told["LOCKSTEP_NODELIST"] == "10.0.0.1,10.0.0.2"
        assert (told["LOCKSTEP_ATTEMPT"], told["LOCKSTEP_NNODES"]) == ("1", "2")
    assert 20_000 <= start.master_port < 30_000
    assert start.master_port != names.NODE_MUTEX_PORT


def test_it_is_ready_when_all_pods_run_and_says_that_there_is_no_barrier() -> None:
    w = running()
    status, reason, message = condition(w, "GangReady")
    assert (status, reason) == ("True", "Started")
    assert "no barrier" in message
    assert condition(w, "Progressing")[:2] == ("Unknown", "StepsUnknown")
    assert w.status("one").state == "Running"


def test_while_a_pod_is_not_up_it_is_not_called_running() -> None:
    w = world()
    w.silent_nodes.add("n2")
    w.apply("one", plain())
    w.pass_time(5.0)
    assert condition(w, "GangReady")[:2] == ("False", "PodsStarting")
    assert (w.status("one").state, w.status("one").nodes_ready) == ("Launching", "1/2")


def test_with_all_programs_ended_well_the_run_has_succeeded_even_if_pods_were_collected() -> None:
    w = running()
    w.end_pod("one", 0, 0)
    w.settle()
    for name, pod in list(w.pods.items()):
        if pod.slot == 0:
            del w.pods[name]
    w.settle()
    assert phase(w) is Phase.RUNNING
    w.end_pod("one", 1, 0)
    w.settle()
    assert condition(w, "Succeeded")[0] == "True"
    assert w.status("one").attempt == 1


def test_a_failed_program_replaces_the_whole_gang_once_every_old_pod_is_gone() -> None:
    w = running()
    node_of_1 = next(pod.node for pod in w.pods.values() if pod.slot == 1)
    w.silent_nodes.add(node_of_1)  # its kubelet takes its time
    w.end_pod("one", 0, 1, message="RuntimeError: bad luck")
    w.pass_time(PEERS_TELL)
    assert phase(w) is Phase.RECOVERING
    assert [pod.slot for pod in live(w)] == [1]
    assert "waits for pods of earlier attempts" in condition(w, "GangReady")[2]
    w.silent_nodes.clear()
    w.settle()
    assert phase(w) is Phase.RUNNING
    assert attempts_alive(w) == {2}
    assert w.status("one").assignment.incarnations == (2, 2)
    first = w.status("one").attempts[0]
    assert (first.cause, first.rank, first.exit_code, first.action) == ("Application", 0, 1, "ReplaceGang")
    assert first.charged
    assert w.status("one").totals.restarts_in_place == 0


def test_an_end_that_is_heard_of_later_may_have_come_first() -> None:
    w = running()
    w.end_pod("one", 0, 1, message="ConnectionError: peer 1 hung up")
    w.settle()
    assert phase(w) is Phase.RUNNING
    w.end_pod("one", 1, 1, message="RuntimeError: bad luck")
    pod = next(pod for pod in w.pods.values() if pod.slot == 1)
    w.pods[pod.name] = replace(pod, ended_at=w.now - 2.0)
    w.settle()
    first = w.status("one").attempts[0]
    assert (first.rank, first.message.count("bad luck")) == (1, 1)


def test_ends_within_a_second_cannot_be_told_apart() -> None:
    w = running()
    w.end_pod("one", 1, 1)
    w.now += 0.9
    w.end_pod("one", 0, 1)
    w.settle()
    assert "cannot be told" in w.status("one").attempts[0].message


def test_a_deleted_node_does_not_have_to_confirm_the_end_of_its_pods() -> None:
    w = running()
    lost = next(pod.node for pod in w.pods.values() if pod.slot == 1)
    del w.nodes[lost]
    w.settle()
    status = w.status("one")
    assert phase(w) is Phase.RUNNING
    assert status.attempt == 2
    assert lost not in status.assignment.nodes
    assert status.attempts[0].cause == "NodeLost"
    assert not status.attempts[0].charged


def test_a_node_that_is_not_ready_is_lost_only_after_long_and_holds_the_next_attempt_until_given_up() -> None:
    w = running()
    lost = next(pod.node for pod in w.pods.values() if pod.slot == 1)
    w.silent_nodes.add(lost)
    w.node_not_ready(lost)
    w.pass_time(290.0, 10.0)
    assert w.status("one").attempt == 1
    w.pass_time(30.0, 10.0)
    assert w.status("one").attempt == 2
    assert phase(w) is Phase.RECOVERING, "its pod may run on"
    assert "delete the node" in condition(w, "GangReady")[2]
    w.nodes[lost] = replace(w.nodes[lost], taints=(Taint(names.TAINT_OUT_OF_SERVICE, "NoExecute"),))
    w.settle()
    assert phase(w) is Phase.RUNNING
    assert lost not in w.status("one").assignment.nodes


def test_a_node_that_comes_back_in_time_disturbs_nobody() -> None:
    w = running()
    w.node_not_ready("n1")
    w.pass_time(200.0, 10.0)
    w.node_not_ready("n1", True)
    w.pass_time(400.0, 10.0)
    assert w.status("one").attempt == 1


def test_a_pod_that_somebody_deletes_is_no_failure_of_the_program() -> None:
    w = running()
    name = next(pod.name for pod in w.pods.values() if pod.slot == 1)
    w.pods[name] = replace(w.pods[name], deleting=True)
    w.settle()
    status = w.status("one")
    assert phase(w) is Phase.RUNNING
    assert status.attempt == 2
    assert attempts_alive(w) == {2}
    assert not status.attempts[0].charged


class Stubborn(World):
    """Pods do not end before the grace of their template is over."""

    grace = 0

    def _delete(self, pod: PodView) -> None:
        self.pods[pod.name] = replace(pod, deleting=True, killed_at=self.now + self.grace)


@pytest.mark.parametrize(("own", "graces"), [(1200, [None] * 2), (10**8, [None] * 2 + [3600] * 2)])
def test_pods_have_the_grace_of_their_template_to_save_and_no_more_than_an_hour(
    own: int, graces: list[int | None]
) -> None:
    w = Stubborn({name: node(name) for name in ("n1", "n2")})
    w.grace = own
    w.roll_out("one", plain())
    w.apply("one", plain(suspend=True))
    found: list[int | None] = []
    for _ in range(8):
        plan = w.reconcile("one")
        found += [gone.grace for gone in plan.deletes]
        for gone in plan.deletes:
            if gone.grace is not None:
                w.pods[gone.name] = replace(w.pods[gone.name], killed_at=w.now + gone.grace)
        w.now += w.tunables.deadlines.stop / 2
    assert found == graces


@pytest.mark.parametrize("spec", [{"timeLimit": "1h"}, {"budget": {"gpuHours": 2, "action": "Stop"}}])
def test_pods_have_that_grace_at_a_limit_too(spec: dict[str, object]) -> None:
    w = Stubborn({name: node(name) for name in ("n1", "n2")})
    w.grace = 1200
    template = {"spec": {"terminationGracePeriodSeconds": 1200}}
    w.roll_out("one", plain(gpusPerNode=1, podTemplate=template, **spec))
    found: list[int | None] = []
    for _ in range(120):
        w.now += 60
        found += [gone.grace for gone in w.reconcile("one").deletes]
        deleting = [pod for pod in w.pods.values() if pod.deleting]
        if deleting and w.now > deleting[0].killed_at - 60:
            break
    assert phase(w) is Phase.FINISHED
    assert [grace is None or grace > 1100 for grace in found] == [True, True]


def test_a_pod_that_vanishes_after_all_were_seen_is_not_made_again_within_the_attempt() -> None:
    w = running()
    name = next(pod.name for pod in w.pods.values() if pod.slot == 1)
    del w.pods[name]
    w.settle()
    assert w.status("one").attempt == 2
    assert name not in w.pods


@pytest.mark.slow
def test_short_attempts_count_towards_the_limit_and_long_ones_do_not() -> None:
    w = running()
    for _ in range(5):
        w.pass_time(1000.0, 100.0)
        w.end_pod("one", 0, 1, message="RuntimeError: now and then")
        w.settle()
        w.pass_time(5.0)
        assert phase(w) is Phase.RUNNING
    for _ in range(4):
        w.end_pod("one", 0, 1)
        w.pass_time(400.0, 20.0)
    assert condition(w, "Finished")[:2] == ("True", "NoProgress")
    assert not live(w)


def test_without_a_checkpoint_tier_a_failing_program_ends_the_run_unless_a_node_turns_out_to_be_the_cause() -> None:
    w = running(checkpoint=None)
    w.end_pod("one", 0, 1)
    w.settle()
    assert phase(w) is Phase.RUNNING, "a machine that died just now is not known yet"
    w.pass_time(61.0, 5.0)
    assert condition(w, "Finished")[:2] == ("True", "ProcessFailed")
    w = running(checkpoint=None)
    lost = next(pod.node for pod in w.pods.values() if pod.slot == 1)
    w.end_pod("one", 0, 1)
    w.pass_time(10.0, 5.0)
    del w.nodes[lost]
    w.settle()
    assert w.status("one").attempts[0].cause == "NodeLost"
    assert phase(w) is Phase.RUNNING
    assert w.status("one").attempt == 2


def test_a_command_that_does_not_exist_is_not_tried_again() -> None:
    w = running()
    words = 'exec: "trian.py": executable file not found in $PATH'
    for rank in (0, 1):
        w.end_pod("one", rank, 128, reason="StartError", message=words)
    w.settle()
    assert condition(w, "Finished")[:2] == ("True", "CommandNotFound")


def test_an_eviction_is_free_of_charge() -> None:
    w = running()
    pod = next(pod for pod in w.pods.values() if pod.slot == 0)
    w.pods[pod.name] = replace(pod, phase=PodPhase.FAILED, reason="Evicted", disruption="EvictionByEvictionAPI")
    w.settle()
    first = w.status("one").attempts[0]
    assert (first.cause, first.charged) == ("Disruption", False)
    assert phase(w) is Phase.RUNNING
    assert attempts_alive(w) == {2}


def test_a_pod_that_does_not_come_up_in_time_ends_the_attempt() -> None:
    w = world()
    w.silent_nodes.add("n2")
    w.roll_out("one", plain())
    name = next(pod.name for pod in w.pods.values() if pod.slot == 1)
    w.pods[name] = replace(w.pods[name], reason="Unschedulable", message="no port")
    w.pass_time(70.0, 5.0)
    status = w.status("one")
    assert status.attempts[0].cause == "LaunchDeadline"
    assert phase(w) is Phase.RUNNING
    assert "n2" not in status.assignment.nodes
    assert attempts_alive(w) == {status.attempt}


def test_a_few_pods_that_do_not_come_up_do_not_cost_the_gang_its_nodes() -> None:
    w = world(8)
    w.silent_nodes |= {"n2", "n3"}
    w.roll_out("one", plain(8))
    for name, pod in w.pods.items():
        if pod.node in w.silent_nodes:
            w.pods[name] = replace(pod, bound=True, reason="ImagePullBackOff", message="no such image")
    w.pass_time(1000.0, 20.0)
    status = w.status("one")
    assert (status.stop, status.attempt, status.attempts[0].cause) == (None, 2, "LaunchDeadline")
    assert {(loss.node, loss.count) for loss in status.recovery.slot_losses} == {("n2", 1), ("n3", 1)}


@pytest.mark.parametrize("change", [{"suspend": True}, {"cancel": True}])
def test_a_stop_ends_the_pods_with_their_own_grace_and_gives_the_nodes_back(change: dict[str, bool]) -> None:
    w = running()
    w.apply("one", plain(**change))
    plan = w.reconcile("one")
    w.reconcile("one")
    assert [delete.grace for delete in plan.deletes] in ([], [None, None])
    w.settle()
    assert not live(w)
    assert phase(w) in (Phase.SUSPENDED, Phase.FINISHED)
    if "suspend" in change:
        w.roll_out("one", plain())
        assert phase(w) is Phase.RUNNING
        assert attempts_alive(w) == {w.status("one").attempt}
        assert w.status("one").attempt == 2


def test_a_restart_on_request_replaces_every_pod() -> None:
    w = running()
    w.request("one", restart_request="now")
    assert phase(w) is Phase.RUNNING
    assert attempts_alive(w) == {2}
    assert w.status("one").assignment.incarnations == (2, 2)


def test_a_drained_node_is_left_by_the_whole_gang() -> None:
    w = running()
    w.drain("n1")
    w.settle()
    status = w.status("one")
    assert phase(w) is Phase.RUNNING
    assert "n1" not in status.assignment.nodes
    assert attempts_alive(w) == {2}
    assert not status.attempts[0].charged


def test_a_changed_size_takes_the_gang_through_the_queue() -> None:
    w = running()
    w.apply("one", plain(3))
    w.pass_time(120.0, 10.0)
    assert phase(w) is Phase.RUNNING
    assert len(live(w)) == 3
    assert len(attempts_alive(w)) == 1


def test_a_lost_status_is_rebuilt_with_attempt_and_incarnations_as_they_run() -> None:
    w = running()
    w.end_pod("one", 0, 1)
    w.pass_time(PEERS_TELL)
    assert attempts_alive(w) == {2}
    pods = set(w.pods)
    w.wipe_status("one")
    w.crash()
    w.settle()
    status = w.status("one")
    assert phase(w) is Phase.RUNNING
    assert (status.attempt, status.assignment.incarnations) == (2, (2, 2))
    assert status.start is not None
    assert status.start.master_address == "10.0.0.1"
    assert {pod.name for pod in live(w)} <= pods
    w.end_pod("one", 1, 1)
    w.pass_time(60.0, 5.0)
    assert attempts_alive(w) == {3}


def test_pods_that_may_have_been_made_unseen_are_waited_for() -> None:
    w = world()
    w.apply("one", plain())
    while w.status("one").start is None:
        w.reconcile("one", crash_after=2)  # the status and the first pod
        w.admit()
    w.dry_runs.clear()
    pod = next(iter(w.pods.values()))
    w.pods[pod.name] = replace(pod, bound=True, started_at=w.now, phase=PodPhase.FAILED, exit_code=1, ended_at=w.now)
    w.now += PEERS_TELL
    w.reconcile("one", crash_after=1)
    assert w.status("one").attempt == 2
    w.settle()
    assert phase(w) is Phase.RECOVERING
    assert "may yet appear" in condition(w, "GangReady")[2]
    w.pass_time(61.0, 5.0)
    assert phase(w) is Phase.RUNNING


@pytest.mark.slow
@pytest.mark.parametrize("crash_after", range(6))
def test_wherever_the_operator_dies_no_two_attempts_are_alive_together(crash_after: int) -> None:
    w = world()
    w.apply("one", plain(3))
    for turn in range(40):
        w.reconcile("one", crash_after=crash_after if turn % 3 == 0 else None)
        w.admit()
        if turn % 2:
            w.kubelets()
        if turn in (12, 24) and phase(w) is Phase.RUNNING:
            w.end_pod("one", turn // 12, 1)
        assert len(attempts_alive(w)) <= 1
        start = w.status("one").start
        assert not w.pods or start is not None or w.status("one").attempt > 1
        w.now += 1.0
    w.pass_time(120.0, 10.0)
    assert phase(w) is Phase.RUNNING
    assert attempts_alive(w) == {w.status("one").attempt}


MISHAPS = (
    "fail",
    "succeed",
    "delete",
    "vanish",
    "evict",
    "node gone",
    "not ready",
    "back",
    "drain",
    "restart",
    "crash",
)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(MISHAPS), st.integers(0, 2), st.integers(0, 5), st.sampled_from([0.0, 5.0, 400.0])),
        max_size=8,
    )
)
def test_whatever_happens_an_attempt_is_alone_and_no_pod_is_used_twice(
    history: list[tuple[str, int, int, float]],
) -> None:
    w = world(6)
    w.apply("one", plain(3, recovery={"noProgressLimit": 1000}))
    made: dict[tuple[int, int], str] = {}
    attempt = 0

    def look() -> None:
        nonlocal attempt
        heard = [pod for pod in live(w) if pod.node in w.nodes]
        assert len({pod.attempt for pod in heard}) <= 1
        for pod in w.pods.values():
            assert made.setdefault((pod.slot, pod.attempt), pod.name) == pod.name
        assert w.status("one").attempt >= attempt
        attempt = w.status("one").attempt

    def turn(crash_after: int | None = None) -> None:
        w.reconcile("one", crash_after=crash_after)
        look()
        w.admit()
        w.kubelets()
        look()

    for what, index, crash_after, passes in history:
        for _ in range(4):
            turn()
        mine = sorted((pod for pod in live(w) if pod.slot == index and pod.bound), key=lambda pod: pod.incarnation)
        name = f"n{index + 1}"
        if what == "crash":
            turn(crash_after)
        elif what in ("fail", "succeed") and mine and phase(w) is Phase.RUNNING:
            w.end_pod("one", index, int(what == "fail"))
        elif what == "delete" and mine:
            w.pods[mine[-1].name] = replace(mine[-1], deleting=True)
        elif what == "vanish" and mine and len(live(w)) == 3:
            del w.pods[mine[-1].name]
        elif what == "evict" and mine:
            w.pods[mine[-1].name] = replace(mine[-1], phase=PodPhase.FAILED, reason="Evicted", disruption="Eviction")
        elif what == "node gone":
            w.nodes.pop(name, None)
        elif what == "not ready" and name in w.nodes:
            w.silent_nodes.add(name)
            w.node_not_ready(name)
        elif what == "back" and name in w.nodes:
            w.silent_nodes.discard(name)
            w.node_not_ready(name, True)
        elif what == "drain" and name in w.nodes:
            w.drain(name)
        elif what == "restart":
            w.annotate("one", restart_request=str(w.version))
        turn(crash_after)
        w.now += passes
        turn()
    for name in list(w.silent_nodes & set(w.nodes)):
        w.silent_nodes.discard(name)
        w.node_not_ready(name, True)
    for name in ("n7", "n8", "n9"):
        w.nodes[name] = node(name)
    for _ in range(60):
        turn()
        w.now += 20.0
    assert phase(w) in (Phase.RUNNING, Phase.FINISHED)
