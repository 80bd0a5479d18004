"""Ray: one cluster of the gang's nodes for each attempt, at ports and with a token of its own.

What runs on each node is ``lockstep.worker.child.ray_node``: Ray, and on rank 0 the command beside it once all nodes
have joined.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Dict, List, Mapping

from lockstep.worker.settings import Settings
from lockstep.worker.start import Launch

DRAIN_FILE = "leave.json"
"""In Ray's directory: this node is to be left, and until when."""
_MAIN = """
import sys
sys.path.insert(0, sys.argv[1])
from lockstep.worker.child.ray_node import main
main(sys.argv[2], sys.argv[3:])
"""


def directory(settings: Settings, launch: Launch) -> str:
    """Ray's own: sessions, sockets, logs, objects that are spilled. It goes with the attempt."""
    return os.path.join(settings.scratch, f"a{launch.attempt}", "ray")


def environment(settings: Settings, launch: Launch, own: Mapping[str, str]) -> Dict[str, str]:
    """What Ray's programs and the driver read. ``own``: the pod's environment, which may choose another protection."""
    made = {"RAY_USAGE_STATS_ENABLED": "0"}
    if "RAY_AUTH_MODE" not in own:
        made.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=token_file(settings, launch))
    made = {name: value for name, value in made.items() if name not in own}
    made["RAY_ADDRESS"] = _joined(launch.master_address, launch.master_port)  # any other one is not this cluster
    if launch.dashboard:
        made["RAY_API_SERVER_ADDRESS"] = f"http://{launch.dashboard}"
    return made


def command(settings: Settings, launch: Launch) -> List[str]:
    """What runs on each node."""
    options = settings.launcher_options
    started = [str(argument) for argument in options.get("arguments") or ()]
    said = {
        "rank": launch.rank, "world": launch.world, "address": settings.address, "node": settings.node,
        "gcs": [launch.master_address, launch.master_port],
        "dashboard": launch.dashboard, "directory": directory(settings, launch),
        "entrypoint": int(options.get("entrypoint") or 0), "arguments": len(started),
        "joins": options.get("joins") is True,
    }  # fmt: skip
    root = os.path.abspath(__file__).rpartition("/lockstep/worker/")[0]
    return [sys.executable, "-I", "-S", "-c", _MAIN, root, json.dumps(said), *started, *settings.command]


def make_directory(settings: Settings, launch: Launch) -> None:
    """With the token, for this user alone. Raises OSError."""
    os.mkdir(directory(settings, launch), 0o700)
    if launch.token:
        descriptor = os.open(token_file(settings, launch), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as stream:
            stream.write(launch.token)


def is_told_of_its_end(settings: Settings, rank: int) -> bool:
    """A node of this rank is left while Ray goes on."""
    return settings.launcher == "Ray" and settings.launcher_options.get("joins") is True and rank > 0


def tell_of_end(settings: Settings, attempt: int, until: float, why: str) -> None:
    """Have Ray told that this node is there until then (unix seconds). Once; never raises OSError."""
    path = os.path.join(settings.scratch, f"a{attempt}", "ray", DRAIN_FILE)
    if os.path.exists(path):
        return
    with contextlib.suppress(OSError):
        with open(path + ".tmp", "w") as stream:
            json.dump({"until": until, "why": why}, stream)
        os.rename(path + ".tmp", path)


def token_file(settings: Settings, launch: Launch) -> str:
    """Where the attempt's token is."""
    return os.path.join(directory(settings, launch), "token")


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
