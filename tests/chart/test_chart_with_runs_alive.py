"""Releases come, change and go while gangs train: nothing restarts, and a new operator takes over what it finds.

The operator is a process with the chart's account, as nothing here runs the chart's Deployment. What is upgraded are
chart and operator as they were before their newest change, or those of LOCKSTEP_TEST_UPGRADE_FROM=COMMIT.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.kube import Kubectl, create_namespace, operator_kubeconfig, wait_until_established
from harness.operator import OperatorProcess
from harness.previous import previous
from harness.recorded_workers import RecordedWorkers
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.kwok import NodeBatch
from localcluster.state import free_ports
from support.helm import CHART, NAMESPACE, ROOT, Helm

pytestmark = pytest.mark.cluster

TEAM = "team"
PATIENCE = 180.0
OF_THE_PROCESS = ("workerUrl", "workerHosts", "workerListen", "workerPort", "metricsListen", "metricsPort")
Footprint = dict[str, Any]


class Installed:
    """A release of the chart, the operator that it would run, and workers that obey."""

    def __init__(self, cluster: LocalCluster, helm: Helm, folder: Path) -> None:
        self.kubectl = Kubectl(cluster.kubeconfig)
        self.helm = helm
        self.workers: RecordedWorkers | None = None
        self.operator: OperatorProcess | None = None
        self._kubeconfig = cluster.kubeconfig
        self._folder = folder
        self._numbers = iter(range(100))
        self._ports = free_ports(("workers", "metrics"))

    def install(self, chart: Path, *, verb: str = "install") -> None:
        more = ["--create-namespace"] if verb == "install" else []
        self.helm(verb, "lockstep", chart, "--namespace", NAMESPACE, *more)
        wait_until_established(self.kubectl, "crd/trainingruns.lockstep.dev")

    def start_operator(self, code: Path) -> None:
        """As the release configures it, but for where it listens."""
        config = self.kubectl.json("get", "configmap", "lockstep-operator", "-n", NAMESPACE)["data"]["operator.yaml"]
        of_chart = {key: value for key, value in yaml.safe_load(config).items() if key not in OF_THE_PROCESS}
        folder = self._folder / f"operator-{next(self._numbers)}"
        kubeconfig = operator_kubeconfig(self.kubectl, folder / "kubeconfig")
        here = {
            "workerUrl": f"https://127.0.0.1:{self._ports['workers']}",
            "workerListen": "127.0.0.1",
            "workerPort": self._ports["workers"],
            "metricsListen": "127.0.0.1",
            "metricsPort": self._ports["metrics"],
        }
        self.operator = OperatorProcess(folder, of_chart | here, kubeconfig, code)
        self.operator.run()
        self.operator.wait_until_leading(PATIENCE)
        if self.workers is None:
            secret = self.kubectl.json("get", "secret", "lockstep-worker-tls", "-n", NAMESPACE)
            ca = base64.b64decode(secret["data"]["ca.crt"]).decode()
            self.workers = RecordedWorkers(self._kubeconfig, self.operator.url, ca)
            self.workers.start()

    def stop_operator(self) -> None:
        if self.operator is not None:
            self.operator.stop()

    def end(self) -> None:
        if self.workers is not None:
            self.workers.stop()
        self.stop_operator()

    # Runs

    def apply(self, name: str, nodes: int) -> str:
        """Its UID."""
        spec = {"nodes": nodes, "image": "trainer", "command": ["train"]}
        body = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingRun", "metadata": {"name": name}, "spec": spec}
        self.kubectl("apply", "-n", TEAM, "-f", "-", text=yaml.safe_dump(body))
        return str(self.run(name)["metadata"]["uid"])

    def run(self, name: str) -> dict[str, Any]:
        return dict(self.kubectl.json("get", "trun", name, "-n", TEAM))

    def wait_until_running(self, name: str, uid: str, nodes: int) -> None:
        assert self.workers is not None
        workers = self.workers

        def runs() -> bool:
            return workers.running(uid, 1) == nodes and self.run(name).get("status", {}).get("state") == "Running"

        wait_for(f"{name} runs", runs, seconds=PATIENCE, last_seen=self._seen)

    def wait_until_followed(self, uid: str, name: str) -> None:
        """The operator of now has heard of steps that the workers make now, and written so."""
        assert self.workers is not None
        made = self.workers.steps(uid)

        def is_followed() -> bool:
            return int(self.run(name).get("status", {}).get("progress", {}).get("step", 0)) > made

        wait_for(f"the operator follows {name}", is_followed, seconds=PATIENCE, last_seen=self._seen)

    def finish(self, uid: str, name: str) -> None:
        assert self.workers is not None
        self.workers.finish(uid)
        wait_for(
            f"{name} has succeeded",
            lambda: self.run(name).get("status", {}).get("state") == "Succeeded",
            seconds=PATIENCE,
            last_seen=self._seen,
        )

    def footprint(self, uid: str, name: str) -> Footprint:
        """What a restart of anything would change."""
        assert self.workers is not None
        pods = self.kubectl.json("get", "pods", "-n", TEAM, "-l", f"lockstep.dev/run-uid={uid}")["items"]
        status = self.run(name)["status"]
        return {
            "pods": {pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["spec"]["nodeName"]) for pod in pods},
            "attempt": (status["attempt"], status["start"], status["assignment"]),
            "heard": self.workers.heard(uid).attempts(),
        }

    def _seen(self) -> str:
        return self.operator.log_tail() if self.operator is not None else "no operator"


@pytest.fixture(scope="module")
def installed(bare_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("alive")
    installed = Installed(bare_cluster, Helm(folder, bare_cluster.kubeconfig), folder)
    bare_cluster.add_kwok_nodes(NodeBatch(count=5, prefix="alive"), wait=120)
    create_namespace(installed.kubectl, TEAM)
    yield installed
    installed.end()


def test_an_upgrade_and_a_rollback_restart_nothing(installed: Installed, tmp_path: Path) -> None:
    old = previous(tmp_path)
    installed.install(old.chart)
    installed.start_operator(old.operator)
    uid = installed.apply("alive", 2)
    installed.wait_until_running("alive", uid, 2)
    footprint = installed.footprint(uid, "alive")

    installed.install(CHART, verb="upgrade")
    installed.stop_operator()
    installed.start_operator(ROOT / "operator")
    installed.wait_until_followed(uid, "alive")
    assert installed.footprint(uid, "alive") == footprint
    other = installed.apply("made-after", 1)
    installed.wait_until_running("made-after", other, 1)

    installed.stop_operator()
    installed.helm("rollback", "lockstep", "1", "--namespace", NAMESPACE)
    installed.start_operator(old.operator)
    installed.wait_until_followed(uid, "alive")
    installed.wait_until_followed(other, "made-after")
    assert installed.footprint(uid, "alive") == footprint
    for name, each in {"alive": uid, "made-after": other}.items():
        installed.finish(each, name)


def test_runs_outlive_their_operator_and_the_next_one_takes_them_over(installed: Installed) -> None:
    installed.stop_operator()
    installed.helm("uninstall", "lockstep", "--namespace", NAMESPACE, "--ignore-not-found")
    installed.install(CHART)
    installed.start_operator(ROOT / "operator")
    uid = installed.apply("outlives", 3)
    installed.wait_until_running("outlives", uid, 3)
    footprint = installed.footprint(uid, "outlives")
    steps = installed.workers.steps(uid) if installed.workers else 0

    installed.stop_operator()
    installed.helm("uninstall", "lockstep", "--namespace", NAMESPACE)
    assert installed.kubectl.json("get", "clusterroles", "-l", "helm.sh/chart")["items"] == []
    assert installed.footprint(uid, "outlives") == footprint
    wait_for("it trains on", lambda: installed.workers and installed.workers.steps(uid) > steps, seconds=PATIENCE)

    installed.install(CHART)
    installed.start_operator(ROOT / "operator")
    installed.wait_until_followed(uid, "outlives")
    assert installed.footprint(uid, "outlives") == footprint
    installed.finish(uid, "outlives")
