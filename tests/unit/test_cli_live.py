"""`explain` finds what the operator's admission pass would find, or says why it does not look."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lockstep.api import names
from lockstep.cli import live, runs
from lockstep.cli.client import Cluster
from lockstep.cli.errors import ApiError
from lockstep.cli.live import LiveAdmission, NotLive
from lockstep.core.tunables import Tunables
from support import sample_runs as sample
from support.sample_runs import NOW


class Server:
    """Lists what it was given; ``hidden`` resources may not be read."""

    namespace = "team"

    def __init__(self, hidden: str = "", **lists: list[dict[str, Any]]) -> None:
        self.hidden = hidden
        self.lists = lists

    def list(self, path: str, **query: Any) -> dict[str, Any]:
        resource = path.rpartition("/")[2]
        if resource == self.hidden:
            raise ApiError(403, "forbidden")
        return {"metadata": {}, "items": self.lists.get(resource, [])}


def node(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {names.LABEL_HOSTNAME: name}},
        "status": {
            "allocatable": {"cpu": "192", "memory": "2Ti", "nvidia.com/gpu": "8", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def daemon(on: str, gpus: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "daemon", "namespace": "kube-system", "uid": "d", "resourceVersion": "1"},
        "spec": {"nodeName": on, "containers": [{"resources": {"requests": {"nvidia.com/gpu": gpus}}}]},
        "status": {"phase": "Running"},
    }


def admission(server: Server, raw: dict[str, Any]) -> LiveAdmission:
    return live.admission(cast(Cluster, server), runs.view(raw), Tunables(), NOW)


def holder() -> dict[str, Any]:
    raw = sample.running()
    raw["metadata"] |= {"name": "holder", "uid": "other"}
    return raw


def test_holders_of_nodes_and_what_lacks_are_computed_by_the_admission_pass() -> None:
    nodes = [node(f"gpu-{n}") for n in (1, 2, 10, 11, 12)]
    found = admission(Server(nodes=nodes, trainingruns=[sample.pending(), holder()]), sample.pending())
    assert found.queue.reason == "Resources"
    assert found.queue.message.startswith("needs 4 nodes, 1 fit")
    assert found.holders == (("team/holder", ("gpu-1", "gpu-2", "gpu-10", "gpu-11")),)
    assert found.nodes == 5


def test_what_pods_of_others_use_is_counted() -> None:
    nodes = [node(f"gpu-{n}") for n in range(4)]
    server = Server(nodes=nodes, pods=[daemon("gpu-2", "1")], trainingruns=[sample.pending()])
    assert "short of nvidia.com/gpu (gpu-2: " in admission(server, sample.pending()).queue.message


def test_a_run_whose_nodes_are_free_waits_for_nothing() -> None:
    nodes = [node(f"gpu-{n}") for n in range(4)]
    assert admission(Server(nodes=nodes, trainingruns=[sample.pending()]), sample.pending()).queue.reason == ""


def test_who_is_in_front_is_named_with_what_it_lacks() -> None:
    first = sample.pending("first", position=1)
    first["metadata"] |= {"uid": "first", "creationTimestamp": sample.at(9000)}
    nodes = [node("gpu-1"), node("gpu-2"), node("gpu-10"), node("gpu-11")]
    found = admission(Server(nodes=nodes, trainingruns=[sample.pending(), first, holder()]), sample.pending())
    assert found.queue.reason == "Priority"
    assert [(key, queue.reason) for key, queue in found.ahead] == [("team/first", "Resources")]


def test_classes_labels_and_shares_count_as_they_do_for_the_operator() -> None:
    about = {"name": "default", "uid": "q", "resourceVersion": "1", "creationTimestamp": sample.at(0)}
    queue: dict[str, Any] = {"metadata": about}
    queue["spec"] = {"namespaceSelector": {"matchLabels": {"kind": "lab"}}}
    lists: dict[str, Any] = {
        "nodes": [node(f"gpu-{n}") for n in range(3)],
        "trainingqueues": [queue],
        "namespaces": [{"metadata": {"name": "team", "labels": {"kind": "lab"}}}],
        "priorityclasses": [{"metadata": {"name": "production"}, "value": 1000}],
    }
    mine = sample.pending(factors={"fairShare": 100}, updated=sample.at(5))
    urgent = sample.pending("urgent", position=1)
    urgent["spec"] = sample.SPEC | {"priorityClassName": "production"}
    urgent["metadata"] |= {"uid": "urgent", "creationTimestamp": sample.at(60)}
    found = admission(Server(**lists, trainingruns=[mine, urgent]), mine)
    assert found.queue.position == 2
    assert found.queue.factors["fairShare"] == 100
    lists["namespaces"] = [{"metadata": {"name": "team"}}]
    assert admission(Server(**lists, trainingruns=[mine, urgent]), mine).queue.reason == "NamespaceNotAllowed"


@pytest.mark.parametrize("hidden", ["nodes", "pods", "trainingruns", "trainingqueues", "namespaces", "priorityclasses"])
def test_without_the_right_to_read_the_cluster_nothing_is_made_up(hidden: str) -> None:
    with pytest.raises(NotLive, match="you may not read the"):
        admission(Server(hidden), sample.pending())


@pytest.mark.parametrize(
    "raw",
    [
        sample.pending(reason="NoNewAdmissions"),
        sample.pending(reason="ClusterDisruption"),
        sample.pending() | {"spec": sample.SPEC | {"placement": {"gpuTypes": ["B300"]}}},
        sample.pending() | {"spec": sample.SPEC | {"placement": {"topology": [{"level": "spine"}]}}},
    ],
)
def test_what_only_the_operator_knows_is_left_to_it(raw: dict[str, Any]) -> None:
    with pytest.raises(NotLive, match="operator"):
        admission(Server(), raw)


def test_nodes_that_may_not_be_read_are_simply_not_shown() -> None:
    assert live.readable_nodes(cast(Cluster, Server("nodes"))) == {}
