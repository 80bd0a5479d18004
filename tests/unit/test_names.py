"""Names that a search finds: each class has one of its own, and a function says what it does in the field's words."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "operator" / "lockstep"
VAGUE = frozenset({"look", "of", "see", "told"})


@cache
def definitions() -> tuple[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef], ...]:
    """Every class and function of the package, and where it stands."""
    return tuple(
        (f"{path.relative_to(PACKAGE)}:{node.lineno}", node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_no_two_public_classes_have_the_same_name() -> None:
    places = defaultdict[str, list[str]](list)
    for place, node in definitions():
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            places[node.name].append(place)
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice, f"rename all but one of each, to what only it is: {twice}"


def test_no_function_has_a_name_that_says_nothing() -> None:
    vague = [
        f"{place} {node.name}"
        for place, node in definitions()
        if not isinstance(node, ast.ClassDef) and node.name in VAGUE
    ]
    assert not vague, f"say what it does: update, observe, poll, for_run, from_snapshot, ...: {vague}"
