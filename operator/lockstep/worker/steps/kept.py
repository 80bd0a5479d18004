"""Sessions that serve one connection after the other: the next step waits for no fork, and for no cold memory.

Between server and session is a socket pair: a connection goes one way, with the place of its mark, and a byte the
other way once the session is free. Only a session that left nothing behind asks for more.
"""

from __future__ import annotations

import array
import contextlib
import socket
from typing import Dict, List, Optional, Tuple

MOST_KEPT = 2
_FREE = b"\0"
_DESCRIPTOR_BYTES = array.array("i").itemsize


class KeptSessions:
    """Those of the server's sessions that take another connection; the rest end with theirs."""

    def __init__(self) -> None:
        self._ends: Dict[int, socket.socket] = {}  # by PID, oldest first
        self._free: List[int] = []  # PIDs

    def descriptors(self) -> List[int]:
        """To be polled for input."""
        return [end.fileno() for end in self._ends.values()]

    def pair(self) -> Tuple[socket.socket, socket.socket]:
        """The server's end and the session's, for one that is about to be forked. Raises OSError."""
        if len(self._ends) >= MOST_KEPT:
            self.forget(next(iter(self._ends)))  # it is busy, maybe for as long as the attempt lasts
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def add(self, pid: int, end: socket.socket) -> None:
        """It was forked."""
        end.setblocking(False)
        self._ends[pid] = end

    def hear(self) -> None:
        """Who is free now."""
        for pid, end in list(self._ends.items()):
            try:
                said = end.recv(1)
            except BlockingIOError:
                continue
            except OSError:
                said = b""
            if said:
                self._free.append(pid)
            else:
                self.forget(pid)

    def give(self, connection: socket.socket, mark: int) -> int:
        """PID of the session that serves the connection now; 0: none is free."""
        while self._free:
            pid = self._free.pop()
            descriptors = array.array("i", [connection.fileno()])
            try:
                self._ends[pid].sendmsg([bytes([mark])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
            except OSError:  # it has just ended
                self.forget(pid)
            else:
                return pid
        return 0

    def forget(self, pid: int) -> None:
        """It ends with what it serves, or has ended."""
        end = self._ends.pop(pid, None)
        if end is not None:
            end.close()
        if pid in self._free:
            self._free.remove(pid)

    def forget_all(self) -> None:
        """Who is free ends."""
        for pid in list(self._ends):
            self.forget(pid)


def next_connection(end: socket.socket) -> Tuple[Optional[socket.socket], int]:
    """In a session that is free: what to serve, and the place of its mark; None: no more comes."""
    with contextlib.suppress(OSError):
        end.send(_FREE)
        mark, said, _, _ = end.recvmsg(1, socket.CMSG_SPACE(_DESCRIPTOR_BYTES), socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in said:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                return socket.socket(fileno=array.array("i", data[:_DESCRIPTOR_BYTES])[0]), mark[0]
    return None, 0
