"""Kueue's own manager as a process here, from a binary and the manifests of its release.

Nothing builds or fetches it: LOCKSTEP_TEST_KUEUE=MANAGER:MANIFESTS names both (CONTRIBUTING.md). Of the manifests all
is applied but the Deployment and what extends the API server: CRDs with their conversion, rights, webhooks. The manager
has its service account's token and makes its own certificates; the API server finds it as localhost, at its Service.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.kube import remove_definitions, wait_until_established
from harness.waiting import wait_for
from localcluster import LocalCluster, processes
from localcluster.api import MERGE_PATCH, Request
from localcluster.errors import ApiError
from localcluster.state import component_environment, free_ports

Json = dict[str, Any]
VARIABLE = "LOCKSTEP_TEST_KUEUE"
NAMESPACE, ACCOUNT = "kueue-system", "kueue-controller-manager"
_LEFT_OUT = ("Deployment", "APIService", "FlowSchema", "PriorityLevelConfiguration", "NetworkPolicy", "ServiceMonitor")
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_CRD, _CONFIG = "CustomResourceDefinition", "controller_manager_config.yaml"
_READY = 180.0
"""Seconds: it waits for its certificate with a growing back-off."""
_MAY_SEE_RUNS: Json = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "kueue-sees-trainingruns"},
    "rules": [{"apiGroups": ["lockstep.dev"], "resources": ["trainingruns"], "verbs": ["get", "list", "watch"]}],
}
"""What docs/kueue.md asks for beside Kueue's own rights."""
_BINDING: Json = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "kueue-sees-trainingruns"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kueue-sees-trainingruns"},
    "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
}


@dataclass(frozen=True)
class Given:
    """Both files are there."""

    manager: Path
    manifests: Path


def given() -> Given | None:
    """What LOCKSTEP_TEST_KUEUE names; None: nothing."""
    said = os.environ.get(VARIABLE)
    if not said:
        return None
    manager, _, manifests = said.partition(":")
    found = Given(Path(manager).absolute(), Path(manifests).absolute())
    if not manifests or not os.access(found.manager, os.X_OK) or not found.manifests.is_file():
        raise ValueError(f"{VARIABLE} is {said!r}: it names Kueue's manager and its manifests as MANAGER:MANIFESTS")
    return found


@contextlib.contextmanager
def installed(cluster: LocalCluster, what: Given) -> Iterator[None]:
    """Kueue's API is served and its manager decides; at the end both are gone, with all of Kueue's objects."""
    with tempfile.TemporaryDirectory(prefix="kueue-") as name:
        folder, ports = Path(name), free_ports(("webhook", "health"))
        objects = [_for_here(each, ports["webhook"]) for each in _wanted(what.manifests)]
        crds = folder / "crds.json"
        crds.write_text(_list(each for each in objects if each["kind"] == _CRD))
        with contextlib.ExitStack() as stack:
            stack.callback(_remove, cluster, crds, objects)
            _apply(cluster, folder, crds, objects)
            arguments = _arguments(what, objects, folder, ports)
            environment = component_environment() | {
                "KUBECONFIG": str(cluster.kubeconfig_for_service_account(NAMESPACE, ACCOUNT))
            }
            log = cluster.layout.directory / "logs" / "kueue.log"
            process = processes.spawn(arguments, log, environment)
            stack.callback(processes.end, [process], grace=0)
            health = f"http://127.0.0.1:{ports['health']}/readyz"

            def is_ready() -> bool:
                _mount_certificate(cluster, folder)
                if not processes.is_alive(process):
                    raise AssertionError(f"Kueue's manager ended: {_tail(log)}")
                return _answers(health) and _takes_objects(cluster)

            wait_for("Kueue's manager is ready", is_ready, seconds=_READY, every=0.2, last_seen=lambda: _tail(log))
            yield


def _wanted(manifests: Path) -> list[Json]:
    found = [each for each in yaml.load_all(manifests.read_text(), yaml.CSafeLoader) if each]
    return [each for each in found if each["kind"] not in _LEFT_OUT]


def _for_here(found: Json, port: int) -> Json:
    """Webhooks, and the conversion of a CRD, are reached at the port of the manager."""
    if found["kind"] in _WEBHOOKS:
        for webhook in found["webhooks"]:
            webhook["clientConfig"]["service"]["port"] = port
    elif found["kind"] == _CRD and "conversion" in found["spec"]:
        found["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] = port
    elif found["kind"] == "Service" and found["metadata"]["name"].endswith("webhook-service"):
        found["spec"] = {"type": "ExternalName", "externalName": "localhost"}
    elif found["kind"] == "Secret":
        found.pop("data", None)
    return found


def _apply(cluster: LocalCluster, folder: Path, crds: Path, objects: Sequence[Json]) -> None:
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(crds))
    wait_until_established(cluster.kubectl, "-f", str(crds))
    rest = folder / "rest.json"
    others = [each for each in objects if each["kind"] != _CRD]
    first = [each for each in others if each["kind"] == "Namespace"]
    rest.write_text(_list([*first, *(each for each in others if each not in first), _MAY_SEE_RUNS, _BINDING]))
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(rest))


def _list(objects: Iterable[Json]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def _arguments(what: Given, objects: Sequence[Json], folder: Path, ports: dict[str, int]) -> list[str]:
    """Its configuration is that of the release, with what docs/kueue.md asks for, and nobody else's ports."""
    certificates, path = folder / "certificates", folder / "manager.yaml"
    certificates.mkdir(exist_ok=True)
    (released,) = (each["data"][_CONFIG] for each in objects if _CONFIG in each.get("data", ()))
    config = yaml.safe_load(released) | {
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['health']}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": ports["webhook"], "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "integrations": {
            "frameworks": ["batch/job", "pod"],
            "externalFrameworks": ["TrainingRun.v1alpha1.lockstep.dev"],
        },
    }
    path.write_text(yaml.safe_dump(config))
    return [str(what.manager), f"--config={path}", "--feature-gates=VisibilityOnDemand=false", "--zap-log-level=2"]


def _mount_certificate(cluster: LocalCluster, folder: Path) -> None:
    """As a kubelet does with the Secret that the manager has filled."""
    with contextlib.suppress(ApiError):
        secret = cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert")
        for name, value in (secret.get("data") or {}).items():
            content, path = base64.b64decode(value), folder / "certificates" / name
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def _takes_objects(cluster: LocalCluster) -> bool:
    """Its webhooks answer the API server."""
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "tried"}}
    try:
        cluster.api.send(Request("POST", "/apis/kueue.x-k8s.io/v1beta2/resourceflavors?dryRun=All", body))
    except ApiError:
        return False
    return True


def _remove(cluster: LocalCluster, crds: Path, objects: Sequence[Json]) -> None:
    """The manager is gone: nobody answers for its webhooks, and nobody takes its finalizers off."""
    for each in objects:
        if each["kind"] in _WEBHOOKS:
            cluster.kubectl("delete", "--ignore-not-found", each["kind"], each["metadata"]["name"])

    def is_let_go() -> bool:
        with contextlib.suppress(ApiError):  # the API server may still ask the webhooks for a moment
            for each in objects:
                if each["kind"] == _CRD:
                    _let_go(cluster, each["spec"])
            return True
        return False

    wait_for("Kueue's objects are let go", is_let_go, seconds=60)
    remove_definitions(cluster.kubectl, crds)


def _let_go(cluster: LocalCluster, spec: Json) -> None:
    version = next(each["name"] for each in spec["versions"] if each["storage"])
    plural = spec["names"]["plural"]
    root = f"/apis/{spec['group']}/{version}"
    for each in cluster.api.get(f"{root}/{plural}")["items"]:
        meta = each["metadata"]
        if meta.get("finalizers"):
            place = f"{root}/namespaces/{meta['namespace']}" if "namespace" in meta else root
            body = {"metadata": {"finalizers": None}}
            cluster.api.send(Request("PATCH", f"{place}/{plural}/{meta['name']}", body, MERGE_PATCH))


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:]) if log.exists() else "no log was written"
