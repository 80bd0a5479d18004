"""A small exchange between the nodes at the barrier, so that a bad link or node is named before user code starts.

Every worker serves its peers and asks some of them: in a *Ring* its two neighbours, and a mark of each goes around
once; *Pairwise* everybody (in rounds of changing pairs; of more than 64 nodes those at distances of powers of two). A
block goes there, is checked, and comes back. Serving does not wait for anything, so that one who is late, or held up
by a broken peer, makes nobody else look broken.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import socket
import struct
import threading
import time
import zlib
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

BLOCK = 8 << 20  # bytes
MAX_BLOCK = 16 << 20
REACH_SECONDS = 30.0  # for a peer to answer at all: it may be told of the exchange later than we are
EXCHANGE_SECONDS = 20.0  # for a block there and back
IDLE_SECONDS = 60.0  # after which a peer that asks nothing more is hung up on
FULL_TOURNAMENT = 64  # nodes; of more not every pair is tried
RING = "Ring"

_MAGIC = b"LKSP"
_HEADER = struct.Struct("!4sc8sIQ")  # magic, kind, hash of the id, bytes of the block or hop, checksum or mark
_BLOCK_KIND, _TOKEN_KIND = b"B", b"T"
_ACCEPTED = b"+"
_MAX_CONNECTIONS = 128
_MAX_TOKENS = 1 << 16

Peer = Tuple[str, int]
"""Address and port."""


class WarmUpResult(NamedTuple):
    """``seconds``: of the slowest exchange. ``peer``: the rank that it failed with, -1: none in particular."""

    seconds: float
    peer: int
    problem: str


class PeerServer:
    """Answers peers on a bound socket until it is closed."""

    def __init__(self, bound: socket.socket) -> None:
        self._socket = bound
        self._tokens: Dict[Tuple[bytes, int], int] = {}  # (hash of the id, hop): mark
        self._arrived = threading.Condition()
        self._open: Dict[socket.socket, threading.Thread] = {}  # connections of peers
        self._closed = False
        bound.listen(_MAX_CONNECTIONS)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more, bounded. The socket is for its owner to close; then the port is free."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._thread.join(1.0)
        deadline = time.monotonic() + 1.0
        for connection, thread in list(self._open.items()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(max(0.0, deadline - time.monotonic()))

    def token(self, identity: bytes, hop: int, timeout: float) -> Optional[int]:
        """The mark that a hop brings, once it has arrived."""
        with self._arrived:
            self._arrived.wait_for(lambda: (identity, hop) in self._tokens, timeout)
            return self._tokens.get((identity, hop))

    def _serve(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                time.sleep(0.05)  # unless it is closed, a peer has hung up, or no descriptor is left for the moment
                continue
            thread = threading.Thread(target=self._answer, args=(connection,), daemon=True)
            try:
                if len(self._open) < _MAX_CONNECTIONS:
                    self._open[connection] = thread
                    thread.start()
                else:
                    connection.close()
            except RuntimeError:  # no room for another thread
                self._open.pop(connection, None)
                connection.close()

    def _answer(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(IDLE_SECONDS)
                # The asking side closes first: else this port would be blocked for the program (TIME_WAIT).
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                while self._answer_one(connection):
                    continue
        except (OSError, struct.error):
            return  # the asking side sees it, and tells
        finally:
            self._open.pop(connection, None)

    def _answer_one(self, connection: socket.socket) -> bool:
        head = _receive(connection, _HEADER.size)
        magic, kind, identity, number, checksum = _HEADER.unpack(head)
        if magic != _MAGIC:
            return False
        if kind == _TOKEN_KIND:
            with self._arrived:
                if len(self._tokens) < _MAX_TOKENS:
                    self._tokens[identity, number] = checksum
                self._arrived.notify_all()
            connection.sendall(_ACCEPTED)
            return True
        if kind != _BLOCK_KIND or number > MAX_BLOCK:
            return False
        block = _receive(connection, number)
        if zlib.crc32(block) != checksum:
            return False
        connection.sendall(head)
        connection.sendall(block)
        return True


def warm_up(
    server: PeerServer, identity: str, kind: str, rank: int, peers: Sequence[Peer], *, patience: float = REACH_SECONDS
) -> WarmUpResult:
    """Exchange blocks with the peers that are this rank's to try. ``peers`` by rank; ``patience`` for each to answer.

    Goes on after a failure, so that the rest is known too; the first one is told.
    """
    digest = hashlib.sha256(identity.encode()).digest()[:8]
    block = _block_of(rank)
    slowest, failed = 0.0, WarmUpResult(0.0, -1, "")
    ends = time.monotonic() + patience
    for peer in _partners(kind, rank, len(peers)):
        try:
            # Whoever has not answered within the patience is not waited for again: late is late for all.
            slowest = max(slowest, _exchange(peers[peer], digest, block, ends))
        except OSError as error:
            if not failed.problem:
                host, port = peers[peer]
                words = error.strerror or str(error) or type(error).__name__
                failed = WarmUpResult(0.0, peer, f"rank {peer} at {host} port {port}: {words}")
    if not failed.problem and kind == RING and len(peers) > 1:
        failed = _go_around(server, digest, rank, peers, max(ends, time.monotonic()) + patience)
    return failed._replace(seconds=round(slowest, 6))


def _partners(kind: str, rank: int, world: int) -> Iterator[int]:
    """The ranks to try, in an order in which all ranks together are busy with different peers."""
    if kind == RING:
        yield from dict.fromkeys(peer for peer in ((rank + 1) % world, (rank - 1) % world) if peer != rank)
    elif world <= FULL_TOURNAMENT:
        yield from ((rank + distance) % world for distance in range(1, world))
    else:
        distances = itertools.takewhile(lambda distance: distance < world, (1 << power for power in range(20)))
        yield from ((rank + distance) % world for distance in distances)


def _exchange(peer: Peer, digest: bytes, block: bytes, ends: float) -> float:
    """Seconds that a block took there and back. Raises OSError."""
    with _connected(peer, ends) as connection:
        connection.settimeout(EXCHANGE_SECONDS)
        began = time.monotonic()
        checksum = zlib.crc32(block)
        connection.sendall(_HEADER.pack(_MAGIC, _BLOCK_KIND, digest, len(block), checksum))
        connection.sendall(block)
        _receive(connection, _HEADER.size)
        if zlib.crc32(_receive(connection, len(block))) != checksum:
            raise OSError("the block came back with other bytes")
        return time.monotonic() - began


def _go_around(server: PeerServer, digest: bytes, rank: int, peers: Sequence[Peer], ends: float) -> WarmUpResult:
    """A mark of each rank goes around the ring: only where everybody takes part do all of them arrive."""
    world = len(peers)
    following = (rank + 1) % world
    value = _mark_of(rank)
    try:
        with _connected(peers[following], ends) as connection:
            connection.settimeout(EXCHANGE_SECONDS)
            for hop in range(1, world):
                connection.sendall(_HEADER.pack(_MAGIC, _TOKEN_KIND, digest, hop, value))
                _receive(connection, 1)
                origin = (rank - hop) % world  # whose mark this hop brings
                arrived = server.token(digest, hop, max(0.1, ends - time.monotonic()))
                if arrived is None:
                    return WarmUpResult(0.0, -1, f"the ring is broken: the mark of rank {origin} did not come around")
                if arrived != _mark_of(origin):
                    return WarmUpResult(0.0, -1, f"the mark of rank {origin} arrived with other bits")
                value = arrived
    except OSError as error:
        return WarmUpResult(0.0, following, f"rank {following}: {error.strerror or error}")
    return WarmUpResult(0.0, -1, "")


def _connected(peer: Peer, ends: float) -> socket.socket:
    """A connection; one that is refused is tried again, as the peer may not have been told yet. Raises OSError."""
    while True:
        try:
            return socket.create_connection(peer, timeout=max(0.2, min(5.0, ends - time.monotonic())))
        except OSError:
            if time.monotonic() >= ends:
                raise
            time.sleep(0.1)


def _receive(connection: socket.socket, size: int) -> bytes:
    """Exactly so many bytes. Raises OSError."""
    parts: List[bytes] = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionResetError("the peer hung up")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _block_of(rank: int) -> bytes:
    """Bytes that only this rank sends, and everybody knows."""
    seed = hashlib.sha256(b"lockstep %d" % rank).digest()
    return seed * (BLOCK // len(seed))


def _mark_of(rank: int) -> int:
    return int.from_bytes(hashlib.sha256(b"lockstep %d" % rank).digest()[:8], "big")
