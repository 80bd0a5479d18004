"""How many connections and bytes strangers and senders may hold: each costs memory before its first request is read.

A connection is unproven until a request on it is known to come from somebody. Of those there is room for a
few thousand, and for so many bytes that came on them; when either is full, whoever holds most of it gives up its
oldest, or its largest, so that one address that opens very many disturbs itself and not the gang that connects
beside it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from lockstep.controller.runtime.clock import Clock

UNPROVEN = 4096
"""Connections of which it is not known who opened them: so large a gang connects at once."""
UNPROVEN_BYTES = 64 * 1024 * 1024
"""Received on all of them: heads of requests that have not ended, and what else came before the sender was known."""
PROVE_SECONDS = 30.0
"""From the opening of a connection until its sender is known."""
PER_SENDER = 64
"""Connections of one sender at a time. A worker has one."""
SWEEP_SECONDS = 1.0


class Handler(Protocol):
    """What serves one connection, as aiohttp makes it. Without a transport it has not begun, or is over."""

    transport: asyncio.Transport | None


@dataclass(eq=False, slots=True)
class _Connection:
    peer: str
    opened_at: float
    handler: Handler
    handshake: "asyncio.Task[None]"
    received: int = 0

    @property
    def is_closed(self) -> bool:
        return self.handshake.done() and self.handler.transport is None

    def cut(self) -> None:
        if self.handler.transport is not None:
            self.handler.transport.abort()
        else:
            self.handshake.cancel()


class Connections:
    """The open connections of one listener. Everything happens on the event loop's thread.

    ``proven``: of all senders together, where there may be any number of those; None: no limit. Who holds most gives up
    its oldest then. ``peers``: the one that an address counts as, where one machine may have many.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        unproven: int = UNPROVEN,
        unproven_bytes: int = UNPROVEN_BYTES,
        per_sender: int = PER_SENDER,
        prove_seconds: float = PROVE_SECONDS,
        proven: int | None = None,
        peers: Callable[[str], str] = str,
    ) -> None:
        self.cut = 0
        """Connections closed because there was no room or nobody said who it is."""
        self.unproven_bytes = 0
        """Received on connections whose sender is not known yet."""
        self._clock = clock
        self._room = unproven
        self._bytes_room = unproven_bytes
        self._bytes_of: Counter[str] = Counter()  # by peer, of unproven connections
        self._per_sender = per_sender
        self._prove_seconds = prove_seconds
        self._proven_room = proven
        self._peer = peers
        self._unproven: dict[str, dict[int, _Connection]] = {}  # by peer and identity of the handler, oldest first
        self._count = 0
        self._swept_at = 0.0
        self._proven: dict[str, dict[int, _Connection]] = {}  # by sender

    def __len__(self) -> int:
        """Those that are open, or were at the last sweep."""
        return self._count + sum(map(len, self._proven.values()))

    def open(self, peer: str, handler: Handler, handshake: "asyncio.Task[None]") -> None:
        """Take in a connection that ``peer`` opened; may cost another one its place."""
        peer = self._peer(peer)
        connection = _Connection(peer, self._clock.monotonic(), handler, handshake)
        self._unproven.setdefault(peer, {})[id(handler)] = connection
        self._count += 1
        if self._count > self._room and self._clock.monotonic() >= self._swept_at + SWEEP_SECONDS:
            self._sweep()  # not for each of a flood: it looks at every one
        if self._count > self._room:
            most = max(self._unproven.values(), key=len)
            self._cut(next(iter(most.values())))

    def prove(self, peer: str, handler: Handler, sender: str) -> bool:
        """A request of ``sender`` came on this connection. False: it has too many, and this one must close."""
        known = self._proven.get(sender, {})
        if id(handler) in known:
            return True
        if len(known) >= self._per_sender:
            known = self._proven[sender] = {key: each for key, each in known.items() if not each.is_closed}
        if len(known) >= self._per_sender:
            return False
        connection = self._unproven.get(self._peer(peer), {}).get(id(handler))
        if connection is None:
            return True  # it proves a second sender, and stays the first one's
        if not self._make_room(sender):
            return False
        self._forget(connection)
        self._proven.setdefault(sender, {})[id(handler)] = connection
        return True

    def receive(self, peer: str, handler: Handler, size: int) -> bool:
        """So many bytes came on this connection. False: there is no room for them, and it was cut off."""
        peer = self._peer(peer)
        connection = self._unproven.get(peer, {}).get(id(handler))
        if connection is None:
            return True  # its sender is known, and has limits of its own
        connection.received += size
        self._bytes_of[peer] += size
        self.unproven_bytes += size
        while self.unproven_bytes > self._bytes_room:
            of_peer = self._unproven[max(self._bytes_of, key=self._bytes_of.__getitem__)]
            self._cut(max(of_peer.values(), key=lambda each: each.received))
        return id(handler) in self._unproven.get(peer, {})

    def close(self, peer: str, handler: Handler) -> None:
        """This connection is over: what came on it is held no more."""
        connection = self._unproven.get(self._peer(peer), {}).get(id(handler))
        if connection is not None:
            self._forget(connection)

    async def watch(self) -> None:
        """For ever: cut off who does not say in time who it is, forget what has closed."""
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            self._sweep()

    def _make_room(self, sender: str) -> bool:
        """Whether there is room for one more of this sender, or was made: by whoever holds more than it then will."""
        if self._proven_room is None or len(self) - self._count < self._proven_room:
            return True
        if self._clock.monotonic() >= self._swept_at + SWEEP_SECONDS:
            self._sweep()
            if len(self) - self._count < self._proven_room:
                return True
        most = max(self._proven, key=lambda each: len(self._proven[each]))
        if len(self._proven[most]) <= len(self._proven.get(sender, ())) + 1:
            return False
        self.cut += 1
        self._proven[most].pop(next(iter(self._proven[most]))).cut()
        return True

    def _sweep(self) -> None:
        self._swept_at = self._clock.monotonic()
        late = self._swept_at - self._prove_seconds
        for connection in list(self._strangers()):
            if connection.is_closed:
                self._forget(connection)
            elif connection.opened_at <= late:
                self._cut(connection)
        for sender, known in list(self._proven.items()):
            left = {key: each for key, each in known.items() if not each.is_closed}
            if left:
                self._proven[sender] = left
            else:
                del self._proven[sender]

    def _strangers(self) -> Iterator[_Connection]:
        for of_peer in self._unproven.values():
            yield from of_peer.values()

    def _cut(self, connection: _Connection) -> None:
        self.cut += 1
        self._forget(connection)
        connection.cut()

    def _forget(self, connection: _Connection) -> None:
        of_peer = self._unproven[connection.peer]
        del of_peer[id(connection.handler)]
        if not of_peer:
            del self._unproven[connection.peer]
        self._count -= 1
        self.unproven_bytes -= connection.received
        self._bytes_of[connection.peer] -= connection.received
        if not self._bytes_of[connection.peer]:
            del self._bytes_of[connection.peer]
