"""Gangs without workers: START before the first pod, attempts one after the other, whole or not at all."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.api.base import names
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import CreatePod
from lockstep.core.model.snapshot import PodPhase
from lockstep.core.run.plain.recovery import PEERS_TELL
from support.examples import examples
from support.plain_gangs import attempts_alive, condition, live, plain, running, world
from support.world import node, phase


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
