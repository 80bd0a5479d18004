"""PodGroups: whose, of which pods, with what quorum, and for how long."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.run_status import PodGroupStatus
from lockstep.core.model.conditions import find
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.plan import EnsurePodGroup
from lockstep.core.model.pod_group_settings import VOLCANO, PodGroupKind, PodGroupSettings
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods.pod_groups import planned
from lockstep.core.pods.validation import validate
from support.world import World, group_named_by, node, spec

ALPHA, BETA = "scheduling.k8s.io/v1alpha2", "scheduling.k8s.io/v1beta1"
HELD = {"reason": "Unschedulable", "message": "pod group is unschedulable, waiting for minCount pods from a gang"}
NO_FIT = {"reason": "Unschedulable", "message": "0/4 nodes are available: 1 Insufficient nvidia.com/gpu"}


def asked(kind: str, *served: str, **more: Any) -> Tunables:
    return Tunables(pod_groups=PodGroupSettings(kind=PodGroupKind(kind), served=served, **more))


def world(tunables: Tunables, count: int = 4) -> World:
    return World({f"n{i}": node(f"n{i}", rack=f"rack-{i // 2}") for i in range(count)}, tunables=tunables)


def launched(tunables: Tunables, nodes: int = 2, **fields: Any) -> tuple[World, EnsurePodGroup, list[dict[str, Any]]]:
    """A run that has its nodes; the group and the pods that are about to be made."""
    w = world(tunables)
    w.apply("llama", spec(nodes, **fields))
    for _ in range(3):
        w.reconcile("llama")
    w.admit()
    plan = w.reconcile("llama")
    if not plan.creates:
        plan = w.reconcile("llama")
    assert plan.pod_group is not None
    return w, plan.pod_group, [dict(pod.body) for pod in plan.creates]


@pytest.mark.parametrize(
    ("kind", "served", "expected"),
    [
        ("Disabled", (ALPHA, BETA, VOLCANO), ""),
        ("Native", (ALPHA,), ALPHA),
        ("Native", (ALPHA, BETA), BETA),
        ("Native", (VOLCANO,), ""),
        ("Volcano", (ALPHA, VOLCANO), VOLCANO),
        ("Volcano", (ALPHA,), ""),
        ("Auto", (VOLCANO, ALPHA), ALPHA),
        ("Auto", (VOLCANO,), VOLCANO),
        ("Auto", (), ""),
    ],
)
def test_the_best_version_that_is_asked_for_and_served_is_used(
    kind: str, served: tuple[str, ...], expected: str
) -> None:
    assert asked(kind, *served).pod_groups.api_version == expected


@pytest.mark.parametrize("version", [ALPHA, BETA])
def test_a_launch_of_kubernetes_own_kind_is_one_gang_owned_by_the_run(version: str) -> None:
    w, group, pods = launched(asked("Native", version))
    assert group.api_version == version
    assert group.body["apiVersion"] == version
    assert group.body["kind"] == "PodGroup"
    assert group.body["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}
    metadata = group.body["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("llama-uid-l-a1", "ns")
    assert metadata["labels"]["lockstep.dev/run-uid"] == w.runs["llama"].uid
    assert [owner["uid"] for owner in metadata["ownerReferences"]] == [w.runs["llama"].uid]
    for pod in pods:
        assert pod["spec"]["schedulingGroup"] == {"podGroupName": "llama-uid-l-a1"}
        assert "schedulerName" not in pod["spec"]


def test_a_launch_of_volcanos_kind_says_what_its_queue_has_to_count() -> None:
    settings = asked("Volcano", VOLCANO, queue="research", scheduler_name="vc")
    _, group, pods = launched(settings, resourcesPerNode={"cpu": "500m", "memory": "3Gi"}, gpusPerNode=8)
    assert group.body["spec"] == {
        "minMember": 2,
        "queue": "research",
        "minResources": {"cpu": "1", "memory": "6Gi", "nvidia.com/gpu": "16"},
        "priorityClassName": "lockstep-gang",
    }
    for pod in pods:
        assert pod["spec"]["schedulerName"] == "vc"
        assert "schedulingGroup" not in pod["spec"]
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group.name
        assert pod["metadata"]["annotations"]["volcano.sh/preemptable"] == "false"


@pytest.mark.parametrize(("before", "cpu"), [("1", "6"), ("5", "10")])
def test_sidecars_and_what_runs_before_count_in_volcanos_queue_as_well(before: str, cpu: str) -> None:
    sidecar = {"name": "s", "image": "s", "resources": {"requests": {"cpu": "1"}}}
    init = {"name": "i", "image": "s", "resources": {"requests": {"cpu": before}}}
    template = {"spec": {"containers": [sidecar], "initContainers": [init]}}
    fields = {"resourcesPerNode": {"cpu": "2", "memory": "1Gi"}, "podTemplate": template}
    _, group, _ = launched(asked("Volcano", VOLCANO), **fields)
    assert group.body["spec"]["minResources"]["cpu"] == cpu
    assert "queue" not in group.body["spec"]


def test_the_users_annotations_name_volcanos_queue_and_allow_eviction() -> None:
    annotations = {"scheduling.volcano.sh/queue-name": "mine", "volcano.sh/preemptable": "true"}
    template = {"metadata": {"annotations": annotations}}
    _, group, pods = launched(asked("Volcano", VOLCANO, queue="research"), podTemplate=template)
    assert group.body["spec"]["queue"] == "mine"
    assert pods[0]["metadata"]["annotations"]["volcano.sh/preemptable"] == "true"


@pytest.mark.parametrize(
    ("settings", "scheduler", "gets_one"),
    [
        (asked("Volcano", VOLCANO), "other", False),
        (asked("Volcano", VOLCANO), "volcano", True),
        (asked("Native", ALPHA), "other", True),
        (asked("Auto"), "other", False),
    ],
)
def test_who_names_another_scheduler_is_no_business_of_volcanos(
    settings: Tunables, scheduler: str, gets_one: bool
) -> None:
    w = world(settings)
    view = w.apply("llama", spec(2, podTemplate={"spec": {"schedulerName": scheduler}}))
    assert (planned(view, settings.pod_groups, 1) is not None) is gets_one


@pytest.mark.parametrize(
    ("fields", "quorum", "pods"),
    [
        ({"nodes": 2, "spareNodes": 1}, 2, 3),
        ({"nodes": 4, "elastic": {"min": 2}}, 2, 4),
        ({"nodes": 3, "worker": "Disabled", "checkpoint": None}, 3, 3),
    ],
    ids=["spares are beyond it", "an elastic gang starts with what it gets", "without workers"],
)
def test_the_quorum_is_the_least_that_the_gang_trains_with(fields: dict[str, Any], quorum: int, pods: int) -> None:
    _, group, made = launched(asked("Native", ALPHA), **fields)
    assert group.body["spec"]["schedulingPolicy"]["gang"]["minCount"] == quorum
    assert len(made) == pods
    assert {group_named_by(pod) for pod in made} == {group.name}


def running(w: World, nodes: int = 2, **fields: Any) -> World:
    w.roll_out("llama", spec(nodes, **fields))
    assert len(w.children("llama")) == nodes
    return w


@pytest.mark.parametrize(("settings", "group"), [(("Native", ALPHA), None), (("Volcano", VOLCANO), "-later")])
def test_a_replacement_is_bound_by_itself(settings: tuple[str, str], group: str | None) -> None:
    w = running(world(asked(*settings)))
    launch = w.status("llama").resolved.pod_group
    assert launch is not None
    lost = w.status("llama").assignment.nodes[1]
    w.fail_node(lost)
    w.pass_time(30)
    assert w.children("llama") == {0: 2, 1: 2}
    (new,) = [pod.name for pod in w.pods.values() if pod.incarnation == 2]
    assert w.members.get(new) == (group and launch.name + group)
    if group:
        assert w.pod_groups[launch.name + group] == (w.runs["llama"].uid, 1)
    assert w.status("llama").resolved.pod_group == launch


def test_a_gang_that_was_made_smaller_still_replaces_a_pod() -> None:
    w = world(asked("Volcano", VOLCANO))
    w.listens, w.format = True, "TorchDCP"
    running(w, nodes=3)
    w.train("llama", 10)
    w.settle()
    w.tell_of_save("llama", 10)
    w.apply("llama", spec(2))
    w.pass_time(20, step=2)
    assert len(w.children("llama")) == 2
    before = set(w.pods)
    w.fail_pod("llama", 1)
    w.pass_time(60)
    assert len(w.children("llama")) == 2
    assert set(w.pods) != before


def test_without_workers_every_attempt_is_a_launch_of_the_same_group() -> None:
    w = world(asked("Native", ALPHA))
    w.roll_out("llama", spec(2, worker="Disabled", recovery={"maxRestarts": 3}))
    first = set(w.pods)
    w.end_pod("llama", 1, 1)
    w.pass_time(120)
    again = set(w.pods) - first
    assert len(again) == 2
    group = w.status("llama").resolved.pod_group
    assert group is not None
    assert {w.members[name] for name in again} == {group.name}


@pytest.mark.parametrize("settings", [("Native", ALPHA), ("Volcano", VOLCANO)])
def test_the_groups_are_gone_when_the_nodes_are_given_back_and_the_next_launch_has_another(
    settings: tuple[str, str],
) -> None:
    w = running(world(asked(*settings)))
    first = w.status("llama").resolved.pod_group
    w.fail_pod("llama", 1)  # with Volcano there are two groups then
    w.settle()
    w.apply("llama", spec(2, suspend=True))
    w.pass_time(5)
    assert phase_of(w.status("llama"), True) is Phase.SUSPENDED
    assert not w.pod_groups
    assert w.status("llama").resolved.pod_group is None
    w.roll_out("llama", spec(2))
    second = w.status("llama").resolved.pod_group
    assert first is not None
    assert second is not None
    assert first.name != second.name
    assert set(w.pod_groups) == {second.name}


def test_a_group_that_cannot_be_deleted_holds_up_neither_the_stop_nor_the_next_launch() -> None:
    w = running(world(asked("Volcano", VOLCANO)))
    first = w.status("llama").resolved.pod_group
    assert first is not None
    w.groups_stay = True
    w.apply("llama", spec(2, suspend=True))
    w.pass_time(5)
    assert phase_of(w.status("llama"), True) is Phase.SUSPENDED
    assert not w.status("llama").assignment.nodes
    w.crash()
    w.roll_out("llama", spec(2))
    assert len(w.children("llama")) == 2
    assert set(w.pod_groups) == {first.name, "llama-uid-l-a2"}
    assert w.status("llama").ended_pod_groups == (first,), "what is to be deleted outlives the operator"
    w.groups_stay = False
    w.settle()
    assert set(w.pod_groups) == {"llama-uid-l-a2"}
    assert w.status("llama").ended_pod_groups == ()


@pytest.mark.slow
def test_no_more_groups_are_remembered_than_status_has_room_for() -> None:
    w = running(world(asked("Native", ALPHA)))
    w.groups_stay = True
    for _ in range(6):
        w.apply("llama", spec(2, suspend=True))
        w.pass_time(5)
        w.roll_out("llama", spec(2))
    assert [group.name[-3:] for group in w.status("llama").ended_pod_groups] == ["-a3", "-a4", "-a5", "-a6"]


def test_a_finished_run_has_no_group() -> None:
    w = running(world(asked("Volcano", VOLCANO)))
    for rank in (0, 1):
        w.exit_child("llama", rank, 0)
    w.pass_time(5)
    assert w.status("llama").state == "Succeeded"
    assert not w.pod_groups


@pytest.mark.parametrize("writes", range(6))
def test_wherever_the_operator_dies_the_group_is_there_before_its_pods_and_ends_with_them(writes: int) -> None:
    w = world(asked("Native", ALPHA))
    w.apply("llama", spec(2))
    for _ in range(4):
        w.reconcile("llama", crash_after=writes)
        w.admit(crash_after=writes)
    w.settle()  # the world refuses pods whose group is not there
    assert len(w.children("llama")) == 2
    assert len({w.members[name] for name in w.pods}) == 1
    w.apply("llama", spec(2, suspend=True))
    for _ in range(6):
        w.reconcile("llama", crash_after=writes)
        w.kubelets()
        w.work()
    w.pass_time(5)
    assert not w.pod_groups


def test_what_a_gang_was_launched_with_it_keeps_whatever_is_configured_or_served_later() -> None:
    w = running(world(asked("Volcano", VOLCANO, queue="research")))
    before = w.status("llama").resolved.pod_group
    w.tunables = asked("Native")
    w.fail_pod("llama", 1)
    w.pass_time(30)
    assert len(w.children("llama")) == 2
    assert (
        w.status("llama").resolved.pod_group
        == before
        == PodGroupStatus(
            api_version=VOLCANO, name="llama-uid-l-a1", min_count=2, queue="research", scheduler_name="volcano"
        )
    )


def test_what_was_asked_for_by_name_and_is_not_served_keeps_runs_from_starting_until_it_is() -> None:
    w = world(asked("Native"))
    w.roll_out("llama", spec(2))
    accepted = find(w.status("llama"), "Accepted")
    assert accepted is not None
    assert (accepted.status, accepted.reason) == ("False", "PodGroupsNotServed")
    assert "GenericWorkload" in accepted.message
    assert w.reconcile("llama").status is None, "it is said once"
    assert not w.pods
    w.tunables = asked("Native", ALPHA)
    w.settle()
    assert len(w.children("llama")) == 2


def test_auto_goes_on_without_what_is_not_served_and_says_so_once() -> None:
    w = world(asked("Auto"))
    w.apply("llama", spec(2))
    for _ in range(3):
        w.reconcile("llama")
    told = [event for _ in range(3) for write in w.admit() for event in write.events]
    (event,) = [event for event in told if event.reason == "WithoutPodGroup"]
    assert "install Volcano, or set podGroups.kind to Disabled" in event.note
    running(w)
    assert w.status("llama").resolved.pod_group is None
    assert not w.pod_groups
    assert not w.members


def test_of_a_launch_that_is_held_back_the_pod_that_does_not_fit_gets_another_node() -> None:
    w, _, _ = launched(asked("Native", ALPHA))
    culprit, waiting = sorted(w.pods)
    slot, waits = w.pods[culprit].slot, w.pods[waiting].slot
    w.pods[culprit] = replace(w.pods[culprit], **NO_FIT)
    w.pods[waiting] = replace(w.pods[waiting], **HELD)
    w.now += w.tunables.deadlines.scheduled + 1
    before = w.status("llama").assignment
    plan = w.reconcile("llama")
    after = w.status("llama").assignment
    assert after.vacant == (slot,)
    assert after.incarnations[waits] == before.incarnations[waits]
    assert "Insufficient nvidia.com/gpu" in plan.events[0].note


def test_a_launch_that_nobody_lets_through_gives_its_nodes_back() -> None:
    w, _, _ = launched(asked("Native", ALPHA))
    for name in w.pods:
        w.pods[name] = replace(w.pods[name], **HELD)
    w.now += w.tunables.deadlines.vacant - 1
    w.reconcile("llama")
    assert w.status("llama").stop is None
    w.now += 2
    w.reconcile("llama")
    stop = w.status("llama").stop
    assert stop is not None
    assert stop.reason == "NodesLost"
    assert "waits for others of its PodGroup" in stop.message


def test_a_group_of_the_users_own_is_refused() -> None:
    template = {"spec": {"schedulingGroup": {"podGroupName": "mine"}}}
    (problem,) = validate(spec(2, podTemplate=template), {})
    assert problem.field == "spec.podTemplate.spec.schedulingGroup"
