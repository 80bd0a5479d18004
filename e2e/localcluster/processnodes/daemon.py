"""The test kubelet: one process that serves all process nodes of one state directory."""

import asyncio
import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from localcluster.processnodes.containers import in_user_namespace
from localcluster.processnodes.errors import ProcessNodesError
from localcluster.processnodes.kubeapi import UNREACHABLE, ApiError, KubeApi
from localcluster.processnodes.kubelet_api import self_signed, serve_logs
from localcluster.processnodes.network import Network
from localcluster.processnodes.node import Cut, Node, NodeShape, named
from localcluster.processnodes.pods import Host
from localcluster.processnodes.relay import API_HOST, relay
from localcluster.processnodes.storage import provision
from localcluster.processnodes.volumes import Disks

Json = dict[str, Any]
SOCKET = "control.sock"


@dataclass(frozen=True)
class Settings:
    """How the daemon runs. Paths are absolute."""

    state: str  # the local cluster's state directory
    kubeconfig: str
    path_prepend: tuple[str, ...] = ()  # in front of every container's PATH
    shared_roots: tuple[str, ...] = ()  # hostPaths below these are this machine's own
    heartbeat_seconds: float = 4.0

    @property
    def root(self) -> Path:
        return folder(Path(self.state))

    @property
    def token(self) -> str:
        """Tells apart what several daemons on one machine make outside their directories."""
        return hashlib.sha256(self.state.encode()).hexdigest()[:6]

    @property
    def bridge(self) -> str:
        return f"pn{self.token}"

    @property
    def memory(self) -> Path:
        return Path("/dev/shm") / f"process-nodes-{self.token}"

    def save(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "settings.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, state: Path) -> "Settings":
        saved = json.loads((folder(state) / "settings.json").read_text())
        return cls(**saved | {key: tuple(saved[key]) for key in ("path_prepend", "shared_roots")})


def folder(state: Path) -> Path:
    """Where everything of the process nodes lives, claims excepted."""
    return state / "processnodes"


class Daemon:
    """Owns the network and the nodes, and takes orders on a Unix socket."""

    def __init__(self, settings: Settings, api: KubeApi, network: Network, api_port: int) -> None:
        self._settings = settings
        self._api = api
        self._network = network
        self._api_port = api_port
        self._nodes: dict[str, Node] = {}
        self._hosts = settings.root / "hosts"
        self._resolver = settings.root / "resolv.conf"
        # There is no DNS on this network; nobody listens here, so a lookup fails at once.
        self._resolver.write_text("nameserver 127.0.0.1\n")
        self._tls = self_signed()
        self._log_servers: list[web.AppRunner] = []
        self._write_hosts()

    async def add(self, shapes: list[NodeShape]) -> None:
        """Boot nodes, all of them networked before the first can get a pod."""
        for shape in shapes:
            if shape.name in self._nodes:
                raise ProcessNodesError(f"there is a process node {shape.name} already")
        nodes = [Node(shape, self._api, self._network, self._settings.heartbeat_seconds) for shape in shapes]
        for node in nodes:
            await node.boot()
            self._nodes[node.name] = node
        self._write_hosts()
        for node in nodes:
            host = self._host(node)
            self._log_servers.append(await serve_logs(node, host.logs_folder, self._tls))
            await node.join(host)

    async def close(self) -> None:
        await asyncio.gather(*(node.shut_down() for node in self._nodes.values()))
        for server in self._log_servers:
            await server.cleanup()
        await self._network.delete()
        shutil.rmtree(self._settings.memory, ignore_errors=True)

    def routes(self) -> list[web.RouteDef]:
        """Orders and their answers, JSON both ways."""

        async def add(order: Json) -> None:
            await self.add([NodeShape(**shape) for shape in order["nodes"]])

        async def cut(order: Json) -> None:
            await self._named(order).cut([Cut(target) for target in order["targets"]])

        orders: dict[str, Callable[[Json], Awaitable[None]]] = {
            "add": add,
            "cut": cut,
            "kill": lambda order: self._named(order).kill(wipe=order["wipe"]),
            "freeze": lambda order: self._named(order).freeze(),
            "thaw": lambda order: self._named(order).thaw(),
            "heal": lambda order: self._named(order).heal(),
            "return": lambda order: self._named(order).come_back(),
        }

        async def take(request: web.Request) -> web.Response:
            try:
                await orders[request.match_info["order"]](await request.json())
            except (ProcessNodesError, ApiError, *UNREACHABLE) as error:
                return web.json_response({"error": str(error)}, status=409)
            return web.json_response(self._state())

        async def state(_: web.Request) -> web.Response:
            return web.json_response(self._state())

        return [web.get("/", state), web.post(f"/{{order:{'|'.join(orders)}}}", take)]

    def _named(self, order: Json) -> Node:
        return named(self._nodes, order["node"])

    def _state(self) -> Json:
        return {
            "gateway": self._network.gateway,
            "bridge": self._network.bridge,
            "pid": os.getpid(),
            "nodes": [node.state() for node in self._nodes.values()],
        }

    def _host(self, node: Node) -> Host:
        settings, root = self._settings, self._settings.root / "nodes" / node.name
        disks = Disks(
            node_disk=root / "disk",
            memory=settings.memory / node.name,
            claims=Path(settings.state) / "pvc",
            shared_roots=tuple(Path(path) for path in settings.shared_roots),
        )
        for path in (disks.node_disk, disks.memory, root / "pods", root / "logs"):
            path.mkdir(parents=True, exist_ok=True)
        return Host(
            api=self._api,
            name=node.name,
            address=node.machine.address,
            namespaces_pid=node.machine.pid,
            disks=disks,
            pods_folder=root / "pods",
            logs_folder=root / "logs",
            hosts_file=self._hosts,
            resolver_file=self._resolver,
            path_prepend=settings.path_prepend,
            environment=(
                ("KUBERNETES_SERVICE_HOST", API_HOST),
                ("KUBERNETES_SERVICE_PORT", str(self._api_port)),
            ),
            userxattr=in_user_namespace(),
            wait_online=node.wait_online,
        )

    def _write_hosts(self) -> None:
        """One hosts file for all, rewritten in place: running containers have it mounted."""
        lines = ["127.0.0.1 localhost", "::1 localhost", f"{self._network.gateway} host.internal {API_HOST}"]
        lines += [f"{node.machine.address} {node.name}" for node in self._nodes.values()]
        self._hosts.write_text("\n".join(lines) + "\n")


def bind_control_socket(root: Path) -> socket.socket:
    """Listen on the control socket by a short name: paths of Unix sockets end at 107 characters."""
    (root / SOCKET).unlink(missing_ok=True)
    control = socket.socket(socket.AF_UNIX)
    directory = os.open(root, os.O_PATH)
    try:
        control.bind(f"/proc/self/fd/{directory}/{SOCKET}")
    finally:
        os.close(directory)
    os.chmod(root / SOCKET, 0o600)
    return control


def check_rights() -> None:
    """Raise ProcessNodesError unless this process may make namespaces and mounts."""
    clone_newnet = 0x40000000
    pid = os.fork()
    if pid == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(clone_newnet) == 0 else 1)
    if os.waitpid(pid, 0)[1]:
        raise ProcessNodesError(
            "process nodes make network, mount and PID namespaces, which needs root (CAP_SYS_ADMIN) or a user "
            "namespace: run everything that must reach the nodes, the local cluster included, behind "
            "`python -m localcluster.processnodes enter --`"
        )


async def serve(settings: Settings) -> None:
    """Run until told to stop by SIGTERM or SIGINT."""
    check_rights()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    network = await Network.create(settings.bridge)
    # Unlimited: every node keeps a watch open.
    async with KubeApi.from_kubeconfig(Path(settings.kubeconfig), connections=0) as api:
        to_api = await relay(api.server, network.gateway)
        daemon = Daemon(settings, api, network, to_api.sockets[0].getsockname()[1])
        provisioner = asyncio.create_task(provision(api, Path(settings.state) / "pvc"))
        application = web.Application()
        application.add_routes(daemon.routes())
        control = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await control.setup()
        await web.SockSite(control, bind_control_socket(settings.root)).start()
        await stop.wait()
        provisioner.cancel()
        to_api.close()
        await daemon.close()
        await control.cleanup()
    with contextlib.suppress(OSError):
        (settings.root / SOCKET).unlink()
