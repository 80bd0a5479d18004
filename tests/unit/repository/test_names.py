"""Names that a search finds: each class has one of its own, and a function says what it does in the field's words."""

import ast
from collections import defaultdict

from support.sources import nodes

VAGUE = frozenset({"look", "of", "see", "told"})
GONE = frozenset(
    {
        "absolve", "admit_others", "aside", "blame_instead", "census", "floor", "foretell", "forecast", "gangs",
        "ground", "keep_off", "kept_apart", "late_word", "look_again", "make_room", "others", "outlook", "preemptors",
        "roll", "said", "seat_spares", "see_groups", "trials", "urgency",
    }
)  # fmt: skip
"""Words of our own for what the field has a name for; docs/architecture.md has the glossary.

Fields may be called so where the workers' protocol says it, whose words stay: `lookAgain` is ``look_again``.
"""


def test_no_two_public_classes_have_the_same_name() -> None:
    places = defaultdict[str, list[str]](list)
    for path, node in nodes(ast.ClassDef):
        if not node.name.startswith("_"):
            places[node.name].append(f"{path}:{node.lineno}")
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice, f"rename all but one of each, to what only it is: {twice}"


def test_no_function_has_a_name_that_says_nothing() -> None:
    vague = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in (*nodes(ast.FunctionDef), *nodes(ast.AsyncFunctionDef))
        if node.name in VAGUE
    ]
    assert not vague, f"say what it does: update, observe, poll, for_run, from_snapshot, ...: {vague}"


def test_the_fields_words_have_come_in_place_of_our_own() -> None:
    named = [(path, node.name) for kind in (ast.FunctionDef, ast.ClassDef) for path, node in nodes(kind)]
    modules = [(path, path.stem) for path in {path for path, _ in nodes(ast.Module)}]
    assert [f"{path} {name}" for path, name in [*named, *modules] if name.lower() in GONE] == []
