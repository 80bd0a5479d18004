"""One cluster for all tests: the kind cluster that `make e2e` has brought up, or for some of them a given one.

That is the one of KUBECONFIG, with Lockstep in it. LOCKSTEP_E2E_IMAGE names an image with Python that its nodes have,
LOCKSTEP_E2E_SHARED a folder that they and this machine have at the same path.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from containers.any_cluster import ClusterSite, given, prepare
from containers.launchers import Launcher
from containers.site import TORCH_NODES, KindSite, cluster_of
from harness.training import TrainingRun
from kindcluster import images
from kindcluster.cluster import KindCluster
from kindcluster.docker import Daemon
from kindcluster.site import TRAINER_IMAGE
from localcluster import build

GIVEN = ("KUBECONFIG", "LOCKSTEP_E2E_IMAGE", "LOCKSTEP_E2E_SHARED")


@pytest.fixture(scope="session")
def kind() -> KindCluster:
    """The kind cluster that is up."""
    folder = build.build_dir() / "kind"
    docker = Daemon(folder).found()
    if docker is None or not (folder / "kubeconfig").exists():
        others = f"; another cluster for some of the tests is given by {', '.join(GIVEN)}"
        pytest.exit(f"there is no kind cluster; `make e2e` brings one up and runs this in it{others}", returncode=1)
    return KindCluster(docker, folder)


@pytest.fixture(scope="session")
def training_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ClusterSite:
    """Runs of the stub trainer."""
    if is_given():
        kubeconfig, image, shared = (os.environ[name] for name in GIVEN)
        world = given(Path(kubeconfig), Path(shared), tmp_path_factory.mktemp("given"))
        prepare(world)
        return ClusterSite(world, image=image)
    kind: KindCluster = request.getfixturevalue("kind")
    world = cluster_of(kind)
    prepare(world)
    return KindSite(world, image=(kind.folder / TRAINER_IMAGE).read_text(), kind=kind)


def is_given() -> bool:
    return all(name in os.environ for name in GIVEN)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is done to nodes and containers from outside takes nodes of our own."""
    if is_given():
        for item in items:
            if item.get_closest_marker("containers") and not item.get_closest_marker("anywhere"):
                item.add_marker(pytest.mark.skip(reason="needs the kind cluster of `make e2e`, not a given one"))


@pytest.fixture
def site(training_site: ClusterSite) -> Iterator[ClusterSite]:
    """All nodes in order and free, before and after; and since it was installed the operator was refused nothing."""
    yield training_site
    training_site.put_in_order()
    assert training_site.refusals() == [], "the operator may not do what it does"


@pytest.fixture(scope="session")
def torch_image(kind: KindCluster) -> str:
    """The image with PyTorch, on the nodes that have it."""
    image = images.training(kind.docker, images.base(kind.docker, kind.folder, print), print)
    kind.load([image], kind.workers[:TORCH_NODES], print)
    return image


@pytest.fixture(scope="session")
def mpi_image(launcher_image: Callable[[str], str]) -> str:
    """The image with Open MPI."""
    return launcher_image("openmpi")


@pytest.fixture(scope="session")
def launcher_image(kind: KindCluster) -> Callable[[str], str]:
    """An image with a group of what tests/launchers locks, DeepSpeed on PyTorch, made and loaded for whoever asks."""

    @functools.cache
    def made(group: str) -> str:
        underneath = images.base(kind.docker, kind.folder, print)
        if group == "deepspeed":
            underneath = images.training(kind.docker, underneath, print)
        image = images.launcher(kind.docker, underneath, group, print)
        kind.load([image], kind.workers, print)
        return image

    return made


@pytest.fixture
def begun(site: KindSite, launcher_image: Callable[[str], str]) -> Callable[..., TrainingRun]:
    """A gang of that launcher begins to train, on all nodes or on so many."""

    def begin(launcher: Launcher, name: str, nodes: int = 0, **how: bool) -> TrainingRun:
        image = launcher_image(launcher.group) if launcher.group else site.image
        return launcher.begin(site, image, f"{name}-{launcher.name}", nodes or len(site.nodes), **how)

    return begin
