"""What the pods of a gang owe to its reservation."""

from typing import Any

import pytest

from lockstep.api.kueue_status import KueueStatus, KueueToleration
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.kueue.pod_marks import held_back, marked, updates_of
from lockstep.core.kueue.workload_request import Ask
from lockstep.core.model.kueue.installation import Flavor, Kueue, Presence
from lockstep.core.model.kueue.topology_assignment import Domain, TopologyAssignment
from lockstep.core.model.kueue.workload import Admission, AdmissionCheck, PodSetUpdate, WorkloadView
from support.values import not_none

TOPOLOGY = TopologyAssignment(("kubernetes.io/hostname",), (Domain(("n1",), 1),))
FLAVORS = {name: Flavor(PodSetUpdate(name, node_selector={"pool": name})) for name in ("a", "b")}


def asking(**fields: Any) -> TrainingRunStatus:
    return TrainingRunStatus(kueue=KueueStatus(queue="team", **fields))


def reserved(topology: TopologyAssignment | None = None, **changes: Any) -> WorkloadView:
    admission = Admission("shared", "gang", 1, changes.pop("flavors", ("a",)), topology)
    return WorkloadView("ns", "w", "u", "7", admission=admission, **changes)


@pytest.mark.parametrize(
    ("flavors", "checks", "sources"),
    [
        ((), (), []),
        (("b", "a"), (), ["b", "a"]),
        (("a",), (AdmissionCheck("c", "Ready", update=PodSetUpdate("c")), AdmissionCheck("d", "Ready")), ["a", "c"]),
    ],
)
def test_flavors_and_admission_checks_want_something_of_the_pods(
    flavors: tuple[str, ...], checks: tuple[AdmissionCheck, ...], sources: list[str]
) -> None:
    kueue = Kueue(Presence.PRESENT, flavors=FLAVORS)
    assert [each.source for each in updates_of(reserved(flavors=flavors, checks=checks), kueue)] == sources


def test_a_flavor_that_nobody_knows_is_named() -> None:
    with pytest.raises(ValueError, match="there is no ResourceFlavor lost"):
        updates_of(reserved(flavors=("lost",)), Kueue(Presence.PRESENT, flavors=FLAVORS))


@pytest.mark.parametrize(
    ("topology", "request_", "mark"),
    [
        (TOPOLOGY, {"required": "rack"}, {"kueue.x-k8s.io/podset-required-topology": "rack"}),
        (TOPOLOGY, {"preferred": "rack"}, {"kueue.x-k8s.io/podset-preferred-topology": "rack"}),
        (TOPOLOGY, {"unconstrained": True}, {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}),
        (None, {"required": "rack"}, {}),
        (TOPOLOGY, {}, {}),
    ],
)
def test_pods_say_that_kueue_has_placed_them_where_it_has(
    topology: TopologyAssignment | None, request_: dict[str, Any], mark: dict[str, str]
) -> None:
    ask = Ask({"podSets": [{"topologyRequest": request_}]}, "digest", frozenset())
    found = not_none(marked(asking(), reserved(topology), ask, PodSetUpdate("")).kueue)
    assert found.annotations == {"kueue.x-k8s.io/workload": "w", **mark}
    assert found.labels == {"kueue.x-k8s.io/podset": "gang"}


def test_status_keeps_what_pods_are_made_from_and_forgets_what_was_given_up() -> None:
    update = PodSetUpdate(
        "", {"l": "1"}, {"a": "2"}, {"pool": "a"}, ({"key": "gpu", "operator": "Exists"}, {"key": "x", "value": "y"})
    )
    ask = Ask({"podSets": [{}]}, "digest", frozenset())
    found = not_none(marked(asking(given_up="old", workload_uid="old"), reserved(), ask, update).kueue)
    assert (found.workload, found.workload_uid, found.given_up, found.cluster_queue) == ("w", "u", "", "shared")
    assert found.node_selector == {"pool": "a"}
    assert found.tolerations == (KueueToleration(key="gpu", operator="Exists"), KueueToleration(key="x", value="y"))
    assert found.labels["l"] == "1"
    assert found.annotations["a"] == "2"


@pytest.mark.parametrize(
    ("pod", "held"),
    [
        ({}, False),
        ({"spec": {"schedulingGates": None}}, False),
        ({"spec": {"schedulingGates": [{"name": "somebody.else/gate"}]}}, False),
        ({"spec": {"schedulingGates": [{"name": "a/b"}, {"name": "kueue.x-k8s.io/admission"}]}}, True),
    ],
)
def test_a_pod_that_kueue_would_hold_back_is_told_with_the_remedy(pod: dict[str, Any], held: bool) -> None:
    words = held_back(pod)
    assert bool(words) == held
    assert not held or ("kueue.x-k8s.io/admission" in words and "kueue.x-k8s.io/queue-name" in words)
