"""`launcher: DeepSpeed` in containers without ssh and root: the command as typed, and a rank that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from containers.site import TORCH_NODES, KindSite
from harness.deepspeed_program import ON_CPUS, PAGE, write_program
from harness.shown_commands import block_on
from harness.training import CLAIM, NAMESPACE

pytestmark = [pytest.mark.containers, pytest.mark.nightly]  # the image alone takes minutes
SECONDS, STEPS = 400.0, 40


def test_the_command_as_typed_trains_and_all_resume_when_a_rank_was_killed(
    site: KindSite, deepspeed_image: str, tmp_path: Path
) -> None:
    write_program(tmp_path)
    configmap = ("configmap", "deepspeed", "-n", NAMESPACE)
    site.world.kubectl("delete", *configmap, "--ignore-not-found")
    site.world.kubectl("create", *configmap, f"--from-file={tmp_path}")
    spec = yaml.safe_load(block_on(PAGE, "yaml", "name: with-deepspeed-launcher"))["spec"]
    words = [f"/app/{word}" if word in ("train.py", "ds.json") else word for word in spec["command"]]
    environment = {**ON_CPUS, "STEP_SECONDS": "0.3", "USER": "train"}  # PyTorch asks, and no file says who 65532 is
    run = site.apply(
        "deepspeed", TORCH_NODES, words, image=deepspeed_image, launcher=spec["launcher"],
        checkpoint=spec["checkpoint"] | {"shared": {"claimName": CLAIM}},
        resourcesPerNode={"cpu": "500m", "memory": "3Gi"},
        placement={"excludeNodes": site.kind.workers[TORCH_NODES:]},  # have not got this image
        volumes=[{"name": "app", "mountPath": "/app", "readOnly": True, "configMap": {"name": "deepspeed"}}],
        env=[{"name": key, "value": value} for key, value in environment.items()],
    )  # fmt: skip
    run.wait("it saves", (run.folder / "a1" / "latest").exists, SECONDS)
    pods, node = run.pod_uids, run.nodes[1]
    run.kill_process(1)
    run.wait_until_succeeded(SECONDS)
    assert run.pod_uids == pods
    assert (run.attempts[0]["rank"], run.attempts[0]["node"]) == (1, node), run.summary()
    assert run.status["start"]["resume"]["step"] >= 10
    last = [[line["step"] for line in run.lineage(2, rank)][-1] for rank in range(TORCH_NODES)]
    assert last == [STEPS] * TORCH_NODES
    assert run.status["checkpoint"]["latest"][0]["step"] == STEPS
