"""Makes and deletes what a run consists of beside its status: pods and their group, jobs, runs, wishes to scale up."""

import logging
from collections.abc import Sequence

from lockstep.api.base import nesting
from lockstep.api.base.nesting import read_object
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.election import LostLeadershipError
from lockstep.controller.kube.errors import ApiError, KubeError, UnreachableError
from lockstep.controller.kube.events import EventRecorder
from lockstep.controller.kube.workqueue import WorkQueue, run_key
from lockstep.controller.reconcile.pace import RunPace
from lockstep.controller.reconcile.run_writer import CONCURRENT_WRITES, RunWriter, all_of, log_decision
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import JOBS, PODS, RUNS
from lockstep.controller.store.archive_jobs import JOB_NAME_LABEL, last_words, parse_job
from lockstep.controller.store.pod_groups import PodGroups
from lockstep.controller.store.scale_ups import ProvisioningRequests
from lockstep.controller.store.store import Store
from lockstep.core.model.cluster_objects import parse_pod
from lockstep.core.model.plan import (
    CreateJob,
    CreatePlaceholder,
    CreatePod,
    DeleteJob,
    DeletePod,
    DeleteProvisioning,
    EnsurePodGroup,
    EnsureProvisioning,
    Plan,
    RefuseRun,
    SubmitRun,
)
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.snapshot import PlaceholderView, PodView, RefusedCreate, RunView

log = logging.getLogger("lockstep.execute")
ANSWER_SOON = 1.0
"""Seconds until a run is reconciled again for which something was asked that has no answer yet."""
_WORDS_AGAIN = 30.0
"""Seconds until the API server is asked again for the pods of an archive job, when it did not give them."""


class RunObjects:
    """The objects of runs, made under names that are theirs: what exists already is recognised, or in the way."""

    def __init__(
        self,
        kube: KubeClient,
        store: Store,
        runs: RunWriter,
        events: EventRecorder,
        queue: WorkQueue,
        pace: RunPace,
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._store = store
        self._runs = runs
        self._events = events
        self._queue = queue
        self.pace = pace
        self._clock = clock
        self._words_again: dict[str, float] = {}  # job UID -> when its pods are asked for again
        self.pod_groups = PodGroups(kube)
        self.provisioning_requests = ProvisioningRequests(kube, store.scale_ups)

    async def create_pods(self, run: RunView, plan: Plan) -> None:
        """Their group is there before them: a scheduler that finds none would hold them, or take each by itself."""
        if not plan.creates:
            return
        key = run_key(run.namespace, run.name)
        if rest := self.pace.rest_of_pods(key):
            self._queue.wake_at(key, self._clock.now() + rest)  # what is missing is asked for again
            self.tell_of_pace(run)
            return
        gang = len((plan.status or run.status).assignment.nodes)
        if plan.pod_group is not None:
            await self._ensure_pod_group(run, plan.pod_group, plan.creates)
        self.pace.made(key, len(plan.creates), gang)
        await all_of([self._create(run, pod, gang) for pod in plan.creates])

    def tell_of_pace(self, run: RunView) -> None:
        """That the run has to wait, and why; now and then."""
        if words := self.pace.news(run_key(run.namespace, run.name)):
            self._events.warn(run, EventReason.PACED, ActionWord.HOLD, words)
            log_decision(run, run.status.attempt, EventReason.PACED, words)

    async def _ensure_pod_group(self, run: RunView, group: EnsurePodGroup, members: Sequence[CreatePod]) -> None:
        try:
            await self.pod_groups.ensure(run, group)
        except KubeError as error:
            of = f"PodGroup {group.name}: "
            if self._runs.note_not_made(run, members, error, of):
                self._events.warn(run, EventReason.POD_GROUP_REFUSED, ActionWord.CREATE_POD_GROUP, of + error.words)
            raise

    async def _create(self, run: RunView, pod: CreatePod, gang: int) -> None:
        try:
            reply = await self._kube.create(PODS, pod.body, pod.namespace)
        except KubeError as error:
            if isinstance(error, ApiError) and error.reason == "AlreadyExists":
                await self._recognise(run, pod, gang)
                return
            self._take_back(run, gang, error)
            if self._runs.note_not_made(run, [pod], error):
                self._events.warn(run, EventReason.POD_REFUSED, ActionWord.CREATE_POD, f"pod {pod.name}: {error.words}")
            raise
        self._store.apply_pod(reply)

    def _take_back(self, run: RunView, gang: int, error: KubeError) -> None:
        """It was counted as made."""
        count = self.pace.not_sent if isinstance(error, UnreachableError) else self.pace.not_taken
        count(run_key(run.namespace, run.name), gang)

    async def _recognise(self, run: RunView, pod: CreatePod, gang: int) -> None:
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
        in_the_way = ApiError(409, "AlreadyExists", message)
        self._take_back(run, gang, in_the_way)
        raise in_the_way

    async def create_job(self, run: RunView, job: CreateJob) -> None:
        """One that is refused holds up nothing else: it is said, and made again when the run is next reconciled."""
        what = f"job {job.name}: "
        try:
            reply = await self._kube.create(JOBS, job.body, job.namespace)
        except KubeError as error:
            if not isinstance(error, ApiError) or error.reason != "AlreadyExists":
                self._tell_job_refused(run, what, error)
            return
        self._store.forget_refused_create(run.uid, what)
        self._store.archive_jobs.cache.upsert(parse_job(reply))

    async def delete_job(self, run: RunView, job: DeleteJob) -> None:
        """It goes after its pods: what they do is seen to have ended. Refused, it is asked for again as the other."""
        what = f"the end of job {job.name}: "
        try:
            await self._kube.delete(JOBS, job.name, job.namespace, uid=job.uid, propagation="Foreground")
        except KubeError as error:
            self._tell_job_refused(run, what, error)
        else:
            self._store.forget_refused_create(run.uid, what)

    def _tell_job_refused(self, run: RunView, what: str, error: KubeError) -> None:
        """Raises what passes by itself."""
        self._runs.warn(run, what, error, EventReason.ARCHIVE_JOB_REFUSED, ActionWord.ARCHIVE)
        if not error.is_verdict:
            raise error

    async def read_last_words(self, run: RunView) -> None:
        """What the awaited archive job said at its end is in its pods, which are nobody's gang. Where they cannot be
        read that is told, and asked for again later: the run is decided, and obeys, without."""
        awaited, now = run.status.checkpoint.archive.job, self._clock.now()
        job = self._store.archive_jobs.unread(run.uid, awaited.name) if awaited is not None else None
        if job is None or self._words_again.get(job.uid, now) > now:
            return
        what = f"the pods of job {job.name} cannot be read: "
        try:
            pods, _ = await self._kube.list_all(PODS, run.namespace, labels=f"{JOB_NAME_LABEL}={job.name}")
            self._store.archive_jobs.keep_words(job, last_words(pods, job.uid))
            self._store.forget_refused_create(run.uid, what)
        except LostLeadershipError:
            raise
        except Exception as error:
            again = now + _WORDS_AGAIN
            self._words_again = {uid: at for uid, at in self._words_again.items() if at > now} | {job.uid: again}
            self._queue.wake_at(run_key(run.namespace, run.name), again)
            if isinstance(error, KubeError):
                self._runs.warn(run, what, error, EventReason.ARCHIVE_JOB_UNREAD, ActionWord.ARCHIVE)
            else:
                self._store.left_out.note(JOBS.plural, f"pods of {run.namespace}/{job.name}", job.uid, error)

    async def submit_run(self, run: RunView, made: SubmitRun) -> None:
        """One that is refused is told to who asked for it."""
        try:
            reply = await self._kube.create(RUNS, made.body, made.namespace)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                reply = await self._kube.get(RUNS, made.name, made.namespace)
            elif error.is_verdict:
                self._tell_refused(run, made.name, error.words)
                return
            else:
                raise
        self._store.runs.apply(read_object(reply))

    async def refuse_run(self, run: RunView, gone: RefuseRun) -> None:
        """One that has changed since, or is gone already, is looked at again."""
        version = gone.resource_version
        if await self._kube.delete(RUNS, gone.name, gone.namespace, uid=gone.uid, resource_version=version) is not None:
            self._tell_refused(run, gone.name, gone.why)

    def _tell_refused(self, run: RunView, name: str, why: str) -> None:
        self._store.note_refused_create(run.uid, name, RefusedCreate(self._clock.now(), why))
        self._queue.add(run_key(run.namespace, run.name))

    async def create_placeholders(self, run: RunView, wanted: Sequence[CreatePlaceholder]) -> None:
        """One that is refused holds up nothing else: it is said, and made again when the run is next looked at."""
        key = run_key(run.namespace, run.name)
        if not wanted:
            return
        if rest := self.pace.rest_of_pods(key):
            self._queue.wake_at(key, self._clock.now() + rest)
            return
        gang = run.status.scale_up.nodes if run.status.scale_up is not None else 0
        self.pace.made(key, len(wanted), gang)
        for first in range(0, len(wanted), CONCURRENT_WRITES):
            some = wanted[first : first + CONCURRENT_WRITES]
            await all_of([self._create_placeholder(run, pod, gang) for pod in some])

    async def _create_placeholder(self, run: RunView, pod: CreatePlaceholder, gang: int) -> None:
        try:
            reply = await self._kube.create(PODS, pod.body, pod.namespace)
        except KubeError as error:
            if not isinstance(error, ApiError) or error.reason != "AlreadyExists":
                self._take_back(run, gang, error)
                self._note_scale_up_refused(run, pod.name, error)
                if not error.is_verdict:
                    raise
                return
            # Ours from a creation whose answer was lost, or somebody else's.
            reply = await self._kube.get(PODS, pod.name, pod.namespace)
            found = parse_pod(reply).view
            if not isinstance(found, PlaceholderView) or found.run_uid != run.uid:
                words = f"a pod {pod.name} that is not of this run is in the way; delete or rename it"
                in_the_way = ApiError(409, "AlreadyExists", words)
                self._take_back(run, gang, in_the_way)
                self._note_scale_up_refused(run, pod.name, in_the_way)
                return
        self._store.forget_refused_create(run.uid, pod.name)
        self._store.apply_pod(reply)

    async def provision(self, run: RunView, wanted: EnsureProvisioning | DeleteProvisioning | None) -> None:
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
        self._queue.wake_at(run_key(run.namespace, run.name), self._clock.now() + ANSWER_SOON)  # to see what came of it

    def _note_scale_up_refused(self, run: RunView, name: str, error: KubeError) -> None:
        """The run's condition tells of it from the next look on."""
        refused = RefusedCreate(self._clock.now(), error.words, error.is_verdict)
        if self._store.note_refused_create(run.uid, name, refused):
            self._queue.wake_at(run_key(run.namespace, run.name), self._clock.now() + ANSWER_SOON)

    async def delete_pods(self, pods: Sequence[DeletePod]) -> None:
        """Delete pods, each by itself."""
        await all_of([self.delete_pod(pod) for pod in pods])

    async def delete_pod(self, pod: DeletePod) -> None:
        reply = await self._kube.delete(PODS, pod.name, pod.namespace, uid=pod.uid, grace=pod.grace)
        if reply is not None:
            self._store.apply_pod(reply)
        log.info("deleted pod", extra={"pod": f"{pod.namespace}/{pod.name}", "cause": pod.reason})
