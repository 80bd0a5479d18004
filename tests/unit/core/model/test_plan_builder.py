"""What is decided goes into the plan once, and a plan of nothing is empty."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lockstep.core.model.plan import Plan
from lockstep.core.model.plan_builder import MAX_ATTEMPTS, PlanBuilder
from lockstep.core.model.reasons import ActionWord, ConditionReason, EventReason
from lockstep.core.model.run_state import RunContext
from support.sources import CORE, nodes
from support.world import World, node, spec


def world() -> World:
    w = World({f"n{i}": node(f"n{i}") for i in range(2)})
    w.apply("one", spec(2))
    w.settle()
    return w


def builder(w: World | None = None) -> PlanBuilder:
    w = w or world()
    return PlanBuilder(RunContext(w.snapshot("one"), w.tunables, w.now))


def test_where_nothing_is_decided_the_plan_is_empty() -> None:
    assert builder().build() == Plan()


def test_a_status_that_says_the_same_is_not_written_again() -> None:
    plan = builder()
    plan.status = plan.status.model_copy()
    assert plan.build().status is None
    plan.condition("Finished", True, ConditionReason.FINISHED, "")
    assert plan.build().status is plan.status


def test_a_pod_is_deleted_once_however_often_it_is_asked_for() -> None:
    plan = builder()
    for _ in range(2):
        plan.delete_live_pods("superseded", 5)
    assert [(gone.reason, gone.grace) for gone in plan.build().deletes] == [("superseded", 5)] * 2


@pytest.mark.parametrize(
    ("left", "grace", "again"),
    [
        (3600.0, 30, 30),
        (3600.0, None, None),
        (1e8, None, 3600),
        (30.0, 30, None),
        (59.0, 30, None),
        (-100.0, 0, None),
    ],
    ids=["longer", "with its own", "with its own for years", "as long", "as long on a clock that is ahead", "over"],
)
def test_a_pod_that_is_being_deleted_is_deleted_again_with_a_shorter_grace_alone(
    left: float, grace: int | None, again: int | None
) -> None:
    w = world()
    w.pods = {name: replace(pod, deleting=True, killed_at=w.now + left) for name, pod in w.pods.items()}
    plan = builder(w)
    plan.delete_live_pods("superseded", grace)
    assert [gone.grace for gone in plan.build().deletes] == ([] if again is None else [again] * 2)


def test_the_history_keeps_one_entry_for_an_attempt_and_the_newest_of_many() -> None:
    plan = builder()
    for number in range(1, MAX_ATTEMPTS + 4):
        plan.put_attempt(plan.attempt(number))
        plan.put_attempt(plan.attempt(number))
    assert [entry.number for entry in plan.status.attempts] == [*range(4, MAX_ATTEMPTS + 4)]


def test_an_event_keeps_to_what_the_api_takes() -> None:
    plan = builder()
    plan.event(EventReason.STARTED, "x" * 2000, action=ActionWord.START, warning=True)
    (event,) = plan.build().events
    assert (event.type, len(event.note)) == ("Warning", 1024)


QUESTION = re.compile(
    r"_*(is|are|has|have|had|can|cannot|may|must|was|were|why|what|who|which|when"
    r"|comes|goes|holds|keeps|lacks|needs|passes|says|takes)_"
)


def takers(of: str) -> Iterator[str]:
    """Functions of the core that take ``of``."""
    for _, found in nodes(ast.FunctionDef, CORE):
        kinds = [ast.unparse(each.annotation) for each in found.args.args if each.annotation is not None]
        if of in kinds:
            yield found.name


def test_a_function_named_as_a_question_changes_nothing() -> None:
    assert [name for name in takers("PlanBuilder") if QUESTION.match(name)] == []
    assert len([name for name in takers("RunState") if QUESTION.match(name)]) > 20


REMEMBER = {"_is_there", "_may_label", "is_hopeless", "_is_too_large"}
"""They keep their answer for whoever asks the same."""


@pytest.mark.parametrize("kind", [ast.FunctionDef, ast.AsyncFunctionDef])
def test_a_method_named_as_a_question_changes_nothing_of_its_object(kind: type[ast.FunctionDef]) -> None:
    questions = [found for _, found in nodes(kind) if QUESTION.match(found.name) and found.name not in REMEMBER]
    assert [found.name for found in questions if found.returns is None or ast.unparse(found.returns) == "None"] == []
    assert {found.name: changed for found in questions if (changed := attributes_set(found))} == {}


CHANGE = {"add", "append", "clear", "discard", "extend", "insert", "pop", "put", "remove", "setdefault", "update"}


def test_a_function_of_the_core_named_as_a_question_changes_nothing_that_it_is_given() -> None:
    changed = [
        f"{path}:{call.lineno} {ast.unparse(call.func)}"
        for path, found in nodes(ast.FunctionDef, CORE)
        if QUESTION.match(found.name)
        for call in ast.walk(found)
        if isinstance(call, ast.Call) and changes_an_argument(call.func, found)
    ]
    assert changed == []


def changes_an_argument(called: ast.expr, function: ast.FunctionDef) -> bool:
    """By a method that says so. Who asks a ``RunState`` about a moment to come may have the run looked at then."""
    if not isinstance(called, ast.Attribute):
        return False
    of: ast.expr = called.value
    while isinstance(of, ast.Attribute | ast.Subscript):
        of = of.value
    kinds = {each.arg: each.annotation and ast.unparse(each.annotation) for each in function.args.args}
    if called.attr == "wake":  # of whatever: all there is to be woken was given
        return not (isinstance(of, ast.Name) and kinds.get(of.id) == "RunState")
    return called.attr in CHANGE and isinstance(of, ast.Name) and of.id in kinds


def attributes_set(function: ast.FunctionDef) -> list[str]:
    targets: list[ast.expr] = []
    for each in ast.walk(function):
        if isinstance(each, ast.Assign | ast.Delete):
            targets += each.targets
        elif isinstance(each, ast.AugAssign | ast.AnnAssign):
            targets.append(each.target)
    return [text for target in targets if (text := ast.unparse(target)).startswith("self.")]
