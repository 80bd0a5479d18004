"""What the tests of Lockstep at work share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster import LocalCluster
from support.site import Site


@pytest.fixture(scope="session")
def running_site(
    cluster: LocalCluster, crds_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("site")
    site = Site(cluster, folder)
    yield site
    site.close()


@pytest.fixture
def site(running_site: Site) -> Iterator[Site]:
    """Six nodes, an operator that leads, workers that obey. No two gang pods may ever be on one node."""
    running_site.workers.hold_replies(lambda body, reply: True)
    running_site.proxy.writes.clear()
    with running_site.with_nodes(6):
        yield running_site
    assert running_site.workers.shared_nodes == []
