"""A StorageClass whose volumes are folders shared by all process nodes, and its provisioner."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from localcluster.processnodes.kubeapi import UNREACHABLE, ApiError, KubeApi

Json = dict[str, Any]
CLASS = "shared-folder"
_PROVISIONER = "localcluster/shared-folder"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_VOLUMES = "/api/v1/persistentvolumes"


async def provision(api: KubeApi, claims: Path) -> None:
    """Give every claim of the class its volume, for ever. The class is the cluster's default.

    The folder is ``claims/<namespace>/<claim>``; it stays when the claim is deleted.
    """
    while True:
        try:
            await _ensure_class(api)
            async for kind, found in api.follow("/api/v1/persistentvolumeclaims"):
                for claim in found if kind == "LIST" else [found]:
                    if claim["spec"].get("storageClassName") == CLASS:
                        await (_remove(api, claim) if kind == "DELETED" else _provide(api, claims, claim))
        except (ApiError, *UNREACHABLE):
            await asyncio.sleep(1)


async def _ensure_class(api: KubeApi) -> None:
    body: Json = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": _PROVISIONER,
        "reclaimPolicy": "Retain",
    }
    try:
        await api.post(_CLASSES, body)
    except ApiError as error:
        if error.status != 409:
            raise


async def _provide(api: KubeApi, claims: Path, claim: Json) -> None:
    metadata, spec = claim["metadata"], claim["spec"]
    if spec.get("volumeName"):
        return
    folder = claims / metadata["namespace"] / metadata["name"]
    folder.mkdir(parents=True, exist_ok=True)
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    body: Json = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": _volume_name(claim)},
        "spec": {
            "storageClassName": CLASS,
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder)},
            "claimRef": reference | {key: metadata[key] for key in ("namespace", "name", "uid")},
        },
    }
    try:
        await api.post(_VOLUMES, body)
    except ApiError as error:
        if error.status != 409:
            raise


async def _remove(api: KubeApi, claim: Json) -> None:
    with contextlib.suppress(ApiError):
        await api.request("DELETE", f"{_VOLUMES}/{_volume_name(claim)}")


def _volume_name(claim: Json) -> str:
    return f"pvc-{claim['metadata']['uid']}"
