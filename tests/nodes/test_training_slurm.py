"""`launcher: Slurm`: batch scripts in the shape of those that people have, submitted and run as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.test_anywhere import QUICK
from harness.training import CLAIM, TRAINER, TrainingRun, TrainingSite
from harness.waiting import wait_for
from support import batch_scripts as scripts
from support.batch_scripts import BatchScript
from support.batch_site import BatchSite
from support.mpi import MISSING, installations

pytestmark = pytest.mark.nodes

RANKS, STEPS = 4, 60
NODES = 3  # of scripts that say so themselves
MPIS = installations()
TORCHRUN = """#!/usr/bin/env python3
import argparse, os, runpy
parser = argparse.ArgumentParser()
for name in ("--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint"):
    parser.add_argument(name, required=True)
parser.add_argument("script")
asked = parser.parse_args()
assert (asked.nnodes, asked.rdzv_backend) == (os.environ["SLURM_NNODES"], "c10d")
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = asked.rdzv_endpoint.split(":")
print(asked.nproc_per_node, "processes, of GPUs", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
runpy.run_path(asked.script)
"""


@pytest.fixture
def login(
    site: TrainingSite,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> Iterator[BatchSite]:
    made = BatchSite(site, monkeypatch, capsys, str(request.node.name).partition("[")[0])
    yield made
    made.close()


def train(site: TrainingSite, name: str, *options: str) -> TrainingRun:
    """The stub trainer, one rank on each node, as a manifest says it, with checkpoints."""
    program = f"python3 -B /app/{TRAINER.name} --steps={STEPS} {' '.join(options)} {QUICK}"
    script = f"#!/bin/bash\nset -e\necho resume $LOCKSTEP_RESUME_STEP\nsrun --kill-on-bad-exit=1 {program}\n"
    launcher = {"type": "Slurm", "batch": {"script": script, "output": "/dev/null"}}
    return site.apply(name, RANKS, [], launcher=launcher)


def test_a_rank_that_is_killed_ends_the_attempt_and_all_go_on_from_a_checkpoint_in_their_pods(
    site: TrainingSite,
) -> None:
    run = train(site, "killed", "--save-every=10", "--hold-after=12")
    run.wait_until_saved(1, 10)
    pods = run.pod_uids
    run.kill_process(2)
    run.wait_until_succeeded()
    assert run.pod_uids == pods
    run.assert_undisturbed(STEPS)
    first = run.attempts[0]
    assert (first["action"], first["rank"]) == ("RestartInPlace", 2), first


def test_a_job_that_is_suspended_saves_first_and_resumes_there(site: TrainingSite) -> None:
    run = train(site, "paused", "--save-every=1000", "--listen", "--step-delay=0.2")
    run.wait_until_step(1, 12)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods)
    save = run.status["checkpoint"]["save"]
    assert (save["outcome"], save["step"]) == ("Saved", save["atStep"])
    run.change(suspend=False)
    run.wait_until_succeeded()
    assert run.status["start"]["resume"]["step"] == save["step"]
    run.assert_undisturbed(STEPS)


def sums(lines: list[str], world: int) -> None:
    """Every rank met all the others."""
    met = sorted(line.split(" on ")[0] for line in lines if line.startswith("rank "))
    assert met == sorted(f"rank {rank} of {world}" for rank in range(world)), lines
    total = world * (world - 1) // 2
    assert all(line.endswith(f"sum {total}") for line in lines if line.startswith("rank ")), lines


def test_a_launcher_of_each_node_meets_at_the_first_of_the_list(login: BatchSite) -> None:
    job = login.submit(scripts.MULTINODE).is_done()
    lines = job.lines(f"multinode-example-{job.number}.out")
    sums(lines, NODES)
    assert lines[0].startswith("Node IP: ")
    assert len({line.split(" on ")[1].split()[0] for line in lines if line.startswith("rank ")}) == NODES


def test_a_shell_of_each_task_has_its_rank_from_slurm(login: BatchSite) -> None:
    job = login.submit(scripts.ACCELERATE).is_done()
    lines = job.lines(f"sft-{job.number}.log")
    sums(lines, 2)
    assert {"0/2 llama", "1/2 llama"} <= set(lines)
    assert "START TIME" in job.output(f"sft-{job.number}.err")


def test_one_task_for_each_process_of_a_node(login: BatchSite) -> None:
    job = login.submit(scripts.MEGATRON).is_done()
    sums([line.partition(": ")[2] for line in job.lines(f"logs-{job.number}.txt")], 8)
    assert job.lines() == ["8 4 4(x2)"]


def test_a_check_of_the_nodes_comes_before_the_training(login: BatchSite) -> None:
    job = login.submit(scripts.PREFLIGHT).is_done()
    assert len(list((job.folder / "logs").glob("check-*.txt"))) == NODES
    assert job.output("logs/notes") == "no such file system\n"
    sums([line.partition(": ")[2] for line in job.lines("logs/training")], 6)


def test_steps_in_the_background_run_beside_each_other(login: BatchSite) -> None:
    job = login.submit(scripts.SWEEP).is_done()
    assert sorted(job.lines("steps")) == ["0", "1", "2"]
    assert len(job.lines("sweep.out")) == 1


def test_a_server_on_the_first_node_and_workers_that_find_it(login: BatchSite) -> None:
    """As clusters of Ray are made in scripts: sruns in a loop, and a driver at the end."""
    login.submit(scripts.RAY).is_done()


def test_an_array_of_limited_width_has_an_index_and_a_file_for_each(login: BatchSite) -> None:
    number = login.sbatch(scripts.ARRAY)
    for index, size in enumerate(("small", "medium", "large")):
        path = login.folder / f"array_{number}_{index}.out"
        wait_for_lines(path, [f"{size} {number} 3", f"task {index}"])


def test_a_container_of_the_first_step_is_the_jobs(login: BatchSite) -> None:
    login.submit(scripts.PYXIS).is_done()
    sums((login.folder / "out").read_text().splitlines(), 2)


def test_module_and_an_environment_that_is_sourced(login: BatchSite) -> None:
    job = login.submit(scripts.CONDA).is_done()
    assert sorted(job.lines("conda.out")) == ["0 training", "1 training"]
    assert job.output("conda.err").count("module") == 1, "said once"


def test_alike_components_are_one_gang(login: BatchSite) -> None:
    job = login.submit(scripts.HET).is_done()
    assert [line.split()[:2] for line in sorted(job.lines("het.out"))] == [["0", "0"], ["1", "1"]]


@pytest.mark.skipif(not MPIS, reason=MISSING)
@pytest.mark.parametrize("kind", MPIS, ids=[each.name for each in MPIS])
def test_mpirun_in_a_script_starts_its_ranks_by_srun(login: BatchSite, kind: object) -> None:
    mpi = next(each for each in MPIS if each is kind)
    program = "from mpi4py import MPI; w = MPI.COMM_WORLD; print('rank', w.rank, 'of', w.size, 'on x sum', w.allreduce(w.rank), flush=True)"  # noqa: E501
    exports = "".join(f"export {name}={value}\n" for name, value in mpi.env.items())
    job = login.submit(
        BatchScript(
            "mpi.sh",
            f"""#!/bin/bash
#SBATCH --nodes={RANKS}
#SBATCH --ntasks-per-node=2
#SBATCH --output=mpi.out
export PATH=$PATH:{":".join(map(str, mpi.path))}
{exports}{" ".join(mpi.mpirun)} -n {2 * RANKS} {mpi.python} -c "{program}"
""",
        ),
    ).is_done()
    sums(job.lines("mpi.out"), 2 * RANKS)


def test_the_code_of_the_script_alone_decides_and_a_failed_step_is_named(login: BatchSite) -> None:
    login.submit(scripts.LENIENT).is_done()
    job = login.submit(scripts.STRICT)
    job.run.wait_until_finished()
    assert not job.run.is_true("Succeeded")
    [attempt] = job.run.attempts
    assert (attempt["rank"], attempt["exitCode"], attempt["scriptExitCode"]) == (1, 7, 3), attempt
    assert "task 1: Exited with exit code 7" in job.output()


def test_a_killed_rank_of_srun_has_the_script_run_again_where_the_queue_has_a_claim_for_scripts(
    login: BatchSite,
) -> None:
    login.make_queue("recovering", scriptCheckpointClaim=CLAIM)
    job = login.submit(
        BatchScript(
            "killed.sh",
            """#!/bin/bash -e
#SBATCH -N3
#SBATCH --open-mode=append
echo "attempt ${SLURM_RESTART_COUNT:-0}"
srun --kill-on-bad-exit bash -c 'touch up.$SLURM_PROCID; [ ${SLURM_RESTART_COUNT:-0} != 0 ] || exec sleep 600'
""",
        ),
        "--partition=recovering",
    )
    job.run.wait("its tasks run", lambda: all((job.folder / f"up.{rank}").exists() for rank in range(3)))
    pods = job.run.pod_uids
    job.run.kill_process(2)
    job.is_done()
    assert job.run.pod_uids == pods
    assert (job.run.attempts[0]["action"], job.run.attempts[0]["rank"]) == ("RestartInPlace", 2)
    assert [line for line in job.lines() if line.startswith("attempt")] == ["attempt 0", "attempt 1"]


def test_a_node_that_is_lost_is_replaced_and_the_script_runs_again(login: BatchSite) -> None:
    job = login.submit(
        BatchScript(
            "again.sh",
            """#!/bin/bash
#SBATCH -N3
#SBATCH --open-mode=append
echo "attempt ${SLURM_RESTART_COUNT:-0}"
srun --kill-on-bad-exit bash -c 'touch up.$SLURM_PROCID; if [ ${SLURM_RESTART_COUNT:-0} = 0 ]; then sleep 600; fi'
""",
        ),
    )
    job.run.wait("its tasks run", lambda: all((job.folder / f"up.{rank}").exists() for rank in range(3)))
    lost, kept = job.run.nodes[2], job.run.pod_uids
    login.site.kill_node(lost)
    login.site.declare_not_ready(lost)
    job.is_done()
    assert lost not in job.run.nodes
    assert len(job.run.pod_uids - kept) == 1, "the others go on in their pods"
    assert [line for line in job.lines() if line.startswith("attempt")] == ["attempt 0", "attempt 1"]


@pytest.mark.nightly  # a minute, most of it its time limit
def test_a_trap_for_the_signal_before_the_time_limit_has_the_job_queued_again(login: BatchSite) -> None:
    job = login.submit(scripts.REQUEUE).is_done()
    said = [line for line in job.lines() if not line.startswith(("srun:", "slurmstepd:"))]
    assert said == ["attempt 0", "saving", "requeued", "attempt 1"]


def test_a_script_may_submit_the_next_one(login: BatchSite) -> None:
    job = login.submit(scripts.FIRST).is_done()
    login.job(int(job.output("first.out"))).is_done()
    assert job.output("second.out") == "second\n"


def test_the_script_of_the_page_runs_as_shown(login: BatchSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but torchrun, whose place a program takes that meets the others as it would."""
    for name in ("SBATCH_PARTITION", "SBATCH_GPUS_PER_NODE"):
        monkeypatch.delenv(name)
    path = [{"name": "PATH", "value": f"{login.inside}:/usr/local/bin:/usr/bin:/bin"}]
    login.make_queue("research", env=path)
    (login.folder / "logs").mkdir()
    (login.folder / "torchrun").write_text(TORCHRUN)
    (login.folder / "torchrun").chmod(0o755)
    page = (Path(__file__).parents[2] / "docs" / "slurm-scripts.md").read_text()
    [script] = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    job = login.submit(BatchScript("train.sbatch", script, files={"train.py": scripts.MEET})).is_done()
    lines = job.lines(f"logs/llama-{job.number}.out")
    sums(lines, 4)
    assert lines.count("8 processes, of GPUs 0,1,2,3,4,5,6,7") == 4
    assert job.run.status["resolved"]["gpusPerNode"] == 8


def test_an_operator_that_is_killed_is_missed_by_no_step(login: BatchSite) -> None:
    job = login.submit(
        BatchScript(
            "alone.sh",
            """#!/bin/bash
#SBATCH -N2
touch up
until [ -e go ]; do sleep 0.1; done
srun hostname > hosts
""",
        ),
    )
    job.run.wait("it runs", (job.folder / "up").exists)
    login.site.kill_operator()
    (job.folder / "go").touch()
    job.run.wait("its step has ended", lambda: len(job.lines("hosts")) == 2 if (job.folder / "hosts").exists() else 0)
    job.is_done()


def wait_for_lines(path: Path, lines: list[str]) -> None:
    wait_for(f"{path.name} is whole", lambda: path.exists() and path.read_text().splitlines() == lines, seconds=180)
