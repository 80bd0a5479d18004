"""Batch scripts that start real launchers by srun: torchrun with the address of the first node, and Ray."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.test_anywhere import QUICK
from harness.training import TRAINER, TrainingRun, TrainingSite
from support.batch_scripts import BatchScript
from support.batch_site import BatchSite
from support.deepspeed import ENVIRONMENT, VENV
from support.ray import VENV as RAY

pytestmark = [pytest.mark.nodes, pytest.mark.nightly]
RANKS, STEPS = 3, 60
SECONDS = 400.0  # an attempt begins with all processes importing torch
TORCHRUN = """#!/bin/bash
set -e
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
echo Node IP: $head_node_ip
srun --kill-on-bad-exit=1 torchrun \\
    --nnodes $SLURM_NNODES \\
    --nproc_per_node 1 \\
    --rdzv_id $SLURM_JOB_ID \\
    --rdzv_backend c10d \\
    --rdzv_endpoint $head_node_ip:29500 \\
    PROGRAM
"""
PROGRAM = """
import os, runpy, sys
import torch.distributed as dist
dist.init_process_group("gloo")
met = [None] * dist.get_world_size()
dist.all_gather_object(met, int(os.environ["LOCKSTEP_NODE_RANK"]))
print("rank", dist.get_rank(), "met", sorted(met), flush=True)
assert sorted(met) == list(range(3))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Meets the other ranks by gloo, and goes on as the stub trainer."""
DRIVER = """
import os, time
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init(address=os.environ["ip_head"], log_to_driver=False, logging_level="ERROR")
for _ in range(600):
    alive = [node for node in ray.nodes() if node["Alive"]]
    if len(alive) == int(os.environ["SLURM_JOB_NUM_NODES"]):
        break
    time.sleep(0.1)

@ray.remote(num_cpus=0)
def place():
    return os.environ["LOCKSTEP_NODE_RANK"]

there = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in alive]
print("ranks", sorted(ray.get([place.options(scheduling_strategy=each).remote() for each in there])))
"""
CLUSTER = BatchScript(
    "ray.sh",
    """#!/bin/bash
#SBATCH --job-name=ray-cluster
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --output=ray.out
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
nodes_array=($nodes)
head_node=${nodes_array[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
port=6379
ip_head=$head_node_ip:$port
export ip_head
echo "Starting HEAD at $head_node"
srun --nodes=1 --ntasks=1 -w "$head_node" \\
    ray start --head --node-ip-address="$head_node_ip" --port=$port $RAY_OPTIONS --include-dashboard=false --block &
sleep 5
worker_num=$((SLURM_JOB_NUM_NODES - 1))
for ((i = 1; i <= worker_num; i++)); do
    node_i=${nodes_array[$i]}
    srun --nodes=1 --ntasks=1 -w "$node_i" ray start --address "$ip_head" $RAY_OPTIONS --block &
    sleep 1
done
python -u driver.py
""",
    files={"driver.py": DRIVER},
)


@pytest.fixture
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (VENV / "bin" / "torchrun").exists():
        pytest.skip(f"no torchrun in {VENV}: `make formats-ready`")
    folder = tmp_path_factory.mktemp("torchrun")
    folder.chmod(0o755)
    (folder / "train.py").write_text(PROGRAM)
    return folder / "train.py"


def train(site: TrainingSite, name: str, program: Path, *options: str) -> TrainingRun:
    command = f"{program} /app/{TRAINER.name} --steps={STEPS} --save-every=10 {' '.join(options)} {QUICK}"
    script = TORCHRUN.replace("PROGRAM", command)
    return site.apply(
        name, RANKS, [], launcher={"type": "Slurm", "batch": {"script": script, "output": "/dev/null"}},
        env=[{"name": key, "value": value} for key, value in ENVIRONMENT.items()],
    )  # fmt: skip


def child_of_torchrun(run: TrainingRun, rank: int) -> int:
    wanted = {f"LOCKSTEP_RUN_UID={run.uid}".encode(), f"LOCKSTEP_NODE_RANK={rank}".encode(), b"LOCAL_RANK=0"}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                found.append(int(folder.name))
    [pid] = found
    return pid


def test_torchrun_on_each_node_meets_at_the_address_of_the_first(site: TrainingSite, program: Path) -> None:
    run = train(site, "torchrun", program)
    run.wait_until_succeeded(SECONDS)
    assert all(f"rank {rank} met [0, 1, 2]" in run.log(0) for rank in range(RANKS))
    run.assert_undisturbed(STEPS)


def test_a_rank_below_torchrun_that_is_killed_is_the_cause_and_all_go_on_in_their_pods(
    site: TrainingSite, program: Path
) -> None:
    run = train(site, "torchrun-killed", program, "--hold-after=12")
    run.wait_until_saved(1, 10, SECONDS)
    pods = run.pod_uids
    os.kill(child_of_torchrun(run, 2), signal.SIGKILL)
    run.wait_until_succeeded(SECONDS)
    assert run.pod_uids == pods
    assert (run.attempts[0]["action"], run.attempts[0]["rank"]) == ("RestartInPlace", 2), run.attempts[0]
    run.assert_undisturbed(STEPS)


def test_a_script_with_torchrun_that_is_suspended_saves_first_and_resumes_there(
    site: TrainingSite, program: Path
) -> None:
    run = train(site, "torchrun-paused", program, "--listen", "--step-delay=0.3", "--save-every=50")
    run.wait_until_step(1, 12, SECONDS)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods)
    save = run.status["checkpoint"]["save"]
    assert (save["outcome"], save["step"]) == ("Saved", save["atStep"])
    run.change(suspend=False)
    run.wait_until_succeeded(SECONDS)
    assert run.status["start"]["resume"]["step"] == save["step"]
    run.assert_undisturbed(STEPS)


@pytest.fixture
def login(
    site: TrainingSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[BatchSite]:
    made = BatchSite(site, monkeypatch, capsys, "frameworks")
    yield made
    made.close()


@pytest.mark.skipif(not (RAY / "bin" / "ray").exists(), reason=f"no Ray in {RAY}: `make ray-ready`")
def test_a_cluster_of_ray_is_started_by_sruns_in_a_loop(login: BatchSite) -> None:
    variables = {
        "PATH": f"{RAY / 'bin'}:/usr/local/bin:/usr/bin:/bin", "OMP_NUM_THREADS": "1",
        "RAY_OPTIONS": "--num-cpus=1 --object-store-memory=80000000", "RAY_enable_worker_prestart": "0",
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled",  # whatever lies in the home directory
    }  # fmt: skip
    login.make_queue("ray", env=[{"name": name, "value": value} for name, value in variables.items()])
    job = login.submit(CLUSTER, "--partition=ray")
    job.run.wait_until_succeeded(SECONDS)
    assert "ranks ['0', '1', '2']" in job.lines("ray.out")
