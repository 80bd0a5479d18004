"""What one admission pass takes, without any API server: the first one, and the one after an event."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

from bench.crowd import NOW, Crowd, written
from lockstep.core.admission.admit import admit
from lockstep.core.admission.memory import Memory
from lockstep.core.assignment import is_held
from lockstep.core.plan import ClusterPlan
from lockstep.core.snapshot import ClusterSnapshot, RunView
from lockstep.core.tunables import Tunables

_TUNABLES = Tunables()
_MOST_PASSES = 400
_REST = 1.0  # seconds of the cluster's clock between two passes

Change = Callable[[ClusterSnapshot], ClusterSnapshot]


@dataclass(frozen=True)
class PassFigures:
    """Seconds. ``after``: by event, every pass right after one. ``peak`` in bytes, of what a first pass allocates."""

    full: tuple[float, ...]
    after: dict[str, tuple[float, ...]]
    peak: int

    @property
    def worst_median(self) -> float:
        """Of the kinds of events the one whose passes take longest."""
        return max(median(seconds) for seconds in self.after.values())


def measure(runs: int, nodes: int, rounds: int, report: Callable[[str], None]) -> PassFigures:
    """Time ``rounds`` of everything."""
    crowd = Crowd(runs, nodes)
    full = []
    for _ in range(max(1, rounds // 4)):
        _, seconds = _timed(crowd.snapshot, NOW, Memory())
        full.append(seconds)
    report(f"a first pass: {', '.join(f'{seconds:.3f}' for seconds in full)} s")
    peak = _peak(crowd.snapshot)
    cluster = _Cluster(crowd)
    passes = cluster.settle()
    report(f"nobody can start any more after {passes} passes")
    after: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, change in cluster.events().items():
            after.setdefault(name, []).append(cluster.after(change))
    for name, found in after.items():
        report(f"a pass after {name}: median {median(found):.4f} s, longest {max(found):.4f} s of {len(found)}")
    return PassFigures(tuple(full), {name: tuple(found) for name, found in after.items()}, peak)


class _Cluster:
    """The cluster as passes change it, with what they remember."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._memory = Memory()
        self._snapshot = crowd.snapshot
        self._now = NOW

    def settle(self) -> int:
        """Passes until nobody is admitted and nobody is to be told anything any more; how many."""
        for number in range(1, _MOST_PASSES + 1):
            plan, _ = self._look()
            if not plan.writes:
                return number
        raise AssertionError(f"passes still write after {_MOST_PASSES} of them")

    def after(self, change: Change) -> float:
        """Seconds that the pass right after ``change`` takes; what it leaves is done before this returns."""
        self._snapshot = change(self._snapshot)
        _, seconds = self._look()
        for _ in range(3):
            self._look()
        return seconds

    def events(self) -> dict[str, Change]:
        """What happens, each time to somebody else."""
        return {"a run arrives": self._arrive, "a run ends": _end, "a node goes NotReady": self._lose}

    def _look(self) -> tuple[ClusterPlan, float]:
        self._now += _REST
        plan, seconds = _timed(self._snapshot, self._now, self._memory)
        self._snapshot = written(self._snapshot, plan)
        return plan, seconds

    def _arrive(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        run = replace(self._crowd.waiting(), created_at=self._now)
        return replace(snapshot, runs=(*snapshot.runs, run))

    def _lose(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        node = next(node for node in reversed(snapshot.nodes.values()) if node.ready)
        lost = replace(node, ready=False, ready_changed_at=self._now)
        return replace(snapshot, nodes={**snapshot.nodes, node.name: lost})


def _end(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Of the runs that hold nodes the one in the middle, by size, gives them back and is gone."""
    holding = sorted((run for run in snapshot.runs if is_held(run.status.assignment)), key=_size)
    gone = holding[len(holding) // 2]
    runs = tuple(run for run in snapshot.runs if run.uid != gone.uid)
    pods = tuple(pod for pod in snapshot.gang_pods if pod.run_uid != gone.uid)
    return replace(snapshot, runs=runs, gang_pods=pods)


def _size(run: RunView) -> tuple[int, str]:
    return len(run.status.assignment.nodes), run.uid


def _timed(snapshot: ClusterSnapshot, now: float, memory: Memory) -> tuple[ClusterPlan, float]:
    with _collected():
        begun = time.perf_counter()
        plan = admit(snapshot, _TUNABLES, now, memory)
        return plan, time.perf_counter() - begun


def _peak(snapshot: ClusterSnapshot) -> int:
    with _collected():
        tracemalloc.start()
        memory = Memory()
        admit(snapshot, _TUNABLES, NOW, memory)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


@contextmanager
def _collected() -> Iterator[None]:
    """Garbage of the simulation is not the pass's to collect; the operator freezes what it starts with as well."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
