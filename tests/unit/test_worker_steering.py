"""What the worker asks of a program and what it sees of it, with real processes."""

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.fake_operator import FakeOperator
from harness.proc import is_alive
from harness.running_worker import (
    RUN_UID,
    LaunchWorker,
    RunningWorker,
    commit_shared,
    exited,
    pid_in,
    ready,
    run_attempt,
    until,
)
from lockstep.worker.agent import Worker
from lockstep.worker.node import warmup
from lockstep.worker.settings import Settings

pytestmark = pytest.mark.process

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


@pytest.fixture
def launch(tmp_path: Path, operator: FakeOperator) -> Iterator[LaunchWorker]:
    """Starts workers, each in a directory of its own."""
    workers: list[RunningWorker] = []

    def start(*command: str, wrapper: tuple[str, ...] = (), **environ: str) -> RunningWorker:
        directory = tmp_path / f"worker-{len(workers)}"
        directory.mkdir()
        environ = {"LOCKSTEP_SLOT": str(len(workers)), **environ}
        workers.append(RunningWorker(directory, operator, list(command), wrapper, **environ))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()


def python(script: str, *arguments: Path) -> list[str]:
    return [sys.executable, "-c", script, *map(str, arguments)]


def config(worker_directory: Path, **more: str) -> str:
    return json.dumps({"shared": str(worker_directory), "local": "", "runUid": RUN_UID, **more})


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def control_of(worker: RunningWorker, attempt: int = 1) -> dict[str, Any]:
    path = worker.scratch / f"a{attempt}" / "control.json"
    control: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"save": None, "stop": None}
    return control


def everyone_ready(operator: FakeOperator, attempt: int, slots: int) -> list[dict[str, Any]]:
    operator.desire("Prepare", attempt, world=slots)
    return [
        operator.wait_for(lambda s, slot=slot: s["slot"] == slot and s["readyFor"] == attempt) for slot in range(slots)
    ]


# What counts as the operator's word


def test_a_reply_that_a_newer_one_has_overtaken_changes_nothing(tmp_path: Path) -> None:
    identity = {"operator_url": "https://x", "namespace": "a", "run": "r", "run_uid": "u", "pod_uid": "p"}
    worker = Worker(Settings(**identity, slot=0, incarnation=1, command=["true"], scratch=str(tmp_path)))

    def hears(phase: str, revision: int, at: float, epoch: int = 1) -> tuple[str, int]:
        reply = {"epoch": [epoch, 0], "revision": revision, "heartbeatSeconds": 2, "phase": phase, "serverTime": at}
        worker._take_desired(reply, [])
        return worker.operator.desired["phase"], worker.link.seen

    assert hears("Prepare", 7, 1000.0) == ("Prepare", 7)
    assert hears("Run", 6, 999.9) == ("Prepare", 7)
    assert hears("Run", 8, 1000.0) == ("Run", 8)
    assert hears("Stop", 2, 1001.0) == ("Stop", 2)  # the operator forgot the run, and counts anew
    assert hears("Run", 3, 500.0) == ("Run", 3)  # its clock was set back
    assert hears("Prepare", 1, 499.0, epoch=2) == ("Prepare", 1)  # another leader has a clock of its own
    assert hears("Stop", 9, 2000.0, epoch=1) == ("Prepare", 1)
    worker._take_desired({"epoch": [3, 0], "revision": 1, "phase": "Complete"}, [])  # not understood
    assert (worker.operator.desired["phase"], worker.link.epoch) == ("Prepare", [2, 0])


def test_an_operator_whose_lease_was_set_back_is_obeyed_once_nobody_else_has_answered_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = {"operator_url": "https://x", "namespace": "a", "run": "r", "run_uid": "u", "pod_uid": "p"}
    worker = Worker(Settings(**identity, slot=0, incarnation=1, command=["true"], scratch=str(tmp_path)))
    moment = 1000.0
    monkeypatch.setattr("lockstep.worker.agent.time.monotonic", lambda: moment)

    def hears(phase: str, epoch: int, at: float) -> str:
        nonlocal moment
        moment = at
        reply = {"epoch": [100, epoch], "revision": 1, "heartbeatSeconds": 2, "phase": phase, "serverTime": at}
        worker._take_desired(reply, [])
        return str(worker.operator.desired["phase"])

    assert hears("Prepare", 7, 1000.0) == "Prepare"
    assert hears("Stop", 5, 1001.0) == "Prepare"
    assert hears("Stop", 5, 1030.0) == "Prepare"
    assert hears("Prepare", 7, 1030.5) == "Prepare"  # the leader is there: the other one was replaced
    assert hears("Stop", 5, 1031.0) == "Prepare"
    assert hears("Stop", 5, 1060.0) == "Prepare"
    assert hears("Stop", 5, 1061.0) == "Stop"
    assert worker.link.epoch == [100, 5]
    assert hears("Run", 6, 1062.0) == "Run"


# Saves


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


# Leaving

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


# Signs


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


# Stacks

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


# At the barrier, and on the way from it


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
