"""A gang of real processes on process nodes, made to fail on purpose and watched coming back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import rank as trainer
from bench.recoveries import Cost, Recovery, RecoveryLog, cost_so_far
from harness.waiting import wait_for
from harness.world import World, wait_until_schedulable
from localcluster.api import Request
from lockstep.api.base import names

NAMESPACE = "bench"
CLAIM = "checkpoints"
_LAUNCH_SECONDS = 300.0
_RECOVERY_SECONDS = 60.0
_GONE_SECONDS = 120.0
_ENDED_SECONDS = 30.0
Json = dict[str, Any]


@dataclass(frozen=True)
class Series:
    """Recoveries of one gang, one after another, and what they cost the operator together.

    ``programs``: seconds from each report of a failure until the last rank's program was started, where looked at.
    """

    ranks: int
    recoveries: tuple[Recovery, ...]
    cost: Cost
    programs: tuple[float, ...] = ()

    @property
    def cpu_per_rank(self) -> float:
        """Seconds of the operator's CPU per rank and recovery, heartbeats meanwhile included."""
        return self.cost.cpu / self.ranks / len(self.recoveries)

    @property
    def writes(self) -> float:
        """Writes to the API server per recovery."""
        return sum(self.cost.writes.values()) / len(self.recoveries)


def prepare_namespace(world: World) -> None:
    """The trainer, and a claim to save to."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": NAMESPACE},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    world.kubectl("apply", "-f", "-", text=json.dumps(claim))
    world.kubectl("create", "configmap", "trainer", "-n", NAMESPACE, f"--from-file=rank.py={trainer.__file__}")


def manifest(name: str, ranks: int) -> Json:
    """A run that saves, and goes on as long as it makes progress."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_KIND,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodes": ranks,
            "gpusPerNode": 0,
            "image": "none",
            "command": ["python3", "-I", "-S", "-B", "/app/rank.py"],
            "checkpoint": {"format": "Manifest", "shared": {"claimName": CLAIM}},
            # Whose processes are killed again and again would otherwise be taken for a faulty node, or program.
            "recovery": {"rules": [{"name": "on-purpose", "exitCodes": [1, 137], "action": "RestartInPlace"}]},
            "volumes": [{"name": "app", "mountPath": "/app", "readOnly": True, "configMap": {"name": "trainer"}}],
        },
    }


@contextlib.contextmanager
def launched(world: World, name: str, ranks: int) -> Iterator[Gang]:
    """A gang that trains; nothing is left of it afterwards."""
    api = world.cluster.api
    runs = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.RUNS}"
    made = api.send(Request("POST", runs, manifest(name, ranks)))
    gang = Gang(world, f"{runs}/{name}", made["metadata"]["uid"], ranks)
    wait_for(
        f"{name}: all {ranks} ranks train",
        lambda: len(gang.processes()) == ranks,
        seconds=_LAUNCH_SECONDS,
        every=1.0,
        last_seen=lambda: f"{sorted(gang.processes())} {gang.status.get('conditions')} {world.operator.log_tail(5)}",
    )
    yield gang
    api.send(Request("DELETE", gang.path))
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    wait_for(f"{name}: all pods are gone", lambda: not api.get(pods)["items"], seconds=_GONE_SECONDS, every=0.5)


class Gang:
    """A run that trains on process nodes."""

    def __init__(self, world: World, path: str, uid: str, ranks: int) -> None:
        self.path = path
        self.ranks = ranks
        self._world = world
        self._uid = uid
        self._log = RecoveryLog(world.operator)

    @property
    def status(self) -> Json:
        found: Json = self._world.cluster.api.get(self.path).get("status", {})
        return found

    def restart_in_place(self, times: int, pause: float) -> Series:
        """Kill the training process of one rank after another, each ``pause`` seconds after all ran again."""
        attempt = int(self.status["attempt"])
        time.sleep(pause)
        before, found, programs = cost_so_far(self._world.operator), [], []
        for number in range(times):
            os.kill(self.processes()[number % self.ranks], signal.SIGKILL)
            attempt += 1
            found.append(self._log.wait(self._uid, attempt, _RECOVERY_SECONDS))
            time.sleep(pause)
            programs.append(max(map(_started_at, self.processes().values())) - found[-1].reported_at)
        cost = cost_so_far(self._world.operator).since(before)
        return Series(self.ranks, tuple(found), cost, tuple(programs))

    def replace_nodes(self, times: int, pause: float) -> Series:
        """Take the power from one node after another and its Node object with it; give both back later."""
        nodes, api = self._world.process_nodes, self._world.cluster.api
        before, found = cost_so_far(self._world.operator), []
        for number in range(times):
            status = self.status
            lost = status["assignment"]["nodes"][number % self.ranks]
            nodes.kill_node(lost)
            api.send(Request("DELETE", f"/api/v1/nodes/{lost}"))
            found.append(self._log.wait(self._uid, int(status["attempt"]) + 1, _RECOVERY_SECONDS))
            nodes.return_node(lost)
            wait_until_schedulable(self._world.cluster, [lost])
            self._wait_until_free(lost)
            time.sleep(pause)
        return Series(self.ranks, tuple(found), cost_so_far(self._world.operator).since(before))

    def _wait_until_free(self, node: str) -> None:
        selector = f"fieldSelector=spec.nodeName={node}"
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}"
        wait_for(f"{node} is free", lambda: not self._world.cluster.api.get(pods)["items"], seconds=_ENDED_SECONDS)

    def processes(self) -> dict[int, int]:
        """Pid on this machine of each rank's training process."""
        found: dict[int, int] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    environ = (folder / "environ").read_bytes()
                    if self._uid.encode() in environ:
                        entries = dict(entry.split(b"=", 1) for entry in environ.split(b"\0") if b"=" in entry)
                        if b"LOCKSTEP_NODE_RANK" in entries:
                            found[int(entries[b"LOCKSTEP_NODE_RANK"])] = int(folder.name)
        return found


def _started_at(pid: int) -> float:
    """Unix seconds, to a hundredth."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
