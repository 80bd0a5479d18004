"""Reconciles one key: observe, decide, execute. Everything else in this package serves these few lines."""

import dataclasses
import logging
from collections.abc import Callable, Sequence

from lockstep.api.base import nesting
from lockstep.api.base.nesting import read_object
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.election import LostLeadershipError
from lockstep.controller.kube.errors import ApiError, KubeError, says_absent
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue, run_key, split_run_key, split_set_key
from lockstep.controller.reconcile.execute import Executor
from lockstep.controller.reconcile.failing import AGAIN, Failing
from lockstep.controller.reconcile.node_marks import REST, NodeMarker
from lockstep.controller.reconcile.pace import LONG_REST
from lockstep.controller.reconcile.recoveries import Recoveries
from lockstep.controller.reconcile.run_set import RunSetReconciler
from lockstep.controller.reconcile.run_writer import StaleError
from lockstep.controller.reconcile.threaded_admission import decide_cycle
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import CONFIG_MAPS, PODS, RUNS
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.runtime.tracing import NoTracer, Tracer
from lockstep.controller.store.store import Store
from lockstep.controller.store.usage import UsageKeeper
from lockstep.controller.store.whole_status import is_assignment_missing, is_known_by_pods, is_reservation_missing
from lockstep.controller.workers.reports import ReportBook
from lockstep.core.accounting.measures import pool_records
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.queue_status import TOLD_EVERY
from lockstep.core.decide import decide
from lockstep.core.failures.breaker import disruption
from lockstep.core.failures.node_memory import forgiven_at
from lockstep.core.model.assignment import ASSIGNMENT_KEY, is_held
from lockstep.core.model.conditions import is_true
from lockstep.core.model.plan import DeletePod
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.reservation import RESERVATION_KEY
from lockstep.core.model.snapshot import ClusterSnapshot, Lag, Leadership, RunSnapshot, RunView
from lockstep.core.model.tunables import Mode, Tunables
from lockstep.core.pods.leftover_pods import orphan_deletes
from lockstep.core.run.undecidable import obeying_alone, without_deciding

log = logging.getLogger("lockstep.reconcile")
_INTERVAL_LIVES = 60.0
_LAST_ANSWERS = 5.0
_POOLS_EVERY = 10.0  # failures per node-day hardly move meanwhile
_STUCK = 5.0
"""Seconds until a cycle comes again at the latest whose writes all wait for the answers to earlier ones."""
_UNREAD_PATIENCE = 60.0
"""Seconds for which all others wait for the nodes of a run that the API server does not give."""
_UNREAD_AGAIN = 30.0
"""Seconds until the API server is asked again for what it does not give, or to delete what it does not let go."""
_READ_AGAIN = 5.0
"""Seconds until the book of usage is asked for again, when it could not be read."""


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
        nodes: NodeMarker,
        recoveries: Recoveries,
        usage: UsageKeeper,
        clock: Clock,
        tunables: Callable[[], Tunables],
        tallies: Tallies,
        run_sets: RunSetReconciler,
        tracer: Tracer | None = None,
        lag: Callable[[], Lag] = Lag,
    ) -> None:
        self._tracer = tracer or NoTracer()
        self._run_sets = run_sets
        self._lag = lag
        self._kube = kube
        self._store = store
        self._book = book
        self._queue = queue
        self._executor = executor
        self._nodes = nodes
        self._recoveries = recoveries
        self._usage = usage
        self._clock = clock
        self._tunables = tunables
        self._tallies = tallies
        self._leadership = Leadership(clock.now())
        self._memory = CycleMemory()
        self._pools_due = 0.0
        self._unread_since: dict[str, float] = {}  # run UID -> monotonic seconds
        self._orphans_again: dict[str, float] = {}  # key -> when they may be deleted again, monotonic
        self._most_workers = (0, 0.0)
        self._failing = Failing()

    def lead(self) -> None:
        """This process leads from now on: what it has not heard before says nothing."""
        self._leadership = Leadership(self._clock.now())
        self._memory = CycleMemory()
        self._pools_due = 0.0
        self._usage.lead()
        self._queue.clear()
        self._store.touch_all()

    async def stop(self) -> bool:
        """Let what is on its way come to its end; nothing is begun any more. False: it has not come to its end."""
        self._nodes.stop()
        return await self._executor.admissions.settle(_LAST_ANSWERS)

    async def reconcile(self, key: str) -> None:
        """Look at one key. Raises what is worth another try."""
        begun, kind = self._clock.monotonic(), key.partition("/")[0]
        try:
            with self._tracer.span(f"reconcile {kind}", key=key):
                await self._reconcile_key(key)
        finally:
            self._tallies.looks[kind].observe(self._clock.monotonic() - begun)

    async def _reconcile_key(self, key: str) -> None:
        try:
            if key == CLUSTER_KEY:
                await self._cluster()
            elif (place := split_set_key(key)) is not None:
                await self._run_sets.reconcile(*place)
            else:
                await self._run(*split_run_key(key))
        except StaleError:
            self._queue.add(key)

    @property
    def leads_since(self) -> float:
        """When this process began to lead, or to be."""
        return self._leadership.since

    @property
    def disruption(self) -> str:
        """Why no node is replaced now; empty while the breaker is closed."""
        return self._leadership.disruption

    async def _run(self, namespace: str, name: str) -> None:
        await self._delete_orphans_if_they_go(namespace, name)
        run, key, pace = self._store.runs.named(namespace, name), run_key(namespace, name), self._executor.pace
        if run is None:
            pace.forget(key)
            self._failing.forget(key)
            return
        if rest := pace.rest(key):
            self._queue.wake_at(key, self._clock.now() + rest)
            self._executor.objects.tell_of_pace(run)
            if rest > LONG_REST:
                await self._obey(run)
            return
        if not await self._has_its_nodes(run):
            return
        if self._tunables().scale_up.provisioning_requests and self._store.scale_ups.is_due(run):
            await self._executor.objects.provisioning_requests.read(run)
        await self._executor.objects.read_last_words(run)
        snapshot = self._snapshot(run)
        if snapshot is None or is_assignment_missing(snapshot.run):
            return
        await self._decide(snapshot)
        if _has_nobody_left(snapshot):
            self._book.forget(run.uid)
            self._recoveries.forget(run.uid)

    async def _obey(self, run: RunView) -> None:
        """Of a run that rests for long: whoever may stop it does not wait for that."""
        key, pace = run_key(run.namespace, run.name), self._executor.pace
        if wait := pace.rest_of_orders(key):
            self._queue.wake_at(key, self._clock.now() + wait)
            return
        if not await self._has_its_nodes(run):
            return
        with pace.obeying(key):
            snapshot = self._snapshot(run)
            if snapshot is None or is_assignment_missing(snapshot.run):
                return
            plan = obeying_alone(snapshot, self._tunables(), self._clock.now())
        await self._executor.run_plan(snapshot.run, plan)

    async def _has_its_nodes(self, run: RunView) -> bool:
        """Its assignment is known, or lost. False: the API server does not give it for long, or did not when that was
        told; the run obeys stop orders all the same. Raises KubeError until then, and when nobody is answered."""
        if not is_assignment_missing(run):
            return True
        try:
            await self._read_assignment(run)
        except ApiError as error:
            told = is_true(run.status, ConditionType.UNDECIDABLE)
            if not error.is_of_one_object or not (self._has_waited(run) or told):
                raise
            self._queue.wake_at(run_key(run.namespace, run.name), self._clock.now() + _UNREAD_AGAIN)
            snapshot = self._snapshot(run, unread=True)
            if snapshot is not None:
                plan = without_deciding(snapshot, self._tunables(), self._clock.now(), error.words)
                await self._executor.run_plan(snapshot.run, plan)
            return False
        return True

    def _has_waited(self, run: RunView) -> bool:
        """What is not given of the run has had its time."""
        since = self._unread_since.setdefault(run.uid, self._clock.monotonic())
        return self._clock.monotonic() - since >= _UNREAD_PATIENCE

    def _snapshot(self, run: RunView, *, unread: bool = False) -> RunSnapshot | None:
        leadership = dataclasses.replace(self._leadership, workers=self._recent_workers(), lag=self._lag())
        reports = self._book.reports(run.uid)
        ended = self._book.ended(run.uid)
        return self._store.snapshot_run(run.namespace, run.name, reports, leadership, ended=ended, unread=unread)

    async def _decide(self, snapshot: RunSnapshot) -> None:
        """Raises what is worth another try. What fails again and again is in status, and still obeys stop orders."""
        key = run_key(snapshot.run.namespace, snapshot.run.name)
        try:
            self._recoveries.observe(snapshot, self._queue.due_since(key))
            with self._executor.pace.measured(key, len(snapshot.run.status.assignment.nodes)):
                plan = decide(snapshot, self._tunables(), self._clock.now())
            await self._executor.run_plan(snapshot.run, plan)
        except (KubeError, StaleError, LostLeadershipError):
            raise
        except Exception as error:
            known = is_true(snapshot.run.status, ConditionType.UNDECIDABLE)
            if not self._failing.count_failure(key, error, known=known):
                raise
            self._queue.wake_at(key, self._clock.now() + AGAIN)
            plan = without_deciding(snapshot, self._tunables(), self._clock.now(), type(error).__name__)
            await self._executor.run_plan(snapshot.run, plan)
        else:
            self._failing.forget(key)

    def _recent_workers(self) -> int:
        """The most workers of the last minute: some still keep the longer heartbeat interval of then."""
        workers, now = self._book.worker_count(), self._clock.monotonic()
        most, at = self._most_workers
        if workers >= most or now - at > _INTERVAL_LIVES:
            self._most_workers = (workers, now)
        return self._most_workers[0]

    async def _cluster(self) -> None:
        await self._usage.settle()  # before the reads below: nothing may lie between the last of them and the snapshot
        # Nodes may be held that are not known yet: without them nothing may be admitted.
        given_up = await self._read_what_is_unread()
        tunables, now = self._tunables(), self._clock.now()
        known = self._store.begin_cycle(dataclasses.replace(self._leadership, lag=self._lag()), given_up)
        snapshot = self._usage.counted(known, tunables.admission.half_life)
        if now >= self._pools_due:
            pools = pool_records(run.status for run in snapshot.runs)
            self._leadership = dataclasses.replace(self._leadership, pools=pools)
            self._pools_due = now + _POOLS_EVERY
        snapshot = self._notice_disruption(snapshot, tunables, now)
        if not self._usage.is_read:
            self._queue.wake_at(CLUSTER_KEY, now + _READ_AGAIN)
        begun = self._clock.monotonic()
        with self._tracer.span("admission pass", runs=len(snapshot.runs), nodes=len(snapshot.nodes)):
            plan = await decide_cycle(snapshot, tunables, now, self._memory)
        for (kind, name), excluded in self._memory.excluded_objects.items():
            self._store.left_out.note(kind, name, excluded.until, excluded.error)
        self._store.changes.finish()
        self._tallies.passes.observe(self._clock.monotonic() - begun)
        if plan.wake_at is not None:
            # While nothing of it can be sent, the same would be decided again; the answers bring the next cycle.
            stuck = plan.writes and all(self._store.writes.is_under_way(write.uid) for write in plan.writes)
            self._queue.wake_at(CLUSTER_KEY, max(plan.wake_at, now + _STUCK) if stuck else plan.wake_at)
        await self._executor.admissions.carry_out(plan)
        if not await self._executor.admissions.queue_statuses(plan.queues):
            self._queue.wake_at(CLUSTER_KEY, now + TOLD_EVERY)
        self._nodes.begin_to_forgive()
        if (moment := forgiven_at(snapshot.nodes.values())) is not None:
            # Those whose day is over may be such as cannot be written: they must not bring us back at once.
            self._queue.wake_at(CLUSTER_KEY, max(moment, now + REST))

    def _notice_disruption(self, snapshot: ClusterSnapshot, tunables: Tunables, now: float) -> ClusterSnapshot:
        """Begin or end to take the cluster itself for broken, and have every run affected reconciled."""
        trouble = disruption(snapshot, tunables, now)
        if trouble != self._leadership.disruption:
            calm_since = self._leadership.calm_since if trouble else now
            self._leadership = dataclasses.replace(self._leadership, disruption=trouble, calm_since=calm_since)
            leadership = dataclasses.replace(self._leadership, lag=snapshot.leadership.lag)
            snapshot = dataclasses.replace(snapshot, leadership=leadership)
            for affected in snapshot.runs:
                self._queue.add(run_key(affected.namespace, affected.name))
        if trouble:
            self._queue.wake_at(CLUSTER_KEY, now + tunables.breaker.window / 4)
        return snapshot

    async def _delete_orphans_if_they_go(self, namespace: str, name: str) -> None:
        """Where the API server does not let us, a new run of that name does not wait for it."""
        key, now = run_key(namespace, name), self._clock.monotonic()
        if (again := self._orphans_again.get(key, now)) > now:
            self._queue.wake_at(key, self._clock.now() + again - now)
            return
        self._orphans_again.pop(key, None)
        deletes = await self._orphans(namespace, name)
        try:
            await self._executor.delete_pods(namespace, deletes)
        except KubeError as error:  # refused, or without an answer, as behind a webhook that fails
            kind = error.status if isinstance(error, ApiError) else type(error)
            self._store.left_out.note(PODS.plural, f"of {key}, which is gone,", kind, f"stay: {error.words}")
            self._orphans_again[key] = self._clock.monotonic() + _UNREAD_AGAIN
            self._queue.wake_at(key, self._clock.now() + _UNREAD_AGAIN)

    async def _orphans(self, namespace: str, name: str) -> Sequence[DeletePod]:
        """Pods whose run is gone go too; that it is gone is first confirmed by a quorum read. Raises KubeError."""
        orphans = self._store.orphaned_pods(namespace, name)
        if not orphans:
            return ()
        try:
            living = read_object(await self._kube.get(RUNS, name, namespace))["metadata"]["uid"]
        except ApiError as error:
            if not says_absent(error, name):
                raise
            living = ""
        gone = [pod for pod in orphans if pod.run_uid != living]
        if self._tunables().mode is Mode.REPORT_ONLY:
            return ()
        for uid in {pod.run_uid for pod in gone}:
            self._book.forget(uid)
            self._recoveries.forget(uid)
        return [*orphan_deletes(gone, self._tunables(), self._clock.now())]

    async def _read_what_is_unread(self) -> set[str]:
        """Runs whose nodes others need not wait for. Raises KubeError while there are some that they wait for, once all
        were asked for: each has its time at the same time."""
        unread, given_up, waited_for = self._store.runs.unread(), set[str](), list[KubeError]()
        self._unread_since = {run.uid: at for run in unread if (at := self._unread_since.get(run.uid)) is not None}
        for run in unread:
            try:
                if not await self._read_or_give_up(run):
                    given_up.add(run.uid)
            except KubeError as error:
                waited_for.append(error)
        if waited_for:
            raise waited_for[0]
        return given_up

    async def _read_or_give_up(self, run: RunView) -> bool:
        """What lies in ConfigMaps of a run is known, or is not to be had and lost.

        False: the API server does not give it, and that is this run's affair alone. Others get what none of its pods
        is on: at once where every slot has a pod, else when it has had time to be given. Raises KubeError until then,
        and when nobody is answered.
        """
        try:
            if is_assignment_missing(run):
                await self._read_assignment(run)
            if is_reservation_missing(run):
                await self._read_reservation(run)
        except ApiError as error:
            if not error.is_of_one_object:
                raise
            if not self._has_waited(run) and not is_known_by_pods(run, self._store.vouched_pods_of(run.uid)):
                raise
            self._store.left_out.note(CONFIG_MAPS.plural, f"of {run.key}", run.uid, error)
            self._queue.wake_at(CLUSTER_KEY, self._clock.now() + _UNREAD_AGAIN)
            return False
        return True

    async def _read_assignment(self, run: RunView) -> None:
        """One that cannot be had must not hold up the admission of everybody else: the run itself is mended or held."""
        name = run.status.assignment.config_map
        runs = self._store.runs
        await self._read_config_map(run, name, ASSIGNMENT_KEY, runs.keep_assignment, runs.lose_assignment)

    async def _read_reservation(self, run: RunView) -> None:
        """One that cannot be had lapses."""
        name = run.status.reservation.config_map if run.status.reservation is not None else ""
        store = self._store
        await self._read_config_map(
            run, name, RESERVATION_KEY, store.runs.keep_reservation, store.runs.lose_reservation
        )

    async def _read_config_map(
        self, run: RunView, name: str, key: str, keep: Callable[[str, str], None], lose: Callable[[str], None]
    ) -> None:
        try:
            text = await self._kube.get(CONFIG_MAPS, name, run.namespace)
            keep(run.uid, nesting.loads(text)["data"][key])
        except ApiError as error:
            if not says_absent(error, name):
                raise
            lose(run.uid)
        except KubeError:
            raise
        except Exception as error:  # whatever somebody has put in its place
            log.error("ConfigMap %s/%s is not what %s needs: %r", run.namespace, name, run.name, error)
            lose(run.uid)


def _has_nobody_left(snapshot: RunSnapshot) -> bool:
    """No worker will be heard again: those of the past must not stretch the heartbeats of the living."""
    over = is_true(snapshot.run.status, ConditionType.FINISHED) or not is_held(snapshot.run.status.assignment)
    return over and all(pod.is_terminal for pod in snapshot.pods)
