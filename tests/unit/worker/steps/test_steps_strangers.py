"""Who is of another gang, lies, stalls or floods starts nothing, and holds up nobody's step."""

import contextlib
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.proc import is_alive
from harness.running_worker import pid_in
from harness.step_gang import RUN_UID, Authority, StepGang
from lockstep.worker.steps import frames
from lockstep.worker.steps.client import TaskOutcome
from lockstep.worker.steps.credentials import Peer, knock_of, tls_context, write_credentials
from lockstep.worker.steps.frames import ALL, Channel
from support.stepping import Asking, Kept, asked, gang_of_steps, run, shell, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StepGang]:
    with gang_of_steps(tmp_path_factory.mktemp("gang"), 3, attempt=3, incarnation=2) as made:
        yield made


def touch(path: Path, rank: int = 1) -> "frames.JSON":
    return asked(rank, "touch", str(path)).header()


@contextlib.contextmanager
def connected(gang: StepGang, rank: int, context: ssl.SSLContext) -> Iterator[Channel]:
    plain = socket.create_connection(gang.nodes[rank].address, timeout=20)
    with plain, context.wrap_socket(plain, server_hostname=knock_of(str(gang.nodes[0].directory))) as tls:
        yield Channel(tls)


def answers_of(channel: Channel, *said: tuple[int, int, bytes]) -> list[frames.Frame]:
    """What a node says until it hangs up, or has refused. Raises OSError."""
    for frame in said:
        channel.send(*frame)
    answers: list[frames.Frame] = []
    while not channel.over and not any(answer.kind == frames.ERROR for answer in answers):
        ready = select.select([channel], [channel] if channel.unsent else [], [], 20)
        assert any(ready), "it neither answers nor hangs up"
        channel.flush()
        answers += channel.receive()
    return answers


def said_to(gang: StepGang, directory: Path, rank: int, *said: tuple[int, int, bytes]) -> list[frames.Frame]:
    """The same, by the certificate that is there. Raises OSError; to be hung up on is no answer."""
    with connected(gang, rank, tls_context(str(directory), server=False)) as channel:
        try:
            return answers_of(channel, *said)
        except ConnectionError:
            return []


def test_without_a_certificate_nothing_is_started(gang: StepGang, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(str(gang.nodes[0].directory / "ca.pem"))
    header = frames.packed(touch(tmp_path / "ran"))
    with connected(gang, 1, context) as channel, pytest.raises(OSError, match=r"CERTIFICATE_REQUIRED|EOF|reset"):
        answers_of(channel, (frames.HEADER, ALL, header))
    assert run(gang, asked(1, "true")).outcomes == {1: TaskOutcome(0)}
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "uri",
    [
        "lockstep://run/another/attempt/3/slot/0/incarnation/2",
        f"lockstep://run/{RUN_UID}/attempt/2/slot/0/incarnation/2",
        f"lockstep://run/{RUN_UID}/attempt/3/slot/0/incarnation/1",
        f"lockstep://run/{RUN_UID}/attempt/3/slot/3/incarnation/2",
    ],
    ids=["another run", "an older attempt", "an older pod", "a slot that is not of the gang"],
)
def test_whose_certificate_says_something_else_is_not_answered(gang: StepGang, tmp_path: Path, uri: str) -> None:
    directory = gang.credentials(tmp_path.name, uri)
    assert said_to(gang, directory, 1, (frames.HEADER, ALL, frames.packed(touch(tmp_path / "ran")))) == []
    assert not (tmp_path / "ran").exists()


def test_whose_certificate_says_several_things_is_not_answered(gang: StepGang, tmp_path: Path) -> None:
    own, more = gang.gang.identity(0), gang.gang.identity(1)
    directory = gang.credentials("several", own, more)
    assert said_to(gang, directory, 1, (frames.HEADER, ALL, frames.packed(touch(tmp_path / "ran")))) == []
    assert not (tmp_path / "ran").exists()


def test_a_certificate_of_another_attempts_authority_fails_in_the_handshake(gang: StepGang, tmp_path: Path) -> None:
    directory = gang.credentials("older", gang.gang.identity(0), by=Authority())
    asking = Asking(directory, [asked(1, "touch", str(tmp_path / "ran"))])
    outcome = asking.wait()[1]
    assert (outcome.code, outcome.reason) == (255, "NodeUnreachable")
    assert f"rank 1 at 127.0.0.2 port {gang.nodes[1].address[1]} does not take this node for one of its gang" in (
        outcome.words
    )
    assert not (tmp_path / "ran").exists()


def test_a_server_of_another_slot_is_told_nothing(gang: StepGang, tmp_path: Path) -> None:
    swapped = list(gang.gang.peers)
    swapped[1], swapped[2] = (
        swapped[1]._replace(port=swapped[2].port, address=swapped[2].address),
        swapped[2]._replace(port=swapped[1].port, address=swapped[1].address),
    )
    directory = tmp_path / "swapped"
    write_credentials(
        str(directory), gang.gang._replace(peers=swapped), gang.authority.certificate,
        *gang.authority.issue(gang.gang.identity(0)),
    )  # fmt: skip
    outcome = Asking(directory, [asked(1, "touch", str(tmp_path / "ran"))]).wait()[1]
    assert outcome.code == 255
    assert "its certificate is of" in outcome.words
    assert not (tmp_path / "ran").exists()


def test_a_server_of_another_authority_is_told_nothing(gang: StepGang, tmp_path: Path) -> None:
    directory = tmp_path / "trusts-others"
    write_credentials(
        str(directory), gang.gang, Authority().certificate, *gang.authority.issue(gang.gang.identity(0))
    )  # fmt: skip
    outcome = Asking(directory, [asked(1, "touch", str(tmp_path / "ran"))], reach=1.0).wait()[1]
    assert outcome.code == 255
    assert outcome.words == (
        f"rank 1 at 127.0.0.2 port {gang.nodes[1].address[1]} cannot be reached: it hangs up, as on whoever is not of "
        "its gang"
    )
    assert not (tmp_path / "ran").exists()


def test_what_is_asked_of_another_rank_is_refused(gang: StepGang, tmp_path: Path) -> None:
    header = frames.packed(touch(tmp_path / "ran", rank=2))
    (answer,) = said_to(gang, gang.nodes[0].directory, 1, (frames.HEADER, ALL, header))
    assert answer.kind == frames.ERROR
    assert answer.object()["words"] == "this is rank 1, not 2"
    assert not (tmp_path / "ran").exists()


def test_what_was_recorded_starts_nothing_when_it_is_played_again(gang: StepGang, tmp_path: Path) -> None:
    recorded = bytearray()
    proxy = socket.create_server(("127.0.0.1", 0))

    def pass_on() -> None:
        client, _ = proxy.accept()
        with client, socket.create_connection(gang.nodes[1].address) as server:
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    if ready is client:
                        recorded.extend(data)
                    (server if ready is client else client).sendall(data)

    threading.Thread(target=pass_on, daemon=True).start()
    peers = list(gang.gang.peers)
    peers[1] = peers[1]._replace(address="127.0.0.1", port=proxy.getsockname()[1])
    directory = tmp_path / "by-proxy"
    write_credentials(
        str(directory), gang.gang._replace(peers=peers), gang.authority.certificate,
        *gang.authority.issue(gang.gang.identity(0)),
    )  # fmt: skip
    counts = shell(1, f"echo once >> {tmp_path}/ran")
    assert Asking(directory, [counts]).wait() == {1: TaskOutcome(0)}
    proxy.close()
    with socket.create_connection(gang.nodes[1].address, timeout=20) as again, contextlib.suppress(OSError):
        again.sendall(recorded)
        while again.recv(65536):
            pass
    assert run(gang, asked(1, "true")).outcomes == {1: TaskOutcome(0)}
    assert (tmp_path / "ran").read_text() == "once\n"


def test_who_says_nothing_or_stalls_in_the_handshake_holds_up_nobody(tmp_path: Path) -> None:
    with gang_of_steps(tmp_path, 2) as gang, contextlib.ExitStack() as stack:
        hello = ssl.MemoryBIO()
        stalled = tls_context(str(gang.nodes[0].directory), server=False).wrap_bio(
            ssl.MemoryBIO(), hello, server_hostname=knock_of(str(gang.nodes[0].directory))
        )
        with pytest.raises(ssl.SSLWantReadError):
            stalled.do_handshake()
        begins = hello.read()
        for number in range(200):
            connection = stack.enter_context(socket.create_connection(gang.nodes[1].address))
            if number % 2:
                connection.sendall(begins[: 20 if number % 4 == 1 else None])
        began = time.monotonic()
        assert run(gang, asked(1, "true")).outcomes == {1: TaskOutcome(0)}
        assert time.monotonic() - began < 20.0


def test_a_flood_of_connections_holds_up_nobody_beyond_the_deadline(tmp_path: Path) -> None:
    with gang_of_steps(tmp_path, 2) as gang:
        flood = """
import socket, sys, time
address = (sys.argv[1], int(sys.argv[2]))
held = []
print("begun", flush=True)
while True:
    try:
        held.append(socket.create_connection(address, timeout=1))
        held[-1].sendall([b"\\x16", b"\\x16\\x03\\x01\\x00\\x04\\x01\\x00\\x00\\x00", b"GET / HTTP/1.0"][len(held) % 3])
    except OSError:
        pass
    held = held[-300:]
    time.sleep(0.002)
"""
        host, port = gang.nodes[1].address
        with subprocess.Popen([sys.executable, "-Sc", flood, host, str(port)], stdout=subprocess.PIPE) as flooding:
            assert flooding.stdout is not None
            assert flooding.stdout.readline() == b"begun\n"
            try:
                for _ in range(3):
                    assert run(gang, asked(1, "true")).outcomes == {1: TaskOutcome(0)}
            finally:
                flooding.kill()


@pytest.mark.parametrize(
    "lie",
    [
        (frames.STDIN, ALL, b"x" * (frames.FIRST_CREDIT + 1)),
        (frames.STDOUT, ALL, b"x"),
        (frames.SIGNAL, ALL, b"nine"),
        (frames.SIGNAL, ALL, b"-1"),
        (frames.END, ALL, b"nan"),
        (frames.HEADER, ALL, b"{}"),
        (200, 7, b""),
    ],
    ids=["more than there is room for", "output", "no signal", "all processes", "no number", "again", "unknown"],
)
def test_who_lies_in_the_middle_loses_its_own_step_alone(
    gang: StepGang, tmp_path: Path, lie: tuple[int, int, bytes]
) -> None:
    other = Asking(gang.nodes[0].directory, [shell(1, "echo r; read line; exit 4", tasks=[9])])
    until(lambda: other.out(9))
    # Renamed: one that was ended before it could say its PID has said nothing.
    says = f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 1000"
    header = asked(1, "sh", "-c", says, stdin=True).header()
    began = time.monotonic()
    with contextlib.suppress(OSError):
        said_to(gang, gang.nodes[0].directory, 1, (frames.HEADER, ALL, frames.packed(header)), lie)
    assert time.monotonic() - began < frames.SILENT_SECONDS - 5, "it was hung up on, and not merely lost"
    if (tmp_path / "pid").exists():
        pid = pid_in(tmp_path / "pid")
        until(lambda: not is_alive(pid))
    assert other.wait() == {9: TaskOutcome(4)}


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{" * 100_000,
        frames.packed({"version": 2}),
        frames.packed({**asked(1, "true").header(), "tasks": []}),
        frames.packed({**asked(1, "true").header(), "tasks": [{"id": n, "env": {}} for n in range(600)]}),
        frames.packed({**asked(1, "true").header(), "argv": ["a\0b"]}),
        frames.packed({**asked(1, "true").header(), "env": {"A=B": "c"}}),
        frames.packed({**asked(1, "true").header(), "shell": "true"}),
        frames.packed({**asked(1, "true").header(), "grace": "long"}),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(gang: StepGang, header: bytes) -> None:
    answers = said_to(gang, gang.nodes[0].directory, 1, (frames.HEADER, ALL, header))
    assert [answer.kind for answer in answers] in ([frames.ERROR], [])
    assert run(gang, asked(1, "true")).outcomes == {1: TaskOutcome(0)}


def test_a_frame_that_says_to_be_huge_ends_its_connection_at_once(gang: StepGang) -> None:
    with connected(gang, 1, tls_context(str(gang.nodes[0].directory), server=False)) as channel:
        channel.tls.setblocking(True)
        channel.tls.sendall(b"\x01" + b"\xff" * 8)
        assert channel.tls.recv(100) == b""


def test_a_client_that_says_nothing_any_more_is_lost_and_its_processes_end(tmp_path: Path) -> None:
    quick = "from lockstep.worker.steps import frames; frames.SILENT_SECONDS = 1.0"
    with gang_of_steps(tmp_path, 1, first=quick) as gang:
        header = asked(0, "sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 1000").header()
        with connected(gang, 0, tls_context(str(gang.nodes[0].directory), server=False)) as channel:
            channel.send(frames.HEADER, ALL, frames.packed(header))
            channel.flush()
            pid = pid_in(tmp_path / "pid")
            until(lambda: not is_alive(pid))


def test_a_peer_that_says_nothing_any_more_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "SILENT_SECONDS", 1.0)
    with gang_of_steps(tmp_path, 2) as gang:
        asking = Asking(gang.nodes[0].directory, [shell(1, "echo $PPID; exec sleep 1000")])
        session = int(until(lambda: asking.out(1)))
        os.kill(session, signal.SIGSTOP)
        outcome = asking.wait()[1]
        os.kill(session, signal.SIGKILL)
    assert outcome.code == 255
    assert outcome.words == f"rank 1 at 127.0.0.2 port {gang.gang.peers[1].port} has said nothing for 1 s"


def test_a_peer_that_a_file_system_holds_up_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named pipe is opened only once somebody reads it."""
    log = tmp_path / "log"
    os.mkfifo(log)
    quick = "from lockstep.worker.steps import frames; frames.PING_SECONDS, frames.SILENT_SECONDS = 0.2, 1.0"
    monkeypatch.setattr(frames, "PING_SECONDS", 0.2)
    monkeypatch.setattr(frames, "SILENT_SECONDS", 1.0)
    with gang_of_steps(tmp_path, 2, first=quick) as gang:
        said = shell(1, "echo said >&2; exit 3")
        asking = Asking(gang.nodes[0].directory, [said._replace(tasks=[said.tasks[0]._replace(stderr=str(log))])])
        late = time.monotonic() + 2 * frames.SILENT_SECONDS
        until(lambda: asking.outcomes or any(node._heard > late for node in asking.step._nodes))
        reads = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
        assert asking.wait() == {1: TaskOutcome(3)}
        assert os.read(reads, 100) == b"said\n"
        os.close(reads)


def test_a_node_without_room_for_another_thread_starts_what_it_is_asked_for(tmp_path: Path) -> None:
    none = "import threading\ndef no(self): raise RuntimeError('no more threads')\nthreading.Thread.start = no"
    with gang_of_steps(tmp_path, 2, first=none) as gang:
        assert run(gang, shell(1, "exit 3")).outcomes == {1: TaskOutcome(3)}


def test_a_peer_is_heard_before_it_is_lost_where_this_process_was_held_up(gang: StepGang) -> None:
    class HeldUp(Kept):
        """For longer than a peer may be silent, which speaks meanwhile."""

        def output(self, task: int, stream: int, data: bytes) -> None:
            super().output(task, stream, data)
            if data == b"begun\n":
                [node] = until(lambda: made)[0].step._nodes
                poll = select.poll()
                poll.register(node._channel, select.POLLIN)
                assert poll.poll(60_000)
                node._heard -= 2 * frames.SILENT_SECONDS

    made: list[Asking] = []
    asks = [shell(1, "echo begun; sleep 0.1; echo more; exit 3")]
    made.append(Asking(gang.nodes[0].directory, asks, kept=HeldUp()))
    assert made[0].wait() == {1: TaskOutcome(3)}


def test_a_peer_that_dies_in_the_middle_is_named(gang: StepGang) -> None:
    asking = Asking(gang.nodes[0].directory, [shell(1, "echo $PPID; exec sleep 1000"), asked(2, "true")])
    os.kill(int(until(lambda: asking.out(1))), signal.SIGKILL)
    outcomes = asking.wait()
    assert outcomes[2] == TaskOutcome(0)
    assert (outcomes[1].code, outcomes[1].reason) == (255, "NodeUnreachable")
    assert outcomes[1].words.startswith(f"the connection to rank 1 at 127.0.0.2 port {gang.gang.peers[1].port} broke")


@pytest.mark.parametrize("listens", [False, True], ids=["refuses", "accepts and says nothing"])
def test_a_peer_that_cannot_be_reached_is_named_within_the_deadline(
    gang: StepGang, tmp_path: Path, listens: bool
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.9", 0))
        if listens:
            silent.listen(1)
        peers = [*gang.gang.peers[:2], Peer("127.0.0.9", silent.getsockname()[1], 2, 2)]
        directory = tmp_path / "lost"
        write_credentials(
            str(directory), gang.gang._replace(peers=peers), gang.authority.certificate,
            *gang.authority.issue(gang.gang.identity(0)),
        )  # fmt: skip
        began = time.monotonic()
        asking = Asking(directory, [asked(1, "true"), asked(2, "true")], reach=1.0)
        outcomes = asking.wait()
    assert time.monotonic() - began < 15.0
    assert outcomes[1] == TaskOutcome(0)
    assert (outcomes[2].code, outcomes[2].reason) == (255, "NodeUnreachable")
    assert f"rank 2 at 127.0.0.9 port {peers[2].port}" in outcomes[2].words


def test_a_server_whose_certificate_is_anothers_is_told_nothing(gang: StepGang, tmp_path: Path) -> None:
    """It knows all that the gang knows, but for a key that the gang's authority has signed."""
    other = Authority()
    directory = tmp_path / "false"
    certificate, key = other.issue(gang.gang.identity(1))
    write_credentials(str(directory), gang.gang, gang.authority.certificate, certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        said: list[object] = []

        def serve() -> None:
            connection, _ = listener.accept()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(directory / "node.pem")
            try:
                with context.wrap_socket(connection, server_side=True) as tls:
                    said.append(tls.recv(100))
            except OSError as error:
                said.append(error)

        threading.Thread(target=serve, daemon=True).start()
        peers = [gang.gang.peers[0], gang.gang.peers[1]._replace(address="127.0.0.1", port=listener.getsockname()[1])]
        asks = tmp_path / "asks"
        write_credentials(
            str(asks), gang.gang._replace(peers=peers), gang.authority.certificate,
            *gang.authority.issue(gang.gang.identity(0)),
        )  # fmt: skip
        outcome = Asking(asks, [asked(1, "true")]).wait()[1]
        assert "is none of this attempt" in outcome.words
        assert isinstance(until(lambda: said)[0], ssl.SSLError)
