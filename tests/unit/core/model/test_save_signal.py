"""By which signal programs are asked to save."""

from typing import Any

import pytest

from lockstep.core.model.save_signal import save_signal
from support.launchers import launched

TIER = {"shared": {"claimName": "c"}}
BATCH = {"script": "#!/bin/sh\n", "signal": "SIGUSR2"}


@pytest.mark.parametrize(
    ("launcher", "settings", "checkpoint", "found"),
    [
        ("Plain", {}, None, None),
        ("Plain", {}, TIER, None),
        ("Plain", {}, {**TIER, "signal": "SIGUSR1"}, "SIGUSR1"),
        ("Slurm", {"batch": BATCH}, None, "SIGUSR2"),
        ("Slurm", {"batch": BATCH}, TIER, "SIGUSR2"),
        ("Slurm", {"batch": BATCH}, {**TIER, "signal": "SIGUSR1"}, "SIGUSR1"),
        ("Slurm", {"batch": {"script": "#!/bin/sh\n"}}, None, None),
    ],
)
def test_the_checkpoint_block_comes_before_what_a_submission_said(
    launcher: str, settings: dict[str, Any], checkpoint: Any, found: str | None
) -> None:
    more = {} if checkpoint is None else {"checkpoint": checkpoint}
    assert save_signal(launched(launcher, ["x"], settings=settings, **more)) == found
