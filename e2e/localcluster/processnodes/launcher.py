"""Starts one process inside its namespaces. Run as a script by the daemon, standard library only.

``hold``: become a node: new network and UTS namespace, then wait until standard input ends.
``run``:  read a JSON spec from standard input and run a container. The spec:

    namespacesOf   pid whose network namespace is joined
    hostname       of the new UTS namespace
    scratch        empty directory the root file system is built over
    mounts         [{source, target, readOnly}], in order; source and target are both files or both folders
    readOnlyRoot   true: only mounts are writable
    userxattr      true inside a user namespace, where overlay mounts need that option
    uid, gid       run as these; null keeps root
    command, env, workingDir, log (path, appended to), shm (bytes of /dev/shm)

The outcome is told on the file descriptor named by the last argument, as JSON lines: ``{"pid": N}``, then
``{"error": words}`` or the end of the stream, which means that the command runs. This process then waits and
ends with the command's exit code, 128 + N after signal N.

The container's root is this machine's file system, copy-on-write: one overlay mount per top-level
folder (and per mount below), with the changes in a tmpfs that dies with the mount namespace.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
CONSOLES_AND_DISKS = ("tty", "vcs", "loop", "ram")  # by the hundred, and no trainer opens them

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def enter_network(pid: int) -> None:
    """Move the calling thread into the network namespace of ``pid``."""
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        _checked(_libc.setns(descriptor, CLONE_NEWNET), "setns")
    finally:
        os.close(descriptor)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _checked(result, f"mount {source} on {target}")


def die_with_parent(parent: int) -> None:
    """Be killed when the parent ends, so that no crash of the daemon leaves processes behind."""
    _checked(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(1)


def hold() -> None:
    die_with_parent(int(sys.argv[3]))
    unshare(CLONE_NEWNET | CLONE_NEWUTS)
    socket.sethostname(sys.argv[2])
    os.write(1, b"ready\n")
    sys.stdin.buffer.read()


class RootFileSystem:
    """A private, writable view of this machine's file system under ``root``."""

    def __init__(self, scratch: str, userxattr: bool) -> None:
        mount("tmpfs", scratch, "tmpfs")
        self.root = f"{scratch}/root"
        self._scratch = scratch
        self._options = ",userxattr" if userxattr else ""
        self._covered: list[str] = []
        os.mkdir(self.root)
        mount("tmpfs", self.root, "tmpfs", 0, "mode=755")

    def build(self, below: list[str]) -> None:
        """Take over all of /, and the mounts ``below`` it (which overlays don't show)."""
        for name in sorted(os.listdir("/")):
            path = f"/{name}"
            if os.path.islink(path):
                os.symlink(os.readlink(path), self.root + path)
            elif name in ("proc", "sys", "dev"):
                os.mkdir(self.root + path)
            else:
                self._cover(path)
        for path in below:
            if os.path.lexists(self.root + path):
                self._cover(path)

    def _cover(self, path: str) -> None:
        target = self.make_target(path, path)
        self._covered.append(target)
        if not os.path.isdir(path):
            mount(path, target, "", MS_BIND)
            return
        mode = os.stat(path).st_mode & 0o7777
        upper, work = (f"{self._scratch}/{kind}{len(self._covered)}" for kind in ("upper", "work"))
        os.mkdir(upper)
        os.chmod(upper, mode)
        os.mkdir(work)
        try:
            options = f"lowerdir={path},upperdir={upper},workdir={work}{self._options}"
            mount("overlay", target, "overlay", 0, options)
        except OSError:
            # A file system that can't lie under an overlay, or one with mounts locked on it.
            mount(path, target, "", MS_BIND | MS_REC)

    def add_kernel_file_systems(self, shm_bytes: int) -> None:
        """Fresh /proc, /sys and /dev/shm, and the machine's devices in a /dev of its own."""
        mount("proc", f"{self.root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        try:
            mount("sysfs", f"{self.root}/sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
        except OSError:
            mount("/sys", f"{self.root}/sys", "", MS_BIND | MS_REC)
        mount("dev", f"{self.root}/dev", "tmpfs", MS_NOSUID, "mode=755")
        for name in os.listdir("/dev"):
            path = f"/dev/{name}"
            if os.path.islink(path):
                os.symlink(os.readlink(path), self.root + path)
            elif name != "shm" and not name.startswith(CONSOLES_AND_DISKS):
                mount(path, self.make_target(path, path), "", MS_BIND | MS_REC)
        os.mkdir(f"{self.root}/dev/shm")
        mount("shm", f"{self.root}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, f"size={shm_bytes},mode=1777")

    def make_target(self, source: str, target: str) -> str:
        """Create the mount point for ``source``, a file or a folder; its path from outside."""
        where = self.root + os.path.realpath(target)
        if os.path.isdir(source):
            os.makedirs(where, exist_ok=True)
        elif not os.path.lexists(where):
            os.makedirs(os.path.dirname(where), exist_ok=True)
            os.close(os.open(where, os.O_CREAT | os.O_WRONLY, 0o644))
        return where

    def add(self, source: str, target: str, read_only: bool) -> None:
        where = self.make_target(source, target)
        mount(source, where, "", MS_BIND | MS_REC)
        if read_only:
            mount("none", where, "", MS_BIND | MS_REMOUNT | MS_RDONLY)

    def seal(self) -> None:
        """Make all of the image read-only; mounts added later are not touched."""
        for where in [*self._covered, self.root]:
            mount("none", where, "", MS_BIND | MS_REMOUNT | MS_RDONLY)

    def enter(self) -> None:
        os.chdir(self.root)
        _checked(_libc.pivot_root(b".", b"."), "pivot_root")
        _checked(_libc.umount2(b".", MNT_DETACH), "umount")
        os.chdir("/")


def mounted() -> list[tuple[str, str]]:
    """``(mount point, file system type)`` of every mount of this namespace, in mount order."""
    found = []
    with open("/proc/self/mountinfo") as table:
        for line in table:
            fields, _, rest = line.partition(" - ")
            found.append((fields.split()[4].encode().decode("unicode_escape"), rest.split()[0]))
    return found


def mounts_below_root() -> list[str]:
    special = ("/proc", "/sys", "/dev")
    return [
        path
        for path, kind in mounted()
        if path != "/" and kind != "nsfs" and not any(path == s or path.startswith(f"{s}/") for s in special)
    ]


def tell(descriptor: int, message: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(message).encode() + b"\n")


def run() -> int:
    status_fd = int(sys.argv[3])
    os.set_inheritable(status_fd, False)
    try:
        spec = json.load(sys.stdin)
        die_with_parent(int(sys.argv[2]))
        log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        enter_network(spec["namespacesOf"])
        unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC)
    except OSError as error:
        tell(status_fd, {"error": str(error)})
        return 128
    child = os.fork()
    if child == 0:
        try:
            become_container(spec, log)
        except OSError as error:
            tell(status_fd, {"error": str(error)})
        os._exit(128)
    tell(status_fd, {"pid": child})
    # Nothing but the container may keep these open: their end is a message.
    os.close(status_fd)
    os.closerange(0, 3)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def become_container(spec: dict[str, Any], log: int) -> None:
    """Build the root, give up what a container does not have, and become its command."""
    os.setsid()
    outside = 0  # how a parent outside the PID namespace reads
    die_with_parent(outside)
    socket.sethostname(spec["hostname"])
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    below = mounts_below_root()
    root = RootFileSystem(spec["scratch"], spec["userxattr"])
    root.build(below)
    root.add_kernel_file_systems(spec["shm"])
    for entry in spec["mounts"]:
        root.make_target(entry["source"], entry["target"])
    if spec["readOnlyRoot"]:
        root.seal()
    for entry in spec["mounts"]:
        root.add(entry["source"], entry["target"], entry["readOnly"])
    root.enter()
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if spec["gid"] is not None:
        os.setgroups([spec["gid"]])
        os.setgid(spec["gid"])
    if spec["uid"] is not None:
        os.setuid(spec["uid"])
        die_with_parent(outside)  # a change of user clears it
    os.chdir(spec["workingDir"])
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python, and that would be inherited
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(spec["command"][0], spec["command"], spec["env"])
    except FileNotFoundError:
        raise OSError(f'exec: "{spec["command"][0]}": executable file not found in $PATH') from None


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        hold()
    else:
        sys.exit(run())
