"""A stand-in for Ray that starts in a moment: a program `ray`, and a package with what is asked of one.

`ray start` lives as long as its child that the kernel calls raylet, and whoever is alive has a file of its address.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.proc import children
from harness.waiting import wait_for
from lockstep.worker.launchers import ray
from lockstep.worker.settings import Settings
from lockstep.worker.start import Launch

_RAY = """#!{python}
import json, os, pathlib, signal, socket, sys, time
state = pathlib.Path(os.environ["FAKE_RAY"])
said = dict(word.partition("=")[::2] for word in sys.argv[2:])
address = said["--node-ip-address"]
with open(state / "starts", "a") as starts:
    print(json.dumps({{**said, "env": dict(os.environ), "pid": os.getpid()}}), file=starts)
if (state / "broken").exists() or (state / "starts").read_text().count("\\n") <= int(os.environ.get("FAILS", 0)):
    print("the port is taken")
    sys.exit(0)  # as Ray does
raylet = os.fork()
if not raylet:
    open("/proc/self/comm", "w").write("raylet")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server = socket.create_server((address, int(said["--port"]))) if "--head" in said else None
    (state / "alive" / address).touch()
    print("Ray runtime started.", flush=True)
    if "DIES" in os.environ:
        os._exit(1)
    while True:
        time.sleep(60)
_, status = os.waitpid(raylet, 0)
(state / "alive" / address).unlink()
if status == 0:
    time.sleep(60)  # as Ray does, which takes that for good
print("Some Ray subprocesses exited unexpectedly: raylet")
sys.exit(1)
"""
_RAYLET = """
import os, pathlib, types
state = pathlib.Path(os.environ["FAKE_RAY"])
class GcsClient:
    def __init__(self, address):
        self.address = address
    def get_all_node_info(self, timeout):
        assert os.environ["RAY_AUTH_MODE"] == "token"
        if (state / "deaf").exists():
            raise RuntimeError("GCS is not there")
        named = [(path.name, kind.encode()) for kind in ("stale", "alive") for path in (state / kind).iterdir()]
        return {
            kind + name.encode(): types.SimpleNamespace(
                node_manager_address=name, state=0, node_id=(b"" if kind == b"alive" else b"stale ") + name.encode()
            )
            for name, kind in named
        }
    def drain_node(self, node_id, reason, words, deadline):
        if bytes.fromhex(node_id).startswith(b"stale "):
            if "REFUSES" in os.environ:
                return False, "it is idle no more"
            raise RuntimeError("nobody answers")
        with open(state / "drained", "a") as drained:
            print(bytes.fromhex(node_id).decode(), reason, words, deadline, file=drained)
        return True, ""
class NodeID: pass
"""
_REASONS = """
class DrainNodeReason:
    @staticmethod
    def Value(name):
        return name
"""


@dataclass
class FakeRay:
    """An installation, and the nodes that were started with it."""

    folder: Path
    version: str = "2.60.0"
    nodes: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        files = {
            "bin/ray": _RAY.format(python=sys.executable),
            "lib/ray/__init__.py": "",
            "lib/ray/_raylet.py": _RAYLET,
            "lib/ray/core/__init__.py": "",
            "lib/ray/core/generated/__init__.py": "",
            "lib/ray/core/generated/autoscaler_pb2.py": _REASONS,
            f"lib/ray-{self.version}.dist-info/METADATA": f"Name: ray\nVersion: {self.version}\n",
        }
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.folder / "bin/ray").chmod(0o755)
        for kind in ("alive", "stale"):
            (self.folder / "state" / kind).mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def start(self, rank: int, *command: str, world: int = 2, joins: bool = False, **env: str) -> subprocess.Popen[str]:
        """What a worker runs on the node of a rank."""
        options = {"arguments": ["--num-cpus=1"], "joins": joins}
        scratch = str(self.scratch(rank))
        settings = Settings(
            "https://127.0.0.1:1", "team", "hello", "u", rank, 1, "p", command or ["true"], launcher="Ray",
            launcher_options=options, address=f"127.0.0.{rank + 1}", node=f"node-{rank}", scratch=scratch,
        )  # fmt: skip
        dashboard = "127.0.0.1:8265"
        launch = Launch(1, rank, world, "127.0.0.1", self.port, "", "", [], dashboard=dashboard, token="t" * 64)
        (self.scratch(rank) / "a1").mkdir(parents=True, exist_ok=True)
        ray.make_directory(settings, launch)
        environment = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(self.folder / "lib"),
            "FAKE_RAY": str(self.folder / "state"), **ray.environment(settings, launch, env), **env,
        }  # fmt: skip
        self.nodes[rank] = subprocess.Popen(
            ray.command(settings, launch), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        return self.nodes[rank]

    def scratch(self, rank: int) -> Path:
        return self.folder / f"scratch-{rank}"

    @property
    def starts(self) -> list[dict[str, Any]]:
        """Each `ray start`: its arguments, environment and PID."""
        with suppress(FileNotFoundError):
            return [json.loads(line) for line in (self.folder / "state/starts").read_text().splitlines()]
        return []

    def wait_until_alive(self, *ranks: int) -> None:
        wanted = {f"127.0.0.{rank + 1}" for rank in ranks}
        alive = self.folder / "state/alive"
        wait_for(f"{wanted} are alive", lambda: wanted <= {path.name for path in alive.iterdir()}, seconds=60)

    def kill_raylet(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Of the last `ray start` of that node."""
        started = [each["pid"] for each in self.starts if each["--node-ip-address"] == f"127.0.0.{rank + 1}"][-1]
        [child] = children(started)
        os.kill(child, number)

    def keep_entry(self, rank: int) -> None:
        """A node of the same address that ended is not known to have ended, which takes GCS a while."""
        (self.folder / f"state/stale/127.0.0.{rank + 1}").touch()

    @property
    def deaf(self) -> Path:
        """While this file is there GCS answers nobody."""
        return self.folder / "state/deaf"

    def break_down(self) -> None:
        """Whoever is started from now on fails."""
        (self.folder / "state/broken").touch()

    def end(self) -> None:
        """Kill whatever is left."""
        for node in self.nodes.values():
            for pid in _below(node.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
            node.communicate()
        for started in self.starts:  # they outlive a node that was killed
            with suppress(ProcessLookupError, FileNotFoundError):
                if str(self.folder).encode() in Path(f"/proc/{started['pid']}/cmdline").read_bytes():
                    for pid in [*_below(started["pid"]), started["pid"]]:
                        os.kill(pid, signal.SIGKILL)


def _below(pid: int) -> list[int]:
    return [each for child in children(pid) for each in (*_below(child), child)]
