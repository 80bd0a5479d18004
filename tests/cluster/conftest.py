"""What the tests of Lockstep at work share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.site import Site
from localcluster import LocalCluster, build, processes
from support import rights


@pytest.fixture(scope="session")
def _rights_used(request: pytest.FixtureRequest) -> Iterator[dict[rights.Right, str]]:
    """By right, with the module that used it first. Once all cluster tests have run, none on record is left over."""
    used: dict[rights.Right, str] = {}
    yield used
    modules = set(rights.recorded().values())
    ran = {item.path.stem for item in request.session.items}
    chosen = request.config.option.keyword or any("::" in argument for argument in request.config.args)
    if modules <= ran and not chosen and not request.session.testsfailed:
        unused = rights.recorded().keys() - used.keys()
        assert rights.listed(unused) == "", "rights that nobody needs"


@pytest.fixture(scope="module", autouse=True)
def _no_right_lacks(request: pytest.FixtureRequest, _rights_used: dict[rights.Right, str]) -> Iterator[None]:
    """No request of the operator is refused for want of a right.

    With LOCKSTEP_RECORD_RIGHTS set, rights that are not on record yet are written there.
    """
    me = processes.this_process()
    clusters = build.build_dir() / "test-clusters" / f"{me.pid}-{me.start_ticks}"
    given = os.environ.get("LOCKSTEP_TEST_STATE")
    logs = rights.AuditLogs([Path(given)] if given else [clusters, clusters.with_name(f"{clusters.name}-gangs")])
    logs.begin()
    yield
    module = request.path.stem
    _rights_used.update(dict.fromkeys(logs.used(), module) | _rights_used)
    if os.environ.get("LOCKSTEP_RECORD_RIGHTS"):
        rights.record(_rights_used)
    assert logs.refused() == [], "requests for which the operator lacks a right"


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
