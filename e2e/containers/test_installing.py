"""What is installed: the image, and the plain manifests for those without Helm."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from containers.site import KindSite
from containers.test_operator import SECONDS, assert_recovered, begun, fail, is_led_to, leader, operators, seen_of
from harness.kube import OPERATOR_NAMESPACE, Kubectl
from harness.plain_install import removal, write_overlay
from harness.shown_commands import shown_on
from harness.training import NAMESPACE as TRAINING
from kindcluster import images
from kindcluster import site as installation
from localcluster.build import REPOSITORY, build_dir
from localcluster.errors import KubectlError

pytestmark = pytest.mark.containers
MANIFESTS = REPOSITORY / "manifests"
PACKAGES = """
from importlib.metadata import distributions
installed = distributions(path=["/opt/lockstep/lib/python3.13/site-packages"])
print(*{each.metadata["Name"] for each in installed}, sep="\\n")
"""
POWERS = """
import os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(os.getuid(), int(status["CapEff"], 16), status["NoNewPrivs"].strip())
print([folder for folder in ("/", "/tmp", "/etc", "/opt/lockstep") if os.access(folder, os.W_OK)])
"""
OURS = "lockstep-operator"
NAMESPACE = ("--namespace", OPERATOR_NAMESPACE)
ACCOUNT = f"system:serviceaccount:{OPERATOR_NAMESPACE}:lockstep-operator"


def image(site: KindSite) -> str:
    return (site.kind.folder / installation.OPERATOR_IMAGE).read_text()


def test_the_image_says_what_it_is_and_runs_as_a_number_that_is_not_root(site: KindSite) -> None:
    [told] = json.loads(site.kind.docker("image", "inspect", image(site)))
    config = told["Config"]
    assert config["User"] == "65532:65532"
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    assert labels["title"] == "lockstep-operator"
    assert labels["licenses"] == "Apache-2.0"
    assert labels["version"] == images.version()
    assert len(labels["revision"]) == 40


def test_the_image_lists_every_package_that_it_holds_and_what_is_below_them(site: KindSite) -> None:
    def told(program: str, *arguments: str) -> str:
        command = [f"--entrypoint={program}", image(site), *arguments]
        return str(site.kind.docker("run", "--rm", "--network=none", *command)).strip()

    bill = json.loads((build_dir() / "image" / "lockstep-operator.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    listed = {(each["type"], normalised(each["name"]), each["version"]) for each in bill["components"]}
    held = {normalised(name) for name in told("/opt/lockstep/bin/python", "-c", PACKAGES).split()}
    assert {OURS, "kopf", "obstore", "opentelemetry-sdk"} <= held
    assert held <= {name for _, name, _ in listed} | {OURS}

    python = told("/opt/lockstep/bin/python", "-c", "import platform; print(platform.python_version())")
    assert ("platform", "cpython", python) in listed
    assert "operating-system" in {kind for kind, _, _ in listed}
    packages = told("dpkg-query", "--show", "--showformat=${Package} ${Version}\\n").splitlines()
    assert len(packages) > 50
    assert {("library", normalised(name), version) for name, version in map(str.split, packages)} <= listed


def normalised(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def test_the_operator_can_write_nowhere_and_has_no_privilege(site: KindSite) -> None:
    kubectl = site.world.kubectl
    for pod in operators(site):
        said = kubectl("exec", "-n", OPERATOR_NAMESPACE, pod, "--", "python", "-c", POWERS)
        assert said.splitlines() == ["65532 0 1", "[]"], pod


def test_the_command_line_works_from_the_image_as_its_page_shows(site: KindSite) -> None:
    run = begun(site, "asked")
    [shown] = [each.line for each in shown_on(REPOSITORY / "docs" / "cli.md") if each.line.startswith("docker run ")]
    there = {
        f"REGISTRY/lockstep-operator:{images.version()}": image(site),
        "~/.kube/config": str(site.kind.kubeconfig),
        '"$(id -u)"': str(os.getuid()),
    }
    for word, meaning in there.items():
        assert word in shown
        shown = shown.replace(word, meaning)
    assert run.name in site.kind.docker(*shown.split()[1:], "--namespace", TRAINING)


@pytest.mark.nightly
def test_without_helm_the_plain_manifests_bring_the_same_operator(site: KindSite, tmp_path: Path) -> None:
    run = begun(site, "plain")
    pods, before = run.pod_uids, seen_of(run)
    kubectl = site.world.kubectl
    installation.helm(site.kind, "uninstall", installation.RELEASE, *NAMESPACE, "--wait", "--timeout", "5m")
    try:
        assert not may_watch_runs(site)
        kubectl("apply", "--server-side", "-f", str(REPOSITORY / "crds"), "-f", str(MANIFESTS / "operator.yaml"))
        assert may_watch_runs(site), "one that is started by hand could do nothing"
        kubectl("apply", "--server-side", "-k", str(write_overlay(tmp_path, "")))
        kubectl("rollout", "status", *NAMESPACE, "deployment/lockstep-operator", "--timeout=5m")
        run.wait("the Service leads to the leader", lambda: is_led_to(site, leader(site)), SECONDS)
        assert seen_of(run) == before
        fail(site, run)
        assert_recovered(run)
        assert run.pod_uids == pods
    finally:
        kubectl(*(word.replace("manifests/", f"{MANIFESTS}/") for word in removal()), "--timeout=180s")
        run.wait("its pods are gone", lambda: not operators(site), SECONDS)
        installation.install(site.kind, image(site), print)


def may_watch_runs(site: KindSite) -> bool:
    return allowed(site.world.kubectl, "watch", "trainingruns.lockstep.dev", "--all-namespaces", f"--as={ACCOUNT}")


def allowed(kubectl: Kubectl, *what: str) -> bool:
    try:
        return kubectl("auth", "can-i", *what).strip() == "yes"
    except KubectlError:  # "no" is an error
        return False
