"""What the cluster has of Kueue."""

import pytest

from lockstep.core.model.kueue.installation import (
    Flavor,
    Kueue,
    Presence,
    parse_class,
    parse_cluster_queue,
    parse_flavor,
    parse_local_queue,
    parse_topology,
)
from lockstep.core.model.kueue.workload import PodSetUpdate

RACK, HOST = "topology.kubernetes.io/rack", "kubernetes.io/hostname"


def test_queues_flavors_and_topologies_are_read() -> None:
    queue = {
        "spec": {"resourceGroups": [{"flavors": [{"name": "h100"}, {"name": "h200"}]}, {"flavors": [{"name": "h100"}]}]}
    }
    assert parse_cluster_queue(queue) == ("h100", "h200")
    flavor = parse_flavor({"metadata": {"name": "h100"}, "spec": {"nodeLabels": {"a": "b"}, "topologyName": "racks"}})
    assert (flavor.topology, flavor.update.node_selector) == ("racks", {"a": "b"})
    assert parse_topology({"spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]}}) == (RACK, HOST)


@pytest.mark.parametrize(
    ("presence", "present"),
    [(Presence.UNKNOWN, False), (Presence.DISABLED, False), (Presence.ABSENT, False), (Presence.PRESENT, True)],
)
def test_nothing_is_concluded_from_a_kueue_that_is_not_known(presence: Presence, present: bool) -> None:
    assert Kueue(presence).is_present is present


PLAIN, BY_RACK = Flavor(PodSetUpdate("plain")), Flavor(PodSetUpdate("racks"), "racks")


@pytest.mark.parametrize(
    ("flavors", "queue", "levels"),
    [
        ({"a": BY_RACK}, "team", (RACK, HOST)),
        ({"a": PLAIN}, "team", ()),
        ({"a": PLAIN, "b": BY_RACK}, "team", (RACK, HOST)),
        ({"b": BY_RACK}, "team", (RACK, HOST)),  # flavor a is not there
        ({"a": Flavor(PodSetUpdate("x"), "lost"), "b": BY_RACK}, "team", ()),
        ({"a": BY_RACK}, "nobody", ()),
    ],
)
def test_pods_are_placed_by_the_first_topology_behind_a_local_queue(
    flavors: dict[str, Flavor], queue: str, levels: tuple[str, ...]
) -> None:
    kueue = Kueue(
        Presence.PRESENT,
        local_queues={("ns", "team"): "shared"},
        cluster_queues={"shared": ("a", "b")},
        flavors=flavors,
        topologies={"racks": (RACK, HOST)},
    )
    assert kueue.levels_of("ns", queue) == levels
    assert kueue.levels_of("elsewhere", queue) == ()


@pytest.mark.parametrize(
    ("raw", "value"), [({}, 0), ({"value": None}, 0), ({"value": -5}, -5), ({"value": 100}, 100)], ids=str
)
def test_a_class_has_a_value(raw: dict[str, int], value: int) -> None:
    assert parse_class(raw) == value


@pytest.mark.parametrize(
    ("raw", "cluster_queue"),
    [({}, ""), ({"spec": None}, ""), ({"spec": {"clusterQueue": "shared"}}, "shared")],
    ids=str,
)
def test_a_local_queue_points_to_a_cluster_queue(raw: dict[str, dict[str, str]], cluster_queue: str) -> None:
    assert parse_local_queue(raw) == cluster_queue
