"""A Workload of Kueue's, as the core reads it."""

from typing import Any

import pytest

from lockstep.core.model.kueue.workload import (
    Admission,
    ConflictError,
    PodSetUpdate,
    WorkloadCondition,
    WorkloadView,
    merged,
    parse_workload,
)


def test_an_admission_is_read_with_its_checks_and_flavors() -> None:
    raw = {
        "metadata": {"namespace": "ns", "name": "w", "uid": "u", "resourceVersion": "3"},
        "spec": {"queueName": "team"},
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "True"}],
            "admission": {
                "clusterQueue": "shared",
                "podSetAssignments": [
                    {"name": "gang", "count": 2, "flavors": {"nvidia.com/gpu": "h100", "cpu": "h100"}}
                ],
            },
            "admissionChecks": [
                {
                    "name": "provision",
                    "state": "Ready",
                    "podSetUpdates": [{"name": "gang", "annotations": {"a": "b"}, "nodeSelector": {"new": "yes"}}],
                }
            ],
            "requeueState": {"count": 2, "requeueAt": "2026-01-01T00:00:00Z"},
        },
    }
    found = parse_workload(raw)
    assert found.is_admitted
    assert found.admission is not None
    assert (found.admission.cluster_queue, found.admission.count, found.admission.flavors) == ("shared", 2, ("h100",))
    assert found.checks[0].update is not None
    assert found.checks[0].update.node_selector == {"new": "yes"}
    assert found.requeues == 2
    delayed = {**raw["status"]["admission"]["podSetAssignments"][0], "delayedTopologyRequest": "Pending"}  # type: ignore[index]
    raw["status"]["admission"]["podSetAssignments"] = [delayed]  # type: ignore[index]
    assert not parse_workload(raw).is_admitted, "the topology is yet to come"


@pytest.mark.parametrize("condition", ["Evicted", "Finished"])
def test_a_reservation_that_is_wanted_back_is_none(condition: str) -> None:
    conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted", condition)]
    admission = {"clusterQueue": "q", "podSetAssignments": [{"name": "gang", "count": 1}]}
    meta = {"namespace": "ns", "name": "w", "uid": "u", "resourceVersion": "3"}
    found = parse_workload({"metadata": meta, "status": {"conditions": conditions, "admission": admission}})
    assert not found.is_admitted
    assert found.is_reserved


def test_two_that_want_different_things_of_the_pods_are_a_conflict_that_names_both() -> None:
    one = PodSetUpdate("ResourceFlavor a", node_selector={"pool": "a"}, tolerations=({"key": "x"},))
    same = PodSetUpdate(
        "admission check b", node_selector={"pool": "a"}, labels={"l": "1"}, tolerations=({"key": "x"},)
    )
    found = merged([one, same])
    assert (found.node_selector, found.labels, found.tolerations) == ({"pool": "a"}, {"l": "1"}, ({"key": "x"},))
    other = PodSetUpdate("admission check c", node_selector={"pool": "b"})
    with pytest.raises(ConflictError, match="ResourceFlavor a and admission check c disagree about pool"):
        merged([one, other])


@pytest.mark.parametrize(
    ("changes", "admitted"),
    [
        ({}, True),
        ({"active": False}, False),
        ({"deleting": True}, False),
        ({"admission": None}, False),
        ({"admission": Admission("q", "gang", 1, delayed=True)}, False),
        ({"conditions": ("QuotaReserved",)}, False),
        ({"conditions": ("Admitted",)}, False),
        ({"conditions": ("QuotaReserved", "Admitted", "Evicted")}, False),
        ({"conditions": ("QuotaReserved", "Admitted", "Finished")}, False),
        ({"conditions": ("QuotaReserved", "Admitted", "PodsReady")}, True),
    ],
)
def test_nodes_may_be_used_when_everything_is_there_and_nobody_wants_them_back(
    changes: dict[str, Any], admitted: bool
) -> None:
    true = changes.pop("conditions", ("QuotaReserved", "Admitted"))
    conditions = tuple(WorkloadCondition(kind, "True") for kind in true)
    known = {"admission": Admission("q", "gang", 1), **changes}
    assert WorkloadView("ns", "w", "u", "3", conditions=conditions, **known).is_admitted is admitted


@pytest.mark.parametrize(
    ("assignments", "problem"),
    [
        ([], "it has 0 podSetAssignments for the one podSet of a gang"),
        ([{"name": "gang"}, {"name": "other"}], "it has 2 podSetAssignments for the one podSet of a gang"),
        ([{"name": "gang", "topologyAssignment": {"levels": ["x"], "slices": ["y"]}}], "slices[0] is no object"),
        ([{"name": "gang", "count": 1}], ""),
    ],
)
def test_a_reservation_that_makes_no_sense_says_why(assignments: list[dict[str, Any]], problem: str) -> None:
    meta = {"namespace": "ns", "name": "w", "uid": "u", "resourceVersion": "3"}
    found = parse_workload({"metadata": meta, "status": {"admission": {"podSetAssignments": assignments}}}).admission
    assert found is not None
    assert problem in found.problem
    assert bool(found.problem) is bool(problem)


def test_a_workload_that_says_nothing_is_active_and_asks_for_nothing() -> None:
    found = parse_workload({"metadata": {"namespace": "ns", "name": "w", "uid": "u", "resourceVersion": "3"}})
    assert found == WorkloadView("ns", "w", "u", "3")
    assert not found.is_reserved
