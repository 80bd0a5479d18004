"""Real mpiruns find the nodes of a gang by their environment alone."""

import json
from collections.abc import Iterator

import pytest

from harness.machines import Machines, MachinesError, machines
from support.mpi import MISSING, Gang, Installation, installations

FOUND = installations()
pytestmark = [pytest.mark.process, pytest.mark.skipif(not FOUND, reason=MISSING)]
NODES, SLOTS = 4, 2
RANKS = NODES * SLOTS
TOTAL = RANKS * (RANKS + 1) // 2
PROGRAM = """
import json, os, socket
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.Get_rank() + 1)
rows = world.gather((world.Get_rank(), world.Get_size(), total, socket.gethostname()))
if rows:
    print(json.dumps(rows), flush=True)
"""


FAILING = """
import os, signal, time
from mpi4py import MPI
world = MPI.COMM_WORLD
world.Barrier()
if world.Get_rank() == 5:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


@pytest.fixture
def four() -> Iterator[Machines]:
    try:
        with machines(NODES) as made:
            yield made
    except MachinesError as error:
        pytest.skip(f"no machines can be made here: {error}")


@pytest.mark.parametrize("installation", FOUND, ids=[found.name for found in FOUND])
def test_mpirun_as_typed_starts_a_rank_in_every_slot_and_they_talk(installation: Installation, four: Machines) -> None:
    gang = Gang(installation, four, SLOTS, PROGRAM)
    ran = gang.train()
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [[rank, RANKS, TOTAL, f"node-{rank // SLOTS}"] for rank in range(RANKS)]
    called = {word for call in gang.calls() for word in call} & set(four.addresses)
    assert called - {four.addresses[0]} == set(four.addresses[1:])


@pytest.mark.parametrize("installation", FOUND, ids=[found.name for found in FOUND])
def test_it_fails_once_a_rank_on_another_node_is_killed(installation: Installation, four: Machines) -> None:
    assert Gang(installation, four, SLOTS, FAILING).train("-n", str(RANKS)).returncode != 0


@pytest.mark.parametrize("installation", FOUND, ids=[found.name for found in FOUND])
def test_in_a_batch_job_mpirun_starts_its_daemons_by_srun(installation: Installation, four: Machines) -> None:
    gang = Gang(installation, four, SLOTS, PROGRAM)
    gang.become_batch_job(SLOTS)
    ran = gang.train()
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [[rank, RANKS, TOTAL, f"node-{rank // SLOTS}"] for rank in range(RANKS)]
    calls = gang.calls()
    assert len([call for call in calls if call != ["--version"]]) == 1, calls
    assert "is ignored" not in ran.stderr
