"""The arrays there are, which runs are theirs, and what they say to them."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from lockstep.controller.cache import ObjectCache
from lockstep.controller.clock import Clock
from lockstep.controller.workqueue import CLUSTER_KEY, WorkQueue, set_key
from lockstep.core.arrays.members import governance, index_of, is_recorded, run_name, split_run_name
from lockstep.core.arrays.views import RunSetSnapshot, RunSetView
from lockstep.core.snapshot import RunView

_SOON = 0.2  # the runs of a set change by the dozen: one look at all of them is enough …
_SOON_PER_RUN = 0.0002  # … and costs the more, the more there are
_SOON_AT_MOST = 2.0


class RunSets:
    """``cache`` is fed from watches, lists and the answers to our own writes; ``govern`` is told the UID of a run whose
    set has something else to say to it."""

    def __init__(
        self,
        queue: WorkQueue,
        clock: Clock,
        run: Callable[[str], RunView | None],
        uid_named: Callable[[str], str],
        govern: Callable[[str], None],
    ) -> None:
        self.cache: ObjectCache[RunSetView] = ObjectCache(self._set_changed)
        self._queue = queue
        self._clock = clock
        self._run = run
        self._uid_named = uid_named
        self._govern = govern
        self._uids: dict[str, str] = {}  # namespace/name -> UID
        self._members: dict[str, dict[str, int]] = {}  # set UID -> run UID -> index
        self._departed: dict[str, dict[int, RunView]] = {}  # set UID -> index -> the run as it was seen last
        self._refused: dict[str, str] = {}  # set UID -> what the API server said of a run it would not take
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
        return owner if owner is not None and _fits(run, owner) and index_of(run) is not None else None

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
            refused=self._refused.get(run_set.uid, ""),
            sets={
                view.name: view
                for view in self.cache
                if view.namespace == run_set.namespace and self._uids.get(view.key) == view.uid
            },
            namespace_labels=namespace_labels,
        )

    def note_refused(self, uid: str, message: str) -> None:
        """Keep what the API server said of a run; empty: it takes them."""
        if message:
            self._refused[uid] = message
        else:
            self._refused.pop(uid, None)

    def forget_departed(self, run_set: RunSetView) -> None:
        """What was seen last of runs that are gone is of no more use once their outcome is on record."""
        departed = self._departed.get(run_set.uid)
        if departed is not None:
            left = {index: run for index, run in departed.items() if not is_recorded(run, run_set)}
            self._departed[run_set.uid] = left

    def touch_all(self) -> None:
        """Have every set looked at."""
        for view in self.cache:
            self._queue.add(set_key(view.namespace, view.name))

    # -- changes --------------------------------------------------------------------------------

    def run_changed(self, old: RunView | None, new: RunView | None) -> None:
        """A run is there, is another, or is gone."""
        if old is not None and old.set_uid and (new is None or new.set_uid != old.set_uid):
            index = self._members.get(old.set_uid, {}).pop(old.uid, None)
            if index is not None and self.owner_of(old) is not None:
                self._departed.setdefault(old.set_uid, {})[index] = old
            self._look_soon(old)
        run = new or old
        assert run is not None
        if new is not None and new.set_uid and (index := index_of(new)) is not None:
            self._members.setdefault(new.set_uid, {})[new.uid] = index
        self._look_soon(run)

    def _look_soon(self, run: RunView) -> None:
        """Have the set looked at whose run this is, or whose run it is in the way of."""
        found = split_run_name(run.name)
        owner = self.named(run.namespace, found[0]) if found is not None else None
        if owner is not None:
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
            self._widths.pop((view.namespace, view.uid), None)
        else:
            self._take_in(new)
        if governance(old) != governance(new):
            for uid in list(self._members.get(view.uid, ())):
                self._govern(uid)
        if new is None and not self._members.get(view.uid):
            self._members.pop(view.uid, None)
        self._queue.add(set_key(view.namespace, view.name))
        for follower in self._followers(view):
            self._queue.add(set_key(follower.namespace, follower.name))

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
