"""Manifests of arrays, as `lockstep submit --array 0-99%8` makes them of a run's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lockstep.api.base import names
from lockstep.api.base.indices import parse_indices
from lockstep.cli.client import Json
from lockstep.cli.errors import UsageError

_GENERATED = 6  # a dash and what the API server puts behind a generateName


def is_run(document: object) -> bool:
    """Whether it is the manifest of a run."""
    return _is_a(names.RUN_KIND, document)


def is_set(document: object) -> bool:
    """Whether it is the manifest of a set."""
    return _is_a(names.RUN_SET_KIND, document)


def _is_a(kind: str, document: object) -> bool:
    said = isinstance(document, dict) and (document.get("kind"), document.get("apiVersion"))
    return said == (kind, names.API_VERSION)


def called(manifest: Json) -> str:
    """The name it has, or the beginning of the one that it will have."""
    metadata = manifest["metadata"]
    name = metadata.get("name") or metadata.get("generateName")
    return str(name).rstrip("-") if isinstance(name, (str, int)) and name else "the run"


def wrapped(manifest: Json, array: str) -> Json:
    """The set that gives every index of ``array`` (``0-99%8``) a run like ``manifest``. Raises UsageError."""
    indices, percent, width = array.partition("%")
    if percent and not width.isdecimal():
        raise UsageError(f"--array {array} has no width behind the %", "write --array 0-99%8")
    if percent and not int(width):  # no limit to Slurm, and no start to maxRunning
        raise UsageError(f"--array {array} would let nothing start", f"--array {indices} has no width; -H holds it")
    try:
        parse_indices(indices)
    except ValueError as error:
        raise UsageError(f"--array {error}") from error
    spec, metadata = dict(manifest.get("spec") or {}), dict(manifest["metadata"])
    if "generateName" in metadata:
        metadata["generateName"] = (
            f"{str(metadata['generateName'])[: names.MAX_RUN_SET_NAME - _GENERATED].rstrip('-')}-"
        )
    theirs = {key: text for key, text in (metadata.get("annotations") or {}).items() if not _is_ours(key)}
    both = {"labels": metadata.get("labels") or {}, "annotations": theirs}
    template = {"metadata": {part: text for part, text in both.items() if text}, "spec": spec}
    ours: Json = {"indices": indices, **({"maxRunning": int(width)} if percent else {})}
    for field in ("afterCorr", "suspend"):
        if field in spec:
            ours[field] = spec.pop(field)
    if "afterCorr" in ours and spec.get("onUnsatisfiable") == "Fail":  # of the runs it goes on to say it of dependsOn
        ours["onUnsatisfiable"] = "Cancel"
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_SET_KIND,
        "metadata": metadata,
        "spec": {**ours, "template": {part: value for part, value in template.items() if value}},
    }


def put_fields(manifest: Json, fields: Mapping[str, object], merge: Callable[[Json, Json], Json]) -> None:
    """Have the manifest of a set say what flags say of a run: ``merge`` lays them over a run's spec."""
    spec = manifest.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    inner = (template.get("spec") or {}) if isinstance(template, dict) else None
    if not fields or not isinstance(spec, dict) or not isinstance(template, dict) or not isinstance(inner, dict):
        return
    ours = {field: value for field, value in fields.items() if field in ("afterCorr", "suspend")}
    theirs = {field: value for field, value in fields.items() if field not in ours}
    manifest["spec"] = spec | ours | {"template": template | {"spec": merge(inner, theirs)}}


def stop_on_failure(manifest: Json) -> None:
    """Have a set give up what waits, once an index has failed."""
    spec = manifest.get("spec")
    if isinstance(spec, dict):
        spec.setdefault("stopOnFailure", {"failures": 1})


def refuse_outside_of_arrays(manifest: Json) -> None:
    """A single run comes after no array."""
    spec = manifest.get("spec")
    if isinstance(spec, dict) and "afterCorr" in spec:
        raise UsageError("--dependency aftercorr is for arrays", "add --array, or write afterok:RUN for one run")


def _is_ours(key: str) -> bool:
    return key.startswith(f"{names.GROUP}/")
