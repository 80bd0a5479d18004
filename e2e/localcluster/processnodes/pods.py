"""The life of one pod on one process node: volumes, init containers, containers, status, the end."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localcluster.processnodes import containers
from localcluster.processnodes.environment import (
    ConfigObjects,
    command_line,
    environment_of,
    hostname_of,
    referenced,
)
from localcluster.processnodes.errors import ContainerConfigError, MountError, StartError
from localcluster.processnodes.kubeapi import UNREACHABLE, ApiError, KubeApi
from localcluster.processnodes.podstatus import (
    ContainerState,
    Stage,
    pod_status,
    restarts_after,
)
from localcluster.processnodes.volumes import Disks, PodVolumes

Json = dict[str, Any]
_RETRY_SECONDS = 1.0
_BACKOFF_SECONDS = (1.0, 30.0)  # first and longest; a kubelet takes 10 s and 300 s
_MESSAGE_BYTES = 4096
_DEFAULT_SHM = 64 << 20


@dataclass(frozen=True)
class Host:
    """What a pod needs to know of the node it runs on."""

    api: KubeApi
    name: str
    address: str
    namespaces_pid: int
    disks: Disks
    pods_folder: Path
    logs_folder: Path
    hosts_file: Path
    resolver_file: Path
    path_prepend: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]  # of every container, like a cluster's service variables
    userxattr: bool
    wait_online: Callable[[], Awaitable[None]]


class _StoppedError(Exception):
    """The pod is to end while something was being waited for."""


class PodRun:
    """Runs one pod until it is finished, and its object until that is deleted."""

    def __init__(self, pod: Json, host: Host) -> None:
        metadata = pod["metadata"]
        self.pod = pod
        self.uid = str(metadata["uid"])
        self.logs = host.logs_folder / f"{metadata['namespace']}_{metadata['name']}_{self.uid}"
        self._host = host
        self._folder = host.pods_folder / self.uid
        self._volumes = PodVolumes(host.api, pod, host.address, host.disks, self._folder)
        self._started_at = time.time()
        self._states = {c["name"]: _fresh(c) for c in (*self._init, *self._main)}
        self._running: dict[str, containers.Container] = {}
        self._stop = asyncio.Event()
        self._dirty = asyncio.Event()
        self._conditions: dict[str, tuple[str, str]] = {}
        self._life = asyncio.create_task(self._live())
        self._writer = asyncio.create_task(self._write_status())
        self._tokens = asyncio.create_task(self._refresh_volumes())
        self._ending: asyncio.Task[None] | None = None

    @property
    def _init(self) -> list[Json]:
        return self.pod["spec"].get("initContainers") or []

    @property
    def _main(self) -> list[Json]:
        return list(self.pod["spec"]["containers"])

    def is_running(self, container: str) -> bool:
        return container in self._running

    def update(self, pod: Json) -> None:
        """Take in a newer version of the object; a deletion timestamp begins the end."""
        self.pod = pod
        if "deletionTimestamp" in pod["metadata"] and self._ending is None:
            grace = float(pod["metadata"].get("deletionGracePeriodSeconds", 30))
            self._ending = asyncio.create_task(self._end(grace))

    async def abandon(self) -> None:
        """Kill everything at once and tell nobody: the object is gone, or the node is."""
        self._stop.set()
        tasks = [task for task in (self._life, self._writer, self._tokens, self._ending) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for running in list(self._running.values()):
            running.send(signal.SIGKILL)
            await running.wait()
        self._running.clear()

    def remove_files(self) -> None:
        """Everything but the logs."""
        self._volumes.remove()

    async def _end(self, grace: float) -> None:
        """SIGTERM, the grace period, SIGKILL; then the object may go."""
        self._stop.set()
        for running in self._running.values():
            running.send(signal.SIGTERM)
        await asyncio.wait({self._life}, timeout=grace)
        for running in self._running.values():
            running.send(signal.SIGKILL)
        await asyncio.wait({self._life})
        metadata = self.pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        while True:
            await self._host.wait_online()
            try:
                await self._host.api.patch(f"{path}/status", self._patch())
            except (ApiError, *UNREACHABLE) as error:
                if not isinstance(error, ApiError):
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
            with contextlib.suppress(ApiError, *UNREACHABLE):
                await self._host.api.delete(path, self.uid, 0)
                return
            await asyncio.sleep(_RETRY_SECONDS)

    async def _live(self) -> None:
        with contextlib.suppress(_StoppedError):
            await self._make_volumes()
            policy = self.pod["spec"].get("restartPolicy", "Always")
            for container in self._init:
                await self._run(container, "OnFailure" if policy == "Always" else policy)
                if self._states[container["name"]].exit_code != 0:
                    return
            await asyncio.gather(*(self._run(container, policy) for container in self._main))

    async def _make_volumes(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                return await self._volumes.make()
            except MountError as error:
                for name, state in self._states.items():
                    self._set(name, replace(state, message=str(error)))
                await self._pause(_RETRY_SECONDS)

    async def _run(self, container: Json, policy: str) -> None:
        """Run one container until it has ended for good."""
        name = container["name"]
        backoff, longest = _BACKOFF_SECONDS
        while True:
            try:
                running = await self._start(container)
                await self._wait(container, running)
            except StartError as error:
                failed = self._states[name].ended(128, time.time(), str(error))
                self._set(name, replace(failed, reason="StartError"))
            ended = self._states[name]
            if self._stop.is_set() or not restarts_after(policy, ended.exit_code):
                return
            waiting = _fresh(container)
            again = replace(waiting, reason="CrashLoopBackOff", restarts=ended.restarts + 1, last=ended)
            self._set(name, again)
            await self._pause(backoff)
            backoff = min(backoff * 2, longest)

    async def _start(self, container: Json) -> containers.Container:
        name = container["name"]
        while True:
            try:
                spec = await self._spec(container)
                break
            except ContainerConfigError as error:
                reason = "CreateContainerConfigError"
                self._set(name, replace(self._states[name], reason=reason, message=str(error)))
            except UNREACHABLE:
                pass  # the objects named can't be read now
            await self._pause(_RETRY_SECONDS)
        if self._stop.is_set():
            raise _StoppedError
        running = await containers.start(spec)
        self._running[name] = running
        if self._stop.is_set():
            running.send(signal.SIGKILL)
        self._set(name, replace(self._states[name], stage=Stage.RUNNING, started_at=time.time()))
        return running

    async def _wait(self, container: Json, running: containers.Container) -> None:
        name = container["name"]
        code = await running.wait()
        del self._running[name]
        self._set(name, self._states[name].ended(code, time.time(), self._message(container, code)))

    async def _spec(self, container: Json) -> Json:
        """What the launcher is to do."""
        name = container["name"]
        config = await self._config_objects()
        environment = dict(self._host.environment) | environment_of(
            self.pod, container, config, self._host.address, self._host.path_prepend
        )
        command = command_line(container, environment)
        scratch, message = self._folder / f"root-{name}", self._folder / f"message-{name}"
        scratch.mkdir(exist_ok=True)
        message.write_bytes(b"")
        message.chmod(0o666)
        message_path = container.get("terminationMessagePath", "/dev/termination-log")
        own = [
            {"source": str(self._host.hosts_file), "target": "/etc/hosts", "readOnly": False},
            {"source": str(self._host.resolver_file), "target": "/etc/resolv.conf", "readOnly": False},
            {"source": str(message), "target": message_path, "readOnly": False},
        ]
        security = (self.pod["spec"].get("securityContext") or {}) | (container.get("securityContext") or {})
        uid = security.get("runAsUser")
        return {
            "namespacesOf": self._host.namespaces_pid,
            "hostname": hostname_of(self.pod),
            "scratch": str(scratch),
            "mounts": [*own, *self._devices(container), *self._volumes.mounts(container, environment)],
            "readOnlyRoot": security.get("readOnlyRootFilesystem", False),
            "userxattr": self._host.userxattr,
            "uid": uid,
            "gid": security.get("runAsGroup", None if uid is None else 0),
            "command": command,
            "env": environment,
            "workingDir": container.get("workingDir") or "/",
            "log": str(self._new_log(name)),
            "shm": _DEFAULT_SHM,
        }

    def _devices(self, container: Json) -> list[Json]:
        """Empty files in place of the GPUs a device plugin would hand in, where this machine has none."""
        limits = (container.get("resources") or {}).get("limits") or {}
        if Path("/dev/nvidia0").exists():
            return []
        blank = self._folder / "device"
        blank.touch()
        count = int(limits.get("nvidia.com/gpu", 0))
        return [{"source": str(blank), "target": f"/dev/nvidia{n}", "readOnly": True} for n in range(count)]

    def _new_log(self, container: str) -> Path:
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.logs / f"{container}.log"
        if log.exists():
            log.rename(self.logs / f"{container}.previous.log")
        return log

    async def _config_objects(self) -> ConfigObjects:
        """Read what the environments name; what does not exist is simply not in the answer."""
        found: dict[str, dict[str, Json]] = {"configMap": {}, "secret": {}}
        namespace = self.pod["metadata"]["namespace"]
        for kind, name in referenced(self.pod):
            plural = "configmaps" if kind == "configMap" else "secrets"
            try:
                found[kind][name] = await self._host.api.get(f"/api/v1/namespaces/{namespace}/{plural}/{name}")
            except ApiError as error:
                if error.status != 404:
                    raise ContainerConfigError(str(error)) from error
        return ConfigObjects(found["configMap"], found["secret"])

    def _message(self, container: Json, code: int) -> str:
        name = container["name"]
        message = (self._folder / f"message-{name}").read_bytes()[:_MESSAGE_BYTES]
        if not message and code and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            message = (self.logs / f"{name}.log").read_bytes()[-_MESSAGE_BYTES // 2 :]
        return message.decode(errors="replace")

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
        if self._stop.is_set():
            raise _StoppedError

    def _set(self, container: str, state: ContainerState) -> None:
        self._states[container] = state
        self._dirty.set()

    def _patch(self) -> Json:
        """The status as a merge patch that applies to this very pod only."""
        status = pod_status(
            self.pod,
            [self._states[c["name"]] for c in self._init],
            [self._states[c["name"]] for c in self._main],
            address=self._host.address,
            started_at=self._started_at,
            now=time.time(),
            stopping=self._stop.is_set(),
            previous=self._conditions,
        )
        self._conditions = {c["type"]: (c["status"], c["lastTransitionTime"]) for c in status["conditions"]}
        return {"metadata": {"uid": self.uid}, "status": status}

    async def _write_status(self) -> None:
        """Bring the newest status to the API server, again and again until it is taken."""
        metadata = self.pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        self._dirty.set()
        while True:
            await self._dirty.wait()
            await self._host.wait_online()
            self._dirty.clear()
            try:
                await self._host.api.patch(path, self._patch())
            except (ApiError, *UNREACHABLE) as error:
                if isinstance(error, ApiError) and error.status in (404, 409):
                    continue  # deleted, or another pod by now; the watch will say so
                self._dirty.set()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _refresh_volumes(self) -> None:
        while True:
            await asyncio.sleep(_RETRY_SECONDS)
            await self._host.wait_online()
            with contextlib.suppress(ApiError, *UNREACHABLE):
                await self._volumes.refresh(time.time())


def _fresh(container: Json) -> ContainerState:
    return ContainerState(container["name"], container.get("image", ""))
