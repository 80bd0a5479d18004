"""Steps over real TLS with real processes: what is asked for is what runs, and what comes back is what it said."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.proc import is_alive
from harness.running_worker import pid_in
from harness.step_gang import StepGang
from lockstep.worker.steps.client import TaskOutcome
from lockstep.worker.steps.request import TaskAsked
from support.stepping import Asking, asked, gang_of_steps, run, shell, until

pytestmark = pytest.mark.process

LEAVES_A_DAEMON = """
import os, sys, time
if os.fork():
    os.wait()
    raise SystemExit
os.setsid()
if os.fork():
    os._exit(0)
null = os.open(os.devnull, os.O_RDWR)
for stream in (0, 1, 2):
    os.dup2(null, stream)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StepGang]:
    with gang_of_steps(tmp_path_factory.mktemp("gang"), 3, env={"NODE": "own", "MINE": "node"}, own=("MINE",)) as made:
        yield made


def test_a_program_runs_on_every_node_that_was_asked_with_its_arguments_unchanged(gang: StepGang) -> None:
    odd = ["", "two words", '"quoted"', "$HOME;exit", "a\nb", os.fsdecode(b"no \xff text")]
    program = [sys.executable, "-ISc", "import os, sys; os.write(1, b'|'.join(map(os.fsencode, sys.argv[1:])))", *odd]
    ran = run(gang, *(asked(rank, *program) for rank in range(3)))
    assert ran.outcomes == dict.fromkeys(range(3), TaskOutcome(0))
    assert {ran.out(rank) for rank in range(3)} == {b"|".join(map(os.fsencode, odd))}


def test_any_node_may_start_a_step_on_any_other(gang: StepGang) -> None:
    for node in gang.nodes:
        asking = Asking(node.directory, [asked(rank, "printenv", "LOCKSTEP_NODE_RANK") for rank in range(3)])
        assert asking.wait() == dict.fromkeys(range(3), TaskOutcome(0))
        assert [asking.out(rank) for rank in range(3)] == [b"0\n", b"1\n", b"2\n"]


def test_shell_text_is_given_to_a_shell_as_it_is(gang: StepGang) -> None:
    ran = run(gang, shell(1, """ A="x y" ; export A; printf '%s' "$A"; printf e >&2; exit 7"""))
    assert ran.outcomes == {1: TaskOutcome(7)}
    assert (ran.out(1), ran.out(1, 2)) == (b"x y", b"e")


def test_many_tasks_of_a_node_have_streams_codes_and_variables_of_their_own(gang: StepGang) -> None:
    ran = run(gang, shell(1, "echo out $TASK; echo err $TASK >&2; exit $TASK", tasks=[3, 4, 5]), asked(2, "true"))
    assert ran.outcomes == {2: TaskOutcome(0), 3: TaskOutcome(3), 4: TaskOutcome(4), 5: TaskOutcome(5)}
    assert [(ran.out(n), ran.out(n, 2)) for n in (3, 4)] == [(b"out 3\n", b"err 3\n"), (b"out 4\n", b"err 4\n")]


def test_a_hundred_megabytes_arrive_byte_by_byte_on_both_streams(gang: StepGang) -> None:
    size = 50 << 20
    program = """
import os, random, threading
def say(descriptor):
    data = random.Random(descriptor).randbytes(1 << 20) * 50
    while data: data = data[os.write(descriptor, data):]
threads = [threading.Thread(target=say, args=(descriptor,)) for descriptor in (1, 2)]
[thread.start() for thread in threads]
"""
    import random

    ran = run(gang, asked(1, sys.executable, "-ISc", program))
    assert ran.outcomes == {1: TaskOutcome(0)}
    for stream in (1, 2):
        said = ran.out(1, stream)
        wanted = random.Random(stream).randbytes(1 << 20) * 50
        assert (len(said), hashlib.sha256(said).digest()) == (size, hashlib.sha256(wanted).digest())


def test_the_environment_is_the_nodes_own_where_none_is_sent(gang: StepGang) -> None:
    ran = run(gang, asked(1, "env", unset=["NODE"]))
    lines = set(ran.out(1).decode().splitlines())
    assert {"MINE=node", "LOCKSTEP_NODE_RANK=1", "TASK=1"} <= lines
    assert "NODE=own" not in lines


def test_what_a_node_is_stays_its_own_whatever_environment_is_sent(gang: StepGang) -> None:
    sent = {"PATH": os.environ["PATH"], "A": "1", "LOCKSTEP_NODE_RANK": "0", "MINE": "client", "NODE": "client"}
    ran = run(gang, asked(1, "env", environment=sent))
    lines = set(ran.out(1).decode().splitlines())
    assert {"A=1", "NODE=client", "MINE=node", "LOCKSTEP_NODE_RANK=1"} <= lines
    assert f"LOCKSTEP_STEPS_DIR={gang.nodes[1].directory}" in lines


def test_a_step_runs_in_the_directory_that_was_asked_for(gang: StepGang, tmp_path: Path) -> None:
    ran = run(gang, asked(1, "pwd", directory=str(tmp_path)))
    assert ran.out(1).decode().strip() == str(tmp_path)


def test_what_cannot_be_started_is_named_and_the_other_nodes_go_on(gang: StepGang, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    missing = tmp_path / "missing"
    ran = run(gang, asked(0, "no-such-program"), asked(1, str(plain)), asked(2, "true", directory=str(missing)))
    found = {task: (outcome.code, outcome.reason) for task, outcome in ran.outcomes.items()}
    assert found == {0: (127, "CommandNotFound"), 1: (126, "CommandNotExecutable"), 2: (125, "DirectoryNotFound")}
    assert "no-such-program" in ran.outcomes[0].words
    assert str(missing) in ran.outcomes[2].words
    assert run(gang, asked(0, "true")).outcomes == {0: TaskOutcome(0)}


def test_failures_are_told_to_the_worker_with_the_last_words_on_stderr(gang: StepGang) -> None:
    for node in gang.nodes:
        node.ends()
    run(gang, shell(1, "printf '%2000d' 1 >&2; echo the end >&2; exit 3"), shell(2, "kill -9 $$"), asked(0, "true"))
    (failed,), (killed,) = gang.nodes[1].ends(), gang.nodes[2].ends()
    assert gang.nodes[0].ends() == []
    assert (failed["code"], failed["signal"], failed["program"], failed["task"], failed["asked"]) == (
        3, None, "printf", 1, False,
    )  # fmt: skip
    assert failed["stderrTail"].endswith("1the end\n")
    assert len(failed["stderrTail"]) == 1024
    assert (killed["code"], killed["signal"], killed["asked"]) == (None, 9, False)


def test_stderr_that_is_no_text_is_told_all_the_same(gang: StepGang) -> None:
    gang.nodes[1].ends()
    run(gang, shell(1, r"head -c 3000 /dev/zero >&2; printf '\377\376' >&2; exit 1"))
    (row,) = gang.nodes[1].ends()
    assert row["stderrTail"].endswith("\ufffd\ufffd")


def test_signals_reach_every_task_and_how_it_ended_comes_back(gang: StepGang) -> None:
    script = "trap 'echo heard; exit 9' USR1; echo ready; while :; do sleep 0.05; done"
    gang.nodes[1].ends()
    asking = Asking(gang.nodes[0].directory, [shell(1, script), shell(2, "echo ready; exec sleep 1000")])
    until(lambda: asking.out(1) == asking.out(2) == b"ready\n")
    asking.step.signal(signal.SIGUSR1)
    assert asking.wait() == {1: TaskOutcome(9), 2: TaskOutcome(0, signal.SIGUSR1)}
    assert asking.out(1) == b"ready\nheard\n"


@pytest.mark.parametrize(
    ("catches", "sent", "later", "wanted"),
    [
        ("USR1", signal.SIGUSR1, "exit 9", False),
        ("USR1", signal.SIGUSR1, "kill -SEGV $$", False),
        ("USR2", signal.SIGUSR1, "exit 9", True),
        ("TERM", signal.SIGTERM, "exit 9", True),
    ],
    ids=["it saves and fails", "it saves and crashes", "it dies of the signal", "it is told to end"],
)
def test_what_happens_to_a_task_after_a_signal_was_asked_for_only_where_that_is_to_end_it(
    gang: StepGang, catches: str, sent: signal.Signals, later: str, wanted: bool
) -> None:
    script = f"trap 'on=1' {catches}; echo ready; while [ -z $on ]; do sleep 0.05; done; {later}"
    gang.nodes[1].ends()
    asking = Asking(gang.nodes[0].directory, [shell(1, script)])
    until(lambda: asking.out(1) == b"ready\n")
    asking.step.signal(sent)
    asking.wait()
    assert [row["asked"] for row in gang.nodes[1].ends()] == [wanted]


def test_an_end_is_a_signal_to_all_that_it_started_and_then_a_kill(gang: StepGang, tmp_path: Path) -> None:
    stubborn = f"setsid sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done' & wait"
    asking = Asking(gang.nodes[0].directory, [shell(1, stubborn)])
    stray = pid_in(tmp_path / "pid")
    asking.step.end(0.5)
    assert asking.wait() == {1: TaskOutcome(0, signal.SIGTERM)}
    until(lambda: not is_alive(stray))


def test_what_is_typed_is_read_by_every_task_and_so_is_its_end(gang: StepGang) -> None:
    data = os.urandom(5 << 20)
    read, write = os.pipe()
    requests = [asked(rank, "sha256sum", stdin=True, tasks=[2 * rank, 2 * rank + 1]) for rank in range(3)]
    asking = Asking(gang.nodes[0].directory, requests, stdin=read)
    with os.fdopen(write, "wb") as stream:
        stream.write(data)
    assert asking.wait() == dict.fromkeys(range(6), TaskOutcome(0))
    os.close(read)
    assert {asking.out(task) for task in range(6)} == {f"{hashlib.sha256(data).hexdigest()}  -\n".encode()}


def test_a_task_that_reads_nothing_holds_up_neither_signals_nor_what_the_others_say(gang: StepGang) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    reads = shell(2, "cat; echo over", stdin=True)
    asking = Asking(gang.nodes[0].directory, [asked(1, "sleep", "1000", stdin=True), reads], stdin=read)

    def is_stuck() -> bool:
        try:
            os.write(write, bytes(65536))
        except BlockingIOError:
            time.sleep(0.2)
            return len(asking.out(2)) >= 100_000
        return False

    until(is_stuck)
    asking.step.signal(signal.SIGTERM)
    os.close(write)
    outcomes = asking.wait()
    os.close(read)
    assert outcomes[1] == TaskOutcome(0, signal.SIGTERM)


def test_no_input_is_an_empty_one(gang: StepGang) -> None:
    assert run(gang, shell(1, "cat; echo read")).out(1) == b"read\n"


def test_a_daemon_that_left_survives_a_finished_call(gang: StepGang, tmp_path: Path) -> None:
    ran = run(gang, asked(1, sys.executable, "-ISc", LEAVES_A_DAEMON, str(tmp_path / "pid")))
    assert ran.outcomes == {1: TaskOutcome(0)}
    daemon = pid_in(tmp_path / "pid")
    assert run(gang, asked(1, "true")).outcomes == {1: TaskOutcome(0)}
    assert is_alive(daemon)
    os.kill(daemon, signal.SIGKILL)


def test_a_launchers_daemon_that_is_killed_is_told_and_what_it_leaves_is_not(gang: StepGang, tmp_path: Path) -> None:
    named = """open("/proc/self/comm", "w").write("prted")\n""" + LEAVES_A_DAEMON
    gang.nodes[1].ends()
    pids = []
    for name, daemon in (("prted", named), ("python", LEAVES_A_DAEMON)):
        run(gang, asked(1, sys.executable, "-ISc", daemon, str(tmp_path / name)))
        pids.append(pid_in(tmp_path / name))
    for pid in reversed(pids):
        os.kill(pid, signal.SIGKILL)
    (row,) = until(gang.nodes[1].ends)
    assert (row["signal"], row["asked"], row["program"]) == (9, False, "prted")
    assert gang.nodes[1].ends() == []


def test_a_call_does_not_wait_for_a_daemon_that_kept_its_output_open(gang: StepGang, tmp_path: Path) -> None:
    keeps = LEAVES_A_DAEMON.replace("os.dup2(null, stream)", "pass").replace(
        "time.sleep(1000)",
        """
for _ in range(10000):
    os.write(1, b"x" * 1000)
open(sys.argv[1] + ".wrote", "w").write("1")
time.sleep(1000)
""",
    )
    ran = run(gang, asked(1, sys.executable, "-ISc", keeps, str(tmp_path / "pid")))
    assert ran.outcomes == {1: TaskOutcome(0)}
    pid_in(tmp_path / "pid.wrote")
    assert is_alive(pid_in(tmp_path / "pid")), "its output is read to the end, and thrown away"


def test_what_a_step_left_behind_ends_with_it_where_that_is_asked_for(gang: StepGang, tmp_path: Path) -> None:
    run(gang, asked(1, sys.executable, "-ISc", LEAVES_A_DAEMON, str(tmp_path / "pid"), sweep=True))
    daemon = pid_in(tmp_path / "pid")
    until(lambda: not is_alive(daemon))


SLOW_TO_END = "signal.signal(signal.SIGTERM, lambda *caught: (time.sleep(1), os._exit(0)))"
HEARS_NOTHING = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.mark.parametrize("at_sigterm", [SLOW_TO_END, HEARS_NOTHING])
def test_a_step_is_over_once_what_it_left_behind_has_ended_on_every_node(
    gang: StepGang, tmp_path: Path, at_sigterm: str
) -> None:
    daemon = LEAVES_A_DAEMON.replace("null =", f"import signal; {at_sigterm}\nnull =")
    paths = {rank: tmp_path / f"{rank}" for rank in (1, 2)}
    ran = run(
        gang,
        *(asked(rank, sys.executable, "-ISc", daemon, str(paths[rank]), sweep=True, grace=2) for rank in paths),
        asked(0, "true", sweep=True, grace=2),
    )
    assert not any(is_alive(pid_in(path)) for path in paths.values())
    assert ran.outcomes == dict.fromkeys(range(3), TaskOutcome(0))


def test_a_step_does_not_wait_for_ever_for_what_does_not_die(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    in_vain = "from lockstep.worker.steps import session; session.SWEEP_SECONDS = 0.5; session.send = print"
    with gang_of_steps(tmp_path, 2, first=f"{in_vain}; session.terminate = print") as gang:
        ran = run(gang, asked(1, sys.executable, "-ISc", LEAVES_A_DAEMON, str(tmp_path / "pid"), sweep=True, grace=0.1))
        daemon = pid_in(tmp_path / "pid")
        assert is_alive(daemon)
        assert ran.outcomes == {1: TaskOutcome(0)}
        assert f"is over, and what it left here does not die: {daemon} python" in capfd.readouterr().err


def test_a_broken_connection_ends_what_runs_but_for_what_became_a_daemon(gang: StepGang, tmp_path: Path) -> None:
    script = f"""
trap 'echo $$ > {tmp_path}/told; exit' TERM
{sys.executable} -ISc '{LEAVES_A_DAEMON}' {tmp_path}/daemon
setsid sh -c 'echo $$ > {tmp_path}/below; exec sleep 1000' &
echo $$ > {tmp_path}/pid
while :; do sleep 0.05; done
"""
    client = f"""
import sys
sys.path[:0] = {sys.path!r}
from support.stepping import Asking, shell
from pathlib import Path
Asking(Path({str(gang.nodes[0].directory)!r}), [shell(1, {script!r})])
"""
    gang.nodes[1].ends()
    process = subprocess.Popen([sys.executable, "-c", client])
    pids = [pid_in(tmp_path / name) for name in ("pid", "below", "daemon")]
    process.kill()
    process.wait()
    until(lambda: not is_alive(pids[0]) and not is_alive(pids[1]))
    assert (tmp_path / "told").exists(), "it was asked before it was killed"
    assert is_alive(pids[2])
    os.kill(pids[2], signal.SIGKILL)
    assert all(row["asked"] for row in gang.nodes[1].ends()), "nobody takes it for the program's failure"


def test_a_slow_reader_makes_the_program_wait_and_nobody_else(gang: StepGang) -> None:
    lets_go: list[int] = []
    asking = Asking(gang.nodes[0].directory, [shell(1, "head -c 50000000 /dev/zero; echo done >&2")])
    original = asking.kept.output

    def slowly(task: int, stream: int, data: bytes) -> None:
        until(lambda: lets_go)
        original(task, stream, data)

    asking.kept.output = slowly  # type: ignore[method-assign]
    quick = run(gang, asked(1, "true"), asked(2, "true"))
    assert quick.outcomes == dict.fromkeys((1, 2), TaskOutcome(0))
    lets_go.append(1)
    assert asking.wait() == {1: TaskOutcome(0)}
    assert len(asking.out(1)) == 50_000_000


def test_the_server_ends_once_it_is_asked_and_no_step_lives(tmp_path: Path) -> None:
    with gang_of_steps(tmp_path, 1) as gang:
        server = gang.nodes[0].server
        assert server is not None
        asking = Asking(gang.nodes[0].directory, [shell(0, "trap 'exit 5' TERM; echo r; while :; do sleep 0.05; done")])
        until(lambda: asking.out() == b"r\n")
        server.terminate()
        assert run(gang, asked(0, "true", tasks=[7])).outcomes == {7: TaskOutcome(0)}, (
            "a program that saves may need one"
        )
        assert server.poll() is None
        asking.step.signal(signal.SIGTERM)
        assert asking.wait() == {0: TaskOutcome(5)}
        assert server.wait(20) == 0


def test_a_failure_before_the_client_was_lost_is_the_programs_own(gang: StepGang, tmp_path: Path) -> None:
    client = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from support.stepping import Asking, shell
asking = Asking(Path({str(gang.nodes[0].directory)!r}), [shell(1, "exit 3"), shell(2, "exec sleep 1000")])
while 1 not in asking.step.outcomes or 2 not in asking.kept.pids: pass
os.kill(os.getpid(), 9)
"""
    for node in gang.nodes:
        node.ends()
    subprocess.run([sys.executable, "-c", client], check=False)
    (failed,), (ended,) = until(gang.nodes[1].ends), until(gang.nodes[2].ends)
    assert (failed["code"], failed["asked"]) == (3, False)
    assert (ended["signal"], ended["asked"]) == (signal.SIGTERM, True)


def test_the_authority_may_have_signed_itself_anew_for_each_worker(tmp_path: Path) -> None:
    with gang_of_steps(tmp_path, 2) as gang:
        anew = gang.authority.certificate_signed_anew()
        assert anew != gang.authority.certificate
        (gang.nodes[0].directory / "ca.pem").write_text(anew)
        assert run(gang, asked(1, "true")).outcomes == {1: TaskOutcome(0)}


def test_a_task_may_have_files_of_its_node_for_its_streams(gang: StepGang, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("typed")
    (tmp_path / "both").write_text("before\n")
    tasks = [
        TaskAsked(0, {}, stdin="in", stdout="out", stderr=str(tmp_path / "err")),
        TaskAsked(1, {}, stdout="both", stderr="both", append=True),
        TaskAsked(2, {}, stdout="no/such/directory"),
    ]
    request = shell(1, "cat; echo o; echo e >&2; exit 3", directory=str(tmp_path))._replace(tasks=tasks)
    gang.nodes[1].ends()
    ran = run(gang, request)
    assert (ran.outcomes[0], ran.outcomes[1]) == (TaskOutcome(3), TaskOutcome(3))
    assert (ran.outcomes[2].code, ran.outcomes[2].reason) == (125, "FileNotOpened")
    assert "no/such/directory: No such file or directory" in ran.outcomes[2].words
    assert (tmp_path / "out").read_text() == "typedo\n"
    assert (tmp_path / "err").read_text() == "e\n"
    assert (tmp_path / "both").read_text() == "before\no\ne\n"
    assert {row["task"]: row["stderrTail"] for row in gang.nodes[1].ends()}[0] == "e\n"


@pytest.mark.parametrize("append", [False, True])
def test_tasks_that_share_a_file_all_have_their_words_in_it(gang: StepGang, tmp_path: Path, append: bool) -> None:
    """The first one writes while the others are yet to be started: what they open is not emptied again."""
    (tmp_path / "shared").write_text("of a step before\n")
    tasks = [
        TaskAsked(task, {"TASK": str(task)}, stdout="shared", stderr="shared", append=append) for task in range(16)
    ]
    request = shell(1, "echo of $TASK", directory=str(tmp_path))._replace(tasks=tasks)
    assert set(run(gang, request).outcomes.values()) == {TaskOutcome(0)}
    before = ["of a step before"] if append else []
    assert sorted((tmp_path / "shared").read_text().splitlines()) == sorted(
        before + [f"of {task}" for task in range(16)]
    )


def test_what_a_task_wrote_to_a_file_of_its_own_is_searched_for_signs_at_its_end(
    gang: StepGang, tmp_path: Path
) -> None:
    (tmp_path / "old").write_text("NVRM: Xid (PCI:0000:3b:00): 48, of an earlier task\n")
    tasks = [
        TaskAsked(0, {}, stdout="out-0", stderr="err-0"),
        TaskAsked(1, {}, stdout="old", stderr="old", append=True),
        TaskAsked(2, {}),
    ]
    says = "head -c 100000 /dev/zero >&2; echo >&2; printf 'RuntimeError: CUDA out of memory, task %s' $TASK >&2"
    request = shell(1, says, directory=str(tmp_path))
    tasks = [task._replace(environment={"TASK": str(task.identity)}) for task in tasks]
    gang.nodes[1].rows()
    run(gang, request._replace(tasks=tasks))
    told = sorted(row["line"] for row in gang.nodes[1].rows() if "line" in row)
    assert told == [f"RuntimeError: CUDA out of memory, task {task}" for task in range(3)]


def test_one_task_alone_may_be_the_one_that_reads(gang: StepGang) -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb") as stream:
        stream.write(b"for one")
    request = asked(1, "cat", stdin=True)._replace(tasks=[TaskAsked(0, {}), TaskAsked(1, {}, reads=False)])
    asking = Asking(gang.nodes[0].directory, [request, asked(2, "cat", tasks=[2])], stdin=read)
    assert asking.wait() == dict.fromkeys(range(3), TaskOutcome(0))
    os.close(read)
    assert [asking.out(task) for task in range(3)] == [b"for one", b"", b""]


def test_who_is_to_read_what_nobody_sends_reads_the_end(gang: StepGang) -> None:
    assert run(gang, asked(1, "cat", stdin=True)).outcomes == {1: TaskOutcome(0)}
