"""`launcher: MPI` with real launchers: `mpirun` as typed, in pods without ssh."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import yaml

from containers.test_anywhere import QUICK
from harness.shown_commands import block_on
from harness.training import TRAINER, TrainingRun, TrainingSite
from support.mpi import MISSING, ROOT, Installation, installations

pytestmark = pytest.mark.nodes
nightly = pytest.mark.nightly  # one after the other they take more than every run has

NODES, STEPS = 4, 60
HELLO = """
import os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
print("rank", world.rank, "of", world.size, "sum", total, "node", os.environ.get("LOCKSTEP_NODE_RANK"), flush=True)
"""
FAILS = """
import os, sys
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 3:
    print("the sum is wrong", file=sys.stderr, flush=True)
    os._exit(3)
MPI.COMM_WORLD.Barrier()
"""
DAEMONS = ("orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy")
FOUND = installations()
PAGE = ROOT / "docs" / "mpi.md"


@pytest.fixture(params=FOUND or [None], ids=[each.name for each in FOUND] or ["none"])
def mpi(request: pytest.FixtureRequest) -> Installation:
    if request.param is None:
        pytest.skip(MISSING)
    found: Installation = request.param
    return found


def environment(mpi: Installation) -> list[dict[str, str]]:
    path = ":".join([*map(str, mpi.path), "/usr/local/bin", "/usr/bin", "/bin"])
    return [{"name": name, "value": value} for name, value in {**mpi.env, "PATH": path}.items()]


def train(site: TrainingSite, mpi: Installation, name: str, *options: str) -> TrainingRun:
    """The stub trainer, one rank on each node."""
    command = [*mpi.mpirun, "-n", str(NODES), "python3", "-B", f"/app/{TRAINER.name}", f"--steps={STEPS}"]
    words = [*command, "--save-every=10", *options, QUICK]
    return site.apply(name, NODES, words, launcher={"type": "MPI"}, env=environment(mpi))


def processes(run: TrainingRun) -> dict[int, list[tuple[int, list[str]]]]:
    """PIDs and commands by the node's rank, of all that the run has started."""
    found: dict[int, list[tuple[int, list[str]]]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            said = (folder / "environ").read_bytes().split(b"\0")
            environ = dict(entry.split(b"=", 1) for entry in said if b"=" in entry)
            command = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if environ.get(b"LOCKSTEP_RUN_UID") == run.uid.encode() and b"LOCKSTEP_NODE_RANK" in environ:
            found.setdefault(int(environ[b"LOCKSTEP_NODE_RANK"]), []).append((int(folder.name), command))
    return found


def trainer(run: TrainingRun, rank: int) -> int:
    (pid,) = [pid for pid, command in processes(run)[rank] if command[1:3] == ["-B", f"/app/{TRAINER.name}"]]
    return pid


def daemon(run: TrainingRun, rank: int) -> int:
    return min(pid for pid, command in processes(run)[rank] if Path(command[0]).name in DAEMONS)


def test_mpirun_as_typed_starts_its_ranks_on_all_nodes_of_the_gang(site: TrainingSite, mpi: Installation) -> None:
    run = site.apply(
        "hello", NODES, [*mpi.mpirun, "-n", str(2 * NODES), str(mpi.python), "-c", HELLO],
        launcher={"type": "MPI", "mpi": {"slotsPerNode": 2}}, env=environment(mpi), checkpoint=None,
    )  # fmt: skip
    run.wait_until_succeeded()
    said = sorted(line for line in run.log(0).splitlines() if line.startswith("rank "))
    assert said == [f"rank {rank} of 8 sum 28 node {rank // 2}" for rank in range(8)]


def test_the_program_of_the_page_runs_as_it_is_shown(site: TrainingSite, mpi: Installation, tmp_path: Path) -> None:
    spec = yaml.safe_load(block_on(PAGE, "yaml", "name: with-mpi"))["spec"]
    tmp_path.chmod(0o755)
    (tmp_path / "train.py").write_text(block_on(PAGE, "python", "from mpi4py import MPI"))
    where = {"mpirun": mpi.mpirun[0], "python3": str(mpi.python), "train.py": str(tmp_path / "train.py")}
    command = [where[word] for word in spec["command"]]
    run = site.apply(
        "shown", spec["nodes"], command, launcher=spec["launcher"], env=environment(mpi),
        checkpoint=spec["checkpoint"],
    )  # fmt: skip
    run.wait_until_succeeded()
    assert "the slope is 3.0000" in run.log(0)
    assert run.status["checkpoint"]["latest"][0]["step"] == 60


def test_a_rank_that_is_killed_ends_the_attempt_and_all_start_again_in_their_pods(
    site: TrainingSite, mpi: Installation
) -> None:
    run = train(site, mpi, "killed", "--hold-after=12")
    run.wait_until_saved(1, 10)
    pods = run.pod_uids
    os.kill(trainer(run, 2), signal.SIGKILL)
    run.wait_until_succeeded()
    assert run.pod_uids == pods
    run.assert_undisturbed(STEPS)
    entry = run.attempts[0]
    assert (entry["action"], entry["rank"], entry["exitCode"]) == ("RestartInPlace", 2, 137), entry
    named = "a process of step mpirun" if mpi.name == "MPICH" else "python3, rank 2 of MPI,"
    assert f"{named} ended with signal 9" in entry["message"]


@nightly
def test_a_rank_that_fails_is_named_with_its_node_its_code_and_its_last_words(
    site: TrainingSite, mpi: Installation
) -> None:
    if mpi.name == "MPICH":
        pytest.skip("it ends with the code, and says nothing of the rank")
    run = site.apply(
        "failed", NODES, [*mpi.mpirun, "-n", str(2 * NODES), str(mpi.python), "-c", FAILS],
        launcher={"type": "MPI", "mpi": {"slotsPerNode": 2}}, env=environment(mpi), checkpoint=None,
    )  # fmt: skip
    run.wait("an attempt is over", lambda: "cause" in run.attempts[0] if run.attempts else None)
    entry = run.attempts[0]
    assert (entry["rank"], entry["exitCode"]) == (1, 3), entry
    assert ", rank 3 of MPI, ended with exit code 3: the sum is wrong" in entry["message"]


@nightly
def test_a_daemon_that_is_killed_ends_the_attempt_by_its_node(site: TrainingSite, mpi: Installation) -> None:
    run = train(site, mpi, "daemon", "--hold-after=12")
    run.wait_until_saved(1, 10)
    os.kill(daemon(run, 1), signal.SIGKILL)
    run.wait_until_succeeded()
    run.assert_undisturbed(STEPS)
    assert run.attempts[0]["rank"] == 1, run.attempts[0]


@nightly
def test_a_node_that_is_lost_is_replaced_and_all_resume(larger_site: TrainingSite, mpi: Installation) -> None:
    run = train(larger_site, mpi, "lost", "--hold-after=12")
    run.wait_until_saved(1, 10)
    lost = run.nodes[2]
    larger_site.kill_node(lost)
    larger_site.declare_not_ready(lost)
    run.wait_until_succeeded()
    run.assert_undisturbed(STEPS)
    assert lost not in run.nodes


@nightly
def test_an_operator_that_is_killed_is_missed_by_nobody(site: TrainingSite, mpi: Installation) -> None:
    run = train(site, mpi, "alone")
    run.wait_until_saved(1, 10)
    site.kill_operator()
    run.wait_until_succeeded()
    assert len(run.attempts) == 1
    run.assert_undisturbed(STEPS)


@nightly
def test_a_run_that_is_suspended_saves_first_and_resumes_there(site: TrainingSite, mpi: Installation) -> None:
    run = train(site, mpi, "paused", "--listen", "--step-delay=0.2", "--save-every=100000")
    run.wait_until_step(1, 12)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods)
    save = run.status["checkpoint"]["save"]
    assert (save["outcome"], save["step"]) == ("Saved", save["atStep"])
    run.change(suspend=False)
    run.wait_until_succeeded()
    assert run.status["start"]["resume"]["step"] == save["step"]
    run.assert_undisturbed(STEPS)
