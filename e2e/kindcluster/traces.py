"""What a cluster of containers could leave on this machine: looked for before anything is changed, and at the end."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kindcluster import commands, host, leftovers, sysctls
from kindcluster.errors import KindClusterError

Seen = dict[str, str]
"""What is there, in words that begin with its kind, and its value if it has one."""
_TREES = ("fs", "kernel", "net", "vm")  # the sysctls that programs in containers could reach
# The kernel sets them itself; a look at the last may mount it.
_KERNELS_OWN = re.compile(r"kernel/(ns_last_pid|perf_\w+)$|vm/min_free_kbytes$|fs/binfmt_misc/")
_OF_A_LINK = re.compile(r"net/\w+/(conf|neigh)/(?!(all|default)/)")
_LINK = re.compile(r"^(docker0|br-[0-9a-f]{12}|veth[0-9a-f]{7})$")
_DOCKERS = re.compile(r"docker|containerd|kubelet|kubepods")  # a machine's others come and go meanwhile
_CGROUPS = Path("/sys/fs/cgroup")


@contextmanager
def none_left(run: Path, folder: Path, *, daemon_is_ours: bool, report: commands.Report) -> Iterator[None]:
    """Raises KindClusterError where the machine is not as before when the block ends, unless it ends with an error.

    It is reported either way. ``run`` is where our daemon runs, ``folder`` where its images are.
    """
    before = seen(run, folder, daemon_is_ours=daemon_is_ours)
    try:
        yield
    finally:
        left = differences(before, seen(run, folder, daemon_is_ours=daemon_is_ours))
        for line in left:
            report(f"left behind: {line}")
    if left:
        raise KindClusterError(f"this machine is not as it was before: {'; '.join(left)}")


def seen(run: Path, folder: Path, *, daemon_is_ours: bool) -> Seen:
    """How things are now. Beside somebody else's Docker, links, rules and groups are not ours to judge."""
    found: Seen = {}
    if os.geteuid() == 0:  # nobody else puts them back
        found |= {f"sysctl {name}": value for name, value in sysctls_seen().items()}
    if daemon_is_ours:
        found |= {f"link {link}": "" for link in filter(_LINK.match, os.listdir("/sys/class/net"))}
        found |= {f"mount {point}": "" for point in mounts_seen(Path("/proc/self/mounts").read_text(), (run, folder))}
        found |= {f"folder {made}": "" for made in (host.MODULES, *host.DOCKERS_FOLDERS) if made.exists()}
        found |= {f"cgroup {group}": "" for group, _, _ in os.walk(_CGROUPS) if _DOCKERS.search(group)}
        found |= {f"process {pid} of {run}": "" for pid in leftovers.running_below(run)}
        for tool in ("iptables", "ip6tables"):
            saved = subprocess.run([f"{tool}-save"], capture_output=True, text=True, check=False).stdout
            found |= {f"{tool} {rule}": value for rule, value in rules_seen(saved).items()}
    return found


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """In words. Sysctls come and go with links and modules, which are told of themselves."""
    said = []
    for name in sorted({*before, *after}):
        was, now = before.get(name), after.get(name)
        if was == now or (name.startswith("sysctl ") and None in (was, now)):
            continue
        if was is None or now is None:
            said.append(f"{name}: {'gone' if now is None else 'new'}")
        else:
            said.append(f"{name}: {was} before, {now} now")
    return said


def sysctls_seen() -> dict[str, str]:
    """Those that can be set: of a link only what we put back, as the network's own programs set the others."""
    found = {}
    for tree in _TREES:
        for folder, _, files in os.walk(sysctls.ROOT / tree):
            for path in (Path(folder, file) for file in files):
                below = str(path.relative_to(sysctls.ROOT))
                if _KERNELS_OWN.match(below) or _OF_A_LINK.match(below):
                    continue
                with contextlib.suppress(OSError):  # some cannot be read
                    mode = path.stat().st_mode
                    if mode & stat.S_IWUSR and mode & stat.S_IRUSR:
                        found[sysctls.name_of(path)] = path.read_text(errors="replace").strip()
    return found | sysctls.read()


def mounts_seen(table: str, folders: Iterable[Path]) -> list[str]:
    """Where something is mounted below our folders, or by its name for Docker, in a table as the kernel gives it."""
    ours = {point for folder in folders for point in leftovers.mounted_at(folder, table)}
    points = {line.split()[1] for line in table.splitlines()}
    return sorted(ours | {point for point in points if _DOCKERS.search(point)})


def rules_seen(saved: str) -> dict[str, str]:
    """Of what iptables-save told: chains and rules of Docker's, and the policy that it changes.

    Tables are there once somebody has looked at them, hence the policy that an empty one has is not told.
    """
    found, table = {}, ""
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":FORWARD "):
            if (policy := line.split()[1]) != "ACCEPT":
                found[f"{table} policy of FORWARD"] = policy
        elif host.is_dockers_rule(line):
            found[f"{table} {line.partition(' - ')[0]}"] = ""
    return found
