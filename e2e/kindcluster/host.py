"""What a cluster of containers changes on this machine, and how it is put back."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kindcluster import commands, sysctls
from kindcluster.errors import KindClusterError

MODULES = Path("/lib/modules")  # made by Docker where there are none, as kind mounts it
DOCKERS_FOLDERS = tuple(map(Path, ("/etc/docker", "/opt/containerd", "/run/containerd", "/run/docker")))
"""What dockerd makes wherever its socket and its data are."""
_KEY = "key.json"  # in the first of them, of use to nobody but the daemon that made it
_CAP_SYS_RESOURCE = 24
# The last is how a container reaches a port of its own that is published.
_DOCKERS_RULE = re.compile(r"DOCKER|\bdocker0\b|\bbr-[0-9a-f]{12}\b|-s (\S+) -d \1 -p .* -j MASQUERADE$")
_APT = threading.Lock()  # so has apt-get, but it gives up instead of waiting
_DOCKERS_LINK = re.compile(r"^(docker0|br-[0-9a-f]{12})$")


def missing_sys_resource() -> bool:
    """Whether no process of this machine may get CAP_SYS_RESOURCE, as `docker run --privileged` wants it."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return found is not None and not int(found.group(1), 16) >> _CAP_SYS_RESOURCE & 1


def install(programs: Mapping[str, str], *, log: Path, report: commands.Report) -> None:
    """Install the packages of programs that are missing, by apt-get. Raises KindClusterError where that cannot be.

    `programs` are names and the Debian packages that have them. Packages stay.
    """
    with _APT:
        packages = sorted({package for program, package in programs.items() if shutil.which(program) is None})
        if packages:
            _install(packages, log, report)


def require_free(folder: Path, gigabytes: int) -> None:
    """Raises KindClusterError where the disk that `folder` is on has less space for us."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize // 10**9
    if free < gigabytes:
        raise KindClusterError(
            f"{free} GB are free where {folder} is, and {gigabytes} are needed: make room there,"
            " or name a folder on another disk by LOCKSTEP_BUILD_DIR"
        )


def _install(packages: list[str], log: Path, report: commands.Report) -> None:
    words = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise KindClusterError(f"{words} missing; install them, as only root can do it here by apt-get")
    report(f"installing {words} by apt-get; they stay ...")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    commands.run(["apt-get", "update", "-qq"], log=log, environment=quiet)
    command = ["apt-get", "install", "-qq", "--yes", "--no-install-recommends"]
    commands.run([*command, *packages], log=log, environment=quiet)


@dataclass(frozen=True)
class HostChanges:
    """Remembered in a file, so that another process can undo them after a crash."""

    record_file: Path

    def record(self, *, daemon_is_ours: bool) -> None:
        """Write down how things are. What an earlier record says, which was not undone, counts.

        Of a daemon that is not ours, the links, rules and cgroups are its own affair.
        """
        if self.record_file.exists():
            return
        self.record_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        before: dict[str, Any] = {
            "sysctls": sysctls.read(),
            "missing": _missing((MODULES,)),
        }
        if daemon_is_ours:
            before["sysctls"] = dict.fromkeys(sysctls.BRIDGED, "0") | before["sysctls"]
            before["missing"] += _missing(DOCKERS_FOLDERS)
            before["docker"] = {
                "forward": {tool: _forward_policy(tool) for tool in ("iptables", "ip6tables")},
                "links": sorted(filter(_DOCKERS_LINK.match, os.listdir("/sys/class/net"))),
            }
        self.record_file.write_text(json.dumps(before, indent=1))

    def set(self, name: str, value: str) -> None:
        """Set a sysctl."""
        sysctls.path_of(name).write_text(value)

    def undo(self) -> None:
        """Put everything back. Without a record nothing was changed."""
        if not self.record_file.exists():
            return
        before: dict[str, Any] = json.loads(self.record_file.read_text())
        if "docker" in before:
            _remove_what_docker_made(before["docker"])
        sysctls.put_back(before["sysctls"])
        for folder in before.get("missing", ()):
            _remove_if_unused(Path(folder))
        self.record_file.unlink()


def _missing(folders: Iterable[Path]) -> list[str]:
    return [str(folder) for folder in folders if not folder.exists()]


def _remove_what_docker_made(before: Mapping[str, Any]) -> None:
    for link in sorted(filter(_DOCKERS_LINK.match, os.listdir("/sys/class/net"))):
        if link not in before["links"]:
            subprocess.run(["ip", "link", "delete", link], check=False)
    for tool, policy in before["forward"].items():
        _remove_dockers_rules(tool, policy)
    cgroups = Path("/sys/fs/cgroup")
    for group in (cgroups / "docker", *cgroups.glob("*/docker")):
        _remove_empty(group)


def _remove_if_unused(folder: Path) -> None:
    """Remove what dockerd left there; what others put there stays, and the folder with it."""
    (folder / _KEY).unlink(missing_ok=True)
    _remove_empty(folder)


def _forward_policy(tool: str) -> str:
    """Where the tool is not there yet nothing filters, until Docker's packages bring it."""
    if shutil.which(tool) is None:
        return "ACCEPT"
    said = subprocess.run([tool, "-S", "FORWARD"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"-P FORWARD (\w+)", said)
    return found.group(1) if found else "ACCEPT"


def is_dockers_rule(line: str) -> bool:
    """Of those that iptables-save tells: whether it names Docker's chains, links or containers."""
    return _DOCKERS_RULE.search(line.rstrip("\n")) is not None


def without_dockers_rules(saved: str, *, forward: str) -> str:
    """What iptables-save told, less all that names Docker's chains and links.

    Others' rules stay, also those made meanwhile. `forward` is the policy of FORWARD, which Docker changes.
    """
    kept = "".join(line for line in saved.splitlines(keepends=True) if not is_dockers_rule(line))
    return re.sub(r"^(\*filter\n(?::.*\n)*?:FORWARD) \w+ ", rf"\1 {forward} ", kept, flags=re.MULTILINE)


def _remove_dockers_rules(tool: str, forward: str) -> None:
    saved = subprocess.run([f"{tool}-save"], capture_output=True, text=True, check=False).stdout
    kept = without_dockers_rules(saved, forward=forward)
    subprocess.run([f"{tool}-restore"], input=kept, text=True, check=False)


def _remove_empty(top: Path) -> None:
    """It and the folders below it, where nothing else is in them. cgroups are, as long as something runs there."""
    for folder in sorted((path for path in (top, *top.rglob("*")) if path.is_dir()), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
