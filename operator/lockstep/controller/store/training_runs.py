"""The TrainingRuns there are: whole, once what their status leaves to ConfigMaps is known, and as admission cycles see
them."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.preemption_status import ReservationStatus
from lockstep.api.run_status import AssignmentStatus
from lockstep.controller.kube.workqueue import WorkQueue, run_key
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.controller.store.change_log import AdmissionChanges
from lockstep.controller.store.listed_kind import ListedKind
from lockstep.controller.store.whole_status import (
    WholeStatus,
    is_assignment_missing,
    is_reservation_missing,
    without_assignment,
    without_reservation,
)
from lockstep.controller.store.writes_under_way import WritesUnderWay
from lockstep.core.model.assignment import bookable, is_held
from lockstep.core.model.cluster_objects import Versioned
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import RunView

_FOREVER = sys.maxsize


class TrainingRuns(ListedKind[RunView]):
    """``cache`` is fed from watches, lists and the answers to our own writes, in namespaces that are looked after.

    ``run_changed`` is called with the old and the new view of a run, as by every ObjectCache; ``governed`` has the run
    as its set wants it.
    """

    def __init__(
        self,
        queue: WorkQueue,
        changes: AdmissionChanges,
        run_changed: Callable[[RunView | None, RunView | None], None],
        governed: Callable[[RunView], RunView],
        looks_after: Callable[[str], bool],
        left_out: LeftOut | None = None,
    ) -> None:
        super().__init__(names.RUNS, self._from_a_list, self._take_in, looks_after, left_out or LeftOut())
        self._queue = queue
        self._changes = changes
        self._run_changed = run_changed
        self._governed = governed
        self._uids: dict[str, str] = {}  # namespace/name -> UID
        self._whole = WholeStatus()
        self._unread: set[str] = set()  # UIDs of runs of which a ConfigMap has not been read
        self._new: set[str] = set()  # UIDs of runs that came when all were known, and have had no nodes since
        self.writes = WritesUnderWay(queue, lambda uid: self._renew_view(self.get(uid)))
        self.views: dict[str, RunView] = {}
        """By UID, the runs as admission cycles see them."""

    # -- what is known --------------------------------------------------------------------------

    def get(self, uid: str) -> RunView | None:
        """The run with this UID."""
        return self.cache.get(uid)

    def named(self, namespace: str, name: str) -> RunView | None:
        """The run that has this name now."""
        return self.get(self.uid_named(f"{namespace}/{name}"))

    def uid_named(self, key: str) -> str:
        """UID of the run that has this name (namespace/name) now; empty where none has."""
        return self._uids.get(key, "")

    def is_unread(self, uid: str) -> bool:
        """What it holds is not known, and nothing may be written that rests on it."""
        return uid in self._unread

    def has_had_no_nodes(self, uid: str) -> bool:
        """As this process has seen since the run was made: there is nothing that its status could have lost."""
        return uid in self._new

    def unread(self) -> tuple[RunView, ...]:
        """Runs whose nodes, held or kept for them, are in a ConfigMap that has not been read."""
        return tuple(run for uid in self._unread if (run := self.get(uid)) is not None)

    # -- what is heard --------------------------------------------------------------------------

    def apply(
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
        if self.cache.version(uid) < version:  # what a watch repeats of our own writes is not even parsed
            self.cache.upsert(Versioned(uid, version, self._completed(parse_run(raw, self.get(uid)))))
        known = self.get(uid)
        if known is None:
            self._whole.forget(uid)
            return parse_run(raw)
        completed = self._completed(known)
        if completed is not known:  # the watch had the same version first, without the assignment
            self.cache.amend(uid, completed)
        return completed

    def remove(self, namespace: str, name: str, uid: str) -> None:
        """A TrainingRun is gone for good: no UID ever comes back."""
        self.cache.remove(uid, _FOREVER)
        self._queue.add(run_key(namespace, name))

    def hear_gone(self, uid: str, version: int) -> None:
        """A watch says that a TrainingRun is gone."""
        known = self.get(uid)
        if known is None:
            self.cache.remove(uid, version)
        else:
            self.remove(known.namespace, known.name, uid)

    # -- what is read beside --------------------------------------------------------------------

    def keep_assignment(self, uid: str, content: str) -> None:
        """Take in the content of the ConfigMap that a run's status names.

        Raises ValueError when it is not the assignment whose hash is in status.
        """
        run = self.get(uid)
        if run is not None and is_assignment_missing(run):
            self.cache.amend(uid, self._whole.read_assignment(run, content))

    def lose_assignment(self, uid: str) -> None:
        """The ConfigMap that a run's status names is gone, or holds something else."""
        run = self.get(uid)
        if run is not None and is_assignment_missing(run):
            self.cache.amend(uid, without_assignment(run))

    def keep_reservation(self, uid: str, content: str) -> None:
        """As ``keep_assignment``, of the nodes that are kept for a run."""
        run = self.get(uid)
        if run is not None and is_reservation_missing(run):
            self.cache.amend(uid, self._whole.read_reservation(run, content))

    def lose_reservation(self, uid: str) -> None:
        """The ConfigMap of a reservation is gone, or holds something else: it lapses."""
        run = self.get(uid)
        if run is not None and is_reservation_missing(run):
            self.cache.amend(uid, without_reservation(run))

    def govern(self, uid: str) -> None:
        """The set of a run has something else to say to it."""
        run = self.get(uid)
        if run is not None and (wanted := self._governed(run)) is not run:
            self.cache.amend(uid, wanted)

    # -- changes --------------------------------------------------------------------------------

    def _take_in(self, old: RunView | None, new: RunView | None) -> None:
        run = new or old
        assert run is not None
        if new is None:
            self.views.pop(run.uid, None)
            self._changes.runs.note(run.uid, None)
            self._unread.discard(run.uid)
            self._new.discard(run.uid)
            self._whole.forget(run.uid)
            if self._uids.get(run.key) == run.uid:
                del self._uids[run.key]
        else:
            namesake = self._uids.get(run.key, run.uid)
            if namesake != run.uid and self.cache.version(namesake) > self.cache.version(run.uid):
                self.cache.remove(run.uid, self.cache.version(run.uid))  # late news of one deleted before
                return
            self._uids[run.key] = run.uid
            if namesake != run.uid:
                self.cache.remove(namesake, self.cache.version(run.uid))
            if new.status.attempt or new.status.assignment.incarnations or is_held(new.status.assignment):
                self._new.discard(run.uid)
            elif old is None and self.cache.synced:
                self._new.add(run.uid)
            self._renew_view(new)
        self.writes.hear_of(run.uid)
        self._run_changed(old, new)

    def _renew_view(self, run: RunView | None) -> None:
        """Nobody else gets nodes that are being written, whatever is heard of the run meanwhile."""
        if run is None:
            return
        if is_assignment_missing(run) or is_reservation_missing(run):
            self._unread.add(run.uid)
        else:
            self._unread.discard(run.uid)
        assumed = self.writes.assumed(run.uid)
        view = self.views[run.uid] = _bookable(run if assumed is None else replace(run, status=assumed))
        self._changes.runs.note(run.uid, view)

    def _from_a_list(self, raw: Mapping[str, Any]) -> RunView:
        """Read whole: in a restored backup the same generation may have another spec."""
        return self._completed(parse_run(raw))

    def _completed(self, run: RunView) -> RunView:
        """The run as its set will have it, with all that its status leaves to ConfigMaps and that is known."""
        return self._whole.completed(self._governed(run))


def _bookable(run: RunView) -> RunView:
    """One hand-edited status must not stop the admission of all others."""
    assignment = bookable(run.status.assignment)
    if assignment is run.status.assignment:
        return run
    return replace(run, status=changed(run.status, assignment=assignment))
