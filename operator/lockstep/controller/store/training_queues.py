"""The TrainingQueues there are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from lockstep.api.base import names
from lockstep.controller.kube.cache import ObjectCache
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.core.model.cluster_objects import Unread, Versioned
from lockstep.core.model.own_objects import parse_queue
from lockstep.core.model.snapshot import QueueView


class TrainingQueues:
    """``cache`` is fed from watches, lists and the answers to our own writes; ``changed`` is called with a queue whose
    spec is another, or that has come or gone."""

    def __init__(self, changed: Callable[[QueueView], None], left_out: LeftOut | None = None) -> None:
        self._left_out = left_out = left_out or LeftOut()
        self.cache: ObjectCache[QueueView] = ObjectCache(self._queue_changed, names.QUEUES, left_out)
        self._changed = changed
        self._listed_at = 0
        self._by_name: dict[str, QueueView] = {}
        self.by_name: Mapping[str, QueueView] = MappingProxyType(self._by_name)

    def is_news(self, item: Versioned[Unread]) -> bool:
        """It is no version that is known."""
        return self.cache.version(item.uid) < item.version

    def apply(self, raw: Mapping[str, Any]) -> None:
        """Take in a TrainingQueue. The rules of one whose spec does not parse stay as they were before."""
        item = self._parsed(raw)
        if item is not None:
            self.cache.upsert(item)

    def remove(self, raw: Mapping[str, Any]) -> None:
        """A TrainingQueue is gone."""
        meta = raw["metadata"]
        self.cache.remove(meta["uid"], int(meta["resourceVersion"]))

    def replace(self, raws: Sequence[Mapping[str, Any]], version: str) -> None:
        """Take in a complete, consistent list that was read from a quorum."""
        listed, at = [item for raw in raws if (item := self._parsed(raw)) is not None], int(version)
        self.cache.replace(listed, at, reset=at < self._listed_at)
        self._listed_at = at

    def _parsed(self, raw: Mapping[str, Any]) -> Versioned[QueueView] | None:
        """Of one that cannot be read at all, the last that could; None where there was none."""
        meta = raw["metadata"]
        known = self.cache.get(meta["uid"])
        try:
            view = parse_queue(raw, known)
        except Exception as error:  # whatever it is, it is one object's
            self._left_out.note(names.QUEUES, meta["name"], meta["resourceVersion"], error)
            return None if known is None else Versioned(meta["uid"], self.cache.version(meta["uid"]), known)
        if known is not None and known.spec == view.spec:
            view = replace(view, spec=known.spec)  # what is remembered of its runs rests on this very object
        return Versioned(view.uid, int(view.resource_version), view)

    def _queue_changed(self, old: QueueView | None, new: QueueView | None) -> None:
        if new is not None:
            self._by_name[new.name] = new
        elif old is not None and self._by_name.get(old.name) == old:
            del self._by_name[old.name]
        if old is not None and new is not None and old.generation == new.generation and old.spec == new.spec:
            return
        queue = new or old
        assert queue is not None
        self._changed(queue)
