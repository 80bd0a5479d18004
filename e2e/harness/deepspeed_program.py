"""The program that DeepSpeed's page shows, made such that a test sees what it does."""

from __future__ import annotations

import json
from pathlib import Path

from harness.shown_commands import block_on
from localcluster.build import REPOSITORY

PAGE = REPOSITORY / "docs" / "deepspeed.md"
# Nothing is compiled: a faster all-reduce takes minutes, and the lock of a build that was killed stops the next one.
_QUICK = """
import json, time
from deepspeed.ops.op_builder.all_ops import ALL_OPS
deepspeed.ops.__compatible_ops__ = dict.fromkeys(ALL_OPS, False)
torch.set_num_threads(1)
"""
_RECORD = """
    with open(f"{os.environ['LOCKSTEP_CHECKPOINT_DIR']}/lineage-rank{rank}.jsonl", "a") as stream:
        print(json.dumps({"step": step, "loss": repr(loss.item())}), file=stream, flush=True)
    time.sleep(float(os.environ.get("STEP_SECONDS", "0")))
"""
ON_CPUS = {
    "DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"
}  # fmt: skip
"""Its environment."""


def write_program(folder: Path) -> None:
    """As the page shows it, but that every rank also records its losses, saves every ten steps, and takes its time.

    SAVE_EVERY and STEP_SECONDS in its environment are what they say.
    """
    text = block_on(PAGE, "python", "deepspeed.initialize")
    begins, reports = "parser = argparse", "    lockstep.report("
    assert text.count(begins) == text.count(reports) == 1
    text = text.replace(begins, _QUICK + begins)
    line = next(line for line in text.splitlines() if line.startswith(reports))
    text = text.replace(line, line + _RECORD)
    asked = "lockstep.should_checkpoint(step) or"
    text = text.replace(asked, f"{asked} step % int(os.environ.get('SAVE_EVERY', '10')) == 0 or")
    (folder / "train.py").write_text(text)
    (folder / "ds.json").write_text(json.dumps(json.loads(block_on(PAGE, "json", "zero_optimization"))))
