"""pdsh as DeepSpeed calls it, and people."""

from collections.abc import Sequence

import pytest

from lockstep.worker.shims.pdsh import PdshCommand, exit_code, exit_line, parse, request
from lockstep.worker.shims.request import ShimAnswer, ShimPart, ShimRequest, ShimTask
from lockstep.worker.shims.targets import Gang

GANG = Gang(["10.9.0.1", "10.9.0.2", "10.9.0.3"], 0, ["n1", "n2", "n3"])
ALL = ["10.9.0.1", "10.9.0.2", "10.9.0.3"]


def hosts(*arguments: str, environ: dict[str, str] | None = None, files: dict[str, str] | None = None) -> Sequence[str]:
    made = parse([*arguments, "x"], environ or {}, GANG, reader=(files or {}).__getitem__)
    assert isinstance(made, PdshCommand)
    return made.hosts


def test_deepspeeds_call_is_understood() -> None:
    arguments = ["-S", "-f", "1024", "-w", "n1,n2", "export A=1;", " cd /w;", "python", "-u", "--node_rank=%n", "t.py"]
    made = parse(arguments, {"PDSH_RCMD_TYPE": "ssh"}, GANG)
    text = "export A=1;  cd /w; python -u --node_rank={} t.py"
    assert made == PdshCommand(["n1", "n2"], [text.format(0), text.format(1)], labels=True, highest_code=True)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["-w", "n1,n3"], ["n1", "n3"]),
        (["-wn[1-3]"], ["n1", "n2", "n3"]),
        (["-w", "10.9.0.[1-2]"], ["10.9.0.1", "10.9.0.2"]),
        (["-w", "n[1-2],n3"], ["n1", "n2", "n3"]),
        (["-w", "n1", "-w", "n2"], ["n1", "n2"]),
        (["-w", "n[1-3]", "-x", "n2"], ["n1", "n3"]),
        (["-w", "n[1-3],-n[1-2]"], ["n3"]),
        (["-w", "ssh:ann@n1,bob@n2"], ["n1", "n2"]),
        (["-a"], ALL),
        (["-w", "^/hosts"], ["n2", "n3"]),
        (["-w", "-"], ["n1"]),
        (["-R", "ssh", "-l", "ann", "-t", "5", "-b", "-w", "n1"], ["n1"]),
    ],
)
def test_hosts_are_read(arguments: list[str], found: list[str]) -> None:
    assert hosts(*arguments, files={"/hosts": "n2\nn3\n", "-": "n1\n"}) == found


def test_without_any_a_file_may_say_them() -> None:
    assert hosts(environ={"WCOLL": "/hosts"}, files={"/hosts": "n2\n"}) == ["n2"]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["-N", "-w", "n1", "a", "b"], PdshCommand(["n1"], ["a b"], labels=False)),
        (["-u", "9", "-w", "n1", "a"], PdshCommand(["n1"], ["a"], timeout=9)),
        (["-w", "n[1-2]", "%h %n %u %% %q"], PdshCommand(["n1", "n2"], ["n1 0 ann % %q", "n2 1 ann % %q"])),
        (["-l", "bob", "-w", "n1", "%u"], PdshCommand(["n1"], ["bob"])),
        (["-w", "n1", "a", "-N"], PdshCommand(["n1"], ["a -N"])),
    ],
)
def test_options_and_escapes(arguments: list[str], command: PdshCommand) -> None:
    assert parse(arguments, {}, GANG, user="ann") == command


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-V"], 0, "pdsh-"),
        (["-h"], 0, "Usage: pdsh"),
        (["x"], 1, "no remote hosts specified"),
        (["-w", "n1"], 1, "no command"),
        (["-g", "all", "x"], 1, "no groups of hosts"),
        (["-w", "n[2-1]", "x"], 1, "no range"),
        (["-w"], 1, "requires an argument"),
        (["-Z", "x"], 1, "invalid option"),
        (["-w", "^/hosts", "x"], 1, "cannot be read"),
    ],
)
def test_what_it_answers_itself(arguments: list[str], code: int, words: str) -> None:
    answer = parse(arguments, {}, GANG)
    assert isinstance(answer, ShimAnswer)
    assert (answer.code, words in answer.out + answer.err) == (code, True)


def test_each_host_is_a_task_of_one_step_behind_its_name() -> None:
    made, lines = request(PdshCommand(["n2", "n1"], ["a", "b"]), GANG)
    parts = [ShimPart(1, [ShimTask(0)], shell="a"), ShimPart(0, [ShimTask(1)], shell="b")]
    assert made == ShimRequest(parts, labels={0: "n2: ", 1: "n1: "})
    assert lines == []
    assert request(PdshCommand(["n1"], ["a"], labels=False), GANG)[0].labels is None


def test_a_host_that_is_not_of_the_gang_fails_and_the_others_run() -> None:
    made, lines = request(PdshCommand(["n9", "n1"], ["a", "b"]), GANG)
    assert [part.rank for part in made.parts] == [0]
    assert lines[0].startswith("n9: ssh: Could not resolve hostname n9")
    assert lines[1] == exit_line("n9", 255) == "pdsh@lockstep: n9: ssh exited with exit code 255"


def test_its_code_is_the_highest_only_if_asked() -> None:
    assert exit_code(PdshCommand([], [], highest_code=True), [0, 3, 1]) == 3
    assert exit_code(PdshCommand([], []), [0, 3, 1]) == 0
    assert exit_code(PdshCommand([], [], highest_code=True), []) == 0
