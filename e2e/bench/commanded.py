"""A gang of simulated workers, one of which fails again and again: how soon all are told to start anew."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.gang import CLAIM, manifest
from bench.launcher import workers_ca
from bench.recoveries import Recovery, RecoveryLog, cost_so_far
from harness.kube import ROOT
from harness.waiting import wait_for
from harness.world import World
from localcluster.api import Request
from lockstep.api.base import names

_LAUNCH_SECONDS = 300.0
_RECOVERY_SECONDS = 120.0
_STEP_SECONDS, _STEPS_PER_ATTEMPT = 1.0, 8
_QUIET_SECONDS = 5.0  # less than an attempt takes


@dataclass(frozen=True)
class Commanded:
    """What was seen of the recoveries of one simulated gang."""

    recoveries: tuple[Recovery, ...]
    offered: tuple[float, ...]  # seconds from each report of a failure until the last worker was told START
    writes: float  # to the API server, per recovery


def command(world: World, namespace: str, ranks: int, times: int) -> Commanded:
    """Launch the gang and let a rank of it fail that many times."""
    api, log = world.cluster.api, RecoveryLog(world.operator)
    body = manifest("commanded", ranks)
    del body["spec"]["volumes"]  # no program is run, and what a run names has to be there
    world.kubectl("apply", "-f", "-", text=json.dumps(_bound_claim(namespace)))
    with _workers(world, times) as workers:
        runs = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUNS}"
        made = api.send(Request("POST", runs, body))
        path, uid = f"{runs}/commanded", made["metadata"]["uid"]
        wait_for(
            f"all {ranks} simulated ranks were started",
            lambda: api.get(path).get("status", {}).get("start"),
            seconds=_LAUNCH_SECONDS,
            every=1.0,
            last_seen=lambda: f"{api.get(path).get('status', {}).get('conditions')}",
        )
        time.sleep(_QUIET_SECONDS)  # the launch is over, with all that is written after it
        before = cost_so_far(world.operator)
        found = [log.wait(uid, 2 + number, _RECOVERY_SECONDS) for number in range(times)]
        time.sleep(_QUIET_SECONDS)
        cost = cost_so_far(world.operator).since(before)
        workers.send_signal(signal.SIGTERM)
        output, _ = workers.communicate(timeout=60)
    attempts = json.loads(output.splitlines()[-1])["runs"][uid]["attempts"]
    for one in found:
        if attempts[str(one.attempt)]["released"] != ranks:
            raise RuntimeError(f"attempt {one.attempt} was offered to {attempts[str(one.attempt)]['released']} ranks")
    offered = tuple(attempts[str(one.attempt)]["lastAt"] - one.reported_at for one in found)
    return Commanded(tuple(found), offered, sum(cost.writes.values()) / times)


def _bound_claim(namespace: str) -> dict[str, Any]:
    """A claim and the volume it is bound to: nobody provisions any here."""
    size, modes = {"storage": "1Gi"}, ["ReadWriteMany"]
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": CLAIM}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": CLAIM},
        "spec": {
            "capacity": size,
            "accessModes": modes,
            "storageClassName": "",
            "hostPath": {"path": "/nowhere"},
            "claimRef": reference,
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": namespace},
        "spec": {"accessModes": modes, "storageClassName": "", "volumeName": CLAIM, "resources": {"requests": size}},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [volume, claim]}


@contextlib.contextmanager
def _workers(world: World, times: int) -> Iterator[subprocess.Popen[Any]]:
    ca_file = world.folder / "workers-ca.crt"
    ca_file.write_text(workers_ca(world.kubectl))
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "localcluster.simworkers",
            f"--kubeconfig={world.cluster.kubeconfig}",
            f"--operator-url={world.operator.url}",
            f"--ca-file={ca_file}",
            f"--step-seconds={_STEP_SECONDS}",
            "--total-steps=100000",
            "--exit-rank=0",
            f"--at-step={_STEPS_PER_ATTEMPT}",
            f"--exit-times={times}",
            "--saves",
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT / "e2e")},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it says that it follows the cluster
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
