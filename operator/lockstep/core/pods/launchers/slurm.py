"""Slurm: a batch script on rank 0 alone; ``srun`` in it starts tasks on all nodes, as steps.

The others stand by. The script and SLURM_* come with the order to start (``core.run.batch_job``), as the nodes do.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from lockstep.api.base import names
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.plural import plural
from lockstep.core.model.problems import Problem
from lockstep.slurm.signals import NUMBERS

COMMAND = ("slurm_script",)
"""What stands in the place of a command; the worker has the script."""
_MOUNTS = (names.SHARED_CHECKPOINTS_MOUNT, names.LOCAL_CHECKPOINTS_MOUNT)
_MOST_LINES, _MOST_OF_A_LINE = 16, 1024


def options(spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
    """Slots of a node, for an mpirun in the script: tasks of a node where those were said, else one for each GPU."""
    said = spec.launcher.batch.options.get("ntasks-per-node", "") if spec.launcher.batch is not None else ""
    slots = int(said) if said.isascii() and said.isdigit() and len(said) <= 4 else 0
    asked = {"slotsPerNode": slots or max(gpus_per_node, 1), "standsBy": True}
    return {**asked, "places": places} if (places := _places(spec)) else asked


def _places(spec: TrainingRunSpec) -> list[str]:
    """Lines that name a path where checkpoints are: workers look there for what is saved elsewhere than it was told to,
    and have the script itself only once it runs."""
    batch = spec.launcher.batch
    if batch is None or spec.checkpoint is None:
        return []
    lines = [*batch.script.replace("\\\n", " ").splitlines(), " ".join(batch.arguments)]
    named = [line.strip() for line in lines if any(f"{mount}/" in line for mount in _MOUNTS)]
    # What a command makes of it is not known here; and Kubernetes has a meaning of its own for it.
    plain = (line.replace("$(", "$ (")[:_MOST_OF_A_LINE] for line in named if not line.startswith("#"))
    return list(islice(plain, _MOST_LINES))


def deciding_ranks(world_size: int) -> range:
    """Rank 0, where the script is: a step that fails without the script's minding it leaves the job completed."""
    return range(1)


def steps(spec: TrainingRunSpec) -> bool:
    """Always: srun reaches the other nodes by nothing else."""
    return True


def problems(spec: TrainingRunSpec) -> list[Problem]:
    """What no shell could run, and what a script has another place for."""
    return list(_problems(spec))


def _problems(spec: TrainingRunSpec) -> Iterator[Problem]:
    batch = spec.launcher.batch
    if batch is None:
        yield Problem("spec.launcher.batch", "launcher.type Slurm runs the script in it; write batch.script")
        return
    field = "spec.launcher.batch.script"
    if not batch.script.startswith("#!"):
        yield Problem(field, "does not begin with #! and the path of an interpreter; write e.g. #!/bin/bash above it")
    if "\0" in batch.script:
        yield Problem(field, "has a NUL character, which no shell reads; take it out")
    if "\r\n" in batch.script:
        yield Problem(field, "has DOS line breaks (\\r\\n), which shells take for a part of words; write \\n")
    if batch.signal is not None and batch.signal.removeprefix("SIG") not in NUMBERS:
        yield Problem("spec.launcher.batch.signal", f"{batch.signal} is no signal of Linux; write e.g. SIGUSR1")
    if any("\0" in text for text in (*batch.arguments, *batch.options.values())):
        yield Problem("spec.launcher.batch", "has a NUL character in an argument or an option; take it out")
    if spec.command:
        yield Problem("spec.command", "launcher.type Slurm runs the script in launcher.batch; leave command out")
    if spec.entrypoint:
        yield Problem("spec.entrypoint", "the script names its interpreter in its first line; leave entrypoint out")
    if spec.working_dir is not None and batch.directory is not None:
        yield Problem("spec.workingDir", "says the same thing as launcher.batch.directory; keep that")
    if batch.components and sum(batch.components) != spec.nodes:
        together = plural(sum(batch.components), "node")
        words = f"are {together} together, and spec.nodes is {spec.nodes}; make them the same"
        yield Problem("spec.launcher.batch.components", words)
    if batch.component_tasks and len(batch.component_tasks) != len(batch.components):
        words = f"has {plural(len(batch.component_tasks), 'number')} for {plural(len(batch.components), 'component')}"
        yield Problem("spec.launcher.batch.componentTasks", f"{words}; write one for each, 0 for one that says none")
    if batch.components and spec.elastic is not None:
        words = "a job of several components keeps its size; leave elastic out, or submit one component"
        yield Problem("spec.launcher.batch.components", words)
