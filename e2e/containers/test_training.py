"""Training in containers ends well, whatever ends its processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from containers.site import TORCH_NODES, KindSite, assert_blamed
from harness.training import CLAIM, NAMESPACE, TrainingRun
from kindcluster.cluster import GPUS
from localcluster.build import REPOSITORY
from lockstep.api.base import names
from lockstep.cli.main import main

pytestmark = pytest.mark.containers
SECURITY = REPOSITORY / "docs" / "security.md"
SECONDS = 240.0
STEPS = 300
"""Half a minute of the first attempt: what a test does meanwhile may take its time on a busy machine."""
SELDOM = "--save-every=100"
"""A save of three ranks may take seconds on a slow disk."""


def test_a_gang_trains_on_the_nodes_network_and_succeeds(site: KindSite) -> None:
    small = {"cpu": "300m", "memory": "512Mi"}
    run = site.train("plain", 3, STEPS // 2, SELDOM, gpusPerNode=GPUS, resourcesPerNode=small)
    run.wait("has nodes", lambda: run.status.get("assignment"), SECONDS)
    waits = site.train("waits", 1, 30, gpusPerNode=GPUS, resourcesPerNode=small)
    waits.wait("is told what lacks", lambda: waits.status.get("queue", {}).get("message"), SECONDS)
    assert not waits.pods
    run.wait_until_step(1, 2, SECONDS)
    pods = run.pods
    assert {pod["spec"]["nodeName"] for pod in pods} == set(run.nodes)
    assert all(pod["spec"]["hostNetwork"] and pod["status"]["hostIP"] == pod["status"]["podIP"] for pod in pods)
    assert all(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == str(GPUS) for pod in pods)
    run.wait_until_succeeded(SECONDS)
    run.assert_undisturbed(STEPS // 2)
    waits.wait_until_succeeded(SECONDS)


@pytest.mark.nightly
def test_a_gang_follows_another_onto_the_same_nodes_and_their_port(site: KindSite) -> None:
    first = site.train("first", 3, STEPS, SELDOM)
    first.wait("has nodes", lambda: first.status.get("assignment"), SECONDS)
    second = site.train("second", 3, 30)
    first.wait_until_step(1, 2, SECONDS)
    assert not second.pods
    for run, steps in ((first, STEPS), (second, 30)):
        run.wait_until_succeeded(SECONDS)
        run.assert_undisturbed(steps)
        assert [entry["number"] for entry in run.attempts] == [1]
        ports = [port["hostPort"] for pod in run.pods for port in pod["spec"]["containers"][0]["ports"]]
        assert ports == [names.NODE_MUTEX_PORT] * 3
    assert sorted(first.nodes) == sorted(second.nodes) == site.kind.workers


def test_a_container_killed_by_its_runtime_comes_back_and_no_step_is_lost(site: KindSite) -> None:
    run = site.train("killed", 2, STEPS, "--later-delay=0.01")
    run.wait_until_saved(1, 20, SECONDS)
    node, before = run.nodes[1], run.pod_uids
    [victim] = [pod for pod in run.pods if pod["spec"]["nodeName"] == node]
    site.kill_container(node, victim)
    run.wait_until_succeeded(SECONDS)
    run.assert_undisturbed(STEPS)
    assert_blamed(run, node, "Unknown", "exit code 137")
    assert any("exit code 137" in note and node in note for note in run.events("PodLost"))
    assert run.pod_uids - before, "it was not put into a pod of its own again"


def test_a_killed_process_is_started_again_in_its_container(site: KindSite) -> None:
    run = site.train("process", 2, STEPS, "--notice-after=3", "--later-delay=0.01")
    run.wait_until_saved(1, 20, SECONDS)
    pods, node = run.pod_uids, run.nodes[1]
    [pid] = site.trainers(node)
    site.kill_inside(node, pid)
    run.wait_until_succeeded(SECONDS)
    run.assert_undisturbed(STEPS)
    assert run.pod_uids == pods
    assert_blamed(run, node, "Application", "signal 9")
    assert run.attempts[0]["action"] == "RestartInPlace"


@pytest.mark.nightly
def test_torchrun_resumes_with_gloo_where_it_was_saved(site: KindSite, torch_image: str) -> None:
    run = with_torch(site, torch_image, "torch")
    assert_a_killed_rank_resumes(site, run)
    assert {pod["status"]["podIP"] for pod in run.pods} == {pod["status"]["hostIP"] for pod in run.pods}


@pytest.mark.nightly
def test_so_it_does_on_the_pod_network_where_pods_are_restricted(site: KindSite, torch_image: str) -> None:
    with restricted(site) as spec:
        run = with_torch(site, torch_image, "restricted", **spec)
        assert_a_killed_rank_resumes(site, run)
        addresses = {pod["status"]["podIP"] for pod in run.pods}
        assert len(addresses) == 2
        assert addresses.isdisjoint(pod["status"]["hostIP"] for pod in run.pods)


def test_code_is_copied_to_a_claim_and_runs_from_there_where_pods_are_restricted(
    site: KindSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("import os; print('trained in', os.getcwd(), flush=True)")
    (tmp_path / "code" / "tokens.bin").write_bytes(os.urandom(2_500_000))
    to = ["-n", NAMESPACE, "--kubeconfig", str(site.kind.kubeconfig)]
    with restricted(site) as spec:
        spec |= {"nodes": 2, "gpusPerNode": 0, "image": site.image, "command": ["python3", "-B", "train.py"]}
        head = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": {"name": "carried"}}
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(head | {"spec": spec}))
        carried = ["--code", str(tmp_path / "code"), "--code-claim", CLAIM]
        with pytest.raises(SystemExit) as end:
            main(["submit", str(tmp_path / "run.yaml"), *carried, *to])
        assert not end.value.code, capsys.readouterr()
        path = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.RUNS}/carried"
        run = site.applied("carried", site.world.cluster.api.get(path)["metadata"]["uid"], 2, CLAIM)
        site.runs.append(run)
        run.wait_until_succeeded(SECONDS)
        assert all("trained in /code" in run.log(rank) for rank in range(2))
    [copy] = (site.world.claim_folder(NAMESPACE, CLAIM) / "lockstep-code").iterdir()
    assert sorted(file.name for file in copy.iterdir()) == ["tokens.bin", "train.py"]


@contextlib.contextmanager
def restricted(site: KindSite) -> Iterator[dict[str, Any]]:
    """The namespace admits no other pods; given is what docs/security.md says to write for such a one."""
    [shown] = re.findall(r"```yaml\n(spec:\n  network: Pod\n.*?)```", SECURITY.read_text(), re.DOTALL)
    label = ("label", "--overwrite", "namespace", NAMESPACE)
    site.world.kubectl(*label, f"{names.LABEL_POD_SECURITY}=restricted")
    try:
        yield yaml.safe_load(shown)["spec"]
    finally:
        site.world.kubectl(*label, f"{names.LABEL_POD_SECURITY}-")


def with_torch(site: KindSite, image: str, name: str, **spec: Any) -> TrainingRun:
    """A gang of two whose gradients are averaged by gloo."""
    return site.apply(
        name,
        2,
        ["python3", "/app/train_torch.py", f"--steps={STEPS}"],
        image=image,
        launcher={"type": "Torchrun", "torchrun": {"nprocPerNode": 1}},
        resourcesPerNode={"cpu": "500m", "memory": "2Gi"},
        placement={"excludeNodes": site.kind.workers[TORCH_NODES:]},  # has not got this image
        **spec,
    )


def assert_a_killed_rank_resumes(site: KindSite, run: TrainingRun) -> None:
    """Its gang does, from the newest save, and comes to the same end."""
    run.wait_until_saved(1, 20, SECONDS)
    node = run.nodes[1]
    [pid] = site.trainers(node)
    site.kill_inside(node, pid)
    run.wait_until_succeeded(SECONDS)
    assert "torch" in run.log(0)
    assert (run.attempts[0]["rank"], run.attempts[0]["node"]) == (1, node), run.summary()
    for rank in range(2):
        assert_resumed_exactly(run, rank)


def assert_resumed_exactly(run: TrainingRun, rank: int) -> None:
    """The second attempt goes on right after its save, and what it repeats comes out bit for bit alike."""
    first, second = run.lineage(1, rank), run.lineage(2, rank)
    resumed = int(run.attempts[1]["resumeStep"])
    assert resumed >= 20, json.dumps(run.attempts)
    assert [line["step"] for line in second] == list(range(resumed + 1, STEPS + 1))
    repeated = [line for line in first if line["step"] > resumed]
    assert second[: len(repeated)] == repeated
