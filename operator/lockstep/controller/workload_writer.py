"""Carries out what is decided about Workloads, under our own name and never on the strength of old news."""

import logging
from contextlib import suppress

import msgspec

from lockstep.controller.kube import ApiError, KubeClient, says_absent
from lockstep.controller.kueue import WORKLOADS, KueueStore
from lockstep.controller.workqueue import WorkQueue, run_key
from lockstep.core.kueue.writes import WorkloadVerb, WorkloadWrite
from lockstep.core.snapshot import RunView

log = logging.getLogger("lockstep.kueue")


class WorkloadWriter:
    """Writes one Workload at a time. What the server answers is taken in, so that the next decision knows of it."""

    def __init__(self, kube: KubeClient, store: KueueStore, queue: WorkQueue) -> None:
        self._kube = kube
        self._store = store
        self._queue = queue

    async def carry_out(self, run: RunView, write: WorkloadWrite) -> None:
        """One write; the run is looked at again where the Workload is not as it was seen. Raises KubeError."""
        try:
            reply = await self._send(write)
        except ApiError as error:
            if error.status not in (404, 409):
                if error.is_verdict:
                    self._store.answered(write.namespace, write.name, error.message)
                raise
            await self._reread(write)
            self._queue.add(run_key(run.namespace, run.name))
            return
        self._store.answered(write.namespace, write.name)
        if reply is None or write.verb is WorkloadVerb.DELETE:
            await self._reread(write)  # gone, or as somebody has changed it meanwhile
        else:
            self._take(reply)
        log.info(write.why, extra={"run": run.key, "uid": run.uid, "workload": write.name, "action": write.verb.value})

    async def _send(self, write: WorkloadWrite) -> bytes | None:
        kube, name, namespace = self._kube, write.name, write.namespace
        match write.verb:
            case WorkloadVerb.CREATE:
                return await kube.create(WORKLOADS, write.body, namespace)
            case WorkloadVerb.DELETE:
                version = write.resource_version
                return await kube.delete(WORKLOADS, name, namespace, uid=write.uid, resource_version=version)
            case WorkloadVerb.TELL:
                version = write.resource_version
                return await kube.patch_status(WORKLOADS, name, namespace, resource_version=version, patch=write.body)
            case WorkloadVerb.AMEND:
                meta = {**write.body.get("metadata", {}), "resourceVersion": write.resource_version}
                return await kube.patch(WORKLOADS, name, {**write.body, "metadata": meta}, namespace)

    def _take(self, reply: bytes) -> None:
        with suppress(ValueError, msgspec.DecodeError):  # the watch will have it
            self._store.workloads.cache.upsert(self._store.workloads.parse(reply))

    async def _reread(self, write: WorkloadWrite) -> None:
        table = self._store.workloads
        try:
            table.cache.upsert(table.parse(await self._kube.get(WORKLOADS, write.name, write.namespace)))
        except ApiError as error:
            known = table.by_key.get((write.namespace, write.name))
            if not says_absent(error, write.name):
                raise
            if known is not None and known.uid == write.uid:
                table.cache.remove(known.uid, int(known.resource_version))
