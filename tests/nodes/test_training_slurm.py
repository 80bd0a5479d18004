"""`launcher: Slurm`: batch scripts in the shape of those that people have, submitted and run as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.test_anywhere import QUICK
from harness.training import CLAIM, TRAINER, TrainingRun, TrainingSite
from harness.waiting import wait_for
from support.batch_site import BatchSite, Job
from support.mpi import MISSING, installations

pytestmark = pytest.mark.nodes

NODES, STEPS = 3, 60
MPIS = installations()


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
    return site.apply(name, NODES, [], launcher=launcher)


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
    job = login.submit(
        "multinode.sbatch",
        """#!/bin/bash
#SBATCH --job-name=multinode-example
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --output=%x-%j.out
#SBATCH --exclusive

set -e
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
nodes_array=($nodes)
head_node=${nodes_array[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" printenv SLURMD_NODENAME)
echo Node IP: $head_node_ip
export MASTER_ADDR=$head_node_ip
export MASTER_PORT=29500
srun python3 meet.py
""",
    ).is_done()
    lines = job.lines(f"multinode-example-{job.number}.out")
    sums(lines, NODES)
    assert lines[0].startswith("Node IP: ")
    assert len({line.split(" on ")[1].split()[0] for line in lines if line.startswith("rank ")}) == NODES


def test_a_shell_of_each_task_has_its_rank_from_slurm(login: BatchSite) -> None:
    job = login.submit(
        "accelerate.slurm",
        r"""#!/bin/bash
#SBATCH --job-name=sft
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1          # crucial - only 1 task per dist per node!
#SBATCH --output=%x-%j.log
#SBATCH --err=%x-%j.err

set -x -e
echo "START TIME: $(date)" >&2
MODEL=$1
shift
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export MASTER_PORT=6000
export LAUNCHER="python3"
export CMD="meet.py"
SRUN_ARGS=" \
    --wait=60 \
    --kill-on-bad-exit=1 \
    "
clear 2>/dev/null || true
srun $SRUN_ARGS --jobid $SLURM_JOB_ID bash -c "echo \$SLURM_PROCID/$SLURM_NNODES $MODEL; $LAUNCHER $CMD" 2>&1
""",
        arguments=["llama", "more"],
    ).is_done()
    lines = job.lines(f"sft-{job.number}.log")
    sums(lines, 2)
    assert {"0/2 llama", "1/2 llama"} <= set(lines)
    assert "START TIME" in job.output(f"sft-{job.number}.err")


def test_one_task_for_each_process_of_a_node(login: BatchSite) -> None:
    job = login.submit(
        "megatron.sh",
        """#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=4
#SBATCH -J megatron
#SBATCH --mem=0 -t 1:00:00
export MASTER_ADDR=$(scontrol show hostname "$SLURM_NODELIST" | head -n1)
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
export CUDA_DEVICE_MAX_CONNECTIONS=1
srun -l --output=logs-%j.txt --unbuffered sh -c 'test $SLURM_LOCALID = $((SLURM_PROCID % 4)) && exec python3 meet.py'
echo $SLURM_NTASKS $SLURM_NTASKS_PER_NODE $SLURM_TASKS_PER_NODE
""",
    ).is_done()
    sums([line.partition(": ")[2] for line in job.lines(f"logs-{job.number}.txt")], 8)
    assert job.lines() == ["8 4 4(x2)"]


def test_a_check_of_the_nodes_comes_before_the_training(login: BatchSite) -> None:
    job = login.submit(
        "preflight.sh",
        """#!/bin/bash
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=2
set -eo pipefail
mkdir -p logs
srun --ntasks-per-node=1 --ntasks=$SLURM_NNODES --output=logs/check-%N.txt hostname
if ! srun -N1 -n1 -w $SLURMD_NODENAME test -d /nowhere; then
    echo "no such file system" | tee -a logs/notes
fi
export MASTER_ADDR=$SLURMD_NODENAME MASTER_PORT=29501
srun --label python3 meet.py 2>&1 | tee logs/training
""",
    ).is_done()
    assert len(list((job.folder / "logs").glob("check-*.txt"))) == NODES
    assert job.output("logs/notes") == "no such file system\n"
    sums([line.partition(": ")[2] for line in job.lines("logs/training")], 6)


def test_steps_in_the_background_run_beside_each_other(login: BatchSite) -> None:
    others = "[ -e here.0 -a -e here.1 -a -e here.2 ]"
    (login.folder / "beside.sh").write_text(
        f"touch here.$1; until {others}; do sleep 0.1; done; echo $SLURM_STEP_ID > step.$1\n"
    )
    job = login.submit(
        "sweep.sh",
        """#!/bin/bash
#SBATCH --nodes=3
#SBATCH --output=sweep.out
for i in 0 1 2; do
    node=$(scontrol show hostnames | sed -n "$((i + 1))p")
    srun --nodes=1 --ntasks=1 --exact -w $node bash beside.sh $i &
    pids[$i]=$!
done
for pid in ${pids[*]}; do wait $pid || exit 1; done
squeue -j $SLURM_JOB_ID -h -o %N
""",
    ).is_done()
    assert sorted(job.output(f"step.{index}").strip() for index in range(3)) == ["0", "1", "2"]
    assert len(job.lines("sweep.out")) == 1


def test_a_server_on_the_first_node_and_workers_that_find_it(login: BatchSite) -> None:
    """As clusters of Ray are made in scripts: sruns in a loop, and a driver at the end."""
    (login.folder / "cluster.py").write_text(CLUSTER)
    login.submit(
        "ray.sh",
        """#!/bin/bash
#SBATCH --job-name=ray-cluster
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
nodes_array=($nodes)
head_node=${nodes_array[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" printenv SLURM_TOPOLOGY_ADDR)
port=6379
ip_head=$head_node_ip:$port
export ip_head
echo "Starting HEAD at $head_node"
srun --nodes=1 --ntasks=1 -w "$head_node" python3 cluster.py head $port &
sleep 1
worker_num=$((SLURM_JOB_NUM_NODES - 1))
for ((i = 1; i <= worker_num; i++)); do
    node_i=${nodes_array[$i]}
    srun --nodes=1 --ntasks=1 -w "$node_i" python3 cluster.py worker "$ip_head" &
done
python3 cluster.py driver "$ip_head" 2
""",
    ).is_done()


def test_an_array_of_limited_width_has_an_index_and_a_file_for_each(login: BatchSite) -> None:
    number = login.sbatch(
        "array.sh",
        """#!/bin/bash
#SBATCH --array=0-2%2
#SBATCH -N1
#SBATCH --output=array_%A_%a.out
configs=(small medium large)
echo ${configs[$SLURM_ARRAY_TASK_ID]} $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_COUNT
srun bash -c 'echo task $SLURM_ARRAY_TASK_ID'
""",
    )
    for index, size in enumerate(("small", "medium", "large")):
        path = login.folder / f"array_{number}_{index}.out"
        wait_for_lines(path, [f"{size} {number} 3", f"task {index}"])


def test_a_container_of_the_first_step_is_the_jobs(login: BatchSite) -> None:
    login.submit(
        "pyxis.sh",
        """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
export MASTER_ADDR=$(scontrol show hostnames | head -1) MASTER_PORT=29502
srun --container-image=none --container-workdir=$PWD --no-container-mount-home --mpi=pmix python3 meet.py > out
""",
    ).is_done()
    sums((login.folder / "out").read_text().splitlines(), 2)


def test_module_and_an_environment_that_is_sourced(login: BatchSite) -> None:
    (login.folder / "activate").write_text("export ENVIRONMENT_NAME=$1; module() { command module $@; }\n")
    job = login.submit(
        "conda.sh",
        """#!/bin/bash -e
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --output=conda.out --error=conda.err
module purge
module load cuda/12.4 nccl
source ./activate training
srun bash -c 'echo $SLURM_PROCID $ENVIRONMENT_NAME'
""",
    ).is_done()
    assert sorted(job.lines("conda.out")) == ["0 training", "1 training"]
    assert job.output("conda.err").count("module") == 1, "said once"


def test_alike_components_are_one_gang(login: BatchSite) -> None:
    job = login.submit(
        "het.sh",
        """#!/bin/bash
#SBATCH --job-name=roles --nodes=1 --ntasks=1
#SBATCH --output=het.out
#SBATCH hetjob
#SBATCH --nodes=1 --ntasks=1
export HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST_HET_GROUP_0)
srun --wait=60 --kill-on-bad-exit=1 --export=ALL,ROLE=0 bash -c 'echo $SLURM_PROCID $ROLE $HEAD' : \\
     --export=ALL,ROLE=1 bash -c 'echo $SLURM_PROCID $ROLE $HEAD'
""",
    ).is_done()
    assert [line.split()[:2] for line in sorted(job.lines("het.out"))] == [["0", "0"], ["1", "1"]]


@pytest.mark.skipif(not MPIS, reason=MISSING)
@pytest.mark.parametrize("kind", MPIS, ids=[each.name for each in MPIS])
def test_mpirun_in_a_script_starts_its_ranks_by_srun(login: BatchSite, kind: object) -> None:
    mpi = next(each for each in MPIS if each is kind)
    program = "from mpi4py import MPI; w = MPI.COMM_WORLD; print('rank', w.rank, 'of', w.size, 'on x sum', w.allreduce(w.rank), flush=True)"  # noqa: E501
    exports = "".join(f"export {name}={value}\n" for name, value in mpi.env.items())
    job = login.submit(
        "mpi.sh",
        f"""#!/bin/bash
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=2
#SBATCH --output=mpi.out
export PATH=$PATH:{":".join(map(str, mpi.path))}
{exports}{" ".join(mpi.mpirun)} -n 6 {mpi.python} -c "{program}"
""",
    ).is_done()
    sums(job.lines("mpi.out"), 6)


def test_the_code_of_the_script_alone_decides_and_a_failed_step_is_named(login: BatchSite) -> None:
    login.submit("lenient.sh", "#!/bin/bash\n#SBATCH -N2\nsrun false\nsrun true\n").is_done()
    job = login.submit(
        "strict.sh",
        """#!/bin/bash
#SBATCH -N2
srun bash -c '[ $SLURM_PROCID = 0 ] || { echo "the disk is full" >&2; exit 7; }' || exit 3
""",
    )
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
        "killed.sh",
        """#!/bin/bash -e
#SBATCH -N3
#SBATCH --open-mode=append
echo "attempt ${SLURM_RESTART_COUNT:-0}"
srun --kill-on-bad-exit bash -c 'touch up.$SLURM_PROCID; [ ${SLURM_RESTART_COUNT:-0} != 0 ] || exec sleep 600'
""",
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
        "again.sh",
        """#!/bin/bash
#SBATCH -N3
#SBATCH --open-mode=append
echo "attempt ${SLURM_RESTART_COUNT:-0}"
srun --kill-on-bad-exit bash -c 'touch up.$SLURM_PROCID; if [ ${SLURM_RESTART_COUNT:-0} = 0 ]; then sleep 600; fi'
""",
    )
    job.run.wait("its tasks run", lambda: all((job.folder / f"up.{rank}").exists() for rank in range(3)))
    lost, kept = job.run.nodes[2], job.run.pod_uids
    login.site.kill_node(lost)
    login.site.declare_not_ready(lost)
    job.is_done()
    assert lost not in job.run.nodes
    assert len(job.run.pod_uids - kept) == 1, "the others go on in their pods"
    assert [line for line in job.lines() if line.startswith("attempt")] == ["attempt 0", "attempt 1"]


def test_a_trap_for_the_signal_before_the_time_limit_has_the_job_queued_again(login: BatchSite) -> None:
    job = login.submit(
        "requeue.sh",
        """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --time=00:01:00
#SBATCH --signal=B:USR1@40
#SBATCH --requeue
#SBATCH --open-mode=append
echo "attempt ${SLURM_RESTART_COUNT:-0}"
[ ${SLURM_RESTART_COUNT:-0} = 0 ] || exit 0
trap 'echo "saving"; scontrol requeue $SLURM_JOB_ID && echo "requeued"' USR1
srun bash -c 'trap "echo a step was told" USR1; while :; do sleep 0.2; done' &
wait
wait
""",
    ).is_done()
    said = [line for line in job.lines() if not line.startswith(("srun:", "slurmstepd:"))]
    assert said == ["attempt 0", "saving", "requeued", "attempt 1"]


def test_a_script_may_submit_the_next_one(login: BatchSite) -> None:
    (login.folder / "second.sh").write_text("#!/bin/bash\n#SBATCH -N1\necho second > second.out\n")
    job = login.submit(
        "first.sh",
        """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --output=first.out
jid=$(sbatch --parsable --dependency=afterok:$SLURM_JOB_ID second.sh) || exit 1
echo $jid
""",
    ).is_done()
    Job(login.site, int(job.output("first.out")), login.folder).is_done()
    assert job.output("second.out") == "second\n"


def test_an_operator_that_is_killed_is_missed_by_no_step(login: BatchSite) -> None:
    job = login.submit(
        "alone.sh",
        """#!/bin/bash
#SBATCH -N2
touch up
until [ -e go ]; do sleep 0.1; done
srun hostname > hosts
""",
    )
    job.run.wait("it runs", (job.folder / "up").exists)
    login.site.kill_operator()
    (job.folder / "go").touch()
    job.run.wait("its step has ended", lambda: len(job.lines("hosts")) == 2 if (job.folder / "hosts").exists() else 0)
    job.is_done()


def wait_for_lines(path: Path, lines: list[str]) -> None:
    wait_for(f"{path.name} is whole", lambda: path.exists() and path.read_text().splitlines() == lines, seconds=180)


CLUSTER = """
import socket, sys, time

def connect(where):
    host, port = where.split(":")
    for _ in range(300):
        try:
            return socket.create_connection((host, int(port)), 5)
        except OSError:
            time.sleep(0.1)
    sys.exit("no head")

if sys.argv[1] == "head":
    server, workers = socket.create_server(("", int(sys.argv[2]))), 0
    while True:
        peer = server.accept()[0]
        workers += peer.makefile().readline() == "worker\\n"
        peer.sendall(b"%d\\n" % workers)
elif sys.argv[1] == "worker":
    connect(sys.argv[2]).sendall(b"worker\\n")
    time.sleep(600)
else:
    for _ in range(300):
        head = connect(sys.argv[2])
        head.sendall(b"driver\\n")
        if int(head.makefile().readline()) == int(sys.argv[3]):
            sys.exit(0)
        time.sleep(0.1)
    sys.exit("workers are missing")
"""
"""A server that counts its workers, and a driver that ends once all are there."""
