"""The demo's trainer, as real processes on the loopback interface: exact resumption, whole checkpoints."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lockstep.worker.checkpoints.formats import verify_checkpoint
from lockstep.worker.checkpoints.tiers import scan_tier

pytestmark = pytest.mark.process

TRAINER = Path(__file__).parents[3] / "e2e" / "demo" / "train_lm.py"
UID = "uid-of-run"
WORLD = 3  # does not divide the number of parameters, so the shards differ in size
TINY = ["--steps=12", "--save-every=4", "--batch=2", "--context=16", "--width=16", "--layers=1"]
DEADLINE = 120.0


@dataclass
class Gang:
    """One attempt of the trainer on all ranks."""

    run: Path
    attempt: int
    resume: Path | str = ""
    delay: float = 0.0
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        return self.run / "shared" / UID / f"a{self.attempt}"

    def start(self) -> "Gang":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.directory.mkdir(parents=True)
        for rank in range(WORLD):
            local = self.run / f"node-{rank}" / UID / f"a{self.attempt}"
            local.mkdir(parents=True)
            environment = {
                "PATH": os.environ["PATH"],
                "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
                "JAX_NUM_PROCESSES": str(WORLD),
                "JAX_PROCESS_ID": str(rank),
                "LOCKSTEP_RUN_UID": UID,
                "LOCKSTEP_ATTEMPT": str(self.attempt),
                "LOCKSTEP_NNODES": str(WORLD),
                "LOCKSTEP_CHECKPOINT_DIR": str(self.directory),
                "LOCKSTEP_LOCAL_CHECKPOINT_DIR": str(local),
                "LOCKSTEP_PROGRESS_FILE": str(self.directory / f"progress-{rank}.jsonl"),
                "LOCKSTEP_RESUME_PATH": str(self.resume).format(rank=rank),
                "LOCKSTEP_RESUME_STEP": str(self.resume).rpartition("-")[2],
            }
            command = [sys.executable, "-I", "-B", str(TRAINER), *TINY, f"--step-delay={self.delay}"]
            with (self.run / f"output-{self.attempt}-{rank}").open("wb") as output:
                self.processes.append(
                    subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
                )
        return self

    def finish(self) -> "Gang":
        codes = [process.wait(DEADLINE) for process in self.processes]
        assert codes == [0] * WORLD, self.output()
        return self

    def output(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.run.glob(f"output-{self.attempt}-*")))

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def lines(self, rank: int = 0, kind: str = "lineage-rank") -> list[dict[str, Any]]:
        path = self.directory / f"{kind}{rank}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def reached(self, step: int) -> bool:
        return any(line["step"] >= step for line in self.lines())


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture(scope="module")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Gang]]:
    """Starts attempts and makes sure that none outlives the tests."""
    started: list[Gang] = []

    def start(run: Path, attempt: int, **settings: Any) -> Gang:
        started.append(Gang(run, attempt, **settings))
        return started[-1].start()

    yield start
    for gang in started:
        gang.stop()


@pytest.fixture(scope="module")
def undisturbed(gangs: Callable[..., Gang], tmp_path_factory: pytest.TempPathFactory) -> Gang:
    return gangs(tmp_path_factory.mktemp("undisturbed"), 1).finish()


@pytest.fixture(scope="module")
def broken_off(gangs: Callable[..., Gang], tmp_path_factory: pytest.TempPathFactory) -> Gang:
    """An attempt that lost rank 1 after step 6 and its checkpoint of step 4; the others end by themselves."""
    gang = gangs(tmp_path_factory.mktemp("broken-off"), 1, delay=0.5)
    wait_for(lambda: gang.reached(6), gang.output())
    gang.processes[1].send_signal(signal.SIGKILL)
    codes = [process.wait(DEADLINE) for process in gang.processes]
    assert 0 not in codes
    return gang


def test_the_loss_falls_and_every_step_is_done_once(undisturbed: Gang) -> None:
    lineage = undisturbed.lines()
    assert [line["step"] for line in lineage] == list(range(1, 13))
    assert float(lineage[-1]["loss"]) < float(lineage[0]["loss"])


def test_all_ranks_see_the_same_loss_on_different_batches(undisturbed: Gang) -> None:
    first = [undisturbed.lines(rank)[0] for rank in range(WORLD)]
    assert len({line["loss"] for line in first}) == 1
    assert len({line["batch_hash"] for line in first}) == WORLD


def test_progress_tells_step_total_and_loss(undisturbed: Gang) -> None:
    last = undisturbed.lines(kind="progress-")[-1]
    assert (last["step"], last["total_steps"]) == (12, 12)
    assert isinstance(last["loss"], str)
    assert last["time"] == pytest.approx(time.time(), abs=10 * DEADLINE)


@pytest.mark.parametrize(("tier", "attempt"), [("shared", 2), ("node-{rank}", 3)])
def test_a_run_that_lost_a_rank_goes_on_bit_for_bit_from_either_tier(
    undisturbed: Gang, broken_off: Gang, gangs: Callable[..., Gang], tier: str, attempt: int
) -> None:
    resumed = gangs(broken_off.run, attempt, resume=broken_off.run / tier / UID / "a1" / "step-4").finish()
    for rank in range(WORLD):
        assert resumed.lines(rank) == undisturbed.lines(rank)[4:]
        shard = f"step-12/shard-{rank}.f32"
        assert (resumed.directory / shard).read_bytes() == (undisturbed.directory / shard).read_bytes()


def entry_of(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"name": path.name, "bytes": len(data), "crc32": f"{zlib.crc32(data):08x}"}


def test_the_shared_manifest_lists_every_ranks_file(undisturbed: Gang) -> None:
    checkpoint = undisturbed.directory / "step-8"
    assert json.loads((checkpoint / "manifest.json").read_text()) == {
        "format": "lockstep/1",
        "runUID": UID,
        "attempt": 1,
        "step": 8,
        "world": WORLD,
        "files": [entry_of(checkpoint / f"shard-{rank}.f32") for rank in range(WORLD)],
    }


def test_a_local_manifest_lists_its_ranks_file_and_names_the_rank(undisturbed: Gang) -> None:
    shard = undisturbed.run / "node-2" / UID / "a1" / "step-8" / "rank-2"
    manifest = json.loads((shard / "manifest.json").read_text())
    assert manifest["rank"] == 2
    assert manifest["files"] == [entry_of(shard / "shard-2.f32")]


def test_nothing_of_a_save_is_left_half_written(undisturbed: Gang) -> None:
    assert not list(undisturbed.run.rglob("*.tmp"))


@pytest.mark.parametrize(("tier", "root"), [("shared", "shared"), ("local", "node-1")])
def test_every_checkpoint_is_valid_as_the_worker_judges(undisturbed: Gang, tier: str, root: str) -> None:
    rows = scan_tier(tier, str(undisturbed.run / root), UID)
    assert [(row["step"], row["verdict"], row["world"]) for row in rows] == [
        (step, "Valid", WORLD) for step in (12, 8, 4)
    ]
    assert {verify_checkpoint(row["path"], run_uid=UID) for row in rows} == {("Valid", "")}
