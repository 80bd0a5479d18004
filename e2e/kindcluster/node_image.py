"""The image of a kind node: kind's own where a registry has it, else one made from packages and Go modules."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kindcluster import commands, images
from kindcluster.commands import Report, told
from kindcluster.docker import Docker, digest
from kindcluster.errors import KindClusterError
from kindcluster.host import missing_sys_resource
from kindcluster.images import DOCKERFILES
from localcluster import build

_NODE = Path(__file__).parent / "node"
_CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")
_KUBERNETES = ("kubelet", "kubeadm", "kubectl")
_CNI = ("host-local", "loopback", "ptp", "portmap")
_CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_PROGRAMS = (*_CONTAINERD, *_KUBERNETES, *_CNI, *_CONTROL_PLANE, "kube-proxy", "etcd", "coredns")
ROUTES = "lockstep-routes:1"  # named by default-cni.yaml
_PATH = "ENV PATH=/usr/local/bin"


def node(docker: Docker, folder: Path, base: Callable[[], str], report: Report) -> str:
    """The image's name; `base` gives an image with Python, and may wait for it. Raises KindClusterError, BuildError."""
    build.build_all(report, names=["kubectl", "kind"])
    published = _published()
    if docker.pull(published):
        return published
    recipes = [*(DOCKERFILES / f"{name}.Dockerfile" for name in ("node", "network", "pause")), _NODE, Path(__file__)]
    made_of = [*(build.stamp(build.program(name)) for name in _PROGRAMS), str(missing_sys_resource())]
    name = f"lockstep-node:v{build.kubernetes_version()}-{digest(recipes, made_of)}"
    if not docker.has_image(name):
        report(f"no image registry gives {published}: the node image is made here")
        with ThreadPoolExecutor(max_workers=1) as beside:
            debian = beside.submit(images.debian, docker, "bookworm", folder, report)
            build.build_all(report, names=_PROGRAMS)
        below = (debian.result(), base())
        with told(report, "building the node image"), images.workshop(folder) as context:
            _build(docker, name, context, *below)
    return name


def _published() -> str:
    """kind's own name for the Kubernetes it brings, at our version."""
    source = (_module("kind", "sigs.k8s.io/kind") / "pkg/apis/config/defaults/image.go").read_text()
    found = re.search(r'Image = "([^":@]+):', source)
    if found is None:
        raise KindClusterError("this version of kind does not say what its node image is called")
    return f"{found.group(1)}:v{build.kubernetes_version()}"


def _build(docker: Docker, name: str, context: Path, debian: str, base: str) -> None:
    kind = _module("kind", "sigs.k8s.io/kind")
    files = context / "kind-files"
    shutil.copytree(kind / "images/base/files", files)
    commands.run(["chmod", "-R", "u+w", files], log=docker.logs / "node.log")  # the module cache is read-only
    _put(context / "root/usr/local/bin", _CONTAINERD)
    _put(context / "root/usr/bin", _KUBERNETES)
    _put(context / "root/opt/cni/bin", _CNI)
    manifests = context / "root/kind/manifests"
    manifests.mkdir(parents=True)
    for manifest in ("default-cni.yaml", "default-storage.yaml"):
        shutil.copy(_NODE / manifest, manifests)
    (context / "root/kind/version").write_text(f"v{build.kubernetes_version()}")
    pause = _sandbox_image((files / "etc/containerd/config.toml").read_text())
    loaded = _kubernetes_images(docker, context, debian, base, pause)
    docker("save", "--output", context / "images.tar", *loaded)
    if not docker.is_ours:  # by most of these names its owner expects what a registry has
        docker("image", "rm", *loaded)
    arguments = {"DEBIAN": debian, "RESTRICT_OOM_SCORE": "true" if missing_sys_resource() else "false"}
    docker.build(name, DOCKERFILES / "node.Dockerfile", context, arguments)


def _kubernetes_images(docker: Docker, folder: Path, debian: str, base: str, pause: str) -> list[str]:
    """Every image that kubeadm wants, under the name by which it does."""
    wanted = commands.output(
        [build.binary("kubeadm"), "config", "images", "list", f"--kubernetes-version=v{build.kubernetes_version()}"]
    ).split()
    by_program = {image.rpartition(":")[0].rpartition("/")[2]: image for image in wanted}
    for program in _CONTROL_PLANE:
        _import(docker, by_program[program], f"usr/local/bin/{program}", build.binary(program), _PATH)
    _import(docker, by_program["etcd"], "usr/local/bin/etcd", build.binary("etcd"), _PATH)
    _import(docker, by_program["coredns"], "coredns", build.binary("coredns"), 'ENTRYPOINT ["/coredns"]')
    network = folder / "network"
    network.mkdir()
    _put(network, ["kube-proxy"])
    shutil.copy(_NODE / "routes.py", network)
    docker.build(by_program["kube-proxy"], DOCKERFILES / "network.Dockerfile", network, {"BASE_IMAGE": base})
    docker("tag", by_program["kube-proxy"], ROUTES)
    source = folder / "pause"
    source.mkdir()
    shutil.copy(_module("kubernetes", "k8s.io/kubernetes") / "build/pause/linux/pause.c", source)
    docker.build(pause, DOCKERFILES / "pause.Dockerfile", source, {"DEBIAN": debian})
    return [*(image for program, image in by_program.items() if program != "pause"), pause, ROUTES]


def _import(docker: Docker, name: str, path: str, program: Path, change: str) -> None:
    """An image of one static program."""
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            temporary = tarfile.TarInfo("tmp")
            temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(temporary)
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = program.stat().st_size, 0o755
            with program.open("rb") as content:
                archive.addfile(entry, io.BufferedReader(content.raw))
        packed.seek(0)
        subprocess.run(
            ["docker", "import", "--change", change, "-", name],
            env={**os.environ, **docker.environment},
            stdin=packed,
            capture_output=True,
            check=True,
        )


def _put(folder: Path, programs: tuple[str, ...] | list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        shutil.copy(build.binary(program), folder)


def _sandbox_image(containerd: str) -> str:
    found = re.search(r'sandbox_image = "([^"]+)"', containerd)
    if found is None:
        raise KindClusterError("kind's containerd configuration names no sandbox image")
    return found.group(1)


def _module(tools: str, module: str) -> Path:
    """Where Go keeps a module's source."""
    answer = subprocess.run(
        ["go", "list", "-m", "-json", module],
        cwd=build.TOOLS / tools,
        env={**os.environ, "GOFLAGS": "", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise KindClusterError(f"`go list -m {module}` failed: {answer.stderr.strip()}")
    return Path(json.loads(answer.stdout)["Dir"])
