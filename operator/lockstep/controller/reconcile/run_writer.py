"""Writes about one run: its status, its ConfigMaps, and what the API server has against a write."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from lockstep.api.base.nesting import read_object
from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, DroppedError, KubeError, UnreachableError, says_absent
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.reconcile.config_maps import ConfigMaps
from lockstep.controller.reconcile.history import History
from lockstep.controller.reconcile.recoveries import Recoveries
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.patches import dropped, status_patch
from lockstep.controller.runtime.resources import RUNS
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.store.store import Store
from lockstep.core.model.plan import CreatePod, EnsureConfigMap
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.snapshot import RefusedCreate, RunView

log = logging.getLogger("lockstep.execute")
CONCURRENT_WRITES = 16  # more of them only make each other, and the lease, wait longer


class StaleError(Exception):
    """The object has changed since the plan was made: decide again on what is there now."""


class RunWriter:
    """Writes what one run is told and known by, guarded by the version that was decided upon."""

    def __init__(
        self,
        kube: KubeClient,
        store: Store,
        events: EventRecorder,
        tallies: Tallies,
        recoveries: Recoveries,
        history: History,
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._store = store
        self._events = events
        self._tallies = tallies
        self._recoveries = recoveries
        self._history = history
        self._clock = clock
        self._config_maps = ConfigMaps(kube, clock)

    async def write_status(self, run: RunView, status: TrainingRunStatus) -> None:
        patch = status_patch(run.status, status)
        try:
            reply = await self._kube.patch_status(
                RUNS, run.name, run.namespace, resource_version=run.resource_version, patch=patch
            )
        except ApiError as error:
            if error.status in (404, 409):
                await self.refresh(run)
                raise StaleError from error
            self.warn(run, "status", error, EventReason.STATUS_REFUSED, ActionWord.WRITE_STATUS)
            raise
        except KubeError as error:
            self.warn(run, "status", error, EventReason.STATUS_REFUSED, ActionWord.WRITE_STATUS)
            raise
        self._store.forget_refused_create(run.uid, "status")
        written = read_object(reply)
        self._store.runs.apply(written, status.assignment, status.reservation)
        if (lacks := next(dropped(patch, written.get("status") or {}), None)) is not None:
            # What rests on this status must not be done: the next leader would not know of it.
            words = f"{lacks} was not stored: the CRDs are older than the operator; apply those of its version (crds/)"
            self._events.warn(run, EventReason.STATUS_REFUSED, ActionWord.WRITE_STATUS, words)
            raise DroppedError(422, "Invalid", words)
        self._tallies.status_written(run.status, status)
        self._tallies.made_room(run, status, self._clock.now())
        self._recoveries.status_written(run, status)
        self._history.status_written(run, status)

    async def refresh(self, run: RunView) -> None:
        """Read the run from a quorum. Were one that is gone kept, its plan would be made again at once."""
        try:
            found = read_object(await self._kube.get(RUNS, run.name, run.namespace))
            if int(found["metadata"]["resourceVersion"]) < int(run.resource_version):
                self._store.runs.cache.set_back(run.uid, int(run.resource_version))
            self._store.runs.apply(found)
        except ApiError as error:
            if not says_absent(error, run.name):
                raise
            self._store.runs.remove(run.namespace, run.name, run.uid)

    async def forget(self, run: RunView) -> None:
        """Delete the run as it was seen: whoever wants it kept for longer since is heard."""
        version = run.resource_version
        gone = await self._kube.delete(RUNS, run.name, run.namespace, uid=run.uid, resource_version=version)
        if gone is not None:
            log.info("deleted: it has been kept for as long as was asked", extra={"run": run.key, "uid": run.uid})

    async def ensure_config_map(self, run: RunView, wanted: EnsureConfigMap) -> None:
        what = f"ConfigMap {wanted.name}: "
        try:
            await self._config_maps.ensure(wanted)
        except KubeError as error:
            self.warn(run, what, error, EventReason.CONFIG_MAP_REFUSED, ActionWord.CREATE_CONFIG_MAP)
            if error.is_verdict and wanted.optional:
                return
            raise
        self._store.forget_refused_create(run.uid, what)

    def note_not_made(self, run: RunView, pods: Sequence[CreatePod], error: KubeError, of: str = "") -> bool:
        """Keep what the API server has said against pods, be it no verdict; True when it is news.

        While nobody reaches it nothing is said: nobody could be told either.
        """
        if isinstance(error, UnreachableError):
            return False
        refused = RefusedCreate(self._clock.now(), of + error.words, error.is_verdict)
        news = [self._store.note_refused_create(run.uid, pod.name, refused) for pod in pods]
        return any(news)

    def warn(self, run: RunView, what: str, error: KubeError, reason: EventReason, action: ActionWord) -> None:
        """Say what the API server has against a write for a run; where it has not judged that, once it lasts."""
        words = (what if what.endswith(": ") else "") + error.words
        refused = RefusedCreate(self._clock.now(), words, error.is_verdict)
        unreached = isinstance(error, UnreachableError)
        if error.is_verdict or (not unreached and self._store.note_refused_create(run.uid, what, refused)):
            self._events.warn(run, reason, action, words)


async def all_of(work: Sequence[Awaitable[None]]) -> None:
    """Run everything to its end, then raise the first error: one bad pod must not hold up the others."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def log_decision(run: RunView, attempt: int, action: str, note: str) -> None:
    log.info(note, extra={"run": run.key, "uid": run.uid, "attempt": attempt, "action": action})
