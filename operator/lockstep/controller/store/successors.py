"""Which runs are to start from the checkpoints of another one: what that one's retention must leave alone."""

from __future__ import annotations

from collections import defaultdict

from lockstep.core.model.snapshot import RunView


class Successors:
    """UIDs of the runs that name another run in ``checkpoint.start.run``, by the key of that one."""

    def __init__(self) -> None:
        self._by_origin: dict[str, set[str]] = defaultdict(set)

    def run_changed(self, old: RunView | None, new: RunView | None) -> None:
        """A run came, changed or went."""
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
        return frozenset(self._by_origin.get(run.key, ()))


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
