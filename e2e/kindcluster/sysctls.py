"""Sysctls of this machine that a cluster of containers changes, by the names that sysctl(8) gives them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path("/proc/sys")
BRIDGED = tuple(f"net.bridge.bridge-nf-call-{tool}" for tool in ("iptables", "ip6tables"))
"""Not there before dockerd loads the module that has bridged packets filtered, and then 1."""
# In the order in which they are put back: who sets forwarding for all sets what follows, link by link, as well.
CHANGED = (
    # dockerd, where a network is made, and we ourselves
    "net.ipv4.ip_forward",
    "net.ipv4.conf.all.accept_redirects",
    "net.ipv4.conf.*.forwarding",
    "net.ipv6.conf.all.forwarding",
    "net.ipv6.conf.*.forwarding",
    *BRIDGED,
    "fs.inotify.max_user_instances",
    # kubelet in every node, which shares the kernel: setupKernelTunables. The keys' are dockerd's as well
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    "kernel.panic",
    "kernel.panic_on_oops",
    "kernel.keys.root_maxkeys",
    "kernel.keys.root_maxbytes",
    # systemd in every node, and its image's sysctl.d
    "fs.file-max",
    "fs.nr_open",
    "fs.protected_fifos",
    "fs.protected_hardlinks",
    "fs.protected_regular",
    "fs.protected_symlinks",
    "kernel.pid_max",
)


def read() -> dict[str, str]:
    """What CHANGED is now, in its order. What this kernel lacks is left out."""
    found = {name_of(path): path for pattern in CHANGED for path in sorted(ROOT.glob(pattern.replace(".", "/")))}
    return dict(_values(found))


def put_back(values: Mapping[str, str]) -> None:
    """Set what is not as in `values`, which come from `read`. What is gone, as links go, is left out."""
    for name, value in values.items():
        with contextlib.suppress(OSError):
            if path_of(name).read_text().strip() != value:
                path_of(name).write_text(value)


def path_of(name: str) -> Path:
    """Its file. A dot in the name of a link is written as a slash."""
    return ROOT.joinpath(*(part.replace("/", ".") for part in name.split(".")))


def name_of(path: Path) -> str:
    return ".".join(part.replace(".", "/") for part in path.relative_to(ROOT).parts)


def _values(paths: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    for name, path in paths.items():
        with contextlib.suppress(OSError):
            yield name, path.read_text().strip()
