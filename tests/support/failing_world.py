"""A world in which nothing can be decided for a run, and whoever wants it to stop."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_spec import BudgetSpec
from lockstep.core import decide as decisions
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.plan import Plan
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.run.handover import Handover
from lockstep.core.run.undecidable import without_deciding
from support.values import not_none
from support.world import World, node, spec

LONG = 900.0
HIGH = {"priorityClassName": "high", "checkpoint": {"shared": {"claimName": "lustre"}, "gracePeriod": "60s"}}
GATHERING = 9


class DefectError(Exception):
    """What a step raises."""


@dataclass
class FailingWorld(World):
    """Its operator takes a run for undecidable at the first failure, as one that has been told of it does."""

    dies_at: int = 0  # the write at which the operator dies; 0: it lives
    writes: int = 0
    moves: list[tuple[Phase, Phase]] = field(default_factory=list)

    def reconcile(self, name: str, *, crash_after: int | None = None) -> Plan:
        before = self.phase(name)
        try:
            return super().reconcile(name, crash_after=self._left())
        except DefectError as error:
            plan = without_deciding(self.snapshot(name), self.tunables, self.now, type(error).__name__)
            self.writes += (plan.status is not None) + len(plan.deletes)
            self._execute(name, plan, self._left())
            return plan
        finally:
            if name in self.runs:
                self.moves.append((before, self.phase(name)))

    def _left(self) -> int | None:
        if not self.dies_at or self.writes < self.dies_at:
            return None
        self.dies_at = 0
        return 0

    def phase(self, name: str) -> Phase:
        view = self.runs[name]
        return phase_of(view.status, view.spec is not None and view.spec.suspend)


def failing_steps(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``fail(0)``: the first step raises for the run ``one`` from now on, and so on; ``fail(None)``: none does."""
    steps = decisions.STEPS

    def failing(step: decisions.Step) -> decisions.Step:
        def stepped(plan: PlanBuilder, known: Handover) -> Handover:
            if plan.run.name == "one":
                raise DefectError("a secret of the tenant")
            return step(plan, known)

        return stepped

    def fail(at: int | None) -> None:
        broken = [failing(step) if number == at else step for number, step in enumerate(steps)]
        monkeypatch.setattr(decisions, "STEPS", tuple(broken))

    return fail


def world(nodes: int = 4) -> FailingWorld:
    w = FailingWorld({f"n{i}": node(f"n{i}") for i in range(nodes)})
    w.classes = {"high": 1000}
    w.queue(preemption={"withinQueue": "LowerPriority", "minRuntime": "0s"})
    return w


def training(**fields: Any) -> FailingWorld:
    w = world()
    w.apply("one", spec(2, **{"timeLimit": "24h", **fields}))
    w.settle()
    w.train("one", 3)
    w.settle()
    assert w.phase("one") is Phase.RUNNING
    return w


def edit(w: World, **fields: Any) -> None:
    w.apply("one", changed(not_none(w.runs["one"].spec), **fields))


def cancel(w: FailingWorld) -> None:
    edit(w, cancel=True)


def suspend(w: FailingWorld) -> None:
    edit(w, suspend=True)


def reach_the_limit(w: FailingWorld) -> None:
    w.now += 86_400.0


def spend_the_budget(w: FailingWorld) -> None:
    edit(w, budget=BudgetSpec(gpu_hours=1, action="Stop"))


def drain_the_queue(w: FailingWorld) -> None:
    w.queue(stopPolicy="HoldAndDrain")


def preempt(w: FailingWorld) -> None:
    w.apply("two", spec(4, **HIGH))


def delete(w: FailingWorld) -> None:
    w.runs["one"] = replace(w.runs["one"], deleting=True)
