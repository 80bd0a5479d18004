"""What client and server of a step say to each other: frames over TLS.

A frame is its kind (a byte), the task that it is about, the bytes that follow (both 32 bits), and those bytes. The
client begins with HEADER, which holds the version; then each side says what it has to.
"""

from __future__ import annotations

import collections
import json
import select
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Deque, List, NamedTuple

if TYPE_CHECKING:  # what starts these programs wants them to start quickly
    from lockstep.worker.settings import JSON


VERSION = 1
ALL = 0xFFFFFFFF  # in the place of a task: all of them

# From the client
HEADER = 1  # JSON: see AskedOfNode in request.py
STDIN = 2  # bytes for a task, or for all; no more of them than CREDIT allows
STDIN_END = 3
SIGNAL = 4  # its number, as text, for a task or for all
END = 5  # seconds of grace, as text
# From the server
STARTED = 16  # the task's PID, as text
STDOUT = 17
STDERR = 18
EXIT = 19  # JSON: {"code": …, "signal": …}
ERROR = 20  # JSON: {"code": …, "reason": …, "words": …}, in the place of EXIT; of ALL: nothing was started
DONE = 21  # nothing follows
CREDIT = 22  # so many bytes of STDIN were taken, as text
# From both
PING = 32

FIRST_CREDIT = 256 << 10  # bytes of STDIN that a client may send at first
CHUNK = 64 << 10  # bytes of a frame of output or input
MAX_FRAME = 1 << 20
MAX_HEADER = 8 << 20  # an environment can be two megabytes, and a task may have its own variables
PING_SECONDS = 10.0
SILENT_SECONDS = 30.0  # a peer that says nothing for so long cannot be reached
_READ_AT_ONCE = 1 << 20

_HEAD = struct.Struct("!BII")


class ProtocolError(OSError):
    """The peer says what it may not."""


class Frame(NamedTuple):
    """What one side says at once."""

    kind: int
    task: int
    data: bytes

    def number(self, lowest: float, highest: float) -> float:
        """The number that it holds. Raises ProtocolError."""
        try:
            value = float(self.data[:32])
        except ValueError:
            value = highest + 1
        if not lowest <= value <= highest:  # not a number included
            raise ProtocolError(f"frame {self.kind} holds no number from {lowest:g} to {highest:g}")
        return value

    def object(self) -> JSON:
        """The JSON object that it holds. Raises ProtocolError."""
        try:
            value = json.loads(self.data.decode("utf-8"))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise ProtocolError(f"frame {self.kind} holds no JSON object")
        return value


def packed(value: JSON) -> bytes:
    """JSON as frames hold it."""
    return json.dumps(value).encode("ascii")


def tune(connection: socket.socket) -> None:
    """Frames are small and at once."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def is_ready(descriptor: int, events: int) -> bool:
    """By poll, at the moment."""
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(0.0))


class Channel:
    """Frames over a TLS socket that does not block. ``longest``: bytes that a frame of the peer may have."""

    def __init__(self, tls: ssl.SSLSocket, longest: int = MAX_FRAME) -> None:
        tls.setblocking(False)
        self.tls, self.longest = tls, longest
        self.unsent = 0  # bytes
        self.over = False  # the peer says nothing any more
        self._out: Deque[memoryview] = collections.deque()
        self._in = bytearray()
        self._reads_to_send = False  # TLS has to hear something before it can go on

    def fileno(self) -> int:
        """Raises OSError once it is closed."""
        return self.tls.fileno()

    def events(self, *, read: bool = True) -> int:
        """What to poll for; ``read``: the peer is listened to at the moment."""
        reads = (read and not self.over) or self._reads_to_send
        return select.POLLIN * reads | select.POLLOUT * (bool(self._out) and not self._reads_to_send)

    def has_more(self) -> bool:
        """Something has arrived that no poll tells of."""
        return not self.over and self.tls.pending() > 0

    def send(self, kind: int, task: int = ALL, data: bytes = b"") -> None:
        """Put it behind what is still to be sent; ``flush`` sends."""
        self._out.append(memoryview(_HEAD.pack(kind, task, len(data)) + data))
        self.unsent += _HEAD.size + len(data)

    def send_object(self, kind: int, task: int, value: JSON) -> None:
        """The same with JSON. Text that is none, as in names of files, survives the way."""
        self.send(kind, task, packed(value))

    def flush(self) -> bool:
        """Send what goes; True when nothing is left. Raises OSError."""
        self._reads_to_send = False
        while self._out:
            try:
                sent = self.tls.send(self._out[0])
            except ssl.SSLWantWriteError:
                return False
            except ssl.SSLWantReadError:
                self._reads_to_send = True
                return False
            self.unsent -= sent
            if sent == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][sent:]
        return True

    def receive(self) -> List[Frame]:
        """What has arrived. Sets ``over`` at the peer's end. Raises OSError, ProtocolError."""
        read = 0
        while not self.over and read < _READ_AT_ONCE:
            try:
                data = self.tls.recv(CHUNK)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except ssl.SSLEOFError:
                data = b""
            self._in += data
            read += len(data)
            self.over = not data
        frames: List[Frame] = []
        at = 0
        while len(self._in) - at >= _HEAD.size:
            kind, task, length = _HEAD.unpack_from(self._in, at)
            if length > self.longest:
                raise ProtocolError(f"a frame of {length} bytes is longer than {self.longest}")
            if len(self._in) - at < _HEAD.size + length:
                break
            frames.append(Frame(kind, task, bytes(self._in[at + _HEAD.size : at + _HEAD.size + length])))
            at += _HEAD.size + length
        del self._in[:at]
        return frames
