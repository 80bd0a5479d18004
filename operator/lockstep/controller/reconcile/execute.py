"""Carries out plans: the status first, then what rests on it.

If the process dies between any two lines here, the next leader decides again from what was written
and arrives at the rest of the plan.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from typing import Any

from lockstep.api.base import names, nesting
from lockstep.api.base.nesting import read_object
from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import (
    ApiError,
    DroppedError,
    KubeError,
    UnknownOutcome,
    UnreachableError,
    says_absent,
)
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue, run_key
from lockstep.controller.reconcile.config_maps import ConfigMaps
from lockstep.controller.reconcile.history import History
from lockstep.controller.reconcile.look_ups import LookUps
from lockstep.controller.reconcile.node_marks import NodeMarker
from lockstep.controller.reconcile.pace import RunPace
from lockstep.controller.reconcile.queue_status_writer import QueueStatusWriter, is_queue_status
from lockstep.controller.reconcile.recoveries import Recoveries
from lockstep.controller.reconcile.workload_writer import WorkloadWriter
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.patches import dropped, status_patch
from lockstep.controller.runtime.resources import JOBS, PODS, QUEUES, RUNS
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.store.archive_jobs import parse_job
from lockstep.controller.store.job_ids import JobIds
from lockstep.controller.store.pod_groups import PodGroups
from lockstep.controller.store.scale_ups import ProvisioningRequests
from lockstep.controller.store.store import Store
from lockstep.controller.workers.reports import ReportBook
from lockstep.core.kueue.pod_marks import held_back
from lockstep.core.model.assignment import is_held
from lockstep.core.model.cluster_objects import parse_pod
from lockstep.core.model.named_objects import LookedUp
from lockstep.core.model.plan import (
    ClusterPlan,
    CreateJob,
    CreatePlaceholder,
    CreatePod,
    DeletePod,
    DeleteProvisioning,
    DryRunPod,
    EnsureConfigMap,
    EnsurePodGroup,
    EnsureProvisioning,
    Plan,
    QueueStatusWrite,
    StatusWrite,
    SubmitRun,
)
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.snapshot import DryRunResult, PlaceholderView, PodView, RefusedCreate, RunView
from lockstep.core.pods.named_objects import absent_problems

log = logging.getLogger("lockstep.execute")
_CONCURRENT_ADMISSIONS = 16  # more of them only make each other, and the lease, wait longer
_ANSWER_SOON = 1.0
"""Seconds until a run is reconciled again that was decided upon while an admission of it had no answer."""
_REFRESH_PAUSE = 1.0
_REFRESH_PAUSE_MAX = 30.0


class StaleError(Exception):
    """The object has changed since the plan was made: decide again on what is there now."""


class Executor:
    """Does what plans say, and nothing else."""

    def __init__(
        self,
        kube: KubeClient,
        store: Store,
        book: ReportBook,
        events: EventRecorder,
        tallies: Tallies,
        recoveries: Recoveries,
        clock: Clock,
        nodes: NodeMarker,
        history: History,
        queue: WorkQueue,
        pace: RunPace | None = None,
        job_ids: JobIds | None = None,
        *,
        look_up_secrets: bool = False,
    ) -> None:
        self._job_ids = job_ids or JobIds(kube, store, "")
        self._queue = queue
        self.pace = pace or RunPace(clock, tallies)
        self._workloads = WorkloadWriter(kube, store.kueue, queue, clock)
        self._history = history
        self._nodes = nodes
        self._kube = kube
        self._config_maps = ConfigMaps(kube, clock)
        self._look_ups = LookUps(kube, clock, secrets=look_up_secrets)
        self._pod_groups = PodGroups(kube)
        self.provisioning_requests = ProvisioningRequests(kube, store.scale_ups)
        self._store = store
        self._book = book
        self._events = events
        self._tallies = tallies
        self._recoveries = recoveries
        self._clock = clock
        self._gate = asyncio.Semaphore(_CONCURRENT_ADMISSIONS)
        self._queue_status_writer = QueueStatusWriter(store.writes, self._admit, self._note_failure)
        self._under_way: set[asyncio.Task[None]] = set()
        self._failures = 0  # of admissions that no cycle waited for …
        self._made_up_for = 0  # … as many as there were before the last cycle that succeeded
        events.busy = lambda: bool(self._under_way)

    async def run_plan(self, run: RunView, plan: Plan) -> None:
        """Carry out a run's plan. Raises StaleError, or a KubeError that is worth another try."""
        if plan.wake_at is not None:
            self._queue.wake_at(run_key(run.namespace, run.name), plan.wake_at)
        try:
            await self._carry_out(run, plan)
        finally:
            # Status may be written although a pod was not: the next plan would not ask for the cycle again.
            if plan.admission_changed:
                self._queue.add(CLUSTER_KEY)

    async def _carry_out(self, run: RunView, plan: Plan) -> None:
        for config_map in plan.config_maps:
            try:
                await self._ensure_config_map(run, config_map)
            except KubeError as error:
                self._note_not_made(run, plan.creates, error, f"ConfigMap {config_map.name}: ")
                raise
        key, gang = run_key(run.namespace, run.name), len((plan.status or run.status).assignment.nodes)
        if plan.status is not None:
            self.pace.wrote(key)
        self.pace.said(key, len(plan.events), gang)
        if plan.status is not None and not plan.pod_group_deletes:
            await self._write_status(run, plan.status)
        if plan.directive is not None:
            self._book.set_directive(run.uid, plan.directive)
        for event in plan.events:
            self._events.run_event(run, event)
            _log_decision(run, (plan.status or run.status).attempt, event.reason, event.note)
        if plan.dry_run is not None:
            await self._dry_run(run, plan.dry_run)
        if plan.take_job_id:
            await self._take_job_id(run)
        await _all_of(
            [
                *(self._delete(pod) for pod in plan.deletes),
                self._create_pods(run, plan),
                *(self._create_job(run, job) for job in plan.jobs),
                *(self._submit_run(run, made) for made in plan.runs),
                self._create_placeholders(run, plan.placeholders),
                self._provision(run, plan.provisioning),
                *(self._nodes.note(each) for each in plan.node_failures),
            ]
        )
        if plan.pod_group_deletes:  # after all that: it may take long, or fail, where a webhook is in the way
            for gone in plan.pod_group_deletes:
                await self._pod_groups.delete(run, gone)
            if plan.status is not None:
                await self._write_status(run, plan.status)
        if plan.delete_run:
            await self._forget(run)
        if plan.workload is not None and self._store.writes.is_under_way(run.uid):
            # The gang may have its nodes by now, on the reservation that this would let go of.
            self._queue.wake_at(run_key(run.namespace, run.name), self._clock.now() + _ANSWER_SOON)
        elif plan.workload is not None:
            await self._workloads.carry_out(run, plan.workload)

    async def cluster_plan(self, plan: ClusterPlan) -> None:
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
            if not in_step and self._concerns_nobody_else(write):
                beside.append(write)
            elif not in_step and is_queue_status(write, self._store.run_by_uid(write.uid)):
                words.append(write)
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
        await asyncio.shield(_all_of([self._keep(self._admit_in_turn(write)) for write in awaited]))
        self._made_up_for = failures

    def _writable(self, writes: Sequence[StatusWrite]) -> Iterator[StatusWrite]:
        """Those of runs of which nothing else is being written, and that would not only be refused again."""
        under_way = self._store.writes
        for write in writes:
            if under_way.is_under_way(write.uid) or self._store.refusals.bars(write):
                continue
            if self._store.is_unread(write.uid):
                continue
            if not under_way.is_reporting(write.uid):
                yield write
            elif not is_queue_status(write, self._store.run_by_uid(write.uid)):
                under_way.hold_up(write.uid)

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
        run = self._store.run_by_uid(write.uid)
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
                    self._store.writes.release(write.uid, look_again=not failed)

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
        gate = asyncio.Semaphore(_CONCURRENT_ADMISSIONS)

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

    async def delete_pods(self, pods: list[DeletePod]) -> None:
        """Delete pods whose run is gone."""
        await _all_of([self._delete(pod) for pod in pods])

    async def _admit(self, write: StatusWrite) -> bool:
        """False: the outcome is not known, and whoever has a booking for it keeps it."""
        run = self._store.run_by_uid(write.uid)
        if run is None or run.resource_version != write.resource_version:
            return True  # it has changed since: another cycle will see
        if _gives_nodes(run, write) and await self._misses_something(run):
            return True
        of_status = False
        try:
            for config_map in write.config_maps:
                await self._ensure_config_map(run, config_map)
            of_status = True
            await self._write_status(run, write.status)
            self._store.refusals.forget(run.uid)
            for event in write.events:
                self._events.run_event(run, event)
                _log_decision(run, write.status.attempt, event.reason, event.note)
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
                await self._refresh(run)
                break
            except KubeError as error:
                log.warning("the result of an admission of %s is not known yet: %s", run.key, error)
                await self._clock.sleep(pause)
                pause = min(2 * pause, _REFRESH_PAUSE_MAX)
        self._store.writes.release(run.uid)

    async def _write_status(self, run: RunView, status: TrainingRunStatus) -> None:
        patch = status_patch(run.status, status)
        try:
            reply = await self._kube.patch_status(
                RUNS, run.name, run.namespace, resource_version=run.resource_version, patch=patch
            )
        except ApiError as error:
            if error.status in (404, 409):
                await self._refresh(run)
                raise StaleError from error
            self._warn(run, "status", error, EventReason.STATUS_REFUSED, ActionWord.WRITE_STATUS)
            raise
        except KubeError as error:
            self._warn(run, "status", error, EventReason.STATUS_REFUSED, ActionWord.WRITE_STATUS)
            raise
        self._store.forget_refused_create(run.uid, "status")
        written = read_object(reply)
        self._store.apply_run(written, status.assignment, status.reservation)
        if (lacks := next(dropped(patch, written.get("status") or {}), None)) is not None:
            # What rests on this status must not be done: the next leader would not know of it.
            words = f"{lacks} was not stored: the CRDs are older than the operator; apply those of its version (crds/)"
            self._events.warn(run, EventReason.STATUS_REFUSED, ActionWord.WRITE_STATUS, words)
            raise DroppedError(422, "Invalid", words)
        self._tallies.status_written(run.status, status)
        self._tallies.made_room(run, status, self._clock.now())
        self._recoveries.status_written(run, status)
        self._history.status_written(run, status)

    async def _refresh(self, run: RunView) -> None:
        """Read the run from a quorum. Were one that is gone kept, its plan would be made again at once."""
        try:
            found = read_object(await self._kube.get(RUNS, run.name, run.namespace))
            if int(found["metadata"]["resourceVersion"]) < int(run.resource_version):
                self._store.runs.set_back(run.uid, int(run.resource_version))
            self._store.apply_run(found)
        except ApiError as error:
            if not says_absent(error, run.name):
                raise
            self._store.remove_run(run.namespace, run.name, run.uid)

    async def _forget(self, run: RunView) -> None:
        """Delete the run as it was seen: whoever wants it kept for longer since is heard."""
        version = run.resource_version
        gone = await self._kube.delete(RUNS, run.name, run.namespace, uid=run.uid, resource_version=version)
        if gone is not None:
            log.info("deleted: it has been kept for as long as was asked", extra={"run": run.key, "uid": run.uid})

    async def _ensure_config_map(self, run: RunView, wanted: EnsureConfigMap) -> None:
        what = f"ConfigMap {wanted.name}: "
        try:
            await self._config_maps.ensure(wanted)
        except KubeError as error:
            self._warn(run, what, error, EventReason.CONFIG_MAP_REFUSED, ActionWord.CREATE_CONFIG_MAP)
            if error.is_verdict and wanted.optional:
                return
            raise
        self._store.forget_refused_create(run.uid, what)

    async def _take_job_id(self, run: RunView) -> None:
        what = f"ConfigMap {names.JOB_IDS_CONFIG_MAP}: "
        try:
            await self._job_ids.take(run.uid)
        except KubeError as error:
            self._warn(run, what, error, EventReason.CONFIG_MAP_REFUSED, ActionWord.CREATE_CONFIG_MAP)
            raise
        self._store.forget_refused_create(run.uid, what)
        self._queue.add(run_key(run.namespace, run.name))

    async def _dry_run(self, run: RunView, asked: DryRunPod) -> None:
        looking = asyncio.create_task(self._look_ups.look_up(run.namespace, asked.named))
        try:
            why, found = await self._held_against(run, asked), await looking
            if asked.body is None and not found.missing:
                self._store.refusals.forget(run.uid)  # for the lack of it
            self._store.set_dry_run(run.uid, DryRunResult(asked.generation, not why, why, self._clock.now(), found))
        except (ApiError, UnknownOutcome) as error:
            judged = False if error.is_verdict else None
            found = await looking if error.is_verdict else LookedUp()
            answer = DryRunResult(asked.generation, judged, error.words, self._clock.now(), found)
            self._store.set_dry_run(run.uid, answer)
            if not error.is_verdict:
                raise
        finally:
            looking.cancel()

    async def _held_against(self, run: RunView, asked: DryRunPod) -> str:
        """Why a pod that is taken would wait for good; mostly nothing."""
        if asked.body is None:
            return ""
        return held_back(read_object(await self._kube.create(PODS, asked.body, run.namespace, dry_run=True)))

    def _note_not_made(self, run: RunView, pods: Sequence[CreatePod], error: KubeError, of: str = "") -> bool:
        """Keep what the API server has said against pods, be it no verdict; True when it is news.

        While nobody reaches it nothing is said: nobody could be told either.
        """
        if isinstance(error, UnreachableError):
            return False
        refused = RefusedCreate(self._clock.now(), of + error.words, error.is_verdict)
        news = [self._store.note_refused_create(run.uid, pod.name, refused) for pod in pods]
        return any(news)

    def _warn(self, run: RunView, what: str, error: KubeError, reason: EventReason, action: ActionWord) -> None:
        """Say what the API server has against a write for a run; where it has not judged that, once it lasts."""
        words = (what if what.endswith(": ") else "") + error.words
        refused = RefusedCreate(self._clock.now(), words, error.is_verdict)
        unreached = isinstance(error, UnreachableError)
        if error.is_verdict or (not unreached and self._store.note_refused_create(run.uid, what, refused)):
            self._events.warn(run, reason, action, words)

    async def _create_pods(self, run: RunView, plan: Plan) -> None:
        """Their group is there before them: a scheduler that finds none would hold them, or take each by itself."""
        if not plan.creates:
            return
        key = run_key(run.namespace, run.name)
        if rest := self.pace.rest_of_pods(key):
            self._queue.wake_at(key, self._clock.now() + rest)  # what is missing is asked for again
            self.tell_of_pace(run)
            return
        self.pace.made(key, len(plan.creates), len((plan.status or run.status).assignment.nodes))
        if plan.pod_group is not None:
            await self._ensure_pod_group(run, plan.pod_group, plan.creates)
        await _all_of([self._create(run, pod) for pod in plan.creates])

    def tell_of_pace(self, run: RunView) -> None:
        """That the run has to wait, and why; now and then."""
        if words := self.pace.news(run_key(run.namespace, run.name)):
            self._events.warn(run, EventReason.PACED, ActionWord.HOLD, words)
            _log_decision(run, run.status.attempt, EventReason.PACED, words)

    async def _ensure_pod_group(self, run: RunView, group: EnsurePodGroup, members: Sequence[CreatePod]) -> None:
        try:
            await self._pod_groups.ensure(run, group)
        except KubeError as error:
            of = f"PodGroup {group.name}: "
            if self._note_not_made(run, members, error, of):
                self._events.warn(run, EventReason.POD_GROUP_REFUSED, ActionWord.CREATE_POD_GROUP, of + error.words)
            raise

    async def _create(self, run: RunView, pod: CreatePod) -> None:
        try:
            reply = await self._kube.create(PODS, pod.body, pod.namespace)
        except KubeError as error:
            if isinstance(error, ApiError) and error.reason == "AlreadyExists":
                await self._recognise(run, pod)
                return
            if self._note_not_made(run, [pod], error):
                self._events.warn(run, EventReason.POD_REFUSED, ActionWord.CREATE_POD, f"pod {pod.name}: {error.words}")
            raise
        self._store.apply_pod(reply)

    async def _recognise(self, run: RunView, pod: CreatePod) -> None:
        """A pod of this name exists: ours from a creation whose answer was lost, or somebody else's."""
        reply = await self._kube.get(PODS, pod.name, pod.namespace)
        owners = nesting.loads(reply)["metadata"].get("ownerReferences", [])
        if any(owner.get("uid") == run.uid for owner in owners):
            self._store.apply_pod(reply)
            if isinstance(parse_pod(reply).view, PodView):
                return
            reason = EventReason.POD_OWNER_LOST
            message = (
                f"pod {pod.name} does not name the run as its controller any more; delete it, and stop who changes it"
            )
        else:
            reason = EventReason.POD_NAME_CONFLICT
            message = f"a pod {pod.name} that is not of this run is in the way; delete or rename it"
        refused = RefusedCreate(self._clock.now(), message)
        if self._store.note_refused_create(run.uid, pod.name, refused):
            self._events.warn(run, reason, ActionWord.CREATE_POD, message)
        raise ApiError(409, "AlreadyExists", message)

    async def _create_job(self, run: RunView, job: CreateJob) -> None:
        """One that is refused holds up nothing else: it is said, and made again when the run is next reconciled."""
        what = f"job {job.name}: "
        try:
            reply = await self._kube.create(JOBS, job.body, job.namespace)
        except KubeError as error:
            if isinstance(error, ApiError) and error.reason == "AlreadyExists":
                return
            self._warn(run, what, error, EventReason.ARCHIVE_JOB_REFUSED, ActionWord.ARCHIVE)
            if not error.is_verdict:
                raise
            return
        self._store.forget_refused_create(run.uid, what)
        self._store.archive_jobs.cache.upsert(parse_job(reply))

    async def _submit_run(self, run: RunView, made: SubmitRun) -> None:
        """One that is refused is told to who asked for it."""
        try:
            reply = await self._kube.create(RUNS, made.body, made.namespace)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                reply = await self._kube.get(RUNS, made.name, made.namespace)
            elif error.is_verdict:
                refused = RefusedCreate(self._clock.now(), error.words)
                self._store.note_refused_create(run.uid, made.name, refused)
                self._queue.add(run_key(run.namespace, run.name))
                return
            else:
                raise
        self._store.apply_run(read_object(reply))

    async def _create_placeholders(self, run: RunView, wanted: Sequence[CreatePlaceholder]) -> None:
        """One that is refused holds up nothing else: it is said, and made again when the run is next looked at."""
        key = run_key(run.namespace, run.name)
        if not wanted:
            return
        if rest := self.pace.rest_of_pods(key):
            self._queue.wake_at(key, self._clock.now() + rest)
            return
        asked = run.status.scale_up
        self.pace.made(key, len(wanted), asked.nodes if asked is not None else 0)
        for first in range(0, len(wanted), _CONCURRENT_ADMISSIONS):
            await _all_of(
                [self._create_placeholder(run, pod) for pod in wanted[first : first + _CONCURRENT_ADMISSIONS]]
            )

    async def _create_placeholder(self, run: RunView, pod: CreatePlaceholder) -> None:
        try:
            reply = await self._kube.create(PODS, pod.body, pod.namespace)
        except KubeError as error:
            if not isinstance(error, ApiError) or error.reason != "AlreadyExists":
                self._note_scale_up_refused(run, pod.name, error)
                if not error.is_verdict:
                    raise
                return
            # Ours from a creation whose answer was lost, or somebody else's.
            reply = await self._kube.get(PODS, pod.name, pod.namespace)
            found = parse_pod(reply).view
            if not isinstance(found, PlaceholderView) or found.run_uid != run.uid:
                words = f"a pod {pod.name} that is not of this run is in the way; delete or rename it"
                self._note_scale_up_refused(run, pod.name, ApiError(409, "AlreadyExists", words))
                return
        self._store.forget_refused_create(run.uid, pod.name)
        self._store.apply_pod(reply)

    async def _provision(self, run: RunView, wanted: EnsureProvisioning | DeleteProvisioning | None) -> None:
        if wanted is None:
            return
        try:
            if isinstance(wanted, EnsureProvisioning):
                await self.provisioning_requests.ensure(run, wanted)
                self._store.forget_refused_create(run.uid, wanted.name)
            else:
                await self.provisioning_requests.delete(run, wanted)
        except KubeError as error:
            self._note_scale_up_refused(run, wanted.name, error)
            if not error.is_verdict:
                raise
            return
        self._queue.wake_at(
            run_key(run.namespace, run.name), self._clock.now() + _ANSWER_SOON
        )  # to see what came of it

    def _note_scale_up_refused(self, run: RunView, name: str, error: KubeError) -> None:
        """The run's condition tells of it from the next look on."""
        refused = RefusedCreate(self._clock.now(), error.words, error.is_verdict)
        if self._store.note_refused_create(run.uid, name, refused):
            self._queue.wake_at(run_key(run.namespace, run.name), self._clock.now() + _ANSWER_SOON)

    async def _delete(self, pod: DeletePod) -> None:
        reply = await self._kube.delete(PODS, pod.name, pod.namespace, uid=pod.uid, grace=pod.grace)
        if reply is not None:
            self._store.apply_pod(reply)
        log.info("deleted pod", extra={"pod": f"{pod.namespace}/{pod.name}", "cause": pod.reason})


def _gives_nodes(run: RunView, write: StatusWrite) -> bool:
    """It waited, and gets nodes of its own, or has some kept, for which others may have to leave."""
    if is_held(run.status.assignment):
        return False
    return is_held(write.status.assignment) or (run.status.reservation is None and write.status.reservation is not None)


async def _all_of(work: Sequence[Awaitable[None]]) -> None:
    """Run everything to its end, then raise the first error: one bad pod must not hold up the others."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _log_decision(run: RunView, attempt: int, action: str, note: str) -> None:
    log.info(note, extra={"run": run.key, "uid": run.uid, "attempt": attempt, "action": action})
