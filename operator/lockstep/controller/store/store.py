"""What the controller knows of the cluster, and which keys are reconciled when it changes.

Watches, lists and the answers to our own writes end here; every change becomes keys in the work
queue. Snapshots are views into the live state: valid until the next await, which decisions, being
plain functions, never reach.
"""

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.preemption_status import ReservationStatus
from lockstep.api.run_status import AssignmentStatus
from lockstep.controller.kube.cache import ObjectCache
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue, run_key
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.controller.store.archive_jobs import ArchiveJobs
from lockstep.controller.store.change_log import AdmissionChanges
from lockstep.controller.store.kueue import KueueStore
from lockstep.controller.store.node_flaps import NodeFlaps
from lockstep.controller.store.pod_index import PodIndex
from lockstep.controller.store.refusals import Refusals, RefusedCreates
from lockstep.controller.store.run_sets import RunSets
from lockstep.controller.store.scale_ups import ScaleUps
from lockstep.controller.store.successors import Successors, gone_on_from
from lockstep.controller.store.training_queues import TrainingQueues
from lockstep.controller.store.whole_status import (
    MissingAssignmentError,
    WholeStatus,
    held_by_pods,
    is_assignment_missing,
    is_reservation_missing,
    without_assignment,
    without_reservation,
)
from lockstep.controller.store.writes_under_way import WritesUnderWay
from lockstep.core.arrays.members import governed, is_recorded
from lockstep.core.batch.inside import submitted_name
from lockstep.core.kueue.choice import workload_name
from lockstep.core.model.accelerators import remembering
from lockstep.core.model.assignment import bookable
from lockstep.core.model.cluster_objects import (
    AnyPod,
    ForeignPod,
    Unread,
    Versioned,
    has_lost_its_labels,
    holds_a_place,
    parse_node,
    parse_pod,
)
from lockstep.core.model.conditions import is_true
from lockstep.core.model.job_ids import has_job_id
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.reasons import ConditionType
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
    WorkerReport,
)

_SOON = 0.05  # a gang's pods and workers change by the hundred: one reconcile for all of them is enough …
_SOON_PER_POD = 0.0003  # … and costs the more, the larger the gang is
_SOON_AT_MOST = 1.0
_FREED = 1.0  # other people's pods come and go all day; whether one made room can wait a moment

_log = logging.getLogger(__name__)
_FOREVER = sys.maxsize


class Store:
    """All state that is rebuilt from the API server, indexed the way decisions need it.

    ``gang_pods``, ``other_pods``, ``placeholder_pods``, ``nodes``, ``namespaces`` and ``priority_classes`` are fed by
    informers; runs by ``apply_run``, ``compare_runs`` and their like; ``queues``, ``run_sets`` and ``archive_jobs``
    know how to be fed. Runs outside of ``namespaces``, where some are named, are left alone.
    """

    def __init__(
        self, queue: WorkQueue, clock: Clock, namespaces: Collection[str] = (), left_out: LeftOut | None = None
    ) -> None:
        self.left_out = left_out = left_out or LeftOut()
        self._ours = frozenset(namespaces)
        self._queue = queue
        self._clock = clock
        self.runs: ObjectCache[RunView] = ObjectCache(self._run_changed, names.RUNS, left_out)
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
        self.run_sets = RunSets(queue, clock, self.runs.get, self._uid_named, self._govern, self._is_watched, left_out)
        self.kueue = KueueStore(queue, self.touch_all, left_out)
        self.scale_ups = ScaleUps(clock)
        self._placeholder_gone: dict[str, float] = {}  # run UID -> when the last of its placeholders went
        self.node_flaps = NodeFlaps(clock)
        self.placed: Callable[[float], None] = lambda seconds: None  # told after how long a gang's pod was placed
        self.job_id_of: Callable[[str], int] = lambda uid: 0  # a number that was taken for a run or array
        self.refusals = Refusals(clock)
        self._run_uids: dict[str, str] = {}  # namespace/name -> UID
        self._nodes_by_name: dict[str, NodeView] = {}
        self._labels_of: dict[str, Mapping[str, str]] = {}  # namespace -> labels
        self.changes = AdmissionChanges()
        self._pods = PodIndex(clock, self.changes, self.runs.get, self.runs.is_gone)
        self._class_values: dict[str, int] = {}  # PriorityClass -> value
        self._runs_listed_at = float("-inf")
        self._runs_version = 0
        self._dry_runs: dict[str, DryRunResult] = {}
        self._refused = RefusedCreates()
        self.writes = WritesUnderWay(queue, lambda uid: self._view_of_run(self.runs.get(uid)))
        self._views: dict[str, RunView] = {}  # run UID -> the run as admission cycles see it
        self._unread: set[str] = set()  # UIDs of runs of which a ConfigMap has not been read
        self._whole = WholeStatus()
        self._successors = Successors()

    # -- runs -----------------------------------------------------------------------------------

    def apply_run(
        self,
        raw: Mapping[str, Any],
        assignment: AssignmentStatus | None = None,
        reservation: ReservationStatus | None = None,
    ) -> RunView:
        """Take in a TrainingRun from a watch or from the answer to a write; return the newest view of it.

        ``assignment`` and ``reservation`` are what was written: status itself may only name the ConfigMap of each.
        """
        meta = raw["metadata"]
        uid, version = meta["uid"], int(meta["resourceVersion"])
        if not self._is_watched(meta["namespace"]):
            return parse_run(raw)
        self._whole.wrote(uid, assignment, reservation)
        if self.runs.version(uid) < version:  # what a watch repeats of our own writes is not even parsed
            self.runs.upsert(Versioned(uid, version, self._completed(parse_run(raw, self.runs.get(uid)))))
        known = self.runs.get(uid)
        if known is None:
            self._whole.forget(uid)
            return parse_run(raw)
        completed = self._completed(known)
        if completed is not known:  # the watch had the same version first, without the assignment
            self.runs.amend(uid, completed)
        return completed

    def is_news_of_run(self, item: Versioned[Unread]) -> bool:
        """It is no version that is known: what a watch repeats of our own writes need not even be decoded."""
        return self._is_watched(item.view.namespace) and self.runs.version(item.uid) < item.version

    def remove_run(self, namespace: str, name: str, uid: str) -> None:
        """A TrainingRun is gone for good: no UID ever comes back."""
        self.runs.remove(uid, _FOREVER)
        self._queue.add(run_key(namespace, name))

    def hear_run_gone(self, uid: str, version: int) -> None:
        """A watch says that a TrainingRun is gone."""
        known = self.runs.get(uid)
        if known is None:
            self.runs.remove(uid, version)
        else:
            self.remove_run(known.namespace, known.name, uid)

    def replace_runs(
        self, items: Iterable[Versioned[Unread]], version: int, *, reset: bool = False, unread: Collection[str] = ()
    ) -> None:
        """Take in a complete, consistent list; with ``reset`` even where older versions say otherwise. ``unread``: UIDs
        of others that are there and cannot be read."""
        ours = [item for item in items if self._is_watched(item.view.namespace)]
        listed = filter(None, [self._listed(item, anew=reset) for item in ours])
        self.runs.replace(listed, version, reset=reset, unread=unread)

    def compare_runs(
        self,
        items: Iterable[Versioned[Unread]],
        version: int,
        begun_at: float,
        *,
        seen: int = 0,
        unread: Collection[str] = (),
    ) -> None:
        """As ``replace_runs``, of a list read from a quorum that was asked for at ``begun_at`` (monotonic seconds).

        One that is older than what was ``seen`` by then is of a restored backup.
        """
        self.replace_runs(items, version, reset=version < max(self._runs_version, seen), unread=unread)
        self._runs_version = version
        self._runs_listed_at = max(self._runs_listed_at, begun_at)

    def _listed(self, item: Versioned[Unread], *, anew: bool) -> Versioned[RunView] | None:
        """One of a list. The version that is known is taken as it is, unless versions have begun ``anew``.

        Of one that cannot be read the last that could stays; None where there was none.
        """
        known = self.runs.get(item.uid)
        if known is not None and not anew and self.runs.version(item.uid) == item.version:
            return Versioned(item.uid, item.version, known)
        try:
            return Versioned(item.uid, item.version, self._completed(parse_run(item.view.read())))
        except Exception as error:  # whatever it is, it is one object's
            which = f"one of {item.view.namespace} (UID {item.uid})"
            self.left_out.note(names.RUNS, which, item.version, error)
            return None if known is None else Versioned(item.uid, self.runs.version(item.uid), known)

    def _is_watched(self, namespace: str) -> bool:
        return not self._ours or namespace in self._ours

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

    def keep_assignment(self, run_uid: str, content: str) -> None:
        """Take in the content of the ConfigMap that a run's status names.

        Raises ValueError when it is not the assignment whose hash is in status.
        """
        run = self.runs.get(run_uid)
        if run is not None and is_assignment_missing(run):
            self.runs.amend(run_uid, self._whole.read_assignment(run, content))

    def lose_assignment(self, run_uid: str) -> None:
        """The ConfigMap that a run's status names is gone, or holds something else."""
        run = self.runs.get(run_uid)
        if run is not None and is_assignment_missing(run):
            self.runs.amend(run_uid, without_assignment(run))

    def keep_reservation(self, run_uid: str, content: str) -> None:
        """As ``keep_assignment``, of the nodes that are kept for a run."""
        run = self.runs.get(run_uid)
        if run is not None and is_reservation_missing(run):
            self.runs.amend(run_uid, self._whole.read_reservation(run, content))

    def lose_reservation(self, run_uid: str) -> None:
        """The ConfigMap of a reservation is gone, or holds something else: it lapses."""
        run = self.runs.get(run_uid)
        if run is not None and is_reservation_missing(run):
            self.runs.amend(run_uid, without_reservation(run))

    # -- what decisions see ---------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        """Every kind was listed completely at least once."""
        pods = (self.gang_pods, self.other_pods, self.placeholder_pods)
        small = (self.queues.cache, self.namespaces, self.priority_classes)
        caches = (self.runs, *small, *pods, self.nodes, self.archive_jobs.cache, self.run_sets.cache)
        return all(cache.synced for cache in caches)

    def run(self, namespace: str, name: str) -> RunView | None:
        """The run that has this name now."""
        return self.runs.get(self._run_uids.get(f"{namespace}/{name}", ""))

    def labels_of_namespace(self, namespace: str) -> Mapping[str, str]:
        """Its labels; none while it is not known."""
        return self._labels_of.get(namespace, {})

    def run_by_uid(self, uid: str) -> RunView | None:
        """The run with this UID."""
        return self.runs.get(uid)

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
        self, namespace: str, name: str, reports: Mapping[int, WorkerReport], leadership: Leadership
    ) -> RunSnapshot | None:
        """Everything known of one run, or None when no run of this name is known.

        Raises MissingAssignmentError.
        """
        run = self.run(namespace, name)
        if run is None:
            return None
        if is_assignment_missing(run):
            raise MissingAssignmentError(run)
        return RunSnapshot(
            run=run,
            # A label is anybody's to copy.
            pods=tuple(p for p in self.pods_of(run.uid) if (p.namespace, p.owner_uid) == (namespace, run.uid)),
            reports=reports,
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
            queue=self.queues.by_name.get(run.spec.queue) if run.spec is not None else None,
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
        named = (self.run(run.namespace, submitted_name(run, ask)) for ask in asks)
        here = (view for view in self.runs if view.namespace == run.namespace)
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
        return self.run(run.namespace, name) if name else None

    def _preemptor(self, run: RunView) -> RunView | None:
        """The preemptor that it has notice of, unless that run may just be starting elsewhere."""
        notice = run.status.preemption
        return None if notice is None or self.writes.is_under_way(notice.by) else self.runs.get(notice.by)

    def snapshot_cluster(self, leadership: Leadership, given_up: Collection[str] = ()) -> ClusterSnapshot:
        """Everything known of the cluster. Raises MissingAssignmentError: unknown nodes cannot be kept free.

        Runs that are ``given_up`` (UIDs) hold what their pods are on.
        """
        views = dict(self._views)
        for run in self.unread():
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
        )

    def begin_cycle(self, leadership: Leadership, given_up: Collection[str] = ()) -> ClusterSnapshot:
        """As ``snapshot_cluster``, with what has changed since the last cycle that finished (``changes.finish``)."""
        changes = self.changes.read()
        snapshot = self.snapshot_cluster(leadership, given_up)
        return snapshot if given_up else replace(snapshot, changes=changes)  # theirs change with their pods

    def is_unread(self, run_uid: str) -> bool:
        """What it holds is not known, and nothing may be written that rests on it."""
        return run_uid in self._unread

    def unread(self) -> tuple[RunView, ...]:
        """Runs whose nodes, held or kept for them, are in a ConfigMap that has not been read."""
        return tuple(run for uid in self._unread if (run := self.runs.get(uid)) is not None)

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
            if self.runs.get(run_uid) is not None or not self.runs.synced:
                continue
            gone = self.runs.is_gone(run_uid)
            orphans += [
                pod
                for pod in self._pods.for_run(run_uid)
                if (pod.namespace, pod.run, pod.owner_uid) == (namespace, name, run_uid)
                and (gone or self._pods.first_seen(pod.uid) < self._runs_listed_at)
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
        for run in self.runs:
            self._queue.add(run_key(run.namespace, run.name))
        self.run_sets.touch_all()
        self._queue.add(CLUSTER_KEY)

    # -- changes --------------------------------------------------------------------------------

    def _run_changed(self, old: RunView | None, new: RunView | None) -> None:
        run = new or old
        assert run is not None
        self._successors.run_changed(old, new)
        if origin := gone_on_from(old, new):
            self._queue.add(run_key(run.namespace, origin))
        if new is None:
            self._views.pop(run.uid, None)
            self.changes.runs.note(run.uid, None)
            self._unread.discard(run.uid)
            self._dry_runs.pop(run.uid, None)
            self._whole.forget(run.uid)
            self._refused.forget_run(run.uid)
            self.scale_ups.forget(run.uid)
            self._placeholder_gone.pop(run.uid, None)
            self.kueue.forget(run.namespace, workload_name(run))
            if self._run_uids.get(run.key) == run.uid:
                del self._run_uids[run.key]
        else:
            namesake = self._run_uids.get(run.key, run.uid)
            if namesake != run.uid and self.runs.version(namesake) > self.runs.version(run.uid):
                self.runs.remove(run.uid, self.runs.version(run.uid))  # late news of one deleted before
                return
            self._run_uids[run.key] = run.uid
            if namesake != run.uid:
                self.runs.remove(namesake, self.runs.version(run.uid))
            self._view_of_run(new)
        self._pods.run_changed(run.uid)
        self.run_sets.run_changed(old, new)
        self._queue.add(run_key(run.namespace, run.name))
        if old is None or new is None or _admission_differs(old, new):
            self._queue.add(CLUSTER_KEY)

    def _uid_named(self, key: str) -> str:
        return self._run_uids.get(key, "")

    def _govern(self, run_uid: str) -> None:
        """The set of a run has something else to say to it."""
        run = self.runs.get(run_uid)
        if run is not None and (changed := governed(run, self.run_sets.owner_of(run))) is not run:
            self.runs.amend(run_uid, changed)

    def _view_of_run(self, run: RunView | None) -> None:
        """Nobody else gets nodes that are being written, whatever is heard of the run meanwhile."""
        if run is None:
            return
        if is_assignment_missing(run) or is_reservation_missing(run):
            self._unread.add(run.uid)
        else:
            self._unread.discard(run.uid)
        assumed = self.writes.assumed(run.uid)
        view = self._views[run.uid] = _bookable(run if assumed is None else replace(run, status=assumed))
        self.changes.runs.note(run.uid, view)

    def _queue_changed(self, queue: QueueView) -> None:
        self._queue.add(CLUSTER_KEY)
        for run in self.runs:  # its limits and its stop policy are theirs too
            if run.spec is not None and run.spec.queue == queue.name:
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
        for run in self.runs:
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
            self.placed(max(0.0, pod.bound_at - pod.created_at))
        self._refused.forget(pod.run_uid, pod.name)
        key = run_key(pod.namespace, pod.run)
        if isinstance(new, PodView) and not (new.is_terminal or new.deleting):
            self._reconcile_soon(key, pod.run_uid)
            return
        self._queue.add(key)
        if not isinstance(new, PodView) or new.is_terminal:
            self._queue.add(CLUSTER_KEY)

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

    def _completed(self, run: RunView) -> RunView:
        """The run as its set will have it, with all that its status leaves to ConfigMaps and that is known."""
        return self._whole.completed(governed(run, self.run_sets.owner_of(run)))


def _bookable(run: RunView) -> RunView:
    """One hand-edited status must not stop the admission of all others."""
    assignment = bookable(run.status.assignment)
    if assignment is run.status.assignment:
        return run
    return replace(run, status=changed(run.status, assignment=assignment))


def _admission_differs(old: RunView, new: RunView) -> bool:
    """Something that the admission cycle reads and no reconcile of ours wrote."""
    if old.set_says != new.set_says:
        return True
    seen, sees = (old.generation, old.deleting, old.annotations), (new.generation, new.deleting, new.annotations)
    return seen != sees or old.labels != new.labels
