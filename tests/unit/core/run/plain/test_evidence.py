"""What is seen of a gang without workers: lost nodes and pods, and programs that ended by themselves."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.core.failures.evidence import LossKind
from lockstep.core.model.reasons import LossReason
from lockstep.core.model.snapshot import PodPhase, Taint
from lockstep.core.run.plain.evidence import is_given_up, plain_exits, plain_losses, seconds_of_training
from support.world import World, node, world_with_gang


def gang(**pod: Any) -> World:
    """The pod of slot 1 is changed as said."""
    w = world_with_gang(2, worker="Disabled")
    for key, view in w.pods.items():
        if view.slot == 1:
            w.pods[key] = replace(view, **pod)
    return w


FAILED = {"phase": PodPhase.FAILED}


@pytest.mark.parametrize(
    ("pod", "code"),
    [
        ({}, None),
        ({**FAILED, "exit_code": 1, "reason": "Error"}, 1),
        ({**FAILED, "exit_code": 137, "reason": "OOMKilled"}, 137),
        ({**FAILED, "exit_code": 143, "reason": "Error"}, None),
        ({**FAILED, "exit_code": 1, "reason": "Error", "disruption": "Evicted"}, None),
        ({**FAILED, "exit_code": 1, "reason": "Evicted"}, None),
        ({**FAILED, "reason": "Error"}, None),
        ({"phase": PodPhase.SUCCEEDED, "exit_code": 0, "reason": "Completed"}, None),
        ({**FAILED, "exit_code": 128, "reason": "StartError", "message": "x: executable file not found"}, 127),
        ({**FAILED, "exit_code": 128, "reason": "StartError", "message": "x: permission denied"}, 126),
        ({**FAILED, "exit_code": 128, "reason": "StartError", "message": "no runtime"}, None),
    ],
)
def test_a_bad_exit_is_a_program_that_ended_by_itself(pod: dict[str, Any], code: int | None) -> None:
    assert [end.exit.code for end in plain_exits(gang(**pod).plan("one"))] == ([] if code is None else [code])


@pytest.mark.parametrize(
    ("pod", "view", "kind", "reason"),
    [
        ({}, {}, None, None),
        ({"deleting": True}, {}, LossKind.POD, LossReason.POD_DELETED),
        ({"deleting": True}, {"ready": False, "ready_changed_at": 1e6}, LossKind.NODE, LossReason.NODE_NOT_READY),
        ({"deleting": True}, {"unschedulable": True}, LossKind.DRAINED, LossReason.NODE_CORDONED),
        ({**FAILED, "exit_code": 143}, {}, LossKind.POD, LossReason.POD_FAILED),
        ({**FAILED, "exit_code": 1, "reason": "Error"}, {}, None, None),
        ({}, {"ready": False, "ready_changed_at": 1e6}, None, None),
        ({}, {"ready": False, "ready_changed_at": 0.0}, LossKind.NODE, LossReason.NODE_NOT_READY),
        ({}, {"taints": (Taint(names.TAINT_OUT_OF_SERVICE, "NoExecute"),)}, LossKind.NODE, LossReason.OUT_OF_SERVICE),
    ],
)
def test_a_slot_is_lost_with_its_pod_or_with_a_node_that_stays_away(
    pod: dict[str, Any], view: dict[str, Any], kind: LossKind | None, reason: LossReason | None
) -> None:
    w = gang(**pod)
    w.nodes["n1"] = replace(w.nodes["n1"], **view)
    found = [(loss.slot, loss.kind, loss.reason) for loss in plain_losses(w.plan("one"))]
    assert found == ([] if kind is None else [(1, kind, reason)])


def test_a_node_is_given_up_once_somebody_says_so() -> None:
    assert is_given_up(None)
    assert not is_given_up(node("n0", ready=False))


@pytest.mark.parametrize(
    ("started", "ended", "seconds"), [(-50.0, None, 50.0), (None, None, 0.0), (-50.0, -20.0, 30.0), (-10.0, -20.0, 0.0)]
)
def test_training_counts_from_the_last_start_to_the_first_end(
    started: float | None, ended: float | None, seconds: float
) -> None:
    w = gang()
    for key, view in w.pods.items():
        at = w.now + (started if view.slot == 1 and started is not None else -100.0)
        w.pods[key] = replace(view, started_at=None if started is None and view.slot == 1 else at)
        if view.slot == 0 and ended is not None:
            w.pods[key] = replace(w.pods[key], ended_at=w.now + ended)
    assert seconds_of_training(w.plan("one")) == seconds
