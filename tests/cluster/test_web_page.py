"""The web page of an operator at work: real tokens, real rights, over TLS."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from harness.kube import OPERATOR_NAMESPACE
from harness.site import PATIENCE, TLS_SECRET, Site
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from localcluster.errors import ApiError
from localcluster.state import free_ports
from lockstep.api.base import names

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class Visitor:
    """Somebody with a token, or without."""

    url: str
    trust: ssl.SSLContext
    token: str = ""

    def get(self, path: str, sent: Any = None) -> tuple[int, Any]:
        """Status and answer; with ``sent`` of a POST by the page itself."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if sent is not None:
            headers |= {"X-Lockstep-Deed": "1", "Content-Type": "application/json"}
        body = None if sent is None else json.dumps(sent).encode()
        request = urllib.request.Request(f"{self.url}/ui/api/{path}", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=20, context=self.trust) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@dataclass(frozen=True)
class Page:
    """The operator, its page, and two teams."""

    site: Site
    url: str
    trust: ssl.SSLContext

    def visitor(self, namespace: str, audiences: Sequence[str] = ()) -> Visitor:
        """A service account of a namespace."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/reader/token"
        spec = {"audiences": list(audiences), "expirationSeconds": 3600}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        token = self.site.cluster.api.send(Request("POST", path, body))["status"]["token"]
        return Visitor(self.url, self.trust, token)


@pytest.fixture(scope="module")
def page(cluster: LocalCluster, crds_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    port = free_ports(("web",))["web"]
    # What the chart gives with web.enabled.
    role, account = "lockstep-web", f"--serviceaccount={OPERATOR_NAMESPACE}:lockstep-operator"
    right = ("--verb=create", "--resource=subjectaccessreviews.authorization.k8s.io")
    cluster.kubectl("create", "clusterrole", role, *right)
    cluster.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", account)
    # Not on the loopback address alone, so that it speaks TLS.
    web = {"enabled": True, "listen": "0.0.0.0", "port": port, "hosts": ["127.0.0.1"]}
    with Site.started(cluster, tmp_path_factory.mktemp("site"), {"web": web}) as site:
        ca = base64.b64decode(cluster.api.get(TLS_SECRET)["data"]["ca.crt"]).decode()
        yield Page(site, f"https://127.0.0.1:{port}", ssl.create_default_context(cadata=ca))
    cluster.kubectl("delete", "clusterrolebinding,clusterrole", role)


@pytest.fixture(scope="module")
def teams(page: Page) -> Iterator[tuple[str, str]]:
    """Two namespaces, each with an account that may view it and nothing else."""
    kubectl = page.site.cluster.kubectl
    found = ("web-research", "web-products")
    for namespace in found:
        kubectl("create", "namespace", namespace)
        kubectl("-n", namespace, "create", "serviceaccount", "reader")
        account = f"--serviceaccount={namespace}:reader"
        kubectl("-n", namespace, "create", "rolebinding", "reader", "--clusterrole=lockstep-view", account)
    yield found
    for namespace in found:
        kubectl("delete", "namespace", namespace, "--wait=false")


def test_each_team_sees_its_own_runs_by_the_rights_that_it_has(page: Page, teams: tuple[str, str]) -> None:
    site = page.site
    research, products = (page.visitor(namespace) for namespace in teams)
    with site.with_nodes(4, racks=2):
        own = site.apply(teams[0], "llama", 2)
        foreign = site.apply(teams[1], "launch-x", 2)
        own.wait_until_running(1)
        foreign.wait_until_running(1)

        def holders() -> list[int]:
            return sorted(research.get("fleet")[1]["run"])

        wait_for("the map shows both runs", lambda: holders() == [-2, -2, 0, 0], seconds=PATIENCE, every=0.5)
        status, fleet = research.get("fleet")
        assert status == 200
        assert [run["name"] for run in fleet["runs"]] == ["llama"]
        assert sorted(filter(None, fleet["name"])) == sorted(own.status["assignment"]["nodes"])
        told = json.dumps([fleet, research.get("queues")[1], research.get("me")[1]])
        assert "launch-x" not in told
        assert teams[1] not in told

        def phases() -> list[str]:
            status, run = research.get(f"runs/{teams[0]}/llama")
            assert status == 200
            return list(run["ranks"]["phase"]) if run["state"] == "Running" and run["events"] else []

        wait_for("its page shows it at work", lambda: phases() == ["Running", "Running"], seconds=PATIENCE)
        assert research.get(f"runs/{teams[1]}/launch-x")[0] == 403
        assert products.get(f"runs/{teams[1]}/launch-x")[0] == 200
        for each in (own, foreign):
            each.delete()
            each.wait("its pods are gone", lambda each=each: not each.pods)  # then nothing of it is written any more


def test_only_tokens_of_the_cluster_for_the_page_or_the_api_server_are_taken(
    page: Page, teams: tuple[str, str]
) -> None:
    anybody = page.visitor(teams[0])
    assert anybody.get("me")[1]["name"] == f"system:serviceaccount:{teams[0]}:reader"
    assert page.visitor(teams[0], ["lockstep-web"]).get("me")[0] == 200
    assert page.visitor(teams[0], [names.TOKEN_AUDIENCE]).get("me")[0] == 401  # that of workers
    assert page.visitor(teams[0], ["vault"]).get("me")[0] == 401
    assert Visitor(page.url, page.trust, "forged").get("me")[0] == 401
    assert Visitor(page.url, page.trust).get("me")[0] == 401


def test_who_looks_makes_the_operator_write_nothing(page: Page, teams: tuple[str, str]) -> None:
    visitor = page.visitor(teams[0])
    page.site.proxy.writes.clear()
    for path in ("me", "fleet", "queues", f"runs/{teams[0]}/none"):
        visitor.get(path)
    words = [write.path for write in page.site.proxy.writes]
    assert [path for path in words if "reviews" not in path and "leases" not in path and "events" not in path] == []


def test_runs_are_changed_and_logs_read_by_who_may_and_by_no_right_of_the_operators(
    page: Page, teams: tuple[str, str]
) -> None:
    site, namespace = page.site, teams[0]
    kubectl = site.cluster.kubectl
    reader = page.visitor(namespace)
    with site.with_nodes(4, racks=2):
        run = site.apply(namespace, "acted-on", 2)
        run.wait_until_running(1)
        address = f"runs/{namespace}/acted-on"
        wait_for("the page knows it", lambda: reader.get(address)[0] == 200, seconds=PATIENCE)
        uid = site.cluster.api.get(run.path)["metadata"]["uid"]
        assert reader.get(f"{address}/actions")[1] == {"uid": uid, "actions": [], "logs": True}
        assert reader.get(f"{address}/actions/suspend", {"uid": uid})[0] == 403
        account = f"--serviceaccount={namespace}:reader"
        kubectl("-n", namespace, "create", "rolebinding", "editor", "--clusterrole=lockstep-edit", account)
        page_alone = page.visitor(namespace, ["lockstep-web"])
        status, words = page_alone.get(f"{address}/actions/suspend", {"uid": uid})
        assert (status, "is for the page alone" in words["message"]) == (403, True)
        assert page_alone.get(f"{address}/ranks/0/log")[0] == 403
        assert reader.get(f"{address}/ranks/0/log")[0] != 403  # simulated pods have none
        assert not site.cluster.api.get(run.path)["spec"].get("suspend")

        merge = {"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}, "spec": {"suspend": True}}
        with pytest.raises(ApiError, match=r"metadata.uid.*immutable"):  # so a namesake is not hit
            site.cluster.api.send(Request("PATCH", run.path, merge, MERGE_PATCH))
        assert reader.get(f"{address}/actions/suspend", {"uid": uid})[0] == 200
        run.wait("it is suspended", lambda: run.status.get("state") == "Suspended")
        managers = [entry["manager"] for entry in site.cluster.api.get(run.path)["metadata"]["managedFields"]]
        assert "lockstep-web" in managers
        run.delete()
        run.wait("its pods are gone", lambda: not run.pods)


def test_a_run_is_gone_on_from_once_and_its_code_stays_for_the_new_one(page: Page, teams: tuple[str, str]) -> None:
    site, namespace = page.site, teams[0]
    api, reader = site.cluster.api, page.visitor(namespace)
    account = f"--serviceaccount={namespace}:reader"
    site.cluster.kubectl("-n", namespace, "create", "rolebinding", "user", "--clusterrole=edit", account)
    about = {"name": "acted-code-ab1cd", "namespace": namespace, "labels": {"lockstep.dev/code": "true"}}
    code = f"/api/v1/namespaces/{namespace}/configmaps"
    data = {"file-000": "x" * 1_048_000}  # with what is about it more than the page reads
    api.send(Request("POST", code, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}))
    sources = [{"configMap": {"name": about["name"]}}]
    volume = {"name": "code", "mountPath": "/code", "projected": {"sources": sources}}
    run = site.apply(namespace, "acted", 2, volumes=[volume], cancel=True)
    run.wait("it has ended", lambda: run.status.get("state") in ("Failed", "Cancelled"))
    address = f"runs/{namespace}/acted"

    def offered() -> list[Any]:
        status, body = reader.get(f"{address}/actions")
        return list(body["actions"]) if status == 200 else []

    wait_for("a retry is offered", lambda: [each["action"] for each in offered()] == ["retry"], seconds=PATIENCE)
    [offer] = offered()
    asked = {"uid": api.get(run.path)["metadata"]["uid"], "name": offer["name"]}
    assert reader.get(f"{address}/actions/retry", asked) == (200, {"message": "acted-r2 created", "made": "acted-r2"})
    assert reader.get(f"{address}/actions/retry", asked)[0] == 409
    next_one = f"{run.path.rpartition('/')[0]}/acted-r2"
    made = api.get(next_one)
    assert (made["spec"]["cancel"], made["spec"]["nodes"]) == (False, 2)
    assert made["metadata"]["annotations"]["lockstep.dev/user"] == f"system:serviceaccount:{namespace}:reader"
    owners = api.get(f"{code}/{about['name']}")["metadata"]["ownerReferences"]
    assert [each["uid"] for each in owners] == [made["metadata"]["uid"]]
    wait_for("it is linked", lambda: api.get(next_one)["status"].get("previous"), seconds=PATIENCE)
    site.cluster.kubectl("-n", namespace, "delete", "trainingrun", "acted", "acted-r2", "--wait=false")
