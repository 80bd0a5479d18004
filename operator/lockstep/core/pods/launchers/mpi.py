"""MPI: the command on rank 0 alone; ``mpirun`` in it starts the processes of all nodes, as steps.

The others stand by. Hosts, slots, interfaces and the way to start something there are told to mpirun by its
environment, which the worker makes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.problems import Problem

_PROGRAMS = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"})
# Options of Open MPI, MPICH and Intel MPI, without their dashes.
_COUNTS = frozenset({"n", "np", "c"})
_FLAGS = frozenset({
    "allow-run-as-root", "bynode", "byslot", "display-allocation", "display-map", "do-not-launch",
    "enable-recovery", "envall", "envnone", "genvall", "genvnone", "l", "nolocal", "nooversubscribe", "novm",
    "oversubscribe", "pernode", "prepend-rank", "print-all-exitcodes", "q", "quiet", "report-bindings", "rr",
    "tag-output", "timestamp-output", "use-hwthread-cpus", "v", "verbose",
})  # fmt: skip
_WITH_A_VALUE = frozenset({
    "N", "am", "bind-to", "bootstrap", "bootstrap-exec", "display", "envlist", "f", "genvlist", "host",
    "hostfile", "hosts", "H", "iface", "launcher", "launcher-exec", "machinefile", "map-by", "npernode",
    "output", "output-filename", "path", "perhost", "personality", "ppn", "prefix", "rank-by", "rankfile", "rf",
    "rmk", "runtime-options", "stdin", "timeout", "tmpdir", "tune", "umask", "wd", "wdir", "x",
})  # fmt: skip
_WITH_TWO = frozenset({"env", "genv", "gmca", "mca", "omca", "pmixmca", "prtemca"})
_OF_ONE_NODE = frozenset({"torchrun"})


def options(spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
    """Slots of a node: as asked, else one for each GPU, at least one."""
    asked = spec.launcher.mpi.slots_per_node if spec.launcher.mpi is not None else None
    return {"slotsPerNode": asked or max(gpus_per_node, 1), "standsBy": True}


def deciding_ranks(world_size: int) -> range:
    """Rank 0, where the command is."""
    return range(1)


def steps(spec: TrainingRunSpec) -> bool:
    """Always: mpirun reaches the other nodes by nothing else."""
    return True


def problems(spec: TrainingRunSpec) -> list[Problem]:
    """What leaves the other nodes idle, or does not go with the size of the gang."""
    return list(_problems(spec))


def _problems(spec: TrainingRunSpec) -> Iterator[Problem]:
    program = spec.command[0].rpartition("/")[2]
    if program in _OF_ONE_NODE:
        words = f"launcher.type MPI runs {program} on rank 0 alone, where it starts the processes of one node"
        yield Problem("spec.command", f"{words}; put mpirun in front of the script, or leave launcher out")
    if spec.elastic is not None and program in _PROGRAMS:
        count = _count(spec.command[1:])
        if count:
            words = f"{count} asks for as many processes however many nodes are left; leave it out, and there is one"
            yield Problem("spec.command", f"{words} for each slot, or leave elastic out")


def _count(words: Sequence[str]) -> str:
    """The option by which mpirun is told how many processes there are. Empty: there is none in front of its program, or
    of what is not known here."""
    words = list(words)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        option = word.lstrip("-")
        if option in _COUNTS:
            return word
        if option in _WITH_A_VALUE:
            words = words[1:]
        elif option in _WITH_TWO:
            words = words[2:]
        elif option not in _FLAGS and "=" not in option:
            break
    return ""
