"""Carries out what is decided about Workloads, under our own name and never on the strength of old news."""

import logging
from contextlib import suppress

import msgspec

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, says_absent
from lockstep.controller.kube.workqueue import WorkQueue, run_key
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.store.kueue import WORKLOADS, KueueStore
from lockstep.core.kueue.workload_request import workload_labels
from lockstep.core.model.kueue.writes import WorkloadVerb, WorkloadWrite
from lockstep.core.model.snapshot import RunView

log = logging.getLogger("lockstep.kueue")

_SHORTEST_REST, _LONGEST_REST = 1.0, 20.0  # seconds; a gang does not leave for as long (LOST_AFTER)


class WorkloadWriter:
    """Writes one Workload at a time. What the server answers is taken in, so that the next decision knows of it."""

    def __init__(self, kube: KubeClient, store: KueueStore, queue: WorkQueue, clock: Clock) -> None:
        self._kube = kube
        self._store = store
        self._queue = queue
        self._clock = clock
        self._rests: dict[str, tuple[float, float]] = {}  # Workload UID -> labelled no sooner than, seconds of that

    async def carry_out(self, run: RunView, write: WorkloadWrite) -> None:
        """One write, or the search for one that is not seen; the run is looked at again where the Workload is not as
        it was seen. Raises KubeError."""
        try:
            reply = await self._send(write)
        except ApiError as error:
            if error.status not in (404, 409):
                if error.is_of_one_object:  # 500 while Kueue's webhook does not answer
                    self._store.answered(write.namespace, write.name, error.message)
                raise
            if await self._reread(run, write):
                self._queue.add(run_key(run.namespace, run.name))
            return
        self._store.answered(write.namespace, write.name)
        if reply is None or write.verb is WorkloadVerb.DELETE:
            await self._reread(run, write)  # to be found, gone, or as somebody has changed it meanwhile
        else:
            self._take(reply)
        log.info(write.why, extra={"run": run.key, "uid": run.uid, "workload": write.name, "action": write.verb.value})

    async def _send(self, write: WorkloadWrite) -> bytes | None:
        kube, name, namespace = self._kube, write.name, write.namespace
        match write.verb:
            case WorkloadVerb.FIND:
                return None
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

    def _may_label(self, run: RunView, uid: str) -> bool:
        """At once when it was not needed of late, else after twice the last wait. If not now, the run is looked at
        then."""
        now = self._clock.now()
        due, rest = self._rests.get(uid, (0.0, 0.0))
        if now < due:
            self._queue.wake_at(run_key(run.namespace, run.name), due)
            return False
        self._rests = {each: known for each, known in self._rests.items() if now < known[0] + _LONGEST_REST}
        rest = min(2 * rest, _LONGEST_REST) if uid in self._rests else _SHORTEST_REST
        self._rests[uid] = now + rest, rest
        return True

    def _take(self, reply: bytes) -> None:
        with suppress(ValueError, msgspec.DecodeError):  # the watch will have it
            self._store.workloads.cache.upsert(self._store.workloads.parse(reply))

    async def _reread(self, run: RunView, write: WorkloadWrite) -> bool:
        """Take in the Workload as it is. One of the run's that lost the labels by which it is watched gets them back:
        to the watch it is deleted, and so it would be to us. Who takes them off again and again is not followed at
        that pace: False when they have to wait, after which the run is reconciled again."""
        table = self._store.workloads
        try:
            found = table.parse(await self._kube.get(WORKLOADS, write.name, write.namespace))
            workload = found.view.value
            if workload.owner_uid == run.uid and (workload.run, workload.run_uid) != (run.name, run.uid):
                if not self._may_label(run, workload.uid):
                    return False
                meta = {"labels": workload_labels(run), "resourceVersion": workload.resource_version}
                reply = await self._kube.patch(WORKLOADS, write.name, {"metadata": meta}, write.namespace)
                found = table.parse(reply)
                log.warning("its labels were gone, and are back", extra={"run": run.key, "workload": write.name})
            table.cache.upsert(found)
        except ApiError as error:
            known = table.by_key.get((write.namespace, write.name))
            if not says_absent(error, write.name):
                raise
            if known is not None and known.uid == write.uid:
                table.cache.remove(known.uid, int(known.resource_version))
        return True
