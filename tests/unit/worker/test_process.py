"""The worker as a real process, with real children, against a fake operator."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.fake_operator import DEADLINE, FakeOperator
from harness.proc import children, is_alive
from harness.running_worker import (
    RUN_UID,
    LaunchWorker,
    commit_shared,
    exited,
    pid_in,
    ready,
    run_attempt,
    until,
)
from lockstep.cli.views import bundle

pytestmark = pytest.mark.process

CONTRACT = """
    CONTRACT RUN RUN_UID ATTEMPT NODE_RANK NNODES NODELIST_FILE MASTER_ADDR MASTER_PORT RESUME_PATH RESUME_STEP
    RESUME_DIR CHECKPOINT_DIR LOCAL_CHECKPOINT_DIR PROGRESS_FILE CONTROL_FILE SAVED_FILE
    STACK_FILE"""


def test_from_the_barrier_to_the_end_of_the_run(operator: FakeOperator, launch: LaunchWorker) -> None:
    worker = launch("sh", "-c", "printf 'out\\377'; printf 'err\\376' >&2; exit 3")
    registered = operator.wait_for(lambda state: state["phase"] == "Preparing")
    assert (registered["run"], registered["node"], registered["address"]) == ("hello", "node-a", "127.0.0.1")
    at_barrier = ready(operator, 1)
    assert 20000 <= at_barrier["port"] < 30000
    assert at_barrier["inventory"] == []
    operator.run(1)
    report = exited(operator, 1)
    assert report["exit"]["code"] == 3
    assert report["exit"]["reason"] == "Error"
    assert report["exit"]["signal"] is None
    assert report["exit"]["stderrTail"] == "err\ufffd"
    assert report["start"]["masterPort"] == 40123
    operator.desire("Complete", 1)
    assert worker.wait() == 3
    assert worker.out.read_bytes() == b"out\xff"
    marks = worker.err.read_bytes()
    assert b"lockstep: attempt=1 rank=0 node=node-a resume=none world=1 master=10.1.0.1:40123 start\nerr\xfe\n" in marks
    assert b"lockstep: attempt=1 node=node-a end code=3 reason=Error" in marks
    assert list(bundle.inventories_of(marks)) == [(1, "no checkpoint")]
    assert list(bundle.exits_of(marks)) == [(1, "code 3 (Error)")]


def test_the_child_gets_the_contract_and_nothing_that_steers_the_worker(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    script = "import os, sys, json; json.dump([dict(os.environ), sys.argv[1:], open(os.environ['LOCKSTEP_NODELIST_FILE']).read()], open(sys.argv[1], 'w'))"  # noqa: E501
    worker = launch(sys.executable, "-c", script, str(seen), "$(LOCKSTEP_RESUME_PATH)", "$$(LOCKSTEP_RUN)", "$(NOPE)",
                    LOCKSTEP_ARRAY_INDEX="7", SLURM_ARRAY_TASK_ID="7")  # fmt: skip
    ready(operator, 2, rank=1, world=2)
    operator.run(2, rank=1, world=2, resume={"tier": "shared", "step": 300, "path": "/shared/step-300"})
    assert exited(operator, 2)["exit"]["reason"] == "Completed"
    environment, arguments, nodelist = json.loads(seen.read_text())
    assert arguments[1:] == ["/shared/step-300", "$(LOCKSTEP_RUN)", "$(NOPE)"]
    assert nodelist == "10.1.0.1\n10.1.0.2\n"
    expected = {
        "LOCKSTEP_CONTRACT": "1", "LOCKSTEP_ATTEMPT": "2", "LOCKSTEP_NODE_RANK": "1", "LOCKSTEP_NNODES": "2",
        "LOCKSTEP_MASTER_ADDR": "10.1.0.1", "LOCKSTEP_MASTER_PORT": "40123", "LOCKSTEP_RESUME_STEP": "300",
        "LOCKSTEP_CHECKPOINT_DIR": str(worker.shared / RUN_UID / "a2"),
        "LOCKSTEP_LOCAL_CHECKPOINT_DIR": str(worker.local / RUN_UID / "a2"),
        "LOCKSTEP_ARRAY_INDEX": "7", "SLURM_ARRAY_TASK_ID": "7",
        "MASTER_ADDR": "10.1.0.1", "NODE_RANK": "1", "PET_NNODES": "2", "PET_MASTER_PORT": "40123",
    }  # fmt: skip
    assert {key: environment.get(key) for key in expected} == expected
    assert Path(expected["LOCKSTEP_CHECKPOINT_DIR"]).is_dir()
    made = {name for name in environment if name.startswith("LOCKSTEP_")}
    assert made == {f"LOCKSTEP_{name}" for name in CONTRACT.split()} | {"LOCKSTEP_ARRAY_INDEX"}


def test_a_restart_in_place_ends_every_process_of_the_older_attempt_first(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    # The grandchild leaves the session and shrugs off SIGTERM; the child does not react to it either.
    script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > \"$0\"; while :; do sleep 1; done' {} & wait; wait"
    launch("sh", "-c", script.format(tmp_path / "pid"))
    run_attempt(operator, 1)
    stray = pid_in(tmp_path / "pid")
    operator.wait_for(lambda state: state["phase"] == "Running")
    asked = time.monotonic()
    report = ready(operator, 2)
    assert not is_alive(stray)
    assert time.monotonic() - asked > 1.5
    assert report["attempt"] == 1
    assert report["exit"]["reason"] == "StoppedForRestart"
    assert report["exit"]["signal"] == signal.SIGKILL


def test_on_its_way_to_the_barrier_it_says_nothing_of_its_own_accord_before_it_is_there(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    launch("sleep", "100")
    run_attempt(operator, 1)
    operator.wait_for(lambda state: state["phase"] == "Running")
    before = len(operator.states())
    ready(operator, 2)
    pushed = [state["phase"] for state in operator.states()[before:] if not state["waitSeconds"]]
    assert "Ready" in pushed
    assert not {"Stopping", "Preparing", "Exited"} & set(pushed)


def test_what_a_child_leaves_behind_ends_with_it(operator: FakeOperator, launch: LaunchWorker, tmp_path: Path) -> None:
    launch(
        "sh", "-c", f"setsid sh -c 'echo $$ > {tmp_path}/pid; sleep 100' & while [ ! -s {tmp_path}/pid ]; do :; done"
    )
    run_attempt(operator, 1)
    exited(operator, 1)
    stray = pid_in(tmp_path / "pid")
    until(lambda: not is_alive(stray))


def test_an_attempt_is_never_run_twice(operator: FakeOperator, launch: LaunchWorker, tmp_path: Path) -> None:
    worker = launch("sh", "-c", f"echo once >> {tmp_path}/ran")
    run_attempt(operator, 1)
    exited(operator, 1)
    for _ in range(3):
        operator.desire("Prepare", 1)
        operator.run(1)
        count = len(operator.requests)
        operator.wait_for(lambda state: state["seen"] == operator._revision, since=count)
    worker.kill()
    before = len(operator.requests)
    launch("sh", "-c", f"echo twice >> {tmp_path}/ran")  # the worker restarted in the same pod
    operator.desire("Prepare", 1)
    report = operator.wait_for(lambda state: state["problem"], since=before)
    assert report["problem"] == "attempt 1 has already run here"
    assert (tmp_path / "ran").read_text() == "once\n"


def test_run_without_a_barrier_is_waited_out(operator: FakeOperator, launch: LaunchWorker, tmp_path: Path) -> None:
    operator.run(4)
    launch("touch", str(tmp_path / "ran"))
    count = len(operator.requests)
    operator.wait_for(lambda state: state["seen"] == 1 and state["waitSeconds"] > 0, since=count)
    assert not (tmp_path / "ran").exists()


def test_a_spare_stays_at_the_barrier(operator: FakeOperator, launch: LaunchWorker, tmp_path: Path) -> None:
    launch("touch", str(tmp_path / "ran"))
    ready(operator, 1, rank=-1)
    operator.run(1, rank=-1)
    operator.wait_for(lambda state: state["seen"] == 2 and state["waitSeconds"] > 0)
    assert operator.states()[-1]["readyFor"] == 1
    assert not (tmp_path / "ran").exists()


def test_stop_gives_the_child_its_grace_and_keeps_the_worker(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    worker = launch(
        "sh",
        "-c",
        f"trap 'echo saved > {tmp_path}/saved; exit 0' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done",
    )
    run_attempt(operator, 1)
    pid_in(tmp_path / "pid")
    operator.desire("Stop", 1, stopGraceSeconds=10)
    assert exited(operator, 1)["exit"]["reason"] == "StoppedOnRequest"
    assert (tmp_path / "saved").exists()
    operator.desire("Complete", 1)
    assert worker.wait() == 0


def test_stop_kills_when_the_grace_is_over(operator: FakeOperator, launch: LaunchWorker, tmp_path: Path) -> None:
    launch("sh", "-c", f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done")
    run_attempt(operator, 1)
    pid_in(tmp_path / "pid")
    operator.desire("Stop", 1, stopGraceSeconds=1)
    assert exited(operator, 1)["exit"]["signal"] == signal.SIGKILL


def test_sigterm_of_the_worker_is_reported_before_the_child_ends(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    worker = launch(
        "sh", "-c", f"trap 'sleep 0.5; exit 7' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done"
    )
    run_attempt(operator, 1)
    pid_in(tmp_path / "pid")
    worker.process.terminate()
    operator.wait_for(lambda state: state["phase"] == "Stopping" and state["problem"] == "SIGTERM")
    assert exited(operator, 1)["exit"]["reason"] == "WorkerTerminated"
    assert worker.wait() == 143


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        (["/no/such/program"], 127, "CommandNotFound"),
        (["no-such-program"], 127, "CommandNotFound"),
        (["/etc/hostname"], 126, "CommandNotExecutable"),
    ],
)
def test_a_command_that_cannot_start_says_why(
    operator: FakeOperator, launch: LaunchWorker, command: list[str], code: int, reason: str
) -> None:
    worker = launch(*command)
    run_attempt(operator, 1)
    report = exited(operator, 1)
    assert (report["exit"]["code"], report["exit"]["reason"]) == (code, reason)
    assert command[0] in report["exit"]["stderrTail"]
    operator.desire("Complete", 1)
    assert worker.wait() == code


def test_progress_and_new_checkpoints_are_told_while_training(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    line = '{"step": 5, "loss": 2.310, "total_steps": 9, "time": 1700000000}'
    script = f"echo '{line}' >> $LOCKSTEP_PROGRESS_FILE; exec sleep 100"
    worker = launch("sh", "-c", script)
    run_attempt(operator, 1)
    report = operator.wait_for(lambda state: state["progress"])
    assert report["progress"] == {"step": 5, "at": 1700000000.0, "loss": "2.310", "totalSteps": 9}
    (worker.shared / RUN_UID / "a1" / "step-4").mkdir()  # a save in progress is nobody's news
    commit = commit_shared(worker, 1, 5, b"weights")
    rows = operator.wait_for(lambda state: state["newCheckpoints"])["newCheckpoints"]
    assert [(row["path"], row["step"], row["verdict"]) for row in rows] == [(str(commit), 5, "Valid")]
    count = len(operator.requests)
    operator.wait_for(lambda state: not state["newCheckpoints"], since=count)
    # Who asks later, a new leader for one, hears of it as well.
    count = len(operator.requests)
    operator.refusals.append((409, "unregistered"))
    again = operator.wait_for(lambda state: "inventory" in state, since=count)
    assert [row["path"] for row in again["inventory"]] == [str(commit)]


def test_the_barrier_brings_the_inventory_and_the_checksums_asked_for(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch("true")
    good = commit_shared(worker, 1, 10, b"x" * 100_000)
    torn = commit_shared(worker, 1, 20, b"y" * 100_000, crc=1)
    (worker.shared / RUN_UID / "a1" / "step-30").mkdir()
    report = ready(operator, 2)
    rows = {row["step"]: (row["verdict"], row["reason"]) for row in report["inventory"]}
    assert rows[10] == rows[20] == ("Valid", "")
    assert rows[30] == ("Invalid", "no manifest.json: it was never committed")
    for path, step, verdict in ((torn, 20, "Invalid"), (good, 10, "Valid")):
        wanted = {"tier": "shared", "path": str(path), "step": step, "share": 0, "of": 1}
        operator.desire("Prepare", 2, verify=wanted)
        answer = operator.wait_for(lambda state, path=path: [v for v in state["verified"] if v["path"] == str(path)])
        assert [v["verdict"] for v in answer["verified"] if v["path"] == str(path)] == [verdict]


def test_a_worker_at_the_barrier_looks_again_at_what_it_could_not_read(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    worker = launch("true")
    (worker.shared / RUN_UID).write_text("not a directory")
    (row,) = ready(operator, 2)["inventory"]
    assert (row["verdict"], row["step"]) == ("Unknown", 0)
    (worker.shared / RUN_UID).unlink()
    commit_shared(worker, 1, 10, b"x")
    again = operator.wait_for(lambda state: state.get("inventory") and state["inventory"][0]["step"] == 10)
    assert (again["phase"], again["readyFor"], again["inventory"][0]["verdict"]) == ("Ready", 2, "Valid")
    assert (worker.shared / RUN_UID / "a2").is_dir()


def test_a_worker_at_the_barrier_reads_again_what_it_could_not_read(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch("true")
    (worker.shared / "empty").mkdir()
    step = commit_shared(worker, 1, 10, b"x" * (worker.shared / "empty").stat().st_size)
    (step / "weights.bin").rename(step / "away")
    (worker.shared / "empty").rename(step / "weights.bin")  # of the right size, and not to be read
    ready(operator, 2)
    operator.desire("Prepare", 2, verify={"tier": "shared", "path": str(step), "step": 10, "share": 0, "of": 1})

    def read(verdict: str) -> dict[str, Any]:
        return operator.wait_for(lambda state: [row for row in state["verified"] if row["verdict"] == verdict])

    assert "Is a directory" in read("Unknown")["verified"][0]["reason"]
    (step / "weights.bin").rmdir()
    (step / "away").rename(step / "weights.bin")
    read("Valid")


def test_torchrun_is_started_with_the_script_that_the_user_named(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "torchrun"
    stub.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\n')
    stub.chmod(0o755)
    launch(
        "train.py", "--resume=$(LOCKSTEP_RESUME_STEP)", LOCKSTEP_LAUNCHER="Torchrun", LOCKSTEP_GPUS="0",
        LOCKSTEP_LAUNCHER_OPTIONS='{"nprocPerNode": 2, "entrypoint": 0}',
        PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    )  # fmt: skip
    run_attempt(operator, 1, resume={"tier": "shared", "step": 300, "path": "/shared/step-300"})
    assert exited(operator, 1)["exit"]["reason"] == "Completed"
    assert (tmp_path / "words").read_text().split() == [
        "--nnodes=1", "--node-rank=0", "--nproc-per-node=2", "--master-addr=10.1.0.1", "--master-port=40123",
        "train.py", "--resume=300",
    ]  # fmt: skip


def test_an_unregistered_worker_registers_again_with_what_it_is_doing(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    launch("sleep", "100")
    run_attempt(operator, 1)
    operator.wait_for(lambda state: state["phase"] == "Running")
    count = len(operator.requests)
    operator.refusals.append((409, "unregistered"))
    state = operator.wait_for(lambda state: "inventory" in state, since=count)
    assert (state["phase"], state["attempt"]) == ("Running", 1)


def test_the_token_is_read_anew_for_each_request(operator: FakeOperator, launch: LaunchWorker) -> None:
    worker = launch("true")
    operator.wait_for(lambda state: True)
    worker.token.write_text("second")
    until(lambda: operator.requests[-1][1] == "second")
    assert operator.requests[0][1] == "first"


def test_two_connections_carry_everything(operator: FakeOperator, launch: LaunchWorker) -> None:
    launch("true")
    run_attempt(operator, 1)
    exited(operator, 1)
    ready(operator, 2)
    until(lambda: len(operator.requests) > 8)
    assert len(operator.connections) == 2


def test_training_goes_on_without_the_operator_and_is_told_of_afterwards(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    worker = launch("sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 5")
    run_attempt(operator, 1)
    operator.wait_for(lambda state: state["phase"] == "Running")
    operator.close()
    until(lambda: "not reachable" in worker.stderr())
    (tmp_path / "go").touch()
    until(lambda: "end code=5" in worker.stderr())
    operator.open()
    assert exited(operator, 1)["exit"]["code"] == 5
    until(lambda: "reachable again" in worker.stderr())


def test_a_worker_without_operator_after_the_end_leaves_with_the_childs_code(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch("sh", "-c", "exit 5", LOCKSTEP_ORPHAN_SECONDS="0.5")
    run_attempt(operator, 1)
    exited(operator, 1)
    operator.close()
    assert worker.wait() == 5


def test_a_replaced_leader_is_not_obeyed(operator: FakeOperator, launch: LaunchWorker) -> None:
    operator.epoch = [100, 7]
    launch("sleep", "100")
    run_attempt(operator, 1)
    operator.wait_for(lambda state: state["phase"] == "Running")
    operator.epoch = [100, 6]
    operator.desire("Complete", 1)
    count = len(operator.requests)
    operator.wait_for(lambda state: state["waitSeconds"] > 0, since=count + 3)
    assert operator.states()[-1]["phase"] == "Running"
    assert operator.states()[-1]["epoch"] == [100, 7]
    operator.epoch = [101, 0]
    operator.wait_for(lambda state: state["phase"] == "Stopping")


def test_hold_changes_nothing(operator: FakeOperator, launch: LaunchWorker) -> None:
    launch("sleep", "100")
    ready(operator, 1)
    operator.desire("Hold", 0, rank=-1, world=0)
    count = len(operator.requests)
    operator.wait_for(lambda state: state["seen"] == 2 and state["waitSeconds"] > 0, since=count)
    assert operator.states()[-1]["readyFor"] == 1


TRAIN_UNTIL_HALT = """
    while [ ! -e {0}/halt ]; do echo '{{"step": 1}}' >> $LOCKSTEP_PROGRESS_FILE; sleep 0.1; done
    exec sleep 100"""


def test_with_one_fixed_directory_a_worker_without_contact_and_steps_kills_its_child(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    config = json.dumps({"shared": str(tmp_path / "shared"), "layout": "Shared"})
    worker = launch("sh", "-c", TRAIN_UNTIL_HALT.format(tmp_path), LOCKSTEP_CHECKPOINT_CONFIG=config)
    run_attempt(operator, 1, fenceSeconds=4)
    operator.wait_for(lambda state: state["progress"])
    operator.close()
    until(lambda: "not reachable" in worker.stderr())
    time.sleep(4.5)  # longer than the fence: what must not happen has no event to wait for
    assert "Fenced" not in worker.stderr()
    (tmp_path / "halt").touch()
    until(lambda: "reason=Fenced" in worker.stderr())


def test_what_a_run_goes_on_from_in_its_own_directory_may_be_of_any_run_and_is_read_as_such(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    start = {"root": str(shared), "runUid": "earlier"}
    worker = launch(
        "true", LOCKSTEP_CHECKPOINT_CONFIG=json.dumps({"shared": str(shared), "layout": "Shared", "start": start})
    )
    saved = [commit_shared(worker, 1, step, b"weights").rename(shared / f"step-{step}") for step in (10, 20)]
    written = saved[0] / "manifest.json"
    written.write_text(written.read_text().replace(RUN_UID, "earlier"))
    rows = ready(operator, 2)["inventory"]
    assert [(row["step"], row["verdict"], row["runUid"]) for row in rows] == [
        (20, "Valid", RUN_UID),
        (10, "Valid", "earlier"),
    ]
    for path in map(str, saved):
        operator.desire("Prepare", 2, verify={"tier": "shared", "path": path, "step": 0, "share": 0, "of": 1})
        answer = operator.wait_for(lambda state, path=path: [v for v in state["verified"] if v["path"] == path])
        assert [v["verdict"] for v in answer["verified"] if v["path"] == path] == ["Valid"]


def test_elsewhere_silence_never_kills_the_child(operator: FakeOperator, launch: LaunchWorker, tmp_path: Path) -> None:
    worker = launch("sh", "-c", "exec sleep 100")
    run_attempt(operator, 1, fenceSeconds=0.2)
    operator.wait_for(lambda state: state["phase"] == "Running")
    operator.close()
    until(lambda: "not reachable" in worker.stderr())
    time.sleep(1.5)  # many times the fence
    assert " end " not in worker.stderr()


def test_an_unspoken_protocol_ends_a_worker_that_trains_nothing(operator: FakeOperator, launch: LaunchWorker) -> None:
    operator.refusals.append((426, "this operator speaks 2"))
    worker = launch("true")
    assert worker.wait() == 125
    assert "does not speak protocol 1: this operator speaks 2" in worker.stderr()


def test_an_unspoken_protocol_never_ends_training(operator: FakeOperator, launch: LaunchWorker, tmp_path: Path) -> None:
    worker = launch("sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 5")
    run_attempt(operator, 1)
    operator.wait_for(lambda state: state["phase"] == "Running")
    operator.refusals.extend([(426, "upgraded")] * 3)
    until(lambda: not operator.refusals)
    assert worker.process.poll() is None
    (tmp_path / "go").touch()
    assert worker.wait() == 5


def test_a_worker_that_cannot_write_says_so_instead_of_standing_at_the_barrier(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    launch("true", LOCKSTEP_SCRATCH="/proc/nowhere")
    operator.desire("Prepare", 1)
    report = operator.wait_for(lambda state: state["problem"])
    assert report["problem"].startswith("the scratch volume is not writable")
    assert report["readyFor"] == 0


def test_as_pid_1_it_reaps_orphans_and_ends_even_processes_it_never_started(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    # As in a container: a PID namespace of its own.
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid():
        inside = [*inside, "--user", "--map-root-user"]
    script = f"(sleep 0.2 &) ; echo $$ > {tmp_path}/pid; exec sleep 100"
    worker = launch("sh", "-c", script, wrapper=inside)
    run_attempt(operator, 1)
    pid_in(tmp_path / "pid")
    (first,) = children(worker.process.pid)
    assert Path(f"/proc/{first}/status").read_text().partition("NSpid:")[2].split()[1] == "1"
    until(lambda: len(children(first)) == 1)  # the orphan was adopted and reaped
    enter = ["nsenter", "-t", str(first), "-p", *(["-U", "--preserve-credentials"] if os.geteuid() else [])]
    intruder = subprocess.Popen([*enter, "sleep", "100"])
    until(lambda: len(entered := children(intruder.pid)) == 1 and is_alive(entered[0]))
    ready(operator, 2)
    assert intruder.wait(DEADLINE) != 0
    os.kill(first, signal.SIGTERM)
    assert worker.wait() == 143
