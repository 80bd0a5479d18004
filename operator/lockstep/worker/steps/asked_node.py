"""One node of a step: reached, asked, listened to. It fails by itself."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import time
from typing import Callable, List, NamedTuple, Optional, Tuple

from lockstep.worker.steps import frames
from lockstep.worker.steps.credentials import AttemptGang, said_identity
from lockstep.worker.steps.frames import ALL, Channel, Frame, ProtocolError
from lockstep.worker.steps.request import NOT_STARTED, UNREACHABLE, AskedOfNode
from lockstep.worker.steps.told import NODE_UNREACHABLE

RETRY_SECONDS = 0.2
_UNDERWAY = (errno.EINPROGRESS, errno.EWOULDBLOCK, 0)
_PASSING = (
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.EPIPE,
    errno.ECONNABORTED,
)
_OWN = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)  # what this node lacks


class Greeting(NamedTuple):
    """How a connection begins."""

    context: ssl.SSLContext
    knock: str


class AskedNode:
    """One node that is asked: reached, asked, listened to. It fails by itself."""

    def __init__(
        self, gang: AttemptGang, request: AskedOfNode, greeting: Greeting, reach: float,
        take: Callable[[int, int, Frame], None],
    ) -> None:  # fmt: skip
        self.request = request
        self.answered = False  # it has said something
        self.over = False
        self.credit = frames.FIRST_CREDIT
        self._gang, self._greeting, self._reach, self._take = gang, greeting, reach, take
        self._open = {task.identity for task in request.tasks}
        self._socket: Optional[socket.socket] = None
        self._tls: Optional[ssl.SSLSocket] = None
        self._channel: Optional[Channel] = None
        self._wants = select.POLLOUT  # while connecting
        self._until = self._retry_at = 0.0  # monotonic
        self._heard = self._spoke = 0.0  # monotonic
        self._said: List[Frame] = []  # before there was somebody to hear it
        self._why = ""

    def begin(self) -> None:
        """Try to reach it from now on."""
        self._until = time.monotonic() + self._reach
        self._connect()

    def _connect(self) -> None:
        peer = self._gang.peers[self.request.rank]
        self._retry_at = 0.0
        self._wants = select.POLLOUT
        try:
            family = socket.AF_INET6 if ":" in peer.address else socket.AF_INET
            self._socket = socket.socket(family, socket.SOCK_STREAM)
            self._socket.setblocking(False)
            frames.tune(self._socket)
            error = self._socket.connect_ex((peer.address, peer.port))
            if error not in _UNDERWAY:
                raise OSError(error, os.strerror(error))
        except OSError as error:
            self._try_again(error)

    def _try_again(self, error: OSError) -> None:
        """It may be about to listen, or to be started anew; until its deadline."""
        self._close_socket()
        self._why = error.strerror or str(error)
        if error.errno in _OWN:
            self._fail(f"this node cannot connect to it: {self._why}", NOT_STARTED, "ProcessNotStarted")
            return
        if error.errno == errno.ECONNRESET:
            self._why = "it hangs up, as on whoever is not of its gang"
        if error.errno in _PASSING and time.monotonic() + RETRY_SECONDS < self._until:
            self._retry_at = time.monotonic() + RETRY_SECONDS
        else:
            self._fail(f"{self._gang.named(self.request.rank)} cannot be reached: {self._why}")

    def events(self, listens: bool) -> Tuple[int, int]:
        """(descriptor, what to poll it for); -1: there is nothing to poll."""
        if self.over or self._retry_at or self._socket is None:
            return -1, 0
        if self._channel is not None:
            return self._channel.fileno(), self._channel.events(read=listens)
        return self._socket.fileno(), self._wants

    def has_more(self, listens: bool) -> bool:
        """Something has come that no poll tells of."""
        return listens and self._channel is not None and not self.over and self._channel.has_more()

    def follow_time(self, listens: bool) -> float:
        """Seconds until something is due here."""
        if self.over:
            return 60.0
        now = time.monotonic()
        if self._channel is not None and now >= self._spoke + frames.PING_SECONDS:
            self._spoke = now
            self.say(frames.PING)
        if not self.answered:
            if self._channel is not None and not listens:
                self._until = now + self._reach  # its answer is waiting here
            if now >= self._until and not self._is_heard_next(listens):
                why = f": {self._why}" if self._why else ""
                self._fail(f"{self._gang.named(self.request.rank)} did not answer within {self._reach:g} s{why}")
                return 0.0
            if self._retry_at and now >= self._retry_at:
                self._connect()
            return max(0.0, min(self._until, self._retry_at or self._until, self._ping_at()) - now)
        if not listens:
            self._heard = now  # what it says is waiting here
        if now >= self._heard + frames.SILENT_SECONDS and not self._is_heard_next(listens):
            self._fail(f"{self._gang.named(self.request.rank)} has said nothing for {frames.SILENT_SECONDS:g} s")
            return 0.0
        if self.has_more(listens):
            return 0.0
        return max(0.0, min(self._ping_at(), self._heard + frames.SILENT_SECONDS) - now)

    def _ping_at(self) -> float:
        """When it is to hear of this node again, once it can."""
        return self._spoke + frames.PING_SECONDS if self._channel is not None else self._until

    def _is_heard_next(self, listens: bool) -> bool:
        """It has spoken, and it was this process that took long to listen."""
        if self._channel is None:
            return False
        return self.has_more(listens) or frames.is_ready(self._channel.fileno(), select.POLLIN)

    def go_on(self, listens: bool) -> None:
        """Something is ready."""
        if self.over or self._socket is None:
            return
        try:
            if self._channel is None:
                self._shake_hands()
            if self._channel is not None:
                self._talk(self._channel, listens)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except ssl.SSLCertVerificationError as error:
            self._fail(f"{self._gang.named(self.request.rank)} is none of this attempt: {error.verify_message}")
        except OSError as error:
            self._broke(error)

    def _talk(self, channel: Channel, listens: bool) -> None:
        """Raises OSError: the peer's own words, if it has any, before what they have led to."""
        broke: Optional[OSError] = None
        try:
            channel.flush()
        except OSError as error:
            broke = error
        if listens or broke is not None:
            self._listen(channel)
        if broke is not None and not self.over:
            raise broke
        if not self.over:
            channel.flush()

    def _broke(self, error: OSError) -> None:
        named = self._gang.named(self.request.rank)
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            self._fail(f"{named} does not take this node for one of its gang: {error.reason}")
        elif self._channel is None and not isinstance(error, ProtocolError):  # else it may have started them
            self._try_again(
                error if error.errno in _PASSING + _OWN else OSError(errno.ECONNRESET, error.strerror or str(error))
            )
        else:
            self._fail(f"the connection to {named} broke: {error.strerror or error}")

    def _shake_hands(self) -> None:
        assert self._socket is not None
        if self._tls is None:
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            context, knock = self._greeting
            self._tls = context.wrap_socket(self._socket, do_handshake_on_connect=False, server_hostname=knock)
            self._socket = self._tls  # the plain one holds no descriptor any more
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._wants = select.POLLIN
            raise
        except ssl.SSLWantWriteError:
            self._wants = select.POLLOUT
            raise
        if said_identity(self._tls) != self._gang.identity(self.request.rank):
            said = said_identity(self._tls) or "nobody"
            raise ProtocolError(f"its certificate is of {said}, not of {self._gang.identity(self.request.rank)}")
        self._channel = Channel(self._tls)
        self._channel.send_object(frames.HEADER, ALL, self.request.header())
        for frame in self._said:
            self._channel.send(*frame)
        self._heard = self._spoke = time.monotonic()

    def _listen(self, channel: Channel) -> None:
        for frame in channel.receive():
            self._heard = time.monotonic()
            self.answered = True
            if frame.kind == frames.DONE:
                self._fail("") if self._open else self.close()
                return
            if frame.kind == frames.CREDIT:
                self.credit += int(frame.number(0, 1 << 40))
            elif frame.kind == frames.ERROR and frame.task == ALL:
                for task in sorted(self._open):
                    self._take(task, self.request.rank, frame)
                self._open.clear()
                self.close()
                return
            elif frame.kind in (frames.STDOUT, frames.STDERR, frames.STARTED, frames.EXIT, frames.ERROR):
                if frame.task not in self._open:
                    raise ProtocolError("it speaks of a task that it has none of")
                self._take(frame.task, self.request.rank, frame)
                if frame.kind in (frames.EXIT, frames.ERROR):
                    self._open.discard(frame.task)
            elif frame.kind != frames.PING:
                raise ProtocolError(f"a frame of kind {frame.kind} is not expected")
        if channel.over:
            raise OSError(errno.ECONNRESET, "it hung up")

    def say(self, kind: int, data: bytes = b"") -> None:
        """To all of its tasks, as soon as it is there."""
        if self._channel is not None and not self.over:
            self._channel.send(kind, ALL, data)
            with contextlib.suppress(OSError):  # it is noticed when it is listened to
                self._channel.flush()
        elif not self.over:
            self._said.append(Frame(kind, ALL, data))

    def _fail(self, words: str, code: int = UNREACHABLE, reason: str = NODE_UNREACHABLE) -> None:
        """What is not known of its tasks never will be."""
        self.close()
        words = words or f"{self._gang.named(self.request.rank)} ended the step too early"
        said = {"code": code, "reason": reason, "words": words}
        frame = Frame(frames.ERROR, ALL, frames.packed(said))
        for task in sorted(self._open):
            self._take(task, self.request.rank, frame)
        self._open.clear()

    def close(self) -> None:
        """Hang up; nothing more comes of it."""
        self.over = True
        self._close_socket()

    def _close_socket(self) -> None:
        for each in (self._tls, self._socket):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.close()
        self._tls = self._socket = self._channel = None
