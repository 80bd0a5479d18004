"""Isolates a run that admission fails with (a poison run), so that it holds up nobody but itself.

Nothing that a run says should make a cycle raise; where something does, that is a defect of ours and no reason for
everybody else to wait. Which run it is, is found by halving: cycles are tried with fewer and fewer of them. It is then
set aside (``excluded_runs.set_aside``) and told so, until it is edited or some time has passed: a run that waits is
left out, and one that holds nodes becomes an opaque booking, for its nodes are nobody else's. Where a cycle fails
without any run, it is a pod, a node or a queue, and found likewise.

A search costs at most ``_TRIES`` cycles, and as many more as it takes to find the last one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.entry import is_asked, is_pending
from lockstep.core.admission.cache.excluded_runs import (
    NODES,
    PODS,
    QUEUES,
    ExcludedObject,
    ExcludedRun,
    ObjectKey,
    exclusion_writes,
    without,
)
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import Changes, ClusterSnapshot, RunView
from lockstep.core.model.tunables import Tunables

T = TypeVar("T")

AGAIN = 600.0
"""Seconds until a run that was set aside is tried again: what a cycle fails by may be of the moment."""
_MOST = 8  # found in one cycle; beyond, all that wait in their namespaces are left out
_TRIES = 128


def admit_isolating_failures(
    snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: CycleMemory
) -> ClusterPlan:
    """What ``admit`` decides; where a run, pod, node or queue makes it raise, what it decides of the others.

    ``memory.excluded_runs`` and ``memory.excluded_objects`` have those. Raises what ``admit`` raises without any.
    """
    runs, objects = memory.excluded_runs, memory.excluded_objects
    if runs or objects:
        snapshot = replace(snapshot, changes=Changes())  # to a cycle, whoever is tried again has changed
        seen = {run.uid: run for run in snapshot.runs if run.uid in runs}
        runs = {uid: entry for uid, entry in runs.items() if uid in seen and entry.is_still(seen[uid], now)}
        objects = {key: entry for key, entry in objects.items() if now < entry.until}
    try:
        closed = _closed(snapshot, objects)
        plan = admit(without(snapshot, {**runs, **closed}, objects), tunables, now, memory)
    except Exception:
        memory.forget()  # it may have been left half done
        search = _Search(snapshot, lambda those: admit(those, tunables, now, CycleMemory()), now)
        search.runs.update(runs)
        search.objects.update(objects)
        if not search.explain_by(memory.excluded_runs.values()):
            search.find()
        runs, objects = search.runs, search.objects
        # For the next cycle, should this one fail too.
        memory.excluded_runs = {**memory.excluded_runs, **runs}
        memory.excluded_objects = {**memory.excluded_objects, **objects}
        closed = _closed(snapshot, objects)
        try:
            plan = admit(without(snapshot, {**runs, **closed}, objects), tunables, now, memory)
        except Exception:
            memory.forget()
            raise
    memory.excluded_runs, memory.excluded_objects = runs, objects
    if not runs and not objects:
        return plan
    told = {**closed, **runs}
    writes = [write for write in plan.writes if write.uid not in told]
    writes += exclusion_writes(snapshot.runs, told, now)
    times = [entry.until for entry in runs.values()] + [entry.until for entry in objects.values()]
    times += [plan.wake_at] if plan.wake_at is not None else []
    queues = tuple(write for write in plan.queues if (QUEUES, write.name) not in objects)
    return replace(plan, writes=tuple(writes), wake_at=min(times), queues=queues)


class _Search:
    """For those that make ``decide`` raise; they are in ``runs`` and ``objects``."""

    def __init__(self, snapshot: ClusterSnapshot, decide: Callable[[ClusterSnapshot], ClusterPlan], now: float) -> None:
        self._snapshot = snapshot
        self._decide = decide
        self._until = now + AGAIN
        self._tried = 0
        self._aside: dict[str, RunView] = {}
        self.runs: dict[str, ExcludedRun] = {}
        self.objects: dict[ObjectKey, ExcludedObject] = {}

    def explain_by(self, before: Iterable[ExcludedRun]) -> bool:
        """Try those again that were set aside ``before``; each that was not needed is free. True: it is they."""
        again = {entry.run.uid: entry for entry in before if entry.run.uid not in self.runs}
        tried = [run for run in self._snapshot.runs if run.uid in again]
        for run in tried:
            self._exclude(run, again[run.uid].error)
        if tried and self._raised(self._waiting(), self._others()) is None:
            for run in tried if len(tried) <= _MOST else ():
                entry = self.runs.pop(run.uid)
                if self._raised(self._waiting(), self._others()) is not None:
                    self.runs[run.uid] = entry
            return True
        for run in tried:
            del self.runs[run.uid]
        return False

    def find(self) -> None:
        """Raises what is raised without anything."""
        known = len(self.runs) + len(self.objects)
        while (error := self._raised(self._waiting(), self._others())) is not None:
            if len(self.runs) + len(self.objects) - known >= _MOST or self._tried >= _TRIES:
                self._set_crowds_aside(error)
                return
            if (error := self._raised((), ())) is not None:
                self._find_object(error)
            elif (error := self._raised(self._waiting(), ())) is not None:
                self._exclude(*_first(self._waiting(), lambda some: self._raised(some, ()), error))
            else:
                self._find_holding()

    def _find_holding(self) -> None:
        """One that does not wait, alone or together with one that does: of these, it costs less to set aside the first.
        If the second fails with others as well, it is to blame too."""
        waiting, others = self._waiting(), self._others()
        error = self._raised(waiting, others)
        if error is None:
            return
        culprit, error = _first(others, lambda some: self._raised(waiting, some), error)
        self._exclude(culprit, error)
        if self._raised((), others) is not None:
            return
        partner, _ = _first(waiting, lambda some: self._raised(some, others), error)
        if (error := self._raised((partner,), self._others())) is not None:
            self._exclude(partner, error)

    def _find_object(self, error: Exception) -> None:
        """One that a cycle without any run fails with."""
        keys = [
            *((QUEUES, name) for name in self._snapshot.queues),
            *((NODES, name) for name in self._snapshot.nodes),
            *((PODS, pod.uid) for pod in (*self._snapshot.gang_pods, *self._snapshot.doubtful_pods)),
        ]
        keys = [key for key in keys if key not in self.objects]

        def raised(some: Sequence[ObjectKey]) -> Exception | None:
            return self._raised((), (), {*keys}.difference(some))

        if (other := raised(())) is not None:
            raise other
        key, error = _first(keys, raised, error)
        self.objects[key] = ExcludedObject(error, self._until)

    def _set_crowds_aside(self, error: Exception) -> None:
        """They are too many to be found one by one: nobody is to wait for that but those of the same namespaces."""
        namespaces = {entry.run.namespace for entry in self.runs.values()}
        for run in self._waiting():
            if run.namespace in namespaces:
                self._exclude(run, error)

    def _exclude(self, run: RunView, error: Exception) -> None:
        self.runs[run.uid] = ExcludedRun(run, error, self._until)

    def _waiting(self) -> Sequence[RunView]:
        return [run for run in self._snapshot.runs if run.uid not in self.runs and _waits(run)]

    def _others(self) -> Sequence[RunView]:
        return [run for run in self._snapshot.runs if run.uid not in self.runs and not _waits(run)]

    def _raised(
        self, waiting: Iterable[RunView], others: Iterable[RunView], objects: Iterable[ObjectKey] = ()
    ) -> Exception | None:
        """What is raised with these runs alone, and without ``objects``."""
        self._tried += 1
        present = {run.uid for run in (*waiting, *others)} - _closed(self._snapshot, self.objects).keys()
        absent = (run.uid for run in self._snapshot.runs if run.uid not in present)
        try:
            self._decide(without(self._snapshot, absent, {*self.objects, *objects}, self._aside))
        except Exception as error:
            return error
        return None


def _first(
    those: Sequence[T], raised: Callable[[Sequence[T]], Exception | None], error: Exception
) -> tuple[T, Exception]:
    """One that raises together with those before it, which do not. ``error``: what all of them raise."""
    fine, fails = 0, len(those)
    while fails - fine > 1:
        middle = (fine + fails) // 2
        if (other := raised(those[:middle])) is None:
            fine = middle
        else:
            fails, error = middle, other
    return those[fails - 1], error


def _closed(snapshot: ClusterSnapshot, objects: Mapping[ObjectKey, ExcludedObject]) -> dict[str, ExcludedRun]:
    """Those that wait in a queue that is set aside."""
    queues = {name: entry for (kind, name), entry in objects.items() if kind == QUEUES}
    return {
        run.uid: ExcludedRun(run, queues[run.spec.queue].error, queues[run.spec.queue].until)
        for run in (snapshot.runs if queues else ())
        if run.spec is not None and run.spec.queue in queues and _waits(run)
    }


def _waits(run: RunView) -> bool:
    return is_pending(run) or is_asked(run)
