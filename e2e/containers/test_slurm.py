"""`launcher: Slurm` in containers that have neither ssh nor root, and a root file system that nobody writes to."""

from __future__ import annotations

import pytest

from containers.launchers import secured
from containers.site import KindSite
from harness.training import NAMESPACE, TRAINER, TrainingRun
from localcluster.build import REPOSITORY

pytestmark = pytest.mark.containers
SECONDS, STEPS = 240.0, 200
SCRIPT = f"""#!/bin/sh
#SBATCH --job-name=batch
echo job $SLURM_JOB_NAME on $SLURM_JOB_NUM_NODES nodes, restart ${{SLURM_RESTART_COUNT:-0}}
srun --label sh -c 'echo task $SLURM_PROCID of $SLURM_NTASKS is user $(id -u)'
srun --kill-on-bad-exit=1 python3 -B /app/{TRAINER.name} --steps={STEPS} --later-delay=0.01
"""


def submitted(site: KindSite, name: str, **spec: str) -> TrainingRun:
    return site.apply(
        name, 3, [], launcher={"type": "Slurm", "batch": {"script": SCRIPT, "output": "/dev/stdout"}},
        podTemplate=secured(readOnlyRootFilesystem=True), **spec,
    )  # fmt: skip


def test_a_batch_script_starts_its_steps_on_all_nodes_and_again_after_a_rank_was_killed(site: KindSite) -> None:
    run = submitted(site, "batch")
    run.wait_until_saved(1, 20, SECONDS)
    pods, node = run.pod_uids, run.nodes[1]
    site.kill_inside(node, max(site.trainers(node)))
    run.wait_until_succeeded(SECONDS)
    run.assert_undisturbed(STEPS)
    assert run.pod_uids == pods
    assert (run.attempts[0]["rank"], run.attempts[0]["node"]) == (1, node), run.summary()
    log = run.log(0)
    wanted = {f"job batch on 3 nodes, restart {number}" for number in range(2)}
    wanted |= {f"{rank}: task {rank} of 3 is user 65532" for rank in range(3)}
    assert wanted <= set(log.splitlines()), log


@pytest.mark.nightly
def test_steps_reach_all_pods_of_the_pod_network_beside_the_sample_policies(site: KindSite) -> None:
    """Whatever the network plugin makes of them: `ptp`, of the nodes made here, enforces none."""
    policies = ("-n", NAMESPACE, "-f", str(REPOSITORY / "manifests" / "network-policy.yaml"))
    site.world.kubectl("apply", *policies)
    try:
        run = submitted(site, "policed", network="Pod")
        run.wait_until_succeeded(SECONDS)
    finally:
        site.world.kubectl("delete", *policies)
    run.assert_undisturbed(STEPS)
    assert {pod["status"]["podIP"] for pod in run.pods}.isdisjoint(pod["status"]["hostIP"] for pod in run.pods)
