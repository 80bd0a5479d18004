"""What a local cluster leaves on disk: where its files are, its ports, and which processes are its own."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from localcluster.errors import LocalClusterError, NotRunningError
from localcluster.processes import ProcessRecord

LOOPBACK = "127.0.0.1"
# Below the ports that the kernel gives to outgoing connections and Kubernetes to NodePorts: a component that
# is stopped for a while must find its port free when it comes back.
PORT_RANGE = range(18000, 30000)
PORT_NAMES = (
    "etcd",
    "etcd-peer",
    "etcd-metrics",
    "kube-apiserver",
    "kube-scheduler",
    "kube-controller-manager",
    "kwok",
)
_given_ports: set[int] = set()


@dataclass(frozen=True)
class Layout:
    """The fixed part of a cluster: its directory (absolute), an extra address it is reached at, its ports,
    whether its alpha API for gangs is on, and whether it is made for thousands of simulated nodes."""

    directory: Path
    bind: str | None
    ports: Mapping[str, int]
    gang_scheduling: bool = False
    large: bool = False

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.ports['kube-apiserver']}"

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def etcd_data(self) -> Path:
        return self.directory / "etcd"

    @property
    def kubeconfigs(self) -> Path:
        return self.directory / "kubeconfigs"

    def kubeconfig(self, identity: str) -> Path:
        return self.kubeconfigs / f"{identity}.yaml"

    @property
    def audit_log(self) -> Path:
        return self.directory / "logs" / "audit.log"

    def log(self, component: str) -> Path:
        return self.directory / "logs" / f"{component}.log"


@dataclass(frozen=True)
class ClusterState:
    """A layout and the processes last started for it, by component name."""

    layout: Layout
    processes: Mapping[str, ProcessRecord]

    def with_process(self, component: str, record: ProcessRecord) -> ClusterState:
        return replace(self, processes={**self.processes, component: record})

    def without_process(self, component: str) -> ClusterState:
        return replace(self, processes={k: v for k, v in self.processes.items() if k != component})


def state_file(directory: Path) -> Path:
    return directory / "state.json"


def exists(directory: Path) -> bool:
    return state_file(directory).exists()


def load(directory: Path) -> ClusterState:
    """Reads DIR/state.json. Raises NotRunningError when there is none."""
    try:
        return decode(json.loads(state_file(directory).read_text()), directory)
    except FileNotFoundError:
        raise NotRunningError(f"no local cluster in {directory}: start one with `make cluster-up`") from None


def save(state: ClusterState) -> None:
    """Writes DIR/state.json so that a reader sees the old or the new content, never half."""
    target = state_file(state.layout.directory)
    unfinished = target.with_suffix(".json.new")
    unfinished.write_text(json.dumps(encode(state), indent=2) + "\n")
    unfinished.replace(target)


def encode(state: ClusterState) -> dict[str, Any]:
    """The content of state.json; `url` and `kubeconfig` are there for other programs to read."""
    return {
        "url": state.layout.url,
        "kubeconfig": str(state.layout.kubeconfig("admin")),
        "bind": state.layout.bind,
        "gangScheduling": state.layout.gang_scheduling,
        "large": state.layout.large,
        "ports": dict(state.layout.ports),
        "processes": {name: asdict(record) for name, record in state.processes.items()},
    }


def decode(content: Mapping[str, Any], directory: Path) -> ClusterState:
    return ClusterState(
        layout=Layout(
            directory.absolute(),
            content["bind"],
            content["ports"],
            gang_scheduling=bool(content.get("gangScheduling", False)),
            large=bool(content.get("large", False)),
        ),
        processes={name: ProcessRecord(**record) for name, record in content["processes"].items()},
    )


def new_layout(directory: Path, bind: str | None, *, gang_scheduling: bool = False, large: bool = False) -> Layout:
    return Layout(directory.absolute(), bind, free_ports(PORT_NAMES), gang_scheduling, large)


def free_ports(names: tuple[str, ...]) -> dict[str, int]:
    """One free loopback port for each name; none that this process was given before, as it may not listen there yet."""
    ports: dict[str, int] = {}
    for candidate in random.sample(PORT_RANGE, len(PORT_RANGE)):
        if len(ports) == len(names):
            break
        if candidate not in _given_ports and _is_free(candidate):
            ports[names[len(ports)]] = candidate
    _given_ports.update(ports.values())
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))  # free on every address, as --bind may ask for more than loopback
        except OSError:
            return False
        return True


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds DIR for changes: two commands on one cluster take turns."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove(layout: Layout) -> None:
    """Deletes what a cluster wrote, except its logs. Nothing else that lies in DIR is touched."""
    if layout.directory in (Path("/"), Path.home()):
        raise LocalClusterError(f"refusing to delete from {layout.directory}")
    for folder in (layout.etcd_data, layout.pki, layout.kubeconfigs):
        shutil.rmtree(folder, ignore_errors=True)
    state_file(layout.directory).unlink(missing_ok=True)


def component_environment() -> dict[str, str]:
    """The caller's environment without proxies: nothing a component talks to is beyond this machine."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
