"""One look at one array: observe, decide, and carry out: the status first, then what rests on it."""

import asyncio
import logging
from collections.abc import Callable

import orjson

from lockstep.api.indices import parse_indices
from lockstep.api.schema import StatusModel
from lockstep.controller.clock import Clock
from lockstep.controller.events import EventRecorder
from lockstep.controller.execute import StaleError
from lockstep.controller.kube import ApiError, KubeClient, UnknownOutcome, says_absent
from lockstep.controller.patches import merge_patch
from lockstep.controller.resources import RUN_SETS, RUNS
from lockstep.controller.store import Store
from lockstep.controller.workqueue import WorkQueue, set_key
from lockstep.core.arrays.run_set import decide_run_set
from lockstep.core.arrays.views import CreateRun, RunSetPlan, RunSetView
from lockstep.core.tunables import Tunables

log = logging.getLogger("lockstep.run_sets")


class RunSetReconciler:
    """Looks at sets. ``tunables`` is asked anew each time, so that a changed mode counts at once."""

    def __init__(
        self,
        kube: KubeClient,
        store: Store,
        events: EventRecorder,
        queue: WorkQueue,
        clock: Clock,
        tunables: Callable[[], Tunables],
    ) -> None:
        self._kube = kube
        self._store = store
        self._sets = store.run_sets
        self._events = events
        self._queue = queue
        self._clock = clock
        self._tunables = tunables
        self._unsettled: dict[str, float] = {}  # set UID -> when a write without an answer has had its effect, if any

    async def reconcile(self, namespace: str, name: str) -> None:
        """Look at one set. Raises StaleError, or a KubeError that is worth another try."""
        run_set = self._sets.named(namespace, name)
        if run_set is None or await self._settles_later(run_set):
            return
        run_set = self._sets.named(namespace, name)
        if run_set is None:
            return
        indices = parse_indices(run_set.spec.indices) if run_set.spec is not None else frozenset[int]()
        snapshot = self._sets.snapshot(run_set, self._store.labels_of_namespace(namespace), indices)
        plan = decide_run_set(snapshot, self._tunables(), self._clock.now())
        if plan.wake_at is not None:
            self._queue.wake_at(set_key(namespace, name), plan.wake_at)
        self._sets.forget_departed(run_set)
        await self._carry_out(run_set, plan)

    async def _carry_out(self, run_set: RunSetView, plan: RunSetPlan) -> None:
        if plan.status is not None:
            await self._write_status(run_set, plan)
        for event in plan.events:
            self._events.run_set_event(run_set, event)
            log.info(event.note, extra={"set": run_set.key, "uid": run_set.uid, "action": event.reason})
        results = await asyncio.gather(*(self._create(run_set, each) for each in plan.creates), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if plan.creates and not failures:
            self._sets.note_refused(run_set.uid, "")
        for failure in failures:
            raise failure
        if plan.delete_set:
            version = run_set.resource_version
            await self._kube.delete(
                RUN_SETS, run_set.name, run_set.namespace, uid=run_set.uid, resource_version=version
            )

    async def _write_status(self, run_set: RunSetView, plan: RunSetPlan) -> None:
        assert plan.status is not None
        # What equals its default may never have been written: people look at a 0.
        patch = merge_patch(StatusModel.dump(run_set.status), plan.status.dump())
        version = run_set.resource_version
        try:
            reply = await self._kube.patch_status(
                RUN_SETS, run_set.name, run_set.namespace, resource_version=version, patch=patch
            )
        except ApiError as error:
            if error.status in (404, 409):
                await self._refresh(run_set)
                raise StaleError from error
            raise
        except UnknownOutcome as unknown:
            # An index may be on record that this status does not know of: until that is clear nothing is made.
            self._unsettled[run_set.uid] = unknown.settles_at
            raise
        self._store.apply_run_set(orjson.loads(reply))

    async def _settles_later(self, run_set: RunSetView) -> bool:
        """Whether a write of its status may still take effect; after that the set is read anew."""
        settles_at = self._unsettled.get(run_set.uid)
        if settles_at is None:
            return False
        if self._clock.now() < settles_at:
            self._queue.wake_at(set_key(run_set.namespace, run_set.name), settles_at)
            return True
        await self._refresh(run_set)
        self._unsettled.pop(run_set.uid, None)
        return False

    async def _refresh(self, run_set: RunSetView) -> None:
        try:
            self._store.apply_run_set(orjson.loads(await self._kube.get(RUN_SETS, run_set.name, run_set.namespace)))
        except ApiError as error:
            if not says_absent(error, run_set.name):
                raise
            self._store.remove_run_set(run_set.uid)

    async def _create(self, run_set: RunSetView, run: CreateRun) -> None:
        """A run of this name that is there already is the set's own, or in its way: the next look sees which."""
        try:
            reply = await self._kube.create(RUNS, run.body, run_set.namespace)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                reply = await self._kube.get(RUNS, run.name, run_set.namespace)
            else:
                if error.is_verdict:
                    self._sets.note_refused(run_set.uid, error.message[:900])
                raise
        self._store.apply_run(orjson.loads(reply))
