"""What is said of a gang without workers: pods that run, and that more is not known."""

from dataclasses import replace

import pytest

from lockstep.core.model.conditions import find
from lockstep.core.model.snapshot import PodPhase
from lockstep.core.run.plain.report import report_plain_gang
from support.world import world_with_gang


@pytest.mark.parametrize(("up", "status", "reason"), [(2, "True", "Started"), (1, "False", "PodsStarting")])
def test_the_gang_is_ready_when_all_of_its_pods_run(up: int, status: str, reason: str) -> None:
    w = world_with_gang(2, worker="Disabled")
    for key, pod in w.pods.items():
        if pod.slot >= up:
            w.pods[key] = replace(pod, phase=PodPhase.PENDING, started_at=None, reason="ImagePullBackOff")
    plan = w.plan("one")
    report_plain_gang(plan, "")
    ready, progressing = find(plan.status, "GangReady"), find(plan.status, "Progressing")
    assert ready is not None
    assert progressing is not None
    assert (ready.status, ready.reason, plan.status.nodes_ready) == (status, reason, f"{up}/2")
    assert "there is no barrier" in ready.message
    assert ("rank 1 on n1" in ready.message) is (up == 1)
    assert (progressing.status, progressing.reason) == ("Unknown", "StepsUnknown")


def test_a_node_whose_clock_is_ahead_does_not_hold_up_what_is_told_of_the_gang() -> None:
    w = world_with_gang(2, worker="Disabled")
    ahead, pending = sorted(w.pods)
    w.pods |= {
        ahead: replace(w.pods[ahead], started_at=w.now + 3600),
        pending: replace(w.pods[pending], phase=PodPhase.PENDING, started_at=None),
    }
    plan = w.plan("one")
    report_plain_gang(plan, "")
    assert plan.status.nodes_ready == "1/2"
    w.amend("one", conditions=plan.status.conditions, nodes_ready="0/2")
    w.pass_time(5)
    plan = w.plan("one")
    report_plain_gang(plan, "")
    assert plan.status.nodes_ready == "1/2"
