"""How the ranks of one node are started, one small module each.

What depends on the attempt (rank, address, port) is filled in by the worker at START; the core only says
what a launcher gets beforehand and which ranks decide how the run ends. For pods without a worker the core
fills it in, by the same rules: ``lockstep.worker.child.launch`` has them for the worker, which can import nothing.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol, cast

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.problems import Problem
from lockstep.core.pods.launchers import deepspeed, jax, mpi, plain, ray, slurm, torchrun
from lockstep.core.pods.launchers.rendezvous import Rendezvous


class Launcher(Protocol):
    """What every launcher module provides."""

    def options(self, spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
        """What the worker gets of it, as JSON."""

    def deciding_ranks(self, world_size: int) -> range:
        """The ranks whose exits decide the run's: it has succeeded when all of them ended with code 0."""

    def steps(self, spec: TrainingRunSpec) -> bool:
        """Whether programs of the gang may start others on its nodes, worker to worker."""

    def problems(self, spec: TrainingRunSpec) -> list[Problem]:
        """What in ``spec`` this launcher cannot work with, with the remedy."""


class PlainLauncher(Launcher, Protocol):
    """What a launcher provides besides that works without a worker."""

    def environment(self, rendezvous: Rendezvous) -> Mapping[str, str]:
        """The variables that make the framework find its peers, in a pod without a worker."""

    def command(self, spec: TrainingRunSpec, rendezvous: Rendezvous) -> Sequence[str]:
        """Entrypoint and command of such a pod."""


_MODULES: Mapping[str, ModuleType] = {
    "Plain": plain,
    "Torchrun": torchrun,
    "JAX": jax,
    "MPI": mpi,
    "DeepSpeed": deepspeed,
    "Slurm": slurm,
    "Ray": ray,
}
WITHOUT_WORKER = frozenset({"Plain", "Torchrun", "JAX"})
"""Launchers that need no worker."""
_WITH_TOKEN = frozenset({"Ray"})
"""Launchers whose programs take orders from whoever knows a secret: the workers of an attempt share one."""


def launcher_of(spec: TrainingRunSpec) -> Launcher:
    """The launcher that ``spec.launcher.type`` names."""
    return cast(Launcher, _MODULES[spec.launcher.type])


def plain_launcher_of(spec: TrainingRunSpec) -> PlainLauncher:
    """That of a gang without workers, by ``plain_rules`` one of those that need none."""
    name = spec.launcher.type
    return cast(PlainLauncher, _MODULES[name if name in WITHOUT_WORKER else "Plain"])


def others_stand_by(spec: TrainingRunSpec) -> bool:
    """The command is on rank 0 alone: what the other nodes run are its steps."""
    return launcher_of(spec).options(spec, 0).get("standsBy") is True


def command_of(spec: TrainingRunSpec) -> Sequence[str]:
    """What pods with a worker have as their command."""
    return (*spec.entrypoint, *(spec.command or slurm.COMMAND))


def has_token(spec: TrainingRunSpec | None) -> bool:
    """The workers of each attempt share a secret. Of a spec that cannot be read any more they may."""
    return spec is None or spec.launcher.type in _WITH_TOKEN


def takes_steps(spec: TrainingRunSpec | None) -> bool:
    """Each worker starts what others of the gang ask it for, and says at which port."""
    return spec is not None and launcher_of(spec).steps(spec)


def may_join(spec: TrainingRunSpec | None) -> bool:
    """Whether a node that is lost, but for rank 0's, is replaced while the attempt goes on without it."""
    if spec is None or spec.launcher.type != "Ray":
        return False
    return spec.launcher.ray is None or spec.launcher.ray.on_node_loss == "Join"


def worker_options(spec: TrainingRunSpec, gpus_per_node: int) -> Mapping[str, Any]:
    """All that the worker gets of the launcher, as JSON."""
    return {**launcher_of(spec).options(spec, gpus_per_node), **({"steps": True} if takes_steps(spec) else {})}
