"""A fake operator: the worker protocol over real TLS, with a desired state that the test sets by hand.

It decides nothing. What workers send is decoded by the operator's own strict decoder, so that a body
which the real one would refuse fails here too.
"""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lockstep.controller.workers import protocol
from lockstep.controller.workers.tls import Material, load_serving, new_material, server_context

DEADLINE = 60.0


class FakeOperator:
    """Serves until closed. ``requests`` holds (path, token, body) in the order of arrival."""

    def __init__(self, directory: Path, heartbeat: float = 0.5) -> None:
        self.material = material = new_material(["127.0.0.1"], time.time())
        self.ca_file = directory / "ca.crt"
        self.ca_file.write_bytes(material.ca_cert)
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.refusals: list[tuple[int, str]] = []  # given out first, one per request
        self.heartbeat = heartbeat
        self.clock_ahead = 0.0  # seconds, of the workers' clock
        self.broken = 0  # connections that ended with an error
        self.epoch = [100, 0]
        self.ranks: dict[int, int] = {}  # by slot, where not all workers are to have the same …
        self.given: dict[int, dict[str, Any]] = {}  # … and what else only one of them gets
        self._context = server_context(material)
        self._changed = threading.Condition()
        self._revision = 0
        self._desired: dict[str, Any] = {"phase": "Hold", "attempt": 0, "rank": -1, "worldSize": 0}
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.open()

    def serve_by(self, material: Material, trusted: str) -> None:
        """Another certificate for new connections; the file of authorities is changed as the kubelet does it."""
        load_serving(self._context, material)
        beside = self.ca_file.with_suffix(".new")
        beside.write_text(trusted)
        beside.rename(self.ca_file)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def open(self) -> None:
        """Listen, on the port of the time before."""
        operator = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                operator._answer(self)

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                operator.broken += 1  # a worker was killed in the middle of a request, or does not trust us

        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_port
        self.connections: set[Any] = set()
        plain = self._server.socket
        self._server.socket = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.shutdown()
        server.server_close()
        for connection in list(self.connections):
            try:
                connection.shutdown(2)
            except OSError:
                continue
        with self._changed:
            self._changed.notify_all()

    def desire(self, phase: str, attempt: int, *, rank: int = 0, world: int = 1, **more: Any) -> None:
        """Set what every worker is answered from now on."""
        with self._changed:
            self._desired = {"phase": phase, "attempt": attempt, "rank": rank, "worldSize": world, **more}
            self._revision += 1
            self._changed.notify_all()

    def run(self, attempt: int, *, rank: int = 0, world: int = 1, resume: Any = None, **more: Any) -> None:
        """Release attempt ``attempt``."""
        start = {
            "attempt": attempt, "assignmentHash": "abc", "masterAddress": "10.1.0.1", "masterPort": 40123,
            "resume": resume, "members": [{"slots": "0", "incarnation": 1}],
        }  # fmt: skip
        nodelist = [f"10.1.0.{r + 1}" for r in range(world)]
        self.desire("Run", attempt, rank=rank, world=world, start=start, nodelist=nodelist, **more)

    def bodies(self, path: str = "") -> list[dict[str, Any]]:
        """What was sent, of one endpoint or of both."""
        with self._changed:
            return [body for at, _, body in self.requests if at.startswith(path or "/")]

    def states(self) -> list[dict[str, Any]]:
        """What the workers said of themselves, registrations included."""
        return [{**body, **body.get("report", {})} for body in self.bodies()]

    def wait_for(self, what: Callable[[dict[str, Any]], Any], since: int = 0) -> dict[str, Any]:
        """The first state from the ``since``-th on of which ``what`` is true."""
        deadline = time.monotonic() + DEADLINE
        with self._changed:
            while True:
                for body in (body for _, _, body in self.requests[since:]):
                    state = {**body, **body.get("report", {})}
                    if what(state):
                        return state
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    last = self.requests[-1] if self.requests else None
                    raise AssertionError(f"no such report within {DEADLINE:g} s; the last was {last}")

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        self.connections.add(request.connection)
        raw = request.rfile.read(int(request.headers["Content-Length"]))
        token = request.headers["Authorization"].removeprefix("Bearer ")
        with self._changed:
            refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is None:
            try:
                decode = protocol.decode_registration if request.path == "/v1/register" else protocol.decode_report
                decode(raw)
            except ValueError as error:
                refusal = (400, str(error))
        body = json.loads(raw)
        body["size"] = len(raw)
        with self._changed:
            self.requests.append((request.path, token, body))
            self._changed.notify_all()
            if refusal is None and body.get("waitSeconds"):
                deadline = time.monotonic() + body["waitSeconds"]
                while self._revision == body["seen"] and self._server is not None:
                    if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                        break
            reply: dict[str, Any] = {
                "protocol": 1, "epoch": self.epoch, "revision": self._revision,
                "serverTime": time.time() + self.clock_ahead, "heartbeatSeconds": self.heartbeat,
                "fenceSeconds": 0, "start": None, "nodelist": [], "verify": None, "stopGraceSeconds": 5,
                **self._desired,
            }  # fmt: skip
        reply.update(self.given.get(body["slot"], {}), rank=self.ranks.get(body["slot"], reply["rank"]))
        status = 200
        if refusal is not None:
            status, message = refusal
            reply = {"error": "refused", "message": message}
        text = json.dumps(reply).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)
