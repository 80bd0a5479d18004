"""`launcher: Ray` in containers without root: a pod that is deleted is replaced while the driver goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from containers.site import KindSite
from harness.training import NAMESPACE, TrainingRun
from lockstep.api.base import names

pytestmark = [pytest.mark.containers, pytest.mark.nightly]  # the image alone takes minutes
SECONDS = 300.0
EVERYBODY = [[rank, 65532] for rank in range(3)]
DRIVER = """
import json, os, time
from pathlib import Path
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

@ray.remote(num_cpus=0, max_retries=0)
def here():
    return int(os.environ["LOCKSTEP_NODE_RANK"]), os.getuid()

def everywhere():
    asked = [
        here.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in ray.nodes() if node["Alive"]
    ]
    for each in asked:
        try:
            yield ray.get(each, timeout=20)
        except ray.exceptions.RayError:
            pass  # its pod has ended

ray.init(log_to_driver=False)
folder = Path(os.environ["LOCKSTEP_CHECKPOINT_DIR"])
while not (folder / "go").exists():
    line = {"pid": os.getpid(), "heard": sorted(everywhere())}
    with open(folder / "said.jsonl", "a") as said:
        print(json.dumps(line), file=said)
    time.sleep(0.5)
print("done", flush=True)
"""


def said(run: TrainingRun) -> list[dict[str, Any]]:
    """What the driver has heard of its nodes each time that it asked them: their ranks and users. Never empty."""
    lines: list[dict[str, Any]] = [{"pid": 0, "heard": []}]
    with suppress(FileNotFoundError):
        for line in (run.folder / "a1" / "said.jsonl").read_text().splitlines():
            with suppress(ValueError):  # it is being written
                lines.append(json.loads(line))
    return lines


def test_a_pod_that_is_deleted_is_replaced_and_joins_while_the_driver_goes_on(
    site: KindSite, launcher_image: Callable[[str], str]
) -> None:
    security = {"runAsNonRoot": True, "allowPrivilegeEscalation": False}
    run = site.apply(
        "ray", 3, ["python3", "-c", DRIVER], image=launcher_image("ray"),
        resourcesPerNode={"cpu": "1", "memory": "3Gi"},
        launcher={"type": "Ray", "ray": {"arguments": ["--num-cpus=1", "--object-store-memory=80000000"]}},
        env=[{"name": "RAY_enable_worker_prestart", "value": "0"}], recovery={"hangTimeout": "30m"},
        podTemplate={"spec": {"containers": [{"name": "trainer", "securityContext": security}]}},
    )  # fmt: skip
    run.wait("all have joined", lambda: said(run)[-1]["heard"] == EVERYBODY, SECONDS)
    before = run.pod_uids
    site.world.kubectl("delete", "pod", names.pod_name(run.name, run.uid, 2, 1), "-n", NAMESPACE, "--now")
    run.wait("another pod is there", lambda: len(run.pod_uids - before) == 1, SECONDS)
    run.wait("it is taken in", lambda: run.status["start"].get("joins") == 1, SECONDS)
    heard = len(said(run))
    run.wait("it has joined", lambda: EVERYBODY in [line["heard"] for line in said(run)[heard:]], SECONDS)
    (run.folder / "a1" / "go").touch()
    run.wait_until_succeeded(SECONDS)
    assert len({line["pid"] for line in said(run)[1:]}) == 1, "another driver"
    assert [attempt["number"] for attempt in run.attempts] == [1], run.summary()
    assert "done" in run.log(0)
