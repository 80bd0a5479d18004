"""The Python that the documentation shows is Python, and asks the library that the worker brings along for what it has.

That it saves and resumes is shown where the real frameworks are: `make formats`.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.shown_commands import PAGES, ROOT, block_on
from lockstep.core.pods.launchers import jax
from lockstep.core.pods.launchers.rendezvous import Rendezvous
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


HERE = "tests/unit/repository/test_docs_python.py"
RECIPES = "tests/formats/test_recipes.py"
WORKER = ROOT / "docs" / "worker.md"
RUN_BY = (
    ("checkpoint-recipes", "## PyTorch with DCP", RECIPES),
    ("checkpoint-recipes", "## DeepSpeed", RECIPES),
    ("checkpoint-recipes", "## HuggingFace Trainer", RECIPES),
    ("checkpoint-recipes", "## Lightning", RECIPES),
    ("checkpoint-recipes", "## JAX with Orbax", RECIPES),
    ("checkpoints", "## Saving by manifest", RECIPES),
    ("deepspeed", "deepspeed.initialize", "e2e/harness/deepspeed_program.py"),
    ("mpi", "from mpi4py import MPI", "tests/nodes/test_training_mpi.py"),
    ("ray", "def gradient", "tests/nodes/test_training_ray.py"),
    ("ray", "ScalingConfig", "tests/nodes/test_training_ray.py"),
    ("worker", "jax.distributed.initialize", HERE),
    ("worker", "loss=loss.item()", HERE),
    ("worker", "should_checkpoint(step)", HERE),
    ("first-hour", "train.py", HERE),
)
"""Of each program its page, words by which a test finds it, in it or between it and what stands above it, and where
that test is, or what it takes the program from."""


def programs_on(page: Path) -> list[str]:
    """Each with what stands above it, up to the one before it or to a heading, which is a part of it."""
    text, end, found = page.read_text(encoding="utf-8"), 0, []
    for block in BLOCK.finditer(text):
        before = text[end : block.start()]
        found.append(before[max(0, before.rfind("\n#")) :] + block[1])
        end = block.end()
    return found


def test_every_program_of_every_page_is_run_by_a_test() -> None:
    programs = [(page.stem, program) for page in PAGES for program in programs_on(page)]
    for stem, program in programs:
        rows = [words for page, words, _ in RUN_BY if page == stem and words in program]
        assert len(rows) == 1, f"{stem} has a program that {len(rows)} rows of RUN_BY name:\n{program}"
    assert len(programs) == len(RUN_BY), "no row without a program"
    for page, words, path in RUN_BY:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert page in text, f"{path} says nothing of {page}"
        assert text.count(f'"{words}"') > (path == HERE), f'{path} takes no program by "{words}"'


def test_what_the_worker_page_shows_for_jax_reads_what_the_worker_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    distributed = SimpleNamespace(initialize=lambda *words, **more: told.extend([*words, more]))
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(distributed=distributed))
    for name, value in jax.environment(Rendezvous(address="a", port=3, world=2, rank=1, gpus=0)).items():
        monkeypatch.setenv(name, value)
    exec(block_on(WORKER, "python", "jax.distributed.initialize"), {})
    assert told == ["a:3", 2, 1, {"cluster_detection_method": "deactivate"}]


def test_the_line_that_the_worker_page_shows_reports_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lockstep_training", lockstep_training)
    told: list[object] = []
    monkeypatch.setattr(lockstep_training, "report", lambda step, **more: told.append((step, more)))
    given = {"step": 3, "loss": SimpleNamespace(item=lambda: 0.5), "total_steps": 9}
    exec(block_on(WORKER, "python", "loss=loss.item()"), given)
    assert told == [(3, {"loss": 0.5, "total_steps": 9})]


def test_the_loop_of_the_worker_page_trains_and_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = block_on(WORKER, "python", "should_checkpoint(step)")
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
