"""A few machines on this one: each with its own network, host name, shared memory and scratch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

_NAMESPACES = ("-n", "-u", "-m", "-i")
_SETUP = """
mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /run && mkdir /run/lockstep && mount -t tmpfs -o ro tmpfs /tmp &&
hostname {name} && echo ready && exec sleep 1000000
"""


class MachinesError(Exception):
    """They cannot be made here: it takes root, or user namespaces, and `ip`."""


class Machines:
    """Machines 10.77.0.1, .2, ... on a network of their own. No name of them resolves, and of directories that can be
    written to each has /run and /dev/shm for itself. All have one more interface, with an address that is the same on
    each and leads nowhere, as container runtimes make them."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.pids = pids
        self.addresses = [f"10.77.0.{index + 1}" for index in range(len(pids))]

    def command(self, index: int, words: Sequence[str]) -> list[str]:
        """What runs ``words`` there."""
        return ["nsenter", "-t", str(self.pids[index]), *_NAMESPACES, "--wdns=/run/lockstep", "--", *words]

    def root(self, index: int) -> Path:
        """Its files, as they are seen from here."""
        return Path(f"/proc/{self.pids[index]}/root")


@contextlib.contextmanager
def machines(count: int) -> Iterator[Machines]:
    """Raises MachinesError. All that runs there ends with them."""
    with contextlib.ExitStack() as stack:
        switch = _holder(stack, "switch", ("-n",))
        _ip(switch, ["link add br0 type bridge", "link set br0 up"])
        pids = []
        for index in range(count):
            pid = _holder(stack, f"node-{index}", _NAMESPACES)
            _ip(switch, [f"link add port{index} type veth peer name eth0 netns {pid}",
                         f"link set port{index} master br0 up"])  # fmt: skip
            _ip(
                pid,
                [
                    "link set lo up",
                    f"addr add 10.77.0.{index + 1}/24 dev eth0",
                    "link set eth0 up",
                    "link add docker0 type veth peer name other0",
                    "addr add 172.17.0.1/16 dev docker0",
                    "link set docker0 up",
                    "link set other0 up",
                ],
            )
            pids.append(pid)
        yield Machines(pids)


def _holder(stack: contextlib.ExitStack, name: str, namespaces: Sequence[str]) -> int:
    """The process that a machine lasts as long as."""
    shell = _SETUP.format(name=name) if "-m" in namespaces else "echo ready && exec sleep 1000000"
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    process = stack.enter_context(
        subprocess.Popen(
            ["unshare", *user, *namespaces, "sh", "-c", shell], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    )
    stack.callback(_kill_all, process.pid)
    assert process.stdout is not None
    assert process.stderr is not None
    if process.stdout.readline() != b"ready\n":
        raise MachinesError(process.stderr.read().decode(errors="replace").strip())
    return process.pid


def _kill_all(pid: int) -> None:
    """Whoever is on the network of ``pid``, and that process last."""
    network = os.readlink(f"/proc/{pid}/ns/net")
    for found in sorted(map(int, filter(str.isdigit, os.listdir("/proc"))), key=pid.__eq__):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{found}/ns/net") == network:
                os.kill(found, signal.SIGKILL)


def _ip(pid: int, lines: Sequence[str]) -> None:
    done = subprocess.run(
        ["nsenter", "-t", str(pid), "-n", "ip", "-batch", "-"], input="\n".join(lines), capture_output=True, text=True
    )
    if done.returncode:
        raise MachinesError(f"ip: {done.stderr.strip()}")
