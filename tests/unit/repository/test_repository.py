"""Promises about the tree itself."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.sources import nodes

ROOT = Path(__file__).parents[3]


def test_operator_is_not_a_package_as_it_would_shadow_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()


@pytest.mark.process
def test_the_standard_librarys_operator_is_found_with_the_root_on_the_path() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import operator; print(operator.__file__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert str(ROOT / "operator") not in found


def test_e2e_imports_nothing_of_tests_which_may_import_it() -> None:
    of_tests = "|".join(path.stem for path in (ROOT / "tests").iterdir())
    imported = re.compile(rf"^ *(from |import (.*, *)?)({of_tests})\b", re.MULTILINE)
    assert [path for path in (ROOT / "e2e").rglob("*.py") if imported.search(path.read_text())] == []


@pytest.mark.process
def test_top_level_folders_are_the_agreed_ones() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {line.partition("/")[0] for line in tracked.splitlines() if "/" in line}
    ours = {"operator", "crds", "charts", "manifests", "tests", "e2e", "docs"}
    assert folders <= ours | {".ci", ".devcontainer", ".github"}


@pytest.mark.process
def test_each_folder_of_tests_and_of_e2e_says_what_it_needs() -> None:
    listed = set(re.findall(r"^\| `((?:tests|e2e)/\w+)` \|", (ROOT / "e2e/README.md").read_text(), re.MULTILINE))
    tracked = subprocess.run(
        ["git", "ls-files", "tests/*/*", "e2e/*/*"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert listed == {"/".join(line.split("/")[:2]) for line in tracked.stdout.splitlines()}


OF_THE_CONFIGURATION = {"core/model/settings.py"}
"""What is matched there was written by whoever runs the operator, as was what it is matched with."""


def test_the_operator_compiles_no_pattern_that_somebody_else_wrote() -> None:
    """Compiling and matching take as long as whoever wrote the pattern likes; all patterns are constants of modules."""
    functions = [*nodes(ast.FunctionDef), *nodes(ast.AsyncFunctionDef)]
    found = set()
    for path, call in nodes(ast.Call):
        called, first = call.func, call.args[0] if call.args else None
        is_constant = isinstance(first, ast.Constant) or (isinstance(first, ast.Name) and first.id.isupper())
        of_module = called.value if isinstance(called, ast.Attribute) else None
        is_match = isinstance(of_module, ast.Name) and of_module.id in ("re", "fnmatch", "glob")
        if is_match and not is_constant and path.parts[0] in ("api", "core", "controller", "present", "config.py"):
            found |= {path for of, each in functions if of == path and each.lineno <= call.lineno <= each.end_lineno}
    assert {path.as_posix() for path in found} == OF_THE_CONFIGURATION


def test_examples_are_called_what_nothing_of_yours_is_called() -> None:
    kept = {"hello", "tom-sawyer", "checkpoints"}  # in the README; of the demo, in its own namespace
    for_administrators = {"admission-policy", "admission-user", "network-policy"}
    for path in (ROOT / "manifests").glob("*.yaml"):
        if path.stem.startswith(("install", "operator")) or path.stem in for_administrators:
            continue
        names = {document["metadata"]["name"] for document in yaml.safe_load_all(path.read_text())}
        assert {name for name in names if not name.startswith("example-")} <= kept, path


def test_ci_runs_the_command_that_the_readme_names() -> None:
    command = "make test"
    assert command in (ROOT / "README.md").read_text()
    assert command in (ROOT / ".ci" / "run").read_text()


STARTS_PROCESSES = {
    *(f"subprocess.{name}" for name in ("Popen", "call", "check_call", "check_output", "run")),
    *(f"asyncio.create_subprocess_{how}" for how in ("exec", "shell")),
    "os.fork",
}


def _calls_and_names(node: ast.AST) -> set[str]:
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            found.add(f"{each.value.id}.{each.attr}")
        elif isinstance(each, ast.Name):
            found.add(each.id)
    return found


def _unmarked(module: ast.Module) -> list[str]:
    """Tests of a module that start processes, by its functions and fixtures too, and are not marked so."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    fixtures = {each.name: {argument.arg for argument in each.args.args} for each in functions}
    used = {each.name: _calls_and_names(each) for each in functions}
    starting = {name for name, names in used.items() if names & STARTS_PROCESSES or "launch" in fixtures[name]}
    before = None
    while before != starting:
        before = set(starting)
        starting |= {name for name in used if (used[name] | fixtures[name]) & starting}
    marked = {each.name for each in functions if any("mark.process" in ast.unparse(by) for by in each.decorator_list)}
    rest = (node for node in module.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))
    at_import = ["import" for node in rest if _calls_and_names(node) & STARTS_PROCESSES]
    return at_import + sorted(name for name in starting - marked if name.startswith("test_"))


def test_unit_tests_that_start_processes_are_marked_and_not_in_make_check() -> None:
    texts = {str(path): path.read_text() for path in (ROOT / "tests" / "unit").rglob("test_*.py")}
    told = re.compile(r"\bsubprocess\.|\blaunch\b|\bos\.fork\b")
    of_module = re.compile(r"^pytestmark = .*mark\.process", re.MULTILINE)
    looked_at = {name: text for name, text in texts.items() if told.search(text) and not of_module.search(text)}
    found = {name: _unmarked(ast.parse(text)) for name, text in looked_at.items()}
    assert {name: tests for name, tests in found.items() if tests} == {}


def test_property_tests_that_say_how_much_they_try_try_little_in_make_check() -> None:
    """What ``@settings`` names goes over the profile: it has to ask support.examples."""
    named = re.compile(r"(max_examples|stateful_step_count)=\d")
    assert [path.name for path in (ROOT / "tests" / "unit").rglob("test_*.py") if named.search(path.read_text())] == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("target", "trains", "programs"),
    [
        ("check", False, set()),
        ("coverage", True, set()),
        ("test-unit", True, set()),
        ("test-nodes", True, {"the cluster's", "versitygw"}),
        ("test-cluster", False, {"the cluster's", "prometheus"}),
        ("test", True, {"the cluster's", "helm", "versitygw", "promtool", "prometheus"}),
        ("demo", True, {"the cluster's"}),
        ("demo KUBECONFIG=k", True, {"kubectl"}),
        ("demo-scale", False, {"the cluster's"}),
        ("faults", True, {"the cluster's"}),
        ("bench-recover", False, {"the cluster's"}),
        ("bench-schedule", False, set()),
        ("e2e", False, set()),  # builds what it is short of by itself
    ],
)
def test_on_a_new_machine_a_target_makes_ready_what_it_needs_and_no_more(
    target: str, trains: bool, programs: set[str]
) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "KUBECONFIG")}
    command = ["make", "--dry-run", "--always-make", *target.split()]
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert "uv sync" in told or "uv export" in told
    assert ("--group demo" in told) is trains
    built = re.findall(r"-m localcluster build ?(.*)", told)
    assert {name or "the cluster's" for name in built} == programs
