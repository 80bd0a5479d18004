"""What ends an attempt of a gang without workers: ends of pods, once all that may explain them has been heard."""

from dataclasses import replace

import pytest

from lockstep.core.model.reasons import ActionWord
from lockstep.core.model.snapshot import PodPhase
from lockstep.core.run.backoff import SECONDS_AT_RISK
from lockstep.core.run.plain.recovery import PEERS_TELL, answer_failures, mend_before_start
from support.world import World, world_with_gang


def failed(ago: float, ran: float = 10.0, *, both: bool = False) -> World:
    w = world_with_gang(2, worker="Disabled")
    for key, pod in w.pods.items():
        pod = replace(pod, started_at=w.now - ran - ago)
        if both or pod.slot == 1:
            pod = replace(pod, phase=PodPhase.FAILED, exit_code=1, reason="Error", ended_at=w.now - ago)
        w.pods[key] = pod
    return w


@pytest.mark.parametrize(
    ("ago", "both", "answered"), [(PEERS_TELL - 1, False, False), (PEERS_TELL, False, True), (0.0, True, True)]
)
def test_an_end_is_answered_once_its_peers_could_have_told_of_theirs(ago: float, both: bool, answered: bool) -> None:
    plan = failed(ago, both=both).plan("one")
    answer_failures(plan)
    assert plan.status.attempt == (2 if answered else 1)
    if answered:
        assert plan.attempt(1).action == ActionWord.REPLACE_GANG


@pytest.mark.parametrize(("ran", "streak"), [(SECONDS_AT_RISK - 1, 1), (SECONDS_AT_RISK, 0)])
def test_an_attempt_that_ran_long_enough_counts_as_progress(ran: float, streak: int) -> None:
    plan = failed(PEERS_TELL, ran).plan("one")
    answer_failures(plan)
    assert plan.status.recovery.consecutive_no_progress == streak


def test_a_node_that_is_deleted_while_the_gang_gathers_is_replaced() -> None:
    w = world_with_gang(2, worker="Disabled")
    w.amend("one", start=None)
    del w.nodes["n1"]
    plan = w.plan("one")
    mend_before_start(plan)
    assert plan.status.assignment.nodes == ("n0", "")
    assert plan.status.attempt == 1
