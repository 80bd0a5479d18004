"""Torchrun: torchrun with its rendezvous, in front of the command."""

from typing import Any

import pytest

from lockstep.core.pods.launchers import launcher_of, plain_launcher_of
from lockstep.core.pods.launchers.rendezvous import Rendezvous
from support.launchers import launched

OPTIONS = ["--nnodes=4", "--node-rank=1", "--nproc-per-node=8", "--master-addr=10.0.0.1", "--master-port=20123"]


@pytest.mark.parametrize("world", [1, 4])
def test_every_rank_decides(world: int) -> None:
    assert launcher_of(launched("Torchrun", ["python", "t.py"])).deciding_ranks(world) == range(world)


@pytest.mark.parametrize(
    ("fields", "gpus", "expected"),
    [
        ({}, 8, {"nprocPerNode": 8, "entrypoint": 0}),
        ({}, 0, {"nprocPerNode": 1, "entrypoint": 0}),
        ({"settings": {"torchrun": {"nprocPerNode": 2}}}, 8, {"nprocPerNode": 2, "entrypoint": 0}),
        ({"entrypoint": ["/entry.sh", "-x"]}, 4, {"nprocPerNode": 4, "entrypoint": 2}),
    ],
)
def test_one_process_is_started_per_gpu_unless_told(
    fields: dict[str, Any], gpus: int, expected: dict[str, int]
) -> None:
    asked = launched("Torchrun", ["python", "train.py"], **fields)
    assert launcher_of(asked).options(asked, gpus) == expected


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["train.py", "-x"], ["torchrun", *OPTIONS, "train.py", "-x"]),
        (["python", "train.py"], ["torchrun", *OPTIONS, "train.py"]),
        (["/venv/bin/python3.12", "-u", "train.py"], ["/venv/bin/torchrun", *OPTIONS, "train.py"]),
        (["python", "-m", "train"], ["torchrun", *OPTIONS, "-m", "train"]),
        (["-m", "train"], ["torchrun", *OPTIONS, "-m", "train"]),
        (["python", "-O", "train.py"], ["torchrun", *OPTIONS, "--no-python", "python", "-O", "train.py"]),
        (["/app/start.sh"], ["torchrun", *OPTIONS, "--no-python", "/app/start.sh"]),
    ],
)
def test_it_stands_in_the_place_of_an_interpreter_that_it_starts_itself(command: list[str], words: list[str]) -> None:
    asked = launched("Torchrun", command, entrypoint=["/init"])
    told = plain_launcher_of(asked)
    rendezvous = Rendezvous(1, 4, "10.0.0.1", 20_123, 8)
    assert [*told.command(asked, rendezvous)] == ["/init", *words]
    assert told.environment(rendezvous) == {}, "it is told by argument"


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        (["train.py"], False),
        (["python3", "-u", "train.py"], False),
        (["python", "-m", "torch.utils.benchmark"], False),
        (["torchrun", "train.py"], True),
        (["/opt/conda/bin/torchrun", "train.py"], True),
        (["python", "-m", "torch.distributed.run", "train.py"], True),
        (["python", "-u", "-m", "torch.distributed.launch", "train.py"], True),
    ],
)
def test_a_launcher_inside_a_launcher_is_refused_with_the_remedy(command: list[str], refused: bool) -> None:
    asked = launched("Torchrun", command)
    problems = launcher_of(asked).problems(asked)
    assert bool(problems) is refused
    assert all(problem.field == "spec.command" and "leave launcher out" in problem.message for problem in problems)
