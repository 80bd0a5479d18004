"""One of our own kinds, as its lists are taken in: whole, read from a quorum, each minute anew."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

from lockstep.controller.kube.cache import ObjectCache
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.core.model.cluster_objects import Unread, Versioned

V = TypeVar("V")


class ListedKind(Generic[V]):
    """``cache`` has the views of all objects in namespaces that are looked after; ``changed`` is called as by every
    ObjectCache, and ``parsed`` with an object as it came."""

    def __init__(
        self,
        kind: str,
        parsed: Callable[[Mapping[str, Any]], V],
        changed: Callable[[V | None, V | None], None],
        looks_after: Callable[[str], bool],
        left_out: LeftOut,
    ) -> None:
        self.cache: ObjectCache[V] = ObjectCache(changed, kind, left_out)
        self._kind = kind
        self._parsed = parsed
        self._is_watched = looks_after
        self._left_out = left_out
        self.listed_at = float("-inf")
        """When the last list that was compared was asked for, in monotonic seconds."""
        self._compared_at = 0  # its version

    def is_news(self, item: Versioned[Unread]) -> bool:
        """It is no version that is known: what a watch repeats of our own writes need not even be decoded."""
        return self._is_watched(item.view.namespace) and self.cache.version(item.uid) < item.version

    def replace(
        self, items: Iterable[Versioned[Unread]], version: int, *, reset: bool = False, unread: Collection[str] = ()
    ) -> None:
        """Take in a complete, consistent list; with ``reset`` even where older versions say otherwise. ``unread``: UIDs
        of others that are there and cannot be read."""
        ours = [item for item in items if self._is_watched(item.view.namespace)]
        listed = filter(None, [self._listed(item, anew=reset) for item in ours])
        self.cache.replace(listed, version, reset=reset, unread=unread)

    def compare(
        self,
        items: Iterable[Versioned[Unread]],
        version: int,
        begun_at: float,
        *,
        seen: int = 0,
        unread: Collection[str] = (),
    ) -> None:
        """As ``replace``, of a list read from a quorum that was asked for at ``begun_at`` (monotonic seconds).

        One that is older than what was ``seen`` by then is of a restored backup.
        """
        self.replace(items, version, reset=version < max(self._compared_at, seen), unread=unread)
        self._compared_at = version
        self.listed_at = max(self.listed_at, begun_at)

    def _listed(self, item: Versioned[Unread], *, anew: bool) -> Versioned[V] | None:
        """One of a list. The version that is known is taken as it is, unless versions have begun ``anew``.

        Of one that cannot be read the last that could stays; None where there was none.
        """
        known, version = self.cache.get(item.uid), self.cache.version(item.uid)
        if known is not None and not anew and version == item.version:
            return Versioned(item.uid, version, known)
        try:
            return Versioned(item.uid, item.version, self._parsed(item.view.read()))
        except Exception as error:  # whatever it is, it is one object's
            which = f"one of {item.view.namespace} (UID {item.uid})"
            self._left_out.note(self._kind, which, item.version, error)
            return None if known is None else Versioned(item.uid, version, known)
