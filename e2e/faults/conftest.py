"""One world for all of the menu, and a bundle of everything when a dish does not come out as it should."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.stage import HIGH, LOW, PATIENCE, QUEUE, Reference, apply
from harness.training import CLAIM, NAMESPACE, NODES, SETTINGS, TrainingRun, TrainingSite, make_claim, training_world
from harness.waiting import wait_for
from harness.world import World
from localcluster import build
from localcluster.api import MERGE_PATCH, Request
from localcluster.errors import KubectlError, LocalClusterError
from lockstep.api.base import names
from lockstep.cli import runs
from lockstep.cli.views import history

SMALL_CLAIM, SMALL_BYTES = "small", 8 << 20
"""On a file system of its own, which can be filled."""
DEADLINES = {"ready": 60, "stop": 45}
FORGIVEN = (names.ANNOTATION_FIRST_FAILURES, names.ANNOTATION_SUSPECT)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "covering: in the short menu: every fault and every phase at least once")


@pytest.fixture(scope="session")
def training_site() -> Iterator[TrainingSite]:
    with training_world(SETTINGS | {"deadlines": DEADLINES}) as world, contextlib.ExitStack() as stack:
        make_queue(world)
        make_claim(world, SMALL_CLAIM)
        folder = world.claim_folder(NAMESPACE, SMALL_CLAIM)
        wait_for("the claim has its folder", folder.is_dir, seconds=PATIENCE)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "small", folder], check=True)
        stack.callback(lambda: subprocess.run(["umount", "--lazy", folder], check=True))
        yield TrainingSite(world)


def make_queue(world: World) -> None:
    """Where preemption is allowed, and two classes."""
    rules = {"preemption": {"withinQueue": "LowerPriority", "minRuntime": "0s"}}
    path = f"/apis/{names.API_VERSION}/{names.QUEUES}"
    body: dict[str, Any] = {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingQueue",
        "metadata": {"name": QUEUE},
        "spec": rules,
    }
    world.cluster.api.send(Request("POST", path, body))
    for name, value in ((LOW, 10), (HIGH, 1000)):
        group = "scheduling.k8s.io/v1"
        body = {"apiVersion": group, "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        world.cluster.api.send(Request("POST", f"/apis/{group}/priorityclasses", body))


@pytest.fixture(scope="session")
def reference(training_site: TrainingSite) -> Reference:
    """By rank what a run learnt to which nothing happened. All others learn the same, bit for bit."""
    run = apply(training_site, "undisturbed", CLAIM)
    run.wait_until_succeeded(PATIENCE)
    assert [entry["number"] for entry in run.attempts] == [1]
    return [run.lineage(1, rank) for rank in range(run.ranks)]


@pytest.fixture
def site(training_site: TrainingSite, reference: Reference, request: pytest.FixtureRequest) -> Iterator[TrainingSite]:
    """All nodes in order, free, and forgiven what was done to them."""
    training_site.put_in_order()
    for shape in NODES:
        forgiven = {"metadata": {"annotations": dict.fromkeys(FORGIVEN)}}
        training_site.world.cluster.api.send(Request("PATCH", f"/api/v1/nodes/{shape.name}", forgiven, MERGE_PATCH))
    yield training_site
    if request.node.stash.get(FAILED, False):
        for run in training_site.runs:
            keep_bundle(run)
    training_site.put_in_order()


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


def keep_bundle(run: TrainingRun) -> None:
    """Print what is needed to understand a failure, and keep all there is in .build/faults/<run>."""
    folder = build.build_dir() / "faults" / f"{run.name}-{run.uid[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(LocalClusterError):
        api = run.world.cluster.api
        raw = api.get(run.path)
        lines = history.listing(runs.view(raw).status, True, time.time())
        events = api.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
        mine = [event for event in events if event["regarding"].get("uid") == run.uid]
        told = [f"{event['eventTime']} {event['type']} {event['reason']}: {event['note']}" for event in mine]
        print("\n".join([*lines, "", *sorted(told), "", "--- operator", run.world.operator.log_tail(30)]))
        _write(folder / "run.json", raw)
        _write(folder / "events.json", mine)
        _write(folder / "pods.json", run.pods)
        _write(folder / "nodes.json", api.get("/api/v1/nodes")["items"])
        for pod in run.pods:
            with contextlib.suppress(KubectlError):
                name = pod["metadata"]["name"]
                (folder / f"{name}.log").write_text(run.world.kubectl("logs", "-n", NAMESPACE, name))
    (folder / "operator.log").write_text(run.world.operator.log_tail(20_000))
    files = sorted(str(path.relative_to(run.folder)) for path in run.folder.rglob("*"))
    (folder / "files.txt").write_text("\n".join(files))
    print(f"all of it is in {folder}")


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1))
