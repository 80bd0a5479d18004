"""Makes a pod's volumes as folders on this machine, and says what is mounted where."""

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localcluster.processnodes.environment import KINDS, decoded, expand, field_value
from localcluster.processnodes.errors import ContainerConfigError, MountError
from localcluster.processnodes.kubeapi import UNREACHABLE, ApiError, KubeApi

Json = dict[str, Any]
_REFRESH_AT = 0.8  # of a token's lifetime, as the kubelet does
_REREAD_SECONDS = 30.0  # projected ConfigMaps; the kubelet takes up to two minutes


@dataclass(frozen=True)
class Disks:
    """Where this node's volumes live on the real machine."""

    node_disk: Path  # hostPath volumes: lost with the node
    memory: Path  # emptyDir with medium Memory
    claims: Path  # <namespace>/<claim>: shared by all nodes
    shared_roots: tuple[Path, ...] = ()  # hostPaths below these are this machine's own

    def host_path(self, path: str) -> Path:
        real = Path(path)
        if any(real.is_relative_to(root) for root in self.shared_roots):
            return real
        return self.node_disk / path.lstrip("/")


@dataclass
class Token:
    """A projected service account token that has to be renewed."""

    file: Path
    mode: int
    audience: str | None
    seconds: int
    refresh_at: float = 0.0


@dataclass
class PodVolumes:
    """The volumes of one pod. ``folder`` is removed with the pod."""

    api: KubeApi
    pod: Json
    address: str
    disks: Disks
    folder: Path
    tokens: list[Token] = field(default_factory=list)
    _rereads: list[tuple[Path, Json, int]] = field(default_factory=list)  # projected ConfigMaps: folder, source, mode
    _reread_at: float = 0.0
    _sources: dict[str, Path] = field(default_factory=dict)

    @property
    def _namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])

    @property
    def _memory(self) -> Path:
        return self.disks.memory / str(self.pod["metadata"]["uid"])

    async def make(self) -> None:
        """Make every volume of the pod. Raises MountError when something named is missing."""
        self.tokens.clear()
        self._rereads.clear()
        self._reread_at = time.time() + _REREAD_SECONDS
        for volume in self.pod["spec"].get("volumes") or ():
            try:
                self._sources[volume["name"]] = await self._make(volume)
            except (ApiError, ContainerConfigError, OSError, *UNREACHABLE) as error:
                raise MountError(f'MountVolume.SetUp failed for volume "{volume["name"]}": {error}') from error

    def mounts(self, container: Json, environment: Mapping[str, str]) -> list[Json]:
        """``{source, target, readOnly}`` for each mount of one container, in order."""
        entries = []
        for mount in container.get("volumeMounts") or ():
            source = self._sources[mount["name"]]
            subpath = mount.get("subPath") or expand(mount.get("subPathExpr", ""), environment)
            if subpath:
                source = source / subpath
                if not source.resolve().is_relative_to(self._sources[mount["name"]].resolve()):
                    raise ContainerConfigError(f"subPath {subpath} leaves its volume")
                if not source.exists():
                    source.mkdir(parents=True)
            read_only = mount.get("readOnly", False)
            entries.append({"source": str(source), "target": mount["mountPath"], "readOnly": read_only})
        return entries

    async def refresh(self, now: float) -> None:
        """Renew the tokens that have lived 80 % of their time, and now and then what was projected of ConfigMaps."""
        for token in self.tokens:
            if now >= token.refresh_at:
                await self._write_token(token)
        if now >= self._reread_at:
            self._reread_at = now + _REREAD_SECONDS
            for folder, source, mode in self._rereads:
                with contextlib.suppress(ContainerConfigError):  # what is there stays
                    await self._write_keys(folder, "configMap", source["name"], source, mode)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self._memory, ignore_errors=True)

    async def _make(self, volume: Json) -> Path:
        folder = self.folder / "volumes" / str(volume["name"])
        if "hostPath" in volume:
            return self._host_path(volume["hostPath"])
        if "persistentVolumeClaim" in volume:
            folder = self.disks.claims / self._namespace / str(volume["persistentVolumeClaim"]["claimName"])
        elif (volume.get("emptyDir") or {}).get("medium") == "Memory":
            folder = self._memory / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume:
            folder.chmod(0o777)
        for kind, name in (("configMap", "name"), ("secret", "secretName")):
            if kind in volume:
                source = volume[kind]
                await self._write_keys(folder, kind, source[name], source, source.get("defaultMode", 0o644))
        if "downwardAPI" in volume:
            self._write_fields(folder, volume["downwardAPI"], volume["downwardAPI"].get("defaultMode", 0o644))
        for source in (volume.get("projected") or {}).get("sources") or ():
            await self._write_projected(folder, source, volume["projected"].get("defaultMode", 0o644))
        return folder

    def _host_path(self, source: Json) -> Path:
        path, kind = self.disks.host_path(source["path"]), source.get("type", "")
        if kind in ("", "DirectoryOrCreate"):
            path.mkdir(parents=True, exist_ok=True)
        elif kind == "FileOrCreate":
            path.touch()
        elif not path.exists():
            raise OSError(f"hostPath type check failed: {source['path']} is not a {kind}")
        return path

    async def _write_projected(self, folder: Path, source: Json, mode: int) -> None:
        for kind in KINDS:
            if kind in source:
                await self._write_keys(folder, kind, source[kind]["name"], source[kind], mode)
        if "configMap" in source:
            self._rereads.append((folder, source["configMap"], mode))
        if "downwardAPI" in source:
            self._write_fields(folder, source["downwardAPI"], mode)
        if "serviceAccountToken" in source:
            wanted = source["serviceAccountToken"]
            seconds = wanted.get("expirationSeconds", 3600)
            token = Token(folder / wanted["path"], mode, wanted.get("audience"), seconds)
            await self._write_token(token)
            self.tokens.append(token)

    async def _write_keys(self, folder: Path, kind: str, name: str, source: Json, mode: int) -> None:
        plural = "configmaps" if kind == "configMap" else "secrets"
        try:
            body = await self.api.get(f"/api/v1/namespaces/{self._namespace}/{plural}/{name}")
        except ApiError as error:
            if error.status == 404 and source.get("optional"):
                return
            raise
        keys = decoded(kind, body)
        items = source.get("items") or [{"key": key, "path": key} for key in keys]
        for item in items:
            if item["key"] in keys:
                write_whole(folder / item["path"], keys[item["key"]], item.get("mode", mode))
            elif not source.get("optional"):
                raise ContainerConfigError(f"references non-existent config key: {item['key']}")

    def _write_fields(self, folder: Path, source: Json, mode: int) -> None:
        for item in source.get("items") or ():
            text = field_value(self.pod, item["fieldRef"]["fieldPath"], self.address)
            write_whole(folder / item["path"], text.encode(), item.get("mode", mode))

    async def _write_token(self, token: Token) -> None:
        """Ask for a token bound to this very pod, so that it dies with it."""
        metadata = self.pod["metadata"]
        account = self.pod["spec"].get("serviceAccountName", "default")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec: Json = {"expirationSeconds": token.seconds, "boundObjectRef": bound}
        if token.audience:
            spec["audiences"] = [token.audience]
        answer = await self.api.post(
            f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        write_whole(token.file, answer["status"]["token"].encode(), token.mode)
        token.refresh_at = time.time() + token.seconds * _REFRESH_AT


def write_whole(path: Path, content: bytes, mode: int) -> None:
    """Write so that a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), stat.S_IMODE(mode))
    partial.rename(path)
