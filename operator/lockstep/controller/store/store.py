"""What the controller knows of the cluster, and which keys are reconciled when it changes.

Watches, lists and the answers to our own writes end here; every change becomes keys in the work
queue. Snapshots are views into the live state: valid until the next await, which decisions, being
plain functions, never reach.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from lockstep.controller.kube.cache import ObjectCache
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue, run_key
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.controller.store.archive_jobs import ArchiveJobs
from lockstep.controller.store.change_log import AdmissionChanges
from lockstep.controller.store.edits import Edits
from lockstep.controller.store.kueue import KueueStore
from lockstep.controller.store.node_flaps import NodeFlaps
from lockstep.controller.store.pod_index import PodIndex
from lockstep.controller.store.refusals import Refusals, RefusedCreates
from lockstep.controller.store.run_sets import RunSets
from lockstep.controller.store.scale_ups import ScaleUps
from lockstep.controller.store.successors import Successors, gone_on_from, recorded_origin
from lockstep.controller.store.training_queues import TrainingQueues
from lockstep.controller.store.training_runs import TrainingRuns
from lockstep.controller.store.whole_status import (
    MissingAssignmentError,
    held_by_pods,
    is_assignment_missing,
)
from lockstep.core.arrays.members import governed, is_recorded
from lockstep.core.batch.inside import submitted_name
from lockstep.core.kueue.choice import workload_name
from lockstep.core.model.accelerators import remembering
from lockstep.core.model.cluster_objects import (
    AnyPod,
    ForeignPod,
    has_lost_its_labels,
    holds_a_place,
    parse_node,
    parse_pod,
)
from lockstep.core.model.conditions import is_true
from lockstep.core.model.job_ids import has_job_id
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.snapshot import (
    ClusterSnapshot,
    DryRunResult,
    Leadership,
    NodeView,
    PlaceholderView,
    PodView,
    QueueView,
    RefusedCreate,
    Resources,
    RunSnapshot,
    RunView,
)
from lockstep.core.model.worker_report import WorkerReport

_SOON = 0.05  # a gang's pods and workers change by the hundred: one reconcile for all of them is enough …
_SOON_PER_POD = 0.0003  # … and costs the more, the larger the gang is
_SOON_AT_MOST = 1.0
_FREED = 1.0  # other people's pods come and go all day; whether one made room can wait a moment


class Store:
    """All state that is rebuilt from the API server, indexed the way decisions need it.

    ``gang_pods``, ``other_pods``, ``placeholder_pods``, ``nodes``, ``namespaces`` and ``priority_classes`` are fed by
    informers; ``runs``, ``queues``, ``run_sets`` and ``archive_jobs`` know how to be fed. Runs outside of
    ``namespaces``, where some are named, are left alone.
    """

    def __init__(
        self, queue: WorkQueue, clock: Clock, namespaces: Collection[str] = (), left_out: LeftOut | None = None
    ) -> None:
        self.left_out = left_out = left_out or LeftOut()
        self._ours = frozenset(namespaces)
        self._queue = queue
        self._clock = clock
        self.changes = AdmissionChanges()
        self.runs = TrainingRuns(queue, self.changes, self._run_changed, self._governed, self._is_watched, left_out)
        self.writes = self.runs.writes
        self.queues = TrainingQueues(self._queue_changed, left_out)
        self.gang_pods: ObjectCache[AnyPod] = ObjectCache(self._pod_changed, "pods", left_out)
        self.other_pods: ObjectCache[AnyPod] = ObjectCache(self._pod_changed, "pods", left_out)
        self.placeholder_pods: ObjectCache[AnyPod] = ObjectCache(self._pod_changed, "pods", left_out)
        self.nodes: ObjectCache[NodeView] = ObjectCache(self._node_changed, "nodes", left_out)
        self.namespaces: ObjectCache[tuple[str, dict[str, str]]] = ObjectCache(
            self._namespace_changed, "namespaces", left_out
        )
        self.priority_classes: ObjectCache[tuple[str, int]] = ObjectCache(
            self._priority_class_changed, "priorityclasses", left_out
        )
        self.archive_jobs = ArchiveJobs(self._archive_job_changed, left_out)
        self.run_sets = RunSets(
            queue, clock, self.runs.get, self.runs.uid_named, self.runs.govern, self._is_watched, left_out
        )
        self.kueue = KueueStore(queue, self.touch_all, left_out)
        self.scale_ups = ScaleUps(clock, self.runs.get)
        self._placeholder_gone: dict[str, float] = {}  # run UID -> when the last of its placeholders went
        self.node_flaps = NodeFlaps(clock)
        self.placed: Callable[[str, float], None] = lambda namespace, seconds: None
        """Told after how long kube-scheduler has placed a pod of a gang, against which it never had anything."""
        self.run_gone: Callable[[RunView], None] = lambda run: None
        """Told the last that was known of a run that is gone."""
        self.job_id_of: Callable[[str], int] = lambda uid: 0  # a number that was taken for a run or array
        self.refusals = Refusals(clock)
        self._edits = Edits(clock)
        self._nodes_by_name: dict[str, NodeView] = {}
        self._labels_of: dict[str, Mapping[str, str]] = {}  # namespace -> labels
        self._pods = PodIndex(clock, self.changes, self.runs.get, self.runs.cache.is_gone, self.runs.has_had_no_nodes)
        self._class_values: dict[str, int] = {}  # PriorityClass -> value
        self._dry_runs: dict[str, DryRunResult] = {}
        self._refused = RefusedCreates()
        self._successors = Successors()

    # -- what others found out ------------------------------------------------------------------

    def set_dry_run(self, run_uid: str, result: DryRunResult) -> None:
        """Keep what the API server said of a run's pod, and have the run reconciled if it has judged that."""
        run, before = self.runs.get(run_uid), self._dry_runs.get(run_uid)
        if run is None:
            return
        if result.accepted is not None:
            self._queue.add(run_key(run.namespace, run.name))
        elif before is not None and before.accepted is None and before.generation == result.generation:
            result = replace(result, at=before.at)
        self._dry_runs[run_uid] = result

    def apply_pod(self, text: bytes) -> None:
        """Take in a gang pod from the answer to a write. Raises msgspec.DecodeError.

        One that has lost its labels goes to those of which the watch will tell that it is gone.
        """
        if holds_a_place(text):
            cache = self.placeholder_pods
        else:
            cache = self.other_pods if has_lost_its_labels(text) else self.gang_pods
        cache.upsert(parse_pod(text))

    def apply_node(self, text: bytes) -> None:
        """Take in a node from the answer to a write. Raises msgspec.DecodeError."""
        self.nodes.upsert(parse_node(text))

    def all_nodes(self) -> Collection[NodeView]:
        """Every node."""
        return self._nodes_by_name.values()

    def note_refused_create(self, run_uid: str, pod: str, refused: RefusedCreate) -> bool:
        """Keep why the API server did not take a pod, or ``pod`` of another name; True when that is news."""
        if self.runs.get(run_uid) is None:
            return False  # it is gone, and nobody would forget what was kept of it
        return self._refused.note(run_uid, pod, refused)

    def forget_refused_create(self, run_uid: str, pod: str) -> None:
        """The API server has taken it."""
        self._refused.forget(run_uid, pod)

    # -- what decisions see ---------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        """Every kind was listed completely at least once."""
        pods = (self.gang_pods, self.other_pods, self.placeholder_pods)
        small = (self.queues.cache, self.namespaces, self.priority_classes)
        caches = (self.runs.cache, *small, *pods, self.nodes, self.archive_jobs.cache, self.run_sets.cache)
        return all(cache.synced for cache in caches)

    def labels_of_namespace(self, namespace: str) -> Mapping[str, str]:
        """Its labels; none while it is not known."""
        return self._labels_of.get(namespace, {})

    def node(self, name: str) -> NodeView | None:
        """The node that has this name now."""
        return self._nodes_by_name.get(name)

    def pods_of(self, run_uid: str) -> tuple[PodView, ...]:
        """Every pod of a run that still exists."""
        return tuple(self._pods.for_run(run_uid))

    def vouched_pods_of(self, run_uid: str) -> tuple[PodView, ...]:
        """Those of them that are not only said to be its."""
        return self._pods.vouched_for(run_uid)

    def snapshot_run(
        self,
        namespace: str,
        name: str,
        reports: Mapping[int, WorkerReport],
        leadership: Leadership,
        *,
        ended: Mapping[str, int] = MappingProxyType({}),
        unread: bool = False,
    ) -> RunSnapshot | None:
        """Everything known of one run, or None when no run of this name is known. ``unread``: its nodes need not be;
        ``ended``: as in the snapshot.

        Raises MissingAssignmentError.
        """
        run = self.runs.named(namespace, name)
        if run is None:
            return None
        if is_assignment_missing(run):
            if not unread:
                raise MissingAssignmentError(run)
            run = replace(run, unread=True)
        return RunSnapshot(
            run=run,
            # A label is anybody's to copy.
            pods=tuple(p for p in self.pods_of(run.uid) if (p.namespace, p.owner_uid) == (namespace, run.uid)),
            reports=reports,
            ended=ended,
            nodes=MappingProxyType(self._nodes_by_name),
            leadership=leadership,
            dry_run=self._dry_runs.get(run.uid),
            namespace_labels=self._labels_of.get(namespace, {}),
            refused_creates=self._refused.for_run(run.uid),
            jobs=self.archive_jobs.for_run(run.uid),
            origin=self._origin(run),
            successors=tuple(
                found for uid in self._successors.for_run(run) if (found := self.runs.get(uid)) is not None
            ),
            queue=self.queues.by_name.get(queue_of(run)) if run.spec is not None else None,
            preemptor=self._preemptor(run),
            kueue=self.kueue.view(MappingProxyType(self._class_values)),
            recorded=not is_true(run.status, ConditionType.FINISHED) or is_recorded(run, self.run_sets.owner_of(run)),
            placeholders=self._pods.placeholders_for(run),
            placeholder_gone_at=self._placeholder_gone.get(run.uid, 0.0),
            provisioning=self.scale_ups.seen(run),
            job_id=self.job_id_of(run.uid),
            namesake=self.run_sets.has_taken(run),
            **self._submissions(run, reports),
        )

    def _submissions(self, run: RunView, reports: Mapping[int, WorkerReport]) -> dict[str, Any]:
        """What a batch job that submits others needs to know of those; nothing for all the others."""
        if not has_job_id(run.spec):
            return {}
        asks = [ask for report in reports.values() for ask in report.asks if ask.kind == "submit"]
        if not asks:
            return {}
        named = (self.runs.named(run.namespace, submitted_name(run, ask)) for ask in asks)
        here = (view for view in self.runs.cache if view.namespace == run.namespace)
        arrays = (view for view in self.run_sets.cache if view.namespace == run.namespace)
        numbers = {view.status.job_id: (view.name, False) for view in here}
        numbers |= {view.status.job_id: (view.name, True) for view in arrays}
        return {
            "submitted": {view.name: view for view in named if view is not None},
            "numbers": {number: job for number, job in numbers.items() if number is not None},
        }

    def _origin(self, run: RunView) -> RunView | None:
        checkpoint = run.spec.checkpoint if run.spec is not None else None
        name = checkpoint.start.run if checkpoint is not None else None
        return self.runs.named(run.namespace, name) if name else None

    def _preemptor(self, run: RunView) -> RunView | None:
        """The preemptor that it has notice of, unless that run may just be starting elsewhere."""
        notice = run.status.preemption
        return None if notice is None or self.writes.is_under_way(notice.by) else self.runs.get(notice.by)

    def snapshot_cluster(self, leadership: Leadership, given_up: Collection[str] = ()) -> ClusterSnapshot:
        """Everything known of the cluster. Raises MissingAssignmentError: unknown nodes cannot be kept free.

        Runs that are ``given_up`` (UIDs) hold what their pods are on.
        """
        views = dict(self.runs.views)
        for run in self.runs.unread():
            if run.uid not in given_up:
                raise MissingAssignmentError(run)
            views[run.uid] = held_by_pods(run, self.vouched_pods_of(run.uid))
        return ClusterSnapshot(
            runs=tuple(views.values()),
            queues=self.queues.by_name,
            nodes=MappingProxyType(self._nodes_by_name),
            gang_pods=tuple(self._pods.all_of_gangs()),
            doubtful_pods=tuple(self._pods.in_doubt()),
            foreign_requests=self.foreign_requests,
            in_flight=self.writes.in_flight,
            leadership=leadership,
            namespace_labels=MappingProxyType(self._labels_of),
            priority_classes=MappingProxyType(self._class_values),
            kueue=self.kueue.view(MappingProxyType(self._class_values)),
            widths=self.run_sets.widths,
            refused=self.refusals.current(self.runs.get),
            edited=self._edits.current(),
        )

    def begin_cycle(self, leadership: Leadership, given_up: Collection[str] = ()) -> ClusterSnapshot:
        """As ``snapshot_cluster``, with what has changed since the last cycle that finished (``changes.finish``)."""
        changes = self.changes.read()
        snapshot = self.snapshot_cluster(leadership, given_up)
        return snapshot if given_up else replace(snapshot, changes=changes)  # theirs change with their pods

    @property
    def foreign_requests(self) -> Mapping[str, Resources]:
        """By node: the sums of what everything but gangs requests there, with the pods themselves counted."""
        return self._pods.foreign_requests

    def orphaned_pods(self, namespace: str, name: str) -> tuple[PodView, ...]:
        """Gang pods of a run of this name that is known to be gone, to be deleted.

        That a run is not known proves nothing: its pod may simply have been heard of first. It must
        have been seen to go, or be absent from a list asked for after the pod was seen; and the pod
        must be owned by it, so that a copied label alone never gets anybody's pod deleted.
        """
        orphans: list[PodView] = []
        if not self._is_watched(namespace):
            return ()
        for run_uid in self._pods.uids_of_runs_named(run_key(namespace, name)):
            if self.runs.get(run_uid) is not None or not self.runs.cache.synced:
                continue
            gone = self.runs.cache.is_gone(run_uid)
            orphans += [
                pod
                for pod in self._pods.for_run(run_uid)
                if (pod.namespace, pod.run, pod.owner_uid) == (namespace, name, run_uid)
                and (gone or self._pods.first_seen(pod.uid) < self.runs.listed_at)
            ]
        return tuple(orphans)

    def worker_reported(self, run_uid: str) -> None:
        """A worker of the run said something that a decision may depend on.

        Others are about to say something too, after a failure above all: its victims report theirs within the
        same moment, often ahead of the rank that began it.
        """
        run = self.runs.get(run_uid)
        if run is not None:
            self._reconcile_soon(run_key(run.namespace, run.name), run_uid)

    def gang_completed(self, run_uid: str) -> None:
        """Every worker of the run has said what a decision waits for."""
        run = self.runs.get(run_uid)
        if run is not None:
            self._queue.add(run_key(run.namespace, run.name))

    def touch_all(self) -> None:
        """Have everything reconciled: after becoming leader, and as the regular resync."""
        for run in self.runs.cache:
            self._queue.add(run_key(run.namespace, run.name))
        self.run_sets.touch_all()
        self._queue.add(CLUSTER_KEY)

    def _is_watched(self, namespace: str) -> bool:
        return not self._ours or namespace in self._ours

    # -- changes --------------------------------------------------------------------------------

    def _run_changed(self, old: RunView | None, new: RunView | None) -> None:
        run = new or old
        assert run is not None
        self._successors.run_changed(old, new)
        self._edits.run_changed(old, new)
        if origin := gone_on_from(old, new):
            self._queue.add(run_key(run.namespace, origin))
        if (uid := recorded_origin(new)) and uid != recorded_origin(old):
            before = self.runs.get(uid)
            if before is not None and before.namespace == run.namespace:
                self._queue.add(run_key(before.namespace, before.name))
        if new is None:
            self._dry_runs.pop(run.uid, None)
            self._refused.forget_run(run.uid)
            self.scale_ups.forget(run.uid)
            self._placeholder_gone.pop(run.uid, None)
            self.kueue.forget(run.namespace, workload_name(run))
        self._pods.run_changed(run.uid)
        self.run_sets.run_changed(old, new)
        self._queue.add(run_key(run.namespace, run.name))
        if old is None or new is None or _admission_differs(old, new):
            self._queue.add(CLUSTER_KEY)
        if new is None:
            self.run_gone(run)

    def _governed(self, run: RunView) -> RunView:
        return governed(run, self.run_sets.owner_of(run))

    def _queue_changed(self, queue: QueueView) -> None:
        self._queue.add(CLUSTER_KEY)
        for run in self.runs.cache:  # its limits and its stop policy are theirs too
            if run.spec is not None and queue_of(run) == queue.name:
                self._queue.add(run_key(run.namespace, run.name))

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        node = new or old
        assert node is not None
        self.node_flaps.observe(old, new)
        self.changes.nodes.note(node.name, None)
        if new is not None:
            self._nodes_by_name[node.name] = remembering(new, self._nodes_by_name.get(node.name))
        elif (known := self._nodes_by_name.get(node.name)) is not None and known.uid == node.uid:
            del self._nodes_by_name[node.name]
        for key in self._pods.runs_on(node.name):
            self._queue.add(key)
        self._queue.add(CLUSTER_KEY)

    def _namespace_changed(
        self, old: tuple[str, dict[str, str]] | None, new: tuple[str, dict[str, str]] | None
    ) -> None:
        namespace = (new or old or ("", {}))[0]
        if new is not None:
            self._labels_of[namespace] = new[1]
        else:
            self._labels_of.pop(namespace, None)
            self._labels_of.update(self.namespaces)  # one of the same name may have been heard of first
        self._queue.add(CLUSTER_KEY)
        for run in self.runs.cache:
            if run.namespace == namespace:
                self._queue.add(run_key(run.namespace, run.name))

    def _priority_class_changed(self, old: tuple[str, int] | None, new: tuple[str, int] | None) -> None:
        """There are a handful. A value never changes, but the object may be made anew."""
        self._class_values = dict(self.priority_classes)
        self._queue.add(CLUSTER_KEY)

    def _archive_job_changed(self, run_uid: str) -> None:
        run = self.runs.get(run_uid)
        if run is not None:
            self._queue.add(run_key(run.namespace, run.name))

    def _pod_changed(self, old: AnyPod | None, new: AnyPod | None) -> None:
        self._pods.change(old, new)
        for placeholder in (old, new):
            if isinstance(placeholder, PlaceholderView):
                self._placeholder_changed(placeholder, is_gone=new is None)
        if isinstance(old, ForeignPod) and not isinstance(new, PodView) and old != new:
            self._queue.wake_at(CLUSTER_KEY, self._clock.now() + _FREED)
        pod = new if isinstance(new, PodView) else old if isinstance(old, PodView) else None
        if pod is None:
            return
        if isinstance(old, PodView) and pod.bound_at is not None and old.bound_at is None:
            self._tell_placed(pod, pod.bound_at, waited=bool(old.reason))
        self._refused.forget(pod.run_uid, pod.name)
        key = run_key(pod.namespace, pod.run)
        if isinstance(new, PodView) and not (new.is_terminal or new.deleting):
            self._reconcile_soon(key, pod.run_uid)
            return
        self._queue.add(key)
        if not isinstance(new, PodView) or new.is_terminal:
            self._queue.add(CLUSTER_KEY)

    def _tell_placed(self, pod: PodView, at: float, *, waited: bool) -> None:
        """``waited``: for something that was against it, which is not the scheduler's time."""
        if pod.by_kube_scheduler and not waited:
            self.placed(pod.namespace, max(0.0, at - pod.created_at))

    def _placeholder_changed(self, pod: PlaceholderView, *, is_gone: bool) -> None:
        """Whom it is for makes another if it is gone; whoever has its node by now has it taken away."""
        run = self.runs.get(pod.run_uid)
        if run is not None:
            if is_gone:
                self._placeholder_gone[run.uid] = self._clock.now()
            self._reconcile_soon(run_key(run.namespace, run.name), run.uid)
        for key in self._pods.runs_on(pod.node) if pod.node and self._pods.holds_a_place(pod) else ():
            self._queue.add(key)

    def _reconcile_soon(self, key: str, run_uid: str) -> None:
        delay = min(_SOON_AT_MOST, _SOON + _SOON_PER_POD * len(self._pods.for_run(run_uid)))
        self._queue.wake_at(key, self._clock.now() + delay)


def _admission_differs(old: RunView, new: RunView) -> bool:
    """Something that the admission cycle reads and no reconcile of ours wrote."""
    if old.set_says != new.set_says:
        return True
    seen, sees = (old.generation, old.deleting, old.annotations), (new.generation, new.deleting, new.annotations)
    return seen != sees or old.labels != new.labels
