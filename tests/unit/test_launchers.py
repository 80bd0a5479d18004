"""What each launcher is told, who decides, and what it cannot work with."""

from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.pods.launchers import launcher_of


def spec(launcher: str, command: list[str], **fields: Any) -> TrainingRunSpec:
    # Built past the checks of the CRD: what these let through today they may not tomorrow.
    kind = {"type": launcher, **fields.pop("settings", {})}
    valid = TrainingRunSpec.model_validate({"nodes": 1, "image": "i", "command": ["x"], "launcher": kind, **fields})
    return changed(valid, command=tuple(command))


@pytest.mark.parametrize("launcher", ["Plain", "Torchrun", "JAX"])
def test_every_rank_decides(launcher: str) -> None:
    assert launcher_of(spec(launcher, ["python", "t.py"])).deciding_ranks(4) == range(4)


@pytest.mark.parametrize(
    ("fields", "gpus", "expected"),
    [
        ({}, 8, {"nprocPerNode": 8, "entrypoint": 0}),
        ({}, 0, {"nprocPerNode": 1, "entrypoint": 0}),
        ({"settings": {"torchrun": {"nprocPerNode": 2}}}, 8, {"nprocPerNode": 2, "entrypoint": 0}),
        ({"entrypoint": ["/entry.sh", "-x"]}, 4, {"nprocPerNode": 4, "entrypoint": 2}),
    ],
)
def test_torchrun_starts_one_process_per_gpu_unless_told(
    fields: dict[str, Any], gpus: int, expected: dict[str, int]
) -> None:
    asked = spec("Torchrun", ["python", "train.py"], **fields)
    assert launcher_of(asked).options(asked, gpus) == expected


@pytest.mark.parametrize("launcher", ["Plain", "JAX"])
def test_others_need_to_be_told_nothing(launcher: str) -> None:
    asked = spec(launcher, ["python", "t.py"])
    assert launcher_of(asked).options(asked, 8) == {}


@pytest.mark.parametrize(
    ("launcher", "command", "refused"),
    [
        ("Plain", ["torchrun", "train.py"], False),
        ("Torchrun", ["train.py"], False),
        ("Torchrun", ["python3", "-u", "train.py"], False),
        ("Torchrun", ["torchrun", "train.py"], True),
        ("Torchrun", ["/opt/conda/bin/torchrun", "train.py"], True),
        ("Torchrun", ["python", "-m", "torch.distributed.run", "train.py"], True),
        ("JAX", ["python", "train.py"], False),
        ("JAX", ["mpirun", "python", "train.py"], True),
    ],
)
def test_a_launcher_inside_a_launcher_is_refused_with_the_remedy(
    launcher: str, command: list[str], refused: bool
) -> None:
    asked = spec(launcher, command)
    problems = launcher_of(asked).problems(asked)
    assert bool(problems) is refused
    assert all(problem.field == "spec.command" and "leave launcher out" in problem.message for problem in problems)
