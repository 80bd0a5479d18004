"""One call for a whole world: control plane, nodes, Lockstep installed, the operator running; and its end."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness import operator as operator_process
from harness.kube import Kubectl, install, operator_kubeconfig
from harness.operator import OperatorProcess
from harness.proxy import ApiProxy
from harness.site import LEASE
from harness.waiting import wait_for
from localcluster import LocalCluster, build, processes
from localcluster.errors import NotRunningError
from localcluster.kwok import NodeBatch
from localcluster.processnodes import ProcessNodes
from localcluster.processnodes.node import NodeShape

_NODES_SECONDS = 300.0
_numbers = itertools.count()


class LeaseSeen(NamedTuple):
    """At one moment: who holds it, how often others have taken it, and how often the operator was started."""

    holder: str | None
    transitions: int | None
    starts: int

    def lost_until(self, later: LeaseSeen) -> int:
        """How often it was lost since, at least."""
        moved = (self.holder, self.transitions) != (later.holder, later.transitions)
        return max(later.starts - self.starts, int(moved))


@dataclass(frozen=True)
class World:
    """What runs. ``nodes`` is None without process nodes, ``proxy`` where nothing is before the API server."""

    folder: Path
    cluster: LocalCluster
    kubectl: Kubectl
    nodes: ProcessNodes | None
    operator: OperatorProcess
    proxy: ApiProxy | None = None

    @property
    def process_nodes(self) -> ProcessNodes:
        """The process nodes of a world that was started with some."""
        if self.nodes is None:
            raise RuntimeError("this world was started without process nodes")
        return self.nodes

    def lease(self) -> LeaseSeen:
        """Who leads, and how it came to that. Raises LocalClusterError."""
        spec = self.cluster.api.get(LEASE)["spec"]
        return LeaseSeen(spec.get("holderIdentity"), spec.get("leaseTransitions"), self.operator.starts)

    def claim_folder(self, namespace: str, claim: str) -> Path:
        """What a PersistentVolumeClaim holds, as a folder of this machine."""
        return self.cluster.state_dir / "pvc" / namespace / claim


@contextlib.contextmanager
def started(
    *,
    process_nodes: Sequence[NodeShape] = (),
    kwok: NodeBatch | None = None,
    settings: Mapping[str, Any] | None = None,
    heartbeat_seconds: float = 1.0,
    large: bool = False,
    proxied: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Iterator[World]:
    """Bring everything up; tear everything down at the end, whatever happened.

    ``settings`` go over the operator's configuration, ``heartbeat_seconds`` is the process nodes'. ``large``:
    thousands of simulated nodes are to come. ``proxied``: between the operator and the API server is a ``proxy``.
    ``report`` is told of each part as it comes up. After a failure the folder with all logs stays, and is named.
    """
    folder = _new_folder()
    with contextlib.ExitStack() as stack:
        try:
            cluster = LocalCluster.start(folder, large=large, report=report)
            stack.callback(cluster.stop)
            kubectl = Kubectl(cluster.kubeconfig)
            nodes, address = None, "127.0.0.1"
            if process_nodes:
                nodes = ProcessNodes.start(
                    folder,
                    cluster.kubeconfig,
                    process_nodes,
                    path_prepend=[Path(sys.executable).parent],
                    heartbeat_seconds=heartbeat_seconds,
                )
                stack.callback(nodes.stop)
                address = nodes.gateway
                report(f"{len(process_nodes)} nodes whose pods are real processes, on a network of their own")
            if kwok is not None:
                names = cluster.add_kwok_nodes(kwok, wait=_NODES_SECONDS)
                report(f"{len(names)} simulated nodes")
            install(kubectl, settings)
            report("Lockstep is installed: CRDs, RBAC, a service account of its own")
            proxy = None
            if proxied:
                proxy = ApiProxy(operator_kubeconfig(kubectl, folder / "direct.kubeconfig"))
                proxy.start()
                stack.callback(proxy.stop)
            operator = OperatorProcess.start(
                kubectl,
                folder / "operator",
                address=address,
                settings=settings,
                kubeconfig=proxy.kubeconfig(folder / "proxied.kubeconfig") if proxy is not None else None,
            )
            stack.callback(operator.stop)
            report(f"the operator leads; workers reach it at {operator.url}")
            wait_until_schedulable(cluster, [shape.name for shape in process_nodes])
            yield World(folder, cluster, kubectl, nodes, operator, proxy)
        except BaseException:
            report(f"logs are kept in {folder}")
            raise
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def control_plane() -> Iterator[LocalCluster]:
    """A control plane with nothing in it, for what would disturb others on theirs. Its logs stay after a failure."""
    folder = _new_folder()
    cluster = LocalCluster.start(folder, report=print)
    try:
        yield cluster
    finally:
        cluster.stop()
    shutil.rmtree(folder, ignore_errors=True)


def wait_until_schedulable(cluster: LocalCluster, names: Sequence[str]) -> None:
    """Return when the nodes are Ready and bear no taint of a node that is new."""

    def tainted() -> list[str]:
        nodes = (cluster.api.get(f"/api/v1/nodes/{name}") for name in names)
        return [node["metadata"]["name"] for node in nodes if node["spec"].get("taints")]

    wait_for("every node can be scheduled to", lambda: not tainted(), seconds=_NODES_SECONDS, last_seen=tainted)


def _new_folder() -> Path:
    """A folder that names its owner, so that whoever comes next can clear up after one that was killed."""
    worlds = build.build_dir() / "worlds"
    _clear_abandoned(worlds)
    me = processes.this_process()
    folder = worlds / f"{me.pid}-{me.start_ticks}-{next(_numbers)}"
    folder.mkdir(parents=True)
    return folder


def _clear_abandoned(worlds: Path) -> None:
    """Stop what ended without a chance to do so; logs that were kept on purpose go as well."""
    boot = processes.this_process().boot_id
    for folder in worlds.glob("*-*-*"):
        pid, start_ticks, _ = folder.name.split("-")
        if processes.is_alive(processes.ProcessRecord(int(pid), int(start_ticks), boot)):
            continue
        operator_process.end_abandoned(folder / "operator")
        ProcessNodes(folder).stop()
        with contextlib.suppress(NotRunningError):
            LocalCluster.attach(folder).stop()
        shutil.rmtree(folder, ignore_errors=True)
