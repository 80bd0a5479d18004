"""MPI: the command as typed, on rank 0 alone."""

from typing import Any

import pytest

from lockstep.core.pods.launchers import launcher_of, worker_options
from support.launchers import launched

COMMAND = ["mpirun", "python", "train.py"]


@pytest.mark.parametrize("world", [1, 4])
def test_rank_0_alone_decides(world: int) -> None:
    assert launcher_of(launched("MPI", COMMAND)).deciding_ranks(world) == range(1)


@pytest.mark.parametrize(
    ("settings", "gpus", "slots"), [({}, 8, 8), ({}, 0, 1), ({"mpi": {"slotsPerNode": 2}}, 8, 2), ({"mpi": {}}, 4, 4)]
)
def test_a_node_has_a_slot_for_each_gpu_unless_told(settings: dict[str, Any], gpus: int, slots: int) -> None:
    asked = launched("MPI", COMMAND, settings=settings)
    assert worker_options(asked, gpus) == {"slotsPerNode": slots, "standsBy": True, "steps": True}


@pytest.mark.parametrize("launcher", ["Plain", "Torchrun", "JAX"])
@pytest.mark.parametrize("asked", [True, False])
def test_steps_of_other_launchers_are_asked_for(launcher: str, asked: bool) -> None:
    spec = launched(launcher, ["train.py"], settings={"steps": asked})
    assert launcher_of(spec).steps(spec) is asked
    assert ("steps" in worker_options(spec, 8)) is asked, "pods of before are as they were"


@pytest.mark.parametrize(
    ("command", "elastic", "words"),
    [
        (COMMAND, False, ""),
        (COMMAND, True, ""),
        (["mpirun", "-np", "4", "train"], False, ""),
        (["/opt/mpi/bin/mpirun", "-np", "4", "train"], True, "-np asks for as many processes"),
        (["mpiexec.hydra", "-n", "4", "train"], True, "leave elastic out"),
        (["mpirun", "python", "train.py", "-c", "cfg.yaml"], True, ""),
        (["mpirun", "--allow-run-as-root", "-x", "-n", "./train", "-n", "4"], True, ""),
        (["mpirun", "--mca", "btl", "tcp,self", "--map-by=slot", "-np", "4", "train"], True, "-np asks for"),
        (["mpiexec", "-genv", "A", "-n", "-ppn", "8", "train", "-np", "4"], True, ""),
        (["mpirun", "--of-another-release", "3", "-n", "4", "train"], True, ""),
        (["mpirun", "-n"], True, "-n asks for"),
        (["mpirun", "--mca"], True, ""),
        (["./start.sh", "-n", "4"], True, ""),
        (["/venv/bin/torchrun", "train.py"], False, "put mpirun in front"),
    ],
)
def test_what_leaves_nodes_idle_or_fits_one_size_alone_is_refused(
    command: list[str], elastic: bool, words: str
) -> None:
    asked = launched("MPI", command, nodes=4, **({"elastic": {"min": 2}} if elastic else {}))
    problems = launcher_of(asked).problems(asked)
    assert [problem.field for problem in problems] == (["spec.command"] if words else [])
    assert all(words in problem.message for problem in problems)
