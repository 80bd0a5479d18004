"""What the watches of TrainingRuns and TrainingRunSets feed: the store, which reads only what it does not know yet.

Most of what this watch says is the echo of our own writes, a version that the store took in with the answer.
kopf would decode each of them, start a task for it and call a handler, a millisecond of CPU for nothing; an echo
costs hundredths of that here. And kopf decodes all of an object, which ends the process where a pod template is
nested deeper than Python counts to. So kopf watches queues, which have no part that the API server does not check.
"""

from collections.abc import Iterable

from lockstep.controller.store.store import Store
from lockstep.core.model.cluster_objects import Unread, Versioned


class RunSink:
    """Takes TrainingRuns from an informer into the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def upsert(self, item: Versioned[Unread]) -> None:
        """A run appeared or changed."""
        self._store.hear_run(item)

    def remove(self, uid: str, version: int) -> None:
        """A run went, for good: no UID ever comes back."""
        known = self._store.run_by_uid(uid)
        if known is None:
            self._store.runs.remove(uid, version)
        else:
            self._store.remove_run(known.namespace, known.name, uid)

    def replace(self, items: Iterable[Versioned[Unread]], version: int, *, reset: bool = False) -> None:
        """These are all there are."""
        self._store.replace_runs(items, version, reset=reset)


class RunSetSink:
    """Takes TrainingRunSets from an informer into the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def upsert(self, item: Versioned[Unread]) -> None:
        """A set appeared or changed."""
        self._store.run_sets.hear(item)

    def remove(self, uid: str, version: int) -> None:
        """A set went, for good."""
        self._store.run_sets.remove(uid)

    def replace(self, items: Iterable[Versioned[Unread]], version: int, *, reset: bool = False) -> None:
        """These are all there are."""
        self._store.run_sets.replace(items, version, reset=reset)
