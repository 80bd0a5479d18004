"""A kind cluster with Lockstep installed by its chart, ready to train."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.kube import OPERATOR_NAMESPACE
from kindcluster import commands, images, node_image
from kindcluster.cluster import CONTROL_PLANE, KindCluster
from kindcluster.commands import Report, told
from kindcluster.docker import Docker
from localcluster import build

RELEASE = "lockstep"
CHART = build.REPOSITORY / "charts" / "lockstep"
# Files with the names of images: the operator's, and one that has nothing but Python.
OPERATOR_IMAGE = "operator-image"
TRAINER_IMAGE = "trainer-image"
VALUES = Path(__file__).with_name("values.yaml")


def bring_up(docker: Docker, folder: Path, report: Report) -> KindCluster:
    """Make the images, create the cluster, install the chart. Raises KindClusterError, BuildError."""
    build.build_all(report, names=["kubectl", "kind", "helm"])
    cluster = KindCluster(docker, folder)
    cluster.delete()
    images.clear_workshops(folder)
    at_once = ThreadPoolExecutor()
    try:
        base = at_once.submit(images.base, docker, folder, report)
        operator = at_once.submit(lambda: images.operator(docker, base.result(), report))
        node = node_image.node(docker, folder, base.result, report)
        cluster.create(node, report)
        trainer = images.trainer(docker, base.result())
        cluster.load([operator.result(), trainer, base.result()], [CONTROL_PLANE, *cluster.workers], report)
        cluster.name(base.result(), images.PUBLISHED_BASE, cluster.workers)
        named = {OPERATOR_IMAGE: operator.result(), TRAINER_IMAGE: trainer}
        for file, name in named.items():
            (folder / file).write_text(name)
        install(cluster, operator.result(), report)
    finally:
        at_once.shutdown(wait=False, cancel_futures=True)  # whoever stops us does not wait: their daemon goes
    images.prune(docker, node, base.result(), images.for_builds(docker, base.result()), *named.values())
    return cluster


def take_down(docker: Docker, folder: Path) -> None:
    """The cluster, its network if it is ours, and what its nodes shared. The images stay for the next one."""
    cluster = KindCluster(docker, folder)
    try:
        cluster.delete()
        cluster.remove_network()
    finally:
        commands.run(["rm", "-rf", cluster.shared], log=folder / "kind.log")


def install(cluster: KindCluster, operator: str, report: Report, *, chart: Path = CHART, values: Path = VALUES) -> None:
    """Helm's install as the README says it, and its test. Raises KindClusterError."""
    repository, _, tag = operator.rpartition(":")
    image = ["--set-string", f"image.repository={repository},image.tag={tag}"]
    namespace = ["--namespace", OPERATOR_NAMESPACE]
    with told(report, "installing the chart"):
        helm(
            cluster, "install", RELEASE, chart, *namespace, "--create-namespace", "--values", values, *image,
            "--wait", "--timeout", "5m",
        )  # fmt: skip
        helm(cluster, "test", RELEASE, *namespace)


def helm(cluster: KindCluster, *arguments: str | Path) -> None:
    """Run helm, with folders of its own. Raises KindClusterError."""
    home = {name: str(cluster.folder / "helm") for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    commands.run(
        [build.binary("helm"), "--kubeconfig", cluster.kubeconfig, *arguments],
        log=cluster.folder / "helm.log",
        environment={**os.environ, **home},
    )
