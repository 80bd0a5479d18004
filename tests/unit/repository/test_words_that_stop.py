"""What the operator and the command line say is in words that nobody has to look up."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from lockstep.cli.main import main
from support.sources import nodes

STOPPING = re.compile(
    r"\bmend(?:s|ed|ing)?\b|\bof late\b|is no field|simply Ready|and so no rules|last choice of a checkpoint|^Answer: "
)
ONE_OF_MANY = re.compile(r"\b1 (?:nodes|ranks|runs|steps|attempts|restarts|failures)\b")


def for_readers() -> Iterator[int]:
    """The identity of every text that is for the readers of a module."""
    for kind in (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        for _, node in nodes(kind):
            yield from (id(statement.value) for statement in node.body if isinstance(statement, ast.Expr))


@pytest.mark.slow
def test_words_that_stopped_somebody_are_in_nothing_that_is_said() -> None:
    not_said = {*for_readers()}
    found = {
        f"{path}: {text.value[:60]}"
        for path, text in nodes(ast.Constant)
        if isinstance(text.value, str) and id(text) not in not_said
        if STOPPING.search(text.value) or ONE_OF_MANY.search(text.value)
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
