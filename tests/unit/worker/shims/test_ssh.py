"""ssh as its callers write it: mpirun, pdsh, DeepSpeed and people."""

import pytest

from lockstep.worker.shims.request import EVERYBODY, NOBODY, ShimAnswer, ShimPart, ShimRequest, ShimTask
from lockstep.worker.shims.ssh import SshCommand, exit_code, parse, request, unreachable
from lockstep.worker.shims.targets import Gang

GANG = Gang(["10.9.0.1", "10.9.0.2", "fd00::3"], 0, ["n1.example.org", "n2.example.org", "n3.other.org"])


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (  # Open MPI 4: a leading space, quotes for a shell
            ["-x", "10.9.0.2", " orted", "-mca", "ess", '"env"', "-mca", "orte_node_regex", '"n[1:1-2]@0(2)"'],
            SshCommand("10.9.0.2", ' orted -mca ess "env" -mca orte_node_regex "n[1:1-2]@0(2)"'),
        ),
        (  # with a prefix, and Open MPI 5: shell text
            ["-x", "n2", "PATH=/p/bin:$PATH ; export PATH ; /p/bin/orted", "-mca", "a", "b"],
            SshCommand("n2", "PATH=/p/bin:$PATH ; export PATH ; /p/bin/orted -mca a b"),
        ),
        (  # Hydra
            ["-x", "10.9.0.2", '"/p/bin/hydra_pmi_proxy"', "--control-port", "10.9.0.1:4"],
            SshCommand("10.9.0.2", '"/p/bin/hydra_pmi_proxy" --control-port 10.9.0.1:4'),
        ),
        (  # Intel MPI
            ["-q", "-x", "10.9.0.2", "/p/bin//hydra_bstrap_proxy", "--proxy-id", "1"],
            SshCommand("10.9.0.2", "/p/bin//hydra_bstrap_proxy --proxy-id 1", quiet=True),
        ),
        (["-2", "-a", "-x", "-lann", "n2", "cd /w;", "x"], SshCommand("n2", "cd /w; x", user="ann")),  # pdsh
        (["-2", "-a", "-x", "n2", "x"], SshCommand("n2", "x")),
        (["-o", "PasswordAuthentication=no", "-p", "22", "n2", "hostname"], SshCommand("n2", "hostname")),  # DeepSpeed
        (["n2", "hostname", "-I"], SshCommand("n2", "hostname -I")),
        (["-oStrictHostKeyChecking=no", "-i", "/key", "-F", "/c", "ann@n2", "x"], SshCommand("n2", "x", user="ann")),
        (["-lbob", "ann@n2", "x"], SshCommand("n2", "x", user="bob")),
        (["n2", "-l", "bob", "-q", "x", "-q"], SshCommand("n2", "x -q", user="bob", quiet=True)),  # behind the host too
        (["n2", "--", "-x"], SshCommand("n2", "-x")),
        (["--", "n2", "-x"], SshCommand("n2", "-x")),
        (["-n", "n2", "x"], SshCommand("n2", "x", stdin=False)),
        (["-f", "n2", "x"], SshCommand("n2", "x", stdin=False, detached=True)),
        (["-tt", "n2", "x"], SshCommand("n2", "x")),
        (["-4xqp22", "n2", "x"], SshCommand("n2", "x", quiet=True)),
        (["ssh://ann@n2:22", "x"], SshCommand("n2", "x", user="ann")),
        (["ssh://n2/", "x"], SshCommand("n2", "x")),
        (["n2"], SshCommand("n2", "")),
    ],
)
def test_it_is_read_as_openssh_reads_it(arguments: list[str], command: SshCommand) -> None:
    assert parse(arguments) == command


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-V"], 0, "OpenSSH_"),
        ([], 255, "usage: ssh"),
        (["-x"], 255, "usage: ssh"),
        (["-p"], 255, "option requires an argument -- p"),
        (["-Z", "n2"], 255, "unknown option -- Z"),
        (["-L", "1:localhost:2", "n2"], 255, "forwards no ports"),
        (["-N", "n2"], 255, "does nothing without a command"),
        (["-s", "n2", "sftp"], 255, "has no subsystems"),
        (["-W", "h:1", "n2"], 255, "forwards no ports"),
        (["-O", "exit", "n2"], 255, "has no master connections"),
    ],
)
def test_what_it_answers_itself_it_says_as_ssh_does(arguments: list[str], code: int, words: str) -> None:
    answer = parse(arguments)
    assert isinstance(answer, ShimAnswer)
    assert answer.code == code
    assert words in answer.err


@pytest.mark.parametrize(
    ("host", "rank"),
    [
        ("10.9.0.2", 1), ("n2.example.org", 1), ("n2", 1), ("N2", 1), ("n3.cut.elsewhere", 2), ("localhost", 0),
        ("127.0.0.1", 0), ("fd00::3", 2), ("[fd00::3]", 2),
    ],
)  # fmt: skip
def test_a_host_is_a_node_by_address_or_name(host: str, rank: int) -> None:
    made = request(SshCommand(host, "x y"), GANG)
    assert made == ShimRequest([ShimPart(rank, [ShimTask(0)], shell="x y")], stdin=EVERYBODY)


@pytest.mark.parametrize("host", ["10.9.0.3", "n4", "github.com", "10", ""])
def test_hosts_that_are_not_of_the_gang_are_not_known(host: str) -> None:
    answer = request(SshCommand(host, "x"), GANG)
    assert isinstance(answer, ShimAnswer)
    assert answer.code == 255
    assert answer.err.startswith(f"ssh: Could not resolve hostname {host}: ")


def test_a_short_name_that_two_nodes_have_is_nobodys() -> None:
    assert Gang(["10.9.0.1", "10.9.0.2"], 0, ["n1.a.org", "n1.b.org"]).rank_of("n1") is None


def test_without_a_command_the_shell_reads_stdin() -> None:
    made = request(SshCommand("n2", ""), GANG)
    assert made == ShimRequest([ShimPart(1, [ShimTask(0)], shell="exec /bin/sh")], stdin=EVERYBODY)


def test_stdin_and_background_are_as_asked() -> None:
    quiet, behind = (
        request(SshCommand("n2", "x", stdin=False), GANG),
        request(SshCommand("n2", "x", detached=True), GANG),
    )
    assert isinstance(quiet, ShimRequest)
    assert isinstance(behind, ShimRequest)
    assert (quiet.stdin, quiet.detached, behind.detached) == (NOBODY, False, True)


def test_its_code_is_the_commands_and_255_for_everything_else() -> None:
    assert [exit_code(code) for code in (0, 7, None)] == [0, 7, 255]
    assert unreachable("n2", "Connection timed out") == "ssh: connect to host n2: Connection timed out\n"
