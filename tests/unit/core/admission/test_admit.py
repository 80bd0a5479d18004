"""Who gets nodes: whole gangs, in order, never a node twice, and a reason for everybody else."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import ExcludedNode, RecoveryStatus
from lockstep.api.run_status import AssignmentStatus, QueueStatus, StopStatus, TrainingRunStatus
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.ledger import Ledger
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.assignment import advanced, assigned, released, vacated
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot, PodPhase, PodView, RunView
from lockstep.core.model.tunables import Mode, Tunables
from support.admission import ACCEPTED, FINISHED, NOW, after, held, node, pod, reason, run, statuses, world

# --- Admission -------------------------------------------------------------------------------------------


def test_a_run_gets_its_whole_gang_an_attempt_and_what_its_spec_left_open() -> None:
    foreign = {"n0": {"cpu": 200, "memory": 2**30 + 5}}
    plan = admit(world([run("a", 2)], foreign=foreign), Tunables(), NOW)
    (write,) = plan.writes
    status = write.status
    assert write.nodes == {"n0", "n1"}
    assert write.resource_version == "7"
    assert status.attempt == 1
    assert status.assignment.nodes == ("n0", "n1")
    assert status.assignment.incarnations == (1, 1)
    resolved = status.resolved
    assert (resolved.generation, resolved.nodes, resolved.gpus_per_node) == (1, 2, 8)
    assert (resolved.cpu, resolved.memory) == ("191", "2046Gi")
    assert resolved.template_hash
    assert write.events[0].note == "2 nodes, rank 0 on n0; nodes by rack: r1 2"


def test_what_the_spec_asks_is_resolved_as_asked() -> None:
    asks = {"gpusPerNode": 4, "resourcesPerNode": {"cpu": "10", "memory": "64Gi", "rdma/hca": 2}}
    rich = {"cpu": 192_000, "memory": 2**41, "nvidia.com/gpu": 8, "rdma/hca": 8}
    plan = admit(world([run("a", 1, **asks)], [node("n", allocatable=rich)]), Tunables(), NOW)
    resolved = statuses(plan)["a"].resolved
    assert (resolved.cpu, resolved.memory, resolved.gpus_per_node) == ("10", "64Gi", 4)
    assert resolved.resources == {"rdma/hca": "2"}


def test_sidecars_of_the_pod_template_are_counted() -> None:
    sidecar = {"name": "logs", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4", "memory": "1Gi"}}}
    view = run("a", 1, podTemplate={"spec": {"containers": [sidecar]}})
    resolved = statuses(admit(world([view]), Tunables(), NOW))["a"].resolved
    assert (resolved.cpu, resolved.memory) == ("190", "2047Gi")


def test_an_amount_of_a_sidecar_may_be_a_bare_number() -> None:
    sidecar = {"name": "logs", "resources": {"requests": {"cpu": 0.5, "memory": 1073741824}}}
    view = run("a", 1, podTemplate={"spec": {"containers": [sidecar]}})
    resolved = statuses(admit(world([view]), Tunables(), NOW))["a"].resolved
    assert (resolved.cpu, resolved.memory) == ("191", "2047Gi")


@pytest.mark.parametrize("amount", ["1e900", "9" * 200, 1e300])
def test_a_run_that_asks_for_more_than_there_can_be_holds_up_nobody_else(amount: Any) -> None:
    sidecar = {"name": "logs", "resources": {"requests": {"cpu": amount, "memory": amount}}}
    greedy = run("greedy", 1, podTemplate={"spec": {"containers": [sidecar]}})
    also = run("also", 1, resourcesPerNode={"cpu": str(amount), "memory": str(amount)})
    told = statuses(admit(world([greedy, also, run("modest", 1)]), Tunables(), NOW))
    assert told["modest"].assignment.nodes
    for name in ("greedy", "also"):
        assert "short of" in told[name].queue.message


@pytest.mark.parametrize("ages", ["9" * 22 + "d", "3000000d"])
def test_a_time_limit_of_ages_can_be_written_down_and_is_told_to_those_behind_once(ages: str) -> None:
    first = run("first", 4, timeLimit=ages, notBefore="9999-12-31T23:59:59-23:00")
    holder = run("holder", 4, status=held("n0", "n1", "n2", "n3"), timeLimit=ages)
    snapshot = world([first, holder, *(run(f"later-{place}", 4, at=place + 1, timeLimit=ages) for place in range(3))])
    plan = admit(snapshot, Tunables(), NOW)
    written = {name: TrainingRunStatus.model_validate(status.dump()) for name, status in statuses(plan).items()}
    assert {"first", "later-0", "later-1", "later-2"} <= written.keys()
    read = tuple(replace(view, status=written.get(view.name, view.status)) for view in snapshot.runs)
    assert not admit(replace(snapshot, runs=read), Tunables(), NOW).writes


def test_a_run_that_cannot_fit_whole_gets_no_node_and_says_what_lacks() -> None:
    plan = admit(
        world([run("a", 4)], [*(node(f"n{i}") for i in range(3)), node("n3", unschedulable=True)]), Tunables(), NOW
    )
    status = statuses(plan)["a"]
    assert not status.assignment.nodes
    assert status.attempt == 0
    assert (status.queue.position, status.queue.reason) == (1, "Resources")
    assert status.queue.message == "needs 4 nodes, 3 fit: 1 cordoned (n3)"


def test_the_first_that_lacks_nodes_is_delayed_by_nobody_who_comes_later() -> None:
    snapshot = world(
        [run("head", 4, at=1), run("small", 1, at=2), run("short", 1, at=3, queue="q2", timeLimit="5m")],
        [*(node(f"n{i}") for i in range(3)), node("n3", ready=False, ready_changed_at=NOW)],
        queues={"q2": {}},
    )
    plan = admit(snapshot, Tunables(), NOW)
    assert reason(plan, "head") == (1, "Resources")
    small = statuses(plan)["small"].queue
    assert (small.position, small.reason, small.message) == (2, "Priority", "behind team/head")
    assert small.blocked_by == ("team/head",)
    short = statuses(plan)["short"]
    assert (short.assignment.nodes, short.admission.backfilled, short.admission.time_limit) == (("n0",), True, 300)


def test_a_run_no_idle_cluster_could_hold_blocks_nobody() -> None:
    plan = admit(world([run("huge", 9, at=1), run("small", 1, at=2)]), Tunables(), NOW)
    assert reason(plan, "huge") == (1, "Placement")
    assert statuses(plan)["small"].assignment.nodes == ("n0",)


def test_a_run_no_idle_cluster_could_hold_is_told_so_before_its_turn_comes() -> None:
    runs = [run("old", 4, at=0.0), run("head", 4, at=1), run("huge", 9, at=2), run("next", 4, at=3)]
    plan = admit(world(runs), Tunables(), NOW)
    assert reason(plan, "head") == (1, "Resources")
    assert reason(plan, "huge") == (2, "Placement")
    assert "the cluster has no more" in statuses(plan)["huge"].queue.message
    assert reason(plan, "next") == (3, "Priority")


def test_runs_are_admitted_in_the_order_they_came() -> None:
    plan = admit(world([run("b", 3, at=2), run("a", 3, at=1)]), Tunables(), NOW)
    assert statuses(plan)["a"].assignment.nodes == ("n0", "n1", "n2")
    assert reason(plan, "b") == (1, "Resources")


@pytest.mark.parametrize(
    ("view", "queues", "expected", "words"),
    [
        (run("a", queue="nope"), {}, "QueueNotFound", "no TrainingQueue nope"),
        (run("a", queue="q"), {"q": {"stopPolicy": "Hold"}}, "QueueHeld", "stopPolicy is Hold"),
        (run("a", 3, queue="q"), {"q": {"limits": {"maxNodesPerRun": 2}}}, "NodesPerRunLimit", "at most 2"),
        (run("a", queue="q"), {"q": {"limits": {"maxRunningRuns": 0}}}, "RunningRunsLimit", "at most 0 runs"),
        (run("a", queue="q"), {"q": {"nodeSelector": {"pool": "b"}}}, "Placement", "outside the node selector"),
        (
            run("a", status={"recovery": RecoveryStatus(not_before=NOW + 60)}),
            {},
            "BeginTime",
            "waits before it tries again",
        ),
        (replace(run("a"), annotations={"lockstep.dev/paused": "true"}), {}, "Paused", "lockstep.dev/paused"),
    ],
)
def test_who_is_held_says_why(
    view: RunView, queues: Mapping[str, Mapping[str, Any]], expected: str, words: str
) -> None:
    plan = admit(world([view], queues=queues), Tunables(), NOW)
    queue = statuses(plan)["a"].queue
    assert queue.reason == expected
    assert words in queue.message


def test_the_pass_wakes_when_a_back_off_is_over() -> None:
    view = run("a", status={"recovery": RecoveryStatus(not_before=NOW + 60)})
    assert admit(world([view]), Tunables(), NOW).wake_at == NOW + 60
    assert statuses(admit(world([view]), Tunables(), NOW + 60))["a"].assignment.nodes


@pytest.mark.parametrize("mode", [Mode.NO_NEW_ADMISSIONS, Mode.REPORT_ONLY])
def test_the_stop_switch_admits_nobody_and_says_so(mode: Mode) -> None:
    plan = admit(world([run("a")]), Tunables(mode=mode), NOW)
    assert reason(plan, "a") == (0, mode.value)
    assert not plan.writes[0].nodes


STOP = StopStatus(reason="Suspended", time=NOW, deadline=NOW + 60)


@pytest.mark.parametrize(
    "view",
    [
        run("a", suspend=True),
        run("a", cancel=True),
        run("a", status={"stop": STOP}),
        run("a", status={"conditions": (ACCEPTED, FINISHED)}),
        run("a", status={"conditions": ()}),
        replace(run("a"), deleting=True),
        replace(run("a"), spec=None),
        run("a", status=held("n0")),
    ],
    ids=["suspended", "cancelled", "stopping", "finished", "not accepted", "deleting", "invalid", "held"],
)
def test_who_does_not_wait_for_nodes_gets_none(view: RunView) -> None:
    assert admit(world([view]), Tunables(), NOW) == ClusterPlan()


def test_who_was_edited_and_is_not_judged_gets_no_nodes() -> None:
    plan = admit(world([replace(run("a"), generation=2)]), Tunables(), NOW)
    assert reason(plan, "a") == (0, "NotJudged")
    assert not plan.writes[0].nodes


def test_a_reason_goes_when_the_run_no_longer_waits() -> None:
    view = run("a", suspend=True, status={"queue": QueueStatus(position=1, reason="Resources", message="…")})
    assert statuses(admit(world([view]), Tunables(), NOW))["a"].queue == QueueStatus()


def test_nodes_that_recovery_avoids_are_avoided_until_their_time() -> None:
    avoided = RecoveryStatus(excluded_nodes=(ExcludedNode(node="n0", reason="failed twice", until=NOW + 9),))
    view = run("a", 4, status={"recovery": avoided})
    plan = admit(world([view]), Tunables(), NOW)
    assert "1 avoided after failures (n0: failed twice)" in statuses(plan)["a"].queue.message
    assert plan.wake_at == NOW + 9
    assert statuses(admit(world([view]), Tunables(), NOW + 9))["a"].assignment.nodes


def test_a_limit_on_running_runs_blocks_the_queue_in_order() -> None:
    limited = {"q": {"limits": {"maxRunningRuns": 1}}}
    runs = [run(name, at=at, queue="q") for at, name in enumerate("abc")]
    plan = admit(world(runs, queues=limited), Tunables(), NOW)
    assert statuses(plan)["a"].assignment.nodes
    assert reason(plan, "b") == (1, "RunningRunsLimit")
    assert reason(plan, "c") == (2, "RunningRunsLimit")


def test_incarnations_and_attempt_go_on_after_a_requeue() -> None:
    gone = released(assigned(AssignmentStatus(), ["n0", "n1"]))
    view = run("a", 2, status={"attempt": 3, "assignment": gone})
    dead = pod(view, 1, "n1", PodPhase.FAILED, incarnation=5)
    status = statuses(admit(world([view], pods=[dead]), Tunables(), NOW))["a"]
    assert status.attempt == 4
    assert status.assignment.incarnations == (2, 6)
    assert status.assignment.revision > gone.revision


def test_a_run_whose_own_pods_still_live_is_not_placed_anew() -> None:
    view = run("a")
    plan = admit(world([view], pods=[pod(view, 0, "n0", deleting=True)]), Tunables(), NOW)
    assert reason(plan, "a") == (0, "EarlierPods")


def test_a_large_assignment_is_spilled_into_a_config_map_written_first() -> None:
    nodes = [node(f"ip-10-0-0-{index}.eu-central-1.compute.internal") for index in range(512)]
    (write,) = admit(world([run("a", 512)], nodes), Tunables(), NOW).writes
    assert write.config_maps[0].name == write.status.assignment.config_map


def test_one_pass_admits_a_bounded_number_and_the_next_goes_on() -> None:
    runs = [run(f"r{index}", at=index) for index in range(AdmissionSettings().admissions + 2)]
    snapshot = world(runs, AdmissionSettings().admissions + 2)
    first = admit(snapshot, Tunables(), NOW)
    assert (len(first.writes), first.wake_at) == (AdmissionSettings().admissions, NOW)
    second = admit(after(snapshot, first), Tunables(), NOW)
    assert (len(second.writes), second.wake_at) == (2, None)


# --- Replacement -----------------------------------------------------------------------------------------


def test_a_vacant_slot_gets_a_node_and_everybody_else_stays() -> None:
    lost = vacated(assigned(AssignmentStatus(), ["n0", "n1", "n2"]), [1], NOW)
    view = run("a", 3, status={"attempt": 2, "assignment": lost})
    (write,) = admit(world([view]), Tunables(), NOW).writes
    assignment = write.status.assignment
    assert assignment.nodes == ("n0", "n1", "n2")
    assert write.nodes == {"n1"}
    assert assignment.incarnations == lost.incarnations
    assert (assignment.vacant, assignment.vacant_since, write.status.attempt) == ((), None, 2)


def test_a_replacement_comes_into_the_rack_of_the_neighbouring_ranks() -> None:
    nodes = [node(f"{rack}-{i}", rack) for rack in ("r1", "r2") for i in range(4)]
    whole = assigned(AssignmentStatus(), ["r1-0", "r1-1", "r1-2", "r2-0", "r2-1", "r2-2"])
    view = run("a", 6, status={"assignment": vacated(whole, [1, 4], NOW)})
    dying = [pod(view, 1, "r1-1", deleting=True), pod(view, 4, "r2-1", deleting=True)]
    assignment = statuses(admit(world([view], nodes, pods=dying), Tunables(), NOW))["a"].assignment
    assert (assignment.nodes[1], assignment.nodes[4]) == ("r1-3", "r2-3")


def test_replacements_come_before_runs_that_have_not_begun() -> None:
    lost = vacated(assigned(AssignmentStatus(), ["n0", "n9"]), [1], NOW)
    runs = [run("old", 1, at=1), run("broken", 2, at=2, status={"assignment": lost})]
    plan = admit(world(runs, 2), Tunables(), NOW)
    assert statuses(plan)["broken"].assignment.nodes == ("n0", "n1")
    assert reason(plan, "old") == (1, "Resources")


def test_a_gang_that_lacks_more_than_there_is_takes_what_there_is_and_says_what_lacks() -> None:
    lost = vacated(assigned(AssignmentStatus(), ["n0", "x", "y"]), [1, 2], NOW)
    runs = [run("broken", 3, status={"assignment": lost}), run("new", 1, at=5)]
    plan = admit(world(runs, 2), Tunables(), NOW)
    status = statuses(plan)["broken"]
    assert status.assignment.nodes == ("n0", "n1", "")
    assert status.assignment.vacant == (2,)
    assert (status.queue.position, status.queue.reason) == (0, "Resources")
    assert status.queue.message == "needs 1 more node, 0 fit: the cluster has no more"


def test_a_replacement_must_offer_what_was_resolved_for_the_gang() -> None:
    first = statuses(admit(world([run("a", 1)]), Tunables(), NOW))["a"]
    lost = changed(first, assignment=vacated(first.assignment, [0], NOW))
    small = {"cpu": 64_000, "memory": 2**41, "nvidia.com/gpu": 8}
    view = replace(run("a", 1), status=lost)
    plan = admit(world([view], [node("n1", allocatable=small)]), Tunables(), NOW)
    message = statuses(plan)["a"].queue.message
    assert message == "needs 1 node, 0 fit: 1 short of cpu (n1: it has 64, 192 asked); the cluster has no more"


def test_while_the_breaker_is_open_nothing_is_replaced_and_new_runs_still_start() -> None:
    lost = vacated(assigned(AssignmentStatus(), ["n0", "x"]), [1], NOW)
    runs = [run("broken", 2, status={"assignment": lost}), run("new", 1, at=5)]
    plan = admit(world(runs, disruption="12 of 100 nodes lost"), Tunables(), NOW)
    queue = statuses(plan)["broken"].queue
    assert (queue.reason, queue.message) == ("ClusterDisruption", "no node is replaced: 12 of 100 nodes lost")
    assert statuses(plan)["new"].assignment.nodes


# --- The ledger ------------------------------------------------------------------------------------------


def test_every_way_to_hold_a_node_books_it() -> None:
    gone = run("gone")
    finished = run("finished", status={**held("n5", "n6"), "conditions": (ACCEPTED, FINISHED)})
    snapshot = world(
        [run("a", 1, status=held("n0")), finished],
        pods=[
            pod(gone, 0, "n1", deleting=True),
            pod(gone, 1, "n2", PodPhase.SUCCEEDED),
            pod(gone, 2, "n3", PodPhase.UNKNOWN),
            pod(finished, 0, "n5"),
        ],
        in_flight={"uid-b": frozenset({"n4"})},
    )
    ledger = Ledger.from_snapshot(snapshot)
    assert ledger.booked_nodes == {"n0", "n1", "n3", "n4", "n5"}
    assert ledger.holders("n1") == ("team/gone",)
    assert ledger.holders("n2") == ()
    assert ledger.ending == {"n1"}


def test_a_run_that_waits_for_pods_stuck_in_deletion_is_told_where_they_are() -> None:
    gone = run("gone")
    snapshot = world([run("again", 4)], pods=[pod(gone, 0, "n1", deleting=True)])
    message = statuses(admit(snapshot, Tunables(), NOW))["again"].queue.message
    assert message == "needs 4 nodes, 3 fit: 1 held by pods that have not ended yet (n1)"


def test_a_node_whose_next_pod_is_wanted_is_booked_and_not_ending() -> None:
    lost = advanced(assigned(AssignmentStatus(), ["n0"]), [0])
    holder = run("a", 1, status={"assignment": lost})
    assert Ledger.from_snapshot(world([holder], pods=[pod(holder, 0, "n0", deleting=True)])).ending == frozenset()


def test_vacant_slots_book_nothing() -> None:
    lost = vacated(assigned(AssignmentStatus(), ["n0", "n1"]), [1], NOW)
    assert Ledger.from_snapshot(world([run("a", 2, status={"assignment": lost})])).booked_nodes == {"n0"}


def test_a_run_with_a_write_of_unknown_result_is_left_alone() -> None:
    snapshot = world([run("a", 1)], in_flight={"uid-a": frozenset({"n0"})})
    assert admit(snapshot, Tunables(), NOW) == ClusterPlan()


# --- Invariants ------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> ClusterSnapshot:
    nodes = [
        node(f"n{index}", f"r{index % 3}", unschedulable=draw(st.booleans()), ready=draw(st.integers(0, 4)) > 0)
        for index in range(draw(st.integers(1, 8)))
    ]
    names = [view.name for view in nodes]
    free = draw(st.permutations(names))
    runs: list[RunView] = []
    pods: list[PodView] = []
    for index in range(draw(st.integers(1, 5))):
        count = draw(st.integers(1, 4))
        status: dict[str, Any] = {}
        if draw(st.booleans()) and len(free) >= count:
            mine, free = free[:count], free[count:]
            lost = draw(st.lists(st.integers(0, count - 1), unique=True))
            whole = assigned(AssignmentStatus(), mine)
            status = {"attempt": 1, "assignment": vacated(whole, lost, NOW) if lost else whole}
        rule = draw(
            st.none()
            | st.fixed_dictionaries(
                {
                    "level": st.just("rack"),
                    "policy": st.sampled_from(["Pack", "Contiguous"]),
                    "mode": st.sampled_from(["Required", "Preferred"]),
                }
            )
        )
        wishes = {"placement": {"topology": [rule]}} if rule else {}
        queue = draw(st.sampled_from(["default", "q"]))
        runs.append(run(f"r{index}", count, draw(st.integers(0, 3)), status, queue=queue, **wishes))
        if draw(st.booleans()):
            pods.append(pod(runs[-1], 0, draw(st.sampled_from(names)), deleting=True))
    limits = {"maxRunningRuns": draw(st.integers(0, 3))}
    return world(runs, nodes, queues={"q": {"limits": limits}}, pods=pods)


@given(worlds())
def test_nobody_gets_half_a_gang_and_no_node_is_given_twice(snapshot: ClusterSnapshot) -> None:
    booked = set(Ledger.from_snapshot(snapshot).booked_nodes)
    before = {view.name: view for view in snapshot.runs}
    for write in admit(snapshot, Tunables(), NOW).writes:
        was, assignment = before[write.name].status, write.status.assignment
        assert not booked & write.nodes
        booked |= write.nodes
        assert all(snapshot.nodes[name].ready and not snapshot.nodes[name].unschedulable for name in write.nodes)
        assert write.status.attempt >= was.attempt
        assert all(new >= old for new, old in zip(assignment.incarnations, was.assignment.incarnations, strict=False))
        assert len(set(assignment.nodes) - {""}) == len(assignment.nodes) - len(assignment.vacant)
        if not was.assignment.nodes and assignment.nodes:
            spec = before[write.name].spec
            assert spec is not None
            assert len(write.nodes) == spec.nodes
        for slot, name in enumerate(was.assignment.nodes):
            assert name in ("", assignment.nodes[slot])


@given(worlds())
def test_passes_over_the_result_give_nobody_anything_and_come_to_rest(snapshot: ClusterSnapshot) -> None:
    """Who waited when others were yet to start may be told another reason by the second cycle."""
    first = after(snapshot, admit(snapshot, Tunables(), NOW))
    second = admit(first, Tunables(), NOW)
    assert not any(write.nodes for write in second.writes)
    assert admit(after(first, second), Tunables(), NOW).writes == ()


@given(worlds())
def test_a_pass_is_deterministic(snapshot: ClusterSnapshot) -> None:
    turned = replace(
        snapshot,
        runs=snapshot.runs[::-1],
        nodes=dict(reversed(snapshot.nodes.items())),
        gang_pods=snapshot.gang_pods[::-1],
    )
    assert admit(turned, Tunables(), NOW) == admit(snapshot, Tunables(), NOW)
