"""`launcher: MPI` in containers that have neither ssh nor root, and a root file system that nobody writes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from containers.launchers import secured
from containers.site import KindSite
from harness.training import TRAINER, TrainingRun

pytestmark = [pytest.mark.containers, pytest.mark.nightly]  # in every run tests/nodes has two mpiruns, on processes
SECONDS = 240.0
STEPS = 200
SAYS_WHO_IT_IS = """
import os, shutil, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
print("rank", world.rank, "of", world.size, "sum", total, "node", os.environ["LOCKSTEP_NODE_RANK"], "user", os.getuid(),
      "ssh", shutil.which("ssh", path="/opt/launchers/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"), flush=True)
"""


def with_mpi(site: KindSite, image: str, name: str, *command: str, **spec: Any) -> TrainingRun:
    return site.apply(
        name, 3, ["mpirun", *command], image=image, launcher={"type": "MPI", "mpi": {"slotsPerNode": 2}},
        podTemplate=secured(readOnlyRootFilesystem=True), **spec,
    )  # fmt: skip


def test_mpirun_starts_its_ranks_on_all_nodes_by_their_workers(site: KindSite, mpi_image: str) -> None:
    run = with_mpi(site, mpi_image, "hello", "python3", "-c", SAYS_WHO_IT_IS, checkpoint=None)
    run.wait_until_succeeded(SECONDS)
    said = sorted(line for line in run.log(0).splitlines() if line.startswith("rank "))
    assert said == [f"rank {rank} of 6 sum 15 node {rank // 2} user 65532 ssh None" for rank in range(6)]


def test_a_rank_of_mpirun_that_is_killed_is_named_and_all_resume_where_it_was_saved(
    site: KindSite, mpi_image: str
) -> None:
    trainer = ["python3", "-B", f"/app/{TRAINER.name}", f"--steps={STEPS}", "--later-delay=0.01"]
    run = with_mpi(site, mpi_image, "killed", "-n", "3", "--map-by", "node", *trainer)
    run.wait_until_saved(1, 20, SECONDS)
    pods, node = run.pod_uids, run.nodes[1]
    site.kill_inside(node, max(site.trainers(node)))  # its parent tells how it ended
    run.wait_until_succeeded(SECONDS)
    run.assert_undisturbed(STEPS)
    assert run.pod_uids == pods
    first = run.attempts[0]
    assert (first["rank"], first["node"]) == (1, node), run.summary()
    assert "signal 9" in first["message"], run.summary()


@pytest.mark.parametrize("group", ["openmpi4", "mpich", "impi-rt"])
def test_so_do_the_other_mpiruns(site: KindSite, launcher_image: Callable[[str], str], group: str) -> None:
    command = ["python3", "-c", SAYS_WHO_IT_IS]
    where = {"env": [{"name": "OPAL_PREFIX", "value": "/opt/launchers"}]} if group == "openmpi4" else {}
    run = with_mpi(site, launcher_image(group), f"hello-{group}", *command, checkpoint=None, **where)
    run.wait_until_succeeded(SECONDS)
    said = sorted(line for line in run.log(0).splitlines() if line.startswith("rank "))
    assert said == [f"rank {rank} of 6 sum 15 node {rank // 2} user 65532 ssh None" for rank in range(6)]
