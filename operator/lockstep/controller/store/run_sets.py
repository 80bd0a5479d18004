"""The arrays there are, which runs are theirs, and what they say to them."""

import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from lockstep.api.base import names
from lockstep.controller.kube.workqueue import CLUSTER_KEY, WorkQueue, run_key, set_key
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.controller.store.listed_kind import ListedKind
from lockstep.core.arrays.members import (
    governance,
    index_of,
    is_member,
    is_recorded,
    recorded_indices,
    run_name,
    split_run_name,
)
from lockstep.core.model.array_views import RunSetSnapshot, RunSetView
from lockstep.core.model.cluster_objects import Versioned
from lockstep.core.model.conditions import find, is_accepted_or_waits, is_true
from lockstep.core.model.own_objects import parse_run_set
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView
from lockstep.core.run.waiting import over_at

_SOON = 0.2  # the runs of a set change by the dozen: one reconcile for all of them is enough …
_SOON_PER_RUN = 0.0002  # … and costs the more, the more there are
_SOON_AT_MOST = 2.0
_FINISHED = ConditionType.FINISHED


class RunSets(ListedKind[RunSetView]):
    """``cache`` is fed from watches, lists and the answers to our own writes, in namespaces that are looked after;
    ``govern`` gets the UID of a run whose set has something else to say to it."""

    def __init__(
        self,
        queue: WorkQueue,
        clock: Clock,
        run: Callable[[str], RunView | None],
        uid_named: Callable[[str], str],
        govern: Callable[[str], None],
        looks_after: Callable[[str], bool],
        left_out: LeftOut | None = None,
    ) -> None:
        super().__init__(names.RUN_SETS, parse_run_set, self._set_changed, looks_after, left_out or LeftOut())
        self._queue = queue
        self._clock = clock
        self._run = run
        self._uid_named = uid_named
        self._govern = govern
        self._uids: dict[str, str] = {}  # namespace/name -> UID
        self._members: dict[str, dict[str, int]] = {}  # set UID -> run UID -> index
        self._departed: dict[str, dict[int, RunView]] = {}  # set UID -> index -> the run as it was seen last
        self._refused: dict[str, dict[int, str]] = {}  # set UID -> index -> why its run was not taken; until on record
        self._fruitless: dict[str, int] = {}  # set UID -> how often new runs were refused since one was taken
        self._widths: dict[tuple[str, str], int] = {}

    @property
    def widths(self) -> Mapping[tuple[str, str], int]:
        """``maxRunning`` of the sets that have one, by namespace and UID."""
        return MappingProxyType(self._widths)

    def named(self, namespace: str, name: str) -> RunSetView | None:
        """The set that has this name now."""
        return self.cache.get(self._uids.get(f"{namespace}/{name}", ""))

    def owner_of(self, run: RunView) -> RunSetView | None:
        """The set that the run belongs to, if it is known. A reference is anybody's to write: it has to fit."""
        owner = self.cache.get(run.set_uid) if run.set_uid else None
        return owner if owner is not None and is_member(run, owner) else None

    def has_taken(self, run: RunView) -> bool:
        """An array was called as the run is before it, and has not ended. Of two of one second the array was first,
        unless the run is accepted already."""
        found = self.named(run.namespace, run.name)
        return found is not None and found.created_at <= run.created_at and not is_true(found.status, _FINISHED)

    def _is_taken(self, run_set: RunSetView) -> bool:
        run = self._run(self._uid_named(run_set.key))
        if run is None or is_true(run.status, _FINISHED):
            return False
        if run.created_at == run_set.created_at:
            return is_accepted_or_waits(run.status)
        return run.created_at < run_set.created_at

    def snapshot(
        self, run_set: RunSetView, namespace_labels: Mapping[str, str], indices: frozenset[int]
    ) -> RunSetSnapshot:
        """Everything known of one set."""
        members = self._members.get(run_set.uid, {})
        found = ((index, self._run(uid)) for uid, index in members.items())
        runs = {index: run for index, run in found if run is not None and _fits(run, run_set)}
        prefix = f"{run_set.namespace}/"
        named = ((index, self._uid_named(prefix + run_name(run_set.name, index))) for index in indices)
        return RunSetSnapshot(
            run_set=run_set,
            runs=runs,
            departed={i: run for i, run in self._departed.get(run_set.uid, {}).items() if i not in runs},
            taken=frozenset(index for index, uid in named if uid and uid not in members),
            refused=MappingProxyType(dict(self._refused.get(run_set.uid, {}))),
            fruitless=self._fruitless.get(run_set.uid, 0),
            sets={
                view.name: view
                for view in self.cache
                if view.namespace == run_set.namespace and self._uids.get(view.key) == view.uid
            },
            namespace_labels=namespace_labels,
            namesake=self._is_taken(run_set),
        )

    def note_made(self, uid: str, refused: Mapping[int, str], *, taken: bool, is_news: bool) -> None:
        """Keep what the API server said of runs until it is on record. ``taken``: it took one; ``is_news``: it refused
        one that was not refused before."""
        if self.cache.get(uid) is None:
            return  # it is gone, and nobody would forget what was kept of it
        if refused:
            self._refused.setdefault(uid, {}).update(refused)
        if taken:
            self._fruitless.pop(uid, None)
        elif is_news:
            self._fruitless[uid] = self._fruitless.get(uid, 0) + 1

    def forget_refused(self, uid: str) -> None:
        """What was kept of refused runs is on record."""
        self._refused.pop(uid, None)

    def forget_departed(self, run_set: RunSetView) -> None:
        """What was seen last of runs that are gone is of no more use once their outcome is on record."""
        departed = self._departed.get(run_set.uid)
        if departed is not None:
            left = {index: run for index, run in departed.items() if not is_recorded(run, run_set)}
            self._departed[run_set.uid] = left

    def touch_all(self) -> None:
        """Have every set reconciled."""
        for view in self.cache:
            self._queue.add(set_key(view.namespace, view.name))

    # -- what is heard --------------------------------------------------------------------------

    def apply(self, raw: Mapping[str, Any]) -> RunSetView:
        """Take in a TrainingRunSet from a watch or from the answer to a write."""
        view = parse_run_set(raw)
        if self._is_watched(view.namespace):
            self.cache.upsert(Versioned(view.uid, int(view.resource_version), view))
        return view

    def remove(self, uid: str) -> None:
        """A TrainingRunSet is gone for good: no UID ever comes back."""
        self.cache.remove(uid, sys.maxsize)

    # -- changes --------------------------------------------------------------------------------

    def run_changed(self, old: RunView | None, new: RunView | None) -> None:
        """A run is there, is another, or is gone."""
        if old is not None and old.set_uid and (new is None or new.set_uid != old.set_uid):
            members = self._members.get(old.set_uid, {})
            index = members.pop(old.uid, None)
            if not members:
                self._members.pop(old.set_uid, None)
            if index is not None and self.owner_of(old) is not None:
                self._departed.setdefault(old.set_uid, {})[index] = old
            self._reconcile_soon(old)
        run = new or old
        assert run is not None
        if new is not None and new.set_uid and (index := index_of(new)) is not None:
            self._members.setdefault(new.set_uid, {})[new.uid] = index
        self._reconcile_soon(run)

    def _reconcile_soon(self, run: RunView) -> None:
        """Have the set reconciled whose run this is, or that it is in the way of."""
        found = split_run_name(run.name)
        for name in (run.name, *((found[0],) if found is not None else ())):
            owner = self.named(run.namespace, name)
            if owner is None:
                continue
            delay = min(_SOON_AT_MOST, _SOON + _SOON_PER_RUN * len(self._members.get(owner.uid, ())))
            self._queue.wake_at(set_key(owner.namespace, owner.name), self._clock.now() + delay)

    def _set_changed(self, old: RunSetView | None, new: RunSetView | None) -> None:
        view = new or old
        assert view is not None
        if new is None:
            if self._uids.get(view.key) == view.uid:
                del self._uids[view.key]
            self._departed.pop(view.uid, None)
            self._refused.pop(view.uid, None)
            self._fruitless.pop(view.uid, None)
            self._widths.pop((view.namespace, view.uid), None)
        else:
            self._take_in(new)
        if governance(old) != governance(new):
            for uid in list(self._members.get(view.uid, ())):
                self._govern(uid)
        self._reconcile_recorded(old, new)
        if self._uid_named(view.key):
            self._queue.add(run_key(view.namespace, view.name))
        if new is None and not self._members.get(view.uid):
            self._members.pop(view.uid, None)
        self._queue.add(set_key(view.namespace, view.name))
        for follower in self._followers(view):
            self._queue.add(set_key(follower.namespace, follower.name))

    def _reconcile_recorded(self, old: RunSetView | None, new: RunSetView | None) -> None:
        """Have those reconciled whose time is over and whose outcome is on record now: nothing else wakes them."""
        if new is None or (old is not None and old.status.indices == new.status.indices):
            return
        newly = recorded_indices(new) - (recorded_indices(old) if old is not None else frozenset())
        for uid, index in self._members.get(new.uid, {}).items() if newly else ():
            run = self._run(uid) if index in newly else None
            ended = find(run.status, ConditionType.FINISHED) if run is not None else None
            if run is None or ended is None or ended.status != "True":
                continue
            due = over_at(run, ended.last_transition_time)
            if due is not None and due <= self._clock.now():
                self._queue.add(run_key(run.namespace, run.name))

    def _take_in(self, new: RunSetView) -> None:
        namesake = self._uids.get(new.key, new.uid)
        if namesake != new.uid and self.cache.version(namesake) > self.cache.version(new.uid):
            return  # late news of one deleted before
        self._uids[new.key] = new.uid
        width = new.spec.max_running if new.spec is not None else None
        place = new.namespace, new.uid
        if width != self._widths.get(place):
            self._queue.add(CLUSTER_KEY)
            if width is None:
                del self._widths[place]
            else:
                self._widths[place] = width

    def _followers(self, view: RunSetView) -> Iterator[RunSetView]:
        """Sets that come after this one."""
        for other in self.cache:
            if other.namespace == view.namespace and other.spec is not None and other.spec.after_corr == view.name:
                yield other


def _fits(run: RunView, run_set: RunSetView) -> bool:
    """A reference that names the set of the UID, where that set is: another tenant may have copied the UID alone."""
    return (run.namespace, run.set_name) == (run_set.namespace, run_set.name)
