"""`--code DIR`: a directory of code that the run mounts: in a ConfigMap that goes with it, or copied to a claim."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lockstep.api.base import names
from lockstep.cli.client import Cluster, Json, core_path
from lockstep.cli.errors import ApiServerError, CliError, UsageError
from lockstep.cli.output import note
from lockstep.cli.submission import claim_copies
from lockstep.cli.submission.array_manifests import is_set
from lockstep.cli.submission.packing import IN_A_CONFIG_MAP, ON_A_CLAIM, Packed, kilobytes, pack
from lockstep.core.pods.pod_template import items
from lockstep.present import code_maps
from lockstep.present.amounts import plural

MOUNT = "/code"
_NAMED = 8


@dataclass(slots=True)
class Sent:
    """Code that went along. ``needed``: what mounts it is there, may be, or can be made of a manifest that is kept.
    ``name``: of the ConfigMap that was made for it; empty: none was."""

    needed: bool = False
    name: str = ""


def tell(packed: Packed, directory: str) -> None:
    """Say what goes along and what does not."""
    size = sum(len(content) for _, content in packed.files)
    where = f"go to {packed.to.path} on claim {packed.to.claim}, which is" if packed.to else "are in"
    note(f"{plural(len(packed.files), 'file')} of {directory} ({kilobytes(size)}) {where} {MOUNT}, where it starts.")
    if packed.left_out:
        named = ", ".join(f"{name} ({why})" for name, why in packed.left_out[:_NAMED])
        more = f" and {len(packed.left_out) - _NAMED} more" if len(packed.left_out) > _NAMED else ""
        note(f"Left out: {named}{more}.")


def config_map(packed: Packed, stem: str) -> Json:
    """The object, with a name that the API server completes. Keys are numbers: paths are in the run."""
    data, binary = {}, {}
    for index, (_, content) in enumerate(packed.files):
        try:
            data[_key(index)] = content.decode("utf-8")
        except UnicodeDecodeError:
            binary[_key(index)] = base64.b64encode(content).decode("ascii")
    metadata = {"generateName": f"{stem}-code-", "labels": {code_maps.LABEL: "true"}}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        **({"data": data} if data else {}),
        **({"binaryData": binary} if binary else {}),
    }


def mount(spec: Json, packed: Packed, config_map_name: str) -> None:
    """Have a run's spec mount it, and start there unless it says where. What makes no sense is left for others to
    refuse."""
    if any(str(volume.get("mountPath")).rstrip("/") == MOUNT for volume in items(spec, "volumes")):
        raise UsageError(f"--code and --volume both want {MOUNT}", f"mount the volume elsewhere than {MOUNT}")
    if any(map(_has_its_name, items(spec, "volumes"))):
        words = f"--code mounts a volume called {names.CODE_VOLUME}, and spec.volumes has another one of that name"
        raise UsageError(words, "give that one another name")
    volume: Json = {"name": names.CODE_VOLUME, "mountPath": MOUNT}
    if packed.to is None:
        paths = [{"key": _key(index), "path": path} for index, (path, _) in enumerate(packed.files)]
        source = {"defaultMode": 0o555, "sources": [{"configMap": {"name": config_map_name, "items": paths}}]}
        volume["projected"] = source
    else:
        volume |= {"readOnly": True, "subPath": packed.to.path}
        volume["persistentVolumeClaim"] = {"claimName": packed.to.claim}
    volumes = spec.get("volumes") or []
    if isinstance(volumes, list):
        spec["volumes"] = [*volumes, volume]
    spec.setdefault("workingDir", MOUNT)


def packed_for(manifests: Sequence[Json], directory: str | None, claim: str | None = None) -> Packed | None:
    """What ``--code`` takes along, told and mounted in the one run that is to be created; None: nothing. With
    ``claim`` (``CLAIM[:PATH]``) it goes there."""
    if directory is None and claim is not None:
        raise UsageError("--code-claim says where code goes, and not which", "add --code DIR")
    if directory is None:
        return None
    wanted = claim_copies.wanted_place(claim) if claim is not None else None
    packed = pack(directory, IN_A_CONFIG_MAP if wanted is None else ON_A_CLAIM)
    for manifest in manifests:
        _forget(manifest)
        if wanted is not None:
            packed = replace(packed, to=claim_copies.destination(wanted, _stem(manifest), packed.files))
        mount(_run_spec(manifest), packed, _name_to_be(manifest))
    tell(packed, directory)
    return packed


def made_for(manifest: Json, packed: Packed | None) -> frozenset[str]:
    """ConfigMaps that it names, and that are created with it."""
    return frozenset() if packed is None or packed.to is not None else frozenset({_name_to_be(manifest)})


def shown_with(manifests: Sequence[Json], packed: Packed | None) -> list[Json]:
    """The object, as a manifest beside those that mount it."""
    if packed is not None and packed.to is not None:
        note("Nothing is copied by a dry run of the client: whoever creates it submits it with --code.")
    if packed is None or packed.to is not None:
        return []
    shown = config_map(packed, _stem(manifests[0]))
    shown["metadata"] = {"name": _name_to_be(manifests[0]), "labels": shown["metadata"]["labels"]}
    return [shown]


@contextlib.contextmanager
def sent_along(cluster: Cluster, manifest: Json, packed: Packed | None, *, dry_run: bool, keep: bool) -> Iterator[Sent]:
    """Create it before the run that is created inside, which mounts it by its name. It goes unless it is needed
    then. What is on a claim stays, where anything is to: the next such run finds it there."""
    sent = Sent()
    if packed is not None and packed.to is not None:
        below = _run_spec(manifest)
        claim_copies.refuse_unfit(cluster, packed.to.claim, 2 if is_set(manifest) else below.get("nodes", 1))
        if keep and not dry_run:
            claim_copies.copy(cluster, packed.files, packed.to, below, _stem(manifest))
    if packed is None or packed.to is not None:
        yield sent
        return
    name = sent.name = send(cluster, packed, _stem(manifest), dry_run=dry_run)
    spec = _run_spec(manifest)
    if isinstance(volumes := spec.get("volumes"), list):
        spec["volumes"] = [volume for volume in volumes if not _has_its_name(volume)]
    mount(spec, packed, name)
    try:
        yield sent
    except BaseException:
        if sent.needed:
            note(f"Its code stays in ConfigMap {name}; kubectl delete configmap {name} removes it if no run mounts it.")
        raise
    finally:
        if not sent.needed and not dry_run:
            discard(cluster, name)


Owners = list[tuple[str, list[Json]]]
"""Of ConfigMaps of code, by their paths."""


def hold_on_to(cluster: Cluster, manifest: Json, held: Owners) -> None:
    """Have the code that a manifest mounts outlive the run that is about to be deleted for it: nobody's until it is
    adopted. Whose it was is added to ``held``."""
    for name, path, raw in _carried(cluster, manifest):
        held.append((path, raw["metadata"].get("ownerReferences") or []))
        version = {"resourceVersion": raw["metadata"]["resourceVersion"]}
        try:
            cluster.merge_patch(path, {"metadata": {**version, "ownerReferences": []}})
        except ApiServerError as error:
            words = f"the code that it mounts, ConfigMap {name}, goes with the old run, and cannot be kept: {error}"
            raise CliError(words, "take it along anew with --code DIR, or give the new run another --name") from error


def give_back(cluster: Cluster, held: Owners, *, but: str = "") -> None:
    """Have code be theirs again whose it was, but of the one with this UID, which is gone. Where that may not be
    written it stays, which harms nobody."""
    for path, owners in held:
        with contextlib.suppress(CliError):
            metadata = cluster.get(path)["metadata"]
            found = metadata.get("ownerReferences") or []
            here = {but, *(owner["uid"] for owner in found)}
            if missing := [owner for owner in owners if owner["uid"] not in here]:
                version = {"resourceVersion": metadata["resourceVersion"]}
                cluster.merge_patch(path, {"metadata": {**version, "ownerReferences": [*found, *missing]}})


def _carried(cluster: Cluster, owner: Json) -> Iterator[tuple[str, str, Json]]:
    """Name, path and object of each ConfigMap of code that a manifest or object mounts, as far as it may be read."""
    namespace = owner["metadata"].get("namespace") or cluster.namespace
    for name in code_maps.mounted_by(owner):
        path = core_path(namespace, "configmaps", name)
        try:
            raw = cluster.get(path)
        except ApiServerError:
            continue
        if code_maps.is_code(raw):
            yield name, path, raw


def _forget(manifest: Json) -> None:
    """Code that went along before is replaced by what goes along now."""
    spec = _run_spec(manifest)
    if isinstance(volumes := spec.get("volumes"), list):
        spec["volumes"] = [volume for volume in volumes if not _is_carried(volume)]


def _is_carried(volume: object) -> bool:
    if not isinstance(volume, Mapping) or not _has_its_name(volume):
        return False
    copied = "persistentVolumeClaim" in volume and claim_copies.is_copy(str(volume.get("subPath")))
    return copied or any(code_maps.maps_of(volume))


def _has_its_name(volume: object) -> bool:
    return isinstance(volume, Mapping) and volume.get("name") == names.CODE_VOLUME


def _name_to_be(manifest: Json) -> str:
    return f"{_stem(manifest)}-code"


def _run_spec(manifest: Json) -> Json:
    """That of the run, or of the runs; of what is none an empty one, which nobody reads."""
    spec = manifest.get("spec")
    if is_set(manifest):
        template = spec.get("template") if isinstance(spec, dict) else None
        spec = template.get("spec") if isinstance(template, dict) else None
    return spec if isinstance(spec, dict) else {}


def _stem(manifest: Json) -> str:
    metadata = manifest["metadata"]
    name = metadata.get("name") or metadata.get("generateName")
    return (str(name)[:40].rstrip("-.") if isinstance(name, (str, int)) else "") or "run"


def send(cluster: Cluster, packed: Packed, stem: str, *, dry_run: bool) -> str:
    """Create it; its name."""
    query = {"dryRun": "All"} if dry_run else {}
    raw = cluster.create(core_path(cluster.namespace, "configmaps"), config_map(packed, stem), **query)
    name: str = raw["metadata"]["name"]
    return name


def discard(cluster: Cluster, name: str) -> None:
    """Nothing came of the run."""
    with contextlib.suppress(CliError):
        raw = cluster.get(core_path(cluster.namespace, "configmaps", name))
        cluster.delete(core_path(cluster.namespace, "configmaps", name), raw["metadata"]["uid"])


def is_question(owner: Json) -> bool:
    """It is there for a moment, to be answered when a run would start."""
    return names.ANNOTATION_TEST_ONLY in (owner["metadata"].get("annotations") or {})


def adopt(cluster: Cluster, owner: Json, sent: Sent) -> None:
    """Have the code that a new run or array mounts go once the last of those that mount it is gone. Where that may not
    be written it stays, which harms nobody. A run that only asks takes along what was ``sent`` with it: all else is
    another's, or nobody's until the run is made that it is kept for."""
    for name, path, raw in _carried(cluster, owner):
        if is_question(owner) and name != sent.name:
            continue
        with contextlib.suppress(CliError):
            cluster.merge_patch(path, code_maps.adoption(raw, owner))


def _key(index: int) -> str:
    return f"file-{index:03d}"
