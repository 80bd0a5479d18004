"""Which runs have to come first. What was once met stays met, what once failed stays failed."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lockstep.api.run_spec import Dependency
from lockstep.core import assignment as slots
from lockstep.core.conditions import find, is_true
from lockstep.core.snapshot import RunView


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far the dependencies of a run are. ``met`` and ``failed`` by name, to be remembered in its status.

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
        for run in runs:
            self._by_name[run.namespace, run.name] = run
            if run.spec is not None and run.spec.singleton is not None:
                self._by_word.setdefault((run.namespace, run.spec.singleton), []).append(run)

    def named(self, namespace: str, name: str) -> RunView | None:
        """The run of this name."""
        return self._by_name.get((namespace, name))

    def ahead_of(self, run: RunView) -> RunView | None:
        """The run with the same singleton word that ``run`` has to wait for: who has nodes, else the oldest.

        One that is suspended by its user, or will not be admitted again, is waited for by nobody.
        """
        if run.spec is None or run.spec.singleton is None:
            return None
        others = [other for other in self._by_word.get((run.namespace, run.spec.singleton), ()) if other.uid != run.uid]
        holding = [other for other in others if self._may_hold(other) and not _is_over(other)]
        older = [other for other in others if _waits(other) and _age(other) < _age(run)]
        return min(holding or older, key=_age, default=None)

    def _may_hold(self, run: RunView) -> bool:
        return slots.is_held(run.status.assignment) or run.uid in self._unsettled


def judge(run: RunView, runs: Namespaces) -> Verdict:
    """Where ``run`` stands with what it depends on."""
    assert run.spec is not None
    before = run.status.admission
    met, failed, waiting = list(before.met), list(before.failed), []
    for dependency in run.spec.depends_on:
        if dependency.name in met or dependency.name in failed:
            continue
        parent = runs.named(run.namespace, dependency.name)
        if parent is None:
            waiting.append(f"no run {dependency.name} is in this namespace yet")
        elif _holds(parent, dependency):
            met.append(dependency.name)
        elif _is_over(parent):
            failed.append(dependency.name)
        else:
            waiting.append(_awaited(dependency, parent))
    known = {dependency.name for dependency in run.spec.depends_on}
    met, failed = [name for name in met if name in known], [name for name in failed if name in known]
    cycle = () if failed or not waiting else _cycle(run, runs)
    if cycle:
        return Verdict(tuple(met), (), f"the runs wait for each other: {' -> '.join(cycle)}", circle=True)
    if failed:
        return Verdict(tuple(met), tuple(failed), "; ".join(_missed(run, name, runs) for name in failed))
    return Verdict(tuple(met), (), "; ".join(waiting))


def _age(run: RunView) -> tuple[float, str]:
    return run.created_at, run.uid


def _is_over(run: RunView) -> bool:
    return is_true(run.status, "Finished")


def _waits(run: RunView) -> bool:
    return run.spec is not None and not run.spec.suspend and not run.deleting and not _is_over(run)


def _holds(parent: RunView, dependency: Dependency) -> bool:
    match dependency.condition:
        case "Started":
            return parent.status.totals.attempts > 0
        case "Finished":
            return _is_over(parent)
        case "Succeeded":
            return is_true(parent.status, "Succeeded")
        case "Failed":
            succeeded = find(parent.status, "Succeeded")
            return _is_over(parent) and succeeded is not None and succeeded.status == "False"


def _awaited(dependency: Dependency, parent: RunView) -> str:
    done = {"Started": "start", "Finished": "finish", "Succeeded": "succeed", "Failed": "fail"}[dependency.condition]
    state = parent.status.state or "Pending"
    return f"{dependency.name} has to {done} first; it is {state}"


def _missed(run: RunView, name: str, runs: Namespaces) -> str:
    assert run.spec is not None
    condition = next(dependency.condition for dependency in run.spec.depends_on if dependency.name == name)
    parent = runs.named(run.namespace, name)
    ended = find(parent.status, "Finished") if parent is not None else None
    how = f" ({ended.reason})" if ended is not None and ended.status == "True" else ""
    return f"{name} has ended{how} and was to be {condition}"


def _cycle(run: RunView, runs: Namespaces) -> tuple[str, ...]:
    """Names from ``run`` over its unmet dependencies back to itself; empty when there is no way."""
    path: list[str] = [run.name]
    seen: set[str] = set()

    def unmet(view: RunView) -> Sequence[str]:
        if view.spec is None or _is_over(view) or slots.is_held(view.status.assignment):
            return ()
        return [d.name for d in view.spec.depends_on if d.name not in view.status.admission.met]

    branches: list[list[str]] = [list(unmet(run))]
    while branches:
        if not branches[-1]:
            branches.pop()
            path.pop()
            continue
        name = branches[-1].pop(0)
        if name == run.name:
            return (*path, name)
        parent = runs.named(run.namespace, name)
        if name in seen or parent is None:
            continue
        seen.add(name)
        path.append(name)
        branches.append(list(unmet(parent)))
    return ()
