"""A gang of hundreds of simulated nodes, launched by the real operator through a real control plane.

The nodes are KWOK's. One process speaks the worker protocol for all pods, with a token of each pod's own, and pretends
to train; the operator cannot tell. What is measured includes it: everything shares this machine's cores.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from demo.narration import told
from harness.kube import create_namespace
from harness.simulated_workers import simulated_workers
from harness.waiting import WaitedInVain
from harness.world import World, started
from localcluster.control_plane import settings
from localcluster.errors import LocalClusterError
from localcluster.kwok import NodeBatch
from lockstep.api.run_status import TrainingRunStatus
from lockstep.cli import runs
from lockstep.cli.actions import wait
from lockstep.cli.client import connect
from lockstep.cli.errors import CliError
from lockstep.core.model.conditions import is_true
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView

NAMESPACE = "lockstep-demo"
NAME = "at-scale"
NODES_PER_RACK = 16
TOTAL_STEPS, STEP_SECONDS = 40, 0.25
FINISH_SECONDS = 1_800.0
LARGE = 2_048
"""Nodes beyond which the leases of simulated nodes alone would be all that two cores can do."""
Json = dict[str, Any]


def main() -> int:
    """Exit code 0 when every rank was started once, nothing was replaced, the lease was held and the run succeeded."""
    parser = argparse.ArgumentParser(
        prog="python -m demo.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=512, help="of the gang and of the cluster (default: 512)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped then as well
    begun = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - begun:5.1f} s] {line}", flush=True)

    nodes = NodeBatch(count=options.nodes, racks=-(-options.nodes // NODES_PER_RACK))
    try:
        large = options.nodes > LARGE
        with started(kwok=nodes, settings={"progressWriteInterval": 2}, large=large, report=say) as world:
            wrong = play(world, options.nodes, say)
    except (LocalClusterError, WaitedInVain, CliError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for sentence in wrong:
        say(f"NOT AS PROMISED: {sentence}")
    return 1 if wrong else 0


def play(world: World, count: int, say: Callable[[str], None]) -> list[str]:
    """Launch one gang and see it to its end; what was not as promised."""
    racks = {
        node["metadata"]["name"]: node["metadata"]["labels"]["topology.kubernetes.io/rack"]
        for node in world.cluster.kwok_nodes()
    }
    create_namespace(world.kubectl, NAMESPACE)
    cluster = connect(NAMESPACE, None, str(world.kubectl.kubeconfig))
    before = TrainingRunStatus()

    def see(run: RunView) -> None:
        nonlocal before
        whole = runs.whole(cluster, run)
        for line in told(before, whole.status, racks):
            say(line)
        before = whole.status

    training = [f"--total-steps={TOTAL_STEPS}", f"--step-seconds={STEP_SECONDS}"]
    held = world.lease()
    with simulated_workers(world, "--once", *training) as workers:
        say(f"kubectl apply: a TrainingRun of {count} nodes")
        applied = time.time()
        world.kubectl("apply", "-n", NAMESPACE, "-f", "-", text=json.dumps(manifest(count)))
        run = wait.until(cluster, runs.fetch(cluster, NAME), "finished", FINISH_SECONDS, see)
        output, _ = workers.communicate(timeout=60)
    say("kubectl get trun -o wide")
    print(world.kubectl("get", "trun", "-n", NAMESPACE, "-o", "wide"), flush=True)
    stats: Json = json.loads(output.splitlines()[-1])["runs"][run.uid]
    _tell_times(stats, applied, say)
    for setting in settings(world.cluster.layout):
        say(f"setting: {setting}")
    return broken_promises(run, stats, count, held.lost_until(world.lease()))


def manifest(count: int) -> Json:
    """Nothing but what a gang has to have."""
    return {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": NAME},
        "spec": {"nodes": count, "image": "train", "command": ["torchrun", "train.py"]},
    }


def _tell_times(stats: Json, applied: float, say: Callable[[str], None]) -> None:
    first = stats["attempts"]["1"]
    say("seconds after the apply:")
    say(f"    {stats['firstRegisteredAt'] - applied:6.2f}  the first pod runs and its worker has registered")
    say(f"    {stats['lastRegisteredAt'] - applied:6.2f}  the last one")
    say(f"    {first['firstAt'] - applied:6.2f}  the first rank is released with START")
    say(f"    {first['lastAt'] - applied:6.2f}  the last one")


def broken_promises(run: RunView, stats: Json, count: int, leases_lost: int) -> list[str]:
    """What was not as it is to be, in sentences."""
    wrong, totals = [], run.status.totals
    if not is_true(run.status, ConditionType.SUCCEEDED):
        wrong.append(f"the run ended as {run.status.state} ({run.status.reason}), not Succeeded")
    if run.status.attempt != 1:
        wrong.append(f"it took {run.status.attempt} attempts, not 1")
    released = stats["attempts"]["1"]["released"]
    if released != count:
        wrong.append(f"{released} ranks were released, not {count}")
    if totals.nodes_replaced or totals.pods_replaced:
        wrong.append(f"{totals.nodes_replaced} nodes and {totals.pods_replaced} pods were replaced, not none")
    if run.status.recovery.requeues:
        wrong.append(f"it gave its nodes back {run.status.recovery.requeues} times")
    if leases_lost:
        wrong.append(f"the operator lost its lease {leases_lost} times")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
