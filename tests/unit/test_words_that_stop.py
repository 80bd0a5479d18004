"""What the operator and the command line say is in words that nobody has to look up."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.cli.main import main

PACKAGE = Path(__file__).parents[2] / "operator" / "lockstep"
STOPPING = re.compile(
    r"\bmend(?:s|ed|ing)?\b|\bof late\b|is no field|simply Ready|and so no rules|last choice of a checkpoint|^Answer: "
)
ONE_OF_MANY = re.compile(r"\b1 (?:nodes|ranks|runs|steps|attempts|restarts|failures)\b")


def said_in(source: Path) -> Iterator[str]:
    """Every text of a module but those that are for its readers."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for_readers = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in for_readers:
            yield node.value


def test_words_that_stopped_somebody_are_in_nothing_that_is_said() -> None:
    found = {
        f"{source.relative_to(PACKAGE)}: {text[:60]}"
        for source in sorted(PACKAGE.rglob("*.py"))
        for text in said_in(source)
        if STOPPING.search(text) or ONE_OF_MANY.search(text)
    }
    assert not found
    assert STOPPING.search("spec.gpuPerNode: is no field; write gpusPerNode")


@pytest.mark.parametrize("verb", ["retry", "submit", "explain", "cancel"])
def test_nor_in_the_help_of_verbs(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    said = capsys.readouterr().out
    assert said
    assert not STOPPING.search(said)
