"""One look at one key: observe, decide, execute. Everything else in this package serves these few lines."""

import dataclasses
from collections.abc import Callable

import orjson

from lockstep.controller.clock import Clock
from lockstep.controller.execute import Executor, StaleError
from lockstep.controller.kube import ApiError, KubeClient, says_absent
from lockstep.controller.reports import ReportBook
from lockstep.controller.resources import CONFIG_MAPS, RUNS
from lockstep.controller.store import Store, is_assignment_missing
from lockstep.controller.workqueue import CLUSTER_KEY, WorkQueue, run_key, split_run_key
from lockstep.core.admission.fifo import admit
from lockstep.core.assignment import ASSIGNMENT_KEY, is_held
from lockstep.core.breaker import disruption
from lockstep.core.conditions import is_true
from lockstep.core.decide import decide
from lockstep.core.plan import DeletePod
from lockstep.core.snapshot import Leadership, RunSnapshot, RunView
from lockstep.core.tunables import Tunables

_INTERVAL_LIVES = 60.0


class Reconciler:
    """Looks at keys. ``tunables`` is asked anew each time, so that a changed mode counts at once."""

    def __init__(
        self,
        *,
        kube: KubeClient,
        store: Store,
        book: ReportBook,
        queue: WorkQueue,
        executor: Executor,
        clock: Clock,
        tunables: Callable[[], Tunables],
    ) -> None:
        self._kube = kube
        self._store = store
        self._book = book
        self._queue = queue
        self._executor = executor
        self._clock = clock
        self._tunables = tunables
        self._leadership = Leadership(clock.now())
        self._most_workers = (0, 0.0)

    def lead(self) -> None:
        """This process leads from now on: what it has not heard before says nothing."""
        self._leadership = Leadership(self._clock.now())
        self._queue.clear()
        self._store.touch_all()

    async def reconcile(self, key: str) -> None:
        """Look at one key. Raises what is worth another try."""
        try:
            if key == CLUSTER_KEY:
                await self._cluster()
            else:
                await self._run(*split_run_key(key))
        except StaleError:
            self._queue.add(key)

    async def _run(self, namespace: str, name: str) -> None:
        await self._delete_orphans(namespace, name)
        run = self._store.run(namespace, name)
        if run is None:
            return
        if is_assignment_missing(run):
            await self._read_assignment(run)
        leadership = dataclasses.replace(self._leadership, workers=self._workers_told())
        snapshot = self._store.snapshot_run(namespace, name, self._book.reports(run.uid), leadership)
        if snapshot is None or is_assignment_missing(snapshot.run):
            return
        plan = decide(snapshot, self._tunables(), self._clock.now())
        if plan.wake_at is not None:
            self._queue.wake_at(run_key(namespace, name), plan.wake_at)
        await self._executor.run_plan(snapshot.run, plan)
        if plan.admission_changed:
            self._queue.add(CLUSTER_KEY)
        if _has_nobody_left(snapshot):
            self._book.forget(run.uid)

    def _workers_told(self) -> int:
        """The most workers of the last minute: some still keep the longer interval they were told then."""
        workers, now = self._book.worker_count(), self._clock.monotonic()
        most, at = self._most_workers
        if workers >= most or now - at > _INTERVAL_LIVES:
            self._most_workers = (workers, now)
        return self._most_workers[0]

    async def _cluster(self) -> None:
        # Nodes may be held that are not known yet: without them nothing may be admitted.
        for run in [run for run in self._store.runs if is_assignment_missing(run)]:
            await self._read_assignment(run)
        tunables, now = self._tunables(), self._clock.now()
        snapshot = self._store.snapshot_cluster(self._leadership)
        trouble = disruption(snapshot, tunables, now)
        if trouble != self._leadership.disruption:
            self._leadership = dataclasses.replace(self._leadership, disruption=trouble)
            snapshot = dataclasses.replace(snapshot, leadership=self._leadership)
            for affected in snapshot.runs:
                self._queue.add(run_key(affected.namespace, affected.name))
        if trouble:
            self._queue.wake_at(CLUSTER_KEY, now + tunables.breaker.window / 4)
        plan = admit(snapshot, tunables, now)
        if plan.wake_at is not None:
            self._queue.wake_at(CLUSTER_KEY, plan.wake_at)
        await self._executor.cluster_plan(plan)

    async def _delete_orphans(self, namespace: str, name: str) -> None:
        """Pods whose run is gone go too; that it is gone is first confirmed by a quorum read."""
        orphans = [p for p in self._store.orphaned_pods() if (p.namespace, p.run) == (namespace, name)]
        if not orphans:
            return
        try:
            living = orjson.loads(await self._kube.get(RUNS, name, namespace))["metadata"]["uid"]
        except ApiError as error:
            if not says_absent(error, name):
                raise
            living = ""
        gone = [pod for pod in orphans if pod.run_uid != living]
        for uid in {pod.run_uid for pod in gone}:
            self._book.forget(uid)
        await self._executor.delete_pods(
            [DeletePod(pod.namespace, pod.name, pod.uid, "its run is gone") for pod in gone if not pod.deleting]
        )

    async def _read_assignment(self, run: RunView) -> None:
        name = run.status.assignment.config_map
        config_map = orjson.loads(await self._kube.get(CONFIG_MAPS, name, run.namespace))
        self._store.keep_assignment(run.uid, config_map["data"][ASSIGNMENT_KEY])


def _has_nobody_left(snapshot: RunSnapshot) -> bool:
    """No worker will be heard again: those of the past must not stretch the heartbeats of the living."""
    over = is_true(snapshot.run.status, "Finished") or not is_held(snapshot.run.status.assignment)
    return over and all(pod.is_terminal for pod in snapshot.pods)
