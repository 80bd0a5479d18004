"""SLURM_* and the places of tasks, against a real slurmctld and three slurmd: what differs is listed and explained."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.machines import MachinesError
from lockstep.api.base.indices import parse_indices
from lockstep.slurm.environment import Array, SlurmJob, batch_environment, step_environment, task_environment
from lockstep.slurm.getopt import OptionError
from lockstep.slurm.layout import LayoutError
from lockstep.slurm.srun import counted, parse, placed
from lockstep.slurm.submission.batch import batches
from lockstep.slurm.submission.directives import directives
from support.real_slurm import CPUS, MISSING, NODES, RealSlurm, is_there, real_slurm

pytestmark = [pytest.mark.process, pytest.mark.nightly, pytest.mark.skipif(not is_there(), reason=MISSING)]

OF_THE_MACHINE = {  # whatever their value, both have them
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_SUBMIT_DIR", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_SRUN_COMM_PORT",
    "SLURM_STEP_LAUNCHER_PORT", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST", "SLURM_PRIO_PROCESS",
}  # fmt: skip
DIFFERENT = {
    "SLURM_CONF": "of this installation",
    "SLURM_TASK_PID": "set by whoever starts the task",
    "SLURM_NODE_ALIASES": "always (null) on premises; younger ones have none",
    "SLURM_WORKING_CLUSTER": "address of a controller, and there is none",
    "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0": "a slip of 22.05: the job is not heterogeneous",
    "SLURM_JOB_START_TIME": "ours as younger ones have it",
    "SLURM_JOB_END_TIME": "ours as younger ones have it",
    "SLURMD_TRES_BIND": "of the plugin that binds tasks to GPUs there",
    "SLURM_OVERLAP": "repeats this test's own option",
    "SLURM_OVERCOMMIT": "repeats this test's own option",
    "SLURM_UMASK": "of the submitting shell, which the container has no part in",
}
GPUS = 2
JOBS = [
    "-N3", "-N3 --ntasks-per-node=2", "-N2 -n5", "-N3 -n6 --ntasks-per-node=2 -c2 -J named", "-N3 -c2",
    "-N1 -w n1 --array=0-9:4%2", "-N1 -w n1 --array=1,4", "-N2 --requeue",
    "-N2 --gres=gpu:2", "-N3 --gpus-per-node=2", "-N2 --gpus=4", "-n4 -N2 --gpus-per-task=1",
    "-N2 --gres=gpu:2 --cpus-per-gpu=1",
]  # fmt: skip
STEPS = [
    "", "-N3", "-n1 -w n1", "-N1 -w n2", "-N1 -n1 -w n3", "-N2 -n4 -w n1", "-w n2", "-N2 -n2 -r1", "-n5 -m cyclic",
    "-n6 -m plane=2", "-x n1 -N2 -n2", "-x n1", "-N9", "-n4 -N2 --ntasks-per-node=2 -w n1", "-N2-3", "-w n1 -x n1",
    "-n7", "-m arbitrary -w n2,n1,n2", "-n1 -w elsewhere", "-n1 -m random", "--bogus",
]  # fmt: skip
YOUNGER = {
    "-N1 -w n2"
}  # since 23.02.5 a step of fewer nodes has --ntasks-per-node on each, and not all tasks of the job
SHOWN = (
    "SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID", "SLURMD_NODENAME", "SLURM_NTASKS", "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_NODELIST", "SLURM_GTIDS", "SLURM_NNODES", "SLURM_JOB_NODELIST",
)  # fmt: skip


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    try:  # not below /tmp, which each machine has for itself
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, real_slurm(Path(folder)) as started:
            yield started
    except MachinesError as error:
        pytest.skip(f"no real Slurm can run here: {error}")


@pytest.fixture(scope="module")
def slurm_of_gpus() -> Iterator[RealSlurm]:
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, real_slurm(Path(folder), GPUS) as started:
            yield started
    except MachinesError as error:
        pytest.skip(f"no real Slurm can run here: {error}")


def script(options: str) -> str:
    """Each of its runs is in a folder of its own."""
    shown = " ".join(f"${name}" for name in SHOWN)
    lines = [
        f"#!/bin/bash\n#SBATCH {options}",
        "mkdir run-${SLURM_ARRAY_TASK_ID:-0}-${SLURM_RESTART_COUNT:-0} && cd $_",
        "env -0 > batch",
        "srun --overlap -O -n$SLURM_JOB_NUM_NODES bash -c 'env -0 > task-$SLURM_PROCID'",
        "srun --overlap -O -n$((2 * SLURM_JOB_NUM_NODES)) bash -c 'env -0 > pair-$SLURM_PROCID'",
    ]
    for number, step in enumerate(STEPS):
        lines.append(f"timeout 20 srun --overlap -O {step} bash -c 'echo {shown}' > step-{number} 2> error-{number}")
        lines.append(f"echo $? > code-{number}")
    if "--requeue" in options:
        lines.append("[ $SLURM_RESTART_COUNT ] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }")
    return "\n".join(lines) + "\n"


def variables(path: Path) -> dict[str, str]:
    found = (row.split("=", 1) for row in path.read_text(encoding="utf-8", errors="replace").split("\0") if "=" in row)
    return comparable({name: value for name, value in found if name.startswith(("SLURM", "ENVIRONMENT", "CUDA"))})


def comparable(environ: dict[str, str]) -> dict[str, str]:
    return {name: "" if name in OF_THE_MACHINE else value for name, value in environ.items() if name not in DIFFERENT}


@pytest.mark.parametrize("options", JOBS)
def test_scripts_and_tasks_have_the_same_variables_and_places(options: str, request: pytest.FixtureRequest) -> None:
    gpus = GPUS if "gpu" in options else 0
    slurm: RealSlurm = request.getfixturevalue("slurm_of_gpus" if gpus else "slurm")
    folder = slurm.folder / str(JOBS.index(options))
    folder.mkdir()
    (folder / "job.sh").write_text(script(options), encoding="utf-8")
    ran = slurm.shell(f"cd {folder} && sbatch -W --parsable -o log job.sh")
    assert ran.returncode == 0, ran.stderr

    [batch] = batches(directives("job.sh", script(options)), {}, ["job.sh"])
    asked = batch.request
    names = NODES[: asked.nodes]
    job = SlurmJob(
        1, names, [CPUS] * len(names), gpus, asked.job_name or "job.sh", "root", 0, "gpu",
        "main", "/x", "node-0", 1, 0, dict(asked.said), asked.ntasks,
    )  # fmt: skip
    for array in arrays(asked.array, int(ran.stdout)):
        for restarts in range(2 if "--requeue" in options else 1):
            where = folder / f"run-{array.task if array is not None else 0}-{restarts}"
            compare(job._replace(array=array, restarts=restarts), where)


def arrays(indices: str, number: int) -> list[Array | None]:
    """The tasks of that array; [None]: it is none."""
    if not indices:
        return [None]
    indices = indices.partition("%")[0]
    step = int(indices.partition(":")[2] or 1)
    tasks = sorted(parse_indices(indices))
    return [Array(number, task, len(tasks), tasks[0], tasks[-1], step) for task in tasks]


def compare(job: SlurmJob, folder: Path) -> None:
    """A run of the job, which left its files there."""
    shell = variables(folder / "batch")
    ours = batch_environment(job)
    assert comparable(ours) == shell
    if "SLURM_GPUS" in shell:
        return  # srun takes it for an own --gpus there, which a step on fewer nodes is refused for; here it shares
    for name, each in (("task", 1), ("pair", 2)):
        compare_tasks(job, shell, folder / name, len(job.nodes) * each)
    for number, arguments in enumerate(STEPS):
        if arguments in YOUNGER and "SLURM_NTASKS_PER_NODE" in shell:
            continue
        said = sorted((folder / f"step-{number}").read_text(encoding="utf-8").splitlines())
        error = (folder / f"error-{number}").read_text(encoding="utf-8")
        assert places(job, arguments, shell) == said, (arguments, error)
        assert bool(said) is ((folder / f"code-{number}").read_text(encoding="utf-8") == "0\n"), arguments


def compare_tasks(job: SlurmJob, shell: dict[str, str], files: Path, count: int) -> None:
    """All of a step on all nodes."""
    [step] = parse(["--overlap", "-O", f"-n{count}", "true"], shell)
    laid = placed(step, counted(step, len(job.nodes)), [[node] for node in job.nodes])
    wanted = step.gpus_asked.wanted(laid.counts, job.gpus)
    for node, tasks in enumerate(laid.tasks):
        devices = range(wanted[node]) if wanted is not None else None
        for local, task in enumerate(tasks):
            own = task_environment(job, laid, node, local, step.gpus_asked, devices)
            ours = {**shell, **step_environment(job, 1, laid, "h", 1), **own}
            assert comparable(ours) == variables(files.with_name(f"{files.name}-{task}"))


def places(job: SlurmJob, arguments: str, shell: dict[str, str]) -> list[str]:
    """What each task of the step says where it is; empty: the step is refused."""
    try:
        [step] = parse(["--overlap", "-O", *arguments.split(), "true"], shell)
        found = placed(step, counted(step, len(job.nodes)), [[node] for node in job.nodes])
    except (OptionError, LayoutError):
        return []
    alike = step_environment(job, 0, found, "h", 1)
    lines = []
    for node, ranks in enumerate(found.tasks):
        for local in range(len(ranks)):
            own = {**alike, **task_environment(job, found, node, local)}
            lines.append(" ".join(own[name] for name in SHOWN))
    return sorted(lines)
