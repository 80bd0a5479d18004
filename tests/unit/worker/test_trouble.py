"""A worker whose surroundings fail it: no room, no threads, nobody who reads its log, replies that make no sense."""

import contextlib
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.fake_operator import FakeOperator
from harness.running_worker import LaunchWorker, exited, pid_in, ready, run_attempt, until
from lockstep.worker import output
from lockstep.worker.agent import Worker
from lockstep.worker.checkpoints.inventory import survey
from lockstep.worker.child import processes
from lockstep.worker.child.process import Child, LaunchError
from lockstep.worker.child.processes import out_of_memory_kills, output_of
from lockstep.worker.child.progress import ProgressTail, is_no_number
from lockstep.worker.child.stacks import forget_the_dead
from lockstep.worker.errors import open_plain
from lockstep.worker.link.inbox import Inbox, SlowWork
from lockstep.worker.node import preflight
from lockstep.worker.node.preflight import SHARED_TIER_IS_FULL, SHARED_TIER_REFUSES, gpu_problem, prepare
from lockstep.worker.settings import Settings, Tier, attempt_directory


def settings_in(directory: Path, **more: Any) -> Settings:
    identity = {"operator_url": "https://x", "namespace": "a", "run": "r", "run_uid": "u", "pod_uid": "p"}
    return Settings(**identity, slot=0, incarnation=1, command=["true"], scratch=str(directory), **more)


# Leaders


def reply(epoch: int, revision: int, at: float = 1000.0) -> dict[str, Any]:
    return {"epoch": [epoch, 0], "revision": revision, "heartbeatSeconds": 2, "phase": "Hold", "serverTime": at}


class _Told:
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.fresh = rows


def test_what_only_a_replaced_leader_was_told_of_is_told_again(tmp_path: Path) -> None:
    worker = Worker(settings_in(tmp_path))
    row = {"tier": "shared", "path": "/s/step-1", "step": 1}
    worker.training = _Told([row])  # type: ignore[assignment]
    worker._take_desired(reply(2, 1), [])
    worker._take_desired(reply(1, 9), [row])
    assert worker.training.fresh == [row]
    worker._take_desired(reply(2, 2), [row])
    assert worker.training.fresh == []


def test_no_report_names_an_older_leaders_revision_as_one_of_the_new_leader(tmp_path: Path) -> None:
    worker = Worker(settings_in(tmp_path))
    worker._take_desired(reply(1, 57), [])
    seen = []
    link = type(worker.link)

    class Watched(link):  # type: ignore[valid-type, misc]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            seen.append((self.epoch, self.seen))

    worker.link.__class__ = Watched
    worker._take_desired(reply(2, 3), [])
    assert ([2, 0], 57) not in seen
    assert seen[-1] == ([2, 0], 3)


# Replies that cannot be acted upon


@pytest.mark.process
def test_a_reply_that_makes_no_sense_never_ends_the_training(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    worker = launch("sh", "-c", f"trap 'exit 3' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done")
    run_attempt(operator, 1)
    pid_in(tmp_path / "pid")
    operator.wait_for(lambda state: state["phase"] == "Running")
    count = len(operator.requests)
    operator.run(1, save={"identity": "of another version"})
    operator.wait_for(lambda state: state["seen"] == operator._revision, since=count)
    operator.desire("Stop", 1)
    assert exited(operator, 1)["exit"]["code"] == 3
    assert worker.stderr().count("lockstep: defect: KeyError('deadline')") == 1


@pytest.mark.process
def test_nor_does_it_keep_the_worker_from_leaving_when_it_is_asked_to(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done", LOCKSTEP_TERMINATION_GRACE="2")
    run_attempt(operator, 1)
    operator.wait_for(lambda state: state["phase"] == "Running")
    operator.run(1, save={"identity": "of another version"})
    until(lambda: "defect" in worker.stderr())
    worker.process.terminate()
    assert exited(operator, 1)["exit"]["reason"] == "WorkerTerminated"
    assert worker.wait() == 128 + signal.SIGTERM


@pytest.mark.process
def test_with_nothing_to_lose_the_pod_ends_and_says_why(operator: FakeOperator, launch: LaunchWorker) -> None:
    worker = launch("true")
    operator.desire("Prepare", 1, world=None)  # type: ignore[arg-type]
    operator.wait_for(lambda state: state["seen"] == 0)
    operator.desire("Stop", None)  # type: ignore[arg-type]
    ready(operator, 1)
    operator.desire("Run", 1, start={"attempt": 1})
    assert worker.wait() == 125
    assert "lockstep: defect: KeyError('masterAddress')" in worker.stderr()


# No room for threads and processes


def test_slow_work_waits_until_there_is_room_for_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = Inbox()
    work, heard = SlowWork(inbox), threading.Event()
    begin = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    work.begin(lambda: heard.set)
    work.begin_delayed()
    monkeypatch.setattr(threading.Thread, "start", begin)
    work.begin_delayed()
    until(lambda: inbox.make_calls(0.05) or heard.is_set())


def test_slow_work_that_hangs_holds_up_no_other() -> None:
    inbox = Inbox()
    work, free, heard = SlowWork(inbox), threading.Event(), threading.Event()
    for _ in range(3):
        work.begin(lambda: free.wait() and None)
    work.begin(lambda: heard.set)
    until(lambda: inbox.make_calls(0.05) or heard.is_set())
    free.set()


def test_the_thread_of_done_work_takes_the_next() -> None:
    inbox = Inbox()
    work, threads = SlowWork(inbox), []

    def note() -> Callable[[], None]:
        thread = threading.get_ident()
        return lambda: threads.append(thread)

    for count in range(1, 4):
        work.begin(note)
        until(lambda wanted=count: inbox.make_calls(0.05) or len(threads) == wanted)
    assert len(set(threads)) == 1


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.EIO])
def test_a_node_that_cannot_start_a_process_is_no_mistake_in_the_command(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(LaunchError) as caught:
        Child(1, ["train"], {}, lambda stream, data: None)
    assert caught.value.args == (125, "ProcessNotStarted", f"train: [Errno {number}] {os.strerror(number)}")


@pytest.mark.process
def test_a_program_whose_output_nobody_can_pass_on_does_not_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(LaunchError) as caught:
        Child(1, ["sleep", "100"], {"PATH": os.environ["PATH"]}, lambda stream, data: None)
    assert caught.value.args[:2] == (125, "ProcessNotStarted")
    _, status = os.waitpid(-1, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.process
def test_whatever_goes_wrong_in_reading_it_output_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(stream: int, data: bytes) -> None:
        raise ZeroDivisionError

    child = Child(1, ["sh", "-c", "echo one; sleep 0.1; echo two"], {"PATH": os.environ["PATH"]}, fail)
    assert os.waitpid(child.pid, 0)[1] == 0
    child.drain(0)
    assert capfd.readouterr().out == "one\ntwo\n"


# Nobody reads the log


def test_own_lines_are_lost_rather_than_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    began = time.monotonic()
    assert not output.write_all(write, b"line\n", 0.05)
    assert time.monotonic() - began < 5
    os.read(read, 65536)
    assert output.write_all(write, b"y" * 10_000, 0.05)
    os.close(read)
    assert not output.write_all(write, b"line\n", 0.05)
    os.close(write)


UNREAD = """
import os, sys
read, write = os.pipe()
os.set_inheritable(read, True)
os.set_blocking(write, False)
try:
    while True:
        os.write(write, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(write, True)
os.dup2(write, 2)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.process
def test_a_log_that_nobody_reads_holds_up_neither_reports_nor_the_end(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    noise = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do echo 01234567890123456789 >&2; done"
    worker = launch("sh", "-c", noise, wrapper=(sys.executable, "-c", UNREAD))
    run_attempt(operator, 1)
    pid_in(tmp_path / "pid")
    operator.desire("Stop", 1, stopGraceSeconds=1)
    assert exited(operator, 1)["exit"]["signal"] == signal.SIGKILL
    worker.process.terminate()
    assert worker.wait() == 128 + signal.SIGKILL


# Tools that hang


@pytest.mark.process
def test_a_tool_that_cannot_even_be_killed_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho $$ > "${0%/*}/pid"\nexec sleep 100\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(preflight, "GPU_ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: None)  # as in a driver that never returns
    began = time.monotonic()
    assert gpu_problem(settings_in(tmp_path, gpus=8)) == "nvidia-smi does not answer"
    assert time.monotonic() - began < 20
    pid = pid_in(tmp_path / "pid")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.process
def test_a_tool_that_answers_is_heard() -> None:
    assert output_of(["sh", "-c", "echo 1; echo 2 >&2"], 10.0) == b"1\n"


# Disks


def full(root: str, number: int) -> Callable[..., None]:
    def refuse(path: str, *args: Any, **options: Any) -> None:
        if str(path).startswith(root):
            raise OSError(number, os.strerror(number), str(path))

    return refuse


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_shared_tier_without_room_for_a_directory_is_full_and_no_fault_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    shared = str(tmp_path / "shared")
    settings = settings_in(tmp_path, tiers={"shared": Tier("shared", shared, 2.0)})
    monkeypatch.setattr(processes, "other_processes", list)
    monkeypatch.setattr(os, "makedirs", full(shared, number))
    problem = prepare(settings, 1, 0, 1).problem
    assert problem == f"{SHARED_TIER_IS_FULL}: {os.strerror(number)}: {shared}/u/a1"


@pytest.mark.parametrize(("there", "missing"), [("", "a"), ("a", "a/r"), ("a/r", "a/r/u"), ("a/r/u", "a/r/u/a1")])
def test_a_shared_tier_that_another_user_has_made_says_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, missing: str
) -> None:
    """Root, who runs the tests, is refused nothing: the call is."""
    shared = tmp_path / "shared"
    settings = settings_in(tmp_path, tiers={"shared": Tier("shared", str(shared / "a" / "r"), 2.0)})
    (shared / there).mkdir(parents=True)
    (shared / there).chmod(0o750)
    monkeypatch.setattr(processes, "other_processes", list)
    monkeypatch.setattr(os, "mkdir", full(str(shared), errno.EACCES))
    problem = prepare(settings, 1, 0, 1).problem
    user = os.geteuid()
    assert problem == (
        f"{SHARED_TIER_REFUSES}: Permission denied: {shared / missing}; this is user {user}, and {shared / there} is "
        f"{user}:{os.getegid()}'s, drwxr-x---"
    )


def test_other_users_of_the_namespace_find_a_place_beside_a_run_and_none_in_it(tmp_path: Path) -> None:
    def modes(**how: Any) -> list[int]:
        settings = settings_in(tmp_path, **how)
        survey(settings, 1, 0, 1)
        directory = Path(attempt_directory(settings, "shared", 1)).relative_to(tmp_path)
        made = [*reversed(directory.parents), directory][1:]
        return [stat.S_IMODE((tmp_path / each).stat().st_mode) for each in made]

    def tier(path: str) -> dict[str, Tier]:
        return {"shared": Tier("shared", str(tmp_path / path), 2.0)}

    before = os.umask(0o077)
    try:
        assert modes(tiers=tier("usual/a/r")) == [0o700, 0o1777, 0o1777, 0o700, 0o700]
        assert modes(tiers=tier("one/a/r"), fenced=True) == [0o700, 0o1777, 0o700]
        assert modes(tiers=tier("chosen/llama")) == [0o700, 0o700, 0o700, 0o700]
        os.chmod(tmp_path / "usual" / "a", 0o750)  # somebody's decision
        assert modes(tiers=tier("usual/a/r")) == [0o700, 0o750, 0o1777, 0o700, 0o700]
    finally:
        os.umask(before)


def test_a_link_that_takes_a_new_directorys_place_opens_nothing_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    monkeypatch.setattr(os, "mkdir", lambda path, *_: os.symlink(elsewhere, path))
    (tmp_path / "shared").symlink_to(elsewhere)
    with contextlib.suppress(OSError):
        survey(settings_in(tmp_path, tiers={"shared": Tier("shared", str(tmp_path / "shared/a/r"), 2.0)}), 1, 0, 1)
    assert (elsewhere / "a").is_symlink()
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o700


def test_of_the_nodes_own_disk_that_is_the_nodes_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = str(tmp_path / "local")
    settings = settings_in(tmp_path, tiers={"local": Tier("local", local, 1.0)})
    monkeypatch.setattr(processes, "other_processes", list)
    monkeypatch.setattr(os, "makedirs", full(local, errno.ENOSPC))
    problem = prepare(settings, 1, 0, 1).problem
    assert problem == f"the local checkpoint tier takes no writes: {os.strerror(errno.ENOSPC)}: {local}/u/a1"


def test_what_the_program_puts_in_the_place_of_a_file_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "progress")
    assert ProgressTail(str(tmp_path / "progress")).read(1.0) == []
    with pytest.raises(OSError, match="is no plain file"):
        open_plain("/dev/zero")
    before = len(os.listdir("/proc/self/fd"))
    assert ProgressTail(str(tmp_path / "progress")).read(1.0) == []
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.process
def test_the_stack_files_of_forks_that_have_ended_are_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    names = {f"stacks.{gone.pid}", f"stacks.{os.getpid()}", "stacks.1", "stacks.99999999999999999999", "stacks.x"}
    for name in names:
        (tmp_path / name).touch()
    forget_the_dead(str(tmp_path / "stacks"))
    assert set(os.listdir(tmp_path)) == names - {f"stacks.{gone.pid}"}
    forget_the_dead(str(tmp_path / "nowhere" / "stacks"))


def test_memory_kills_are_counted_in_either_kind_of_cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v1").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    monkeypatch.setattr(processes, "MEMORY_EVENTS", (str(tmp_path / "v2"), str(tmp_path / "v1")))
    assert out_of_memory_kills() == 3
    (tmp_path / "v2").write_text("low 0\noom 4\noom_kill 5\n")
    assert out_of_memory_kills() == 5


@pytest.mark.parametrize("loss", ["nan", "-inf", "Infinity", "1e999", " NaN "])
def test_a_loss_beyond_all_numbers_is_none(loss: str) -> None:
    assert is_no_number(loss)


@pytest.mark.parametrize("loss", ["", "2.5", "1e308", "none yet"])
def test_any_other_loss_is_no_divergence(loss: str) -> None:
    assert not is_no_number(loss)


# Asked to leave


@pytest.mark.process
def test_asked_to_leave_before_the_next_attempt_it_does_not_end_with_the_last_ones_code(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch("sh", "-c", "exit 3")
    run_attempt(operator, 1)
    exited(operator, 1)
    ready(operator, 2)
    worker.process.terminate()
    assert worker.wait() == 128 + signal.SIGTERM


@pytest.mark.process
@pytest.mark.parametrize("leaves_because", ["the operator is away", "it is asked to leave"])
def test_a_program_that_was_asked_to_stop_and_ended_with_0_has_not_succeeded(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path, leaves_because: str
) -> None:
    pid = tmp_path / "pid"
    script = f"trap 'exit 0' TERM; echo $$ > {pid}; while :; do sleep 0.05; done"
    worker = launch("sh", "-c", script, LOCKSTEP_ORPHAN_SECONDS="0.5" if "away" in leaves_because else "600")
    run_attempt(operator, 1)
    pid_in(pid)
    operator.desire("Stop", 1, stopGraceSeconds=10)
    assert exited(operator, 1)["exit"] | {"code": 0, "reason": "StoppedOnRequest"} == exited(operator, 1)["exit"]
    if "away" in leaves_because:
        operator.close()
    else:
        worker.process.terminate()
    assert worker.wait() == 128 + signal.SIGTERM


@pytest.mark.process
def test_a_message_of_an_earlier_attempt_is_not_told_again(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    left = tmp_path / "error.json"
    left.write_text(json.dumps({"message": "of long ago"}))
    os.utime(left, (1000.0, 1000.0))
    launch("sh", "-c", "exit 1", TORCHELASTIC_ERROR_FILE=str(left))
    run_attempt(operator, 1)
    assert "of long ago" not in str(exited(operator, 1).get("signs", []))
