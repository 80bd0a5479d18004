"""One local cluster: starts and stops its components, adds simulated nodes, hands out credentials."""

from __future__ import annotations

import http.client
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster import build, certificates, control_plane, kubeconfig, kwok, processes, state
from localcluster.api import MERGE_PATCH, ApiClient, Request
from localcluster.control_plane import COMPONENTS, Component, component_named
from localcluster.errors import ApiError, KubectlError, LocalClusterError, StartError
from localcluster.kwok import NodeBatch

Report = Callable[[str], None]

LOG_TAIL = 15  # lines shown of a component that failed
POLL_INTERVAL = 0.05  # seconds
NODE_POLL_INTERVAL = 0.3  # seconds; a list of hundreds of nodes is dear
NODES = "/api/v1/nodes"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True)
class ComponentStatus:
    name: str
    pid: int | None  # None when it does not run
    port: int
    is_healthy: bool


class LocalCluster:
    """A control plane whose state lies in one directory.

    The object holds nothing that the directory does not: any number of them, in any process, may be attached
    to one cluster.
    """

    def __init__(self, layout: state.Layout) -> None:
        self.layout = layout
        self.state_dir = layout.directory
        self.url = layout.url
        self.ca_file = layout.pki / "ca.crt"
        self.kubeconfig = layout.kubeconfig("admin")
        self.api = ApiClient(
            self.url, self.ca_file, cert_file=layout.pki / "admin.crt", key_file=layout.pki / "admin.key"
        )
        self._tls = ssl.create_default_context(cafile=str(self.ca_file))

    @classmethod
    def start(
        cls,
        state_dir: Path | str,
        *,
        bind: str | None = None,
        gang_scheduling: bool = False,
        large: bool = False,
        report: Report = _silent,
    ) -> LocalCluster:
        """Starts a cluster in `state_dir`, or those components of the one there that do not run.

        Programs are built first where needed. With `bind`, an address of this machine, the API server is
        reachable there too (it then listens on every interface). With `gang_scheduling` Kubernetes' own, which
        is alpha, is on; a `large` one has room for thousands of simulated nodes on a small machine (see
        control_plane.LARGE). A cluster that exists keeps what it was made with. Returns when every component is
        healthy. Raises BuildError, StartError.
        """
        directory = Path(state_dir).absolute()
        build.build_all(report)
        with state.locked(directory):
            if not state.exists(directory):
                _create(directory, bind, gang_scheduling, large)
            layout = state.load(directory).layout
            if bind not in (None, layout.bind):
                raise LocalClusterError(f"the cluster in {directory} has --bind {layout.bind}: stop it first")
            cluster = cls(layout)
            cluster._start_components(COMPONENTS.values(), report)
            return cluster

    @classmethod
    def attach(cls, state_dir: Path | str) -> LocalCluster:
        """The cluster in `state_dir`. Raises NotRunningError when there is none."""
        return cls(state.load(Path(state_dir).absolute()).layout)

    def stop(self, *, keep_data: bool = False) -> None:
        """Ends every component; unless `keep_data`, its objects, keys and ports are gone with it."""
        with state.locked(self.state_dir):
            if not state.exists(self.state_dir):
                return
            current = state.load(self.state_dir)
            # Last started, first stopped, and in peace only if anything is to be kept.
            for name in reversed(list(COMPONENTS)):
                if name in current.processes:
                    processes.end([current.processes[name]], grace=COMPONENTS[name].stop_grace if keep_data else 0)
                    current = current.without_process(name)
                    state.save(current)
            if not keep_data:
                state.remove(self.layout)

    # Components

    def start_component(self, name: str) -> None:
        """Starts one component with the data and the port it had; returns when it is healthy."""
        with state.locked(self.state_dir):
            self._start_components([_component(name)], _silent)

    def stop_component(self, name: str, *, kill: bool = False) -> None:
        """Ends one component (SIGKILL at once if `kill`); the others stay and must cope."""
        component = _component(name)
        with state.locked(self.state_dir):
            current = state.load(self.state_dir)
            record = current.processes.get(component.name)
            if record is not None:
                processes.end([record], grace=0 if kill else component.stop_grace)
                state.save(current.without_process(component.name))

    def pause_component(self, name: str) -> None:
        """Freezes one component (SIGSTOP): its connections stay open and nothing answers."""
        processes.freeze(self._record(name))

    def resume_component(self, name: str) -> None:
        processes.send(self._record(name), signal.SIGCONT)

    def status(self) -> list[ComponentStatus]:
        """One entry for each component, in the order they are started."""
        recorded = state.load(self.state_dir).processes
        return [
            ComponentStatus(
                name=name,
                pid=recorded[name].pid if name in recorded and processes.is_alive(recorded[name]) else None,
                port=self.layout.ports[name],
                is_healthy=self._is_healthy(component),
            )
            for name, component in COMPONENTS.items()
        ]

    # Credentials and kubectl

    def kubectl(self, *args: str, input: str | None = None) -> str:  # noqa: A002 (as subprocess.run has it)
        """Runs kubectl as the administrator; its standard output. Raises KubectlError with its stderr."""
        result = subprocess.run(
            [str(build.binary("kubectl")), f"--kubeconfig={self.kubeconfig}", *args],
            input=input,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise KubectlError(result.stderr.strip() or f"kubectl ended with {result.returncode}")
        return result.stdout

    def kubeconfig_for_service_account(
        self, namespace: str, name: str, *, expires_in: int = 24 * 3600, audiences: Sequence[str] = ()
    ) -> Path:
        """Writes a kubeconfig that holds a new token of a service account.

        The token is valid for `expires_in` seconds (the API server grants no less than 600). Raises ApiError,
        for one when the account does not exist.
        """
        answer = self.api.send(
            Request(
                "POST",
                f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
                {
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenRequest",
                    "spec": {"expirationSeconds": expires_in, "audiences": list(audiences)},
                },
            )
        )
        path = self.layout.kubeconfig(f"{namespace}.{name}")  # no identity of ours has a dot
        kubeconfig.write(path, kubeconfig.with_token(self.url, self.ca_file, answer["status"]["token"]))
        return path

    # Simulated nodes

    def kwok_nodes(self) -> list[dict[str, Any]]:
        """The simulated nodes as API objects, ordered by name."""
        items: list[dict[str, Any]] = self.api.get(f"{NODES}?labelSelector={kwok.SELECTOR}")["items"]
        return items

    def add_kwok_nodes(self, batch: NodeBatch, *, wait: float = 60.0) -> list[str]:
        """Adds a batch of simulated nodes beside those there; returns their names when all are Ready.

        `wait` bounds that in seconds, 0 does not wait. Raises StartError, ApiError, ValueError.
        """
        start = kwok.next_numbering(self.kwok_nodes(), batch.prefix)
        objects = kwok.node_objects(batch, start, _now())
        self.api.send_all([Request("POST", NODES, node) for node in objects])
        names = [node["metadata"]["name"] for node in objects]
        if wait:
            self.wait_for_kwok_nodes(names, timeout=wait)
        return names

    def wait_for_kwok_nodes(self, names: Iterable[str], *, timeout: float = 60.0) -> None:
        """Returns when the nodes are Ready and untainted by their health. Raises StartError."""
        wanted = set(names)
        deadline = time.monotonic() + timeout
        while wanted:
            wanted -= {node["metadata"]["name"] for node in self.kwok_nodes() if kwok.is_ready(node)}
            if wanted and time.monotonic() > deadline:
                tail = self._log_tail(COMPONENTS["kwok"])
                raise StartError(f"{len(wanted)} nodes not Ready after {timeout:g} s, {tail}")
            time.sleep(NODE_POLL_INTERVAL if wanted else 0)

    def remove_kwok_nodes(self, names: Iterable[str] | None = None) -> list[str]:
        """Deletes Node objects (None: all simulated ones), as a cloud does with a machine it took back."""
        doomed = [node["metadata"]["name"] for node in self.kwok_nodes()] if names is None else list(names)
        self.api.send_all([Request("DELETE", f"{NODES}/{name}", absence_is_fine=True) for name in doomed])
        return doomed

    def silence_kwok_nodes(self, names: Iterable[str]) -> None:
        """Makes nodes fall silent as if cut off or powered down.

        kwok plays neither them nor their pods any more, and Ready turns Unknown at once (and not only when
        the grace period of 50 s is over).
        """
        released = self._label_kwok_nodes(names, None)
        self.api.send_all(
            [
                Request(
                    "PATCH",
                    f"{NODES}/{node['metadata']['name']}/status",
                    {"status": kwok.silent_status(node, _now())},
                    MERGE_PATCH,
                )
                for node in released
            ]
        )

    def restore_kwok_nodes(self, names: Iterable[str]) -> None:
        """Gives silenced nodes back to kwok, which makes them Ready and catches up with their pods."""
        self._label_kwok_nodes(names, "fake")

    def _label_kwok_nodes(self, names: Iterable[str], value: str | None) -> list[dict[str, Any]]:
        """Sets the label by which kwok knows its nodes, or takes it away; the nodes as they are then."""
        patch = {"metadata": {"labels": {kwok.KWOK_LABEL: value}}}
        return self.api.send_all([Request("PATCH", f"{NODES}/{name}", patch, MERGE_PATCH) for name in names])

    # Inside

    def _start_components(self, components: Iterable[Component], report: Report) -> None:
        current = state.load(self.state_dir)
        waiting: list[Component] = []
        for component in components:
            record = current.processes.get(component.name)
            if record is None or not processes.is_alive(record):
                # The order of COMPONENTS: clients of the API server start when it is ready, and all at once.
                if component.name in ("kube-apiserver", "kube-scheduler"):
                    self._wait_until_healthy(waiting)
                    waiting = []
                report(f"starting {component.name}")
                if component.name == "kwok":
                    self._drop_node_leases()
                record = processes.spawn(
                    [str(build.binary(component.name)), *component.arguments(self.layout)],
                    self.layout.log(component.name),
                    state.component_environment() | control_plane.environment(self.layout),
                )
                current = current.with_process(component.name, record)
                state.save(current)
            waiting.append(component)
        self._wait_until_healthy(waiting)

    def _wait_until_healthy(self, components: Iterable[Component]) -> None:
        recorded = state.load(self.state_dir).processes
        for component in components:
            deadline = time.monotonic() + component.start_timeout
            while not self._is_healthy(component):
                if not processes.is_alive(recorded[component.name]):
                    raise StartError(f"{component.name} ended, {self._log_tail(component)}")
                if time.monotonic() > deadline:
                    raise StartError(
                        f"{component.name} is not healthy after {component.start_timeout:g} s, "
                        f"{self._log_tail(component)}"
                    )
                time.sleep(POLL_INTERVAL)

    def _is_healthy(self, component: Component) -> bool:
        try:
            with urllib.request.urlopen(component.health(self.layout), timeout=2, context=self._tls) as response:
                return bool(response.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except (OSError, http.client.HTTPException):
            return False

    def _drop_node_leases(self) -> None:
        """Lets a new kwok take over at once: it would wait out its predecessor's node leases (40 s)."""
        try:
            self.api.send_all(
                [
                    Request("DELETE", f"{NODE_LEASES}/{node['metadata']['name']}", absence_is_fine=True)
                    for node in self.kwok_nodes()
                ]
            )
        except ApiError as error:
            if error.status != 0:  # no API server to ask: kwok waits for it, and then for the leases
                raise

    def _record(self, name: str) -> processes.ProcessRecord:
        component = _component(name)
        record = state.load(self.state_dir).processes.get(component.name)
        if record is None:
            raise LocalClusterError(f"{component.name} does not run")
        return record

    def _log_tail(self, component: Component) -> str:
        log = self.layout.log(component.name)
        lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL:] if log.exists() else []
        return f"its log {log} ends with:\n" + "\n".join(lines)


def _create(directory: Path, bind: str | None, gang_scheduling: bool, large: bool) -> None:
    layout = state.new_layout(directory, bind, gang_scheduling=gang_scheduling, large=large)
    certificates.write_all(layout.pki, [bind] if bind else [])
    for identity in ("admin", "scheduler", "controller-manager", "kwok"):
        content = kubeconfig.with_certificate(
            layout.url,
            layout.pki / "ca.crt",
            cert_file=layout.pki / f"{identity}.crt",
            key_file=layout.pki / f"{identity}.key",
        )
        kubeconfig.write(layout.kubeconfig(identity), content)
    layout.etcd_data.mkdir(mode=0o700, exist_ok=True)
    for log in (directory / "logs").glob("*.log"):
        log.unlink()  # of the cluster that was here before
    state.save(state.ClusterState(layout, {}))


def _component(name: str) -> Component:
    try:
        return component_named(name)
    except KeyError:
        raise LocalClusterError(f"no component {name!r}: there are {', '.join(COMPONENTS)}") from None


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
