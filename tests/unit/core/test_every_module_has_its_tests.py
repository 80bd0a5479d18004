"""Who changes a module of the core finds its tests at the same path: core/pods/gang.py has core/pods/test_gang.py."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CORE, TESTS = ROOT / "operator/lockstep/core", ROOT / "tests/unit/core"
ROOMS = (
    "model",
    "placement",
    "pods",
    "accounting",
    "arrays",
    "batch",
    "kueue",
    "failures",
    "checkpoints",
    "run",
    "admission",
)
"""Rooms in which every module has a test file."""
DATA_ONLY = frozenset(
    {
        "model/admission_settings.py",
        "model/array_views.py",
        "model/kueue/api_names.py",
        "model/kueue/writes.py",
        "model/tiers.py",
        "model/wire.py",
        "pods/launchers/rendezvous.py",
        "run/handover.py",
    }
)
"""Modules that decide nothing."""
WITH_THE_STEPS = frozenset({"model/plan.py"})
"""Tested by the steps that write to it."""

MODULES = sorted(
    path.relative_to(CORE).as_posix()
    for path in (*CORE.glob("*.py"), *(path for room in ROOMS for path in (CORE / room).rglob("*.py")))
    if path.stem != "__init__"
)


def file_of_tests(module: str) -> Path:
    path = TESTS / module
    return path.with_name(f"test_{path.name}")


@pytest.mark.parametrize("module", [each for each in MODULES if each not in DATA_ONLY | WITH_THE_STEPS])
def test_a_module_that_decides_has_a_test_file_of_its_name(module: str) -> None:
    assert file_of_tests(module).is_file(), f"write {file_of_tests(module).relative_to(ROOT)}"


@pytest.mark.parametrize("module", sorted(DATA_ONLY))
def test_a_module_without_tests_is_there_and_has_no_logic(module: str) -> None:
    tree = ast.parse((CORE / module).read_text(encoding="utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert functions <= {"key"}, "namespace/name"
    assert not file_of_tests(module).exists(), f"take {module} off the list"
