"""What has changed since the last admission cycle that finished."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from lockstep.core.model.snapshot import Changes, PodView, RunView

T = TypeVar("T")


class ChangeLog(Generic[T]):
    """Views by key, as they are now; None: it is gone. Nothing is noted before the first reader: it sees everything.

    There is one reader at a time.
    """

    def __init__(self) -> None:
        self._read: Mapping[str, T | None] | None = None  # by whoever has not finished
        self._since: dict[str, T | None] | None = None

    def note(self, key: str, view: T | None) -> None:
        """Something changed."""
        if self._since is not None:
            self._since[key] = view

    def read(self) -> Mapping[str, T | None] | None:
        """All that has changed since; None: everything may have. It is read again, unless this reader finishes."""
        known, since = self._read, self._since
        self._read = None if known is None or since is None else {**known, **since}
        self._since = {}
        return self._read

    def finish(self) -> None:
        """What was read need not be read again."""
        self._read = {}


class AdmissionChanges:
    """Runs, as cycles see them, and gang pods by UID; by name the nodes that, or requests of others there, changed."""

    def __init__(self) -> None:
        self.runs = ChangeLog[RunView]()
        self.pods = ChangeLog[PodView]()
        self.nodes = ChangeLog[None]()

    def read(self) -> Changes:
        """For the snapshot of a cycle that begins."""
        return Changes(self.runs.read(), self.pods.read(), self.nodes.read())

    def finish(self) -> None:
        """The cycle has finished, and what it keeps for the next one rests on all of this."""
        for log in (self.runs, self.pods, self.nodes):
            log.finish()
