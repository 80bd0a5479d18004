"""Promises about the tree itself."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_operator_is_not_a_package_as_it_would_shadow_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_the_standard_librarys_operator_is_found_with_the_root_on_the_path() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import operator; print(operator.__file__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert str(ROOT / "operator") not in found


def test_e2e_imports_nothing_of_tests_which_may_import_it() -> None:
    of_tests = {path.stem for path in (ROOT / "tests").iterdir()}
    for path in (ROOT / "e2e").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not of_tests & {name.partition(".")[0] for name in imported}, path


def test_top_level_folders_are_the_agreed_ones() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {line.partition("/")[0] for line in tracked.splitlines() if "/" in line}
    ours = {"operator", "crds", "charts", "manifests", "tests", "e2e", "docs"}
    assert folders <= ours | {".ci", ".devcontainer", ".github"}


def test_ci_runs_the_command_that_the_readme_names() -> None:
    command = "make test"
    assert command in (ROOT / "README.md").read_text()
    assert command in (ROOT / ".ci" / "run").read_text()
