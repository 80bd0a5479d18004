"""The source of the operator for tests that look into it: read once, not by each of them."""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

PACKAGE = Path(__file__).parents[2] / "operator" / "lockstep"
CORE = PACKAGE / "core"
Node = TypeVar("Node", bound=ast.AST)


@cache
def trees() -> Mapping[Path, ast.Module]:
    """By file of the package."""
    gc.disable()  # a million objects that stay: to look for garbage among them takes longer than to make them
    try:
        return {path: ast.parse(path.read_bytes()) for path in sorted(PACKAGE.rglob("*.py"))}
    finally:
        gc.freeze()
        gc.enable()


def nodes(kind: type[Node], folder: Path = PACKAGE) -> Sequence[tuple[Path, Node]]:
    """Every node of exactly this kind in ``folder``, and its file there."""
    found = cast("Sequence[tuple[Path, Node]]", _by_kind()[kind])
    return [(path.relative_to(folder), node) for path, node in found if path.is_relative_to(folder)]


@cache
def _by_kind() -> Mapping[type[ast.AST], Sequence[tuple[Path, ast.AST]]]:
    found: defaultdict[type[ast.AST], list[tuple[Path, ast.AST]]] = defaultdict(list)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            found[type(node)].append((path, node))
    return found
