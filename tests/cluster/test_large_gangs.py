"""A gang whose nodes are too many for its status, on a real control plane."""

from __future__ import annotations

import pytest

from harness.site import Site
from localcluster.api import Request

pytestmark = pytest.mark.cluster
NODES = 240  # with names as long as they may be, more than 16 KiB
PATIENCE = 300.0


def test_the_next_operator_reads_back_nodes_that_did_not_fit_into_status(running_site: Site, namespace: str) -> None:
    site = running_site
    site.mend()
    with site.with_nodes(NODES, prefix="n" * 58):
        run = site.apply(namespace, "wide", nodes=NODES)

        def is_whole() -> bool:
            return run.status.get("start", {}).get("attempt") == 1 and site.workers.running(run.uid, 1) == NODES

        run.wait("every rank runs", is_whole, PATIENCE)
        assignment = run.status["assignment"]
        assert "nodes" not in assignment
        assert site.cluster.api.send(
            Request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{assignment['configMap']}")
        )
        uids = run.pod_uids
        site.kill_operator()
        site.operator.wait_until_leading()
        site.workers.finish(run.uid)
        run.wait_until_finished(PATIENCE)
        assert run.is_true("Succeeded")
        assert run.pod_uids <= uids
        assert run.status["attempt"] == 1
        run.delete()
        run.wait("its pods are gone", lambda: not run.pods, PATIENCE)
    assert site.workers.shared_nodes == []
