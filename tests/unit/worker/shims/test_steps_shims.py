"""``ssh`` and ``pdsh`` as programs of a gang, with real step servers behind them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.step_gang import StepGang
from lockstep.worker.settings import Settings
from lockstep.worker.steps.place import VARIABLE
from lockstep.worker.steps.programs import SHIMS, offer_programs, program_environment

pytestmark = pytest.mark.process
SECONDS = 60


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StepGang]:
    made = StepGang(tmp_path_factory.mktemp("gang"), 3)
    yield made
    made.close()


class Programs:
    """What a pod of `launcher: MPI` finds first on its PATH."""

    def __init__(self, scratch: Path, gang: StepGang) -> None:
        settings = Settings(
            "https://127.0.0.1:1", "team", "hello", "u", 0, 1, "p", ["mpirun"], launcher="MPI", scratch=str(scratch)
        )
        offer_programs(settings)
        found = program_environment(settings, {"PATH": "/usr/bin:/bin"})
        self.environment = {**found, VARIABLE: str(gang.nodes[0].directory)}

    def run(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["env", *words], env=self.environment, input=text, capture_output=True, text=True, timeout=SECONDS
        )


@pytest.fixture
def programs(tmp_path: Path, gang: StepGang) -> Programs:
    return Programs(tmp_path, gang)


@pytest.mark.parametrize("shell", [["bash", "-l"], ["bash", "-lu"], ["bash", "-u"]], ids=" ".join)
def test_a_shell_that_sets_path_anew_finds_them_still(programs: Programs, tmp_path: Path, shell: list[str]) -> None:
    (tmp_path / "ours").write_text("GIVEN=read\n")
    profile = {"HOME": str(tmp_path), "HERE": str(tmp_path)}
    (tmp_path / ".bash_profile").write_text("PATH=/usr/bin:/bin\n")
    script = ["-c", 'command -v ssh; echo ${GIVEN:-}; echo "$BASH_ENV"; bash -c "echo \\$GIVEN"']
    for given, told in ({}, ""), ({"LOCKSTEP_BASH_ENV": "$HERE/ours"}, "read"):
        environ = {**programs.environment, **profile, **given}
        done = subprocess.run([*shell, *script], env=environ, capture_output=True, text=True, timeout=SECONDS)
        assert done.stdout == f"{tmp_path}/bin/ssh\n{told}\n{tmp_path}/bash_env\n{told}\n", done.stderr


@pytest.mark.parametrize(
    ("words", "text", "out", "code"),
    [
        (["-x", "127.0.0.2", "echo", '"$LOCKSTEP_NODE_RANK  a"', ";", "exit", "7"], "", "1  a\n", 7),
        (["-q", "-x", "somebody@127.0.0.3", "cat; echo $LOCKSTEP_NODE_RANK"], "typed\n", "typed\n2\n", 0),
        (["-n", "127.0.0.1", "cat"], "typed\n", "", 0),
        (["127.0.0.2", "kill -9 $$"], "", "", 255),
        (["gpu-3", "echo $LOCKSTEP_NODE_RANK"], "", "2\n", 0),
        (["gpu-2.example.org", "echo $LOCKSTEP_NODE_RANK"], "", "1\n", 0),
    ],
    ids=["shell text", "stdin", "none", "a signal", "a short name", "a name"],
)
def test_ssh_gives_its_text_to_a_shell_of_that_node(
    programs: Programs, words: list[str], text: str, out: str, code: int
) -> None:
    ran = programs.run("ssh", *words, text=text)
    assert (ran.stdout, ran.returncode) == (out, code), ran.stderr


@pytest.mark.parametrize("words", [["10.1.2.3", "true"], ["-L", "1:a:2", "127.0.0.2", "true"]])
def test_ssh_reaches_nobody_else_and_says_so(programs: Programs, words: list[str]) -> None:
    ran = programs.run("ssh", *words)
    assert (ran.stdout, ran.returncode) == ("", 255)
    assert ran.stderr.startswith("ssh: ")


def test_ssh_outside_of_a_gang_says_what_lacks(programs: Programs) -> None:
    del programs.environment[VARIABLE]
    ran = programs.run("ssh", "127.0.0.2", "true")
    assert (ran.returncode, VARIABLE in ran.stderr) == (255, True)


def test_ssh_that_goes_to_the_background_ends_once_its_command_runs(programs: Programs, tmp_path: Path) -> None:
    done = tmp_path / "done"
    begun = subprocess.run(
        ["env", "ssh", "-f", "127.0.0.2", f"sleep 2; touch {done}"], env=programs.environment, timeout=SECONDS,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert (begun.returncode, done.exists()) == (0, False)
    subprocess.run([sys.executable, "-c", WAIT, str(done)], check=True, timeout=SECONDS)


WAIT = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]):\n    time.sleep(0.05)"


def test_pdsh_puts_the_host_before_each_line_and_tells_the_highest_code(programs: Programs) -> None:
    text = "echo $LOCKSTEP_NODE_RANK %n %h; exit %n"
    ran = programs.run("pdsh", "-S", "-w", "127.0.0.[2-3],10.1.2.3", text)
    assert sorted(ran.stdout.splitlines()) == ["127.0.0.2: 1 0 127.0.0.2", "127.0.0.3: 2 1 127.0.0.3"]
    assert ran.returncode == 255
    assert "pdsh@lockstep: 127.0.0.3: ssh exited with exit code 1" in ran.stderr
    assert "10.1.2.3: it is no node of this gang" in ran.stderr
    assert programs.run("pdsh", "-w", "127.0.0.2", "exit 3").returncode == 0


def test_pdsh_knows_nodes_by_their_names(programs: Programs) -> None:
    ran = programs.run("pdsh", "-w", "gpu-[2-3]", "echo $LOCKSTEP_NODE_RANK")
    assert sorted(ran.stdout.splitlines()) == ["gpu-2: 1", "gpu-3: 2"]


def test_a_command_of_pdsh_that_takes_too_long_is_ended(programs: Programs) -> None:
    assert programs.run("pdsh", "-S", "-u", "1", "-w", "127.0.0.[1-3]", "sleep 100").returncode == 128 + 15


def test_only_launchers_that_need_them_put_them_first() -> None:
    assert set(SHIMS) == {"MPI", "DeepSpeed", "Slurm"}
