"""Reading a pod template, and merging it under what Lockstep sets."""

from typing import Any

import pytest

from lockstep.core.placement.node_fit import Expression, Toleration
from lockstep.core.pods.pod_template import (
    affinity_terms,
    companions_request,
    has_quantities,
    init_request,
    items,
    merged,
    node_selector,
    section,
    terms,
    tolerations,
)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": 2}, {"a": 1}),
        ({"a": None}, {"a": 2}, {"a": 2}),
        ({"a": {"x": 1}}, {"a": {"x": 2, "y": 3}}, {"a": {"x": 1, "y": 3}}),
        ({"tolerations": [1]}, {"tolerations": [2]}, {"tolerations": [1, 2]}),
        ({"tolerations": [1]}, {"tolerations": 2}, {"tolerations": [1, 2]}),
        (
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": "2"}]},
            {"env": [{"name": "A", "value": "1"}]},
        ),
        (
            {"containers": [{"name": "trainer", "image": "i"}]},
            {"containers": [{"name": "logs"}, {"name": "trainer", "tty": True}]},
            {"containers": [{"name": "trainer", "image": "i", "tty": True}, {"name": "logs"}]},
        ),
        (
            {"volumeMounts": [{"mountPath": "/a", "name": "ours"}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "theirs"}, {"mountPath": "/b", "name": "ours"}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "ours"}, {"mountPath": "/b", "name": "ours"}]},
        ),
        (
            {"containers": [{"name": "trainer"}]},
            {"containers": ["x", {}]},
            {"containers": [{"name": "trainer"}, "x", {}]},
        ),
    ],
)
def test_what_lockstep_sets_wins_and_named_items_become_one(
    ours: dict[str, Any], theirs: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert merged(ours, theirs) == expected


@pytest.mark.parametrize(
    ("template", "found"),
    [
        (None, {}),
        ({}, {}),
        ({"spec": {"affinity": {"a": 1}}}, {"a": 1}),
        ({"spec": {"affinity": None}}, {}),
        ({"spec": []}, {}),
        ({"spec": {"affinity": "x"}}, {}),
    ],
)
def test_a_section_that_is_no_object_is_empty(template: Any, found: dict[str, Any]) -> None:
    assert section(template, "spec", "affinity") == found


@pytest.mark.parametrize(
    ("value", "found"), [(None, []), ("x", []), ({"a": 1}, []), ([{"a": 1}, "x", None], [{"a": 1}]), ([], [])]
)
def test_items_are_the_objects_of_a_list(value: Any, found: list[Any]) -> None:
    assert items({"volumes": value}, "volumes") == found


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({}, Toleration("", "Equal", "", "")),
        ({"operator": "Exists"}, Toleration("", "Exists")),
        ({"key": "gpu", "value": "yes", "effect": "NoSchedule"}, Toleration("gpu", "Equal", "yes", "NoSchedule")),
        ({"key": None, "operator": None}, Toleration()),
    ],
)
def test_a_toleration_has_the_defaults_of_kubernetes(raw: dict[str, Any], expected: Toleration) -> None:
    (found,) = tolerations([raw])
    assert found == expected


def test_a_node_selector_is_read_as_text() -> None:
    assert node_selector({"nodeSelector": {"pool": "a", "generation": 4}}) == (("pool", "a"), ("generation", "4"))
    assert node_selector({"nodeSelector": ["x"]}) == ()


def required(*listed: Any) -> dict[str, Any]:
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*listed]}}
    return {"affinity": {"nodeAffinity": rule}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({}, ()),
        (required(), ()),
        (
            required({"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", 1]}]}),
            ((Expression("pool", "In", ("a", "1")),),),
        ),
        (
            required(
                {
                    "matchExpressions": [{"key": "pool", "operator": "Exists"}],
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                },
                {"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]},
            ),
            (
                (Expression("pool", "Exists"), Expression("metadata.name", "In", ("n1",))),
                (Expression("pool", "DoesNotExist"),),
            ),
        ),
    ],
)
def test_of_the_terms_of_an_affinity_one_must_hold_whole(pod: dict[str, Any], expected: Any) -> None:
    assert terms(pod) == expected
    assert len(affinity_terms(pod)) == len(expected)


def test_an_empty_term_is_met_by_no_node() -> None:
    ((line,),) = terms(required({}))
    assert not line.admits("a")
    assert not line.admits(None)


def beside(kind: str, requests: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    resources = {"requests": requests or {}, "limits": more.pop("limits", {})}
    return {kind: [{"name": "logs", "resources": resources, **more}]}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({}, {}),
        (beside("containers", {"cpu": "1500m"}), {"cpu": 1500}),
        (beside("containers", {"cpu": "1"}, name="trainer"), {}),
        (beside("containers", limits={"cpu": "2"}), {"cpu": 2000}),
        (beside("containers", {"cpu": "1"}, limits={"cpu": "2"}), {"cpu": 1000}),
        (beside("initContainers", {"cpu": "1"}), {}),
        (beside("initContainers", {"cpu": "1"}, restartPolicy="Always"), {"cpu": 1000}),
        (
            beside("containers", {"cpu": "1"}) | beside("initContainers", {"cpu": "2"}, restartPolicy="Always"),
            {"cpu": 3000},
        ),
    ],
)
def test_what_stays_beside_the_trainer_is_requested_with_it(pod: dict[str, Any], expected: dict[str, int]) -> None:
    assert companions_request(pod, "trainer") == expected


def before(*containers: tuple[dict[str, str], bool]) -> dict[str, Any]:
    """Init containers by what they request, and whether they stay."""
    return {
        "initContainers": [
            {"resources": {"requests": requests}} | ({"restartPolicy": "Always"} if stays else {})
            for requests, stays in containers
        ]
    }


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({}, {}),
        (beside("containers", {"cpu": "9"}), {}),
        (beside("initContainers", limits={"memory": "1Ki", "nvidia.com/gpu": "0"}), {"memory": 1024}),
        (
            before(({"cpu": "3", "memory": "1"}, False), ({"cpu": "1", "memory": "2"}, False)),
            {"cpu": 3000, "memory": 2},
        ),
        (before(({"cpu": "1"}, True), ({"cpu": "3"}, False)), {"cpu": 4000}),
        (before(({"cpu": "3"}, False), ({"cpu": "1"}, True)), {"cpu": 3000}),
    ],
)
def test_before_its_containers_a_pod_requests_the_most_that_one_of_them_needs(
    pod: dict[str, Any], expected: dict[str, int]
) -> None:
    assert init_request(pod) == expected


def test_a_request_that_is_no_quantity_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="write a quantity"):
        companions_request(beside("containers", {"cpu": "many"}), "trainer")
    assert not has_quantities(beside("containers", {"cpu": "many"}))
    assert not has_quantities(beside("initContainers", limits={"memory": {}}))
    assert has_quantities(beside("containers", {"cpu": "1"}))
