"""The Python interface to process nodes: start them, attach to them, break them, mend them."""

import http.client
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from localcluster import processes
from localcluster.processnodes.daemon import SOCKET, Settings, check_rights, folder
from localcluster.processnodes.errors import ProcessNodesError
from localcluster.processnodes.network import remove_links
from localcluster.processnodes.node import NodeShape
from localcluster.state import component_environment

Json = dict[str, Any]
_START_SECONDS = 15.0
_STOP_SECONDS = 20.0


class _ControlConnection(http.client.HTTPConnection):
    """HTTP over the daemon's Unix socket."""

    def __init__(self, root: Path) -> None:
        super().__init__("process-nodes", timeout=60)
        self._root = root

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        directory = os.open(self._root, os.O_PATH)  # see bind_control_socket
        try:
            self.sock.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        finally:
            os.close(directory)


class ProcessNodes:
    """The process nodes of one state directory. All methods raise ProcessNodesError."""

    def __init__(self, state: Path) -> None:
        self._root = folder(state.resolve())

    @classmethod
    def start(
        cls,
        state: Path,
        kubeconfig: Path,
        nodes: Sequence[NodeShape] = (),
        *,
        path_prepend: Sequence[Path] = (),
        shared_roots: Sequence[Path] = (),
        heartbeat_seconds: float = 4.0,
    ) -> Self:
        """Start the daemon in the background and boot ``nodes``.

        ``path_prepend`` goes in front of every container's PATH; a ``hostPath`` below one of
        ``shared_roots`` is this machine's own folder instead of one on the node's disk.
        """
        check_rights()
        settings = Settings(
            state=str(state.resolve()),
            kubeconfig=str(kubeconfig.resolve()),
            path_prepend=tuple(str(path.absolute()) for path in path_prepend),
            shared_roots=tuple(str(path.resolve()) for path in shared_roots),
            heartbeat_seconds=heartbeat_seconds,
        )
        found = cls(state)
        if found.is_running():
            raise ProcessNodesError(f"process nodes are running already in {state}")
        settings.save()
        log = settings.root / "daemon.log"
        log.unlink(missing_ok=True)
        command = [sys.executable, "-m", "localcluster.processnodes", "--state", settings.state, "serve"]
        environment = component_environment() | {"PYTHONPATH": str(Path(__file__).parents[2])}
        daemon = processes.spawn(command, log, environment)
        found._record.write_text(json.dumps(asdict(daemon)))
        deadline = time.monotonic() + _START_SECONDS
        while not found.is_running():
            if not processes.is_alive(daemon) or time.monotonic() > deadline:
                found.stop()
                words = log.read_text(errors="replace").strip().splitlines()[-5:]
                raise ProcessNodesError("process nodes did not start:\n" + "\n".join(words))
            time.sleep(0.05)
        try:
            found.add(nodes)
        except ProcessNodesError:
            found.stop()
            raise
        return found

    @classmethod
    def attach(cls, state: Path) -> Self:
        """The process nodes that run in ``state``."""
        found = cls(state)
        if not found.is_running():
            raise ProcessNodesError(f"no process nodes run in {state}")
        return found

    def is_running(self) -> bool:
        try:
            self.state()
        except ProcessNodesError:
            return False
        return True

    def state(self) -> Json:
        """``{gateway, bridge, pid, nodes: [{name, address, state, cuts, pods, pid, disk}]}``."""
        return self._call("GET", "/")

    @property
    def gateway(self) -> str:
        """The host's address on the nodes' network, where the operator is reached."""
        return str(self.state()["gateway"])

    def add(self, nodes: Sequence[NodeShape]) -> None:
        self._order("add", nodes=[asdict(node) for node in nodes])

    def kill_node(self, name: str, *, wipe: bool = False) -> None:
        """Power off: every process dies at once, unannounced. ``wipe`` loses the node's disk too."""
        self._order("kill", node=name, wipe=wipe)

    def freeze_node(self, name: str) -> None:
        """Stop every process and the network, heartbeats included, until thawed."""
        self._order("freeze", node=name)

    def thaw_node(self, name: str) -> None:
        self._order("thaw", node=name)

    def cut_node(self, name: str, *targets: str) -> None:
        """Partition a node from any of ``operator``, ``peers`` and ``apiserver``; none given: from all."""
        self._order("cut", node=name, targets=targets or ("operator", "peers", "apiserver"))

    def heal_node(self, name: str) -> None:
        """End every partition of a node."""
        self._order("heal", node=name)

    def return_node(self, name: str) -> None:
        """Reboot: the node comes back with its disk and without its processes."""
        self._order("return", node=name)

    def stop(self) -> None:
        """End the daemon with all processes, namespaces, links and mounts; Node objects are deleted.

        Also clears up after a daemon that was killed. None there is fine.
        """
        try:
            daemon = processes.ProcessRecord(**json.loads(self._record.read_text()))
            settings = Settings.load(self._root.parent)
        except FileNotFoundError:
            return
        processes.end([daemon], grace=_STOP_SECONDS)
        remove_links(settings.bridge)
        shutil.rmtree(settings.memory, ignore_errors=True)
        self._record.unlink()

    @property
    def _record(self) -> Path:
        return self._root / "daemon.json"

    def _order(self, order: str, **details: Any) -> Json:
        return self._call("POST", f"/{order}", details)

    def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        connection = _ControlConnection(self._root)
        try:
            connection.request(method, path, json.dumps(body or {}), {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer: Json = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ProcessNodesError(f"process nodes in {self._root.parent} do not answer: {error}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise ProcessNodesError(answer.get("error", f"HTTP {response.status}"))
        return answer
