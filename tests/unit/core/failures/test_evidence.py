"""What counts as a loss, and what does not."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.kueue_status import KueueStatus, KueueToleration
from lockstep.core.failures.evidence import LossKind, losses
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import LossReason
from lockstep.core.model.snapshot import Taint
from support.world import phase, running, spec, world, world_with_gang


def test_a_pod_that_ended_on_a_node_that_is_not_ready_comes_back_on_another() -> None:
    w = running(spare=2)
    w.node_not_ready("n1")
    w.fail_pod("one", 1)
    w.reconcile("one")
    assert w.status("one").assignment.vacant == (1,)
    assert w.status("one").attempts[0].cause == "NodeLost"


NO_SCHEDULE = Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule", "1764000000")


TOLERATING = {"podTemplate": {"spec": {"tolerations": [{"key": "team", "operator": "Exists"}]}}}


@pytest.mark.parametrize(
    ("view", "closed"),
    [
        ({}, ""),
        ({"unschedulable": True}, "cordoned"),
        ({"drain": "new firmware"}, "drained"),
        ({"deleting": True}, "deleted"),
        ({"taints": (NO_SCHEDULE,)}, "ToBeDeletedByClusterAutoscaler"),
        ({"taints": (Taint("karpenter.sh/disrupted", "NoSchedule"),)}, "karpenter.sh/disrupted"),
        ({"taints": (Taint("maintenance", "NoExecute"),)}, "maintenance"),
        ({"taints": (Taint("node.kubernetes.io/disk-pressure", "NoSchedule"),)}, "disk-pressure"),
        ({"taints": (Taint("slow", "PreferNoSchedule"),)}, ""),
        ({"taints": (Taint("team", "NoSchedule", "b"),)}, ""),
        ({"taints": (Taint("nvidia.com/gpu", "NoSchedule", "present"),)}, ""),
        ({"taints": (Taint("flavor", "NoSchedule", "tas"),)}, ""),
        ({"taints": (Taint("flavor", "NoSchedule", "other"),)}, "flavor"),
    ],
)
def test_a_node_that_takes_no_new_pod_of_the_run_is_left_with_the_next_pod_that_is_lost_there(
    view: dict[str, Any], closed: str
) -> None:
    w = running(spare=2, **TOLERATING)
    w.amend("one", kueue=KueueStatus(queue="q", tolerations=(KueueToleration(key="flavor", value="tas"),)))
    w.nodes["n1"] = replace(w.nodes["n1"], **view)
    assert losses(w.plan("one"), frozenset()) == [], "what runs goes on"
    for key, pod in w.pods.items():
        if pod.slot == 1:
            w.pods[key] = replace(pod, deleting=True)
    (lost,) = losses(w.plan("one"), frozenset())
    expected = (LossKind.DRAINED, LossReason.NODE_CORDONED) if closed else (LossKind.POD, LossReason.POD_DELETED)
    assert (lost.kind, lost.reason) == expected
    assert closed in lost.message


@pytest.mark.parametrize("worker", ["Enabled", "Disabled"])
def test_a_pod_that_is_not_bound_yet_does_not_wait_for_a_node_that_has_closed_to_it(worker: str) -> None:
    w = world(4)
    w.apply("one", spec(2, worker=worker))
    for _ in range(3):
        w.reconcile("one")
        w.admit()
    w.reconcile("one")
    assert [pod.bound for pod in w.pods.values()] == [False, False]
    w.nodes["n1"] = replace(w.nodes["n1"], taints=(NO_SCHEDULE,))
    w.reconcile("one")  # before the scheduler of this world, which knows no taints
    w.settle()
    assert phase(w) is Phase.RUNNING
    assert "n1" not in w.status("one").assignment.nodes
    assert not w.status("one").recovery.excluded_nodes


def test_a_gang_made_again_whole_leaves_nodes_that_take_no_new_pods() -> None:
    w = world_with_gang(2, 4, worker="Disabled")
    w.nodes["n1"] = replace(w.nodes["n1"], taints=(NO_SCHEDULE,))
    w.end_pod("one", 0, 1)
    w.pass_time(120)
    assert phase(w) is Phase.RUNNING
    assert w.status("one").attempt == 2
    assert "n1" not in w.status("one").assignment.nodes
