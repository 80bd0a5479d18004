"""Helm, promtool, and a cluster that may be broken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness import world
from localcluster import LocalCluster, build
from support.helm import Helm
from support.promtool import Promtool


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Built first where it is missing; `make test` has done that."""
    build.build_all(names=("helm",))
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> Promtool:
    build.build_all(names=("promtool",))
    return Promtool(tmp_path_factory.mktemp("promtool"))


@pytest.fixture(scope="module")
def bare_cluster() -> Iterator[LocalCluster]:
    """A control plane of its own: what is installed and removed here would pull the rug from under other tests."""
    with world.control_plane() as cluster:
        yield cluster
