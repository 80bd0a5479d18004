"""Carries out plans: the status first, then what rests on it.

If the process dies between any two lines here, the next leader decides again from what was written
and arrives at the rest of the plan.
"""

import asyncio
from collections.abc import Sequence

from lockstep.api.base import names
from lockstep.api.base.nesting import read_object
from lockstep.controller.kube.client import KubeClient, pods_lane
from lockstep.controller.kube.errors import (
    ApiError,
    KubeError,
    UnknownOutcome,
)
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue, run_key
from lockstep.controller.reconcile.admission_writer import AdmissionWriter
from lockstep.controller.reconcile.history import History
from lockstep.controller.reconcile.look_ups import LookUps
from lockstep.controller.reconcile.node_marks import NodeMarker
from lockstep.controller.reconcile.pace import RunPace
from lockstep.controller.reconcile.pod_turns import PodTurns
from lockstep.controller.reconcile.recoveries import Recoveries
from lockstep.controller.reconcile.run_objects import ANSWER_SOON, RunObjects
from lockstep.controller.reconcile.run_writer import RunWriter, all_of, log_decision
from lockstep.controller.reconcile.workload_writer import WorkloadWriter
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import PODS
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.store.job_ids import JobIds
from lockstep.controller.store.store import Store
from lockstep.controller.workers.reports import ReportBook
from lockstep.core.kueue.pod_marks import held_back
from lockstep.core.model.job_ids import job_ids_of
from lockstep.core.model.named_objects import LookedUp
from lockstep.core.model.plan import DeletePod, DryRunPod, Plan
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.snapshot import DryRunResult, RunView


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
        self._nodes = nodes
        self._kube = kube
        self._pod_turns = PodTurns(kube)
        self._look_ups = LookUps(kube, clock, secrets=look_up_secrets)
        self._runs = RunWriter(kube, store, events, tallies, recoveries, history, clock)
        self.admissions = AdmissionWriter(kube, store, self._runs, self._look_ups, events, queue, self.pace, clock)
        self.objects = RunObjects(kube, store, self._runs, events, queue, self.pace, clock)
        self._store = store
        self._book = book
        self._events = events
        self._clock = clock

    async def run_plan(self, run: RunView, plan: Plan) -> None:
        """Carry out a run's plan. Raises StaleError, or a KubeError that is worth another try."""
        if plan.wake_at is not None:
            self._queue.wake_at(run_key(run.namespace, run.name), plan.wake_at)
        try:
            await self._carry_out(run, plan)
        except UnknownOutcome:
            # The cycle below comes before the watch tells of it; of a run that is gone nothing more is heard.
            if plan.admission_changed and self._store.runs.get(run.uid) is not None:
                self._store.writes.note_unanswered(run.uid)
            raise
        finally:
            # Status may be written although a pod was not: the next plan would not ask for the cycle again.
            if plan.admission_changed:
                self._queue.add(CLUSTER_KEY)

    async def _carry_out(self, run: RunView, plan: Plan) -> None:
        for config_map in plan.config_maps:
            try:
                await self._runs.ensure_config_map(run, config_map)
            except KubeError as error:
                self._runs.note_not_made(run, plan.creates, error, f"ConfigMap {config_map.name}: ")
                raise
        key, gang = run_key(run.namespace, run.name), len((plan.status or run.status).assignment.nodes)
        if plan.status is not None:
            self.pace.wrote(key)
        self.pace.count_events(key, len(plan.events), gang)
        if plan.status is not None and not plan.pod_group_deletes:
            await self._runs.write_status(run, plan.status)
        if plan.directive is not None:
            self._book.set_directive(run.uid, plan.directive)
        for event in plan.events:
            self._events.run_event(run, event)
            log_decision(run, (plan.status or run.status).attempt, event.reason, event.note)
        if plan.dry_run is not None:
            with self._pod_turns.take(pods_lane(run.namespace)):
                await self._dry_run(run, plan.dry_run)
        if plan.take_job_id:
            await self._take_job_id(run)
        for each in plan.node_failures:
            self._nodes.begin_to_note(each)
        await all_of(
            [
                self.delete_pods(run.namespace, plan.deletes),
                self._make_pods(run, plan),
                *(self.objects.create_job(run, job) for job in plan.jobs),
                *(self.objects.delete_job(run, job) for job in plan.ended_jobs),
                *(self.objects.submit_run(run, made) for made in plan.runs),
                *(self.objects.refuse_run(run, gone) for gone in plan.refused_runs),
                self.objects.provision(run, plan.provisioning),
            ]
        )
        left: KubeError | None = None
        if plan.pod_group_deletes:  # after all that: it may take long, or fail, where a webhook is in the way
            try:
                await all_of([self.objects.pod_groups.delete(run, gone) for gone in plan.pod_group_deletes])
            except KubeError as error:
                left = error  # status still names them, and nothing below rests on it
            if left is None and plan.status is not None:
                await self._runs.write_status(run, plan.status)
        if plan.delete_run:
            await self._runs.forget(run)
        if plan.workload is not None and self._store.writes.is_under_way(run.uid):
            # The gang may have its nodes by now, on the reservation that this would let go of.
            self._queue.wake_at(run_key(run.namespace, run.name), self._clock.now() + ANSWER_SOON)
        elif plan.workload is not None:
            await self._workloads.carry_out(run, plan.workload)
        if left is not None:
            raise left

    async def delete_pods(self, namespace: str, pods: Sequence[DeletePod]) -> None:
        """Delete pods of one run, each by itself. Raises a KubeError that is worth another try."""
        if pods:
            with self._pod_turns.take(pods_lane(namespace, deletes=True)):
                await self.objects.delete_pods(pods)

    async def _make_pods(self, run: RunView, plan: Plan) -> None:
        if plan.creates or plan.placeholders:
            with self._pod_turns.take(pods_lane(run.namespace)):
                created = self.objects.create_pods(run, plan)
                await all_of([created, self.objects.create_placeholders(run, plan.placeholders)])

    async def _take_job_id(self, run: RunView) -> None:
        what = f"ConfigMap {names.JOB_IDS_CONFIG_MAP}: "
        try:
            await self._job_ids.take(run.uid, job_ids_of(run.spec))
        except KubeError as error:
            self._runs.warn(run, what, error, EventReason.CONFIG_MAP_REFUSED, ActionWord.CREATE_CONFIG_MAP)
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
