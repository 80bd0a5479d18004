"""Pod-bound tokens of a real API server at the worker API: who is let in, and everyone who is not."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from lockstep.api.base import names
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import load_credentials
from lockstep.controller.kube.workqueue import WorkQueue
from lockstep.controller.runtime.clock import SystemClock
from lockstep.controller.runtime.resources import PODS, RUNS
from lockstep.controller.store.store import Store
from lockstep.controller.store.worker_authz_view import WorkerAuthzView
from lockstep.controller.workers.api import WorkerApi
from lockstep.controller.workers.listener import Listener
from lockstep.controller.workers.reports import ReportBook
from lockstep.controller.workers.step_certificates import StepCertificates
from lockstep.controller.workers.tls import new_material, server_context
from lockstep.controller.workers.trust import TokenReviews
from lockstep.core.model.cluster_objects import parse_pod
from lockstep.core.model.plan import DesiredPhase, Directive
from lockstep.core.model.start_record import CollectiveStart, Members

pytestmark = pytest.mark.cluster

ENDPOINTS = ("/v1/register", "/v1/report")


class Gang:
    """Runs and pods as the operator would make them, and a worker API that knows them."""

    def __init__(self, cluster: LocalCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        clock = SystemClock()
        self.kube = KubeClient(lambda: load_credentials(str(cluster.kubeconfig)), clock)
        self.store = Store(WorkQueue(clock), clock)
        gangs = WorkerAuthzView(self.store)
        self.book = ReportBook(clock, lambda run_uid: None)
        self.steps = StepCertificates(clock)
        self.steps.use(b"s" * 32)
        self.api = WorkerApi(
            reviews=TokenReviews(self.kube.post, gangs, clock),
            gangs=gangs,
            book=self.book,
            clock=clock,
            epoch=lambda: (1, 0),
            heartbeat_seconds=lambda workers: 2.0,
            steps=self.steps,
        )
        self.url = ""
        self.session: aiohttp.ClientSession

    def run(self, name: str, incarnations: tuple[int, ...]) -> str:
        """Create a run that holds nodes; its UID."""
        path = f"/apis/{names.API_VERSION}/namespaces/{self.namespace}/{names.RUNS}"
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.RUN_KIND,
            "metadata": {"name": name},
            "spec": {"nodes": len(incarnations), "image": "trainer", "command": ["true"]},
        }
        uid: str = self.cluster.api.send(Request("POST", path, body))["metadata"]["uid"]
        self.assign(name, incarnations)
        return uid

    def assign(self, name: str, incarnations: tuple[int, ...]) -> None:
        path = RUNS.path(self.namespace, name, "status")
        nodes = [f"gpu-{slot}" for slot in range(len(incarnations))]
        assignment = {"nodes": nodes, "incarnations": list(incarnations)}
        patch = Request("PATCH", path, {"status": {"assignment": assignment}}, MERGE_PATCH)
        self.store.runs.apply(self.cluster.api.send(patch))

    def pod(self, run: str, run_uid: str, slot: int, incarnation: int, name: str = "") -> dict[str, Any]:
        """Create a pod of the run; it needs no node to have a token."""
        owner = {
            "apiVersion": names.API_VERSION,
            "kind": names.RUN_KIND,
            "name": run,
            "uid": run_uid,
            "controller": True,
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name or names.pod_name(run, run_uid, slot, incarnation),
                "labels": {
                    names.LABEL_RUN: run,
                    names.LABEL_RUN_UID: run_uid,
                    names.LABEL_SLOT: str(slot),
                    names.LABEL_INCARNATION: str(incarnation),
                },
                "ownerReferences": [owner],
            },
            "spec": {"containers": [{"name": names.CONTAINER_NAME, "image": "trainer"}]},
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        return self.see(self.cluster.api.send(Request("POST", path, body)))

    def see(self, pod: dict[str, Any]) -> dict[str, Any]:
        """What the informer would do."""
        self.store.gang_pods.upsert(parse_pod(json.dumps(pod).encode()))
        return pod

    def token(self, pod: Mapping[str, Any] | None, audience: str = names.TOKEN_AUDIENCE) -> str:
        """What the kubelet would project into the pod; for None a token bound to no pod."""
        spec: dict[str, Any] = {"audiences": [audience], "expirationSeconds": 3600}
        if pod is not None:
            meta = pod["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": meta["name"],
                "uid": meta["uid"],
            }
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default/token"
        token: str = self.cluster.api.send(Request("POST", path, request))["status"]["token"]
        return token

    async def say(self, endpoint: str, pod: Mapping[str, Any], token: str, **changes: Any) -> int:
        """The status that a worker claiming to be in ``pod`` is answered."""
        return (await self.answer(endpoint, pod, token, **changes))[0]

    async def answer(
        self, endpoint: str, pod: Mapping[str, Any], token: str, **changes: Any
    ) -> tuple[int, dict[str, Any]]:
        """The same, and with what."""
        labels = pod["metadata"]["labels"]
        state = {"phase": "Preparing", "wall": time.time(), "mono": time.monotonic()}
        body = {
            "protocol": 1,
            "runUid": labels[names.LABEL_RUN_UID],
            "slot": int(labels[names.LABEL_SLOT]),
            "incarnation": int(labels[names.LABEL_INCARNATION]),
            "podUid": pod["metadata"]["uid"],
            "namespace": self.namespace,
            "run": labels[names.LABEL_RUN],
            "address": "10.0.0.1",
            "report": state,
            **state,
            **changes,
        }
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.post(self.url + endpoint, json=body, headers=headers) as response:
            return response.status, await response.json()


@pytest.fixture
async def gang(cluster: LocalCluster, crds_installed: None, namespace: str) -> AsyncIterator[Gang]:
    gang = Gang(cluster, namespace)
    material = new_material(["127.0.0.1"], time.time())
    trust = ssl.create_default_context(cadata=material.ca_bundle)
    async with gang.kube, aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as gang.session:
        listener = await Listener.open(
            gang.api.application(), "127.0.0.1", 0, server_context(material), gang.api.connections
        )
        gang.url = f"https://127.0.0.1:{listener.port}"
        yield gang
        await listener.close()


async def test_the_pod_that_owns_the_slot_is_let_in_and_nobody_else(gang: Gang) -> None:
    run = gang.run("llama", (1, 2))
    mine, neighbour, older = (
        gang.pod("llama", run, 0, 1),
        gang.pod("llama", run, 1, 2),
        gang.pod("llama", run, 1, 1),
    )
    other_run = gang.run("gpt", (1,))
    stranger = gang.pod("gpt", other_run, 0, 1)
    forged = gang.pod("llama", run, 0, 1, name="forged")
    good = gang.token(mine)
    head, payload, signature = good.split(".")
    tampered = f"{head}.{payload}.{'A' * len(signature)}"
    for endpoint in ENDPOINTS:
        assert await gang.say(endpoint, mine, good) == 200
        assert await gang.say(endpoint, mine, gang.token(stranger)) == 403
        assert await gang.say(endpoint, mine, gang.token(neighbour)) == 403
        assert await gang.say(endpoint, older, gang.token(older)) == 200, "that it is to stop, and nothing else"
        assert await gang.say(endpoint, forged, gang.token(forged)) == 403
        assert await gang.say(endpoint, mine, good, slot=1) == 403
        assert await gang.say(endpoint, mine, good, runUid=other_run) == 403
        assert await gang.say(endpoint, mine, "") == 401
        assert await gang.say(endpoint, mine, tampered) == 401
        assert await gang.say(endpoint, mine, gang.token(None)) == 401
        assert await gang.say(endpoint, mine, gang.token(mine, "https://kubernetes.default.svc")) == 401
    assert set(gang.book.reports(run)) == {0}
    assert gang.book.reports(other_run) == {}


async def test_an_incarnation_is_over_the_moment_status_says_so(gang: Gang) -> None:
    run = gang.run("llama", (1,))
    pod = gang.pod("llama", run, 0, 1)
    token = gang.token(pod)
    assert await gang.say("/v1/register", pod, token) == 200
    gang.assign("llama", (2,))
    before = gang.book.reports(run)
    for endpoint in ENDPOINTS:
        status, answer = await gang.answer(endpoint, pod, token, attempt=1)
        assert (status, answer["phase"], answer["superseded"]) == (200, "Stop", True)
    assert gang.book.reports(run) == before


async def test_a_pod_that_has_ended_is_refused(gang: Gang) -> None:
    run = gang.run("llama", (1,))
    pod = gang.pod("llama", run, 0, 1)
    token = gang.token(pod)
    assert await gang.say("/v1/register", pod, token) == 200
    path = PODS.path(gang.namespace, pod["metadata"]["name"], "status")
    gang.see(gang.cluster.api.send(Request("PATCH", path, {"status": {"phase": "Failed"}}, MERGE_PATCH)))
    for endpoint in ENDPOINTS:
        assert await gang.say(endpoint, pod, token) == 403


async def test_a_pod_that_is_gone_is_refused_by_us_or_by_the_api_server(gang: Gang) -> None:
    run = gang.run("llama", (1, 1))
    seen, unseen = gang.pod("llama", run, 0, 1), gang.pod("llama", run, 1, 1)
    tokens = [gang.token(pod) for pod in (seen, unseen)]
    assert await gang.say("/v1/register", seen, tokens[0]) == 200
    for pod in (seen, unseen):
        path = PODS.path(gang.namespace, pod["metadata"]["name"])
        gang.cluster.api.send(Request("DELETE", path, {"gracePeriodSeconds": 0}))
    gang.store.gang_pods.remove(seen["metadata"]["uid"], 2**62)
    for endpoint in ENDPOINTS:
        assert await gang.say(endpoint, seen, tokens[0]) == 403
        assert await gang.say(endpoint, unseen, tokens[1]) == 401


async def test_a_gang_registers_with_one_review_each(gang: Gang) -> None:
    run = gang.run("llama", (1,) * 32)
    pods = [gang.pod("llama", run, slot, 1) for slot in range(32)]
    tokens = [gang.token(pod) for pod in pods]
    for endpoint in (*ENDPOINTS, "/v1/report"):
        answers = await asyncio.gather(
            *(gang.say(endpoint, pod, token) for pod, token in zip(pods, tokens, strict=True))
        )
        assert answers == [200] * 32
    assert gang.kube.requests["create", "tokenreviews", 201] == 32


async def test_a_certificate_for_steps_goes_to_the_worker_of_its_slot_and_to_nobody_else(gang: Gang) -> None:
    run, other_run = gang.run("llama", (1, 2)), gang.run("gpt", (1,))
    mine, neighbour, older = (gang.pod("llama", run, *who) for who in ((0, 1), (1, 2), (1, 1)))
    stranger, forged = gang.pod("gpt", other_run, 0, 1), gang.pod("llama", run, 1, 2, name="forged")
    good = gang.token(mine)
    start = CollectiveStart(3, "hash", "10.0.0.1", 40123, members=(Members("0", 1), Members("1", 2)))
    gang.book.set_directive(
        run, Directive(3, DesiredPhase.RUN, (1, 2), (0, 1), start=start, nodelist=("a", "b"), step_ports=(5000, 5001))
    )
    for pod, slot, incarnation in ((mine, 0, 1), (neighbour, 1, 2)):
        _, answer = await gang.answer("/v1/register", pod, gang.token(pod))
        certificate = x509.load_pem_x509_certificate(answer["steps"]["certificate"].encode())
        [uri] = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert uri.value == f"lockstep://run/{run}/attempt/3/slot/{slot}/incarnation/{incarnation}"
    for endpoint in ENDPOINTS:
        for claimed, token, changes in (
            (stranger, gang.token(stranger), {}),
            (mine, gang.token(stranger), {}),
            (neighbour, good, {}),
            (mine, good, {"slot": 1, "incarnation": 2}),
            (mine, good, {"runUid": other_run}),
            (older, gang.token(older), {}),
            (forged, gang.token(forged), {}),
            (mine, "", {}),
            (mine, good, {"attempt": 3, "report": {"phase": "Running", "wall": 1, "mono": 1, "attempt": 3}}),
        ):
            _, answer = await gang.answer(endpoint, claimed, token, **changes)
            assert "steps" not in answer
            assert "PRIVATE KEY" not in json.dumps(answer)
    gang.assign("llama", (1, 3))
    for endpoint in ENDPOINTS:
        status, answer = await gang.answer(endpoint, neighbour, gang.token(neighbour))
        assert (status, answer["phase"], answer.get("superseded")) == (200, "Stop", True)
        assert "steps" not in answer
