"""One kind cluster for all tests, which `make e2e` has brought up; and what no test may leave behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from containers.site import KindSite, Machines, machines, prepare
from kindcluster.cluster import KindCluster
from kindcluster.docker import Daemon
from kindcluster.site import TORCH_IMAGE, TRAINER_IMAGE
from localcluster import build


@pytest.fixture(scope="session")
def kind() -> KindCluster:
    """The cluster that is up."""
    folder = build.build_dir() / "kind"
    docker = Daemon(folder).found()
    if docker is None or not (folder / "kubeconfig").exists():
        pytest.exit("there is no kind cluster; `make e2e` brings one up and runs this in it", returncode=1)
    return KindCluster(docker, folder)


@pytest.fixture(scope="session")
def world(kind: KindCluster) -> Machines:
    """Its API, ready for runs."""
    world = machines(kind)
    prepare(world)
    return world


@pytest.fixture(scope="session")
def training_site(kind: KindCluster, world: Machines) -> KindSite:
    """Runs of the stub trainer."""
    return KindSite(world, image=(kind.folder / TRAINER_IMAGE).read_text())  # type: ignore[arg-type]


@pytest.fixture
def site(training_site: KindSite) -> Iterator[KindSite]:
    """All nodes in order and free, before and after; and since it was installed the operator was refused nothing."""
    yield training_site
    training_site.put_in_order()
    assert training_site.kind.refusals() == [], "the operator may not do what it does"


@pytest.fixture(scope="session")
def torch_image(kind: KindCluster) -> str:
    """The image with PyTorch."""
    return (kind.folder / TORCH_IMAGE).read_text()
