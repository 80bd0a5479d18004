"""Objects of one kind by UID, fed from lists, watches and the answers to our own writes alike.

The three sources overtake one another, so versions decide: what is older than what is known changes
nothing. Only a backup that was restored makes an object older: what a quorum says that was asked after
the newer one was known, or as of a later version, is then all there is. resourceVersions of one kind
compare as integers (guaranteed from Kubernetes 1.35, true of every etcd-backed API server before).
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Generic, TypeVar

from lockstep.controller.runtime.left_out import LeftOut
from lockstep.core.model.cluster_objects import Versioned

T = TypeVar("T")
_GRAVES = 50_000


class ObjectCache(Generic[T]):
    """The newest known view of every object.

    ``changed(old, new)`` is called once for each change of a view; None stands for absence.
    """

    def __init__(
        self, changed: Callable[[T | None, T | None], None], kind: str = "objects", left_out: LeftOut | None = None
    ) -> None:
        self._tell = changed
        self._kind = kind
        self._left_out = left_out or LeftOut()
        self._items: dict[str, Versioned[T]] = {}
        self._graves: dict[str, int] = {}  # UID -> version it was gone at, so that late news revives nothing
        self.synced = False
        """A complete list has been taken in."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return (item.view for item in self._items.values())

    def uids(self) -> Iterator[str]:
        """UIDs of all objects."""
        return iter(self._items)

    def get(self, uid: str) -> T | None:
        """The view of an object, or None."""
        item = self._items.get(uid)
        return None if item is None else item.view

    def version(self, uid: str) -> int:
        """The version of an object, -1 when it is not known."""
        item = self._items.get(uid)
        return -1 if item is None else item.version

    def is_gone(self, uid: str) -> bool:
        """The object existed and does not any more."""
        return uid in self._graves and uid not in self._items

    def upsert(self, item: Versioned[T]) -> None:
        """Take in what a watch or an answer said of an object, unless something newer is known."""
        known = self._items.get(item.uid)
        if item.version <= (self._graves.get(item.uid, -1) if known is None else known.version):
            return
        self._items[item.uid] = item
        if known is None or known.view != item.view:
            self._changed(None if known is None else known.view, item.view)

    def remove(self, uid: str, version: int) -> None:
        """The object was gone at ``version``."""
        known = self._items.get(uid)
        if known is not None and known.version > version:
            return
        self._bury(uid, version)
        if known is not None:
            del self._items[uid]
            self._changed(known.view, None)

    def set_back(self, uid: str, version: int) -> None:
        """A quorum has an older object than was known at ``version``: let it in, unless there is newer news."""
        known = self._items.get(uid)
        if known is not None and known.version <= version:
            self._items[uid] = Versioned(uid, -1, known.view)
        if self._graves.get(uid, version + 1) <= version:
            del self._graves[uid]

    def amend(self, uid: str, view: T) -> None:
        """The same version of a known object, understood better."""
        known = self._items[uid]
        self._items[uid] = Versioned(uid, known.version, view)
        self._changed(known.view, view)

    def replace(
        self, items: Iterable[Versioned[T]], version: int, *, reset: bool = False, unread: Collection[str] = ()
    ) -> None:
        """Take in a complete list of ``version``: what it lacks is gone, unless news of it is newer.

        ``unread``: UIDs of what it has and nobody can read, which stays as it was known.

        ``reset`` says that versions have gone back (a restored backup): the list is all there is. Where the restored
        server counts on from a higher version (``--bump-revision``), single objects have gone back.
        """
        if reset:
            self._graves.clear()
            for uid, known in self._items.items():
                self._items[uid] = Versioned(uid, -1, known.view)
        listed = set(unread)
        for item in items:
            listed.add(item.uid)
            if item.version < max(self.version(item.uid), self._graves.get(item.uid, -1)):
                self.set_back(item.uid, version)
            self.upsert(item)
        for uid in [uid for uid in self._items if uid not in listed]:
            self.remove(uid, version)
        self.synced = True

    def _changed(self, old: T | None, new: T | None) -> None:
        """What comes of one object must not keep the others of a list from being heard of."""
        try:
            self._tell(old, new)
        except Exception as error:  # whatever it is, nobody else is to wait for it
            self._left_out.note(self._kind, "what rests on an object", repr(new or old)[:200], error)

    def _bury(self, uid: str, version: int) -> None:
        self._graves[uid] = max(version, self._graves.pop(uid, -1))
        while len(self._graves) > _GRAVES:
            del self._graves[next(iter(self._graves))]
