"""The exchange between the nodes at the barrier, over real sockets."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from lockstep.worker.node import warmup
from lockstep.worker.node.warmup import Peer, PeerServer, WarmUpResult, warm_up


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "BLOCK", 1 << 18)


class Nodes:
    """Workers at the barrier; those in ``deaf`` hold their port and never answer."""

    def __init__(self, count: int, deaf: Sequence[int]) -> None:
        self._sockets = [socket.socket() for _ in range(count)]
        for bound in self._sockets:
            bound.bind(("127.0.0.1", 0))
        self.peers: list[Peer] = [("127.0.0.1", bound.getsockname()[1]) for bound in self._sockets]
        self.servers = {rank: PeerServer(self._sockets[rank]) for rank in range(count) if rank not in deaf}

    def exchange(self, kind: str, patience: float) -> dict[int, WarmUpResult]:
        outcomes: dict[int, WarmUpResult] = {}

        def one(rank: int, server: PeerServer) -> None:
            outcomes[rank] = warm_up(server, f"id-{kind}", kind, rank, self.peers, patience=patience)

        threads = [threading.Thread(target=one, args=item) for item in self.servers.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        return outcomes

    def close(self) -> None:
        for server in self.servers.values():
            server.close()
        for bound in self._sockets:
            bound.close()


@contextmanager
def nodes(count: int, deaf: Sequence[int] = ()) -> Iterator[Nodes]:
    made = Nodes(count, deaf)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Ring", "Pairwise"])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_healthy_nodes_find_nothing(kind: str, count: int) -> None:
    with nodes(count) as gang:
        outcomes = gang.exchange(kind, 20.0)
    assert {(outcome.peer, outcome.problem) for outcome in outcomes.values()} == {(-1, "")}
    assert count == 1 or all(outcome.seconds > 0 for outcome in outcomes.values())


@pytest.mark.process
def test_in_a_ring_the_neighbours_name_a_peer_that_does_not_answer() -> None:
    with nodes(5, deaf=[3]) as gang:
        outcomes = gang.exchange("Ring", 1.0)
    assert (outcomes[2].peer, outcomes[4].peer) == (3, 3)
    assert outcomes[2].problem.startswith(f"rank 3 at 127.0.0.1 port {gang.peers[3][1]}: ")
    # The others see that something is wrong, and accuse nobody.
    assert {outcomes[rank].peer for rank in (0, 1)} == {-1}
    assert all("the ring is broken" in outcomes[rank].problem for rank in (0, 1))


@pytest.mark.process
def test_pairwise_everybody_names_the_peer_that_does_not_answer_and_nobody_else() -> None:
    with nodes(6, deaf=[4]) as gang:
        outcomes = gang.exchange("Pairwise", 1.0)
    assert {outcome.peer for outcome in outcomes.values()} == {4}


@pytest.mark.process
def test_a_peer_that_falls_silent_in_the_middle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "EXCHANGE_SECONDS", 0.5)
    silent = socket.create_server(("127.0.0.1", 0))  # the kernel accepts, nobody reads
    with silent, nodes(2) as gang:
        gang.peers[1] = ("127.0.0.1", silent.getsockname()[1])
        outcome = warm_up(gang.servers[0], "x", "Pairwise", 0, gang.peers, patience=1.0)
    assert (outcome.peer, "timed out" in outcome.problem) == (1, True)


def test_large_gangs_try_peers_at_distances_of_powers_of_two() -> None:
    assert list(warmup._partners("Pairwise", 3, 100)) == [4, 5, 7, 11, 19, 35, 67]
    assert sorted(warmup._partners("Pairwise", 3, 64)) == [rank for rank in range(64) if rank != 3]
    assert list(warmup._partners("Ring", 0, 3)) == [1, 2]
    assert list(warmup._partners("Ring", 0, 2)) == [1]


@pytest.mark.slow
def test_garbage_is_hung_up_on_and_the_port_is_free_afterwards() -> None:
    with nodes(2) as gang:
        with socket.create_connection(gang.peers[0]) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n" + b"x" * 100)
            stranger.settimeout(10.0)
            with pytest.raises(ConnectionResetError):
                stranger.recv(1)
        assert gang.exchange("Ring", 20.0)[0].problem == ""
    # As a program would that knows no SO_REUSEADDR.
    with socket.socket() as program:
        program.bind(gang.peers[0])


@pytest.mark.slow
def test_a_moment_without_descriptors_or_threads_does_not_end_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    with nodes(2) as gang:
        begin, refused = threading.Thread.start, threading.Event()

        def refuse(thread: threading.Thread) -> None:
            refused.set()
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        with socket.create_connection(gang.peers[0]) as stranger:
            assert refused.wait(10)
            stranger.settimeout(10.0)
            assert stranger.recv(1) == b""
        monkeypatch.setattr(threading.Thread, "start", begin)
        assert gang.exchange("Ring", 20.0)[0].problem == ""
