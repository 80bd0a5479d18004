"""The network of the process nodes: one bridge in the host, one veth pair per node, and partitions.

A partition is made of wrong link-layer addresses: packets leave and never arrive, in both directions,
which is what a real one looks like (a blackhole route would answer the sender with an error at once).
"""

import asyncio
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from localcluster.processnodes.errors import ProcessNodesError
from localcluster.processnodes.launcher import enter_network
from localcluster.state import locked

_NOWHERE = "02:00:00:00:de:ad"
_CANDIDATES = ipaddress.IPv4Network("10.128.0.0/9")


@dataclass(frozen=True)
class Machine:
    """The network side of one node: the process that holds its namespaces, and its address."""

    name: str
    pid: int
    address: str
    link: str  # its end of the veth pair in the host


def uid_outside(uid: int, uid_map: str) -> int:
    """Who a user of this user namespace is outside of it, by its ``/proc/self/uid_map``."""
    for line in uid_map.splitlines():
        inside, outside, length = map(int, line.split())
        if inside <= uid < inside + length:
            return outside + uid - inside
    return uid


def _taking_turns() -> Path:
    """The same for all that share a network, and nobody else's: who is root in name only cannot write to root's."""
    user = uid_outside(os.getuid(), Path("/proc/self/uid_map").read_text())
    return Path(tempfile.gettempdir()) / f"process-nodes-{user}"


def free_subnet(taken: Iterable[str]) -> ipaddress.IPv4Network:
    """The first /24 of 10.128.0.0/9 that overlaps no destination in ``taken``."""
    used = [ipaddress.IPv4Network(destination, strict=False) for destination in taken]
    for subnet in _CANDIDATES.subnets(new_prefix=24):
        if not any(subnet.overlaps(other) for other in used):
            return subnet
    raise ProcessNodesError(f"no free /24 network in {_CANDIDATES}: every one overlaps a route of this machine")


async def _ip(lines: Iterable[str], inside: int | None = None) -> None:
    """Run lines of `ip -batch`, in the network namespace of pid ``inside`` if given."""
    command = ["ip", "-batch", "-"]
    if inside is not None:
        command = ["nsenter", "-t", str(inside), "-n", *command]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate("\n".join(lines).encode())
    if process.returncode:
        raise ProcessNodesError(f"ip {'; '.join(lines)}: {output.decode().strip()}")


async def _routes() -> list[str]:
    process = await asyncio.create_subprocess_exec(
        "ip", "-j", "-4", "route", "show", "table", "all", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    destinations = [route["dst"] for route in json.loads(output or b"[]")]
    return [destination for destination in destinations if destination != "default"]


class Network:
    """The bridge and the links. ``gateway`` is the host's address, where nodes reach the operator."""

    def __init__(self, bridge: str, subnet: ipaddress.IPv4Network) -> None:
        self.bridge = bridge
        self.subnet = subnet
        self.gateway = str(subnet[1])
        self._next_host = 11
        self._machines: dict[str, Machine] = {}
        self._isolated: set[str] = set()  # cut from their peers

    @classmethod
    async def create(cls, bridge: str) -> "Network":
        """Make the bridge, with an address in a free network."""
        for tool in ("ip", "nsenter"):
            if shutil.which(tool) is None:
                raise ProcessNodesError(f"process nodes need `{tool}` (packages iproute2 and util-linux)")
        await asyncio.to_thread(remove_links, bridge)
        with locked(_taking_turns()):  # two that come at once would find the same network free
            network = cls(bridge, free_subnet(await _routes()))
            await _ip(
                [
                    f"link add {bridge} type bridge",
                    f"addr add {network.gateway}/{network.subnet.prefixlen} dev {bridge}",
                    f"link set {bridge} up",
                    "link set lo up",  # down in a fresh namespace of a user without root
                ]
            )
        return network

    def new_address(self) -> str:
        if self._next_host > 250:
            raise ProcessNodesError("at most 240 process nodes fit in one network")
        self._next_host += 1
        return str(self.subnet[self._next_host - 1])

    async def attach(self, name: str, pid: int, address: str) -> Machine:
        """Give the namespace of ``pid`` an eth0 on the bridge."""
        link = f"{self.bridge}v{address.rpartition('.')[2]}"
        await _ip(
            [
                f"link add {link} type veth peer name eth0 netns {pid}",
                f"link set {link} master {self.bridge}",
                f"link set {link} up",
            ]
        )
        inside = [
            f"addr add {address}/{self.subnet.prefixlen} dev eth0",
            "link set eth0 up",
            "link set lo up",
        ]
        await _ip([*inside, f"route add default via {self.gateway}"], pid)
        machine = Machine(name, pid, address, link)
        self._machines[name] = machine
        return machine

    async def set_link(self, machine: Machine, up: bool) -> None:
        """Pull or plug the cable."""
        await _ip([f"link set {machine.link} {'up' if up else 'down'}"])

    async def cut_operator(self, machine: Machine) -> None:
        """Stop all traffic between a node and the host."""
        await _ip([self._lose(self.gateway, "eth0")], machine.pid)
        await _ip([self._lose(machine.address, self.bridge)])

    async def heal_operator(self, machine: Machine) -> None:
        await _ip([self._find(self.gateway, "eth0")], machine.pid)
        await _ip([self._find(machine.address, self.bridge)])

    async def cut_peers(self, machine: Machine) -> None:
        """Stop all traffic between a node and every other node."""
        self._isolated.add(machine.name)
        others = self._others(machine)
        await _ip([self._lose(other.address, "eth0") for other in others], machine.pid)
        await asyncio.gather(*(_ip([self._lose(machine.address, "eth0")], other.pid) for other in others))

    async def heal_peers(self, machine: Machine) -> None:
        self._isolated.discard(machine.name)
        others = [other for other in self._others(machine) if other.name not in self._isolated]
        await _ip([self._find(other.address, "eth0") for other in others], machine.pid)
        await asyncio.gather(*(_ip([self._find(machine.address, "eth0")], other.pid) for other in others))

    def _others(self, machine: Machine) -> list[Machine]:
        return [other for other in self._machines.values() if other.name != machine.name]

    @staticmethod
    def _lose(address: str, device: str) -> str:
        return f"neigh replace {address} lladdr {_NOWHERE} dev {device} nud permanent"

    @staticmethod
    def _find(address: str, device: str) -> str:
        # A stale entry with the wrong address is asked for anew; deleting one that is not there fails.
        return f"neigh replace {address} lladdr {_NOWHERE} dev {device} nud failed"

    async def delete(self) -> None:
        await asyncio.to_thread(remove_links, self.bridge)


def remove_links(bridge: str) -> None:
    """Remove a bridge and its veth pairs, whatever is there of them.

    A pair can outlive the processes of its node: TCP connections that were cut keep the namespace.
    """
    shown = subprocess.run(["ip", "-j", "link", "show"], capture_output=True, check=True).stdout
    for link in json.loads(shown):
        if link["ifname"].startswith(bridge):
            # Its other end may have taken it along meanwhile.
            subprocess.run(["ip", "link", "del", link["ifname"]], stderr=subprocess.DEVNULL, check=False)


def listen_inside(pid: int, address: str, port: int) -> socket.socket:
    """A listening TCP socket that belongs to the network namespace of ``pid``."""
    made: list[socket.socket] = []

    def make() -> None:  # a namespace is joined per thread, so a short-lived thread leaves the caller's alone
        enter_network(pid)
        made.append(socket.create_server((address, port)))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not made:
        raise ProcessNodesError(f"can't listen on {address}:{port} inside the node")
    return made[0]
