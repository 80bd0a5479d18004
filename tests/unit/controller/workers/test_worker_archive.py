"""The worker as one file: the same bytes from the same sources, and a program that old interpreters run."""

import ast
import io
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from lockstep.controller.workers.worker_archive import archive_of, worker_archive, worker_sources

ROOT = Path(__file__).parents[4]
SOURCES = worker_sources()
# The interpreter of the user's image, which may be an old one.
PYTHON = os.environ.get("LOCKSTEP_WORKER_PYTHON", sys.executable)


def test_the_same_sources_make_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = archive_of(SOURCES)
    monkeypatch.setattr(time, "time", lambda: 2e9)
    assert archive_of(dict(reversed(SOURCES.items()))) == first == worker_archive()
    assert archive_of({**SOURCES, "__main__.py": b"1"}) != first


def test_it_holds_every_module_and_nothing_else() -> None:
    names = zipfile.ZipFile(io.BytesIO(worker_archive())).namelist()
    rooms = (ROOT / "operator/lockstep/worker", ROOT / "operator/lockstep/slurm")
    package = {str(path.relative_to(ROOT / "operator")) for room in rooms for path in room.rglob("*.py")}
    unpacked = {name for name in package if name.startswith("lockstep/slurm/submission/")}
    of_sbatch = ("__init__", "directives", "options")  # of a job's own
    unpacked -= {f"lockstep/slurm/submission/{name}.py" for name in of_sbatch}
    assert set(names) == {"__main__.py", "lockstep/__init__.py"} | package - unpacked
    assert names == sorted(names)


def test_it_fits_a_config_map_three_times_over() -> None:
    assert 3 * len(worker_archive()) < 1 << 20


@pytest.mark.process
def test_it_runs_alone_and_isolated(tmp_path: Path) -> None:
    program = tmp_path / "worker.pyz"
    program.write_bytes(worker_archive())
    ran = subprocess.run(
        [PYTHON, "-I", "-B", str(program), "--", "true"],
        env={},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (ran.returncode, ran.stderr) == (125, "lockstep: cannot start: KeyError('LOCKSTEP_OPERATOR_URL')\n")
    assert os.listdir(tmp_path) == ["worker.pyz"]


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_module_is_valid_python_3_8(name: str) -> None:
    ast.parse(SOURCES[name], feature_version=(3, 8))


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_module_imports_only_the_standard_library_of_python_3_8_and_the_worker(name: str) -> None:
    younger = {"tomllib", "zoneinfo", "graphlib"}
    imported = {
        module
        for node in ast.walk(ast.parse(SOURCES[name]))
        for module in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    packed = ("lockstep.worker.", "lockstep.slurm")
    ours = {module for module in imported if module.startswith(packed) or module == "lockstep"}
    assert {module.partition(".")[0] for module in imported - ours} <= sys.stdlib_module_names - younger
