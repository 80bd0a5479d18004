"""The flags of `lockstep submit` that say what a run is and when it is to start, and what they make of a manifest."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from lockstep.api.base import names
from lockstep.cli.client import Json
from lockstep.cli.errors import UsageError
from lockstep.cli.options import ObjectOutput, flag
from lockstep.cli.submission import array_manifests, slurm_syntax
from lockstep.slurm import hostlist

INTERPRETERS = {".sh": "bash", ".bash": "bash", ".py": "python"}
"""What runs a script, by its suffix."""
_LISTS = {"env": "name", "volumes": "mountPath"}
_NODE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_DEPENDENCIES = "afterok:RUN[:RUN], afterany, afternotok, after, singleton=WORD; of arrays aftercorr:NAME."


@dataclass(frozen=True, slots=True)
class Flags:
    """A run described on the command line, as with sbatch. None and empty: left out of the spec."""

    nodes: Annotated[int | None, flag("--nodes -N", "Whole nodes; 1 where nothing else says it.", min=1)] = None
    image: Annotated[str | None, flag("--image", "Image of the training container.")] = None
    gpus_per_node: Annotated[int | None, flag("--gpus-per-node", "All where nothing else says it.", min=0)] = None
    gpu_resource: Annotated[str | None, flag("--gpu-resource NAME", "E.g. amd.com/gpu.")] = None
    queue: Annotated[str | None, flag("--queue -q", "Queue to wait in.")] = None
    launcher: Annotated[
        Literal["Plain", "Torchrun", "JAX", "MPI", "DeepSpeed", "Ray"] | None,
        flag("--launcher", "How a node's processes start."),
    ] = None
    gpu_type: Annotated[str | None, flag("--gpu-type TYPE", "E.g. H100; several by comma, the first that fits.")] = None
    claim: Annotated[str | None, flag("--checkpoint-claim CLAIM", "Claim of the shared checkpoint tier.")] = None
    checkpoint_format: Annotated[
        Literal[
            "Auto", "Manifest", "TorchDCP", "Megatron", "DeepSpeed", "HuggingFace", "Lightning", "NeMo", "Orbax",
            "Accelerate", "Torch", "RayTrain",
        ]
        | None,
        flag("--checkpoint-format", "Who writes the checkpoints."),
    ] = None  # fmt: skip
    volumes: Annotated[list[str] | None, flag("--volume CLAIM:PATH[:ro]", "Mount a claim; may be repeated.")] = None
    code: Annotated[str | None, flag("--code DIR", "Take a directory along, to /code, and start there.")] = None
    code_claim: Annotated[
        str | None, flag("--code-claim CLAIM[:PATH]", "Have --code copied to a claim: up to 30 MB, not 1 MB.")
    ] = None
    workdir: Annotated[str | None, flag("--workdir PATH", "Where the command starts, in the container.")] = None
    shm_size: Annotated[str | None, flag("--shm-size SIZE", "E.g. 200Gi.")] = None
    env: Annotated[list[str] | None, flag("--env NAME=VALUE", "May be repeated.")] = None
    only_nodes: Annotated[str | None, flag("--nodelist -w NODES", "Only these nodes: n1,n2 or n[1-3,7].")] = None
    exclude_nodes: Annotated[str | None, flag("--exclude -x NODES", "Not these nodes: n1,n2 or n[1-3,7].")] = None
    command: Sequence[str] = ()

    def manifest(self, name: str | None) -> Json:
        """The TrainingRun. Raises UsageError as ``fields`` does."""
        if self.checkpoint_format and not self.claim:
            raise UsageError(
                "--checkpoint-format says how checkpoints look, and not where they are", "add --checkpoint-claim CLAIM"
            )
        spec = {"nodes": self.nodes or 1} | self.fields()
        metadata = {"name": name} if name else {"generateName": f"{_stem(self.command)}-"}
        return {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": metadata, "spec": spec}

    def fields(self) -> Json:
        """Fields of the spec, as far as they are said. Raises UsageError on what means nothing."""
        placement = _said(
            gpuTypes=_listed(self.gpu_type),
            nodes=_nodes("--nodelist", self.only_nodes),
            excludeNodes=_nodes("--exclude", self.exclude_nodes),
        )
        shared = _said(claimName=self.claim)
        return _said(
            nodes=self.nodes,
            image=self.image,
            command=run_by_its_interpreter(self.command, self.launcher),
            gpusPerNode=self.gpus_per_node,
            gpuResource=self.gpu_resource,
            queue=self.queue,
            launcher=self.launcher and {"type": self.launcher},
            checkpoint=_said(shared=shared, format=self.checkpoint_format),
            shmSize=self.shm_size,
            env=[_variable(assignment) for assignment in self.env or ()],
            volumes=mounted(self.volumes or ()),
            workingDir=self.workdir,
            placement=placement,
        )


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
    on_time_limit: Annotated[
        Literal["Fail", "Requeue"] | None, flag("--on-time-limit", "After the save at its limit: end, or queue again.")
    ] = None
    requeue: Annotated[bool, flag("--requeue", "The same as --on-time-limit Requeue.")] = False
    hold: Annotated[bool, flag("--hold -H", "Wait until it is released.")] = False

    def fields(self, now: float) -> Json:
        """Fields of the spec. Raises UsageError on what means nothing."""
        if self.requeue and self.on_time_limit == "Fail":
            raise UsageError("--requeue and --on-time-limit Fail contradict each other", "leave one of them out")
        action = "Requeue" if self.requeue else self.on_time_limit
        return _said(
            onTimeLimit=action and {"action": action},
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
            array_manifests.put_fields(manifest, fields, laid_over)
        elif fields and isinstance(spec, dict):
            manifest["spec"] = laid_over(spec, fields)


@dataclass(frozen=True, slots=True)
class Creation:
    """Whether runs are created or only asked about, and whether their end is waited for."""

    test_only: Annotated[bool, flag("--test-only", "Dry run: when and where it would start.")] = False
    wait: Annotated[bool, flag("--wait", "Stay until the end; fail unless it succeeds.")] = False
    no_wait: Annotated[bool, flag("--no-wait", "Create it whatever it lacks; don't see for 2 s what comes of it.")] = (
        False
    )
    dry_run: Annotated[
        Literal["none", "client", "server"], flag("--dry-run", "client prints the manifest; server asks.")
    ] = "none"
    output: ObjectOutput = "name"

    def check(self, flags: Flags, schedule: Schedule) -> None:
        """Raise UsageError where flags contradict each other or mean nothing, before any cluster is asked."""
        flags.fields()
        schedule.fields(time.time())
        if self.wait and self.no_wait:
            raise UsageError("--wait stays until the end, --no-wait not at all: leave one of them out")
        if self.test_only and (self.wait or self.dry_run != "none"):
            raise UsageError("--test-only starts nothing: leave --wait and --dry-run out")

    @property
    def asks_server(self) -> bool:
        """Whether the API server is only asked."""
        return self.dry_run == "server"

    @property
    def done(self) -> str:
        """What was done, in words."""
        return "created (server dry run)" if self.asks_server else "created"


def laid_over(spec: Json, fields: Json) -> Json:
    """``spec``, where it does not say otherwise than ``fields``: objects by their fields, variables by their names,
    volumes by their paths."""
    made = dict(spec)
    for field, value in fields.items():
        mine = made.get(field)
        by = _LISTS.get(field)
        if field == "launcher" and isinstance(mine, dict) and mine.get("type") != value["type"]:
            made[field] = value
        elif isinstance(mine, dict) and isinstance(value, dict):
            made[field] = laid_over(mine, value)
        elif isinstance(mine, list) and by is not None:
            said = {item[by] for item in value}
            made[field] = [*(item for item in mine if not (isinstance(item, dict) and item.get(by) in said)), *value]
        else:
            made[field] = value
    return made


def mounted(volumes: Sequence[str]) -> list[Json]:
    """``CLAIM:PATH[:ro]`` as volumes. Raises UsageError."""
    made: list[Json] = []
    for text in volumes:
        claim, _, rest = text.partition(":")
        path, _, mode = rest.partition(":")
        if claim.startswith("/"):
            raise UsageError(
                f"--volume {text}: a path of the nodes is not mounted by a flag",
                "name a claim, as kubectl get pvc lists them; hostPath goes into a manifest, where policy allows it",
            )
        if not claim or not path.startswith("/") or mode not in ("", "ro", "rw"):
            raise UsageError(f"--volume {text} is no claim and path", "write CLAIM:/data, or CLAIM:/data:ro")
        name = re.sub("[^a-z0-9]+", "-", claim.lower()).strip("-")[:48].strip("-") or "claim"
        name = f"claim-{name}" if name.startswith("lockstep") or name == names.CODE_VOLUME else name
        taken = {volume["name"] for volume in made}
        name = name if name not in taken else f"{name}-{len(made) + 1}"
        volume: Json = {"name": name, "mountPath": path, "persistentVolumeClaim": {"claimName": claim}}
        made.append({**volume, **({"readOnly": True} if mode == "ro" else {})})
    return made


def run_by_its_interpreter(command: Sequence[str], launcher: str | None) -> list[str]:
    """A script that stands where a program has to, as no shell looks for it: ``job.sh`` is ``bash job.sh``. Launchers
    that take scripts get them as they are."""
    words = list(command)
    first = words[0] if words else ""
    if first.startswith("/") or launcher in ("Torchrun", "DeepSpeed", "MPI"):
        return words
    interpreter = INTERPRETERS.get(Path(first).suffix)
    return [interpreter, *words] if interpreter else words


def _said(**fields: object) -> Json:
    """Those that are neither None nor empty."""
    return {field: value for field, value in fields.items() if value is not None and value not in ("", [], {})}


def _variable(assignment: str) -> Json:
    name, equals, value = assignment.partition("=")
    if not equals or not name:
        raise UsageError(f"--env {assignment} has no {'value' if name else 'name'}", "write --env NAME=VALUE")
    return {"name": name, "value": value}


def _stem(command: Sequence[str]) -> str:
    """A name for people: that of the script, or of the program."""
    script = next((word for word in command if word.endswith((".py", ".sh"))), command[0])
    text = re.sub("[^a-z0-9]+", "-", Path(script).stem.lower()).strip("-")
    return text[: names.MAX_RUN_NAME - 6].strip("-") or "run"


def _nodes(flag: str, text: str | None) -> list[str]:
    """Nodes as Slurm and ``lockstep queue`` write them. Raises UsageError on what names none, and would choose none."""
    try:
        found = hostlist.expand(text or "")
    except ValueError as error:
        raise UsageError(f"{flag} {text}: {error}", "write n1,n2 or n[1-3,7]") from error
    wrong = next((name for name in found if not _NODE.fullmatch(name)), None)
    if wrong is not None:
        raise UsageError(f"{flag} {text}: {wrong} is no name of a node", "write n1,n2 or n[1-3,7]; kubectl get nodes")
    return [*dict.fromkeys(found)]


def _listed(text: str | None) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()] if text else []
