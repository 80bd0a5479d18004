"""`--code-claim CLAIM[:PATH]`: a directory of code is copied to a claim, by a pod that lives for seconds.

It goes in parts, each a ConfigMap, so that no right is needed but to create those and pods. All of it belongs to the
first part, which is deleted when the pod is done; what an interrupted command left is removed by the next one. On the
claim a copy is named by its content: one that is there is used again.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import re
import tarfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib.resources import files as resources
from pathlib import PurePosixPath
from typing import Any

from lockstep.api.base import names
from lockstep.cli.client import Cluster, Json, core_path
from lockstep.cli.errors import ApiServerError, CliError, ExitCode, UsageError
from lockstep.cli.output import note
from lockstep.cli.submission.packing import Destination
from lockstep.core.pods import pod_template

LABEL = f"{names.GROUP}/code-copy"
_FIRST, _PART, _POD = "first", "part", "pod"
_CONTAINER = "copy"
PATH = "lockstep-code"
PART_BYTES = 1_000_000
PATIENCE = 600.0
"""Seconds that the pod has, and that it is waited for."""
KEPT = 3600.0
"""Seconds after which what a command left behind is nobody's any more."""
_QUIET = 5.0
_MOST_PATH = 400
_MOST_WORDS = 400
_COPY = re.compile(r"(.*/)?[-a-z0-9.]*-[0-9a-f]{12}")
_PARTS_MOUNT, _CLAIM_MOUNT = "/lockstep-code", "/lockstep-claim"
_OF_THE_POD = (
    "imagePullSecrets", "nodeSelector", "runtimeClassName", "schedulerName", "securityContext", "serviceAccountName",
    "tolerations",
)  # fmt: skip
_OF_THE_CONTAINER = ("imagePullPolicy", "securityContext")
_WRITABLE = ("ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")

Files = Sequence[tuple[str, bytes]]


def wanted_place(text: str) -> Destination:
    """``CLAIM[:PATH]``. Raises UsageError."""
    claim, _, path = text.partition(":")
    path = path.strip("/") or PATH
    bad = not path.isprintable() or len(path) > _MOST_PATH or any(part in ("", ".", "..") for part in path.split("/"))
    if not claim or claim.startswith("/") or bad or ":" in path:
        raise UsageError(
            f"--code-claim {text} is no claim and path", "write CLAIM, or CLAIM:PATH with a path inside it"
        )
    return Destination(claim, path)


def destination(wanted: Destination, stem: str, files: Files) -> Destination:
    """Where the copy is to be: by its content, which is whole wherever it is."""
    digest = hashlib.sha256(_tar(files)).hexdigest()[:12]
    return Destination(wanted.claim, str(PurePosixPath(wanted.path) / f"{stem}-{digest}"))


def is_copy(path: str) -> bool:
    """Whether a path on a claim is that of a copy."""
    return _COPY.fullmatch(path) is not None


def refuse_unfit(cluster: Cluster, claim: str, nodes: int) -> None:
    """Raise CliError where the claim is not there, cannot be written, or cannot be mounted on so many nodes; nothing is
    said of one that may not be read."""
    try:
        spec = cluster.get(core_path(cluster.namespace, "persistentvolumeclaims", claim))["spec"]
    except ApiServerError as error:
        if error.status == 404 and error.name == claim:
            words = f"there is no PersistentVolumeClaim {claim} in namespace {cluster.namespace}"
            raise CliError(words, "kubectl get pvc lists those there are") from error
        return
    modes = spec.get("accessModes") or []
    if "ReadWriteMany" in modes:
        return
    mode = next((each for each in modes if each in _WRITABLE), "")
    if not mode:
        raise CliError(f"claim {claim} is {' and '.join(modes)}: no code can be copied to it", "name another one")
    if nodes > 1 and "ReadOnlyMany" not in modes:
        raise CliError(
            f"claim {claim} is {mode}: only one node at a time has it, and its code is for more",
            "name a claim that is ReadWriteMany, as those of shared file systems are",
        )
    note(f"Claim {claim} is {mode}: neither the copy nor the run starts while a pod on another node has it.")


def copy(cluster: Cluster, files: Files, to: Destination, spec: Json, stem: str) -> None:
    """Have it there. ``spec`` is the run's, whose image and rights the pod has. Raises CliError."""
    content = gzip.compress(_tar(files), mtime=0)
    first, *others = (content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES))
    maps = core_path(cluster.namespace, "configmaps")
    root = cluster.create(maps, _part(first, stem, _FIRST))
    name, uid = root["metadata"]["name"], root["metadata"]["uid"]
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}]
    pod: Json = {}
    try:
        _remove_cut_off(cluster, root)
        made = [cluster.create(maps, _part(part, stem, _PART) | _owned(stem, _PART, owners)) for part in others]
        parts = [each["metadata"]["name"] for each in (root, *made)]
        body = pod_body(spec, to, parts, hashlib.sha256(content).hexdigest())
        pod = cluster.create(core_path(cluster.namespace, "pods"), body | _owned(stem, _POD, owners))
        _await_end(cluster, pod, to)
    finally:
        if pod:
            _delete(cluster, "pods", pod)
        _delete(cluster, "configmaps", root)


def pod_body(spec: Json, to: Destination, parts: Sequence[str], digest: str) -> Json:
    """The pod, but for its name: what it may is what the run's pods may, and it asks for no GPU."""
    template = pod_template.section(spec.get("podTemplate"), "spec")
    trainer = next((c for c in pod_template.items(template, "containers") if c.get("name") == names.CONTAINER_NAME), {})
    theirs = {field: template[field] for field in _OF_THE_POD if field in template}
    theirs |= {field: spec[field] for field in ("imagePullSecrets", "serviceAccountName") if field in spec}
    gpus = {"key": spec.get("gpuResource", names.GPU_RESOURCE), "operator": "Exists"}
    program = (resources("lockstep.cli.submission") / "unpack.py").read_text(encoding="utf-8")
    arguments = [_PARTS_MOUNT, f"{_CLAIM_MOUNT}/{to.path}", digest, "$(POD_UID)"]
    container = {
        "name": _CONTAINER,
        "image": spec["image"],
        "command": ["python3", "-I", "-B", "-c", program, *arguments],
        "env": [{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "parts", "mountPath": _PARTS_MOUNT, "readOnly": True},
            {"name": "claim", "mountPath": _CLAIM_MOUNT},
        ],
    }
    sources = [
        {"configMap": {"name": name, "items": [{"key": "part", "path": f"{index:03d}"}]}}
        for index, name in enumerate(parts)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **theirs,
            "tolerations": [*theirs.get("tolerations", ()), gpus],
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(PATIENCE),
            "terminationGracePeriodSeconds": 1,
            "containers": [{**container, **{field: trainer[field] for field in _OF_THE_CONTAINER if field in trainer}}],
            "volumes": [
                {"name": "parts", "projected": {"sources": sources}},
                {"name": "claim", "persistentVolumeClaim": {"claimName": to.claim}},
            ],
        },
    }


def _tar(files: Files) -> bytes:
    """The same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, content in sorted(files):
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _part(content: bytes, stem: str, which: str) -> Json:
    data = {"part": base64.b64encode(content).decode("ascii")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True, "binaryData": data, **_owned(stem, which)}


def _owned(stem: str, which: str, owners: Sequence[Json] = ()) -> Json:
    metadata: Json = {"generateName": f"{stem}-code-copy-", "labels": {LABEL: which}}
    return {"metadata": metadata | ({"ownerReferences": list(owners)} if owners else {})}


def _await_end(cluster: Cluster, pod: Json, to: Destination) -> None:
    name = pod["metadata"]["name"]
    path, begun, told = core_path(cluster.namespace, "pods", name), time.monotonic(), ""
    words = f"the code is not on claim {to.claim}: pod {name}"
    while True:
        status = cluster.get(path).get("status") or {}
        waited, why, succeeded = time.monotonic() - begun, _why(status), _succeeded(status)
        if succeeded:
            return
        if succeeded is False:
            raise CliError(
                f"{words} failed: {why}",
                f"its image needs python3, and its user the right to write below {PurePosixPath(to.path).parent}; "
                "podTemplate says who it is",
            )
        if waited > PATIENCE:
            raise CliError(f"{words} is not done after {PATIENCE:.0f} s: {why}", exit_code=ExitCode.TIMED_OUT)
        if waited > _QUIET and why not in ("", told):
            note(f"The code is copied to claim {to.claim} by pod {name}, which waits: {why}")
            told = why
        time.sleep(min(0.2 + waited / 10, 2.0))


def _succeeded(status: Json) -> bool | None:
    """None: it is not known yet. What a mesh puts beside the container may go on for ever."""
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if container.get("name") == _CONTAINER and ended:
            return bool(ended.get("exitCode") == 0)
    return {"Succeeded": True, "Failed": False}.get(str(status.get("phase")))


def _why(status: Json) -> str:
    """What a pod says of itself, in a line."""
    return " ".join(": ".join(next(_reasons(status), ())).split())[:_MOST_WORDS]


def _reasons(status: Json) -> Iterator[list[str]]:
    for container in status.get("containerStatuses") or ():
        state: dict[str, Any] = container.get("state") or {}
        for part in (state.get("terminated"), state.get("waiting")):
            if part and (part.get("message") or part.get("reason") != "Completed"):
                yield [part[word] for word in ("reason", "message") if part.get(word)]
    if status.get("reason") or status.get("message"):
        yield [status[word] for word in ("reason", "message") if status.get(word)]
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("type") == "PodScheduled":
            yield [condition[word] for word in ("reason", "message") if condition.get(word)]


def _remove_cut_off(cluster: Cluster, root: Json) -> None:
    """What commands left that were interrupted: by the API server's clock, and only where it may be seen."""
    now = _moment(root)
    with contextlib.suppress(ApiServerError):
        query = {"labelSelector": f"{LABEL}={_FIRST}"}
        for left in cluster.list(core_path(cluster.namespace, "configmaps"), **query)["items"]:
            if now - _moment(left) > KEPT:
                _delete(cluster, "configmaps", left)


def _moment(raw: Json) -> float:
    return datetime.fromisoformat(raw["metadata"]["creationTimestamp"]).timestamp()


def _delete(cluster: Cluster, resource: str, raw: Json) -> None:
    with contextlib.suppress(CliError):  # the next such command does
        cluster.delete(core_path(cluster.namespace, resource, raw["metadata"]["name"]), raw["metadata"]["uid"])
