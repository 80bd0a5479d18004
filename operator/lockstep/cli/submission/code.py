"""`lockstep submit --code DIR`: a directory of code in a ConfigMap that the run mounts, and that goes with it."""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.api.base import names
from lockstep.cli.client import Cluster, Json, core_path
from lockstep.cli.errors import ApiServerError, CliError, UsageError
from lockstep.cli.output import note
from lockstep.present.amounts import plural

MOUNT = "/code"
MOST_BYTES, MOST_FILES, MOST_SEEN = 1_000_000, 500, 20_000
"""A ConfigMap holds 1 MiB; each file has a line in the run; a home directory is none of a program."""
MOST_PATH = 512
LABEL = f"{names.GROUP}/code"
_VOLUME = "code"
_SOURCE = (
    ".py", ".pyi", ".sh", ".bash", ".toml", ".cfg", ".ini", ".yaml", ".yml", ".json", ".jsonl", ".txt", ".md", ".c",
    ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".jinja",
)  # fmt: skip
_SKIPPED = ("__pycache__", "node_modules", "venv", "site-packages", "wandb", "mlruns", "lightning_logs")
_NAMED = 8
_CODE_MAP = re.compile(r"[a-z0-9][-a-z0-9.]*-code-[a-z0-9]{5}")


@dataclass(frozen=True, slots=True)
class Packed:
    """What goes along, by its path below the directory, and what does not, with the reason."""

    files: Sequence[tuple[str, bytes]]
    left_out: Sequence[tuple[str, str]]


def pack(directory: str) -> Packed:
    """Sources first, then whatever else there is room for, the smallest first. Raises CliError where the sources alone
    are too large, and on what is no directory."""
    root = Path(directory)
    if not root.is_dir():
        raise UsageError(f"--code {directory} is no directory", "name the one that has your program, e.g. --code .")
    found: list[tuple[str, Path]] = []
    left_out: list[tuple[str, str]] = []
    for path, why in _walk(root):
        relative = path.relative_to(root).as_posix()
        if len(found) + len(left_out) >= MOST_SEEN:
            raise CliError(f"--code {directory} has more than {MOST_SEEN} files", "name the directory of your program")
        if why:
            left_out.append((relative, why))
        else:
            found.append((relative, path))
    taken: list[tuple[str, bytes]] = []
    room = MOST_BYTES
    for is_source in (True, False):
        kind = [pair for pair in found if (pair[1].suffix in _SOURCE) is is_source]
        sizes = sorted((_size(path), relative, path) for relative, path in kind)
        for size, relative, path in sizes:
            if size > room or len(taken) >= MOST_FILES:
                left_out.append((relative, f"{_kilobytes(size)}, too large"))
                continue
            content = _read(path)
            room -= len(content)
            taken.append((relative, content))
        missing = [relative for _, relative, _ in sizes if relative not in {name for name, _ in taken}]
        if is_source and missing:
            raise CliError(
                f"--code {directory}: {plural(len(sizes), 'source file')} of {_kilobytes(sum(s for s, _, _ in sizes))} "
                f"are more than a ConfigMap holds ({MOST_FILES} files, {_kilobytes(MOST_BYTES)}), e.g. {missing[-1]}",
                "have it in the image or on a claim: kubectl cp it there, then --volume CLAIM:/code --workdir /code",
            )
    if not taken:
        raise CliError(f"--code {directory} holds no file that could go along", "name the directory of your program")
    return Packed(sorted(taken), sorted(left_out))


def tell(packed: Packed, directory: str) -> None:
    """Say what goes along and what does not."""
    size = sum(len(content) for _, content in packed.files)
    note(f"{plural(len(packed.files), 'file')} of {directory} ({_kilobytes(size)}) are in {MOUNT}, where it starts.")
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
    metadata = {"generateName": f"{stem}-code-", "labels": {LABEL: "true"}}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        **({"data": data} if data else {}),
        **({"binaryData": binary} if binary else {}),
    }


def mount(spec: Json, packed: Packed, config_map_name: str) -> None:
    """Have a run's spec mount it, and start there unless it says where."""
    items = [{"key": _key(index), "path": path} for index, (path, _) in enumerate(packed.files)]
    source = {"defaultMode": 0o555, "sources": [{"configMap": {"name": config_map_name, "items": items}}]}
    taken = [volume for volume in spec.get("volumes") or () if volume.get("mountPath", "").rstrip("/") == MOUNT]
    if taken:
        raise UsageError(f"--code and --volume both want {MOUNT}", f"mount the volume elsewhere than {MOUNT}")
    volume = {"name": _VOLUME, "mountPath": MOUNT, "projected": source}
    spec["volumes"] = [*(spec.get("volumes") or ()), volume]
    spec.setdefault("workingDir", MOUNT)


def packed_for(manifests: Sequence[Json], directory: str | None) -> Packed | None:
    """What ``--code`` takes along, told and mounted in the one run that is to be created; None: nothing."""
    if directory is None:
        return None
    packed = pack(directory)
    for manifest in manifests:
        _forget(manifest)
        mount(_run_spec(manifest), packed, _name_to_be(manifest))
    tell(packed, directory)
    return packed


def made_for(manifest: Json, packed: Packed | None) -> frozenset[str]:
    """ConfigMaps that it names, and that are created with it."""
    return frozenset() if packed is None else frozenset({_name_to_be(manifest)})


def shown_with(manifests: Sequence[Json], packed: Packed | None) -> list[Json]:
    """The object, as a manifest beside those that mount it."""
    if packed is None:
        return []
    shown = config_map(packed, _stem(manifests[0]))
    shown["metadata"] = {"name": _name_to_be(manifests[0]), "labels": shown["metadata"]["labels"]}
    return [shown]


@contextlib.contextmanager
def sent_along(cluster: Cluster, manifest: Json, packed: Packed | None, *, dry_run: bool, keep: bool) -> Iterator[None]:
    """Create it before the run that is created inside, which mounts it by its name. It goes where nothing comes of
    that, or nothing is to stay."""
    if packed is None:
        yield
        return
    name = send(cluster, packed, _stem(manifest), dry_run=dry_run)
    spec = _run_spec(manifest)
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] != _VOLUME]
    mount(spec, packed, name)
    try:
        yield
    except BaseException:
        discard(cluster, name)
        raise
    if not keep:
        discard(cluster, name)


def hold_on_to(cluster: Cluster, manifest: Json) -> None:
    """Have the code that a manifest mounts outlive the run that is about to be deleted for it: nobody's until it is
    adopted."""
    for name, path, raw in _carried(cluster, manifest):
        version = {"resourceVersion": raw["metadata"]["resourceVersion"]}
        try:
            cluster.merge_patch(path, {"metadata": {**version, "ownerReferences": []}})
        except ApiServerError as error:
            words = f"the code that it mounts, ConfigMap {name}, goes with the old run, and cannot be kept: {error}"
            raise CliError(words, "take it along anew with --code DIR, or give the new run another --name") from error


def _carried(cluster: Cluster, owner: Json) -> Iterator[tuple[str, str, Json]]:
    """Name, path and object of each ConfigMap of code that a manifest or object mounts, as far as it may be read."""
    namespace = owner["metadata"].get("namespace") or cluster.namespace
    for name in _names_in(owner):
        path = core_path(namespace, "configmaps", name)
        try:
            raw = cluster.get(path)
        except ApiServerError:
            continue
        if (raw["metadata"].get("labels") or {}).get(LABEL) == "true":
            yield name, path, raw


def _forget(manifest: Json) -> None:
    """Code that went along before is replaced by what goes along now."""
    spec, before = _run_spec(manifest), {*_names_in(manifest)}
    if before:
        spec["volumes"] = [volume for volume in spec["volumes"] if volume.get("name") != _VOLUME]


def _name_to_be(manifest: Json) -> str:
    return f"{_stem(manifest)}-code"


def _run_spec(manifest: Json) -> Json:
    spec: Json = manifest["spec"]
    below: Json = spec["template"]["spec"] if "template" in spec else spec
    return below


def _stem(manifest: Json) -> str:
    metadata = manifest["metadata"]
    stem: str = metadata.get("name") or metadata.get("generateName", "").rstrip("-") or "run"
    return stem[:40].rstrip("-.")


def send(cluster: Cluster, packed: Packed, stem: str, *, dry_run: bool) -> str:
    """Create it; its name."""
    query = {"dryRun": "All"} if dry_run else {}
    raw = cluster.create(core_path(cluster.namespace, "configmaps"), config_map(packed, stem), **query)
    name: str = raw["metadata"]["name"]
    return name


def discard(cluster: Cluster, name: str) -> None:
    """Nothing came of the run."""
    with contextlib.suppress(ApiServerError):
        raw = cluster.get(core_path(cluster.namespace, "configmaps", name))
        cluster.delete(core_path(cluster.namespace, "configmaps", name), raw["metadata"]["uid"])


def adopt(cluster: Cluster, owner: Json) -> None:
    """Have the code that a new run or array mounts go once the last of those that mount it is gone. Where that may not
    be written it stays, which harms nobody. A run that only asks leaves what is another's as it is."""
    asks = names.ANNOTATION_TEST_ONLY in (owner["metadata"].get("annotations") or {})
    for _, path, raw in _carried(cluster, owner):
        owners, about = raw["metadata"].get("ownerReferences") or [], owner["metadata"]
        if asks and owners:
            continue
        mine = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": about["name"], "uid": about["uid"]}
        version = {"resourceVersion": raw["metadata"]["resourceVersion"]}
        with contextlib.suppress(CliError):
            cluster.merge_patch(path, {"metadata": {**version, "ownerReferences": [*owners, mine]}})


def _names_in(owner: Json) -> Iterator[str]:
    spec = owner.get("spec") or {}
    if "template" in spec:
        spec = (spec["template"] or {}).get("spec") or {}
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            name = (source.get("configMap") or {}).get("name", "")
            if volume.get("name") == _VOLUME and _CODE_MAP.fullmatch(name):
                yield name


def _walk(root: Path) -> Iterator[tuple[Path, str]]:
    """Files, each with why it stays behind; directories that stay behind as one."""
    for place, directories, files in os.walk(root):
        kept = []
        for name in sorted(directories):
            path = Path(place) / name
            if name.startswith(".") or name in _SKIPPED or name.endswith(".egg-info"):
                yield path, "is made, or hidden"
            elif path.is_symlink():
                yield path, "is a link"
            else:
                kept.append(name)
        directories[:] = kept
        for name in sorted(files):
            path = Path(place) / name
            if path.is_symlink() or not path.is_file():
                yield path, "is a link, or no plain file"
            elif name.startswith(".") or name.endswith((".pyc", ".pyo")):
                yield path, "is made, or hidden"
            elif len(path.relative_to(root).as_posix()) > MOST_PATH or not name.isprintable():
                yield path, "has a name that cannot be carried"
            else:
                yield path, ""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}") from error


def _key(index: int) -> str:
    return f"file-{index:03d}"


def _kilobytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 10**6 else f"{max(1, round(size / 1e3))} kB"
