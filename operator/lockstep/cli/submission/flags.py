"""The flags of `lockstep submit` that say what a run is and when it is to start, and what they make of a manifest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from lockstep.api.base import names
from lockstep.cli.client import Json
from lockstep.cli.errors import UsageError
from lockstep.cli.options import flag
from lockstep.cli.submission import array_manifests, slurm_syntax

_DEPENDENCIES = "afterok:RUN[:RUN], afterany, afternotok, after, singleton=WORD; of arrays aftercorr:NAME."


@dataclass(frozen=True, slots=True)
class Flags:
    """A run described on the command line, as with sbatch. None and empty: left out of the spec."""

    nodes: Annotated[int | None, flag("--nodes -N", "Whole nodes; 1 by default.", min=1)] = None
    image: Annotated[str | None, flag("--image", "Image of the training container.")] = None
    gpus_per_node: Annotated[int | None, flag("--gpus-per-node", "All by default.", min=0)] = None
    gpu_resource: Annotated[str | None, flag("--gpu-resource NAME", "E.g. amd.com/gpu.")] = None
    queue: Annotated[str | None, flag("--queue -q", "Queue to wait in.")] = None
    launcher: Annotated[
        Literal["Plain", "Torchrun", "JAX", "MPI", "DeepSpeed", "Ray"] | None,
        flag("--launcher", "How a node's processes start."),
    ] = None
    claim: Annotated[str | None, flag("--checkpoint-claim CLAIM", "Claim of the shared checkpoint tier.")] = None
    shm_size: Annotated[str | None, flag("--shm-size SIZE", "E.g. 200Gi.")] = None
    env: Annotated[list[str] | None, flag("--env NAME=VALUE", "May be repeated.")] = None
    only_nodes: Annotated[str | None, flag("--nodelist -w NODES", "Only these nodes, by comma.")] = None
    exclude_nodes: Annotated[str | None, flag("--exclude -x NODES", "Not these nodes, by comma.")] = None
    command: Sequence[str] = ()

    def manifest(self, name: str | None) -> Json:
        """The TrainingRun. Raises UsageError on a variable without a value."""
        placement = _said(nodes=_listed(self.only_nodes), excludeNodes=_listed(self.exclude_nodes))
        spec = _said(
            nodes=self.nodes or 1,
            image=self.image,
            command=list(self.command),
            gpusPerNode=self.gpus_per_node,
            gpuResource=self.gpu_resource,
            queue=self.queue,
            launcher=self.launcher and {"type": self.launcher},
            checkpoint=self.claim and {"shared": {"claimName": self.claim}},
            shmSize=self.shm_size,
            env=[_variable(assignment) for assignment in self.env or ()],
            placement=placement,
        )
        metadata = {"name": name} if name else {"generateName": f"{_stem(self.command)}-"}
        return {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": metadata, "spec": spec}


@dataclass(frozen=True, slots=True)
class Schedule:
    """When and in which order a run is to start, also beside a manifest. None and empty: as the manifest says."""

    time: Annotated[str | None, flag("--time -t TIME", "Time limit: 2h, or as in Slurm 90 or 1-12:00.")] = None
    time_min: Annotated[str | None, flag("--time-min TIME", "It may be cut to this, to start sooner.")] = None
    priority_class: Annotated[str | None, flag("--priority-class NAME")] = None
    nice: Annotated[int | None, flag("--nice", "Points of priority to give up.", min=0)] = None
    begin: Annotated[str | None, flag("--begin TIME", "Not before: 2026-12-01T08:00, 18:00, now+2h.")] = None
    deadline: Annotated[str | None, flag("--deadline TIME", "Only if its time limit ends before.")] = None
    dependency: Annotated[str | None, flag("--dependency -d LIST", _DEPENDENCIES)] = None
    hold: bool = False

    def fields(self, now: float) -> Json:
        """Fields of the spec. Raises UsageError on what means nothing."""
        return _said(
            timeLimit=self.time and slurm_syntax.time_limit("--time", self.time),
            minTimeLimit=self.time_min and slurm_syntax.time_limit("--time-min", self.time_min),
            priorityClassName=self.priority_class,
            nice=self.nice,
            notBefore=self.begin and slurm_syntax.moment("--begin", self.begin, now),
            deadline=self.deadline and slurm_syntax.moment("--deadline", self.deadline, now),
            **(slurm_syntax.dependencies(self.dependency) if self.dependency else {}),
            suspend=self.hold or None,
        )

    def put_into(self, manifest: Json, now: float) -> None:
        """Have ``manifest`` say so. One whose spec is none is left for others to refuse."""
        fields, spec = self.fields(now), manifest.get("spec") or {}
        if array_manifests.is_set(manifest):
            array_manifests.put_schedule(manifest, fields)
        elif fields and isinstance(spec, dict):
            manifest["spec"] = spec | fields


def _said(**fields: object) -> Json:
    """Those that are neither None nor empty."""
    return {field: value for field, value in fields.items() if value is not None and value not in ("", [], {})}


def _variable(assignment: str) -> Json:
    name, equals, value = assignment.partition("=")
    if not equals or not name:
        raise UsageError(f"--env {assignment} has no value", "write --env NAME=VALUE")
    return {"name": name, "value": value}


def _stem(command: Sequence[str]) -> str:
    """A name for people: that of the script, or of the program."""
    script = next((word for word in command if word.endswith((".py", ".sh"))), command[0])
    text = re.sub("[^a-z0-9]+", "-", Path(script).stem.lower()).strip("-")
    return text[: names.MAX_RUN_NAME - 6].strip("-") or "run"


def _listed(text: str | None) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()] if text else []
