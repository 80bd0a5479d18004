"""What the side that asks for a step makes of slow screens, of peers that lie, and of its own node's shortages."""

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from harness.step_gang import StepGang
from lockstep.worker.steps import frames
from lockstep.worker.steps.client import TaskOutcome
from lockstep.worker.steps.credentials import tls_context, write_credentials
from lockstep.worker.steps.frames import Channel
from lockstep.worker.steps.streams import Writer
from support.stepping import Asking, Kept, asked, gang_of_steps, run, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StepGang]:
    with gang_of_steps(tmp_path_factory.mktemp("gang"), 3) as made:
        yield made


class Screen(Kept):
    """Somebody reads it, but not at the moment."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.writes = os.pipe()
        self._writer = Writer(self.writes)
        self._writer.write(bytes(2 << 20))

    def writers(self) -> Sequence[Writer]:
        return [self._writer]

    def close(self) -> None:
        os.close(self._writer.descriptor)
        os.close(self.writes)
        while os.read(self.reads, 1 << 20):
            pass
        os.close(self.reads)


def test_a_node_that_answers_while_nobody_reads_what_others_say_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than a node has time to answer, or a client to say something."""
    quick = "from lockstep.worker.steps import frames; frames.SILENT_SECONDS = 2.0"
    monkeypatch.setattr(frames, "PING_SECONDS", 0.2)
    screen = Screen()
    with gang_of_steps(tmp_path, 2, first=quick) as gang:
        asking = Asking(gang.nodes[0].directory, [asked(1, "sh", "-c", "sleep 3; exit 3")], kept=screen, reach=1.0)
        late = time.monotonic() + 4.0
        until(lambda: asking.outcomes or time.monotonic() > late)
        taken = os.read(screen.reads, 1 << 20)
        while len(taken) < 2 << 20:
            taken += os.read(screen.reads, 1 << 20)
        assert asking.wait() == {1: TaskOutcome(3)}
    screen.close()


@pytest.mark.parametrize(
    "said", [b'{"code": "x"}', b'{"code": [1]}', b'{"code": 1e999}', b'{"signal": 1e30}', b'{"code": -1}'], ids=repr
)
def test_a_peer_that_lies_of_how_a_task_has_ended_is_the_only_one_that_is_lost(
    gang: StepGang, tmp_path: Path, said: bytes
) -> None:
    with socket.create_server(("127.0.0.2", 0)) as listener:

        def lie() -> None:
            connection, _ = listener.accept()
            connection.settimeout(60)
            context = tls_context(str(gang.nodes[1].directory), server=True)
            with context.wrap_socket(connection, server_side=True) as tls:
                tls.recv(1 << 16)
                channel = Channel(tls)
                channel.send(frames.EXIT, 1, said)
                channel.send(frames.DONE)
                channel.flush()
                tls.settimeout(60)
                tls.recv(1 << 16)

        liar = threading.Thread(target=lie, daemon=True)
        liar.start()
        peers = list(gang.gang.peers)
        peers[1] = peers[1]._replace(port=listener.getsockname()[1])
        write_credentials(
            str(tmp_path / "asks"), gang.gang._replace(peers=peers), gang.authority.certificate,
            *gang.authority.issue(gang.gang.identity(0)),
        )  # fmt: skip
        outcomes = Asking(tmp_path / "asks", [asked(1, "true"), asked(2, "sh", "-c", "sleep 1; exit 2")]).wait()
        liar.join(60)
    assert outcomes[2] == TaskOutcome(2)
    assert (outcomes[1].code, outcomes[1].reason) == (255, "NodeUnreachable")
    assert "frame 19" in outcomes[1].words


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOBUFS])
def test_a_node_that_lacks_what_a_connection_takes_blames_no_other(
    gang: StepGang, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def none(*arguments: object, **options: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(socket, "socket", none)
    outcome = run(gang, asked(1, "true")).outcomes[1]
    assert (outcome.code, outcome.reason) == (125, "ProcessNotStarted")
    assert outcome.words == f"this node cannot connect to it: {os.strerror(error)}"
