"""Which of the pods that a gang left behind the next one has to wait for."""

from dataclasses import replace

import pytest

from lockstep.core.model.snapshot import NodeView, PodPhase
from lockstep.core.pods.leftover_pods import holds_up
from support.admission import node, pod, run

READY, NOT_READY = node("n1"), node("n1", ready=False)


@pytest.mark.parametrize(
    ("phase", "deleting", "on", "waits"),
    [
        (PodPhase.RUNNING, False, READY, True),
        (PodPhase.PENDING, False, READY, True),
        (PodPhase.UNKNOWN, False, NOT_READY, True),
        (PodPhase.RUNNING, True, READY, True),
        # Nobody is left there to confirm its end.
        (PodPhase.RUNNING, True, NOT_READY, False),
        (PodPhase.RUNNING, True, None, False),
        (PodPhase.SUCCEEDED, False, READY, False),
        (PodPhase.FAILED, True, READY, False),
    ],
)
def test_a_gang_waits_for_a_pod_whose_end_can_be_confirmed(
    phase: PodPhase, deleting: bool, on: NodeView | None, waits: bool
) -> None:
    left = pod(run("llama"), 0, "n1", phase, deleting=deleting)
    assert holds_up(left, {"n1": on} if on is not None else {}) is waits


def test_a_pod_that_is_deleted_before_it_was_bound_holds_nobody_up_whatever_keeps_it() -> None:
    left = replace(pod(run("llama"), 0, "n1", PodPhase.PENDING, deleting=True), bound=False)
    assert not holds_up(left, {"n1": READY})
