"""Workers at the barrier and on the way from it, with real processes."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.fake_operator import FakeOperator
from harness.running_worker import LaunchWorker, ready, run_attempt, until
from lockstep.worker.node import warmup
from support.steered_workers import each_in_its_own_directory, everyone_ready, python

pytestmark = pytest.mark.process


@pytest.fixture
def launch(tmp_path: Path, operator: FakeOperator) -> Iterator[LaunchWorker]:
    with each_in_its_own_directory(tmp_path, operator) as start:
        yield start


def test_workers_at_the_barrier_try_the_network_and_say_who_does_not_answer(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    operator.ranks = {0: 0, 1: 1}
    for _ in range(2):
        launch("true")
    reports = everyone_ready(operator, 1, 2)
    ports = [report["port"] for report in reports]
    wanted = {"id": "w1", "kind": "Ring", "addresses": ["127.0.0.1"] * 2, "ports": ports}
    operator.desire("Prepare", 1, world=2, warmUp=wanted)
    for slot in range(2):
        warmed = operator.wait_for(lambda s, slot=slot: s["slot"] == slot and s.get("warmed"))["warmed"]
        assert warmed["id"] == "w1"
        assert (warmed["peer"], warmed["problem"]) == (-1, "")
        assert 0 < warmed["seconds"] < warmup.EXCHANGE_SECONDS
    assert [s["port"] for s in operator.states()[-1:]] == [ports[operator.states()[-1]["slot"]]]


def test_ranks_start_spread_over_the_jitter_and_may_be_stopped_before_their_turn(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    operator.ranks = {0: 0, 1: 1}
    for slot in range(2):
        launch("sh", "-c", f"touch {tmp_path}/started-{slot}; exec sleep 100")
    everyone_ready(operator, 1, 2)
    operator.run(1, world=2, jitterSeconds=60)
    for slot in range(2):  # both acknowledge START at once
        operator.wait_for(lambda s, slot=slot: s["slot"] == slot and s["phase"] == "Running" and s["attempt"] == 1)
    until((tmp_path / "started-0").exists)
    operator.desire("Stop", 1, world=2)
    ended = operator.wait_for(lambda s: s["slot"] == 1 and s["phase"] == "Exited")
    assert ended["exit"]["reason"] == "StoppedOnRequest"
    assert not (tmp_path / "started-1").exists()
    # The attempt counts as run.
    operator.desire("Prepare", 1, world=2)
    operator.wait_for(lambda s: s["slot"] == 1 and s["seen"] == operator._revision)
    assert operator.states()[-1]["readyFor"] == 0


def test_too_little_space_for_local_checkpoints_is_found_before_the_barrier(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    launch("true", LOCKSTEP_PREFLIGHT=json.dumps({"minDisk": 1 << 60}))
    operator.desire("Prepare", 1)
    problem = operator.wait_for(lambda s: s["problem"])["problem"]
    assert problem.endswith("MiB are free where local checkpoints go, 1099511627776 MiB are asked for")


def test_a_program_that_fills_the_scratch_volume_harms_neither_the_worker_nor_the_next_attempt(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    scratch = tmp_path / "worker-0" / "scratch"
    inside = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=256k none {scratch} && exec "$@"', "sh")
    if os.geteuid():
        inside = (inside[0], "--user", "--map-root-user", *inside[1:])
    fill = "import os, time\nfile = os.open(os.environ['LOCKSTEP_PROGRESS_FILE'], os.O_WRONLY)\ntry:\n"
    fill += f"  while True: os.write(file, b'x' * 4096)\nexcept OSError: open('{tmp_path}/full', 'w')\ntime.sleep(100)"
    worker = launch(*python(fill), wrapper=inside)
    run_attempt(operator, 1)
    until((tmp_path / "full").exists)
    save = {"id": "s1", "atStep": 5, "deadline": time.time() + 60, "reason": ""}
    operator.run(1, save=save)
    until(lambda: "cannot be told to save or to stop: No space left" in worker.stderr())
    assert ready(operator, 2)["attempt"] == 1
    assert worker.process.poll() is None
