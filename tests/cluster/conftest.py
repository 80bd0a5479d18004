"""What the tests of Lockstep at work share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localcluster import LocalCluster
from support.site import Site


# For one module: other tests on this control plane make runs that no operator may touch.
@pytest.fixture(scope="module")
def running_site(
    cluster: LocalCluster, crds_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    with Site.started(cluster, tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def site(running_site: Site) -> Iterator[Site]:
    """Six nodes, an operator that leads, workers that obey. No two gang pods may ever be on one node."""
    running_site.mend()
    with running_site.with_nodes(6):
        yield running_site
    assert running_site.workers.shared_nodes == []
