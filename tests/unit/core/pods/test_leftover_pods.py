"""Which of the pods that a gang left behind the next one has to wait for."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.core.model.snapshot import NodeView, PodPhase
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods.leftover_pods import holds_node, holds_up, never_started, orphan_deletes
from support.admission import NOW, node, pod, run

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


@pytest.mark.parametrize(
    ("phase", "changes", "never"),
    [
        (PodPhase.PENDING, {}, True),
        (PodPhase.PENDING, {"reason": "ContainerCreating"}, True),
        (PodPhase.PENDING, {"started_at": 5.0}, False),
        (PodPhase.PENDING, {"exit_code": 1}, False),
        (PodPhase.RUNNING, {}, False),
        (PodPhase.UNKNOWN, {}, False),  # nothing is known, which is no evidence
        (PodPhase.FAILED, {}, False),
    ],
)
def test_only_a_pod_that_says_so_has_never_run(phase: PodPhase, changes: dict[str, Any], never: bool) -> None:
    assert never_started(pod(run("llama"), 0, "n1", phase, **changes)) is never


@pytest.mark.parametrize(
    ("phase", "changes", "holds"),
    [
        (PodPhase.PENDING, {}, True),
        (PodPhase.RUNNING, {"deleting": True}, True),
        (PodPhase.SUCCEEDED, {}, False),
        (PodPhase.PENDING, {"bound": False}, True),
        (PodPhase.PENDING, {"bound": False, "deleting": True}, False),
    ],
)
def test_a_pod_holds_its_node_until_it_has_ended_or_can_be_bound_no_more(
    phase: PodPhase, changes: dict[str, Any], holds: bool
) -> None:
    assert holds_node(replace(pod(run("llama"), 0, "n1", phase), **changes)) is holds


@pytest.mark.parametrize(
    ("changes", "graces"),
    [
        ({}, [None]),
        ({"deleting": True, "killed_at": NOW + 1200}, []),
        ({"deleting": True, "killed_at": NOW + 1e8}, [3600]),
        ({"deleting": True, "killed_at": NOW + 3600}, []),
    ],
    ids=["not yet deleted", "within its grace", "with a grace of years", "with the longest"],
)
def test_pods_whose_run_is_gone_are_held_by_no_grace_for_longer_than_an_hour(
    changes: dict[str, Any], graces: list[int | None]
) -> None:
    left = pod(run("llama"), 0, "n1", **changes)
    assert [gone.grace for gone in orphan_deletes([left], Tunables(), NOW)] == graces
