"""What a launch and a recovery cost the API server, as docs/architecture.md has it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.launcher import workers_ca
from harness.waiting import wait_for
from harness.world import World, started
from localcluster.kwok import NodeBatch

pytestmark = pytest.mark.cluster
E2E = Path(__file__).resolve().parents[2] / "e2e"
STATUS, POD, TRY, CONFIG_MAP, DELETE = (
    ("trainingruns", "patch"),
    ("pods", "create"),
    ("pods", "try"),
    ("configmaps", "create"),
    ("pods", "delete"),
)
PROGRESS_SECONDS = 30
"""Progress is written at most once in as many."""


@dataclass
class Cost:
    """What the operator wrote, by resource and verb, while a block ran for ``seconds``."""

    writes: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: float = 0

    @property
    def statuses(self) -> int:
        """Status writes but those of progress, of which a machine that is slow sees more."""
        return self.writes[STATUS] - int(self.seconds // PROGRESS_SECONDS)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Twelve simulated nodes, an operator with nothing else to do, and workers that train for an hour."""
    with started(kwok=NodeBatch(count=12), settings={"checkGpus": False}) as world:
        ca_file = tmp_path_factory.mktemp("workers") / "ca.crt"
        ca_file.write_text(workers_ca(world.kubectl))
        options = [
            f"--kubeconfig={world.cluster.kubeconfig}",
            f"--operator-url={world.operator.url}",
            "--total-steps=36000",
        ]
        command = [sys.executable, "-m", "localcluster.simworkers", *options, f"--ca-file={ca_file}"]
        environment = os.environ | {"PYTHONPATH": str(E2E)}
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as workers:
            try:
                yield world
            finally:
                workers.terminate()


def writes(world: World) -> Counter[tuple[str, str]]:
    """What the operator has written so far, by resource and verb. A ConfigMap that was there already counts."""
    found: Counter[tuple[str, str]] = Counter()
    for labels, count in world.operator.metrics().get("lockstep_api_requests_total", {}).items():
        of = dict(labels)
        found[of["resource"], of["verb"]] += int(count)
    return found


@contextmanager
def counted(world: World) -> Iterator[Cost]:
    """Filled with what the block costs once it is over."""
    before, began = writes(world), time.monotonic()
    cost = Cost()
    yield cost
    cost.seconds = time.monotonic() - began
    cost.writes.update(writes(world) - before)


def apply(world: World, name: str, nodes: int) -> None:
    spec = {"nodes": nodes, "image": "trainer", "command": ["python", "train.py"]}
    run = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingRun", "metadata": {"name": name}, "spec": spec}
    world.kubectl("apply", "-f", "-", text=orjson.dumps(run).decode())


def status(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = world.kubectl.json("get", "trun", name).get("status", {})
    return found


def wait_for_start(world: World, name: str, attempt: int) -> None:
    wait_for(
        f"attempt {attempt} of {name} starts",
        lambda: (status(world, name).get("start") or {}).get("attempt") == attempt,
        seconds=180,
        last_seen=lambda: status(world, name),
    )


def test_a_launch_and_each_recovery_write_what_the_architecture_page_says(world: World) -> None:
    with counted(world) as launch:
        apply(world, "few", 4)
        wait_for_start(world, "few", 1)
    assert (launch.writes[POD], launch.writes[TRY]) == (4, 1), "one per node, and the dry run"
    assert launch.writes[CONFIG_MAP] <= 2
    assert launch.statuses <= 8

    with counted(world) as larger:
        apply(world, "more", 8)
        wait_for_start(world, "more", 1)
    assert (larger.writes[POD], larger.writes[TRY]) == (8, 1)
    assert larger.statuses <= 8, "status writes do not grow with the gang"

    with counted(world) as in_place:
        world.kubectl("annotate", "trun", "few", "lockstep.dev/restart-request=now")
        wait_for_start(world, "few", 2)
    assert in_place.writes[POD] == in_place.writes[DELETE] == 0
    assert in_place.statuses <= 4

    world.kubectl("delete", "trun", "more", "--wait=true")
    with counted(world) as replaced:
        lost = status(world, "few")["assignment"]["nodes"][3]
        world.kubectl("delete", "node", lost)
        wait_for_start(world, "few", 3)
    assert replaced.writes[POD] == 1
    assert replaced.statuses <= 6
    assert status(world, "few")["totals"]["nodesReplaced"] == 1
