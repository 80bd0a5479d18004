"""The link to the operator: reports go out, desired states come in, whatever the network does."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import random
import socket
import ssl
import threading
import time
import urllib.parse
from typing import Callable, List, Optional, Sequence, Tuple

from lockstep import __version__
from lockstep.worker.checkpoints.tiers import NEWEST
from lockstep.worker.limits import fitted_registration, fitted_report
from lockstep.worker.link.inbox import Inbox
from lockstep.worker.output import log_line
from lockstep.worker.secrets import secret_values, without_secrets
from lockstep.worker.settings import JSON, Settings

PROTOCOL = 1

MAX_POLL_SECONDS = 15.0
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 5.0
MAX_REPLY_BYTES = 16 << 20  # the addresses of 16,384 nodes fit many times


class Connection:
    """One keep-alive connection to the operator."""

    def __init__(self, settings: Settings) -> None:
        parts = urllib.parse.urlsplit(settings.operator_url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"the operator's URL must be https: {settings.operator_url}")
        self._token_file = settings.token_file
        self._host = parts.netloc
        self._prefix = parts.path.rstrip("/")
        self._address = parts.hostname, parts.port or 443
        self._ca_file = settings.ca_file
        self._trusted = b""
        self._trust()
        self.failures = 0  # in a row
        self.pause = 0.0  # seconds for which the operator asked to be left alone

    def is_open(self) -> bool:
        """Whether it was, when last used: the other side may have closed it since."""
        return self._http.sock is not None

    def open(self) -> None:
        """Connect unless connected. Raises OSError."""
        self.pause = 0.0
        if not self.is_open():
            with contextlib.suppress(OSError, ValueError):  # what was trusted so far may still do
                self._trust()
            self._http.connect()

    def _trust(self) -> None:
        """Trust those in the file, which changes when the operator's CA does. Raises OSError, ValueError."""
        with open(self._ca_file, "rb") as stream:
            trusted = stream.read()
        if b"CERTIFICATE" not in trusted:  # without any, everybody would be trusted whom this machine trusts
            raise ValueError(f"there is no certificate in {self._ca_file}")
        if trusted != self._trusted:
            context = ssl.create_default_context(cadata=trusted.decode("ascii"))
            context.minimum_version = ssl.TLSVersion.TLSv1_2  # older Pythons would take less
            self._http = http.client.HTTPSConnection(*self._address, timeout=CONNECT_SECONDS, context=context)
            self._trusted = trusted

    def close(self) -> None:
        """Forget it; the next exchange connects anew."""
        self._http.close()

    def _socket(self) -> socket.socket:
        if self._http.sock is None:
            raise http.client.NotConnected
        return self._http.sock

    def send(self, path: str, content: bytes) -> None:
        """Raises OSError, HTTPException."""
        with open(self._token_file) as stream:  # it rotates
            token = stream.read().strip()
        head = (
            f"POST {self._prefix}{path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        connected = self._socket()
        connected.settimeout(ANSWER_SECONDS)
        # In one piece, which http.client does not do: the operator is then woken once for each of thousands.
        connected.sendall(head.encode("ascii") + content)

    def receive(self, timeout: float) -> Tuple[int, JSON]:
        """(status, body). Raises OSError, HTTPException, ValueError."""
        connected = self._socket()
        connected.settimeout(timeout)
        with http.client.HTTPResponse(connected, method="POST") as response:
            response.begin()
            text = response.read(MAX_REPLY_BYTES)
        if response.status != 200 or response.will_close:
            self.close()
        if response.status == 200:
            return 200, json.loads(text.decode("utf-8"))
        body = None
        with contextlib.suppress(ValueError):  # the words may be those of something in between
            self.pause = min(MAX_BACKOFF_SECONDS, float(response.headers.get("Retry-After", 0)))
            body = json.loads(text.decode("utf-8"))
        return response.status, body if isinstance(body, dict) else {}


class _Turnstile:
    """Where one thread waits for something, woken when it is so, and not to find that it is not."""

    def __init__(self, lock: threading.Lock) -> None:
        self._condition = threading.Condition(lock)
        self._awaited: Optional[Callable[[], bool]] = None

    def wait_for(self, awaited: Callable[[], bool], timeout: Optional[float] = None) -> None:
        """With the lock held, which is free meanwhile."""
        self._awaited = awaited
        self._condition.wait_for(awaited, timeout)
        self._awaited = None

    def wake(self) -> None:
        """Something has changed. With the lock held."""
        if self._awaited is not None and self._awaited():
            self._condition.notify()


class Link:
    """Brings reports to the operator and its replies to the main thread, whatever the network does.

    ``take`` gets a desired state, with the rows of ``newCheckpoints`` that the report it answers has told of;
    ``refuse`` gets the operator's words when it does not speak this worker's protocol.
    """

    def __init__(
        self, settings: Settings, inbox: Inbox, take: Callable[[JSON, List[JSON]], None], refuse: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._identity = {
            "protocol": PROTOCOL, "runUid": settings.run_uid, "slot": settings.slot,
            "incarnation": settings.incarnation, "podUid": settings.pod_uid,
        }  # fmt: skip
        self._secrets = secret_values(os.environ)
        self._inbox, self._take, self._refuse = inbox, take, refuse
        self._lock = threading.Lock()  # of all below, but for what only the main thread touches
        self._pusher, self._poller, self._main = (_Turnstile(self._lock) for _ in range(3))
        self._order = threading.Lock()  # a newer report is never put on the wire before an older one
        self._report: JSON = {}
        self._version = 0  # of the state to be told at once
        self._delivered = 0
        self._on_its_way = 0  # the newest version on the wire, answered or not
        self._between_polls = False  # the poll is about to be made anew, and will carry what is urgent
        self._registered = False
        self._taken: List[threading.Event] = []  # answers that the main thread has taken, and not yet reacted to
        self._outage = ""
        self.inventory: List[JSON] = []  # as last registered, with what was saved since
        self.heartbeat = 2.0  # seconds
        self.spread = 0.0  # seconds over which the polls of a gang return
        self.epoch: Optional[List[int]] = None  # the highest seen
        self.seen = 0  # revision of the last reply acted on

    def start(self) -> None:
        """Begin to talk. Raises OSError, ValueError when the CA or the URL is unusable."""
        for loop in (self._push_forever, self._poll_forever):
            threading.Thread(target=loop, args=(Connection(self._settings),), daemon=True).start()

    def publish(self, report: JSON, urgent: bool) -> None:
        """What all reports say from now on; ``urgent`` is not left for the next heartbeat."""
        with self._lock:
            self._report = report
            self._version += urgent
            self._wake()
        while self._taken:
            self._taken.pop().set()

    def register(self, inventory: List[JSON]) -> None:
        """Register anew, with this inventory. Takes effect with the next report that is published."""
        with self._lock:
            self.inventory = list(inventory)
            self._registered = False

    def send_first(self, timeout: float) -> None:
        """Give what was published last a chance to be on the wire before something else takes the processor."""
        with self._lock:
            self._main.wait_for(lambda: self._on_its_way == self._version, timeout)

    def settle(self, timeout: float) -> None:
        """Give the last report a chance to arrive."""
        with self._lock:
            self._on_its_way = self._delivered  # the answer to a poll may take its time
            self._wake()
            self._main.wait_for(lambda: self._delivered == self._version, timeout)

    def _wake(self) -> None:
        for turnstile in (self._pusher, self._poller, self._main):
            turnstile.wake()

    def _push_forever(self, connection: Connection) -> None:
        while True:
            with self._lock:
                self._pusher.wait_for(self._has_to_push)
            self._exchange(connection, 0.0, pushing=True)

    def _has_to_push(self) -> bool:
        if not self._version:
            return False
        return not self._registered or (self._on_its_way != self._version and not self._between_polls)

    def _poll_forever(self, connection: Connection) -> None:
        while True:
            with self._lock:
                self._poller.wait_for(lambda: self._registered)
            taken = self._exchange(connection, min(MAX_POLL_SECONDS, self.heartbeat), pushing=False)
            if taken:
                taken.wait(1.0)  # else the next poll would be answered at once with the same
                with self._lock:  # large gangs must not return as one, unless there is something to be told
                    rest = random.uniform(0.0, self.spread)
                    self._poller.wait_for(lambda: self._on_its_way != self._version, rest)

    def _exchange(self, connection: Connection, wait: float, pushing: bool) -> Optional[threading.Event]:
        """One request; set once what came of its answer is published. None, after a rest: there was no answer."""
        reused = connection.is_open()
        try:
            taken = self._attempt(connection, wait, pushing)
        except Exception as error:  # whatever an answer holds: without this thread nobody hears of the training
            connection.close()
            self._left_unanswered(pushing)
            if reused:  # kept alive by us, closed by the other side: no failure yet
                return self._exchange(connection, wait, pushing)
            self._lost(f"{type(error).__name__}: {error}")
            taken = None
        if taken or not (pushing or self._registered):  # the poll waits for the other connection to register
            connection.failures = 0
            return taken
        self._left_unanswered(pushing)
        connection.failures += 1
        backoff = min(MAX_BACKOFF_SECONDS, 0.1 * 2 ** min(connection.failures, 8))
        time.sleep(max(connection.pause, random.uniform(backoff / 2, backoff)))
        return None

    def _attempt(self, connection: Connection, wait: float, pushing: bool) -> Optional[threading.Event]:
        connection.open()
        with self._order:
            with self._lock:
                version, report = self._version, dict(self._report)
                inventory, registering = self.inventory, not self._registered
                listed = list(inventory)
            if registering and not pushing:
                return None  # "ready" must not get there before the inventory that goes with it
            report = without_secrets(report, self._secrets)
            report.update(epoch=self.epoch, seen=self.seen, waitSeconds=wait, wall=time.time(), mono=time.monotonic())
            if registering:
                content, told = fitted_registration({**self._identity, **self._registration(report, listed)})
            else:
                content, told = fitted_report({**self._identity, **report})
            connection.send("/v1/register" if registering else "/v1/report", content)
            with self._lock:
                self._on_its_way = version
                self._between_polls = self._between_polls and pushing
                self._wake()
        status, answer = connection.receive(wait + ANSWER_SECONDS)
        if status == 200:
            with self._lock:
                self._between_polls = self._between_polls if pushing else connection.is_open()
            return self._answered(answer, told, version, inventory if registering else None)
        if status == 409:
            with self._lock:
                self._registered = False
                self._wake()
            return None
        if status == 426:
            self._inbox.post(functools.partial(self._refuse, str(answer.get("message", ""))))
        self._lost(f"HTTP {status} {answer.get('error', '')} {answer.get('message', '')}")
        return None

    def _left_unanswered(self, pushing: bool) -> None:
        """Who knows what of it has arrived: it is told again, and not by a poll that may take its time."""
        with self._lock:
            self._on_its_way = self._delivered
            self._between_polls = self._between_polls and pushing
            self._wake()

    def _answered(
        self, desired: JSON, told: List[JSON], version: int, registered: Optional[List[JSON]]
    ) -> threading.Event:
        if self._outage:
            self._outage = ""
            log_line("the operator is reachable again")
        with self._lock:
            if told:
                # The next operator that asks is to hear of it as well: rows that were answered are not sent again.
                self.inventory[:] = with_newer(self.inventory, told)
            if registered is not None and registered is self.inventory:
                self._registered = True
            self._delivered = max(self._delivered, version)
            self._wake()
        taken = threading.Event()

        def take() -> None:
            self._take(desired, told)
            self._taken.append(taken)

        self._inbox.post(take)
        return taken

    def _registration(self, report: JSON, inventory: List[JSON]) -> JSON:
        settings = self._settings
        return {
            "namespace": settings.namespace, "run": settings.run, "node": settings.node,
            "hostname": socket.gethostname(), "address": settings.address, "workerVersion": __version__,
            "problem": report["problem"], "inventory": inventory, "report": report,
        }  # fmt: skip

    def _lost(self, why: str) -> None:
        if not self._outage:  # once per outage, not once per try
            log_line(f"the operator is not reachable, what runs goes on: {why[:300]}")
        self._outage = why


def with_newer(known: Sequence[JSON], told: Sequence[JSON]) -> List[JSON]:
    """The newest rows of each tier, newest first; what was told last of a checkpoint counts."""
    rows = {(row["tier"], row["path"]): row for row in (*known, *told)}
    kept: List[JSON] = []
    for tier in sorted({tier for tier, _ in rows}):
        mine = [row for (its, _), row in rows.items() if its == tier]
        kept += sorted(mine, key=lambda row: int(row["step"]), reverse=True)[:NEWEST]
    return kept
