"""Any cluster through kubectl, and Lockstep installed there as its README tells a user to."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from harness.waiting import wait_for
from localcluster import build
from localcluster.errors import KubectlError

ROOT = Path(__file__).resolve().parents[2]
OPERATOR_NAMESPACE = "lockstep-system"
OPERATOR_ACCOUNT = "lockstep-operator"


class Kubectl:
    """kubectl with one kubeconfig, whose current context is used."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def __call__(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl; its standard output. Raises KubectlError with its standard error."""
        command = [str(build.binary("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments]
        result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise KubectlError(result.stderr.strip() or f"kubectl ended with {result.returncode}")
        return result.stdout

    def json(self, *arguments: str) -> Any:
        """The answer to a `get`, parsed."""
        return json.loads(self(*arguments, "-o", "json"))


def install(kubectl: Kubectl, settings: Mapping[str, Any] | None = None) -> None:
    """CRDs, namespace, service account, RBAC and PriorityClass: all but the operator itself.

    ``settings`` of the operator that come with rights of their own bring these.
    """
    crds = str(ROOT / "crds")
    kubectl("apply", "-f", crds)
    wait_until_established(kubectl, "-f", crds)
    given = settings or {}
    more = {
        "operator-kueue": given.get("kueue", {}).get("enabled"),
        "operator-look-up": given.get("lookUp", {}).get("secrets"),
        "operator-pod-groups": given.get("podGroups"),
        "operator-scale-up": given.get("scaleUp", {}).get("provisioningRequests"),
    }
    for name in ["operator", *(name for name, is_wanted in more.items() if is_wanted)]:
        kubectl("apply", "-f", str(ROOT / "manifests" / f"{name}.yaml"))


def wait_until_established(kubectl: Callable[..., str], *crds: str) -> None:
    """CRDs, named as `kubectl get` takes them, are served. `kubectl wait` ends where one has no conditions yet."""
    wait_for(
        f"{' '.join(crds)} to be established",
        lambda: all(map(_is_established, _items(json.loads(kubectl("get", *crds, "-o", "json"))))),
        seconds=60,
    )


def remove_definitions(kubectl: Callable[..., str], crds: Path) -> None:
    """Delete the CRDs of a file with their objects; returns when they are gone. A definition that is deleted just after
    it was made may stay ("storage is (re)initializing"): the API server looks at it again when it changes."""
    kubectl("delete", "--wait=false", "--ignore-not-found", "-f", str(crds))

    def are_gone() -> bool:
        with contextlib.suppress(KubectlError):  # of those that are gone
            kubectl("annotate", "--overwrite", "-f", str(crds), f"looked-at={time.time():.0f}")
        return not kubectl("get", "--ignore-not-found", "-o", "name", "-f", str(crds)).strip()

    wait_for(f"the definitions of {crds.name} are gone", are_gone, seconds=60, every=1.0)


def _items(found: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    items: Sequence[Mapping[str, Any]] = found.get("items", [found])
    return items


def _is_established(crd: Mapping[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)


def create_namespace(kubectl: Kubectl, name: str) -> None:
    """The namespace, ready for pods. One that exists is fine."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    kubectl("apply", "-f", "-", text=json.dumps(namespace))
    # Without it no pod is admitted, and it comes a moment after its namespace.
    kubectl("wait", "--for=create", "--timeout=30s", "-n", name, "serviceaccount/default")


def operator_kubeconfig(kubectl: Kubectl, path: Path) -> Path:
    """Write a kubeconfig that holds nothing but a token of the operator's service account."""
    token = kubectl("create", "token", OPERATOR_ACCOUNT, "-n", OPERATOR_NAMESPACE, "--duration=24h").strip()
    content = json.loads(kubectl("config", "view", "--minify", "--raw", "--flatten", "-o", "json"))
    content["users"] = [{"name": entry["name"], "user": {"token": token}} for entry in content["users"]]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path
