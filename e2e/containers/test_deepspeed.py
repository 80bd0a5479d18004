"""`launcher: DeepSpeed` in containers without ssh and root: the command as typed, and a rank that is killed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from containers.launchers import DEEPSPEED
from harness.training import TrainingRun

pytestmark = [pytest.mark.containers, pytest.mark.nightly]  # the image alone takes minutes


def test_the_command_as_typed_trains_and_all_resume_when_a_rank_was_killed(begun: Callable[..., TrainingRun]) -> None:
    run = begun(DEEPSPEED, "killed")
    DEEPSPEED.wait_until_saved(run)
    pods, node = run.pod_uids, run.nodes[1]
    run.kill_process(1)
    DEEPSPEED.finish(run)
    assert run.pod_uids == pods
    assert (run.attempts[0]["rank"], run.attempts[0]["node"]) == (1, node), run.summary()
    assert run.status["start"]["resume"]["step"] >= 10
