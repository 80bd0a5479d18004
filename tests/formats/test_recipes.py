"""The programs that the documentation shows save what Lockstep resumes from, and go on from it with all they had."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from library import HERE, QUIET

from lockstep.worker.checkpoints.formats import VALID, examine

DOCS = HERE.parents[1] / "docs"
BROUGHT = HERE.parents[1] / "operator" / "lockstep" / "worker" / "lockstep_training.py"
PLACE = "# The recipe.\n"
ENVIRONMENT = "import os\n\n"
"""What readers of a short recipe are trusted to add."""


class Recipe(NamedTuple):
    """``program``: the one that it is a part of, below ``recipes``. ``checkpoint``: as its library names a step."""

    page: str
    heading: str
    program: str
    form: str
    checkpoint: str


RECIPES = (
    Recipe("checkpoint-recipes", "## PyTorch with DCP", "dcp", "TorchDCP", "step-{step}"),
    Recipe("checkpoint-recipes", "## DeepSpeed", "deepspeed_zero", "DeepSpeed", "global_step{step}"),
    Recipe("checkpoint-recipes", "## HuggingFace Trainer", "hf", "HuggingFace", "checkpoint-{step}"),
    Recipe("checkpoint-recipes", "## Lightning", "lightning_files", "Lightning", "epoch=0-step={step}.ckpt"),
    Recipe("checkpoint-recipes", "## JAX with Orbax", "orbax", "Orbax", "{step}"),
    Recipe("checkpoints", "## Saving by manifest", "manifest", "Manifest", "step-{step}"),
)


def shown(recipe: Recipe) -> str:
    """Its Python. Every 500th step is saved there, and every second one here."""
    text = (DOCS / f"{recipe.page}.md").read_text(encoding="utf-8")
    found = re.search(rf"^{recipe.heading}\n.*?^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{recipe.page}.md shows nothing below {recipe.heading}"
    return found[1].replace("500", "2")


def trained(recipe: Recipe, scratch: Path, last: int, *, resume: str = "", step: int = 0) -> dict[str, Any]:
    """What the program says at its end. ``resume``: the checkpoint of ``step``."""
    text = (HERE / "recipes" / f"{recipe.program}.py").read_text(encoding="utf-8")
    assert text.count(PLACE) == 1
    script, control, saves = scratch / "train.py", scratch / "control.json", scratch / "saves"
    script.write_text(ENVIRONMENT + text.replace(PLACE, shown(recipe)), encoding="utf-8")
    control.write_text(json.dumps({"cadence": {"fromStep": 0, "steps": 2, "sharedSteps": 2}}), encoding="utf-8")
    shutil.copy(BROUGHT, scratch)
    saves.mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    told = {
        "LAST": str(last),
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": "1",
        "JAX_PROCESS_ID": "0",
        "PYTHONPATH": str(HERE),
        "LOCKSTEP_ATTEMPT": "1",
        "LOCKSTEP_CHECKPOINT_DIR": str(saves),
        "LOCKSTEP_CONTROL_FILE": str(control),
        "LOCKSTEP_NNODES": "1",
        "LOCKSTEP_PROGRESS_FILE": str(scratch / "progress.jsonl"),
        "LOCKSTEP_RESUME_DIR": str(Path(resume).parent) if resume else "",
        "LOCKSTEP_RESUME_PATH": resume,
        "LOCKSTEP_RESUME_STEP": str(step) if resume else "",
        "LOCKSTEP_RUN_UID": "11111111-2222-4333-8444-555555555555",
    }
    done = subprocess.run(
        [sys.executable, str(script)], cwd=scratch, env={**os.environ, **QUIET, **told}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.program)
def test_a_program_that_is_shown_goes_on_with_all_that_it_had(recipe: Recipe, tmp_path: Path) -> None:
    begun, whole = tmp_path / "begun", tmp_path / "whole"
    begun.mkdir()
    whole.mkdir()
    at_four = trained(recipe, begun, 4)
    assert at_four["step"] == 4
    assert any(at_four["learned"])
    checkpoint = begun / "saves" / recipe.checkpoint.format(step=4)
    finding = examine(str(checkpoint), form=recipe.form)
    assert finding is not None
    assert (finding.verdict, finding.reason) == (VALID, "")
    resumed = trained(recipe, begun, 6, resume=str(checkpoint), step=4)
    assert resumed["step"] == 6
    assert resumed["learned"] == pytest.approx(trained(recipe, whole, 6)["learned"], rel=1e-6)
