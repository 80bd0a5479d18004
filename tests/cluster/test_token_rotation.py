"""The operator's own token is replaced and the old one revoked, on a real API server: watches and writes go on.

A kubelet replaces the file long before the token in it expires. Here the old one ends at once, with the object that it
is bound to, and for a while before there is another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.kube import OPERATOR_ACCOUNT, OPERATOR_NAMESPACE, Kubectl, install
from harness.operator import OperatorProcess
from harness.proxy import ApiProxy
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.api import Request
from localcluster.errors import KubectlError
from localcluster.state import free_ports
from lockstep.api.base import names

pytestmark = pytest.mark.cluster
PATIENCE = 120.0
LEASE_SECONDS = 60  # or the operator would give up its lease, rightly, when it cannot be renewed for eight


class Tokens:
    """Of the operator, each bound to a Secret of its own, and the file that one of them is in."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self._kubectl = Kubectl(cluster.kubeconfig)
        self._folder = folder
        self.file = folder / "token"
        self.current = ""

    def make(self, name: str) -> str:
        self._kubectl("create", "secret", "generic", name, "-n", OPERATOR_NAMESPACE)
        bound = ("--bound-object-kind=Secret", f"--bound-object-name={name}")
        return self._kubectl("create", "token", OPERATOR_ACCOUNT, "-n", OPERATOR_NAMESPACE, *bound).strip()

    def put(self, token: str) -> None:
        """As a kubelet does: the file is another one, never half of one."""
        new = self._folder / "token.new"
        new.write_text(token)
        os.replace(new, self.file)
        self.current = token

    def kubeconfig(self) -> Path:
        """Names the file, and holds no token itself."""
        content = self._kubectl.json("config", "view", "--minify", "--raw", "--flatten")
        content["users"] = [{"name": user["name"], "user": {"tokenFile": str(self.file)}} for user in content["users"]]
        path = self._folder / "direct.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return path

    def revoke(self, name: str) -> None:
        """Returns once the API server takes the token no more: it keeps for ten seconds what it has found good."""
        revoked = self.current
        self._kubectl("delete", "secret", name, "-n", OPERATOR_NAMESPACE)
        nobody = self._folder / "nobody.kubeconfig"
        content = self._kubectl.json("config", "view", "--minify", "--raw", "--flatten")
        content["users"] = [{"name": user["name"], "user": {"token": revoked}} for user in content["users"]]
        nobody.write_text(yaml.safe_dump(content))
        wait_for("the token is revoked", lambda: _is_refused(Kubectl(nobody)), seconds=60)

    def forget(self) -> None:
        self._kubectl("delete", "secret", "-n", OPERATOR_NAMESPACE, "--ignore-not-found", "first", "second")


def _is_refused(kubectl: Kubectl) -> bool:
    try:
        kubectl("get", "nodes", "-o", "name")
    except KubectlError as error:
        return "Unauthorized" in str(error) or "must be logged in" in str(error)
    return False


@pytest.fixture
def tokens(cluster: LocalCluster, crds_installed: None, tmp_path: Path) -> Iterator[Tokens]:
    install(Kubectl(cluster.kubeconfig))
    tokens = Tokens(cluster, tmp_path)
    tokens.put(tokens.make("first"))
    yield tokens
    tokens.forget()


@pytest.fixture
def proxy(tokens: Tokens) -> Iterator[ApiProxy]:
    """Passes on whatever token the operator sends, and can end its watches."""
    proxy = ApiProxy(tokens.kubeconfig())
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture
def operator(proxy: ApiProxy, tmp_path: Path) -> Iterator[OperatorProcess]:
    ports = free_ports(("workers", "metrics"))
    config = {
        "leaseDuration": LEASE_SECONDS,
        "workerUrl": f"https://127.0.0.1:{ports['workers']}",
        "workerListen": "127.0.0.1",
        "workerPort": ports["workers"],
        "metricsListen": "127.0.0.1",
        "metricsPort": ports["metrics"],
    }
    operator = OperatorProcess(tmp_path, config, proxy.kubeconfig(tmp_path / "operator.kubeconfig"))
    operator.run()
    operator.wait_until_leading()
    yield operator
    operator.stop()


def refusals(operator: OperatorProcess) -> float:
    """Answers 401 to requests that are not kopf's."""
    counts = operator.metrics().get("lockstep_api_requests_total", {})
    return sum(count for labels, count in counts.items() if dict(labels)["code"] == "401")


def create(cluster: LocalCluster, path: str, kind: str, spec: dict[str, Any]) -> str:
    """The path of an object called ``after``."""
    body = {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": "after"}, "spec": spec}
    cluster.api.send(Request("POST", path, body))
    return f"{path}/after"


def test_watches_and_writes_go_on_with_the_next_token_also_where_the_last_one_ended_before_it_came(
    cluster: LocalCluster, tokens: Tokens, proxy: ApiProxy, operator: OperatorProcess, namespace: str
) -> None:
    queues, runs = (
        f"/apis/{names.API_VERSION}/{path}" for path in (names.QUEUES, f"namespaces/{namespace}/{names.RUNS}")
    )
    wait_for("kopf watches", lambda: queues in proxy.watches, seconds=PATIENCE, last_seen=operator.log_tail)
    before = set(proxy.watches)
    second = tokens.make("second")
    tokens.revoke("first")
    proxy.resume_watches(expired=False)
    begun = len(proxy.watches)
    wait_for("it is refused", lambda: refusals(operator) > 3, seconds=PATIENCE, last_seen=operator.log_tail)
    assert proxy.watches[begun:] == []

    tokens.put(second)
    wait_for(
        "all that was watched is watched again, by kopf too",
        lambda: before <= set(proxy.watches[begun:]),
        seconds=PATIENCE,
        last_seen=operator.log_tail,
    )
    run = create(cluster, runs, names.RUN_KIND, {"nodes": 1, "image": "i", "command": ["c"]})
    queue = create(cluster, queues, "TrainingQueue", {})
    try:
        for path in (run, queue):
            wait_for(
                f"{path} is seen and written",
                lambda path=path: cluster.api.get(path).get("status", {}).get("conditions"),
                seconds=PATIENCE,
                last_seen=operator.log_tail,
            )
        assert operator.starts == 1
    finally:
        for path in (run, queue):
            cluster.api.send(Request("DELETE", path))
