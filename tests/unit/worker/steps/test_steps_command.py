"""``lockstep-step`` as people type it, and ``lockstep_training.step()`` where there is no gang."""

import errno
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.step_gang import StepGang, lockstep_step
from lockstep.worker import lockstep_training
from lockstep.worker.settings import Settings
from lockstep.worker.steps.command import Options, options_of, ranks_of, requests_of
from lockstep.worker.steps.programs import offer_programs, program_environment
from lockstep.worker.steps.streams import Labels, Writer, numbered, settle
from support.stepping import gang_of_steps, until

SETTINGS = Settings("https://x", "team", "hello", "u", 0, 1, "pod", ("true",))


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StepGang]:
    with gang_of_steps(tmp_path_factory.mktemp("gang"), 3) as made:
        yield made


def typed(gang: StepGang, *arguments: str, text: bytes = b"", **environ: str) -> "subprocess.CompletedProcess[bytes]":
    node = gang.nodes[0]
    return subprocess.run(
        [*lockstep_step(node), *arguments], env={**node.environment, **environ}, capture_output=True, timeout=60,
        input=text,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "ranks"),
    [
        (["true"], [0, 1, 2, 3, 4, 5]),
        (["--all", "true"], [0, 1, 2, 3, 4, 5]),
        (["-n", "2", "true"], [0, 1]),
        (["-n=2", "true"], [0, 1]),
        (["--ranks", "0-3,5", "--", "true"], [0, 1, 2, 3, 5]),
        (["--ranks=3,1,3", "true"], [3, 1]),
    ],
)
def test_nodes_are_chosen_by_number_or_by_rank(arguments: list[str], ranks: list[int]) -> None:
    assert ranks_of(options_of(arguments), 6) == ranks


def test_what_stands_behind_the_program_is_the_programs() -> None:
    assert options_of(["--label", "python", "-n", "3", "--", "x"]) == Options(
        ["python", "-n", "3", "--", "x"], label=True
    )
    assert options_of(["--", "--label"]).program == ["--label"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "there is no program to run"),
        (["-n", "9", "true"], "-n 9: this gang has 3 nodes"),
        (["-n", "two", "true"], "-n needs a number, not 'two'"),
        (["-n", "1", "--ranks", "1", "true"], "-n and --ranks do not go together"),
        (["--ranks", "1-", "true"], "--ranks 1-: ranks are listed as 0-3,5"),
        (["--ranks", "2-3", "true"], "--ranks 2-3: this gang has the ranks 0 to 2"),
        (["--ranks"], "--ranks needs a value"),
        (["--ranks=", "true"], "it names no node, and --all means every one"),
        (["-n", "0", "true"], "it names no node, and --all means every one"),
        (["--tasks-per-node", "0", "true"], "--tasks-per-node is from 1 to 512"),
        (["--nodes", "2", "true"], "there is no option --nodes"),
    ],
)
def test_what_is_typed_wrongly_is_named_and_starts_nothing(gang: StepGang, arguments: list[str], words: str) -> None:
    done = typed(gang, *arguments)
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr.decode() == f"lockstep-step: {words}\n"


@pytest.mark.process
def test_outside_of_a_gang_the_command_says_so(gang: StepGang) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "LOCKSTEP_STEPS_DIR"}
    done = subprocess.run(
        [*lockstep_step(gang.nodes[0]), "true"], env=environment, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 125
    assert b"LOCKSTEP_STEPS_DIR is not set" in done.stderr


@pytest.mark.process
def test_the_exit_code_is_the_highest_and_errors_are_named(gang: StepGang) -> None:
    done = typed(gang, "sh", "-c", "exit $((LOCKSTEP_STEP_TASK * 3))")
    assert (done.returncode, done.stderr) == (6, b"")
    killed = typed(gang, "--ranks", "1", "sh", "-c", "kill -TERM $$")
    assert killed.returncode == 143
    assert killed.stderr.decode() == (
        f"lockstep-step: task 0 on rank 1 at 127.0.0.2 port {gang.gang.peers[1].port} ended by signal 15\n"
    )
    missing = typed(gang, "--ranks", "2", "no-such-program")
    assert missing.returncode == 127
    assert missing.stderr.decode().endswith(": no-such-program: No such file or directory\n")


@pytest.mark.process
def test_the_environment_and_the_directory_are_those_of_the_command(gang: StepGang, tmp_path: Path) -> None:
    done = typed(gang, "--cwd", str(tmp_path), "--ranks", "1", "sh", "-c", "pwd; echo $MINE", MINE="x")
    assert done.stdout.decode() == f"{tmp_path}\nx\n"
    assert typed(gang, "--ranks", "1", "pwd").stdout.decode().strip() == os.getcwd()


def test_a_relative_directory_is_below_that_of_the_command_and_not_below_the_step_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for said, meant in (("src", f"{tmp_path}/src"), ("/src", "/src"), ("", f"{tmp_path}")):
        [request] = requests_of(options_of([f"--cwd={said}", "true"]), [0])
        assert request.directory == meant


@pytest.mark.process
def test_labels_stand_in_front_of_whole_lines(gang: StepGang) -> None:
    done = typed(gang, "--label", "--tasks-per-node", "4", "sh", "-c", "printf a; sleep 0.1; printf 'b\\nlast'")
    wanted = sorted(f"{task:2d}: {text}" for task in range(12) for text in ("ab", "last"))
    assert sorted(done.stdout.decode().splitlines()) == wanted
    assert done.stdout.endswith(b"last\n")


@pytest.mark.process
def test_what_is_typed_goes_to_every_process_where_that_is_asked_for(gang: StepGang) -> None:
    assert typed(gang, "--stdin", "cat", text=b"to all\n").stdout == b"to all\n" * 3
    assert typed(gang, "cat", text=b"to all\n").stdout == b""


@pytest.mark.process
def test_input_may_be_for_the_processes_of_one_rank_alone(gang: StepGang) -> None:
    said = typed(gang, "--stdin=1", "--tasks-per-node=2", "--label", "cat", text=b"to one\n").stdout
    assert sorted(said.splitlines()) == [b"2: to one", b"3: to one"]
    ended = typed(gang, "--ranks=0,2", "--stdin=1", "cat")
    assert (ended.returncode, ended.stderr) == (125, b"lockstep-step: --stdin 1: the step has the ranks 0,2\n")


@pytest.mark.process
def test_signals_to_the_command_reach_the_processes(gang: StepGang) -> None:
    node = gang.nodes[0]
    script = "trap 'exit 5' USR1; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [*lockstep_step(node), "sh", "-c", script], env=node.environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [b"ready\n"] * 3
        process.send_signal(signal.SIGUSR1)
        assert process.wait(60) == 5


@pytest.mark.process
def test_the_step_ends_when_nobody_reads_its_output_any_more(gang: StepGang) -> None:
    node = gang.nodes[0]
    with subprocess.Popen(
        [*lockstep_step(node), "--ranks", "1", "yes"], env=node.environment, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait(60) in (137, 143)


@pytest.mark.process
def test_a_full_disk_costs_output_and_not_the_step(gang: StepGang) -> None:
    node = gang.nodes[0]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*lockstep_step(node), "--ranks=1", "sh", "-c", "for n in 1 2 3 4 5; do echo $n; sleep 0.1; done; exit 7"],
            env=node.environment, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    said = b"lockstep-step: stdout: No space left on device; what else goes there is lost\n"
    assert (done.returncode, done.stderr) == (7, said)


@pytest.mark.process
def test_output_waits_for_its_reader_without_holding_up_the_connection(gang: StepGang) -> None:
    node = gang.nodes[0]
    read, write = os.pipe()
    with subprocess.Popen(
        [*lockstep_step(node), "--ranks", "1", "head", "-c", "20000000", "/dev/zero"],
        env=node.environment,
        stdout=write,
    ) as process:
        os.close(write)
        taken = 0
        with os.fdopen(read, "rb") as stream:
            until(lambda: len(stream.peek(1)))
            assert process.poll() is None
            taken = sum(len(part) for part in iter(lambda: stream.read(1 << 20), b""))
        assert (process.wait(60), taken) == (0, 20_000_000)


def test_a_writer_takes_what_goes_and_keeps_the_rest() -> None:
    read, write = os.pipe()
    writer = Writer(write)
    writer.write(bytes(1 << 20))
    assert 0 < writer.unwritten < 1 << 20
    assert os.get_blocking(write), "others have this descriptor, too"
    taken = 0
    while writer.unwritten:
        taken += len(os.read(read, 1 << 20))
        writer.flush()
    os.set_blocking(read, False)
    taken += len(os.read(read, 1 << 20))
    assert taken == 1 << 20
    os.close(read)
    writer.write(b"x")
    assert writer.broken
    writer.write(bytes(10))
    assert writer.unwritten == 0
    os.close(write)
    os.close(writer.descriptor)


def test_a_file_system_that_hangs_holds_up_no_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, plain = threading.Event(), os.write
    with (tmp_path / "log").open("wb") as stream:
        writer, other = Writer(stream.fileno()), Writer(os.dup(stream.fileno()))

        def hang(descriptor: int, data: bytes) -> int:
            if descriptor in (writer.descriptor, other.descriptor):
                assert goes_on.wait(60)
            return plain(descriptor, data)

        monkeypatch.setattr(os, "write", hang)
        writer.write(b"first ")
        other.write(bytes(1 << 20))
        writer.write(b" last")
        poll = select.poll()
        poll.register(*writer.awaited)
        assert (writer.unwritten, writer.is_full, other.is_full) == (11, False, True)
        assert not poll.poll(0), "nobody looks again and again"
        goes_on.set()
        while writer.unwritten:
            assert poll.poll(60_000)
            writer.flush()
        other.flush()
        assert other.unwritten == 0
        os.close(other.descriptor)
    assert (tmp_path / "log").read_bytes() == b"first " + bytes(1 << 20) + b" last", "two streams of one file in order"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.ESTALE])
def test_what_a_file_does_not_take_is_told_once_and_is_no_reader_that_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    plain = os.write
    with (tmp_path / "log").open("wb") as stream:
        writer = Writer(stream.fileno(), "log")

        def fail(descriptor: int, data: bytes) -> int:
            if descriptor == writer.descriptor:
                raise OSError(error, os.strerror(error))
            return plain(descriptor, data)

        monkeypatch.setattr(os, "write", fail)
        for _ in range(3):
            writer.write(b"words")
        settle([writer], 60)
        assert (writer.unwritten, writer.broken, writer.take_failure()) == (0, False, os.strerror(error))
        monkeypatch.undo()
        writer.write(b"more")
        settle([writer], 60)
        assert (writer.unwritten, writer.take_failure()) == (0, "")
    assert (tmp_path / "log").read_bytes() == b"", "nothing behind a gap"


def test_labels_keep_partial_lines_of_each_stream_apart() -> None:
    labels = Labels(numbered([0, 10]))
    assert labels.whole_lines(0, 1, b"a") == b""
    assert labels.whole_lines(0, 2, b"e\n") == b" 0: e\n"
    assert labels.whole_lines(0, 1, b"b\n\nc") == b" 0: ab\n 0: \n"
    assert labels.whole_lines(10, 1, b"\xff\n") == b"10: \xff\n"
    assert labels.rest(0, 1) == b" 0: c\n"
    assert labels.rest(0, 1) == b""


@pytest.mark.process
def test_programs_are_found_behind_those_of_the_image_unless_they_take_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dataclasses

    settings = dataclasses.replace(SETTINGS, scratch=str(tmp_path))
    given = {"PATH": "/usr/bin", "BASH_ENV": "/etc/ours"}
    assert program_environment(settings, given) == {"PATH": f"/usr/bin:{tmp_path}/bin"}
    monkeypatch.setattr("lockstep.worker.steps.programs.SHIMS", {"Plain": {"ssh": "lockstep.worker.steps.command"}})
    assert program_environment(settings, given) == {
        "PATH": f"{tmp_path}/bin:/usr/bin", "BASH_ENV": f"{tmp_path}/bash_env", "LOCKSTEP_BASH_ENV": "/etc/ours"
    }  # fmt: skip
    offer_programs(settings)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "bin").iterdir()}
    offer_programs(settings)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "bin").iterdir()} == before
    assert {path.name for path in before} == {"lockstep-step", "lockstep-rank", "ssh"}
    done = subprocess.run(
        [str(tmp_path / "bin" / "ssh"), "--help"], env={}, capture_output=True, timeout=60, check=True
    )
    assert done.stdout.startswith(b"usage: lockstep-step")


@pytest.mark.process
def test_outside_of_a_gang_a_step_is_a_program_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_STEPS_DIR", raising=False)
    says = "import os, sys; print(os.environ['LOCKSTEP_STEP_TASK']); sys.exit(int(os.environ['LOCKSTEP_STEP_TASK']))"
    done = lockstep_training.step([sys.executable, "-c", says], [0, 1], tasks_per_node=2, capture=True)
    assert (done.codes, done.stdout, done.code) == ({0: 0, 1: 1}, {0: b"0\n", 1: b"1\n"}, 1)
    missing = lockstep_training.step(["no-such-program"])
    assert (missing.codes, missing.problems) == ({0: 127}, {0: "no-such-program: No such file or directory"})
    killed = lockstep_training.step(["sh", "-c", "kill -9 $$"])
    assert killed.code == 137


def test_a_step_on_no_node_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = tmp_path / "made"
    monkeypatch.delenv("LOCKSTEP_STEPS_DIR", raising=False)
    assert lockstep_training.step(["touch", str(made)], []).codes == {}
    monkeypatch.setenv("LOCKSTEP_STEPS_DIR", "/nobody/is/to/ask/there")
    assert lockstep_training.step(["touch", str(made)], range(0)).code == 0
    assert not made.exists()


def test_in_a_gang_without_steps_nobody_is_made_to_believe_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_STEPS_DIR", raising=False)
    monkeypatch.setenv("LOCKSTEP_NNODES", "4")
    with pytest.raises(RuntimeError, match=r"launcher\.steps"):
        lockstep_training.step(["true"])
