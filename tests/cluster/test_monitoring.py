"""A real Prometheus beside an operator at work has an answer to everything that alerts and dashboards ask.

A collector is sent the operator's spans.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.site import Run, Site
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.api import Request
from lockstep.api.base import names
from lockstep.controller.metrics.catalogue import CATALOGUE
from support.collector import Collector
from support.dashboards import BOARDS, expressions
from support.prometheus import RULES, Prometheus

pytestmark = pytest.mark.cluster

NOT_HERE = (
    "lockstep_run_mfu",  # needs the peak of a GPU type and the FLOPs of a token
    "lockstep_run_tokens_per_second",
    "lockstep_run_condition",  # nothing is the matter
    "lockstep_run_init_seconds > 0",
    "lockstep_node_flaps",
    "lockstep_preempt",
    "lockstep_estimate_error_seconds",
    "lockstep:gpu_xid",
    'cause=~"NodeLost',  # a process fails here, no node does
    "ALERTS",
)
"""What panels may show nothing of: this site has none of it."""

GPU = (
    'DCGM_FI_DEV_{metric}{{gpu="0",UUID="GPU-{slot}",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",'
    'Hostname="{node}",container="trainer",namespace="{namespace}",pod="{pod}"}} {value}'
)
MEASURED = {"GPU_UTIL": "96", "FB_USED": "71000", "POWER_USAGE": "640", "GPU_TEMP": "66", "XID_ERRORS": "0"}


class Exporter:
    """Stands in for the DCGM exporters of all nodes: what they would say of a gang's GPUs."""

    def __init__(self) -> None:
        self.run: Run | None = None

    def text(self) -> str:
        if self.run is None:
            return ""
        nodes = self.run.status["assignment"]["nodes"]
        places = [
            {"slot": slot, "node": node, "namespace": self.run.namespace, "pod": self.run.pod_name(slot, 1)}
            for slot, node in enumerate(nodes)
        ]
        lines = [GPU.format(metric=name, value=value, **at) for at in places for name, value in MEASURED.items()]
        lines += [
            GPU.format(metric="TENSOR", value="0.6", **at).replace("DEV_TENSOR", "PROF_PIPE_TENSOR_ACTIVE")
            for at in places
        ]
        return "\n".join([*lines, ""])

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """Its URL."""
        exporter = self

        class Scrape(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(exporter.text().encode())

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Scrape)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector.started() as collector:
        yield collector


@pytest.fixture(scope="module")
def running_site(
    cluster: LocalCluster, crds_installed: None, tmp_path_factory: pytest.TempPathFactory, collector: Collector
) -> Iterator[Site]:
    settings = {"tracing": {"endpoint": collector.url}}
    with Site.started(cluster, tmp_path_factory.mktemp("site"), settings) as site:
        yield site


@pytest.fixture
def queue(site: Site, namespace: str) -> Iterator[str]:
    """One of two in a cohort, of two nodes together."""
    mine, other = f"{namespace}-mine", f"{namespace}-other"
    queues = f"/apis/{names.API_VERSION}/{names.QUEUES}"
    for name in (mine, other):
        spec = {"cohort": namespace, "quotas": [{"gpuType": "Any", "nominalNodes": 1}]}
        body = {"apiVersion": names.API_VERSION, "kind": names.QUEUE_KIND, "metadata": {"name": name}, "spec": spec}
        site.cluster.api.send(Request("POST", queues, body))
    yield mine
    for name in (mine, other):
        site.cluster.api.send(Request("DELETE", f"{queues}/{name}"))


def apply_set(site: Site, namespace: str, name: str, queue: str) -> str:
    """A set of two runs of one node. Its path."""
    run = {"nodes": 1, "image": "trainer", "command": ["train"], "queue": queue}
    sets = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUN_SETS}"
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_SET_KIND,
        "metadata": {"name": name},
        "spec": {"indices": "0-1", "template": {"spec": run}},
    }
    site.cluster.api.send(Request("POST", sets, body))
    return f"{sets}/{name}"


@pytest.fixture
def exporter() -> Exporter:
    return Exporter()


@pytest.fixture
def prometheus(site: Site, exporter: Exporter, tmp_path: Path) -> Iterator[Prometheus]:
    with exporter.served() as gpus:
        targets = {"lockstep-operator": site.operator.metrics_url, "dcgm-exporter": gpus}
        with Prometheus.started(tmp_path, targets) as prometheus:
            yield prometheus


def test_alerts_and_dashboards_have_what_they_ask_for(
    site: Site, namespace: str, queue: str, exporter: Exporter, prometheus: Prometheus
) -> None:
    run = site.apply(namespace, "llama", nodes=2, queue=queue)
    run.wait_until_running(1)
    site.workers.save(run.uid, namespace, "llama", 10)
    site.workers.fail(run.uid, 1)
    run.wait_until_running(2)
    lost = site.apply(namespace, "lost", nodes=1, queue="reserch")
    sweep = apply_set(site, namespace, "sweep", queue)  # which waits: the cohort's two nodes are taken
    exporter.run = run

    def ready(expr: str) -> bool:
        return bool(prometheus.query(expr))

    for expr in (
        f'lockstep_run_step_age_seconds{{namespace="{namespace}",run="llama"}}',
        f'rate(lockstep_run_seconds{{namespace="{namespace}"}}[1h])',
        f'lockstep:run_gpu_utilization:avg{{namespace="{namespace}"}}',
        'lockstep_pending_runs{queue="",reason="QueueNotFound"}',
        f'lockstep_pending_runs{{queue="{queue}",reason="Quota"}}',
        f'lockstep_set_indices{{namespace="{namespace}",set="sweep"}}',
        f'lockstep_queue_borrowed_nodes{{queue="{queue}"}}',
        'lockstep_recovery_seconds_count{phase="total"}',
        'rate(process_cpu_seconds_total{job="lockstep-operator"}[5m])',
    ):
        wait_for(
            f"there is {expr}", lambda expr=expr: ready(expr), seconds=90, every=0.5, last_seen=prometheus.log_tail
        )

    def empty() -> list[str]:
        return [
            f"{board['uid']}: {expr}"
            for board in BOARDS
            for expr in expressions(board)
            if not any(name in expr for name in NOT_HERE) and not prometheus.query(expr)
        ]

    wait_for("every panel shows something", lambda: not empty(), seconds=90, every=1.0, last_seen=empty)
    assert prometheus.value(f'lockstep_run_attempt{{namespace="{namespace}",run="llama"}}') == 2
    assert prometheus.value(f'lockstep:run_gpu_utilization:avg{{namespace="{namespace}",run="llama"}}') == 0.96
    assert prometheus.value('sum(lockstep_nodes{held="true"})') == 2

    def in_use() -> dict[str, float]:
        kinds = ("nodes", "quota_nodes", "borrowed_nodes")
        return {kind: prometheus.value(f'sum(lockstep_queue_{kind}{{queue="{queue}"}})') for kind in kinds}

    # A queue's status, which these are read from, is written at most every so often.
    told = {"nodes": 2, "quota_nodes": 1, "borrowed_nodes": 1}
    wait_for("the queue's nodes are counted", lambda: in_use() == told, seconds=90, every=1.0, last_seen=in_use)
    assert prometheus.value("sum(lockstep_leader)") == 1

    def pending() -> set[str]:
        return {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}

    wait_for("the missing queue is noticed", lambda: "LockstepQueueMissing" in pending(), seconds=60, every=0.5)
    false = {"LockstepNobodyLeads", "LockstepTwoLead", "LockstepPassesFail", "LockstepBreakerOpen"}
    # Pending for a moment they may be, when a busy machine was late with a scrape.
    wait_for("no alert is false", lambda: not pending() & false, seconds=60, every=0.5, last_seen=pending)

    groups = prometheus.ask("rules")["groups"]
    assert {group["file"] for group in groups} == {str(path) for path in RULES}
    assert [rule for group in groups for rule in group["rules"] if rule["health"] != "ok"] == []

    described = prometheus.ask("metadata")
    for metric in CATALOGUE:
        (said,) = described[metric.name.removesuffix("_total") if metric.name not in described else metric.name]
        assert (said["type"], said["help"]) == (metric.kind, metric.help)
    site.cluster.api.send(Request("DELETE", sweep))
    lost.delete()
    run.delete()


def test_spans_of_looks_passes_and_recoveries_reach_a_collector(
    site: Site, namespace: str, collector: Collector
) -> None:
    run = site.apply(namespace, "llama", nodes=2)
    run.wait_until_running(1)
    site.workers.fail(run.uid, 1)
    run.wait_until_running(2)
    expected = {"reconcile run", "reconcile cluster", "admission pass", "recovery", "decide", "stop", "gather", "start"}
    run.wait("its recovery was traced", lambda: expected <= collector.names(), seconds=60)
    run.delete()
