"""What is made of a checkpoint."""

from pathlib import Path
from typing import Any

from lockstep.worker.checkpoints.formats import examine


def verdict_on(path: Path, form: str = "Auto", **how: Any) -> tuple[str, str]:
    finding = examine(str(path), form=form, **how)
    assert finding is not None
    return finding.verdict, finding.reason
