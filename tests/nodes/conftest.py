"""Process nodes for the tests that need real processes on separate machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.pods import Pods, wait_until
from harness.training import NODES, TrainingSite, training_world
from localcluster import LocalCluster
from localcluster.processnodes import ProcessNodes
from localcluster.processnodes.node import NodeShape

VENV_BIN = Path(__file__).resolve().parents[2] / ".venv" / "bin"


@pytest.fixture(scope="session")
def process_nodes(cluster: LocalCluster) -> Iterator[ProcessNodes]:
    """Four process nodes in two racks. Tests put every node they break back in order."""
    shapes = [NodeShape(f"proc-{index}", rack=f"rack-{index // 2:03d}") for index in range(4)]
    started = ProcessNodes.start(
        cluster.state_dir, cluster.kubeconfig, shapes, path_prepend=[VENV_BIN], heartbeat_seconds=1
    )
    names = [shape.name for shape in shapes]
    wait_until(lambda: all(not cluster.api.get(f"/api/v1/nodes/{name}")["spec"].get("taints") for name in names))
    yield started
    started.stop()


@pytest.fixture
def pods(process_nodes: ProcessNodes, cluster: LocalCluster, namespace: str) -> Pods:
    return Pods(cluster, namespace)


@pytest.fixture(scope="session")
def training_site() -> Iterator[TrainingSite]:
    """Nodes on which runs really train, and an operator of their own; one world serves all tests."""
    with training_world() as world:
        yield TrainingSite(world)


@pytest.fixture
def site(training_site: TrainingSite) -> Iterator[TrainingSite]:
    """All nodes in order and free, before and after."""
    yield training_site
    training_site.put_in_order()


@pytest.fixture(scope="module")
def larger_training_site() -> Iterator[TrainingSite]:
    """Of five nodes: for four ranks, and one that takes the place of another."""
    with training_world(nodes=[*NODES, NodeShape("train-4", rack="rack-002")]) as world:
        yield TrainingSite(world)


@pytest.fixture
def larger_site(larger_training_site: TrainingSite) -> Iterator[TrainingSite]:
    yield larger_training_site
    larger_training_site.put_in_order()
