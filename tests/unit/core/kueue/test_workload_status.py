"""What Kueue is told in the status of a Workload."""

from typing import Any

import pytest

from lockstep.api.base.times import to_rfc3339
from lockstep.core.kueue.workload_status import finished, held_back, pods_ready, released, requeued
from lockstep.core.model.kueue.workload import WorkloadCondition, WorkloadView
from lockstep.core.model.kueue.writes import WorkloadVerb, WorkloadWrite

NOW = 1_000_000.0
EARLIER = to_rfc3339(NOW - 600)


def workload(*conditions: tuple[str, str, str], past: int = 0) -> WorkloadView:
    """With these conditions: type, status, reason; all for ten minutes."""
    held = tuple(WorkloadCondition(kind, status, reason, "words", EARLIER) for kind, status, reason in conditions)
    return WorkloadView("ns", "w", "u", "7", generation=3, conditions=held, past_seconds=past)


def told(write: WorkloadWrite | None) -> dict[str, tuple[str, str]]:
    """Status and reason by type of condition."""
    assert write is not None
    assert (write.verb, write.uid, write.resource_version) == (WorkloadVerb.TELL, "u", "7")
    return {each["type"]: (each["status"], each["reason"]) for each in write.body["conditions"]}


@pytest.mark.parametrize(
    ("known", "ready", "said"),
    [
        ([], False, None),
        ([], True, ("True", "Started")),
        ([("PodsReady", "False", "WaitForStart")], False, None),
        ([("PodsReady", "False", "WaitForStart")], True, ("True", "Started")),
        ([("PodsReady", "False", "WaitForRecovery")], True, ("True", "Recovered")),
        ([("PodsReady", "True", "Started")], True, None),
        ([("PodsReady", "True", "Started")], False, ("False", "WaitForRecovery")),
    ],
)
def test_whether_every_rank_is_up_is_told_once(
    known: list[tuple[str, str, str]], ready: bool, said: tuple[str, str] | None
) -> None:
    write = pods_ready(workload(*known), ready, NOW)
    assert (write and told(write)["PodsReady"]) == said


def test_conditions_of_others_stay_in_the_list() -> None:
    write = pods_ready(workload(("Admitted", "True", "Admitted")), True, NOW)
    assert told(write) == {"Admitted": ("True", "Admitted"), "PodsReady": ("True", "Started")}


@pytest.mark.parametrize(("succeeded", "reason"), [(True, "Succeeded"), (False, "Failed")])
def test_the_end_gives_the_quota_back_for_good(succeeded: bool, reason: str) -> None:
    write = finished(workload(), succeeded, "x" * 2000, NOW)
    assert told(write) == {"Finished": ("True", reason)}
    assert write.body["conditions"][0]["message"] == "x" * 1024


@pytest.mark.parametrize(
    ("why", "requeued"),
    [
        ("Preempted", ("True", "Preempted")),
        ("NodeFailures", ("True", "NodeFailures")),
        ("PodsReadyTimeout", ("False", "PodsReadyTimeout")),
        ("Deactivated", ("False", "Deactivated")),
        ("DeactivatedDueToRequeuingLimitExceeded", ("False", "Deactivated")),  # Kueue goes on from no other
        ("", ("False", "Evicted")),
    ],
)
def test_after_a_preemption_it_may_be_admitted_again_at_once_and_else_kueue_says_when(
    why: str, requeued: tuple[str, str]
) -> None:
    evicted = [("Evicted", "True", why)] if why else []
    said = told(released(workload(("QuotaReserved", "True", "x"), ("Admitted", "True", "y"), *evicted), NOW))
    assert said["Requeued"] == requeued
    assert said["QuotaReserved"] == ("False", "PendingEvaluation")
    assert said["Admitted"] == ("False", "NoReservation")
    assert "PodsReady" not in said, "nobody has heard of its pods"


def test_pods_that_were_ready_wait_for_their_start_after_a_release() -> None:
    assert told(released(workload(("PodsReady", "True", "Started")), NOW))["PodsReady"] == ("False", "WaitForStart")


@pytest.mark.parametrize(
    ("conditions", "past", "seconds"),
    [
        ([], 0, 0),
        ([("Admitted", "True", "x")], 0, 600),
        ([("Admitted", "True", "x")], 50, 650),
        ([("Admitted", "False", "x")], 50, 50),
    ],
)
def test_the_time_with_a_reservation_adds_up(conditions: list[Any], past: int, seconds: int) -> None:
    body = released(workload(*conditions, past=past), NOW).body
    assert body["accumulatedPastExecutionTimeSeconds"] == seconds
    assert body["admission"] is None


@pytest.mark.parametrize(("before", "since"), [("False", EARLIER), ("True", to_rfc3339(NOW))])
def test_a_condition_keeps_its_time_while_its_status_stays(before: str, since: str) -> None:
    write = released(workload(("QuotaReserved", before, "x")), NOW)
    (made,) = [each for each in write.body["conditions"] if each["type"] == "QuotaReserved"]
    assert made["lastTransitionTime"] == since
    assert made["observedGeneration"] == 3


def test_what_is_held_back_gives_its_reservation_back_and_is_requeued_once() -> None:
    reserved = workload(("QuotaReserved", "True", "QuotaReserved"), ("Admitted", "True", "Admitted"))
    write = held_back(reserved, "it names a bad node", NOW)
    assert told(write) == {
        "QuotaReserved": ("False", "PendingEvaluation"),
        "Admitted": ("False", "NoReservation"),
        "Requeued": ("False", "AskedAnew"),
    }
    assert write.body["admission"] is None
    assert told(requeued(workload(("Requeued", "False", "AskedAnew")), NOW)) == {"Requeued": ("True", "AskedAnew")}


@pytest.mark.parametrize(
    "known", [[], [("Requeued", "True", "AskedAnew")], [("Requeued", "False", "PodsReadyTimeout")]]
)
def test_what_others_hold_back_is_not_requeued(known: list[tuple[str, str, str]]) -> None:
    assert requeued(workload(*known), NOW) is None
