"""What the queue has for runs that are made of flags: `spec.batch`, as `lockstep sbatch` takes it for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lockstep.api.base import names
from lockstep.cli.client import Cluster, Json, resource_path
from lockstep.cli.errors import ApiServerError
from lockstep.cli.submission.flags import Flags


def batch_of(cluster: Cluster, queue: str) -> Json:
    """Nothing where there is no such queue or it may not be read: that is for the operator to say, or nobody's wish."""
    path = resource_path(f"/apis/{names.API_VERSION}", None, names.QUEUES, queue)
    try:
        batch: Json = cluster.get(path)["spec"].get("batch") or {}
    except ApiServerError as error:
        if error.status not in (403, 404):
            raise
        return {}
    return batch


def with_image(flags: Flags, batch: Json) -> Flags:
    """The flags' own image, or the queue's."""
    return replace(flags, image=flags.image or batch.get("image"))


def put_into(manifest: Json, batch: Json) -> list[str]:
    """Add the queue's volumes and environment to a run, but for what has a name or a path of the run's own. What was
    added, in words."""
    spec = manifest["spec"]
    added = []
    for field, keys in (("volumes", ("name", "mountPath")), ("env", ("name",))):
        own: Sequence[Json] = spec.get(field) or ()
        taken = {(key, each.get(key)) for each in own for key in keys}
        more = [each for each in batch.get(field) or () if not any((key, each.get(key)) in taken for key in keys)]
        if more:
            spec[field] = [*own, *more]
            added += [f"{field.removesuffix('s')} {each['name']}" for each in more]
    return added
