"""Without root: one user, network and mount namespace in which everything that reaches nodes lives."""

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from localcluster import processes
from localcluster.processnodes.daemon import folder
from localcluster.processnodes.errors import ProcessNodesError


def enter(state: Path, command: Sequence[str]) -> None:
    """Replace this process by ``command`` inside the namespaces of ``state``, made when missing.

    The command sees itself as root and has a loopback and a network of its own: nothing outside is
    reachable from there, and nothing there from outside. Files are this user's.
    """
    words = list(command[1:] if command[:1] == ["--"] else command) or [os.environ.get("SHELL", "/bin/sh")]
    pid = _holder(state)
    namespaces = ["--user", "--net", "--mount", "--preserve-credentials"]
    os.execvp("nsenter", ["nsenter", "-t", str(pid), *namespaces, f"--wd={os.getcwd()}", "--", *words])


def leave(state: Path) -> None:
    """Let go of the namespaces of ``state``, if any; whatever still runs inside keeps them."""
    record = _record(state)
    if record.exists():
        processes.end([processes.ProcessRecord(**json.loads(record.read_text()))], grace=0)
        record.unlink()


def _record(state: Path) -> Path:
    return folder(state.resolve()) / "namespace.json"


def _holder(state: Path) -> int:
    """The process that keeps the namespaces; started when there is none."""
    record = _record(state)
    record.parent.mkdir(parents=True, exist_ok=True)
    if record.exists():
        known = processes.ProcessRecord(**json.loads(record.read_text()))
        if processes.is_alive(known):
            return known.pid
    log = record.with_name("namespace.log")
    log.unlink(missing_ok=True)
    unshare = shutil.which("unshare") or "/usr/bin/unshare"
    shell = "ip link set lo up && echo ready && exec sleep infinity"
    command = [unshare, "--user", "--map-root-user", "--net", "--mount", "sh", "-c", shell]
    holder = processes.spawn(command, log, os.environ)
    while log.read_text() != "ready\n":
        if not processes.is_alive(holder):
            raise ProcessNodesError(
                "this machine gives ordinary users no namespaces, so process nodes need root here: "
                + log.read_text().strip()
            )
        time.sleep(0.01)
    record.write_text(json.dumps(asdict(holder)))
    return holder.pid
