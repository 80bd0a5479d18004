"""What the queue has for runs: limits, and for those that are made of flags `spec.batch`, as `lockstep sbatch` takes it
for scripts."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import replace

from pydantic import ValidationError

from lockstep.api.base import names
from lockstep.api.queue import QueueLimits
from lockstep.cli.client import Cluster, Json, resource_path
from lockstep.cli.errors import ApiServerError, CliError
from lockstep.cli.submission.array_manifests import is_set
from lockstep.cli.submission.flags import Flags

_STARTED_BY = {
    "torchrun": "Plain",
    "accelerate": "Plain",
    "mpirun": "MPI",
    "mpiexec": "MPI",
    "mpiexec.hydra": "MPI",
    "deepspeed": "DeepSpeed",
}
"""The launcher under which such a command works as typed."""
_WORDS = {"claim": "checkpoint claim"}


def batch_of(cluster: Cluster, queue: str) -> Json:
    """Nothing where there is no such queue or it may not be read: that is for the operator to say, or nobody's wish."""
    try:
        return _section(cluster, queue, "batch")
    except ApiServerError as error:
        if error.status not in (403, 404):
            raise
        return {}


def limits_of(cluster: Cluster, queue: str) -> QueueLimits:
    """None where they cannot be read: what is said of them is said beside something else."""
    try:
        return QueueLimits.model_validate(_section(cluster, queue, "limits"))
    except (CliError, ValidationError):
        return QueueLimits()


def _section(cluster: Cluster, queue: str, name: str) -> Json:
    path = resource_path(f"/apis/{names.API_VERSION}", None, names.QUEUES, queue)
    section: Json = cluster.get(path).get("spec", {}).get(name) or {}
    return section


def filled(flags: Flags, command: Sequence[str], batch: Json, *, has_origin: bool) -> tuple[Flags, list[str]]:
    """The flags, with the queue's image, launcher and checkpoint claim where they name none, and what was added, in
    words. A command that is a launcher itself gets no other; with ``has_origin`` the checkpoints are where those are
    that the run starts from."""
    program = posixpath.basename(command[0]) if command else ""
    launcher, claim = batch.get("launcher"), batch.get("checkpointClaim")
    defaults = {
        "image": batch.get("image"),
        "launcher": launcher if _STARTED_BY.get(program, launcher) == launcher else None,
        "claim": None if has_origin else claim,
    }
    added = {field: value for field, value in defaults.items() if value and not getattr(flags, field)}
    made = replace(
        flags,
        image=added.get("image", flags.image),
        launcher=added.get("launcher", flags.launcher),
        claim=added.get("claim", flags.claim),
    )
    return made, [f"{_WORDS.get(field, field)} {value}" for field, value in added.items()]


def put_into(manifest: Json, batch: Json) -> list[str]:
    """Add the queue's volumes and environment to a run, or to each run of an array, but for what has a name or a path
    of the run's own. What was added, in words."""
    spec = manifest["spec"]["template"]["spec"] if is_set(manifest) else manifest["spec"]
    added = []
    for field, keys in (("volumes", ("name", "mountPath")), ("env", ("name",))):
        own: Sequence[Json] = spec.get(field) or ()
        taken = {(key, each.get(key)) for each in own for key in keys}
        more = [each for each in batch.get(field) or () if not any((key, each.get(key)) in taken for key in keys)]
        if more:
            spec[field] = [*own, *more]
            added += [f"{field.removesuffix('s')} {each['name']}" for each in more]
    return added
