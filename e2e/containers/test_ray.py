"""`launcher: Ray` in containers without root, on the nodes' own network."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from containers.site import KindSite
from harness.training import NAMESPACE, TrainingRun
from lockstep.api.base import names

pytestmark = [pytest.mark.containers, pytest.mark.nightly]
SECONDS = 300.0
DRIVER = """
import os, time
import ray
ray.init(log_to_driver=False)

@ray.remote(num_cpus=0, max_retries=0)
def rank_here():
    return int(os.environ["LOCKSTEP_NODE_RANK"]), os.getuid()

def ranks():
    # None: not all that are alive have answered yet, or one that is lost is still held for alive.
    found = []
    for node in [node for node in ray.nodes() if node["Alive"]]:
        where = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        try:
            found.append(ray.get(rank_here.options(scheduling_strategy=where).remote(), timeout=60))
        except ray.exceptions.RayError:
            return None
    return sorted(found)

heard = []
while len(heard) < int(os.environ["TURNS"]):
    now = ranks()
    if now and now not in heard[-1:]:
        heard.append(now)
        print("ranks", now, "driver", os.getpid(), flush=True)
    time.sleep(0.2)
"""


def with_ray(site: KindSite, image: str, name: str, turns: int) -> TrainingRun:
    security = {"runAsNonRoot": True, "allowPrivilegeEscalation": False}
    quiet = {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0", "TURNS": str(turns)}
    return site.apply(
        name, 3, ["python3", "-c", DRIVER], image=image, checkpoint=None,
        launcher={"type": "Ray", "ray": {"arguments": ["--num-cpus=1", "--object-store-memory=80000000"]}},
        env=[{"name": key, "value": value} for key, value in quiet.items()],
        podTemplate={"spec": {"containers": [{"name": "trainer", "securityContext": security}]}},
    )  # fmt: skip


def test_the_driver_has_all_nodes(site: KindSite, launcher_image: Callable[[str], str]) -> None:
    run = with_ray(site, launcher_image("ray"), "ray-whole", turns=1)
    run.wait_until_succeeded(SECONDS)
    assert "ranks [(0, 65532), (1, 65532), (2, 65532)]" in run.log(0), run.summary()


def test_a_pod_that_is_deleted_is_replaced_while_the_driver_goes_on(
    site: KindSite, launcher_image: Callable[[str], str]
) -> None:
    run = with_ray(site, launcher_image("ray"), "ray-joined", turns=3)
    run.wait("it has started", lambda: run.status.get("start"), SECONDS)
    run.wait("all are there", lambda: "(2, 65532)]" in run.log(0), SECONDS)
    pod = names.pod_name(run.name, run.uid, 1, 1)
    run.world.kubectl("delete", "pod", "--namespace", NAMESPACE, pod, "--wait=false")
    run.wait_until_succeeded(SECONDS)
    said = re.findall(r"ranks (\[.*\]) driver (\d+)", run.log(0))
    whole, less = "[(0, 65532), (1, 65532), (2, 65532)]", "[(0, 65532), (2, 65532)]"
    assert [ranks for ranks, _ in said] == [whole, less, whole], said
    assert len({pid for _, pid in said}) == 1
    assert [attempt["number"] for attempt in run.attempts] == [1]
