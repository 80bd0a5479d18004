"""Torchrun: ``torchrun`` with its rendezvous options, put in front of the command by the worker."""

import re
from collections.abc import Mapping, Sequence
from itertools import dropwhile, pairwise
from typing import Any

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.problems import Problem
from lockstep.core.pods.launchers.rendezvous import Rendezvous

_REMEDY = "write command: [train.py], or keep the command as it is and leave launcher out"


def options(spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
    """Processes per node (as asked, else one per GPU, at least one), and how many words stay in front of torchrun."""
    asked = spec.launcher.torchrun.nproc_per_node if spec.launcher.torchrun is not None else None
    return {"nprocPerNode": asked or max(gpus_per_node, 1), "entrypoint": len(spec.entrypoint)}


def deciding_ranks(world_size: int) -> range:
    """All: every node's torchrun ends with its own processes' code."""
    return range(world_size)


def steps(spec: TrainingRunSpec) -> bool:
    """Only where they are asked for."""
    return spec.launcher.steps


def environment(rendezvous: Rendezvous) -> Mapping[str, str]:
    """Nothing: torchrun gets it by argument and sets the rest itself."""
    return {}


def command(spec: TrainingRunSpec, rendezvous: Rendezvous) -> Sequence[str]:
    """torchrun with its rendezvous, in the place of a leading interpreter."""
    torchrun = [
        "torchrun",
        f"--nnodes={rendezvous.world}",
        f"--node-rank={rendezvous.rank}",
        f"--nproc-per-node={options(spec, rendezvous.gpus)['nprocPerNode']}",
        f"--master-addr={rendezvous.address}",
        f"--master-port={rendezvous.port}",
    ]
    theirs: Sequence[str] = spec.command
    directory, slash, program = theirs[0].rpartition("/")
    if re.match(r"python[0-9.]*$", program):
        torchrun[0] = f"{directory}{slash}torchrun"  # that of the interpreter which the user named
        script = list(dropwhile("-u".__eq__, theirs[1:]))
        if script and (script[0] == "-m" or not script[0].startswith("-")):
            theirs = script  # torchrun starts the interpreter itself, with -u
        else:
            torchrun.append("--no-python")  # it would lose the interpreter's other options
    elif not program.endswith(".py") and program != "-m":
        torchrun.append("--no-python")
    return [*spec.entrypoint, *torchrun, *theirs]


def problems(spec: TrainingRunSpec) -> list[Problem]:
    """The command must not start torchrun once more."""
    if _starts_torchrun(spec.command):
        return [Problem("spec.command", f"launcher.type Torchrun starts torchrun itself; {_REMEDY}")]
    return []


def _starts_torchrun(command: Sequence[str]) -> bool:
    if command[0].rpartition("/")[2] == "torchrun":
        return True
    return _is_python(command[0]) and any(
        flag == "-m" and module.startswith(("torch.distributed.run", "torch.distributed.launch"))
        for flag, module in pairwise(command)
    )


def _is_python(program: str) -> bool:
    return program.rpartition("/")[2].startswith("python")
