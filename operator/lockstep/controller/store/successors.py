"""Which runs go on from another one: what that one's retention must leave alone, and what it has a link to."""

from __future__ import annotations

from collections import defaultdict

from lockstep.core.model.snapshot import RunView
from lockstep.core.model.test_only import is_test_only


class Successors:
    """UIDs of the runs that name another run in ``checkpoint.start.run``, by the key of that one; and of those that
    were made with its record the latest alone, as a record is what anybody may write into any number of runs."""

    def __init__(self) -> None:
        self._by_origin: dict[str, set[str]] = defaultdict(set)
        self._latest: dict[tuple[str, str], tuple[float, str]] = {}  # namespace, UID of the origin -> created, UID

    def run_changed(self, old: RunView | None, new: RunView | None) -> None:
        """A run came, changed or went."""
        self._record_changed(old, new)
        before, after = _origin_key(old), _origin_key(new)
        if before == after:
            return
        if before and old is not None:
            self._by_origin[before].discard(old.uid)
            if not self._by_origin[before]:
                del self._by_origin[before]
        if after and new is not None:
            self._by_origin[after].add(new.uid)

    def for_run(self, run: RunView) -> frozenset[str]:
        """UIDs of those that start from ``run``."""
        made = self._latest.get((run.namespace, run.uid))
        return frozenset(self._by_origin.get(run.key, ())) | ({made[1]} if made is not None else frozenset())

    def _record_changed(self, old: RunView | None, new: RunView | None) -> None:
        if old is not None and (before := recorded_origin(old)):
            key = old.namespace, before
            if self._latest.get(key, (0.0, ""))[1] == old.uid:
                del self._latest[key]
        if new is not None and (after := recorded_origin(new)):
            key = new.namespace, after
            self._latest[key] = max(self._latest.get(key, (0.0, "")), (new.created_at, new.uid))


def recorded_origin(run: RunView | None) -> str:
    """UID of the run whose record a run was made with, which is only told; mostly none."""
    if run is None or not run.status.previous or is_test_only(run):
        return ""
    return run.status.previous[0].uid


def gone_on_from(old: RunView | None, new: RunView | None) -> str:
    """Name of the run that a run is known from now on to start from, which is to have a link to it; mostly none."""
    uid = new.status.resolved.start_run_uid if new is not None else ""
    if new is None or not uid or (old is not None and old.status.resolved.start_run_uid == uid):
        return ""
    return new.status.resolved.start_run


def _origin_key(run: RunView | None) -> str:
    checkpoint = run.spec.checkpoint if run is not None and run.spec is not None else None
    name = checkpoint.start.run if checkpoint is not None else None
    return f"{run.namespace}/{name}" if run is not None and name else ""
