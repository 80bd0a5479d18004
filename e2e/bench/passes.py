"""What one admission cycle takes, without any API server: the first one, and the one after an event.

Seconds are of the processor: passes wait for nothing, and what else runs on the machine does not count. Each pass after
an event is held against one that remembers nothing of the passes before, and has to decide the same.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from statistics import median

from bench.crowd import NOW, Crowd, with_changes, written
from bench.forgetful import anew
from bench.recoveries import quantile
from lockstep.api.base.changes import changed
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.model.assignment import is_held
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot, RunView
from lockstep.core.model.tunables import Tunables

_TUNABLES = Tunables()
_MOST_PASSES = 400
_REST = 1.0  # seconds of the cluster's clock between two passes

Change = Callable[[ClusterSnapshot], ClusterSnapshot]


_PREEMPTION = {"withinQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
PROTECTION = {"those who came lately are protected": "10m", "everybody is protected": "720h"}
"""``minRuntime`` of queues that send others away: once nobody may any more, many may later."""


@dataclass(frozen=True)
class PassFigures:
    """Seconds. ``after``: by event, every pass right after one; ``preempting``: the same where queues send others away,
    by whom they spare. ``peak`` in bytes, of what a first pass allocates."""

    full: tuple[float, ...]
    after: dict[str, tuple[float, ...]]
    preempting: dict[str, dict[str, tuple[float, ...]]]
    peak: int

    @property
    def worst(self) -> float:
        """The median pass after the kind of event whose passes take longest."""
        return max(median(seconds) for seconds in self.after.values())

    @property
    def worst_preempting(self) -> float:
        """``worst`` of all crowds whose queues send others away."""
        return max(median(seconds) for after in self.preempting.values() for seconds in after.values())

    @property
    def worst_p95(self) -> float:
        """What 95 of 100 passes do not exceed, after the kind of event where that is most."""
        return max(quantile(seconds, 0.95) for seconds in self.after.values())


def measure(runs: int, nodes: int, rounds: int, report: Callable[[str], None]) -> PassFigures:
    """Time ``rounds`` of everything."""
    crowd = Crowd(runs, nodes)
    full = []
    for _ in range(max(1, rounds // 4)):
        _, seconds = _timed(crowd.snapshot, NOW, CycleMemory())
        full.append(seconds)
    report(f"a first pass: {', '.join(f'{seconds:.3f}' for seconds in full)} s")
    peak = _peak(crowd.snapshot)
    after = _after_events(crowd, rounds, report)
    preempting = {}
    for spared, least in PROTECTION.items():
        report(f"queues send others away; {spared}")
        rules = {**_PREEMPTION, "minRuntime": least}
        preempting[spared] = _after_events(Crowd(runs, nodes, preemption=rules), -(-rounds // 4), report)
    return PassFigures(tuple(full), after, preempting, peak)


def _after_events(crowd: Crowd, rounds: int, report: Callable[[str], None]) -> dict[str, tuple[float, ...]]:
    """By event, the seconds of each pass right after one."""
    cluster = _Cluster(crowd)
    passes = cluster.settle()
    report(f"nobody can start any more after {passes} passes")
    after: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, change in cluster.events().items():
            after.setdefault(name, []).append(cluster.after(change))
    for name, found in after.items():
        spread = f"median {median(found):.4f} s, 95 % within {quantile(found, 0.95):.4f} s, longest {max(found):.4f} s"
        report(f"a pass after {name}: {spread} of {len(found)}")
    return {name: tuple(found) for name, found in after.items()}


class _Cluster:
    """The cluster as passes change it, with what they remember."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._memory = CycleMemory()
        self._snapshot = self._seen = crowd.snapshot
        self._now = NOW
        self._lost = 0

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
        _, seconds = self._look(check=True)
        for _ in range(3):
            self._look()
        return seconds

    def events(self) -> dict[str, Change]:
        """What happens, each time to somebody else."""
        return {
            "a run arrives": self._arrive,
            "a run is edited": self._edit,
            "a run ends": _end,
            "a node goes NotReady": self._lose,
            "a node comes back": self._regain,
        }

    def _look(self, *, check: bool = False) -> tuple[ClusterPlan, float]:
        self._now += _REST
        self._snapshot, self._seen = with_changes(self._seen, self._snapshot), self._snapshot
        plan, seconds = _timed(self._snapshot, self._now, self._memory)
        if check and plan != (fresh := admit(self._snapshot, _TUNABLES, self._now, anew(self._memory))):
            raise AssertionError(f"what is remembered changes what is decided: {_difference(plan, fresh)}")
        self._snapshot = written(self._snapshot, plan)
        return plan, seconds

    def _arrive(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        run = replace(self._crowd.waiting(), created_at=self._now)
        return replace(snapshot, runs=(*snapshot.runs, run))

    def _edit(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """One in the middle of those that wait asks for an hour more, or less."""
        waiting = [run for run in snapshot.runs if not is_held(run.status.assignment)]
        run = waiting[(len(waiting) // 2 + int(self._now)) % len(waiting)]
        assert run.spec is not None
        limit = "3h" if run.spec.time_limit != "3h" else "5h"
        edited = replace(run, spec=changed(run.spec, time_limit=limit), resource_version="8")
        return replace(snapshot, runs=tuple(edited if other is run else other for other in snapshot.runs))

    def _lose(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """By turns one that somebody holds and one that nobody does."""
        held = {node for run in snapshot.runs for node in run.status.assignment.nodes}
        self._lost += 1
        of_held = bool(self._lost % 2)
        alike = [node for node in snapshot.nodes.values() if node.ready and (node.name in held) is of_held]
        node = alike[len(alike) // 2]
        lost = replace(node, ready=False, ready_changed_at=self._now)
        return replace(snapshot, nodes={**snapshot.nodes, node.name: lost})

    def _regain(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        node = next(node for node in snapshot.nodes.values() if not node.ready)
        found = replace(node, ready=True, ready_changed_at=self._now)
        return replace(snapshot, nodes={**snapshot.nodes, node.name: found})


def _end(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Of the runs that hold nodes the one in the middle, by size, gives them back and is gone."""
    holding = sorted((run for run in snapshot.runs if is_held(run.status.assignment)), key=_size)
    gone = holding[len(holding) // 2]
    runs = tuple(run for run in snapshot.runs if run.uid != gone.uid)
    pods = tuple(pod for pod in snapshot.gang_pods if pod.run_uid != gone.uid)
    return replace(snapshot, runs=runs, gang_pods=pods)


def _difference(plan: ClusterPlan, anew: ClusterPlan) -> str:
    """The first of what is written that is not the same."""
    pairs = zip_longest((*plan.writes, *plan.queues), (*anew.writes, *anew.queues))
    found = next(((mine, other) for mine, other in pairs if mine != other), (plan.wake_at, anew.wake_at))
    return f"{found[0]}\ninstead of {found[1]}"


def _size(run: RunView) -> tuple[int, str]:
    return len(run.status.assignment.nodes), run.uid


def _timed(snapshot: ClusterSnapshot, now: float, memory: CycleMemory) -> tuple[ClusterPlan, float]:
    with _collected():
        begun = time.process_time()
        plan = admit(snapshot, _TUNABLES, now, memory)
        return plan, time.process_time() - begun


def _peak(snapshot: ClusterSnapshot) -> int:
    with _collected():
        tracemalloc.start()
        memory = CycleMemory()
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
