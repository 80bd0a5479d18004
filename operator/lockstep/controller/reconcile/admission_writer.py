"""Carries out admission cycles: all nodes are booked before the first write is on its way.

A cycle waits for the writes that others may be judged by, and for no others.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from lockstep.api.base import nesting
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, DroppedError, KubeError, UnknownOutcome
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue, run_key
from lockstep.controller.reconcile.look_ups import LookUps
from lockstep.controller.reconcile.pace import RunPace
from lockstep.controller.reconcile.queue_status_writer import QueueStatusWriter, is_queue_status
from lockstep.controller.reconcile.run_writer import CONCURRENT_WRITES, RunWriter, StaleError, all_of, log_decision
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import QUEUES
from lockstep.controller.store.store import Store
from lockstep.core.model.assignment import is_held
from lockstep.core.model.plan import ClusterPlan, QueueStatusWrite, StatusWrite
from lockstep.core.model.snapshot import DryRunResult, RunView
from lockstep.core.pods.named_objects import absent_problems

log = logging.getLogger("lockstep.execute")
_REFRESH_PAUSE = 1.0
_REFRESH_PAUSE_MAX = 30.0


class AdmissionWriter:
    """Writes what cycles decide, many runs at once."""

    def __init__(
        self,
        kube: KubeClient,
        store: Store,
        runs: RunWriter,
        look_ups: LookUps,
        events: EventRecorder,
        queue: WorkQueue,
        pace: RunPace,
        clock: Clock,
    ) -> None:
        self.pace = pace
        self._queue = queue
        self._kube = kube
        self._look_ups = look_ups
        self._store = store
        self._runs = runs
        self._events = events
        self._clock = clock
        self._gate = asyncio.Semaphore(CONCURRENT_WRITES)
        self._queue_status_writer = QueueStatusWriter(store.writes, self._admit, self._note_failure)
        self._under_way: set[asyncio.Task[None]] = set()
        self._failures = 0  # of admissions that no cycle waited for …
        self._made_up_for = 0  # … as many as there were before the last cycle that succeeded
        events.busy = lambda: bool(self._under_way)

    async def carry_out(self, plan: ClusterPlan) -> None:
        """Carry out an admission cycle: all nodes are booked before the first write is on its way.

        Returns when all admissions are on their way and those writes are done that others may be judged by; the next
        cycles take the rest for written. Pending reasons are written as there is room. Once something that
        was not waited for has failed, cycles wait for all of their writes until these succeed. Raises the first
        failure of those that were waited for.
        """
        failures = self._failures
        in_step = failures > self._made_up_for
        beside, awaited, words = list[StatusWrite](), list[StatusWrite](), list[StatusWrite]()
        for write in self._writable(plan.writes):
            if is_queue_status(write, self._store.runs.get(write.uid)):
                if not self._waits(write):
                    (awaited if in_step else words).append(write)
            elif not in_step and self._concerns_nobody_else(write):
                beside.append(write)
            else:
                awaited.append(write)
        self._queue_status_writer.send(words)
        for write in beside:
            self._store.writes.assume(write.uid, write.status)
        for write in awaited:
            self._store.writes.book(write.uid, write.nodes)
        for write in beside:
            await self._gate.acquire()
            self._keep(self._admit_beside(write))
        # Should the cycle be cut short, these go on: ``settle`` waits for them as for the others.
        await asyncio.shield(all_of([self._keep(self._admit_in_turn(write)) for write in awaited]))
        self._made_up_for = failures

    def _writable(self, writes: Sequence[StatusWrite]) -> Iterator[StatusWrite]:
        """Those of runs of which nothing else is being written, and that would not only be refused again."""
        under_way = self._store.writes
        for write in writes:
            if under_way.is_under_way(write.uid) or self._store.refusals.bars(write):
                continue
            if self._store.runs.is_unread(write.uid):
                continue
            if not under_way.is_reporting(write.uid):
                yield write
            elif not is_queue_status(write, self._store.runs.get(write.uid)):
                under_way.hold_up(write.uid)

    def _waits(self, write: StatusWrite) -> bool:
        """The run has been told too much of late, and is told in a cycle to come. Whoever gets or loses nodes never
        waits."""
        rest = self.pace.rest_of_words(run_key(write.namespace, write.name))
        if rest:
            self._queue.wake_at(CLUSTER_KEY, self._clock.now() + rest)
        return rest > 0

    async def settle(self, within: float) -> bool:
        """Wait until what is on its way has its answer, for so many seconds at most; nothing is sent after that.

        False: some of it may take effect still, and nobody else may book nodes yet.
        """
        self._queue_status_writer.send(())
        tasks = {*self._under_way, *self._queue_status_writer.tasks}
        if tasks:
            await asyncio.wait(tasks, timeout=within)
        left = [task for task in (*self._under_way, *self._queue_status_writer.tasks) if not task.done()]
        for task in left:
            task.cancel()
        return not left

    def _concerns_nobody_else(self, write: StatusWrite) -> bool:
        """The write gives a run its first nodes, and all that others have to know of it is that these are taken."""
        run = self._store.runs.get(write.uid)
        if run is None or run.spec is None or not write.nodes:
            return False
        return not is_held(run.status.assignment) and run.spec.singleton is None

    async def _admit_in_turn(self, write: StatusWrite) -> None:
        async with self._gate:
            failed = True  # the next cycle comes after a back-off: at once it would only end the same way
            try:
                settled = await self._admit(write)
                failed = False
            finally:
                if failed or settled:
                    self._store.writes.release(write.uid, reschedule=not failed)

    async def _admit_beside(self, write: StatusWrite) -> None:
        settled = True
        try:
            settled = await self._admit(write)
        except Exception as error:
            log.warning("an admission of %s/%s was not written: %s", write.namespace, write.name, error)
            self._note_failure()
        finally:
            self._gate.release()
            if not settled:
                self._store.writes.book(write.uid, write.nodes)
            self._store.writes.drop_assumption(write.uid)

    def _note_failure(self) -> None:
        """The next cycle meets with the same, and comes again after a back-off."""
        self._failures += 1

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def queue_statuses(self, writes: Sequence[QueueStatusWrite]) -> bool:
        """Have queues say what is in them. Nothing rests on it: False asks to be called again a while later."""
        gate = asyncio.Semaphore(CONCURRENT_WRITES)

        async def written(write: QueueStatusWrite) -> bool:
            async with gate:
                return await self._write_queue(write)

        return all(await asyncio.gather(*map(written, writes)))

    async def _write_queue(self, write: QueueStatusWrite) -> bool:
        view = self._store.queues.cache.get(write.uid)
        if view is None or view.resource_version != write.resource_version:
            return False
        version = write.resource_version
        try:
            reply = await self._kube.patch_status(
                QUEUES, write.name, "", resource_version=version, patch=write.status.dump()
            )
        except KubeError as error:
            log.warning("the status of TrainingQueue %s cannot be written now: %s", write.name, error)
            return False
        self._store.queues.apply(nesting.loads(reply))
        return True

    async def _admit(self, write: StatusWrite) -> bool:
        """False: the outcome is not known, and whoever has a booking for it keeps it."""
        run = self._store.runs.get(write.uid)
        if run is None or run.resource_version != write.resource_version:
            return True  # it has changed since: another cycle will see
        if _gives_nodes(run, write) and await self._misses_something(run):
            return True
        of_status = False
        try:
            for config_map in write.config_maps:
                await self._runs.ensure_config_map(run, config_map)
            of_status = True
            self.pace.wrote_in_cycle(run_key(run.namespace, run.name))
            await self._runs.write_status(run, write.status)
            self._store.refusals.forget(run.uid)
            for event in write.events:
                self._events.run_event(run, event)
                log_decision(run, write.status.attempt, event.reason, event.note)
        except UnknownOutcome as unknown:
            self._keep(self._book_until_known(run, unknown.settles_at))
            return False
        except StaleError:
            pass
        except ApiError as refused:
            if isinstance(refused, DroppedError) or not refused.is_verdict:
                raise
            self._store.refusals.note(run, refused.message, of_status=of_status)  # nobody else is to wait for it
        return True

    async def _misses_something(self, run: RunView) -> bool:
        """What the run names was there when it was accepted and is gone: it waits for that, and not on nodes."""
        found = await self._look_ups.gone(run)
        if found.missing:
            words = "; ".join(f"{each.field}: {each.message}" for each in absent_problems(found.missing, run.namespace))
            self._store.refusals.note(run, words, of_status=False)
            self._store.set_dry_run(run.uid, DryRunResult(run.generation, True, "", self._clock.now(), found))
        return bool(found.missing)

    async def _book_until_known(self, run: RunView, settles_at: float) -> None:
        """The nodes stay booked until a quorum read, begun late enough, shows what became of the write."""
        await self._clock.sleep(settles_at - self._clock.now())
        pause = _REFRESH_PAUSE
        while True:
            try:
                await self._runs.refresh(run)
                break
            except KubeError as error:
                log.warning("the result of an admission of %s is not known yet: %s", run.key, error)
                await self._clock.sleep(pause)
                pause = min(2 * pause, _REFRESH_PAUSE_MAX)
        self._store.writes.release(run.uid)


def _gives_nodes(run: RunView, write: StatusWrite) -> bool:
    """It waited, and gets nodes of its own, or has some kept, for which others may have to leave."""
    if is_held(run.status.assignment):
        return False
    return is_held(write.status.assignment) or (run.status.reservation is None and write.status.reservation is not None)
