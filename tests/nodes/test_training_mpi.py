"""`launcher: MPI` with real launchers: `mpirun` as typed, in pods without ssh."""

from __future__ import annotations

import pytest

from harness.training import TrainingSite
from support.mpi import MISSING, Installation, installations

pytestmark = pytest.mark.nodes

HELLO = """
import os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
print("rank", world.rank, "of", world.size, "sum", total, "node", os.environ.get("LOCKSTEP_NODE_RANK"), flush=True)
"""
FOUND = installations()


@pytest.fixture(params=FOUND or [None], ids=[each.name for each in FOUND] or ["none"])
def mpi(request: pytest.FixtureRequest) -> Installation:
    if request.param is None:
        pytest.skip(MISSING)
    found: Installation = request.param
    return found


def test_mpirun_as_typed_starts_its_ranks_on_all_nodes_of_the_gang(site: TrainingSite, mpi: Installation) -> None:
    path = ":".join([*map(str, mpi.path), "/usr/local/bin", "/usr/bin", "/bin"])
    env = [{"name": name, "value": value} for name, value in {**mpi.env, "PATH": path}.items()]
    run = site.apply(
        "hello", 3, [*mpi.mpirun, "-n", "6", str(mpi.python), "-c", HELLO],
        launcher={"type": "MPI", "mpi": {"slotsPerNode": 2}}, env=env, checkpoint=None,
    )  # fmt: skip
    run.wait_until_succeeded()
    said = sorted(line for line in run.log(0).splitlines() if line.startswith("rank "))
    assert [line.partition(" node")[0] for line in said] == [f"rank {rank} of 6 sum 15" for rank in range(6)]
