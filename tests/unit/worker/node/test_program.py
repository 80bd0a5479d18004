"""What an attempt runs on a node, and who of it is asked by a signal to save."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.worker.child.launch import contract_environment
from lockstep.worker.child.training import Catchers, all_but_ray, all_that_catch
from lockstep.worker.node.program import program_of
from lockstep.worker.settings import Settings
from lockstep.worker.start import Launch

LAUNCH = Launch(3, 1, 4, "10.1.0.1", 20123, "", "", [])


@pytest.mark.parametrize(("launcher", "catchers"), [("Plain", all_that_catch), ("Ray", all_but_ray)])
def test_rays_own_processes_are_not_asked_to_save(tmp_path: Path, launcher: str, catchers: Catchers) -> None:
    settings = Settings("https://o", "n", "r", "u", 1, 1, "p", ["train"], launcher=launcher, scratch=str(tmp_path))
    steps: Any = SimpleNamespace(wanted=False, environment=lambda *_: {}, stands_by=lambda _: False)
    assert program_of(settings, LAUNCH, contract_environment(settings, LAUNCH), steps).catchers is catchers
