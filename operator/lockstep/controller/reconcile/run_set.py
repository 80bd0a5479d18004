"""Reconciles one array: observe, decide, and carry out: the status first, then what rests on it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from lockstep.api.base import names
from lockstep.api.base.indices import parse_indices
from lockstep.api.base.nesting import read_object
from lockstep.api.base.schema import StatusModel
from lockstep.api.run_set import SetRefusal
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.election import LostLeadershipError
from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome, says_absent
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.kube.workqueue import WorkQueue, set_key
from lockstep.controller.reconcile.failing import AGAIN, Failing
from lockstep.controller.reconcile.pace import RunPace
from lockstep.controller.reconcile.run_writer import StaleError
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.patches import merge_patch
from lockstep.controller.runtime.resources import RUN_SETS, RUNS
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.store.job_ids import JobIds
from lockstep.controller.store.store import Store
from lockstep.core.arrays.members import read_ranges
from lockstep.core.arrays.run_set import decide_run_set, without_deciding
from lockstep.core.model.array_views import CreateRun, RunSetPlan, RunSetView
from lockstep.core.model.conditions import is_true
from lockstep.core.model.plan import Event
from lockstep.core.model.reasons import ActionWord, ConditionType, EventReason
from lockstep.core.model.tunables import Tunables

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
        pace: RunPace | None = None,
        job_ids: JobIds | None = None,
    ) -> None:
        self._job_ids = job_ids or JobIds(kube, store, "")
        self._pace = pace or RunPace(
            clock, Tallies()
        )  # of a set it is the time of its looks: its writes follow its runs
        self._kube = kube
        self._store = store
        self._sets = store.run_sets
        self._events = events
        self._queue = queue
        self._clock = clock
        self._tunables = tunables
        self._failing = Failing()
        self._unsettled: dict[str, float] = {}  # by key: when a write without an answer has had its effect, if any

    async def reconcile(self, namespace: str, name: str) -> None:
        """Look at one set. Raises StaleError, or a KubeError that is worth another try."""
        run_set, key = self._sets.named(namespace, name), set_key(namespace, name)
        if run_set is None:
            self._pace.forget(key)
            self._failing.forget(key)
            self._unsettled.pop(key, None)
            return
        if rest := self._pace.rest(key):
            self._queue.wake_at(key, self._clock.now() + rest)
            self._tell_of_pace(run_set)
            return
        if await self._settles_later(run_set):
            return
        run_set = self._sets.named(namespace, name)
        if run_set is None:
            return
        try:
            await self._decide(run_set)
        except (KubeError, StaleError, LostLeadershipError):
            raise
        except Exception as error:
            if not self._failing.count_failure(key, error, known=is_true(run_set.status, ConditionType.UNDECIDABLE)):
                raise
            self._queue.wake_at(key, self._clock.now() + AGAIN)
            now, tunables = self._clock.now(), self._tunables()
            await self._carry_out(run_set, without_deciding(run_set, tunables, now, type(error).__name__))
        else:
            self._failing.forget(key)

    async def _decide(self, run_set: RunSetView) -> None:
        key = set_key(run_set.namespace, run_set.name)
        with self._pace.measured(key):
            indices = parse_indices(run_set.spec.indices) if run_set.spec is not None else frozenset[int]()
            snapshot = self._sets.snapshot(run_set, self._store.labels_of_namespace(run_set.namespace), indices)
            snapshot = replace(snapshot, job_id=self._job_ids.kept_for(run_set.uid))
            plan = decide_run_set(snapshot, self._tunables(), self._clock.now())
        if plan.wake_at is not None:
            self._queue.wake_at(key, plan.wake_at)
        self._sets.forget_departed(run_set)
        await self._carry_out(run_set, plan)

    def _tell_of_pace(self, run_set: RunSetView) -> None:
        if words := self._pace.news(set_key(run_set.namespace, run_set.name)):
            self._events.run_set_event(run_set, Event("Warning", EventReason.PACED, ActionWord.HOLD, words))
            log.warning(words, extra={"set": run_set.key, "uid": run_set.uid})

    async def _carry_out(self, run_set: RunSetView, plan: RunSetPlan) -> None:
        if plan.status is not None:
            await self._write_status(run_set, plan)
        if plan.take_job_id:
            await self._take_job_id(run_set)
        for event in plan.events:
            self._events.run_set_event(run_set, event)
            log.info(event.note, extra={"set": run_set.key, "uid": run_set.uid, "action": event.reason})
        if plan.creates:
            status = plan.status or run_set.status
            await self._create_all(run_set, plan, status.refusal)
        if plan.delete_set:
            version = run_set.resource_version
            await self._kube.delete(
                RUN_SETS, run_set.name, run_set.namespace, uid=run_set.uid, resource_version=version
            )

    async def _take_job_id(self, run_set: RunSetView) -> None:
        try:
            await self._job_ids.take(run_set.uid)
        except KubeError as error:
            if error.is_verdict:
                words = f"ConfigMap {names.JOB_IDS_CONFIG_MAP}: {error.words}"
                event = Event("Warning", EventReason.CONFIG_MAP_REFUSED, ActionWord.CREATE_CONFIG_MAP, words[:1024])
                self._events.run_set_event(run_set, event)
            raise
        self._queue.add(set_key(run_set.namespace, run_set.name))

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
            self._unsettled[set_key(run_set.namespace, run_set.name)] = unknown.settles_at
            raise
        self._store.run_sets.apply(read_object(reply))
        self._sets.forget_refused(run_set.uid)

    async def _settles_later(self, run_set: RunSetView) -> bool:
        """Whether a write of its status may still take effect; after that the set is read anew."""
        key = set_key(run_set.namespace, run_set.name)
        settles_at = self._unsettled.get(key)
        if settles_at is None:
            return False
        if self._clock.now() < settles_at:
            self._queue.wake_at(key, settles_at)
            return True
        await self._refresh(run_set)
        self._unsettled.pop(key, None)
        return False

    async def _refresh(self, run_set: RunSetView) -> None:
        try:
            found = read_object(await self._kube.get(RUN_SETS, run_set.name, run_set.namespace))
            if int(found["metadata"]["resourceVersion"]) < int(run_set.resource_version):
                self._store.run_sets.cache.set_back(run_set.uid, int(run_set.resource_version))
            self._store.run_sets.apply(found)
        except ApiError as error:
            if not says_absent(error, run_set.name):
                raise
            self._store.run_sets.remove(run_set.uid)

    async def _create_all(self, run_set: RunSetView, plan: RunSetPlan, refusal: SetRefusal | None) -> None:
        """Raises what is worth another try. What is refused goes into status with the next look, which follows."""
        answers: dict[int, str | BaseException | None] = {}
        rest = plan.creates
        while rest and not any(isinstance(answer, BaseException) for answer in answers.values()):
            made = sum(answer is None for answer in answers.values())
            now, rest = rest[: plan.room - made], rest[plan.room - made :]
            if not now:
                break
            results = await asyncio.gather(*(self._create(run_set, each) for each in now), return_exceptions=True)
            answers |= zip((each.index for each in now), results, strict=True)
        refused = {index: answer for index, answer in answers.items() if isinstance(answer, str)}
        known = read_ranges(refusal.indices) if refusal is not None else frozenset[int]()
        is_news = bool(refused.keys() - known)
        self._sets.note_made(run_set.uid, refused, taken=None in answers.values(), is_news=is_news)
        if refused:
            self._queue.add(set_key(run_set.namespace, run_set.name))
        for answer in answers.values():
            if isinstance(answer, BaseException):
                raise answer

    async def _create(self, run_set: RunSetView, run: CreateRun) -> str | None:
        """The API server's words, if it refuses the run. Raises what is worth another try.

        A run of this name that is there already is the set's own, or in its way: the next look sees which.
        """
        try:
            reply = await self._kube.create(RUNS, run.body, run_set.namespace)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                reply = await self._kube.get(RUNS, run.name, run_set.namespace)
            elif error.is_verdict:
                return error.message
            else:
                raise
        self._store.runs.apply(read_object(reply))
        return None
