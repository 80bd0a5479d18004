"""The stacks that the worker reports of a program that stands still, with real processes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.fake_operator import FakeOperator
from harness.running_worker import LaunchWorker, run_attempt, until
from support.steered_workers import each_in_its_own_directory, python

pytestmark = pytest.mark.process


@pytest.fixture
def launch(tmp_path: Path, operator: FakeOperator) -> Iterator[LaunchWorker]:
    with each_in_its_own_directory(tmp_path, operator) as start:
        yield start


DEADLOCK = """
import threading, sys, time
IMPORT
lock = threading.Lock()
def wait_for_ever():
    lock.acquire()
    lock.acquire()
open(sys.argv[1], "w").write("1")
wait_for_ever()
"""


def test_the_stack_of_a_deadlocked_program_is_in_the_report_and_in_the_log(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    worker = launch(*python(DEADLOCK.replace("IMPORT", "import lockstep_training"), tmp_path / "up"))
    run_attempt(operator, 1)
    until((tmp_path / "up").exists)
    operator.run(1, stacks="a1-1")
    stacks = operator.wait_for(lambda s: s.get("stacks"))["stacks"]
    assert stacks["id"] == "a1-1"
    assert "wait_for_ever (<string>:7) < <module> (<string>:9)" in stacks["text"]
    until(lambda: "stacks id=a1-1 end" in worker.stderr())
    log = worker.stderr()
    begin, end = log.index("stacks id=a1-1 begin"), log.index("stacks id=a1-1 end")
    assert 'File "<string>", line 7 in wait_for_ever' in log[begin:end]
    assert operator.states()[-1]["phase"] == "Running"


def test_a_program_that_offers_no_stacks_is_never_sent_a_signal_and_the_kernel_is_asked(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    launch(*python(DEADLOCK.replace("IMPORT", ""), tmp_path / "up"))
    run_attempt(operator, 1)
    until((tmp_path / "up").exists)
    operator.run(1, stacks="a1-1")
    text = operator.wait_for(lambda s: s.get("stacks"))["stacks"]["text"]
    assert text.startswith("python")
    assert operator.states()[-1]["phase"] == "Running"


def test_a_stopped_process_is_named_as_stopped(operator: FakeOperator, launch: LaunchWorker, tmp_path: Path) -> None:
    launch(*python(DEADLOCK.replace("IMPORT", "import lockstep_training, os"), tmp_path / "up"), PATH="/usr/bin:/bin")
    run_attempt(operator, 1)
    until((tmp_path / "up").exists)
    (scratch_file,) = (tmp_path / "worker-0" / "scratch" / "a1").glob("stacks.*")
    pid = int(scratch_file.suffix[1:])
    os.kill(pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    operator.run(1, stacks="a1-1")
    text = operator.wait_for(lambda s: s.get("stacks"))["stacks"]["text"]
    assert "[stopped by a signal]" in text
