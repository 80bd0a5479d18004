"""The signs and steps that the worker reports of what a program writes, with real processes."""

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.fake_operator import FakeOperator
from harness.running_worker import LaunchWorker, exited, ready, run_attempt, until
from support.steered_workers import each_in_its_own_directory

pytestmark = pytest.mark.process


@pytest.fixture
def launch(tmp_path: Path, operator: FakeOperator) -> Iterator[LaunchWorker]:
    with each_in_its_own_directory(tmp_path, operator) as start:
        yield start


def test_a_loss_that_jumped_is_reported_with_the_step_at_which_it_did(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    losses = [2.0] * 20 + [9.0] * 5
    lines = [json.dumps({"step": 100 * (number + 1), "loss": loss}) for number, loss in enumerate(losses)]
    launch("sh", "-c", f"printf '%s\\n' {shlex.join(lines)} >> $LOCKSTEP_PROGRESS_FILE; exit 1")
    run_attempt(operator, 1)
    (sign,) = exited(operator, 1)["signs"]
    assert (sign["kind"], sign["step"]) == ("Loss:Spike", 2100)


def test_signs_of_stderr_progress_and_last_words_are_reported(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    script = f"""
        echo '{{"step": 7, "loss": 2.0}}' >> $LOCKSTEP_PROGRESS_FILE; sleep 0.3
        echo '{{"step": 8, "loss": NaN}}' >> $LOCKSTEP_PROGRESS_FILE; sleep 0.3
        echo '{{"step": 9, "loss": NaN}}' >> $LOCKSTEP_PROGRESS_FILE; sleep 0.7
        echo 'NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.' >&2
        echo 'the GPU is gone' > {tmp_path}/worker-0/termination-log
        exit 1"""
    launch("sh", "-c", script)
    (tmp_path / "worker-0" / "termination-log").write_text("left by an earlier attempt")
    run_attempt(operator, 1)
    signs = {sign["kind"]: sign for sign in exited(operator, 1)["signs"]}
    assert signs["Loss:NaN"]["step"] == 8
    assert signs["Xid:79"]["step"] == 9
    assert signs["Message"]["text"] == "the GPU is gone"
    assert set(signs) == {"Loss:NaN", "Xid:79", "Message"}
    count = len(operator.requests)
    run_attempt(operator, 2)
    assert operator.wait_for(lambda s: s["attempt"] == 2, since=count).get("signs") is None


def test_the_first_failure_that_torchrun_kept_is_reported(operator: FakeOperator, launch: LaunchWorker) -> None:
    error = json.dumps({"message": {"message": "ValueError: bad shape", "extraInfo": {}}})
    launch("sh", "-c", f"echo '{error}' > $TORCHELASTIC_ERROR_FILE; exit 1")
    run_attempt(operator, 1)
    (sign,) = exited(operator, 1)["signs"]
    assert (sign["kind"], sign["text"]) == ("Message", "ValueError: bad shape")


def test_what_torchrun_kept_is_looked_at_as_stderr_is(operator: FakeOperator, launch: LaunchWorker) -> None:
    words = "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution"
    error = json.dumps({"message": {"message": f"{words}\nCompile with TORCH_USE_CUDA_DSA", "extraInfo": {}}})
    launch("sh", "-c", f"printf %s '{error}' > $TORCHELASTIC_ERROR_FILE; exit 1")
    run_attempt(operator, 1)
    found = {sign["kind"]: sign["text"] for sign in exited(operator, 1)["signs"]}
    assert found["CUDA:NvLink"] == words
    assert found["Message"].startswith(words)


def test_a_catastrophic_pattern_of_the_user_delays_neither_output_nor_heartbeats(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    script = f"""
        i=0; while [ $i -lt 50 ]; do printf '%03000d!\\n' 0 >&2; i=$((i+1)); done
        echo quick-fox >&2; echo out; touch {tmp_path}/printed; sleep 100"""
    worker = launch("sh", "-c", script)
    ready(operator, 1)
    rules = [{"name": "slow", "pattern": "(0+)+$"}, {"name": "fox", "pattern": "quick-f.x"}]
    operator.run(1, watch=rules)
    until((tmp_path / "printed").exists)
    printed = time.monotonic()
    until(lambda: "quick-fox\n" in worker.stderr() and worker.out.read_text() == "out\n")
    assert time.monotonic() - printed < 10
    count = len(operator.requests)
    operator.wait_for(lambda s: any(sign["kind"] == "Rule:fox" for sign in s.get("signs", ())))
    assert operator.wait_for(lambda s: True, since=count)  # heartbeats go on
    kinds = {sign["kind"] for sign in operator.states()[-1]["signs"]}
    assert kinds <= {"Rule:fox", "Watch:Problem"}


def test_steps_in_lines_of_the_runs_own_form_are_reported_and_its_last_one_too(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    script = f"""
        echo 'batch 7 of 90: error=2.5'; until [ -e {tmp_path}/go ]; do sleep 0.05; done
        printf 'batch 8 of 90: error=2.25' >&2"""
    launch("sh", "-c", script)
    ready(operator, 1)
    operator.run(1, progressPattern=r"batch (?P<step>\d+) of (?P<total>\d+): error=(?P<loss>\S+)")
    operator.wait_for(lambda s: s.get("progress") and s["progress"]["step"] == 7)
    (tmp_path / "go").touch()
    last = exited(operator, 1)["progress"]
    assert (last["step"], last["loss"], last["totalSteps"]) == (8, "2.25", 90)


def test_a_rule_is_matched_with_what_a_program_prints_right_before_its_end(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    launch("sh", "-c", "echo 'fatal: driver 7 lost' >&2; exit 1")
    run_attempt(operator, 1, watch=[{"name": "driver", "pattern": r"driver \d lost"}])
    (sign,) = exited(operator, 1)["signs"]
    assert (sign["kind"], sign["text"]) == ("Rule:driver", "fatal: driver 7 lost")
