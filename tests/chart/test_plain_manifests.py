"""The plain manifests, as docs/install.md says to install them without Helm and to remove them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.kube import Kubectl, create_namespace, wait_until_established
from harness.plain_install import removal, write_overlay
from localcluster import LocalCluster, build
from lockstep.api.base.changes import changed
from lockstep.config import OperatorConfig, load
from lockstep.controller.store.usage import CONFIG_MAP
from lockstep.controller.workers.tls import SECRET_NAME
from support.helm import NAMESPACE, ROOT, only, parsed

REGISTRY = "registry.example.com/ml/"
MADE = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}
        for kind, name in (("Secret", SECRET_NAME), ("ConfigMap", CONFIG_MAP))
    ],
}
"""What an operator makes in its namespace, and the next one takes up."""


def kubectl_at(folder: Path, *arguments: str, kubeconfig: Path | None = None) -> str:
    """kubectl as somebody runs it in a folder; its standard output."""
    command = [str(build.binary("kubectl")), *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(kubeconfig or "")}
    answer = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_overlay(tmp_path_factory.mktemp("checkout"), REGISTRY)


@pytest.fixture(scope="module")
def objects(overlay: Path) -> list[dict[str, Any]]:
    return parsed(kubectl_at(overlay, "kustomize", "."))


def config_of(objects: list[dict[str, Any]], folder: Path) -> OperatorConfig:
    file = folder / "operator.yaml"
    file.write_text(only(objects, "ConfigMap")["data"]["operator.yaml"])
    return load(str(file), {})


def test_the_kustomization_that_is_shown_has_every_object_and_the_image_wherever_it_is_named(
    objects: list[dict[str, Any]], tmp_path: Path
) -> None:
    plain = parsed((ROOT / "manifests" / "install.yaml").read_text())
    crds = [document for path in (ROOT / "crds").glob("*.yaml") for document in yaml.safe_load_all(path.read_text())]
    assert {(each["kind"], each["metadata"]["name"]) for each in objects} == {
        (each["kind"], each["metadata"]["name"]) for each in (*plain, *crds)
    }
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    (before,) = only(plain, "Deployment")["spec"]["template"]["spec"]["containers"]
    image = REGISTRY + before["image"]
    assert container == before | {"image": image}
    config, default = config_of(objects, tmp_path), config_of(plain, tmp_path)
    assert config == changed(default, archive=changed(default.archive, image=image))


@pytest.mark.cluster
def test_without_helm_it_comes_changes_goes_back_and_goes_by_what_is_shown_and_runs_stay(
    bare_cluster: LocalCluster, overlay: Path, objects: list[dict[str, Any]], tmp_path: Path
) -> None:
    kubectl = Kubectl(bare_cluster.kubeconfig)
    applied = kubectl_at(overlay, "apply", "--server-side", "-k", ".", kubeconfig=bare_cluster.kubeconfig)
    assert applied.count("serverside-applied") == len(objects)
    crds = [f"crd/{each['metadata']['name']}" for each in objects if each["kind"] == "CustomResourceDefinition"]
    wait_until_established(kubectl, *crds)
    kubectl("create", "-f", "-", text=json.dumps(MADE))
    create_namespace(kubectl, "team")
    kubectl("create", "-n", "team", "-f", str(ROOT / "manifests" / "hello.yaml"))
    upgrade_and_go_back(kubectl, overlay, write_overlay(tmp_path, REGISTRY))

    kubectl_at(overlay, *removal(), "--timeout=60s", kubeconfig=bare_cluster.kubeconfig)

    kinds = sorted({each["kind"] for each in objects} - {"CustomResourceDefinition", "Namespace"})
    assert kubectl.json("get", ",".join(kinds), "-A", "-l", "app.kubernetes.io/name=lockstep")["items"] == []
    for kept in (f"secret/{SECRET_NAME}", f"configmap/{CONFIG_MAP}"):
        kubectl("get", kept, "-n", NAMESPACE)
    assert kubectl.json("get", "namespace", NAMESPACE)["status"]["phase"] == "Active"
    assert kubectl("get", "trun", "hello", "-n", "team", "-o", "name")


def upgrade_and_go_back(kubectl: Kubectl, overlay: Path, newer: Path) -> None:
    """What differs is there as long as it is the version that was applied last."""
    crd = newer / "crds" / "lockstep.dev_trainingruns.yaml"
    crd.write_text(crd.read_text().replace("    - trun\n", "    - trun\n    - newer\n", 1))
    patched = newer / "kustomization.yaml"
    patched.write_text(patched.read_text().replace("newName:", "newTag: newer, newName:"))
    for folder, is_newer in ((newer, True), (overlay, False)):
        kubectl_at(folder, "apply", "--server-side", "-k", ".", kubeconfig=kubectl.kubeconfig)
        names = kubectl.json("get", "crd", "trainingruns.lockstep.dev")["spec"]["names"]["shortNames"]
        deployment = kubectl.json("get", "deployment", "lockstep-operator", "-n", NAMESPACE)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert ("newer" in names, container["image"].endswith(":newer")) == (is_newer, is_newer)
