"""The step server of a node: listens, and forks a session for each connection that says something.

Run by ``service.server_command``, with the program's environment. It is single-threaded, so that it may fork. A
connection costs no process before its handshake has begun with what only the gang knows, and a session has a deadline
until it has proven to be of the gang; who asks the most from one address waits for the others.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import json
import mmap
import os
import select
import signal
import socket
import time
from typing import Counter, Dict, List, NamedTuple, Optional

from lockstep.worker.child.processes import STEP_SERVER, c_library, name_process
from lockstep.worker.output import log_line
from lockstep.worker.settings import JSON
from lockstep.worker.steps.credentials import CredentialError, knock_of, read_gang, tls_context
from lockstep.worker.steps.kept import KeptSessions, next_connection
from lockstep.worker.steps.place import VARIABLE
from lockstep.worker.steps.session import PROVE_SECONDS, REFUSED, ServedNode, serve

SILENT_SECONDS = 10.0  # until a connection has said something
MAX_SILENT = 256  # connections
MAX_SILENT_OF_ONE = 64  # from one address
MAX_UNPROVEN = 32  # sessions
MAX_UNPROVEN_OF_ONE = 16  # from one address
MAX_SESSIONS = 1024
LOOK_SECONDS = 0.02
TELL_SECONDS = 10.0  # between two lines about those that were refused
_HELLO = b"\x16"  # the first byte of a TLS handshake …
_RECORD_HEAD = 5  # … which is followed by two of its version and two of its length
_MOST_OF_A_RECORD = 16384


class _Silent(NamedTuple):
    """A connection that no session has taken up. ``speaks``: it knows what the gang knows."""

    connection: socket.socket
    address: str
    until: float  # monotonic
    said: int = 0  # bytes, when it was last looked at
    speaks: bool = False


class _Unproven(NamedTuple):
    address: str
    until: float  # monotonic
    mark: int  # where it says that it has proven itself


class Server:
    """Accepts and forks until it is asked to end, and then until no session lives."""

    def __init__(self, listener: socket.socket, node: ServedNode, knock: str) -> None:
        self._listener, self._node, self._knock = listener, node, knock.encode("ascii")
        # Shared with the sessions, each of which has a byte: nobody has to be woken for it.
        self._marks = mmap.mmap(-1, MAX_UNPROVEN)
        self._silent: Dict[int, _Silent] = {}  # by descriptor, oldest first
        self._unproven: Dict[int, _Unproven] = {}  # by PID
        self._sessions: Dict[int, str] = {}  # addresses by PID
        self._kept = KeptSessions()
        self._refused: Counter[str] = collections.Counter()
        self._tell_at = 0.0  # monotonic
        self._ending = False
        self._wake, wake = os.pipe()
        for descriptor in (self._wake, wake):
            os.set_blocking(descriptor, False)
        listener.setblocking(False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda caught, frame: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take_end)

    def _take_end(self, caught: int, frame: object) -> None:
        self._ending = True

    def run(self) -> int:
        """Exit code of this process. In a session's process it does not return."""
        while not self._ending or self._sessions:
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            poll.register(self._listener, select.POLLIN)
            for descriptor in self._kept.descriptors():
                poll.register(descriptor, select.POLLIN)
            for descriptor, each in self._silent.items():
                if not each.speaks:
                    poll.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll(self._patience())}
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            self._take_proofs()
            self._reap()
            self._kept.hear()
            if self._ending:
                self._kept.forget_all()
            if self._listener.fileno() in ready:
                self._accept()
            for descriptor in ready & set(self._silent):
                self._hear(descriptor)
            self._forget_the_late()
            self._fork_sessions()
        return 0

    def _patience(self) -> float:
        """Milliseconds until the next deadline."""
        due = [each.until for each in self._silent.values()] + [each.until for each in self._unproven.values()]
        due += [self._tell_at] * bool(self._refused)
        if any(each.speaks for each in self._silent.values()):  # until one more may be answered
            due.append(time.monotonic() + LOOK_SECONDS)
        return max(0.0, min(due) - time.monotonic()) * 1000.0 + 1.0 if due else 3_600_000.0

    def _accept(self) -> None:
        for _ in range(64):  # then others have their turn
            try:
                connection, where = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor is left, or the peer has hung up
                time.sleep(0.01)
                return
            address = str(where[0]).rpartition("::ffff:")[2] or str(where[0])
            connection.setblocking(False)
            self._silent[connection.fileno()] = _Silent(connection, address, time.monotonic() + SILENT_SECONDS)
            counts = collections.Counter(each.address for each in self._silent.values())
            if counts[address] > MAX_SILENT_OF_ONE:
                self._drop_oldest(address)
            elif len(self._silent) > MAX_SILENT:
                self._drop_oldest(counts.most_common(1)[0][0])

    def _drop_oldest(self, address: str) -> None:
        self._drop(next(descriptor for descriptor, each in self._silent.items() if each.address == address))

    def _drop(self, descriptor: int) -> None:
        dropped = self._silent.pop(descriptor)
        dropped.connection.close()
        self._refuse(dropped.address)

    def _hear(self, descriptor: int) -> None:
        """Look at the whole of its first words, and leave them where they are for the handshake."""
        each = self._silent[descriptor]
        try:
            said = each.connection.recv(_RECORD_HEAD + _MOST_OF_A_RECORD, socket.MSG_PEEK)
            length = _RECORD_HEAD
            if len(said) >= length:
                length += int.from_bytes(said[3:5], "big")
            if self._knock in said and len(said) >= length:
                each.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
                self._silent[descriptor] = each._replace(speaks=True)
            elif said[:1] == _HELLO and each.said < len(said) < length <= _RECORD_HEAD + _MOST_OF_A_RECORD:
                each.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, length)  # there is more to come
                self._silent[descriptor] = each._replace(said=len(said))
            else:
                self._drop(descriptor)
        except BlockingIOError:
            return
        except OSError:
            self._drop(descriptor)

    def _forget_the_late(self) -> None:
        now = time.monotonic()
        for descriptor in [descriptor for descriptor, each in self._silent.items() if now >= each.until]:
            self._drop(descriptor)
        for pid in [pid for pid, each in self._unproven.items() if now >= each.until]:
            with contextlib.suppress(OSError):  # its own alarm did not go off, or it is being reaped
                os.kill(pid, signal.SIGKILL)
            del self._unproven[pid]
        if self._refused and now >= self._tell_at:
            self._tell_at = now + TELL_SECONDS
            address, count = self._refused.most_common(1)[0]
            log_line(f"{sum(self._refused.values())} connections to the step server were refused, {count} of {address}")
            self._refused.clear()

    def _refuse(self, address: str) -> None:
        if not self._refused:
            self._tell_at = max(self._tell_at, time.monotonic() + 1.0)  # several mostly come together
        self._refused[address] += 1

    def _fork_sessions(self) -> None:
        """Of the addresses that wait, the one with the fewest handshakes under way comes first."""
        while len(self._unproven) < MAX_UNPROVEN and len(self._sessions) < MAX_SESSIONS:
            busy = collections.Counter(each.address for each in self._unproven.values())
            waiting = [
                descriptor for descriptor, each in self._silent.items()
                if each.speaks and busy[each.address] < MAX_UNPROVEN_OF_ONE
            ]  # fmt: skip
            if not waiting:
                return
            chosen = min(waiting, key=lambda descriptor: busy[self._silent[descriptor].address])
            if not self._begin_session(chosen):
                return

    def _begin_session(self, descriptor: int) -> bool:
        each = self._silent[descriptor]
        mark = min(set(range(MAX_UNPROVEN)) - {unproven.mark for unproven in self._unproven.values()})
        self._marks[mark] = 0
        each.connection.setblocking(True)
        try:
            pid = self._kept.give(each.connection, mark) or self._fork(each, mark)
        except OSError as error:  # it is tried again until its deadline
            log_line(f"a session of a step cannot be started: {error}")
            return False
        del self._silent[descriptor]
        each.connection.close()
        self._sessions[pid] = each.address
        self._unproven[pid] = _Unproven(each.address, time.monotonic() + PROVE_SECONDS + 1.0, mark)
        return True

    def _fork(self, each: _Silent, mark: int) -> int:
        """PID. Raises OSError."""
        ours, theirs = self._kept.pair()
        with theirs:
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                raise
            if pid == 0:
                ours.close()
                os._exit(self._be_session(each, mark, theirs))
        self._kept.add(pid, ours)
        return pid

    def _be_session(self, each: _Silent, mark: int, more: socket.socket) -> int:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._listener.close()
            os.close(self._wake)
            self._kept.forget_all()
            for other in self._silent.values():
                if other is not each:
                    other.connection.close()
            connection: Optional[socket.socket] = each.connection
            while connection is not None:
                code = serve(connection, self._node, functools.partial(self._marks.__setitem__, mark, 1))
                connection, mark = (None, 0) if code else next_connection(more)
            return code
        except BaseException as error:  # this process's end, whatever it was
            log_line(f"defect: a session of a step ended with {error!r}")
            return 1

    def _take_proofs(self) -> None:
        for pid in [pid for pid, each in self._unproven.items() if self._marks[each.mark]]:
            del self._unproven[pid]

    def _reap(self) -> None:
        while self._sessions:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            address = self._sessions.pop(pid, "")
            unproven = self._unproven.pop(pid, None) is not None
            if unproven or (os.WIFEXITED(status) and os.WEXITSTATUS(status) == REFUSED):
                self._refuse(address)


def main(said: str) -> int:
    """The server's process: its exit code."""
    try:
        given: JSON = json.loads(said)
        directory = os.environ[VARIABLE]
        gang, context, knock = read_gang(directory), tls_context(directory, server=True), knock_of(directory)
    except (CredentialError, ValueError, KeyError) as error:
        log_line(f"steps cannot be served: {error}")
        return 125
    name_process(STEP_SERVER)
    own = {name: os.environ[name] for name in own_names(given.get("own") or [], list(os.environ))}
    members = {gang.identity(rank) for rank in range(len(gang.peers))}
    node = ServedNode(gang.rank, members, context, dict(os.environ), own, int(given["ends"]))
    os.set_inheritable(node.ends, False)
    listener = socket.socket(fileno=int(given["listen"]))
    os.set_inheritable(listener.fileno(), False)
    with contextlib.suppress(ImportError, OSError):
        c_library()  # each session needs it, and would load it by itself
    gc.collect()
    gc.freeze()  # what sessions share stays shared
    return Server(listener, node, knock).run()


def own_names(named: List[str], present: List[str]) -> List[str]:
    """The variables that this node lays over what a client sends: who a node is, a client cannot know."""
    return [name for name in present if name in named or name.startswith("LOCKSTEP_")]
