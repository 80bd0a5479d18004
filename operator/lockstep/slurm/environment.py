"""SLURM_* of the batch shell and of each task of a step."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from lockstep.slurm.gpus import GpusAsked, of_task
from lockstep.slurm.hostlist import compress, compress_counts
from lockstep.slurm.layout import Layout

MOST_JOB_ID = 67_043_327
_OF_STEPS = (
    "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_GPUS", "SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT",
    "SLURM_STEP_LAUNCHER_PORT", "SLURM_LAUNCH_NODE_IPADDR",
)  # fmt: skip
_AS_TYPED = {  # variable: option whose value it repeats
    "SLURM_CPUS_PER_TASK": "cpus-per-task", "SLURM_GPUS": "gpus", "SLURM_GPUS_PER_NODE": "gpus-per-node",
    "SLURM_GPUS_PER_TASK": "gpus-per-task", "SLURM_NTASKS_PER_NODE": "ntasks-per-node",
    "SLURM_CPUS_PER_GPU": "cpus-per-gpu", "SLURM_TRES_PER_TASK": "tres-per-task",
    "SLURM_NTASKS_PER_GPU": "ntasks-per-gpu", "SLURM_NTASKS_PER_TRES": "ntasks-per-tres",
    "SLURM_JOB_DEPENDENCY": "dependency",
}  # fmt: skip


_NO_GPUS_ASKED = GpusAsked()


class Array(NamedTuple):
    """Where a job stands in its array. ``job``: what users type before the underscore."""

    job: int
    task: int
    tasks: int
    least: int
    most: int
    step: int = 1


class SlurmJob(NamedTuple):
    """A batch job that has started. Names of nodes are in rank order; empty texts are left out."""

    id: int
    nodes: Sequence[str]
    cpus: Sequence[int]  # of each node
    gpus: int  # of each node
    name: str
    user: str
    uid: int
    partition: str
    cluster: str
    submit_dir: str
    submit_host: str
    start_time: int  # unix s
    end_time: int  # unix s; 0: no time limit
    said: Mapping[str, str] = {}  # options of sbatch as typed
    ntasks: Optional[int] = None  # where -n or --ntasks-per-node was given
    memory: Optional[int] = None  # MiB of a node, where --mem was given
    array: Optional[Array] = None
    restarts: int = 0
    account: str = ""
    qos: str = ""
    reservation: str = ""
    gid: int = 0
    group: str = ""
    components: Sequence[int] = ()  # nodes of each, of a heterogeneous job
    component_tasks: Sequence[int] = ()  # of each, 0: not said; empty: ``ntasks`` over all nodes alike
    topology: Sequence[Tuple[str, str]] = ()  # (SLURM_TOPOLOGY_ADDR, its pattern) of each node
    image: str = ""  # of its pods
    mounts: Optional[Sequence[str]] = None  # paths that volumes have; None: not known
    work_dir: str = ""  # where the script starts; empty: ``submit_dir``

    @property
    def starts_in(self) -> str:
        """The directory of the script, as its commands show it."""
        return self.work_dir or self.submit_dir


def job_of(fields: Mapping[str, Any]) -> SlurmJob:
    """From JSON of its fields; others are passed over. Raises TypeError, ValueError."""
    known = {name: fields[name] for name in SlurmJob._fields if name in fields}
    array = known.get("array")
    if array is not None:
        known["array"] = Array(**array) if isinstance(array, dict) else Array(*array)
    known["components"] = tuple(known.get("components") or ())
    known["component_tasks"] = tuple(known.get("component_tasks") or ())
    known["topology"] = tuple((addr, pattern) for addr, pattern in known.get("topology") or ())
    job = SlurmJob(**known)
    if not job.nodes or len(job.nodes) != len(job.cpus):
        raise ValueError(f"{len(job.nodes)} nodes, CPUs of {len(job.cpus)}")
    if job.component_tasks and len(job.component_tasks) != len(job.components):
        raise ValueError(f"{len(job.components)} components, tasks of {len(job.component_tasks)}")
    return job


def batch_environment(job: SlurmJob) -> Dict[str, str]:
    """Of the batch shell, on the first node."""
    tasks = _tasks_of_nodes(job)
    made = {
        **_of_job(job),
        "SLURM_NNODES": str(len(job.nodes)),
        "SLURM_TASKS_PER_NODE": compress_counts(tasks),
        "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_GTIDS": "0",
        "SLURMD_NODENAME": job.nodes[0],
        "ENVIRONMENT": "BATCH",
        "SLURM_PRIO_PROCESS": "0",
    }  # fmt: skip
    if job.ntasks is not None:
        made["SLURM_NTASKS"] = made["SLURM_NPROCS"] = str(job.ntasks)
    if job.gpus:
        made["SLURM_JOB_GPUS"] = _numbers(job.gpus)
    export = job.said.get("export", "")
    if export and export.upper() != "ALL":
        made["SLURM_EXPORT_ENV"] = export
    if job.said.get("open-mode"):
        made["SLURM_OPEN_MODE"] = job.said["open-mode"][0].lower()  # of the files of each srun, too
    made.update(_of_node(job, 0))
    for index, group in enumerate(_groups(job)):
        made.update(_of_group(job, index, group, tasks))
    return made


def step_environment(
    job: SlurmJob, step: int, layout: Layout, launched_from: str, port: int, cpus_per_task: Optional[int] = None,
    cpus_per_gpu: Optional[int] = None,
) -> Dict[str, str]:  # fmt: skip
    """What all tasks of a step have alike. ``launched_from``: IP of the node where srun runs."""
    names = [job.nodes[index] for index in layout.nodes]
    nodes, counts = compress(names), compress_counts(layout.counts)
    number, total, ports = str(step), str(layout.total), str(port)
    made = {
        **_of_job(job),
        "SLURM_NNODES": str(len(names)), "SLURM_NTASKS": total, "SLURM_NPROCS": total, "SLURM_TASKS_PER_NODE": counts,
        "SLURM_STEP_ID": number, "SLURM_STEPID": number, "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_NUM_NODES": str(len(names)), "SLURM_STEP_NUM_TASKS": total, "SLURM_STEP_TASKS_PER_NODE": counts,
        "SLURM_LAUNCH_NODE_IPADDR": launched_from, "SLURM_SRUN_COMM_HOST": launched_from,
        "SLURM_SRUN_COMM_PORT": ports, "SLURM_STEP_LAUNCHER_PORT": ports,
    }  # fmt: skip
    made.setdefault("SLURM_DISTRIBUTION", "cyclic" if layout.total <= len(names) else "block")
    del made["SLURM_JOB_NAME"]  # inherited from the batch shell, where somebody may have changed it
    if cpus_per_task is not None:
        made["SLURM_CPUS_PER_TASK"] = str(cpus_per_task)
    if cpus_per_gpu is not None:
        made["SLURM_CPUS_PER_GPU"] = str(cpus_per_gpu)
    return made


def task_environment(
    job: SlurmJob, layout: Layout, node: int, local: int, asked: GpusAsked = _NO_GPUS_ASKED,
    devices: Optional[Sequence[int]] = None,
) -> Dict[str, str]:  # fmt: skip
    """What one task has for itself. ``node``: counted in the step; ``local``: counted on it. ``devices``: the step's of
    that node; None: all. SLURM_TASK_PID is set by whoever starts it."""
    ranks = layout.tasks[node]
    index = layout.nodes[node]
    made = {
        "SLURM_NODEID": str(node), "SLURM_PROCID": str(ranks[local]), "SLURM_LOCALID": str(local),
        "SLURM_GTIDS": ",".join(map(str, ranks)), "SLURMD_NODENAME": job.nodes[index],
        **_of_node(job, index),
    }  # fmt: skip
    if job.gpus:
        devices = range(job.gpus) if devices is None else devices
        own = ",".join(map(str, of_task(devices, local, asked)))
        made["CUDA_VISIBLE_DEVICES"] = own
        made["SLURM_GPUS_ON_NODE"] = str(len(devices))
        if own:
            made["SLURM_STEP_GPUS"] = own
    return made


def exported(environ: Mapping[str, str], export: str) -> Dict[str, str]:
    """What srun passes on of its own environment, by ``--export``. SLURM_* goes along always."""
    items = export_items(export)
    named = {item.partition("=")[0]: item for item in items}
    everything = not items or any(item.upper() == "ALL" for item in items)
    if any(item.upper() == "NONE" for item in items):
        named = {}
    made = {
        name: value
        for name, value in environ.items()
        if everything or name.startswith(("SLURM", "_SLURM_SPANK_OPTION"))
    }
    for name, item in named.items():
        if "=" in item:
            if not (everything and name in environ):  # ALL's own values win
                made[name] = item.partition("=")[2]
        elif name in environ:
            made[name] = environ[name]
    return made


def without_steps(environ: Mapping[str, str]) -> Dict[str, str]:
    """An environment in which SLURM_* of a step that calls srun again is gone."""
    return {name: value for name, value in environ.items() if name not in _OF_STEPS}


def _of_job(job: SlurmJob) -> Dict[str, str]:
    nodes = compress(job.nodes)
    made = {
        "SLURM_JOB_ID": str(job.id), "SLURM_JOBID": str(job.id), "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_NODELIST": nodes, "SLURM_NODELIST": nodes, "SLURM_JOB_NUM_NODES": str(len(job.nodes)),
        "SLURM_JOB_CPUS_PER_NODE": compress_counts(job.cpus), "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_ACCOUNT": job.account, "SLURM_JOB_QOS": job.qos, "SLURM_JOB_RESERVATION": job.reservation,
        "SLURM_JOB_USER": job.user, "SLURM_JOB_UID": str(job.uid), "SLURM_JOB_GID": str(job.gid),
        "SLURM_JOB_GROUP": job.group, "SLURM_CLUSTER_NAME": job.cluster, "SLURM_SUBMIT_DIR": job.submit_dir,
        "SLURM_SUBMIT_HOST": job.submit_host, "SLURM_JOB_START_TIME": str(job.start_time),
        "SLURM_JOB_END_TIME": str(job.end_time) if job.end_time else "",
        "SLURM_RESTART_COUNT": str(job.restarts) if job.restarts else "",
        "SLURM_MEM_PER_NODE": str(job.memory) if job.memory else "",
        "SLURM_DISTRIBUTION": job.said.get("distribution", ""),
    }  # fmt: skip
    made.update({name: job.said.get(option, "") for name, option in _AS_TYPED.items()})
    if job.array is not None:
        made.update(
            {
                "SLURM_ARRAY_JOB_ID": str(job.array.job), "SLURM_ARRAY_TASK_ID": str(job.array.task),
                "SLURM_ARRAY_TASK_COUNT": str(job.array.tasks), "SLURM_ARRAY_TASK_MAX": str(job.array.most),
                "SLURM_ARRAY_TASK_MIN": str(job.array.least), "SLURM_ARRAY_TASK_STEP": str(job.array.step),
            }
        )  # fmt: skip
    return {name: value for name, value in made.items() if value}


def _of_node(job: SlurmJob, index: int) -> Dict[str, str]:
    made = {
        "SLURM_CPUS_ON_NODE": str(job.cpus[index]),
        "SLURM_TOPOLOGY_ADDR": job.nodes[index],
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
    }
    if job.gpus:
        made["SLURM_GPUS_ON_NODE"] = str(job.gpus)
        made["CUDA_VISIBLE_DEVICES"] = _numbers(job.gpus)
    if job.topology:
        made["SLURM_TOPOLOGY_ADDR"], made["SLURM_TOPOLOGY_ADDR_PATTERN"] = job.topology[index]
    return made


def _tasks_of_nodes(job: SlurmJob) -> List[int]:
    """Tasks that a step without options has on each node: as said, else one for each CPU, as Slurm counts them."""
    if not job.component_tasks:
        return _dealt(job, range(len(job.nodes)), job.ntasks)
    groups = zip(_groups(job), job.component_tasks)  # noqa: B905, strict is younger than Python 3.8
    return [count for group, tasks in groups for count in _dealt(job, group, tasks or None)]


def _dealt(job: SlurmJob, nodes: range, tasks: Optional[int]) -> List[int]:
    if tasks is not None:
        return [len(range(index, tasks, len(nodes))) for index in range(len(nodes))]
    per_task = job.said.get("cpus-per-task", "")
    each = int(per_task) if per_task.isdigit() and int(per_task) else 1
    return [max(1, job.cpus[node] // each) for node in nodes]


def _groups(job: SlurmJob) -> Iterable[range]:
    start = 0
    for count in job.components:
        yield range(start, start + count)
        start += count


def _of_group(job: SlurmJob, index: int, group: range, tasks: Sequence[int]) -> Dict[str, str]:
    """A component's own, once more with its number."""
    nodes = compress(job.nodes[node] for node in group)
    own = {
        "SLURM_JOB_ID": str(job.id + index), "SLURM_JOBID": str(job.id + index), "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_NODELIST": nodes, "SLURM_NODELIST": nodes, "SLURM_JOB_NUM_NODES": str(len(group)),
        "SLURM_NNODES": str(len(group)), "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_CPUS_PER_NODE": compress_counts([job.cpus[node] for node in group]),
        "SLURM_TASKS_PER_NODE": compress_counts([tasks[node] for node in group]),
    }  # fmt: skip
    if job.component_tasks[index] if job.component_tasks else job.ntasks is not None:
        own["SLURM_NTASKS"] = str(sum(tasks[node] for node in group))
    made = {f"{name}_HET_GROUP_{index}": value for name, value in own.items()}
    return {**made, "SLURM_HET_SIZE": str(len(job.components))}


def export_items(export: str) -> List[str]:
    """What commas separate; quotes keep those inside a value."""
    items = re.findall(r"(?:[^,'\"]|'[^']*'|\"[^\"]*\")+", export)
    return [re.sub(r"'([^']*)'|\"([^\"]*)\"", lambda found: found[1] or found[2] or "", item) for item in items]


def _numbers(count: int) -> str:
    return ",".join(map(str, range(count)))
