"""Whether what a run names is there, by its user's own rights and before anything is created.

The operator looks as well, but for Secrets by default and for what is in them ever, and may list less. Where a right
is lacking nothing is said.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from pydantic import ValidationError

from lockstep.api.run_set import TrainingRunSetSpec
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.cli.client import Cluster, Json, core_path, resource_path
from lockstep.cli.errors import ApiServerError
from lockstep.cli.submission.array_manifests import is_set
from lockstep.core.model.named_objects import MissingObject, NamedObject, ObjectKind
from lockstep.core.model.near_names import MOST_COMPARED, nearest
from lockstep.core.pods.named_objects import absent_problems, named_objects

_AT_ONCE = 8
_STORAGE = "/apis/storage.k8s.io/v1"
_PLURALS = {
    ObjectKind.CLAIM: "persistentvolumeclaims",
    ObjectKind.CONFIG_MAP: "configmaps",
    ObjectKind.SECRET: "secrets",
    ObjectKind.SERVICE_ACCOUNT: "serviceaccounts",
    ObjectKind.STORAGE_CLASS: "storageclasses",
}


def missing_problems(cluster: Cluster, manifest: Json, made: Collection[str] = ()) -> list[tuple[str, str]]:
    """By field what is named and not there; nothing for a spec that does not parse. Raises Unreachable.

    ``made``: ConfigMaps that are created with it.
    """
    spec, above = _run_spec(manifest)
    found = named_objects(spec) if spec is not None else ()
    named = [each for each in found if each.kind is not ObjectKind.CONFIG_MAP or each.name not in made]
    if not named:
        return []
    namespace = cluster.namespace
    with ThreadPoolExecutor(min(_AT_ONCE, len(named))) as looking:
        missing = [each for each in looking.map(lambda each: _missing(cluster, each), named) if each is not None]
    return [
        (above + problem.field.removeprefix("spec"), problem.message) for problem in absent_problems(missing, namespace)
    ]


def _run_spec(manifest: Json) -> tuple[TrainingRunSpec | None, str]:
    try:
        if is_set(manifest):
            found = TrainingRunSetSpec.model_validate(manifest.get("spec") or {})
            return found.template.spec, "spec.template.spec"
        return TrainingRunSpec.model_validate(manifest.get("spec") or {}), "spec"
    except ValidationError:
        return None, "spec"


def _missing(cluster: Cluster, named: NamedObject) -> MissingObject | None:
    """None: it is there, or not for this user to see."""
    path = _path(cluster, named, named.name)
    try:
        if not named.key:
            cluster.metadata(path)
            return None
        found = cluster.get(path)
    except ApiServerError as error:
        gone = error.status == 404 and error.name == named.name and not named.key
        return MissingObject(named, _near(cluster, named)) if gone else None
    keys = sorted((found.get("data") or {}) | (found.get("binaryData") or {}))
    return None if named.key in keys else MissingObject(named, nearest(named.key, keys))


def _near(cluster: Cluster, named: NamedObject) -> tuple[str, ...]:
    try:
        found = cluster.metadata(_path(cluster, named), first=MOST_COMPARED).get("items") or []
    except ApiServerError:
        return ()
    return nearest(named.name, (item["metadata"]["name"] for item in found))


def _path(cluster: Cluster, named: NamedObject, name: str = "") -> str:
    plural = _PLURALS[named.kind]
    if named.kind is ObjectKind.STORAGE_CLASS:
        return resource_path(_STORAGE, None, plural, name)
    return core_path(cluster.namespace, plural, name)
