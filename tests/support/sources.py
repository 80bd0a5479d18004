"""The source of the operator for tests that look into it: read once, not by each of them."""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

PACKAGE = Path(__file__).parents[2] / "operator" / "lockstep"
CORE = PACKAGE / "core"
Node = TypeVar("Node", bound=ast.AST)


@contextmanager
def _made_to_stay() -> Iterator[None]:
    """A million objects: to look for garbage among them takes longer than to make them."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@cache
@_made_to_stay()
def trees() -> Mapping[Path, ast.Module]:
    """By file of the package."""
    return {path: ast.parse(path.read_bytes()) for path in sorted(PACKAGE.rglob("*.py"))}


def nodes(kind: type[Node], folder: Path = PACKAGE) -> Sequence[tuple[Path, Node]]:
    """Every node of exactly this kind in ``folder``, and its file there."""
    return cast("Sequence[tuple[Path, Node]]", _nodes_in(folder)[kind])


@cache
@_made_to_stay()
def _nodes_in(folder: Path) -> Mapping[type[ast.AST], Sequence[tuple[Path, ast.AST]]]:
    found: defaultdict[type[ast.AST], list[tuple[Path, ast.AST]]] = defaultdict(list)
    for path, tree in trees().items():
        if path.is_relative_to(folder):
            inside = path.relative_to(folder)
            for node in ast.walk(tree):
                found[type(node)].append((inside, node))
    return found
