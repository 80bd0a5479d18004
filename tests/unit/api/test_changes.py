"""Values of the API are changed by ``changed`` alone, and mypy holds it to their fields."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus
from support.sources import CORE, nodes
from support.type_checks import lines_refused

MISTAKES = """
from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus

status = TrainingRunStatus()
changed(status, attempt=2, recovery=changed(status.recovery, best_step=3))
changed(status, atempt=2)
changed(status, attempt="2")
changed(status, recovery=changed(status.recovery, best_stop=3))
"""


def test_the_value_that_is_changed_stays_as_it_is() -> None:
    before = TrainingRunStatus(state="Pending")
    after = changed(before, attempt=2)
    assert before == TrainingRunStatus(state="Pending")
    assert after == TrainingRunStatus(state="Pending", attempt=2)
    assert after.dump_only({"attempt", "state"}) == {"attempt": 2, "state": "Pending"}


def test_it_is_what_pydantic_makes_of_the_same_change() -> None:
    before = TrainingRunStatus(state="Pending")
    after = changed(before, attempt=2)
    assert after == before.model_copy(update={"attempt": 2})
    assert after.model_fields_set == {"state", "attempt"}
    assert before.model_fields_set == {"state"}


def test_a_misspelled_field_is_refused() -> None:
    with pytest.raises(TypeError, match="TrainingRunStatus has no field atempt"):
        changed(TrainingRunStatus(), atempt=2)


@pytest.mark.process
def test_mypy_refuses_a_misspelled_field_and_a_value_of_another_type(tmp_path: Path) -> None:
    assert lines_refused(MISTAKES, tmp_path) == [7, 8, 9]


def test_nothing_else_changes_a_value() -> None:
    assert [f"{path}:{call.lineno}" for path, call in calls("model_copy")] == []


def test_every_change_names_its_fields() -> None:
    """What is spread into it out of a dictionary is not checked."""
    spread = [f"{path}:{call.lineno}" for path, call in calls("changed") if any(k.arg is None for k in call.keywords)]
    assert spread == []


def test_no_function_of_the_core_takes_whatever_it_is_given_by_name() -> None:
    loose = [
        f"{path}:{node.lineno}"
        for path, node in (*nodes(ast.FunctionDef, CORE), *nodes(ast.Lambda, CORE))
        if (rest := node.args.kwarg) is not None
        and (rest.annotation is None or ast.unparse(rest.annotation) in ("Any", "object"))
    ]
    assert loose == []


def calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    for path, node in nodes(ast.Call):
        if getattr(node.func, "attr", getattr(node.func, "id", "")) == name:  # of an attribute, or of a name
            yield path, node
