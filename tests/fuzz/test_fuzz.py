"""The part of `make fuzz` for every change, with the same cases each time; and that it finds what it is to find."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import replace

import pytest

from fuzz.__main__ import KINDS, Kind, run_case, smaller
from fuzz.judging import FoundError, Judge, Tally
from lockstep.api.base.changes import changed
from lockstep.core import decide
from lockstep.core.checkpoints import unknown_saves
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import PodView
from lockstep.core.model.worker_report import WorkerReport
from lockstep.core.run.handover import Handover
from support.admission import held, pod, run, world

SEED = 1
CASES = [("history", 16), ("edits", 2), ("specs", 16), ("reports", 8), ("wide", 1)]
PARTS = 4
FIRST_STEPS = ",".join(map(str, range(12)))
ENOUGH = 64
"""Histories in which a defect shows that any one run may meet with."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("kind", "cases"), CASES)
def test_nothing_is_raised_nothing_grows_and_every_look_comes_to_rest(kind: str, cases: int, part: int) -> None:
    for number in range(part, cases, PARTS):
        case = f"{kind}:{SEED}:{number}"
        found = run_case(case).found
        assert not found, f"make fuzz CASE={case}\n" + "\n\n".join(f"{name}: {words}" for name, words in found.items())


def _without_looking(patch: pytest.MonkeyPatch) -> None:
    def report(state: RunState, slot: int) -> WorkerReport:
        return state.snapshot.reports[slot]

    patch.setattr(RunState, "report", report)


def _without_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unknown_saves, "MOST", 10**6)


def _at_every_look(patch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()

    def write(plan: PlanBuilder, _: Handover) -> None:
        plan.status = changed(plan.status, spares=f"look {next(numbers)}")

    patch.setattr(decide, "ALWAYS", (*decide.ALWAYS, write))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "found"),
    [
        (_without_looking, "decide raises KeyError"),
        (_without_bound, "schema .checkpoint.unrecognised"),
        (_at_every_look, "writes at rest"),
    ],
)
def test_a_defect_is_found(
    broken: Callable[[pytest.MonkeyPatch], None], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    signatures = (each for number in range(ENOUGH) for each in run_case(f"history:{SEED}:{number}:{FIRST_STEPS}").found)
    assert any(each.startswith(found) for each in signatures)


A = run("a", 2, status=held("n0", "n1"))


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ([pod(A, 0, "n0"), pod(A, 1, "n1")], ""),
        ([replace(pod(A, 0, "n5"), incarnation=0)], ""),
        ([replace(pod(A, 0, "n5"), incarnation=0, bound=False)], "a node taken by a pod alone"),
        ([pod(A, 0, "n5")], "a node taken by a pod alone"),
        ([pod(A, 0, "n0"), replace(pod(A, 0, "n0"), uid="padded")], "pods of one identity"),
    ],
)
def test_what_pods_take_beside_the_nodes_of_their_run_is_judged(pods: list[PodView], found: str) -> None:
    with pytest.raises(FoundError, match=found) if found else nullcontext():
        Judge(Tally()).taken(world([A], pods=pods))


def test_a_case_is_made_as_small_as_shows_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def found_by_two_steps(case: str, steps: Collection[int] | None) -> Tally:
        tally = Tally()
        if steps is None or {3, 17} <= set(steps):
            tally.note(FoundError("both", ""))
        return tally

    monkeypatch.setitem(KINDS, "fake", Kind(found_by_two_steps, steps=40, counts=""))
    assert smaller("fake:1:0", "both") == "fake:1:0:3,17"
