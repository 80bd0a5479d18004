"""The book of usage, kept by the leader and written down now and then: losing it loses history, nothing else."""

import logging
from dataclasses import replace
from typing import Any

import orjson

from lockstep.api.base import names, nesting
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError, says_absent
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import CONFIG_MAPS
from lockstep.controller.store.usage_index import UsageIndex
from lockstep.core.admission.queueing.fair_share import ChargedUsage, UsageBook, admissible, shares
from lockstep.core.model.snapshot import ClusterSnapshot

log = logging.getLogger("lockstep.usage")

CONFIG_MAP, _KEY = names.USAGE_CONFIG_MAP, names.USAGE_FILE
_WRITTEN_EVERY = 60.0


class UsageKeeper:
    """Counts what is held between two cycles, and reads what the leader before wrote."""

    def __init__(self, kube: KubeClient, clock: Clock, namespace: str) -> None:
        self._kube = kube
        self._clock = clock
        self._namespace = namespace
        self._book = UsageBook()
        self._held = ChargedUsage()
        self._usage_index = UsageIndex()
        self._version = ""  # of the ConfigMap; empty: there is none
        self._read = False
        self._written_at = 0.0

    def lead(self) -> None:
        """Another leader may have counted since: read its book before counting on."""
        self._read = False

    @property
    def is_read(self) -> bool:
        """What leaders before have counted is known."""
        return self._read

    async def settle(self) -> None:
        """Read the book that a leader before left, and write this one when that is due. Failures are only logged."""
        now = self._clock.now()
        if not self._read:
            await self._load(now)
        elif now - self._written_at >= _WRITTEN_EVERY and (self._held.nodes or self._book.rows):
            self._written_at = now
            await self._write()
            if not self._read:  # somebody else wrote or removed it: theirs is read before the next count
                await self._load(now)

    def counted(self, snapshot: ClusterSnapshot, half_life: float) -> ClusterSnapshot:
        """The snapshot with everybody's fair share and the GPU-hours of queues, as of now.

        No GPU-hours as long as the book was not read: what others counted before is missing in them.
        """
        self._book = self._book.advanced(self._clock.now(), self._held, half_life)
        self._usage_index.update(snapshot.runs, snapshot.changes.runs)
        self._held = self._usage_index.held
        weights = {name: queue.spec.fair_sharing.weight for name, queue in snapshot.queues.items()}
        known = {*self._book.hours, *snapshot.queues} if self._read else ()
        hours = {queue: int(self._book.gpu_hours(queue)) for queue in known}
        present, asking = (
            admissible(keys, snapshot.queues, snapshot.namespace_labels)
            for keys in (self._usage_index.present, self._usage_index.asking)
        )
        factors = shares(self._book, weights, present)
        if asking - present:  # they have the share that they would have, and take nothing from others
            factors = {**shares(self._book, weights, present | asking), **factors}
        return replace(snapshot, fair_shares=factors, gpu_hours=hours)

    async def _load(self, now: float) -> None:
        try:
            found = nesting.loads(await self._kube.get(CONFIG_MAPS, CONFIG_MAP, self._namespace))
        except ApiError as error:
            if not says_absent(error, CONFIG_MAP):
                self._cannot("read", error)
                return
            self._version, self._book = "", UsageBook(now)
        except (KubeError, ValueError, TypeError) as error:  # nobody's answer is worth the admission of everybody
            self._cannot("read", error)
            return
        else:
            try:
                self._version = found["metadata"]["resourceVersion"]
                book = UsageBook.load(nesting.loads(found["data"][_KEY]))
                if book.at > now:
                    log.warning("usage was counted %d s ahead of this clock: it goes on from now", book.at - now)
                self._book = book.not_beyond(now)
            except Exception as error:  # whatever somebody wrote into it
                self._cannot("understood", error)
                self._book = UsageBook(now)
        self._held = ChargedUsage()  # who held what while nobody led is not known
        self._read = True

    async def _write(self) -> None:
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "namespace": self._namespace},
            "data": {_KEY: orjson.dumps(self._book.dump()).decode()},
        }
        try:
            if self._version:
                body["metadata"]["resourceVersion"] = self._version
                reply = await self._kube.replace(CONFIG_MAPS, CONFIG_MAP, body, self._namespace)
            else:
                reply = await self._kube.create(CONFIG_MAPS, body, self._namespace)
            self._version = nesting.loads(reply)["metadata"]["resourceVersion"]
        except ApiError as error:
            self._cannot("written", error)
            if error.status in (404, 409):
                self._read = False
        except KubeError as error:
            self._cannot("written", error)

    def _cannot(self, what: str, error: Exception) -> None:
        log.warning("the ConfigMap %s/%s cannot be %s: %s", self._namespace, CONFIG_MAP, what, error)
