"""Dependencies between runs. What was once met stays met, what once failed stays failed.

Both are remembered with the condition they were judged by, which may be edited: then it is judged anew.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lockstep.api.run_spec import Dependency
from lockstep.core.admission.queueing.circles import Circles
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_accepted_or_waits, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView


@dataclass(frozen=True, slots=True)
class DependencyVerdict:
    """How far the dependencies of a run are. ``met`` and ``failed`` (``record_of``), to be remembered in its status.

    ``message`` says what is waited for, or what can never be; empty: nothing is waited for. ``circle``: runs wait for
    each other, which an edit of any of them can end, so nothing of it is remembered.
    """

    met: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    message: str = ""
    circle: bool = False


class Namespaces:
    """Runs by namespace, name and singleton word: what dependencies are judged by.

    ``unsettled``: UIDs of those that may have got nodes, in a write whose result is not known yet.
    """

    def __init__(self, runs: Iterable[RunView], unsettled: Collection[str] = ()) -> None:
        self._unsettled = unsettled
        self._by_name: dict[tuple[str, str], RunView] = {}
        self._by_word: dict[tuple[str, str], list[RunView]] = {}
        self._first: dict[tuple[str, str], tuple[list[RunView], RunView | None]] = {}
        for run in runs:
            self._by_name[run.namespace, run.name] = run
            if run.spec is not None and run.spec.singleton is not None:
                self._by_word.setdefault((run.namespace, run.spec.singleton), []).append(run)

    def named(self, namespace: str, name: str) -> RunView | None:
        """The run of this name."""
        return self._by_name.get((namespace, name))

    def ahead_of(self, run: RunView) -> RunView | None:
        """The run with the same singleton word that ``run`` has to wait for: who has nodes, else the oldest.

        One that is suspended by its user, or refused as it is now, is waited for by nobody.
        """
        if run.spec is None or run.spec.singleton is None:
            return None
        holding, oldest = self._first_of((run.namespace, run.spec.singleton))
        found = next((other for other in holding if other.uid != run.uid), None)
        if found is None and oldest is not None and _age(oldest) < _age(run):
            found = oldest
        return found

    def circle_of(self, run: RunView) -> tuple[str, ...]:
        """Names from ``run`` over whom it waits for back to itself, cut where they are many; empty: there is no way."""
        known = self.named(run.namespace, run.name)
        if known is not None and known.uid == run.uid:
            return self._circles[run.namespace].through(run.name)
        # It only asks: nobody else is to come after it.
        return Circles({**self._awaited.get(run.namespace, {}), run.name: self._awaited_by(run)}).through(run.name)

    @cached_property
    def _awaited(self) -> Mapping[str, Mapping[str, Sequence[str]]]:
        """By namespace and name, whom each waits for."""
        found: dict[str, dict[str, Sequence[str]]] = {}
        for (namespace, name), run in self._by_name.items():
            found.setdefault(namespace, {})[name] = self._awaited_by(run)
        return found

    @cached_property
    def _circles(self) -> Mapping[str, Circles]:
        return {namespace: Circles(awaited) for namespace, awaited in self._awaited.items()}

    def _awaited_by(self, run: RunView) -> list[str]:
        if run.spec is None or _is_over(run) or self._may_hold(run):
            return []
        names = [d.name for d in run.spec.depends_on if record_of(d) not in run.status.admission.met]
        ahead = self.ahead_of(run)
        return names if ahead is None else [*names, ahead.name]

    def _first_of(self, word: tuple[str, str]) -> tuple[list[RunView], RunView | None]:
        """Of a singleton word: who has nodes, by age, and the oldest that waits for some."""
        known = self._first.get(word)
        if known is None:
            runs = sorted(self._by_word.get(word, ()), key=_age)
            holding = [run for run in runs if self._may_hold(run) and not _is_over(run)]
            known = self._first[word] = holding, next(filter(_waits, runs), None)
        return known

    def _may_hold(self, run: RunView) -> bool:
        return slots.is_held(run.status.assignment) or run.uid in self._unsettled


def record_of(dependency: Dependency) -> str:
    """How a dependency is remembered: "a Succeeded"."""
    return f"{dependency.name} {dependency.condition}"


def judge(run: RunView, runs: Namespaces) -> DependencyVerdict:
    """Where ``run`` stands with what it depends on."""
    assert run.spec is not None
    before = run.status.admission
    met: list[str] = []
    missed: list[Dependency] = []
    waiting: list[str] = []
    for dependency in run.spec.depends_on:
        record, parent = record_of(dependency), runs.named(run.namespace, dependency.name)
        if record in before.met or (record not in before.failed and parent is not None and _holds(parent, dependency)):
            met.append(record)
        elif record in before.failed or (parent is not None and _is_over(parent)):
            missed.append(dependency)
        elif parent is None:
            waiting.append(f"no run {dependency.name} is in this namespace yet")
        else:
            waiting.append(_awaited(dependency, parent))
    if missed:
        words = "; ".join(_missed(run, dependency, runs) for dependency in missed)
        return DependencyVerdict(tuple(met), tuple(map(record_of, missed)), words)
    circle = runs.circle_of(run) if waiting else ()
    if circle:
        return DependencyVerdict(tuple(met), (), circle_in_words(circle), circle=True)
    return DependencyVerdict(tuple(met), (), "; ".join(waiting))


def circle_in_words(circle: Sequence[str]) -> str:
    """The pending reason of runs in a circle."""
    return f"the runs wait for each other: {' -> '.join(circle)}"


def _age(run: RunView) -> tuple[float, str]:
    return run.created_at, run.uid


def _is_over(run: RunView) -> bool:
    return is_true(run.status, ConditionType.FINISHED)


def _waits(run: RunView) -> bool:
    wanted = run.spec is not None and not (run.spec.suspend or run.spec.cancel or run.deleting)
    return wanted and not _is_over(run) and not _is_refused(run)


def _is_refused(run: RunView) -> bool:
    accepted = find(run.status, ConditionType.ACCEPTED)
    if accepted is None or accepted.status != "False" or accepted.observed_generation != run.generation:
        return False
    return not is_accepted_or_waits(run.status)


def _holds(parent: RunView, dependency: Dependency) -> bool:
    match dependency.condition:
        case "Started":
            return parent.status.totals.attempts > 0
        case "Finished":
            return _is_over(parent)
        case "Succeeded":
            return is_true(parent.status, ConditionType.SUCCEEDED)
        case "Failed":
            succeeded = find(parent.status, ConditionType.SUCCEEDED)
            return _is_over(parent) and succeeded is not None and succeeded.status == "False"


def _awaited(dependency: Dependency, parent: RunView) -> str:
    done = {"Started": "start", "Finished": "finish", "Succeeded": "succeed", "Failed": "fail"}[dependency.condition]
    state = parent.status.state or Phase.PENDING
    return f"{dependency.name} has to {done} first; it is {state}"


def _missed(run: RunView, dependency: Dependency, runs: Namespaces) -> str:
    parent = runs.named(run.namespace, dependency.name)
    ended = find(parent.status, ConditionType.FINISHED) if parent is not None else None
    how = f" ({ended.reason})" if ended is not None and ended.status == "True" else ""
    return f"{dependency.name} has ended{how} and was to be {dependency.condition}"
