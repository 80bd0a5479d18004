"""What stands in front of each of mpirun's ranks: a real process between a daemon and a rank."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.proc import is_alive
from harness.running_worker import until
from lockstep.worker.steps.credentials import AttemptGang, Peer, write_credentials
from lockstep.worker.steps.told import WorkerFifo

pytestmark = pytest.mark.process
OPERATOR = str(Path(__file__).parents[4] / "operator")
MAIN = f"import sys; sys.path.insert(0, {OPERATOR!r}); from lockstep.worker.steps.rank import main; main()"
HOLDER = [sys.executable, "-IS", "-c", MAIN]
SAYS = "import os, signal, sys, time\ndef say(text): os.write(1, f'{text}\\n'.encode())\n"


class Node:
    """A node of rank 2, whose worker listens."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        peers = [Peer(f"127.0.0.{rank + 1}", 5000, rank, 1) for rank in range(3)]
        write_credentials(str(directory), AttemptGang("u", 1, 2, peers), "ca", "certificate", "key")
        self.told = WorkerFifo(str(directory))
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *argv: str, **more: Any) -> "subprocess.Popen[str]":
        environ = {
            **os.environ, "LOCKSTEP_STEPS_DIR": str(self.directory), "PMI_RANK": "5", "LOCKSTEP_NODE_RANK": "0",
            **more.pop("env", {}),
        }  # fmt: skip
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [*HOLDER, *argv]
        self.started.append(subprocess.Popen(command, env=environ, text=True, process_group=0, **{**pipes, **more}))
        return self.started[-1]

    def python(self, text: str, **more: Any) -> "subprocess.Popen[str]":
        """Started, with its first line read."""
        started = self.start(sys.executable, "-c", SAYS + "say('up %d' % os.getpid())\n" + text, **more)
        assert started.stdout is not None
        self.rank = int(started.stdout.readline().split()[1])
        return started

    def rows(self) -> list[dict[str, Any]]:
        return [row for row in self.told.rows() if row.get("code") or row.get("signal")]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "steps")
    yield made
    for started in made.started:
        with contextlib.suppress(OSError):
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()
    made.told.close()


def test_a_rank_tells_that_it_begins_and_ends_well_and_its_streams_are_its_own(node: Node) -> None:
    started = node.start("sh", "-c", "cat; echo $LOCKSTEP_NODE_RANK $PMI_RANK; echo err >&2")
    assert started.communicate("in\n") == ("in\n2 5\n", "err\n")
    assert started.returncode == 0
    begun, ended = node.told.rows()
    assert (begun["step"], begun["task"], begun["pid"] > 0) == ("MPI", 5, True)
    assert (ended["step"], ended["task"], ended["code"], ended["signal"]) == ("MPI", 5, 0, None)


@pytest.mark.parametrize(
    ("script", "ends", "said"),
    [
        ("echo why >&2; exit 3", 3, {"code": 3, "signal": None, "stderrTail": "why\n"}),
        ("kill -9 $$", -9, {"code": None, "signal": 9, "stderrTail": ""}),
        ("kill -SEGV $$", -11, {"code": None, "signal": 11, "stderrTail": ""}),
        ("exec no-such-program", 127, {"code": 127}),
    ],
)
def test_a_rank_that_fails_is_told_with_its_number_and_words_and_mpirun_sees_the_same_end(
    node: Node, script: str, ends: int, said: dict[str, Any]
) -> None:
    started = node.start("sh", "-c", script)
    started.communicate()
    assert started.returncode == ends
    (row,) = node.rows()
    assert {**row, **said} == row
    assert (row["step"], row["task"], row["program"], row["asked"]) == ("MPI", 5, "sh", False)


def test_a_program_that_is_not_there_is_named(node: Node) -> None:
    started = node.start("no-such-program")
    assert started.communicate()[1] == "no-such-program: No such file or directory\n"
    assert (started.returncode, [row["code"] for row in node.rows()]) == (127, [127])


@pytest.mark.parametrize("to_all", [True, False], ids=["to its group", "to it alone"])
def test_a_rank_gets_each_signal_once_and_an_end_by_one_was_asked_for(node: Node, to_all: bool) -> None:
    started = node.python("""
signal.signal(signal.SIGUSR1, lambda *_: say('saves'))
def end(*_): say('ends'); sys.exit(4)
signal.signal(signal.SIGTERM, end)
say('ready')
while True: time.sleep(60)
""")
    assert started.stdout is not None
    send = os.killpg if to_all else os.kill
    assert started.stdout.readline() == "ready\n"
    send(started.pid, signal.SIGUSR1)
    assert started.stdout.readline() == "saves\n"
    send(started.pid, signal.SIGTERM)
    assert started.communicate()[0] == "ends\n"
    assert started.returncode == 4
    assert [(row["code"], row["asked"]) for row in node.rows()] == [(4, True)]


def test_a_rank_that_dies_of_the_very_signal_it_was_sent_was_asked(node: Node) -> None:
    started = node.python("say('ready'); time.sleep(60)")
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    os.killpg(started.pid, signal.SIGUSR1)
    started.communicate()
    assert [(row["signal"], row["asked"]) for row in node.rows()] == [(signal.SIGUSR1, True)]


def test_a_rank_that_is_killed_itself_was_not_asked(node: Node) -> None:
    started = node.python("time.sleep(60)")
    os.kill(node.rank, signal.SIGKILL)
    started.communicate()
    assert [(row["signal"], row["asked"]) for row in node.rows()] == [(9, False)]
    assert started.returncode == -signal.SIGKILL


def test_a_rank_does_not_outlive_what_mpirun_believes_to_be_it(node: Node) -> None:
    started = node.python("time.sleep(60)")
    assert is_alive(node.rank)
    os.killpg(started.pid, signal.SIGKILL)
    until(lambda: not is_alive(node.rank))


def test_its_output_ends_when_the_rank_closes_it(node: Node) -> None:
    started = node.python("os.close(1); time.sleep(60)")
    assert started.stdout is not None
    assert started.stdout.read() == ""


def test_what_mpirun_hears_of_a_ranks_end_the_worker_has_heard_before(node: Node) -> None:
    read, write = os.pipe()
    started = node.python(f"os.write({write}, b'PMI'); os._exit(3)", pass_fds=(write,))
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        assert stream.read() == b"PMI"
    assert [row["code"] for row in node.rows()] == [3]
    started.communicate()


def test_lines_that_may_be_signs_reach_the_worker_of_the_node(node: Node) -> None:
    started = node.start("sh", "-c", "echo harmless >&2; printf 'NVRM: Xid (PCI:0000): 79, fell off' >&2; exit 1")
    started.communicate()
    rows = [row.get("line") for row in node.told.rows() if "pid" not in row]
    assert rows == ["NVRM: Xid (PCI:0000): 79, fell off", None]


def test_a_stream_that_is_closed_is_in_nobodys_way(node: Node) -> None:
    command = ["sh", "-c", 'exec "$@" <&-', "sh", *HOLDER, "sh", "-c", "cat; exit 3"]
    environ = {**os.environ, "LOCKSTEP_STEPS_DIR": str(node.directory)}
    assert subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, timeout=20).returncode == 3
    assert [row["code"] for row in node.rows()] == [3]


@pytest.mark.parametrize("gone", ["the worker", "its directory"])
def test_without_a_worker_that_listens_the_rank_runs_all_the_same(node: Node, gone: str) -> None:
    env = {}
    if gone == "the worker":
        (node.directory / "told").unlink()
    else:
        env["LOCKSTEP_STEPS_DIR"] = "/nonexistent"
    started = node.start("sh", "-c", "echo out; exit 2", env=env)
    assert started.communicate()[0] == "out\n"
    assert started.returncode == 2


def test_what_a_tenant_writes_there_is_no_row_unless_it_is_one(node: Node) -> None:
    lies = [
        b"\xff\n",
        b"{}\n",
        b"[1]\n",
        b'{"at": 1, "step": 1, "task": -1}\n',
        b"x" * 5000 + b"\n",
        b"[" * 3000 + b"\n",
    ]
    for lie in lies:
        os.write(node.told.writes, lie)
        assert node.told.rows() == []
    os.write(node.told.writes, b'{"at": 1, "step": {}, "task": "7", "program": [], "code": 1, "signal": null, '
             b'"asked": 1, "stderrTail": 0, "nodeRank": 1}\n')  # fmt: skip
    assert node.told.rows() == [
        {"step": "{}", "task": 7, "program": "[]", "code": 1, "signal": None, "at": 1.0, "asked": False,
         "stderrTail": "0"}
    ]  # fmt: skip
