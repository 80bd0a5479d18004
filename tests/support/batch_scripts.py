"""Batch scripts in the shape of those that people have, as they are; and what differs where a real Slurm runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

MEET = """
import os, socket, sys, time
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    listener = socket.create_server(where)
    peers = [listener.accept()[0] for _ in range(world - 1)]
    total = sum(int(peer.makefile().readline()) for peer in peers)
    for peer in peers:
        peer.sendall(b"%d\\n" % total)
else:
    for _ in range(300):
        try:
            head = socket.create_connection(where, 5)
            break
        except OSError:
            time.sleep(0.1)
    head.sendall(b"%d\\n" % rank)
    total = int(head.makefile().readline())
print("rank", rank, "of", world, "on", os.environ["SLURMD_NODENAME"], "sum", total, flush=True)
"""
"""In the place of a trainer: all ranks meet at MASTER_ADDR and have the sum of their numbers."""
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
BESIDE = """
touch here.$1
until [ -e here.0 -a -e here.1 -a -e here.2 ]; do sleep 0.1; done
echo $SLURM_STEP_ID >> steps
"""
"""Ends once all three of it run."""


@dataclass(frozen=True, eq=False)
class BatchScript:
    """A script, its arguments, and the files that it finds beside it."""

    name: str
    text: str
    arguments: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=lambda: {"meet.py": MEET})
    plugins: str = ""  # a regular expression: options that a Slurm without plugins does not know

    def write_into(self, folder: Path) -> None:
        for name, text in {**self.files, self.name: self.text}.items():
            (folder / name).write_text(text, encoding="utf-8")


MULTINODE = BatchScript(
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
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
echo Node IP: $head_node_ip
export MASTER_ADDR=$head_node_ip
export MASTER_PORT=29500
srun python3 meet.py
""",
)
ACCELERATE = BatchScript(
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
)
MEGATRON = BatchScript(
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
)
PREFLIGHT = BatchScript(
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
)
SWEEP = BatchScript(
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
    files={"beside.sh": BESIDE},
)
RAY = BatchScript(
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
    files={"cluster.py": CLUSTER},
)
ARRAY = BatchScript(
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
PYXIS = BatchScript(
    "pyxis.sh",
    """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
export MASTER_ADDR=$(scontrol show hostnames | head -1) MASTER_PORT=29502
srun --container-image=none --container-workdir=$PWD --no-container-mount-home --mpi=pmix python3 meet.py > out
""",
    plugins=r" --((no-)?container-|mpi=)\S+",
)
CONDA = BatchScript(
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
    files={"activate": "export ENVIRONMENT_NAME=$1; module() { command module $@; }\n"},
)
HET = BatchScript(
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
)
STRICT = BatchScript(
    "strict.sh",
    """#!/bin/bash
#SBATCH -N2
srun bash -c '[ $SLURM_PROCID = 0 ] || { echo "the disk is full" >&2; exit 7; }' || exit 3
""",
)
REQUEUE = BatchScript(
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
)
FIRST = BatchScript(
    "first.sh",
    """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --output=first.out
jid=$(sbatch --parsable --dependency=afterok:$SLURM_JOB_ID second.sh) || exit 1
echo $jid
""",
    files={"second.sh": "#!/bin/bash\n#SBATCH -N1\necho second > second.out\n"},
)
LENIENT = BatchScript("lenient.sh", "#!/bin/bash\n#SBATCH -N2\nsrun false\nsrun true\n")
MISHAPS = BatchScript(
    "mishaps.sh",
    r"""#!/bin/bash
#SBATCH -N3 --ntasks-per-node=2 -t 10
#SBATCH -o %x.%j -e errors -J mishaps
srun bash -c 'exit $((SLURM_PROCID % 4))' 2> codes; echo $? >> codes
srun -n3 bash -c 'kill -9 $$' 2> signals; echo $? >> signals
srun -n3 -K bash -c '[ $SLURM_PROCID = 1 ] && exit 5; exec sleep 300' 2> killed; echo $? >> killed
srun -n3 -W1 bash -c '[ $SLURM_PROCID = 1 ] || exec sleep 300' 2> waited; echo $? >> waited
srun -n3 bash -c 'kill -TERM $$; sleep 9' 2> terminated; echo $? >> terminated
srun -n3 bash -c '[ $SLURM_PROCID = 2 ] && kill -SEGV $$' 2> fault; echo $? >> fault
srun -N1 -n1 /etc/passwd 2> denied; echo $? >> denied
srun -N1 -n1 /no/such 2> missing; echo $? >> missing
srun -n1 -N1 -D /no/such pwd > directory 2>&1; echo $? >> directory
srun -N4 true 2> large; echo $? >> large
srun -w elsewhere true 2> elsewhere; echo $? >> elsewhere
srun --nodes=x true 2> invalid; echo $? >> invalid
srun --no-such true 2> unknown; echo $? >> unknown
srun 2> nothing; echo $? >> nothing
srun -n3 --jobid=1 true 2> other-job; echo $? >> other-job
srun -n3 -l bash -c 'echo out; echo err >&2' > labels 2>&1
srun -n12 -O -l bash -c '[ $SLURM_PROCID -lt 9 ] || printf "no end of line"' > wide 2>&1
srun -n6 -o task-%t-of-%x.%s bash -c 'echo $SLURM_PROCID; echo e >&2'
srun -n6 -o on-%n-%N bash -c 'echo $SLURM_PROCID'
srun -n3 -o both bash -c 'echo o; echo e >&2'
srun -n3 -o out -e err bash -c 'echo o; echo e >&2'
srun -n3 -o %J-%4t bash -c 'echo $SLURM_PROCID'
echo words | srun -n3 cat > stdin
echo words | srun -n3 -i 1 -l cat > stdin-of-one
echo words | srun -n3 -i none -l cat > stdin-none
srun -n3 -i programs cat > stdin-file
srun -n2 -N2 -r1 bash -c 'echo $SLURM_PROCID $SLURMD_NODENAME' > relative
srun -n1 -N1 bash -c 'touch begun; exec sleep 300' 2> cancelled & until [ -e begun ]; do sleep 0.2; done
scancel $SLURM_JOB_ID.$(squeue -s -h -o %i | sed -n 's/.*\.\([0-9]*\)$/\1/p' | sort -n | tail -1)
wait $!; echo $? >> cancelled
srun --export=NONE -n1 -N1 bash 2> no-path; echo $? >> no-path
srun -n1 -N1 bash -c 'touch begun-too; exec sleep 300' 2> told & until [ -e begun-too ]; do sleep 0.2; done
kill $!; wait $!; echo $? >> told
srun --export=NONE,MINE=1 -n1 -N1 /bin/bash -c 'echo ${MINE-none} ${SLURM_JOB_NAME-none}' > export
MINE=2 srun --export=MINE -n1 -N1 /bin/bash -c 'echo ${MINE-none}' >> export
srun -n1 -N1 -J other bash -c 'echo $SLURM_JOB_NAME' > name
srun -t 0 -n1 -N1 true 2> time; echo $? >> time
squeue -h -j $SLURM_JOB_ID -o '%i|%P|%j|%t|%D|%R|%C|%T|%A|%F|%K' > squeue
squeue -j $SLURM_JOB_ID -O jobid,name,state,numnodes,nodelist > squeue-long
squeue -j 1 > squeue-nobody 2>&1; echo $? >> squeue-nobody
scontrol show hostnames a[1-3,07-08] > hostnames
scontrol show hostlist a3,a1,a2,b > hostlist
scontrol show hostlistsorted a3,a1,a2,b >> hostlist
scontrol show job $SLURM_JOB_ID | grep -o '[A-Za-z]*=[^ ]*' |
    grep -E '^(Job|Num(Nodes|Tasks)|NodeList|BatchHost|Requeue|TimeLimit|Depend|Restarts|Reason)' > show-job
scontrol show job 1 > show-nobody 2>&1; echo $? >> show-nobody
scontrol no-such > scontrol 2>&1; echo $? >> scontrol
sbcast -f programs copied 2> sbcast; echo $? >> sbcast
sbcast programs copied 2> sbcast-again; echo $? >> sbcast-again
srun -n3 -Q bash -c 'exit 3' 2> quiet; echo $? >> quiet
srun --multi-prog programs > multi 2>&1; echo $? >> multi
scancel 1 2> cancel-nobody; echo $? >> cancel-nobody
echo to-errors >&2
exit 3
""",
    files={"programs": "0 echo first\n1-2 echo %t of %o\n* echo rest\n"},
)
ALL = [
    MULTINODE, ACCELERATE, MEGATRON, PREFLIGHT, SWEEP, RAY, ARRAY, PYXIS, CONDA, HET, STRICT, LENIENT, FIRST, REQUEUE,
    MISHAPS,
]  # fmt: skip
"""Those that need no GPUs."""


class Difference(NamedTuple):
    """Lines that one of the two has and not the other, as regular expressions of `FILE: LINE`, and a row of
    docs/slurm-scripts.md that tells why. ``sometimes``: as it comes."""

    scripts: Sequence[BatchScript]
    theirs: str
    ours: str
    row: str
    sometimes: bool = False


_BY_SIGNAL = r"(cancelled|told|waited): "
DIFFERENCES = (
    Difference(
        (ACCELERATE, SWEEP, MISHAPS), r".*\bn\[1-[23]\].*", r".*[0-9.]+\.\[[0-9]+-[0-9]+\].*",
        "| names of nodes in `SLURM_JOB_NODELIST` | addresses, which need no DNS; `scontrol` and `srun -w` take both |",
    ),
    Difference(
        (CONDA,), "", r"conda\.err: module purge: does nothing here.*",
        "| `module load` changes the environment | it does nothing, and says so once: the image has its software |",
    ),
    Difference(
        (PYXIS,), "", r"slurm-JOB\.out: srun: --(no-container-mount-home|mpi) .*",
        "| options of plugins that have no effect pass in silence | `srun` names them |",
    ),
    Difference(
        (REQUEUE,), r".*: (srun|slurmstepd): .*(SIGCONT|forcing|CANCELLED|aborted|Force Terminated).*",
        r".*: srun: error: NODE.: task .: Terminated",
        "| at the end of a job `srun` is told first, and prints that | its tasks are, and it prints how they end |",
    ),
    Difference(
        (MISHAPS,), r".*: srun: Warning: can't honor --ntasks-per-node .*",
        r"wide: srun: warning: can't honor --ntasks-per-node .*",
        "| 22.05 warns of every `--ntasks-per-node` that `-n` does not match | where tasks do not fit, as 23.11 does |",
    ),
    Difference(
        (MISHAPS,), r".*: srun: (Job JOB step creation temporarily disabled.*|Step created for .*)", "",
        "| `step creation temporarily disabled`, until there is room | only for GPUs that steps have asked for |",
        sometimes=True,
    ),
    Difference(
        (MISHAPS,), _BY_SIGNAL + "(137|srun: error: NODE.: task .: Killed|srun: launch/.* aborted before .*)",
        _BY_SIGNAL + "(143|srun: error: NODE.: task .: Terminated)",
        "| `scancel` of a step, SIGTERM to `srun` and `-W` kill at once | SIGTERM, and SIGKILL after 30 s |",
    ),
    Difference(
        (MISHAPS,), r".*: srun: launch/slurm: _step_signal: Terminating StepId=JOB\..*",
        r".*: srun: Terminating StepId=JOB\..*",
        "| 22.05 names the plugin in front of `Terminating StepId=` | nothing, as 23.11 does |",
    ),
    Difference(
        (MISHAPS, STRICT), r".*: srun: Force Terminated StepId=JOB\..*", "",
        "| `srun: Force Terminated`, where the controller is quicker than the nodes | there is no controller |",
        sometimes=True,
    ),
    Difference(
        (MISHAPS,), r"directory: (/tmp|0|slurmstepd: error: couldn't chdir to .*)",
        r"directory: (1|srun: error: NODE0: (/no/such: there is no such directory|task 0: Exited with exit code 1))",
        "| a task whose directory its node lacks runs in `/tmp` | it is not started, and the directory is named |",
    ),
    Difference(
        (MISHAPS,), r"elsewhere: srun: error: .*", r"elsewhere: srun: error: Unable to create step: elsewhere is .*",
        "| `Requested node configuration is not available` | the node that is none of the job's is named |",
    ),
    Difference(
        (MISHAPS,), r"invalid: srun: error: .*", r"invalid: srun: error: Invalid --nodes specification: .*",
        "| `\"x\" is not a valid node count` | the same, with the option's name |",
    ),
    Difference(
        (MISHAPS,), r"multi: .*", r"multi: (255|srun: error: --multi-prog: .*)",
        "| `srun --multi-prog` | refused: one command that looks at `SLURM_PROCID` does the same |",
    ),
    Difference(
        (MISHAPS,), r"no-path: (2|slurmstepd: error: execve.*|srun: error: .*)", r"no-path: 0",
        "| with `srun --export=NONE` a command needs its whole path | it is found on the PATH of its node |",
    ),
    Difference(
        (MISHAPS,), r"cancel-nobody: 0", r"cancel-nobody: (1|scancel: error: .*)",
        "| 22.05 says nothing where `scancel` is given a job that is none | an error, as in younger ones |",
    ),
    Difference(
        (MISHAPS,), r"sbcast-again: (17|sbcast: error: REQUEST_FILE_BCAST\(NODE.\): File exists)",
        r"sbcast-again: (1|sbcast: error: copied: File exists)",
        "| `sbcast` ends with the number of the error | with 1 |",
    ),
)  # fmt: skip
