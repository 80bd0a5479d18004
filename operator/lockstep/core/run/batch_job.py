"""A batch job as its gang is told of it at START: what Slurm would know of it, its script, and who its nodes are."""

from collections.abc import Mapping
from typing import Any

from lockstep.api.base import names
from lockstep.api.base.quantities import parse_quantity
from lockstep.api.batch_spec import BatchSpec
from lockstep.core.batch.inside import CLUSTER
from lockstep.core.model.plan import BatchOrder
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.run_state import RunState
from lockstep.core.pods.array_environment import array_shape
from lockstep.core.run.time_left import time_is_over
from lockstep.slurm.environment import MOST_JOB_ID, Array, SlurmJob


def batch_order(state: RunState, nodelist: tuple[str, ...]) -> BatchOrder | None:
    """None: it is no batch job, or its spec cannot be read any more, or it has no number yet. ``nodelist``: addresses
    by rank."""
    spec, number = state.run.spec, state.status.job_id
    batch = spec.launcher.batch if spec is not None else None
    if batch is None or number is None:
        return None
    nodes = state.status.assignment.nodes
    return BatchOrder(
        job=_job(state, batch, number, nodelist),
        words=tuple(_words(nodes[slot]) for slot in state.ranked_slots()),
        script=batch.script,
        arguments=batch.arguments,
        output=batch.output or "",
        error=batch.error or "",
        input=batch.input or "",
        append=batch.append,
        directory=batch.directory or "",
        command=batch.command or "",
    )


def fields_of(job: SlurmJob) -> dict[str, Any]:
    """As JSON has it: what ``lockstep.slurm.environment.job_of`` reads."""
    return job._asdict() | {"array": job.array._asdict() if job.array is not None else None}


def _job(state: RunState, batch: BatchSpec, number: int, nodelist: tuple[str, ...]) -> SlurmJob:
    spec, status, options = state.spec, state.status, batch.options
    resolved = status.resolved
    cpus = max(1, int(parse_quantity(resolved.cpu or "1")))
    return SlurmJob(
        id=number,
        nodes=nodelist,
        cpus=(cpus,) * len(nodelist),
        gpus=resolved.gpus_per_node,
        name=options.get("job-name") or batch.name or state.run.name,
        user=batch.user,
        uid=batch.uid,
        gid=batch.gid,
        partition=queue_of(state.view),
        cluster=CLUSTER,
        submit_dir=batch.submit_directory or batch.directory or "",
        submit_host=batch.host,
        start_time=int(status.last_admitted or 0),
        end_time=int(time_is_over(state, status) or 0),
        said=options,
        ntasks=_tasks(batch, len(nodelist), resolved.gpus_per_node),
        memory=batch.memory_mib,
        array=_array(state.run.annotations),
        restarts=max(0, status.attempt - 1),
        account=options.get("account", ""),
        qos=options.get("qos") or spec.priority_class_name or "",
        reservation=options.get("reservation", ""),
        components=batch.components,
        component_tasks=batch.component_tasks,
        image=spec.image,
        mounts=tuple(volume.mount_path for volume in spec.volumes),
        work_dir=batch.directory or "",
    )


def _tasks(batch: BatchSpec, nodes: int, gpus: int) -> int | None:
    """As many as were said, be the gang smaller or larger than it was asked for. ``gpus``: of a node."""
    if "ntasks" in batch.options:
        return batch.ntasks
    for option, each in (("ntasks-per-node", 1), ("ntasks-per-gpu", gpus), ("ntasks-per-tres", gpus)):
        said = batch.options.get(option, "")
        if said.isascii() and said.isdigit() and len(said) <= 4:
            return int(said) * each * nodes or None
    return batch.ntasks


def _words(node: str) -> tuple[str, ...]:
    """All that mean a node beside its address: its name, and the first part of that."""
    short = node.partition(".")[0]
    return (node,) if short == node else (node, short)


def _array(annotations: Mapping[str, str]) -> Array | None:
    """Where the run stands in an array. What does not read as the operator wrote it counts for nothing."""
    shape = array_shape(annotations)
    said = dict(word.partition("=")[::2] for word in annotations.get(names.ANNOTATION_ARRAY_JOB, "").split())
    numbers = [said.get(name, "") for name in ("job", "step")]
    if not shape or not all(text.isascii() and text.isdigit() and len(text) <= 8 for text in numbers):
        return None
    job, step = map(int, numbers)
    if not 0 < job <= MOST_JOB_ID or not step:
        return None
    return Array(job, shape["index"], shape["count"], shape["min"], shape["max"], step)
