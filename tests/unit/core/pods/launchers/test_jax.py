"""JAX: the command as typed, with what jax.distributed.initialize() is to be given."""

import pytest

from lockstep.core.pods.launchers import launcher_of, plain_launcher_of
from lockstep.core.pods.launchers.rendezvous import Rendezvous
from support.launchers import launched


@pytest.mark.parametrize("world", [1, 4])
def test_every_rank_decides(world: int) -> None:
    assert launcher_of(launched("JAX", ["python", "t.py"])).deciding_ranks(world) == range(world)


def test_the_worker_needs_to_be_told_nothing() -> None:
    asked = launched("JAX", ["python", "t.py"])
    assert launcher_of(asked).options(asked, 8) == {}


@pytest.mark.parametrize(("address", "coordinator"), [("10.0.0.1", "10.0.0.1:20123"), ("fd00::1", "[fd00::1]:20123")])
def test_a_process_knows_coordinator_number_and_id(address: str, coordinator: str) -> None:
    told = plain_launcher_of(launched("JAX", ["x"])).environment(Rendezvous(1, 4, address, 20_123, 8))
    assert told == {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "1",
    }


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        (["python", "train.py"], ""),
        (["train.py", "torchrun"], ""),
        (["torchrun", "train.py"], "torchrun"),
        (["/usr/bin/mpirun", "python", "train.py"], "mpirun"),
        (["srun", "python"], "srun"),
    ],
)
def test_a_launcher_inside_a_launcher_is_refused_with_the_remedy(command: list[str], refused: str) -> None:
    asked = launched("JAX", command)
    problems = launcher_of(asked).problems(asked)
    assert [problem.field for problem in problems] == (["spec.command"] if refused else [])
    assert all(refused in problem.message and "leave launcher out" in problem.message for problem in problems)


def test_the_command_is_run_as_typed() -> None:
    asked = launched("JAX", ["python", "-u", "t.py"], entrypoint=["/init"])
    assert [*plain_launcher_of(asked).command(asked, Rendezvous(0, 1, "a", 1, 0))] == ["/init", "python", "-u", "t.py"]
