"""Which pending gangs ask an autoscaler for nodes that do not exist, and which do not."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AdmissionStatus, ScaleUpStatus, TrainingRunStatus
from lockstep.core.admission.admit import admit
from lockstep.core.admission.engine_adapter import ENDING
from lockstep.core.admission.scale_up import PATIENCE, SOON
from lockstep.core.model.conditions import find
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.settings import ScaleUpSettings
from lockstep.core.model.snapshot import ClusterSnapshot, NodeView, RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods.requirement import wish_hash
from support.admission import NOW, after, held, node, pod, reason, run, statuses, world
from support.values import not_none

GPU_TYPES = {"H100": {"gpu": "h100"}, "A100": {"gpu": "a100"}}
CLASSES = {"lockstep-placeholder": -10}
BY_REQUEST = {"provisioning_requests": True, "served": True}
LATER = NOW + PATIENCE


def waiting(name: str, nodes: int = 2, at: float = 0.0, **spec: Any) -> RunView:
    return run(name, nodes, at, **{"gpusPerNode": 8, "queue": "up", **spec})


def wish(nodes: int) -> str:
    return wish_hash(not_none(waiting("a", nodes).spec))


def cluster(
    *runs: RunView, nodes: int | list[NodeView] = 0, classes: dict[str, int] | None = None, **queue: Any
) -> ClusterSnapshot:
    spec = {"scaleUp": "Enabled", **queue}
    return world(runs, nodes, queues={"up": spec, "other": {}}, classes=CLASSES if classes is None else classes)


def passed(snapshot: ClusterSnapshot, now: float = NOW, **settings: Any) -> ClusterPlan:
    return admit(snapshot, Tunables(gpu_types=GPU_TYPES, scale_up=ScaleUpSettings(**settings)), now)


def asked(plan: ClusterPlan) -> dict[str, int]:
    """For how many nodes, by run."""
    found = {name: status.scale_up for name, status in statuses(plan).items()}
    return {name: up.nodes for name, up in found.items() if up is not None}


def told(plan: ClusterPlan, name: str) -> str:
    """Why the run cannot ask."""
    condition = find(statuses(plan).get(name, TrainingRunStatus()), "ScaleUp")
    assert condition is None or (condition.status, condition.reason) == ("False", "CannotAskForNodes")
    return "" if condition is None else condition.message


def test_a_gang_that_waits_for_nodes_that_do_not_exist_asks_for_all_of_them() -> None:
    plan = passed(cluster(waiting("a", 3)))
    assert statuses(plan)["a"].scale_up == ScaleUpStatus(
        by="Placeholders", nodes=3, generation=1, wish=wish(3), gpu_resource="nvidia.com/gpu", since=NOW
    )
    assert not told(plan, "a")


def test_asking_again_changes_nothing() -> None:
    snapshot = cluster(waiting("a", 3), waiting("b", 1), nodes=1)
    plan = passed(snapshot)
    assert asked(plan)["a"] == 3
    again = passed(after(snapshot, plan), NOW + 60)
    assert all(write.status.scale_up == statuses(plan)[write.name].scale_up for write in again.writes)


@pytest.mark.parametrize(
    ("queue", "spec"),
    [({"scaleUp": "Disabled"}, {}), ({}, {"queue": "other"}), ({}, {"queue": "unknown"})],
    ids=["disabled", "of another queue", "of no queue"],
)
def test_nobody_asks_whose_queue_does_not_let_it(queue: dict[str, Any], spec: dict[str, Any]) -> None:
    plan = passed(cluster(waiting("a", **spec), **queue))
    assert not asked(plan)
    assert not told(plan, "a")


def test_by_which_means_it_asks_is_decided_once() -> None:
    snapshot = cluster(waiting("a"), provisioningClass="queued.example.com")
    plan = passed(snapshot, **BY_REQUEST)
    first = statuses(plan)["a"].scale_up
    assert first is not None
    assert (first.by, first.provisioning_class) == ("ProvisioningRequest", "queued.example.com")
    default = statuses(passed(cluster(waiting("a")), **BY_REQUEST))["a"].scale_up
    assert default is not None
    assert default.provisioning_class == "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    assert statuses(passed(snapshot, provisioning_requests=True))["a"].scale_up == ScaleUpStatus(
        by="Placeholders", nodes=2, generation=1, wish=wish(2), gpu_resource="nvidia.com/gpu", since=NOW
    ), "they are not served"
    # It goes on as it began when they are served, or are no longer.
    assert not asked(passed(after(snapshot, plan), NOW + 60, provisioning_requests=True))
    by_pods = after(snapshot, passed(snapshot))
    assert not asked(passed(by_pods, NOW + 60, **BY_REQUEST))


@pytest.mark.parametrize(
    ("spec", "settings", "classes", "words"),
    [
        ({"gpusPerNode": None}, {}, CLASSES, "write spec.gpusPerNode"),
        ({"placement": {"nodes": ["n7", "n8"]}}, {}, CLASSES, "spec.placement.nodes names the nodes"),
        ({}, {"max_nodes": 1}, CLASSES, "scaleUp.maxNodes of the operator's configuration is 1"),
        ({}, {}, {"other": 1}, "PriorityClass lockstep-placeholder with a negative value, which is not there"),
        ({}, {}, {"lockstep-placeholder": 5}, "which has the value 5"),
        ({}, BY_REQUEST, {"other": 1}, ""),
        ({"gpusPerNode": None, "resourcesPerNode": {"amd.com/gpu": "8"}}, {}, CLASSES, ""),
    ],
)
def test_who_cannot_ask_is_told_what_to_do(
    spec: dict[str, Any], settings: dict[str, Any], classes: dict[str, int], words: str
) -> None:
    plan = passed(cluster(waiting("a", **spec), classes=classes), **settings)
    assert words in told(plan, "a")
    assert bool(asked(plan)) is not bool(words)
    if words:
        mended = passed(after(cluster(waiting("a"), classes=CLASSES), plan), LATER)
        assert asked(mended)["a"] == 2
        assert not told(mended, "a"), "what is no longer so is not said"


@pytest.mark.parametrize(
    ("quota", "asking"),
    [(2, {"a"}), (4, {"a", "b"}), (5, {"a", "b"}), (1, set()), (6, {"a", "b", "c"})],
)
def test_no_more_is_asked_for_than_the_quotas_leave(quota: int, asking: set[str]) -> None:
    runs = [waiting(name, 2, at) for at, name in enumerate("abc")]
    plan = passed(cluster(*runs, quotas=[{"gpuType": "Any", "nominalNodes": quota}]))
    assert asked(plan) == dict.fromkeys(asking, 2)


def test_what_runs_counts_against_the_quota() -> None:
    runs = run("busy", 1, queue="up", status=held("n0"))
    quotas = [{"gpuType": "Any", "nominalNodes": 2}]
    plan = passed(cluster(runs, waiting("a", 2), nodes=1, quotas=quotas))
    assert not asked(plan)


@pytest.mark.parametrize(
    ("quotas", "spec", "gpu_type"),
    [
        ([("A100", 1), ("H100", 4)], {}, "H100"),
        ([("A100", 4), ("H100", 4)], {}, "A100"),
        ([("A100", 4), ("H100", 4)], {"placement": {"gpuTypes": ["H100", "A100"]}}, "H100"),
        ([("A100", 4), ("H100", 4)], {"podTemplate": {"spec": {"nodeSelector": {"gpu": "h100"}}}}, "H100"),
        ([("A100", 1), ("H100", 1)], {}, None),
        ([("A100", 1), ("Any", 4)], {}, ""),
        ([], {}, ""),
    ],
)
def test_nodes_are_asked_for_of_a_type_that_the_quota_has_room_for(
    quotas: list[tuple[str, int]], spec: dict[str, Any], gpu_type: str | None
) -> None:
    given = [{"gpuType": name, "nominalNodes": nodes} for name, nodes in quotas]
    plan = passed(cluster(waiting("a", 2, **spec), quotas=given))
    found = statuses(plan)["a"].scale_up
    assert (None if found is None else found.gpu_type) == gpu_type
    assert (reason(plan, "a")[1] == "QuotaTooSmall") is (gpu_type is None)


@pytest.mark.parametrize(
    ("nodes", "gpu_types", "spec", "before", "resource"),
    [
        ([], {}, {}, "", "nvidia.com/gpu"),
        (["amd.com/gpu"], {}, {}, "", "amd.com/gpu"),
        (["amd.com/gpu", "nvidia.com/gpu"], {}, {}, "", "nvidia.com/gpu"),
        (["amd.com/gpu", "nvidia.com/gpu"], {}, {"placement": {"excludeNodes": ["n1"]}}, "", "amd.com/gpu"),
        (["amd.com/gpu", "nvidia.com/gpu"], {"M": {"n": "n0"}}, {"placement": {"gpuTypes": ["M"]}}, "", "amd.com/gpu"),
        (
            ["nvidia.com/gpu"],
            {"M": {"amd.com/gpu.family": "AI"}},
            {"placement": {"gpuTypes": ["M"]}},
            "",
            "amd.com/gpu",
        ),
        (["nvidia.com/gpu"], {}, {"gpuResource": "amd.com/gpu"}, "", "amd.com/gpu"),
        ([], {}, {}, "amd.com/gpu", "amd.com/gpu"),
        ([], {}, {}, "example.com/gpu", "nvidia.com/gpu"),
        (["amd.com/gpu"], {}, {"gpusPerNode": 0}, "", ""),
    ],
)
def test_gpus_are_asked_for_of_the_make_that_such_nodes_have(
    nodes: list[str], gpu_types: dict[str, Any], spec: dict[str, Any], before: str, resource: str
) -> None:
    there = [
        node(f"n{at}", labels={"n": f"n{at}"}, allocatable={"cpu": 192_000, "memory": 2**41, make: 8})
        for at, make in enumerate(nodes)
    ]
    view = waiting("a", 4, **spec)
    if before:
        asks = ScaleUpStatus(by="Placeholders", nodes=4, generation=1, gpu_resource=before, since=NOW)
        view = replace(view, status=changed(view.status, scale_up=asks))
    plan = admit(cluster(view, nodes=there), Tunables(gpu_types=gpu_types, scale_up=ScaleUpSettings()), NOW)
    found = statuses(plan)["a"].scale_up if "a" in statuses(plan) else view.status.scale_up
    assert found is not None
    assert (found.nodes, found.gpu_resource) == ((4, resource) if before in ("", resource) else (0, before))


def test_nodes_of_a_type_that_the_operator_does_not_know_are_not_asked_for() -> None:
    plan = passed(cluster(waiting("a"), quotas=[{"gpuType": "B200", "nominalNodes": 4}]))
    assert not asked(plan)
    plan = passed(cluster(waiting("a"), quotas=[{"gpuType": n, "nominalNodes": 4} for n in ("B200", "H100")]))
    assert statuses(plan)["a"].scale_up == ScaleUpStatus(
        by="Placeholders",
        nodes=2,
        generation=1,
        wish=wish(2),
        gpu_type="H100",
        gpu_resource="nvidia.com/gpu",
        since=NOW,
    )


def test_all_runs_together_ask_for_no_more_than_the_installation_allows() -> None:
    runs = [waiting(name, 2, at) for at, name in enumerate("abcd")]
    plan = passed(cluster(*runs), max_nodes=5)
    assert asked(plan) == {"a": 2, "b": 2}
    assert "others ask already" in told(plan, "c")
    assert not told(plan, "d"), "the first of a queue is told"


def test_who_is_behind_one_that_does_not_ask_asks_only_if_nodes_alone_are_in_its_way() -> None:
    first = waiting("first", 2, 0.0, placement={"nodes": ["n8", "n9"]})
    plan = passed(cluster(first, waiting("second", 2, 1.0)))
    assert set(asked(plan)) <= {"second"}
    assert "first" not in asked(plan)


@pytest.mark.parametrize(
    "spec",
    [
        {"notBefore": "1970-01-02T00:00:00Z"},
        {"suspend": True},
        {"dependsOn": [{"name": "x", "condition": "Succeeded"}]},
    ],
)
def test_who_is_held_back_by_something_else_does_not_ask(spec: dict[str, Any]) -> None:
    assert not asked(passed(cluster(waiting("a", **spec))))


def test_who_no_longer_may_ask_takes_it_back_and_status_keeps_it_until_that_is_done() -> None:
    before = ScaleUpStatus(by="Placeholders", nodes=2, generation=1, since=NOW)
    view = run("a", 2, status={"scale_up": before}, gpusPerNode=8, queue="up", notBefore="1970-01-02T00:00:00Z")
    taken_back = statuses(passed(cluster(view)))["a"].scale_up
    assert taken_back == changed(before, nodes=0)


@pytest.mark.parametrize(
    "changes", [{"generation": 2}, {"selector": {"pool": "x"}}], ids=["edited", "another selector"]
)
def test_who_asks_for_something_else_takes_back_first_what_it_asked_for(changes: dict[str, Any]) -> None:
    before = ScaleUpStatus(by="Placeholders", nodes=2, generation=1, since=NOW)
    view = waiting("a")
    view = replace(view, status=changed(view.status, scale_up=before))
    if "generation" in changes:
        accepted = changed(view.status.conditions[0], observed_generation=2)
        view = replace(view, generation=2, status=changed(view.status, conditions=(accepted,)))
    snapshot = cluster(view, **({"nodeSelector": changes["selector"]} if "selector" in changes else {}))
    assert statuses(passed(snapshot))["a"].scale_up == changed(before, nodes=0)


def test_nodes_that_come_back_by_themselves_are_waited_for() -> None:
    ending = run("ending", 2, queue="other", timeLimit="1h", status={**held("n0", "n1"), "last_admitted": NOW - 3300})
    assert not asked(passed(cluster(ending, waiting("a", 2, timeLimit="1h"), nodes=2)))
    rebooting = [node(f"n{at}", ready=False, ready_changed_at=NOW - 5) for at in range(2)]
    assert not asked(passed(cluster(waiting("a", 2), nodes=rebooting)))


@pytest.mark.parametrize(("killed_at", "asks"), [(NOW + 60, False), (NOW + SOON, True), (NOW - ENDING, True)])
def test_nodes_are_asked_for_in_place_of_those_that_pods_hold_for_long_or_nobody_knows_how_long(
    killed_at: float, asks: bool
) -> None:
    left = [pod(run("left"), slot, f"n{slot}", deleting=True, killed_at=killed_at) for slot in range(2)]
    plan = passed(replace(cluster(waiting("a", 2), nodes=2), gang_pods=tuple(left)))
    assert asked(plan) == ({"a": 2} if asks else {})


def test_nodes_that_are_taken_for_long_are_not() -> None:
    busy = run("busy", 2, queue="other", status={**held("n0", "n1"), "last_admitted": NOW - 3300})
    assert asked(passed(cluster(busy, waiting("a", 2), nodes=2))) == {"a": 2}


def test_a_run_waits_a_moment_before_it_asks() -> None:
    snapshot = cluster(waiting("a", at=NOW - 1))
    plan = passed(snapshot)
    assert not asked(plan)
    assert plan.wake_at is not None
    assert plan.wake_at <= NOW - 1 + PATIENCE
    assert asked(passed(snapshot, LATER)) == {"a": 2}


def test_a_gang_that_starts_takes_note_of_the_request_that_its_nodes_were_asked_for_by() -> None:
    asks = ScaleUpStatus(by="ProvisioningRequest", nodes=2, generation=1, provisioning_class="c", since=NOW)
    view = waiting("a")
    view = replace(view, status=changed(view.status, scale_up=asks, admission=AdmissionStatus(since=NOW)))
    status = statuses(passed(cluster(view, nodes=2), **BY_REQUEST))["a"]
    assert status.assignment.nodes == ("n0", "n1")
    assert (status.resolved.provisioning_request, status.resolved.provisioning_class) == ("a-uid-a-scale-up", "c")
    assert status.scale_up == asks, "it is taken away once nothing is left of it"


@pytest.mark.parametrize(("mode", "words"), [("Required", "no autoscaler can be asked"), (None, "")])
def test_where_nodes_lie_cannot_be_asked_for(mode: str | None, words: str) -> None:
    rule = {"level": "rack", "policy": "Spread", "maxNodes": 1, "mode": mode}
    placement = {"topology": [rule]} if mode else {"excludeNodes": ["n1"]}
    apart = [node("n0"), node("n1")]  # in one rack
    plan = passed(cluster(waiting("a", 2, placement=placement), nodes=apart))
    assert words in told(plan, "a")
    assert asked(plan) == ({} if words else {"a": 2})
    plan = passed(cluster(waiting("a", 3, placement=placement), nodes=apart))
    assert asked(plan) == {"a": 3}, "more are needed anyway"
