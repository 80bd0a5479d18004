"""Takes numbers for batch jobs: blocks of them, from a ConfigMap that moves on only where nobody else moved it."""

import asyncio
import logging
from typing import Any

from lockstep.api.base import names, nesting
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError, says_absent
from lockstep.controller.runtime.resources import CONFIG_MAPS
from lockstep.controller.store.store import Store
from lockstep.core.model.job_ids import next_block

log = logging.getLogger("lockstep.jobids")
CONFIG_MAP, _KEY = names.JOB_IDS_CONFIG_MAP, "next"
_TRIES = 5
_TIDY_FROM = 4096
"""Numbers that are kept before it is looked which of them nobody waits for any more."""


class UsedUpError(KubeError):
    """There are no numbers left."""

    def __init__(self) -> None:
        super().__init__(
            f"all numbers of jobs are used up; once no run with a low one is left, write a lower number into {_KEY}"
        )

    @property
    def is_verdict(self) -> bool:
        """It will not be otherwise a moment later."""
        return True


class JobIds:
    """Numbers of this leader, and those that wait to be written into a status.

    Of two leaders at a time each has a block of its own. A number is kept for the run or array that it was taken for
    until that has it in status or is gone, however many others wait: were it decided upon twice, it is the same.
    """

    def __init__(self, kube: KubeClient, store: Store, namespace: str) -> None:
        self._kube = kube
        self._store = store
        self._namespace = namespace
        self._left = range(0)
        self._highest = 0  # of the blocks that were taken here
        self._kept: dict[str, int] = {}  # by UID
        self._tidy_at = _TIDY_FROM
        self._turn = asyncio.Lock()
        store.job_id_of = self.kept_for

    def kept_for(self, uid: str) -> int:
        """What was taken for a run or array; 0: nothing."""
        return self._kept.get(uid, 0)

    async def take(self, uid: str, count: int = 1) -> None:
        """Take a number for it, and those that follow, unless it has one. Raises KubeError."""
        async with self._turn:
            if uid in self._kept:
                return
            if len(self._left) < count:
                self._left = await self._next_block(count)
                self._highest = self._left[-1]
            self._kept[uid], self._left = self._left[0], self._left[count:]
            if len(self._kept) > self._tidy_at:
                self._kept = {uid: number for uid, number in self._kept.items() if self._waits(uid)}
                self._tidy_at = _TIDY_FROM + 2 * len(self._kept)

    def _waits(self, uid: str) -> bool:
        known = self._store.runs.get(uid) or self._store.run_sets.cache.get(uid)
        return known is not None and known.status.job_id is None

    async def _next_block(self, least: int) -> range:
        for _ in range(_TRIES - 1):
            try:
                return await self._taken_block(least)
            except ApiError as error:
                if error.status != 409:
                    raise
        return await self._taken_block(least)

    async def _taken_block(self, least: int) -> range:
        version, counter = await self._read()
        block = next_block(counter, max(self._highest, self._highest_known()), least)
        if len(block) < least:
            raise UsedUpError
        metadata: dict[str, Any] = {"name": CONFIG_MAP, "namespace": self._namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_KEY: str(block[-1] + 1)}}
        if version:
            metadata["resourceVersion"] = version
            await self._kube.replace(CONFIG_MAPS, CONFIG_MAP, body, self._namespace)
        else:
            await self._kube.create(CONFIG_MAPS, body, self._namespace)
        log.info("numbers %d to %d are for batch jobs of this leader", block[0], block[-1])
        return block

    async def _read(self) -> tuple[str, object]:
        """Its version, empty if there is none, and what it says."""
        try:
            found = nesting.loads(await self._kube.get(CONFIG_MAPS, CONFIG_MAP, self._namespace))
        except ApiError as error:
            if not says_absent(error, CONFIG_MAP):
                raise
            return "", None
        return found["metadata"]["resourceVersion"], (found.get("data") or {}).get(_KEY)

    def _highest_known(self) -> int:
        runs = (run.status.job_id or 0 for run in self._store.runs.cache)
        arrays = (each.status.job_id or 0 for each in self._store.run_sets.cache)
        return max((*runs, *arrays), default=0)
