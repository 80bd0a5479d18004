"""How a program is told when to save and when to stop, with real processes."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.fake_operator import FakeOperator
from harness.proc import is_alive
from harness.running_worker import RUN_UID, LaunchWorker, commit_shared, exited, pid_in, ready, run_attempt, until
from support.steered_workers import control_of, each_in_its_own_directory, everyone_ready, python

pytestmark = pytest.mark.process


@pytest.fixture
def launch(tmp_path: Path, operator: FakeOperator) -> Iterator[LaunchWorker]:
    with each_in_its_own_directory(tmp_path, operator) as start:
        yield start


TRAINER = """
import os, sys, time
sys.path.insert(0, "")
import lockstep_training as lockstep

out = open(sys.argv[1], "a", buffering=1)
step = 0
while True:
    step += 1
    time.sleep(0.02)
    lockstep.report(step, loss=1.0)
    if lockstep.should_checkpoint(step):
        with lockstep.saving(step):
            time.sleep(0.05)
            print(os.getpid(), step, lockstep.checkpoint_directory(step), file=out)
        if lockstep.should_stop():
            break
"""


def config(worker_directory: Path, **more: str) -> str:
    return json.dumps({"shared": str(worker_directory), "local": "", "runUid": RUN_UID, **more})


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_a_save_is_taken_up_once_by_every_process_at_the_same_step(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    both = f"{sys.executable} -c '{TRAINER}' $0 & {sys.executable} -c '{TRAINER}' $0"
    for rank in range(2):
        operator.ranks[rank] = rank
        launch("sh", "-c", both, str(tmp_path / f"saves-{rank}"))
    everyone_ready(operator, 1, 2)
    operator.run(1, world=2)
    for slot in range(2):
        state = operator.wait_for(lambda s, slot=slot: s["slot"] == slot and s.get("listens") and s["progress"])
        assert state.get("saved", "") == ""
    at_step = 150 + max(state["progress"]["step"] for state in operator.states() if state.get("progress"))
    save = {"id": "s1", "atStep": at_step, "deadline": time.time() + 60, "reason": "Requested"}
    operator.run(1, world=2, save=save)
    for slot in range(2):
        operator.wait_for(lambda s, slot=slot: s["slot"] == slot and s.get("saved") == "s1")
    until(lambda: sum(len(lines(tmp_path / f"saves-{rank}")) for rank in range(2)) == 4)
    operator.run(1, world=2, save={**save, "deadline": save["deadline"] + 1})  # said again, of the same id
    count = len(operator.requests)
    operator.wait_for(lambda s: s["progress"]["step"] > at_step + 20, since=count)
    saved = [line for rank in range(2) for line in lines(tmp_path / f"saves-{rank}")]
    assert [int(step) for _, step, _ in saved] == [at_step] * 4
    assert len({pid for pid, _, _ in saved}) == 4


def test_a_program_that_never_asks_does_not_listen(operator: FakeOperator, launch: LaunchWorker) -> None:
    launch("sh", "-c", "while :; do echo '{\"step\": 1}' >> $LOCKSTEP_PROGRESS_FILE; sleep 0.1; done")
    run_attempt(operator, 1)
    assert operator.wait_for(lambda s: s["progress"])["listens"] is False


def test_the_cadence_and_the_end_reach_the_program(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    worker = launch(*python(TRAINER, tmp_path / "saves"))
    run_attempt(operator, 1, cadence={"seconds": 1.0, "steps": 10, "sharedSteps": 20})
    until(lambda: len(lines(tmp_path / "saves")) >= 4)
    saved = {int(step): directory for _, step, directory in lines(tmp_path / "saves")}
    assert list(saved)[:4] == [10, 20, 30, 40]
    local, shared = str(worker.local / RUN_UID / "a1"), str(worker.shared / RUN_UID / "a1")
    assert [saved[step] for step in (10, 20, 30, 40)] == [local, shared, local, shared]
    until(lambda: any(s.get("timing", {}).get("saveBlock") for s in operator.states()))
    at_step = 150 + max(state["progress"]["step"] for state in operator.states() if state.get("progress"))
    save = {"id": "s1", "atStep": at_step, "deadline": time.time() + 60, "reason": "Suspended"}
    cadence = {"seconds": 1.0, "steps": 10, "sharedSteps": 20}
    operator.run(1, save=save, stoppingAt=time.time() + 60, cadence=cadence)
    # It did what it was told: that is no completion, or the run would end with the steps that are left undone.
    assert exited(operator, 1)["exit"] | {"at": 0} == {
        "code": 0, "signal": None, "at": 0, "reason": "StoppedOnRequest", "stderrTail": "",
    }  # fmt: skip
    assert int(lines(tmp_path / "saves")[-1][1]) == at_step  # with the save that was asked for, not the one before it


def test_times_in_the_control_file_are_those_of_this_machines_clock(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    operator.clock_ahead = 1000.0
    worker = launch("sleep", "100")
    ready(operator, 1)
    save = {"id": "s1", "atStep": 5, "deadline": time.time() + operator.clock_ahead + 60, "reason": ""}
    operator.run(1, save=save)
    until(lambda: control_of(worker)["save"])
    assert abs(control_of(worker)["save"]["deadline"] - time.time() - 60) < 20


SAVES_ON_SIGNAL = """
import os, signal, sys, time
def save(number, frame):
    print(os.getpid(), file=open(sys.argv[1], "a"))
signal.signal(signal.SIGUSR1, save)
if not os.fork():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(100)   # has inherited the handler, as the workers of a data loader do
print(os.getpid(), file=open(sys.argv[1] + ".pid", "w"))
step = 0
while True:
    step += 1
    print('{"step": %d}' % step, file=open(os.environ["LOCKSTEP_PROGRESS_FILE"], "a"))
    time.sleep(0.05)
"""


def test_a_signal_to_save_reaches_only_the_process_that_catches_it(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    got = tmp_path / "got"
    # The shell and its `sleep` would die of the signal.
    (tmp_path / "train.py").write_text(SAVES_ON_SIGNAL)
    command = f"sleep 1000 & echo $! > {tmp_path}/bystander; {sys.executable} {tmp_path}/train.py {got}; :"
    shared = tmp_path / "worker-0" / "shared"
    worker = launch("sh", "-c", command, LOCKSTEP_CHECKPOINT_CONFIG=config(shared, signal="SIGUSR1"))
    run_attempt(operator, 1)
    operator.wait_for(lambda s: s.get("listens"))
    step = operator.wait_for(lambda s: s["progress"])["progress"]["step"]
    save = {"id": "s1", "atStep": step + 30, "deadline": time.time() + 60, "reason": "Requested"}
    operator.run(1, save=save)
    until(lambda: got.exists())
    assert operator.states()[-1]["progress"]["step"] >= step
    assert operator.states()[-1].get("saved") == ""
    commit_shared(worker, 1, step + 31, b"weights")
    operator.wait_for(lambda s: s.get("saved") == "s1")
    assert got.read_text().split() == [(tmp_path / "got.pid").read_text().strip()]  # once, and not the fork
    assert is_alive(pid_in(tmp_path / "bystander"))
