"""The flags of `lockstep submit` that say what a run is and when it is to start, and what they make of a manifest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from lockstep.api.base import names
from lockstep.cli.client import Json
from lockstep.cli.errors import UsageError
from lockstep.cli.submission import array_manifests, slurm_syntax


@dataclass(frozen=True, slots=True)
class Flags:
    """A run described on the command line, as with sbatch. None and empty: left out of the spec."""

    nodes: Annotated[int | None, typer.Option("--nodes", "-N", min=1, help="Whole nodes; 1 by default.")] = None
    image: Annotated[str | None, typer.Option("--image", help="Image of the training container.")] = None
    gpus_per_node: Annotated[int | None, typer.Option("--gpus-per-node", min=0, help="All by default.")] = None
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Queue to wait in.")] = None
    launcher: Annotated[
        Literal["Plain", "Torchrun", "JAX"] | None, typer.Option("--launcher", help="How a node's processes start.")
    ] = None
    claim: Annotated[
        str | None, typer.Option("--checkpoint-claim", metavar="CLAIM", help="Claim of the shared checkpoint tier.")
    ] = None
    shm_size: Annotated[str | None, typer.Option("--shm-size", metavar="SIZE", help="E.g. 200Gi.")] = None
    env: Annotated[list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="May be repeated.")] = None
    only_nodes: Annotated[
        str | None, typer.Option("--nodelist", "-w", metavar="NODES", help="Only these nodes, by comma.")
    ] = None
    exclude_nodes: Annotated[
        str | None, typer.Option("--exclude", "-x", metavar="NODES", help="Not these nodes, by comma.")
    ] = None
    command: Sequence[str] = ()

    def manifest(self, name: str | None) -> Json:
        """The TrainingRun. Raises UsageError on a variable without a value."""
        spec: Json = {"nodes": self.nodes or 1, "image": self.image, "command": list(self.command)}
        if self.gpus_per_node is not None:
            spec["gpusPerNode"] = self.gpus_per_node
        if self.queue:
            spec["queue"] = self.queue
        if self.launcher:
            spec["launcher"] = {"type": self.launcher}
        if self.claim:
            spec["checkpoint"] = {"shared": {"claimName": self.claim}}
        if self.shm_size:
            spec["shmSize"] = self.shm_size
        if self.env:
            spec["env"] = [_variable(assignment) for assignment in self.env]
        placement = {"nodes": _listed(self.only_nodes), "excludeNodes": _listed(self.exclude_nodes)}
        if any(placement.values()):
            spec["placement"] = {field: named for field, named in placement.items() if named}
        metadata = {"name": name} if name else {"generateName": f"{_stem(self.command)}-"}
        return {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": metadata, "spec": spec}


@dataclass(frozen=True, slots=True)
class Schedule:
    """When and in which order a run is to start, also beside a manifest. None and empty: as the manifest says."""

    time: Annotated[
        str | None, typer.Option("--time", "-t", metavar="TIME", help="Time limit: 2h, or as in Slurm 90 or 1-12:00.")
    ] = None
    time_min: Annotated[
        str | None, typer.Option("--time-min", metavar="TIME", help="It may be cut to this, to start sooner.")
    ] = None
    priority_class: Annotated[str | None, typer.Option("--priority-class", metavar="NAME")] = None
    nice: Annotated[int | None, typer.Option("--nice", min=0, help="Points of priority to give up.")] = None
    begin: Annotated[
        str | None, typer.Option("--begin", metavar="TIME", help="Not before: 2026-12-01T08:00, 18:00, now+2h.")
    ] = None
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="Only if its time limit ends before.")
    ] = None
    dependency: Annotated[
        str | None,
        typer.Option(
            "--dependency",
            "-d",
            metavar="LIST",
            help="afterok:RUN[:RUN], afterany, afternotok, after, singleton=WORD; of arrays aftercorr:NAME.",
        ),
    ] = None
    hold: bool = False

    def fields(self, now: float) -> Json:
        """Fields of the spec. Raises UsageError on what means nothing."""
        found: Json = {}
        for flag, field, text in (
            ("--time", "timeLimit", self.time),
            ("--time-min", "minTimeLimit", self.time_min),
        ):
            if text:
                found[field] = slurm_syntax.time_limit(flag, text)
        if self.priority_class:
            found["priorityClassName"] = self.priority_class
        if self.nice is not None:
            found["nice"] = self.nice
        for flag, field, text in (("--begin", "notBefore", self.begin), ("--deadline", "deadline", self.deadline)):
            if text:
                found[field] = slurm_syntax.moment(flag, text, now)
        if self.dependency:
            found |= slurm_syntax.dependencies(self.dependency)
        if self.hold:
            found["suspend"] = True
        return found

    def put_into(self, manifest: Json, now: float) -> None:
        """Have ``manifest`` say so. One whose spec is none is left for others to refuse."""
        fields, spec = self.fields(now), manifest.get("spec") or {}
        if array_manifests.is_set(manifest):
            array_manifests.put_schedule(manifest, fields)
        elif fields and isinstance(spec, dict):
            manifest["spec"] = spec | fields


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
