"""A worker that is asked to leave: how long its program goes on, with real processes."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.fake_operator import FakeOperator
from harness.running_worker import LaunchWorker, exited, run_attempt, until
from support.steered_workers import control_of, each_in_its_own_directory, python

pytestmark = pytest.mark.process


@pytest.fixture
def launch(tmp_path: Path, operator: FakeOperator) -> Iterator[LaunchWorker]:
    with each_in_its_own_directory(tmp_path, operator) as start:
        yield start


LISTENS = """
import signal, sys, time
import lockstep_training as lockstep
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
step = 0
while True:
    step += 1
    lockstep.report(step)
    lockstep.should_checkpoint(step)
    time.sleep(0.05)
"""


def test_a_worker_that_is_asked_to_leave_keeps_a_listening_program_until_it_is_told_to_stop(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch(*python(LISTENS), LOCKSTEP_TERMINATION_GRACE="40")
    run_attempt(operator, 1)
    operator.wait_for(lambda s: s.get("listens"))
    worker.process.terminate()
    told = operator.wait_for(lambda s: s.get("leavingBy"))
    assert (told["phase"], told["problem"]) == ("Running", "")
    assert 25 < told["leavingBy"] - time.time() <= 35
    until(lambda: control_of(worker)["stop"])
    assert control_of(worker)["stop"]["at"] == pytest.approx(told["leavingBy"] - 5, abs=0.01)
    step = operator.states()[-1]["progress"]["step"]
    save = {"id": "s1", "atStep": step + 20, "deadline": time.time() + 20, "reason": "Leaving"}
    operator.run(1, save=save)
    operator.wait_for(lambda s: s.get("saved") == "s1")
    operator.desire("Stop", 1)
    assert exited(operator, 1)["exit"]["code"] == 7
    assert worker.wait() == 7


def test_a_listening_program_is_ended_in_time_when_nobody_says_anything(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch(*python(LISTENS), LOCKSTEP_TERMINATION_GRACE="8")
    run_attempt(operator, 1, stopGraceSeconds=3)
    operator.wait_for(lambda s: s.get("listens"))
    worker.process.terminate()
    asked = time.monotonic()
    ended = exited(operator, 1)["exit"]
    assert (ended["code"], ended["reason"]) == (7, "WorkerTerminated")
    assert time.monotonic() - asked > 2.0
    assert worker.wait() == 143


def test_a_worker_that_is_asked_to_leave_leaves_when_the_gang_starts_without_it(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch(*python(LISTENS), LOCKSTEP_TERMINATION_GRACE="60")
    run_attempt(operator, 1)
    operator.wait_for(lambda s: s.get("listens"))
    worker.process.terminate()
    operator.wait_for(lambda s: s.get("leavingBy"))
    operator.desire("Prepare", 2)
    assert worker.wait() == 143


def test_a_listening_program_of_a_run_that_nobody_knows_any_more_is_ended_at_once(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch(*python(LISTENS), LOCKSTEP_TERMINATION_GRACE="200")
    run_attempt(operator, 1)
    operator.wait_for(lambda s: s.get("listens"))
    operator.desire("Hold", 0, rank=-1, world=0)
    worker.process.terminate()
    ended = exited(operator, 1)["exit"]
    assert (ended["code"], ended["reason"]) == (7, "WorkerTerminated")
    assert worker.wait() == 143
