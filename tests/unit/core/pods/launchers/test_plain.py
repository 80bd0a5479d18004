"""Plain: the command as typed, with the rendezvous in its environment."""

import pytest

from lockstep.core.pods.launchers import launcher_of, plain_launcher_of
from lockstep.core.pods.launchers.rendezvous import Rendezvous
from support.launchers import launched


@pytest.mark.parametrize("world", [1, 4])
def test_every_rank_decides(world: int) -> None:
    asked = launched("Plain", ["python", "t.py"])
    assert launcher_of(asked).deciding_ranks(world) == range(world)


def test_the_worker_needs_to_be_told_nothing() -> None:
    asked = launched("Plain", ["python", "t.py"])
    assert launcher_of(asked).options(asked, 8) == {}


@pytest.mark.parametrize(("gpus", "processes"), [(8, {"PET_NPROC_PER_NODE": "8"}), (0, {})])
def test_torch_finds_its_peers_by_variables(gpus: int, processes: dict[str, str]) -> None:
    told = plain_launcher_of(launched("Plain", ["x"])).environment(Rendezvous(1, 4, "10.0.0.1", 20_123, gpus))
    assert told == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20123",
        "NNODES": "4",
        "NODE_RANK": "1",
        "PET_NNODES": "4",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "20123",
        "PET_RDZV_BACKEND": "static",
        **processes,
    }


@pytest.mark.parametrize("command", [["python", "train.py"], ["torchrun", "train.py"], ["mpirun", "x"]])
def test_any_command_will_do_and_is_run_as_typed(command: list[str]) -> None:
    asked = launched("Plain", command, entrypoint=["/init"])
    ours = plain_launcher_of(asked)
    assert ours.problems(asked) == []
    assert [*ours.command(asked, Rendezvous(0, 1, "a", 1, 0))] == ["/init", *command]
