"""The Python that the documentation shows is Python, and asks the library that the worker brings along for what it has.

That it saves and resumes is shown where the real frameworks are: `make formats`.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.shown_commands import PAGES, ROOT
from lockstep.worker import lockstep_training
from lockstep.worker.checkpoints.tiers import scan_tier
from support.typed_page import files_on

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(found[1], id=f"{page.stem}-{number}")
    for page in PAGES
    for number, found in enumerate(BLOCK.finditer(Path(page).read_text(encoding="utf-8")), 1)
]


@pytest.mark.parametrize("text", BLOCKS)
def test_python_that_is_shown_is_python_and_calls_what_there_is(text: str) -> None:
    tree = ast.parse(text)
    asked = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "lockstep"
    }
    assert asked <= {*lockstep_training.__all__}


def test_python_is_found_at_all() -> None:
    assert len(BLOCKS) > 6


RUN_BY = {
    "checkpoint-recipes": "tests/formats/test_recipes.py",
    "checkpoints": "tests/unit/worker/checkpoints/test_checkpoints_snippet.py",
    "deepspeed": "tests/nodes/test_training_deepspeed.py",
    "mpi": "tests/nodes/test_training_mpi.py",
    "ray": "tests/nodes/test_training_ray.py",
    "worker": "tests/unit/repository/test_docs_python.py",
    "first-hour": "tests/nodes/test_playground.py",
}
"""What runs the programs of a page as they stand."""


def test_every_page_with_a_program_has_a_test_that_runs_it() -> None:
    assert {page.stem for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))} == RUN_BY.keys()
    for page, path in RUN_BY.items():
        assert page in (ROOT / path).read_text(encoding="utf-8"), f"{path} says nothing of {page}"


def test_the_loop_of_the_worker_page_trains_and_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = BLOCK.findall((ROOT / "docs" / "worker.md").read_text(encoding="utf-8"))
    (text,) = (text for text in shown if "should_checkpoint" in text)
    monkeypatch.setitem(sys.modules, "lockstep_training", lockstep_training)
    saved: list[str] = []
    monkeypatch.setattr(lockstep_training, "should_checkpoint", lambda step: step == 2)
    monkeypatch.setattr(lockstep_training, "should_stop", lambda: bool(saved))
    monkeypatch.setattr(lockstep_training, "checkpoint_directory", lambda step: str(tmp_path / str(step)))
    given = {"first_step": 1, "last_step": 9, "train_one_step": lambda: 0.5, "save": saved.append}
    exec(text, given)
    assert (given["step"], saved) == (2, [str(tmp_path / "2")])


@pytest.mark.process
def test_the_program_of_the_tutorial_fails_where_it_says_and_mended_goes_on_from_what_it_saved(tmp_path: Path) -> None:
    program = files_on(ROOT / "docs" / "first-hour.md")["train.py"].replace("time.sleep(0.2)", "time.sleep(0)")
    library = str(Path(lockstep_training.__file__).parent)

    def run(attempt: int, text: str, resume: str = "") -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "uid" / f"a{attempt}"
        folder.mkdir(parents=True)
        variables = {"RUN_UID": "uid", "ATTEMPT": attempt, "NODE_RANK": 0, "NNODES": 1, "CHECKPOINT_DIR": folder,
                     "RESUME_PATH": resume}  # fmt: skip
        environment = {"PYTHONPATH": library, **{f"LOCKSTEP_{name}": str(value) for name, value in variables.items()}}
        return subprocess.run([sys.executable, "-B", "-c", text], env=environment, capture_output=True, text=True)

    failed = run(1, program)
    assert "NameError: name 'los' is not defined" in failed.stderr
    rows = scan_tier("shared", str(tmp_path), "uid")
    assert [(row["step"], row["verdict"]) for row in rows if row["step"] == 125] == [(125, "Valid")]
    mended = run(2, program.replace("{los:", "{loss:"), str(tmp_path / "uid" / "a1" / "step-125"))
    assert (mended.returncode, mended.stdout.splitlines()[0]) == (0, "rank 0 begins after step 125"), mended.stderr
    assert (tmp_path / "uid" / "a2" / "step-10000" / "manifest.json").exists()
